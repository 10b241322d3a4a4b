/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames out of a byte stream (rpc_sp_read.h): the first byte says tcp or ipc and into what pieces
 * the rest is cut. However it is cut, the same frames come out, and the same verdict.
 */
#include "common/base/hash.h"
#include "common/rpc/rpc_frame.h"
#include "common/rpc/sp/rpc_sp_read.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct out {
    uint64_t sum;
    size_t frames, bytes;
};

static bool on_frame(void *cookie, struct str frame)
{
    struct out *o = cookie;

    CHECK(frame.len > 0 && frame.len <= RPC_FRAME_MAX);
    o->sum = hash64(frame.ptr, frame.len, o->sum);
    o->bytes += frame.len;
    return ++o->frames < 1000;
}

static int run(bool ipc, struct str bytes, size_t piece, struct out *ret)
{
    struct rpc_sp_reader r;
    struct err e;
    int rc = 0;

    *ret = (struct out){ 0 };
    rpc_sp_reader_init(&r, ipc, RPC_SP_PUSH);
    for (size_t at = 0; at < bytes.len && rc == 0; at += piece)
        rc = rpc_sp_reader_take(&r, str_sub(bytes, at, MIN(at + piece, bytes.len)), on_frame, ret,
                                &e);
    CHECK(r.part.cap <= 2 * bytes.len + 4096);
    rpc_sp_reader_deinit(&r);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str bytes;
    struct out whole, cut;
    int rc;

    if (size < 1)
        return 0;
    bytes = str_n((const char *)(const void *)data + 1, size - 1);
    rc = run(data[0] & 1, bytes, SIZE_MAX / 2, &whole);
    CHECK(whole.bytes <= bytes.len);
    CHECK(run(data[0] & 1, bytes, 1 + data[0] / 2, &cut) == rc);
    CHECK(cut.sum == whole.sum && cut.frames == whole.frames);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * What RPC protocols read: the first byte says what of it, the rest is the text.
 */
#include "common/base/base64.h"
#include "common/base/mem.h"
#include "common/net/svc/svc_wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Frames taken from a growing body are those taken from the whole one. */
static void frames(struct str body)
{
    struct str rest = body, piece;
    struct svc_frame f, g;
    struct err e;
    size_t need, at = 0;
    int got;

    while ((got = svc_frame_take(&rest, 64 * KIB, &f, &need, &e)) > 0) {
        CHECK(f.bytes.ptr >= body.ptr && f.bytes.ptr + f.bytes.len == rest.ptr);
        CHECK(need == SVC_FRAME_HEAD + f.bytes.len);
        for (size_t n = 0; n < need; n += 1 + need / 8) {
            piece = str_sub(body, at, at + n);
            CHECK(svc_frame_take(&piece, 64 * KIB, &g, &need, &e) == 0 && piece.len == n);
            need = SVC_FRAME_HEAD + f.bytes.len;
        }
        at += need;
    }
    CHECK(got == 0 || e.code == -got);
    if (svc_frame_only(body, &f, &e) == 0)
        CHECK(f.bytes.len + SVC_FRAME_HEAD == body.len);
}

static void base64(struct str text)
{
    struct buf bytes, again, back;

    buf_init(&bytes, MIB);
    buf_init(&again, 2 * MIB);
    buf_init(&back, MIB);
    if (base64_decode(text, &bytes)) {
        CHECK(bytes.len <= text.len);
        CHECK(base64_encode(buf_str(&bytes), &again) && base64_decode(buf_str(&again), &back));
        CHECK(str_eq(buf_str(&bytes), buf_str(&back)));
    }
    buf_deinit(&bytes);
    buf_deinit(&again);
    buf_deinit(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct svc_type t, u;
    struct buf out;
    uint64_t ms;

    if (size < 1 || size > 64 * KIB)
        return 0;
    struct str text = str_n(data + 1, size - 1);
    switch (data[0] % 4) {
    case 0:
        if (svc_type_parse(text, &t))
            CHECK(svc_type_parse(str_c(svc_type_text(&t)), &u) && u.codec == t.codec &&
                  u.protocol == t.protocol && u.base64 == t.base64);
        break;
    case 1:
        if (svc_grpc_timeout(text, &ms))
            CHECK(ms <= UINT64_C(99999999) * 3600000);
        if (svc_connect_timeout(text, &ms))
            CHECK(ms <= UINT64_C(9999999999));
        break;
    case 2:
        frames(text);
        break;
    default:
        base64(text);
        buf_init(&out, 4 * 64 * KIB);
        svc_percent(text, &out);
        CHECK(buf_ok(&out) && out.len >= text.len);
        buf_deinit(&out);
    }
    return 0;
}

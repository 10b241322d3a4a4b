/* SPDX-License-Identifier: Apache-2.0
 *
 * brotli_decompress: Brotli (RFC 7932) has no checksum and says no size in advance, so output is
 * made in steps, each of which asks the limits first. The decoder's own memory is its window, at
 * most 16 MiB by the format (larger windows are another format, which stays off).
 */
#include <brotli/decode.h>

#include "common/base/compress/compress.h"

#define STEP_LEAST (64 * KIB)

/* One step of output. 1: the end; 0: more; -1: refused, *e says why. */
static int step(BrotliDecoderState *d, struct str *in, size_t most, struct buf *out, size_t start,
                struct err *e)
{
    size_t done = out->len - start;
    size_t room = MIN(MAX(done, (size_t)STEP_LEAST), most - done);
    size_t left = room;
    const uint8_t *from = (const uint8_t *)(const void *)in->ptr;
    uint8_t *to = (uint8_t *)(void *)buf_room(out, room);

    if (!to) {
        err_set(e, ERR_LIMIT, "decompressed data would pass %zu bytes", out->max);
        return -1;
    }
    BrotliDecoderResult r = BrotliDecoderDecompressStream(d, &in->len, &from, &left, &to, NULL);
    in->ptr = (const char *)(const void *)from;
    out->len += room - left;
    if (r == BROTLI_DECODER_RESULT_SUCCESS)
        return 1;
    if (r == BROTLI_DECODER_RESULT_NEEDS_MORE_INPUT) {
        err_set(e, ERR_INPUT, "the brotli data is truncated");
        return -1;
    }
    if (r == BROTLI_DECODER_RESULT_ERROR) {
        err_set(e, ERR_INPUT, "the brotli data is damaged: %s",
                BrotliDecoderErrorString(BrotliDecoderGetErrorCode(d)));
        return -1;
    }
    if (out->len - start >= most) {
        err_set(e, ERR_LIMIT, "the brotli data expands to more than %zu bytes", most);
        return -1;
    }
    return 0;
}

int brotli_decompress(struct str in, const struct inflate_limits *l, struct buf *out, struct err *e)
{
    size_t most = inflate_output_max(l, in.len), start = out->len;
    BrotliDecoderState *d = BrotliDecoderCreateInstance(NULL, NULL, NULL);
    int r;

    CHECK(d);
    do
        r = step(d, &in, most, out, start, e);
    while (r == 0);
    BrotliDecoderDestroyInstance(d);
    if (r < 0)
        return e->code;
    if (in.len)
        return err_set(e, ERR_INPUT, "%zu bytes follow the end of the brotli data", in.len);
    return 0;
}

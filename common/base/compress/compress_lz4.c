/* SPDX-License-Identifier: Apache-2.0
 *
 * LZ4 frames by liblz4's frame API, which keeps its own window (up to some 8 MiB for the largest
 * block size) and checks the checksums that a frame has. Output goes straight to its place
 * (stableDst): what was written is never moved while a frame is being read.
 */
#include <lz4frame.h>

#include "common/base/compress/compress.h"
#include "common/base/size.h"

#define RATIO_FREE MIB /* as in compress.c */
#define ROOM_FIRST ((size_t)64 * KIB)

bool lz4_sniff(struct str s)
{
    return s.len >= 4 && memcmp(s.ptr, "\x04\x22\x4d\x18", 4) == 0;
}

static int damaged(size_t code, struct err *e)
{
    return err_set(e, ERR_INPUT, "lz4 data is damaged: %s", LZ4F_getErrorName(code));
}

static LZ4F_dctx *dctx_new(void)
{
    LZ4F_dctx *d = NULL;

    CHECK(!LZ4F_isError(LZ4F_createDecompressionContext(&d, LZ4F_VERSION)));
    return d;
}

int lz4_decompress_into(struct str in, void *to, size_t size, struct err *e)
{
    const LZ4F_decompressOptions_t options = { .stableDst = 1 };
    LZ4F_dctx *d = dctx_new();
    size_t done = 0, more = 1;
    int rc = 0;

    while (more && !rc) {
        size_t in_n = in.len, out_n = size - done;
        more = LZ4F_decompress(d, (char *)to + done, &out_n, in.ptr, &in_n, &options);
        if (LZ4F_isError(more))
            rc = damaged(more, e);
        else if (more && in_n == 0 && out_n == 0)
            rc = err_set(e, ERR_INPUT, "lz4 data is %s",
                         done == size ? "longer than it should be" : "truncated");
        in = str_sub(in, in_n, in.len);
        done += out_n;
    }
    if (!rc && done != size)
        rc = err_set(e, ERR_INPUT, "lz4 data has %zu bytes instead of %zu", done, size);
    LZ4F_freeDecompressionContext(d);
    return rc;
}

/* More room at the end of *out, up to `most` bytes after start; 0 when that is used up. */
static size_t room_more(struct buf *out, size_t start, size_t most, char **ret)
{
    size_t done = out->len - start;
    size_t n = MIN(MAX(ROOM_FIRST, done), most - done);

    *ret = n ? buf_room(out, n) : NULL;
    return *ret ? n : 0;
}

int lz4_decompress(struct str in, const struct inflate_limits *l, struct buf *out, struct err *e)
{
    size_t start = out->len, by_ratio, more = 1;
    size_t most = MIN(l->bytes_max, out->max - out->len);
    LZ4F_dctx *d;
    int rc = 0;

    if (!lz4_sniff(in))
        return err_set(e, ERR_INPUT, "not an lz4 frame: it does not start with 04 22 4d 18");
    if (l->ratio_max && size_mul(in.len, l->ratio_max, &by_ratio))
        most = MIN(most, MAX(by_ratio, RATIO_FREE));
    d = dctx_new();
    /* The buffer may move between calls: no stableDst here. */
    while ((in.len || more) && !rc) {
        char *to = NULL, none;
        size_t in_n = in.len, out_n = room_more(out, start, most, &to);
        more = LZ4F_decompress(d, to ? to : &none, &out_n, in.ptr, &in_n, NULL);
        if (LZ4F_isError(more))
            rc = damaged(more, e);
        else if (!to && more && in_n == 0)
            rc = err_set(e, ERR_LIMIT, "the lz4 data expands to more than %zu bytes", most);
        else if (more && in_n == 0 && out_n == 0)
            rc = err_set(e, ERR_INPUT, "the lz4 data is truncated");
        in = str_sub(in, in_n, in.len);
        out->len += out_n;
    }
    LZ4F_freeDecompressionContext(d);
    return rc;
}

int lz4_compress(struct str in, struct buf *out, struct err *e)
{
    LZ4F_preferences_t p = LZ4F_INIT_PREFERENCES;
    p.frameInfo.contentSize = in.len;
    size_t bound = LZ4F_compressFrameBound(in.len, &p);
    char *to = bound <= out->max - out->len ? buf_room(out, bound) : NULL;

    if (!to)
        return err_set(e, ERR_LIMIT, "compressed data could pass %zu bytes", out->max);
    size_t n = LZ4F_compressFrame(to, bound, in.ptr, in.len, &p);
    if (LZ4F_isError(n))
        return err_set(e, ERR_INTERNAL, "lz4: %s", LZ4F_getErrorName(n));
    out->len += n;
    return 0;
}

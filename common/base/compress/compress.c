/* SPDX-License-Identifier: Apache-2.0
 *
 * gunzip: libdeflate for each member (2-4 times zlib's speed), which needs the output size in
 * advance. The trailer's ISIZE is attacker-controlled, so it is only a hint: the first try gets
 * min(ISIZE, 32 x input, limit) bytes, and the room doubles up to the limit while libdeflate says
 * that it is short. Work is thereby bounded by twice the limit.
 */
#include "common/base/compress/compress.h"

#include "common/base/pause.h"

#include <libdeflate.h>
#include <zstd.h>

#include "common/base/size.h"
#include "common/base/wr.h"

#define RATIO_FREE MIB /* the ratio limit does not hold below this output */
#define GZIP_LEAST 18  /* header 10 + trailer 8 */

bool gzip_sniff(struct str s)
{
    return s.len >= 2 && (unsigned char)s.ptr[0] == 0x1f && (unsigned char)s.ptr[1] == 0x8b;
}

/* Most output that `in` bytes may become. */
static size_t output_max(const struct inflate_limits *l, size_t in, bool *ret_by_ratio)
{
    size_t most = l->bytes_max, by_ratio;

    *ret_by_ratio = false;
    if (l->ratio_max && size_mul(in, l->ratio_max, &by_ratio)) {
        by_ratio = MAX(by_ratio, RATIO_FREE);
        if (by_ratio < most) {
            *ret_by_ratio = true;
            most = by_ratio;
        }
    }
    return most;
}

size_t inflate_output_max(const struct inflate_limits *l, size_t in)
{
    bool by_ratio;

    return output_max(l, in, &by_ratio);
}

struct gunzip_state {
    struct libdeflate_decompressor *d;
    struct str left;
    size_t most; /* of out->len at the end */
    size_t start;
};

static int gunzip_member(struct gunzip_state *g, struct buf *out, struct err *e, bool *ret_full)
{
    size_t done = out->len - g->start, room = g->most - done;
    size_t hint = get_u32le(g->left.ptr + g->left.len - 4);
    size_t first;

    if (!size_mul(g->left.len, 32, &first) || first > room)
        first = room;
    size_t try = MAX(MIN(MIN(hint, first), room), MIN((size_t)64, room));
    for (;;) {
        size_t in_used = 0, out_used = 0;
        char *to = buf_room(out, try);
        if (!to) {
            *ret_full = true;
            return 0;
        }
        enum libdeflate_result r = libdeflate_gzip_decompress_ex(g->d, g->left.ptr, g->left.len, to,
                                                                 try, &in_used, &out_used);
        if (r == LIBDEFLATE_SUCCESS) {
            out->len += out_used;
            g->left = str_sub(g->left, in_used, g->left.len);
            return 0;
        }
        if (r != LIBDEFLATE_INSUFFICIENT_SPACE)
            return err_set(e, ERR_INPUT,
                           "the gzip data is damaged: truncated, or its checksum is wrong");
        if (try == room) {
            *ret_full = true;
            return 0;
        }
        try = try > room / 2 ? room : try * 2;
    }
}

int gunzip(struct str in, const struct inflate_limits *l, struct buf *out, struct err *e)
{
    bool by_ratio, full = false;
    struct gunzip_state g = { .left = in,
                              .most = output_max(l, in.len, &by_ratio),
                              .start = out->len };
    int rc = 0;

    if (!gzip_sniff(in))
        return err_set(e, ERR_INPUT, "not gzip data: it does not start with 1f 8b");
    g.d = libdeflate_alloc_decompressor();
    CHECK(g.d);
    while (!rc && g.left.len && !full) {
        pause_point();
        if (g.left.len < GZIP_LEAST || !gzip_sniff(g.left))
            rc = err_set(e, ERR_INPUT,
                         g.left.len == in.len ? "the gzip data is truncated: %zu bytes"
                                              : "%zu bytes follow the end of the gzip data",
                         g.left.len);
        else
            rc = gunzip_member(&g, out, e, &full);
    }
    libdeflate_free_decompressor(g.d);
    if (rc)
        return rc;
    if (full && by_ratio)
        return err_set(e, ERR_LIMIT, "the gzip data expands more than %u:1", l->ratio_max);
    if (full)
        return err_set(e, ERR_LIMIT, "the gzip data expands to more than %zu bytes", l->bytes_max);
    return 0;
}

int gzip(struct str in, int level, struct buf *out, struct err *e)
{
    struct libdeflate_compressor *c = libdeflate_alloc_compressor(level);
    CHECK(c);
    /* The bound is for incompressible data: room for less may do. */
    size_t room = MIN(libdeflate_gzip_compress_bound(c, in.len), out->max - out->len);
    char *to = buf_room(out, room);
    size_t n = to ? libdeflate_gzip_compress(c, in.ptr, in.len, to, room) : 0;

    libdeflate_free_compressor(c);
    out->len += n;
    return n ? 0 : err_set(e, ERR_LIMIT, "compressed data would pass %zu bytes", out->max);
}

int zstd_compress(struct str in, int level, struct buf *out, struct err *e)
{
    size_t room = MIN(ZSTD_compressBound(in.len), out->max - out->len);
    char *to = buf_room(out, room);

    if (!to)
        return err_set(e, ERR_LIMIT, "compressed data would pass %zu bytes", out->max);
    size_t n = ZSTD_compress(to, room, in.ptr, in.len, level);
    if (ZSTD_isError(n))
        return err_set(e, ERR_LIMIT, "zstd: %s", ZSTD_getErrorName(n));
    out->len += n;
    return 0;
}

int zstd_decompress(struct str in, size_t bytes_max, struct buf *out, struct err *e)
{
    unsigned long long size = ZSTD_getFrameContentSize(in.ptr, in.len);

    if (size == ZSTD_CONTENTSIZE_ERROR || size == ZSTD_CONTENTSIZE_UNKNOWN)
        return err_set(e, ERR_INPUT, "not a zstd frame with a known size");
    if (size > bytes_max)
        return err_set(e, ERR_LIMIT, "zstd data expands to %llu bytes, the limit is %zu", size,
                       bytes_max);
    char *to = buf_room(out, (size_t)size);
    if (!to)
        return err_set(e, ERR_LIMIT, "decompressed data would pass %zu bytes", out->max);
    size_t n = ZSTD_decompress(to, (size_t)size, in.ptr, in.len);
    if (ZSTD_isError(n) || n != size)
        return err_set(e, ERR_INPUT, "zstd data is damaged: %s",
                       ZSTD_isError(n) ? ZSTD_getErrorName(n) : "wrong size");
    out->len += n;
    return 0;
}

int zstd_decompress_into(struct str in, void *to, size_t size, struct err *e)
{
    size_t n = ZSTD_decompress(to, size, in.ptr, in.len);

    if (ZSTD_isError(n) || n != size)
        return err_set(e, ERR_INPUT, "zstd data is damaged: %s",
                       ZSTD_isError(n) ? ZSTD_getErrorName(n) : "wrong size");
    return 0;
}

/* ---- other codings from outside */

typedef enum libdeflate_result (*inflate_fn)(struct libdeflate_decompressor *d, const void *in,
                                             size_t in_len, void *out, size_t out_len,
                                             size_t *ret_in, size_t *ret_out);

static int inflate_by(inflate_fn fn, struct str in, size_t most, struct buf *out, struct err *e)
{
    struct libdeflate_decompressor *d = libdeflate_alloc_decompressor();
    size_t try = MIN(most, MAX(in.len, (size_t)64) * 4), in_used = 0, out_used = 0;
    enum libdeflate_result r = LIBDEFLATE_INSUFFICIENT_SPACE;
    char *to;

    CHECK(d);
    while ((to = buf_room(out, try)) != NULL) {
        r = fn(d, in.ptr, in.len, to, try, &in_used, &out_used);
        if (r != LIBDEFLATE_INSUFFICIENT_SPACE || try == most)
            break;
        try = try > most / 2 ? most : try * 2;
    }
    libdeflate_free_decompressor(d);
    if (r == LIBDEFLATE_INSUFFICIENT_SPACE)
        return err_set(e, ERR_LIMIT, "the deflate data expands to more than %zu bytes",
                       MIN(most, out->max));
    if (r != LIBDEFLATE_SUCCESS)
        return err_set(e, ERR_INPUT,
                       "the deflate data is damaged: truncated, or its checksum is wrong");
    if (in_used != in.len)
        return err_set(e, ERR_INPUT, "%zu bytes follow the end of the deflate data",
                       in.len - in_used);
    out->len += out_used;
    return 0;
}

int deflate_decompress(struct str in, const struct inflate_limits *l, struct buf *out,
                       struct err *e)
{
    size_t most = output_max(l, in.len, &(bool){ false });
    /* RFC 1950: method 8, a window of 32 KiB at most, and a check over both bytes. */
    bool zlib = in.len >= 2 && (in.ptr[0] & 0x0f) == 8 && ((uint8_t)in.ptr[0] >> 4) <= 7 &&
                ((uint8_t)in.ptr[0] << 8 | (uint8_t)in.ptr[1]) % 31 == 0;

    return inflate_by(zlib ? libdeflate_zlib_decompress_ex : libdeflate_deflate_decompress_ex, in,
                      most, out, e);
}

/* A frame that does not say its size; several, one behind the other; frames to skip. */
static int zstd_stream(struct str in, size_t most, struct buf *out, struct err *e)
{
    ZSTD_DCtx *d = ZSTD_createDCtx();
    ZSTD_inBuffer from = { in.ptr, in.len, 0 };
    size_t start = out->len, r = 1;
    int code = 0;

    CHECK(d && !ZSTD_isError(ZSTD_DCtx_setParameter(d, ZSTD_d_windowLogMax, 23)));
    while (!code && (r != 0 || from.pos < from.size)) {
        size_t done = out->len - start;
        size_t room = MIN(MAX(done, (size_t)(64 * KIB)), most - done);
        pause_point();
        ZSTD_outBuffer to = { buf_room(out, room), room, 0 };
        if (!to.dst || room == 0) {
            code = err_set(e, ERR_LIMIT, "the zstd data expands to more than %zu bytes",
                           MIN(most, out->max));
            break;
        }
        r = ZSTD_decompressStream(d, &to, &from);
        out->len += to.pos;
        if (ZSTD_isError(r))
            code = err_set(e, ERR_INPUT, "zstd data is damaged: %s", ZSTD_getErrorName(r));
        else if (r != 0 && from.pos == from.size && to.pos < to.size)
            code = err_set(e, ERR_INPUT, "the zstd data is truncated");
    }
    ZSTD_freeDCtx(d);
    return code;
}

int zstd_inflate(struct str in, const struct inflate_limits *l, struct buf *out, struct err *e)
{
    size_t most = output_max(l, in.len, &(bool){ false });
    unsigned long long size = ZSTD_getFrameContentSize(in.ptr, in.len);

    if (size == ZSTD_CONTENTSIZE_ERROR)
        return err_set(e, ERR_INPUT, "not zstd data: it does not start with 28 b5 2f fd");
    /* More than a frame, or none that is whole: the stream finds out which. */
    if (size == ZSTD_CONTENTSIZE_UNKNOWN || ZSTD_findFrameCompressedSize(in.ptr, in.len) != in.len)
        return zstd_stream(in, most, out, e);
    return zstd_decompress(in, most, out, e);
}

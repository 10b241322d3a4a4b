/* SPDX-License-Identifier: Apache-2.0
 *
 * compress.h: gzip (RFC 1951/1952), zstd (RFC 8878) and LZ4 frames over slices, always with an
 * output limit.
 *
 * gunzip accepts several concatenated members and refuses: truncation, wrong CRC or size, bytes
 * after the last member, output over `limit`, and output over ratio_max : 1 once it passed 1 MiB.
 * Memory is at most the output plus a small constant: a forged ISIZE allocates nothing.
 */
#ifndef COMMON_BASE_COMPRESS_COMPRESS_H
#define COMMON_BASE_COMPRESS_COMPRESS_H

#include "common/base/buf.h"
#include "common/base/err.h"

struct inflate_limits {
    size_t bytes_max;   /* of output */
    uint32_t ratio_max; /* output : input beyond 1 MiB; 0 = no ratio limit */
};

bool gzip_sniff(struct str s); /* starts with 1f 8b */
/* Appends to *out (whose own max also holds). ERR_INPUT or ERR_LIMIT; *out is undefined then. */
NODISCARD int gunzip(struct str in, const struct inflate_limits *l, struct buf *out, struct err *e);
/* Most output that `in` bytes may become under l. */
size_t inflate_output_max(const struct inflate_limits *l, size_t in);
/* The same for other codings from outside. deflate is zlib's format, or the bare deflate stream
 * which some clients send under this name; zstd may come without its size, then with a window of 8
 * MiB. */
NODISCARD int deflate_decompress(struct str in, const struct inflate_limits *l, struct buf *out,
                                 struct err *e);
NODISCARD int zstd_inflate(struct str in, const struct inflate_limits *l, struct buf *out,
                           struct err *e);
NODISCARD int brotli_decompress(struct str in, const struct inflate_limits *l, struct buf *out,
                                struct err *e);
/* One block, or frames (compress_snappy.c). */
NODISCARD int snappy_inflate(struct str in, const struct inflate_limits *l, struct buf *out,
                             struct err *e);
NODISCARD int gzip(struct str in, int level, struct buf *out, struct err *e);

/* gzip of input that comes in pieces (compress_gzip.c). */
#define GZIP_STREAM_BYTES (272 * KIB) /* memory of one stream, for any input */
struct gzip_stream;
enum gzip_stream_flush {
    GZIP_STREAM_MORE,  /* some of it may stay inside */
    GZIP_STREAM_PIECE, /* the output so far decodes to all of the input so far */
    GZIP_STREAM_END    /* that was all */
};
struct gzip_stream *gzip_stream_new(int level);
void gzip_stream_free(struct gzip_stream *s); /* at any time; NULL is fine */
/* Appends to *out; nothing may follow an error or the end. ERR_LIMIT: *out is full. */
NODISCARD int gzip_stream_add(struct gzip_stream *s, struct str in, enum gzip_stream_flush flush,
                              struct buf *out, struct err *e);

NODISCARD int zstd_compress(struct str in, int level, struct buf *out, struct err *e);
NODISCARD int zstd_decompress(struct str in, size_t bytes_max, struct buf *out, struct err *e);
/* One frame into exactly `size` bytes at `to`, for formats that say the size elsewhere (Arrow).
 * ERR_INPUT for damaged data and for any other size. */
NODISCARD int zstd_decompress_into(struct str in, void *to, size_t size, struct err *e);

/* LZ4 frames (compress_lz4.c); skippable frames count as nothing. */
bool lz4_sniff(struct str s); /* starts with 04 22 4d 18 */
NODISCARD int lz4_decompress_into(struct str in, void *to, size_t size, struct err *e);
/* One or more frames, appended to *out under limits as gunzip's. */
NODISCARD int lz4_decompress(struct str in, const struct inflate_limits *l, struct buf *out,
                             struct err *e);
NODISCARD int lz4_compress(struct str in, struct buf *out, struct err *e);

#endif

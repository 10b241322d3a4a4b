/* SPDX-License-Identifier: Apache-2.0
 *
 * vec.h: the bytes of one stored vector: sparse self values by stack id, in 1..n sections, one per
 * dictionary epoch. Used by every row of raw, fine, coarse and ru.
 *
 *   row      version  u8      1
 *            flags    u8      bit 0 SATURATED: some sum stayed at 2^64-1; total and F are not exact
 *                             bit 1 WRITES, bit 2 SECTIONS: field present; other bits are refused
 *            total    varint  sum of all values, staying at 2^64-1 where it would pass it
 *            writes   varint  pushes summed up in this row       absent: 1
 *            sections varint  0..4096                            absent: 1
 *            F        u64le   fingerprint (fp.h), < 2^61-1
 *            section  ...     epochs ascending
 *            crc      u32le   crc32c of all bytes before
 *
 *   section  epoch    varint  u32
 *            n        varint  entries, 1 .. 2^32-1
 *            form     u8      bits 0-3 k = value planes, 1..8; bits 4-6: field present; bit 7 is 0
 *            scale    varint  >= 2, bit 4: common divisor of the values      absent: 1
 *            E        varint  >= 1, bit 5: bytes of escapes                  absent: 0
 *            V        varint  >= 1, bit 6: bytes of overflow                 absent: 0
 *            ids      n bytes     byte i: id - (previous id + 1), the first against -1;
 *                                 255: add one varint of escapes to the 255
 *            escapes  E bytes     varints, as many as ids has bytes 255
 *            planes   k * n bytes plane p holds byte p of value / scale, lowest plane first
 *            overflow V bytes     per value with more than k bytes, in order: varint entries since
 *                                 the previous one (the first against -1) less 1, varint
 *                                 value / scale >> 8k
 *
 * k is the smallest for which fewer than n/16 values overflow. Ids ascend by construction, values
 * are never 0. Example: epoch 3, {2: 10, 5: 20, 300: 7000}, two writes, F = 0x1122334455:
 *
 *   01 02 | f6 36 | 02 | 55 44 33 22 11 00 00 00 |        version, flags WRITES, total 7030, 2, F
 *   03 03 32 | 0a 01 | 02 02 ff | 27 |                    epoch, n, form (k 2, scale, escapes),
 *                                                         scale 10, E 1; ids: 2, 5 - 3, 255 + 39
 *   01 02 bc | 00 00 02 | xx xx xx xx                     planes of 1, 2, 700; crc32c
 *
 * Version rule: any change of meaning takes a new version byte; readers refuse what they do not
 * know and keep every older version readable.
 *
 * Nothing here allocates; vec_open proves the whole row sound before anything can be added.
 */
#ifndef COMMON_STORE_CODEC_VEC_H
#define COMMON_STORE_CODEC_VEC_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/rd.h"

#define VEC_SECTIONS_MAX 4096

struct vec_meta {
    uint64_t total; /* computed by vec_encode */
    uint64_t writes;
    uint64_t fp;
    bool saturated; /* vec_encode also sets it in the row when the total does not fit */
};

/* What to encode: ids strictly ascending, values > 0; a section is never empty. */
struct vec_part {
    uint32_t epoch;
    const uint32_t *ids;
    const uint64_t *values;
    size_t len;
};
/* Appends the row of `count` parts (epochs strictly ascending; 0 = a row without entries). False
 * when *out would pass its maximum (its contents are undefined then). The same input must give the
 * same bytes on every machine and in every later version. Unsorted ids or zero values are a
 * CHECK. */
NODISCARD bool vec_encode(const struct vec_part *parts, size_t count, const struct vec_meta *meta,
                          struct buf *out);

/* Can these be the entries of a part: do ids ascend, are values above 0? */
bool vec_sound(const uint32_t *ids, const uint64_t *values, size_t n);

/* One section of an opened row; borrows the row's bytes. */
struct vec_section {
    uint32_t epoch;
    uint32_t len;    /* entries, >= 1 */
    uint32_t last;   /* the highest id */
    uint32_t planes; /* k */
    uint64_t scale;
    const uint8_t *ids, *values; /* ids: len bytes; values: planes * len bytes */
    struct str escapes, overflow;
};
struct vec_reader {
    struct vec_meta meta;
    uint32_t sections;
    uint32_t next;            /* section vec_next gives */
    struct rd rest;           /* from section `next` on */
    struct vec_section first; /* the usual case is one section: parsed once */
};
/* Checks everything: version, lengths, crc, ascending epochs and ids, no zero value, total. After
 * 0 nothing below can fail but a limit on ids. ERR_CORRUPT says what is wrong. */
NODISCARD int vec_open(struct str row, struct vec_reader *ret, struct err *e);
/* Only the head (meta and sections): for totals and digests without a look at entries. The crc is
 * not checked, the reader may not be given to vec_next. */
NODISCARD int vec_peek(struct str row, struct vec_reader *ret, struct err *e);
bool vec_next(struct vec_reader *r, struct vec_section *ret); /* false at the end */
/* How many entries all sections have, from their heads; checks as little as vec_peek. */
NODISCARD int vec_count(struct str row, uint64_t *ret, struct err *e);

/* acc[id] += value for the whole section, or false and nothing added if an id is >= n. The caller
 * keeps the sum of all row totals below 2^64; where it cannot, vec_add_dense_sat. */
NODISCARD bool vec_add_dense(const struct vec_section *s, uint64_t *acc, size_t n);
/* The same, but a sum that would pass 2^64-1 stays there; counts those in *saturated. */
NODISCARD bool vec_add_dense_sat(const struct vec_section *s, uint64_t *acc, size_t n,
                                 uint64_t *saturated);
/* All entries, ids ascending, into arrays of s->len. */
void vec_decode(const struct vec_section *s, uint32_t *ids, uint64_t *values);

/* Piecewise, without memory:
 *   vec_iter_init(&it, &section);
 *   while ((n = vec_iter_next(&it, ids, values)) > 0) ...   at most VEC_CHUNK entries each */
#define VEC_CHUNK 256
struct vec_iter {
    struct vec_section s;
    uint32_t at;            /* entries given */
    uint32_t base;          /* previous id + 1 */
    uint64_t overflow_at;   /* entry of the next overflow, or UINT64_MAX */
    uint64_t overflow_high; /* and its high part */
    struct rd escapes, overflow;
};
void vec_iter_init(struct vec_iter *it, const struct vec_section *s);
size_t vec_iter_next(struct vec_iter *it, uint32_t ids[VEC_CHUNK], uint64_t values[VEC_CHUNK]);

#endif

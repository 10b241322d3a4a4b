/* SPDX-License-Identifier: Apache-2.0
 *
 * raw.h: the head of a raw row's value, before its vector (keys.h, CF raw); and how many raw rows
 * stand in which minute, which is all that sealing needs to know beforehand.
 */
#ifndef COMMON_STORE_CODEC_RAW_H
#define COMMON_STORE_CODEC_RAW_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/vec.h"
#include "common/store/codec/keys.h"

struct raw_row {
    uint32_t wid_bucket; /* where its write id stands */
    uint32_t wid_rows;   /* rows that came with the same write id */
    struct str vector;   /* vec.h */
};
/* One row with its key, for those who seal and count it. Bytes are borrowed. */
struct seal_row {
    struct member m;
    uint32_t t;
    const uint8_t *wid;
    uint32_t wid_bucket, wid_rows;
    struct str vector;
};
struct seal_rows {
    VEC(struct seal_row) at;
};

void raw_row_begin(struct buf *out, uint32_t wid_bucket, uint32_t wid_rows); /* then vec_encode */
NODISCARD int raw_row_read(struct str row, struct raw_row *ret, struct err *e);

/* Rows by bucket, ascending. A year of late data is half a million buckets, sealed as it comes. */
struct raw_count {
    uint32_t bucket, rows;
};
struct raw_counts {
    VEC(struct raw_count) at;
    uint64_t rows;
};
void raw_counts_add(struct raw_counts *c, uint32_t bucket, uint32_t rows);
void raw_counts_sub(struct raw_counts *c, uint32_t bucket, uint32_t rows);
uint32_t raw_counts_at(const struct raw_counts *c, uint32_t bucket); /* rows there */
uint32_t raw_counts_low(const struct raw_counts *c);                 /* UINT32_MAX: no rows */
/* The first bucket behind `bucket` with rows, or UINT32_MAX. */
uint32_t raw_counts_after(const struct raw_counts *c, uint32_t bucket);

#endif

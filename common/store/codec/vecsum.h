/* SPDX-License-Identifier: Apache-2.0
 *
 * vecsum.h: the exact sum of some vector rows (vec.h) as one row. The same rows give the same bytes
 * in any order, and however they are grouped into sums of sums.
 */
#ifndef COMMON_STORE_CODEC_VECSUM_H
#define COMMON_STORE_CODEC_VECSUM_H

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/store/codec/sum.h"
#include "common/store/codec/vec.h"

struct vecsum {
    VEC(struct vec_section) sections; /* of all rows */
    VEC(struct vec_part) parts;       /* their sums */
    struct vec_meta meta;
    struct sum sum;
    VEC(uint64_t) dense; /* by id; all 0 between epochs */
    uint64_t bound;      /* sum of the totals of all rows: no value is larger */
    bool checked;        /* the bound passed 2^64-1 */
    struct arena *arena; /* of the parts being encoded; owned */
};
void vecsum_init(struct vecsum *f);
void vecsum_deinit(struct vecsum *f);
void vecsum_begin(struct vecsum *f);
/* The row's bytes must stay until vecsum_end. ERR_CORRUPT. */
NODISCARD int vecsum_add(struct vecsum *f, struct str row, struct err *e);
/* Replaces *out by the sum. ERR_LIMIT if it does not fit the arena or *out. */
NODISCARD int vecsum_end(struct vecsum *f, struct buf *out, struct err *e);
/* Sums that stayed at 2^64-1 so far. */
uint64_t vecsum_saturated(const struct vecsum *f);

#endif

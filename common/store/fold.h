/* SPDX-License-Identifier: Apache-2.0
 *
 * fold.h: the exact sum of a few vector rows (vec.h) as one row.
 */
#ifndef COMMON_STORE_FOLD_H
#define COMMON_STORE_FOLD_H

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/store/sum.h"
#include "common/store/vec.h"

struct fold {
    VEC(struct vec_section) sections; /* of all rows */
    VEC(struct vec_part) parts;       /* their sums */
    struct vec_meta meta;
    struct sum sum;
    struct arena *arena; /* of the parts being encoded; owned */
};
void fold_init(struct fold *f);
void fold_deinit(struct fold *f);
void fold_begin(struct fold *f);
/* The row's bytes must stay until fold_end. ERR_CORRUPT. */
NODISCARD int fold_add(struct fold *f, struct str row, struct err *e);
/* Replaces *out by the sum. ERR_LIMIT if it does not fit the arena or *out. */
NODISCARD int fold_end(struct fold *f, struct buf *out, struct err *e);
/* Sums that stayed at 2^64-1 so far. */
uint64_t fold_saturated(const struct fold *f);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * function_cost_calc.h: values of functions from vectors of stacks; rows of them are in
 * function_cost.h.
 */
#ifndef COMMON_STORE_STATE_FUNCTION_COST_CALC_H
#define COMMON_STORE_STATE_FUNCTION_COST_CALC_H

#include "common/store/codec/function_cost.h"
#include "common/store/dict/dict_cache.h"

/* ---- from vectors: level 2, and whatever is written directly below floors ---- */
struct function_cost_calc;
struct function_cost_calc *fn_calc_new(struct dict_cache *dicts);
void fn_calc_free(struct function_cost_calc *c); /* NULL is fine */
/* What follows is of one service, with dictionaries as the snapshot has them (NULL: now). */
void fn_calc_begin(struct function_cost_calc *c, const struct kv_snap *snap, uint32_t tenant,
                   uint32_t scope);
/* Adds a vector (vec.h) to the sum: that of a group, or each of its members'. */
NODISCARD int fn_calc_add(struct function_cost_calc *c, struct str vector, struct err *e);
/* Adds pairs of one epoch, in no order; their nodes may be newer than the snapshot (hot.h). */
NODISCARD int fn_calc_add_pairs(struct function_cost_calc *c, uint32_t epoch, const uint32_t *ids,
                                const uint64_t *values, size_t len, struct err *e);
/* Replaces *out by the row of the sum, which is empty then; out->len 0: nothing was added. */
NODISCARD int fn_calc_row(struct function_cost_calc *c, struct buf *out, struct err *e);

/* For readers: fn for each function with a value, in the sum (which is empty then) or in a row; for
 * a row once with the self value and once with the total, the other one 0; a name comes again for
 * each epoch. Names are valid until fn_calc_begin. A code fn sets and returns ends it. */
typedef int (*fn_calc_fn)(void *cookie, struct str name, uint64_t self, uint64_t total,
                          struct err *e);
NODISCARD int fn_calc_each(struct function_cost_calc *c, fn_calc_fn fn, void *cookie,
                           struct err *e);
NODISCARD int fn_row_each(struct function_cost_calc *c, struct str row, fn_calc_fn fn, void *cookie,
                          struct err *e);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * fn.h: values of functions: for each group and node of level 2 and up, what every function cost
 * itself and with everything it called. Beside the vector of the node in CF fn (key as ru).
 *
 *   row   version u8 = 1 | n varint, bytes of self | self | total | crc32c u32le of all before
 *
 *   self and total are vectors (vec.h). Their ids are string ids of the function's name in the
 *   dictionary epoch of the section: of its frames' function, or where they have none their file,
 *   or module; 0, "", if there is nothing, and for what the root (node 0) has itself. `total`
 *   counts a stack once, however often the function is in it. So the total of `self` is that of the
 *   node's vector. writes is that of the node; F is sum of value * h(name) (fp.h),
 *   h = fp_of_hash(hash128(name, 0)).
 *
 *   A node is the exact sum of its children, as vectors are.
 *
 *   one stack a;b = 7 in epoch 0, where strings 1, 2 are "a", "b"; F of self 1, of total 2:
 *   01 15 | 01 00 | 07 01 00 00 00 00 00 00 00 | 00 01 11 07 02 01 | ab 0c a4 4f |    self {2: 7}
 *   01 00 | 0e 02 00 00 00 00 00 00 00 | 00 02 11 07 01 00 01 01 | a1 43 d4 b7 |
 *   xx xx xx xx                                                        total {1: 7, 2: 7}, crc32c
 */
#ifndef COMMON_STORE_CODEC_FN_H
#define COMMON_STORE_CODEC_FN_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/store/codec/vec.h"
#include "common/store/dict/dict_cache.h"

/* ---- rows ---- */
struct fn_row {
    struct str self, total; /* vectors; not opened yet */
};
/* Replaces *out. ERR_LIMIT: *out is full. */
NODISCARD int fn_put(struct str self, struct str total, struct buf *out, struct err *e);
/* Checks frame and crc; vectors are checked by vec_open. */
NODISCARD int fn_read(struct str row, struct fn_row *ret, struct err *e);

/* ---- sums of children: pure; what build_merge calls for levels 3..7 ---- */
NODISCARD int fn_merge(const struct str *rows, size_t n, struct buf *out, struct err *e);

/* ---- from vectors: level 2, and whatever is written directly below floors ---- */
struct fn_calc;
struct fn_calc *fn_calc_new(struct dict_cache *dicts);
void fn_calc_free(struct fn_calc *c); /* NULL is fine */
/* What follows is of one service, with dictionaries as the snapshot has them (NULL: now). */
void fn_calc_begin(struct fn_calc *c, const struct kv_snap *snap, uint32_t tenant, uint32_t scope);
/* Adds a vector (vec.h) to the sum: that of a group, or each of its members'. */
NODISCARD int fn_calc_add(struct fn_calc *c, struct str vector, struct err *e);
/* Adds pairs of one epoch, in no order; their nodes may be newer than the snapshot (hot.h). */
NODISCARD int fn_calc_add_pairs(struct fn_calc *c, uint32_t epoch, const uint32_t *ids,
                                const uint64_t *values, size_t len, struct err *e);
/* Replaces *out by the row of the sum, which is empty then; out->len 0: nothing was added. */
NODISCARD int fn_calc_row(struct fn_calc *c, struct buf *out, struct err *e);

/* For readers: fn for each function with a value, in the sum (which is empty then) or in a row; for
 * a row once with the self value and once with the total, the other one 0; a name comes again for
 * each epoch. Names are valid until fn_calc_begin. A code fn sets and returns ends it. */
typedef int (*fn_calc_fn)(void *cookie, struct str name, uint64_t self, uint64_t total,
                          struct err *e);
NODISCARD int fn_calc_each(struct fn_calc *c, fn_calc_fn fn, void *cookie, struct err *e);
NODISCARD int fn_row_each(struct fn_calc *c, struct str row, fn_calc_fn fn, void *cookie,
                          struct err *e);

#endif

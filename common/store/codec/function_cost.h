/* SPDX-License-Identifier: Apache-2.0
 *
 * function_cost.h: rows with values of functions: for each group and node of level 2 and up, what
 * every function cost itself and with everything it called. Beside the vector of the node in CF fn
 * (key as ru).
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
#ifndef COMMON_STORE_CODEC_FUNCTION_COST_H
#define COMMON_STORE_CODEC_FUNCTION_COST_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/store/codec/vec.h"

/* ---- rows ---- */
struct function_cost_row {
    struct str self, total; /* vectors; not opened yet */
};
/* Replaces *out. ERR_LIMIT: *out is full. */
NODISCARD int fn_put(struct str self, struct str total, struct buf *out, struct err *e);
/* Checks frame and crc; vectors are checked by vec_open. */
NODISCARD int fn_read(struct str row, struct function_cost_row *ret, struct err *e);

/* ---- sums of children: pure; what build_merge calls for levels 3..7 ---- */
NODISCARD int function_cost_merge(const struct str *rows, size_t n, struct buf *out, struct err *e);

#endif

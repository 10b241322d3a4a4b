/* SPDX-License-Identifier: Apache-2.0
 *
 * vecdiff.h: the exact difference of two vector rows (vec.h) as one row: what is left of a sum when
 * one of its parts is taken out. As equal sums have one encoding, it is byte for byte the sum
 * of the
 * other parts.
 */
#ifndef COMMON_STORE_CODEC_VECDIFF_H
#define COMMON_STORE_CODEC_VECDIFF_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/vec.h"
#include "common/store/codec/vec.h"

struct vecdiff {
    VEC(uint32_t) ids; /* of all sections of the result */
    VEC(uint64_t) values;
    VEC(struct vec_part) parts;
    VEC(uint32_t) less_ids;
    VEC(uint64_t) less_values;
};
void vecdiff_init(struct vecdiff *d);
void vecdiff_deinit(struct vecdiff *d);
/* Replaces *out by `all` - `less`; *ret_meta is its head; writes 0: nothing is left, *out is empty.
 * ERR_CORRUPT: `less` is no part of `all`, or one of them is saturated: then nobody can tell. */
NODISCARD int vecdiff_make(struct vecdiff *d, struct str all, struct str less, struct buf *out,
                           struct vec_meta *ret_meta, struct err *e);
/* The heads alone, with the same errors. */
NODISCARD int vecdiff_meta(const struct vec_meta *all, const struct vec_meta *less,
                           struct vec_meta *ret, struct err *e);

#endif

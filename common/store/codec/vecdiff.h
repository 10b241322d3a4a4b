/* SPDX-License-Identifier: Apache-2.0
 *
 * vecdiff.h: the exact difference of two vector rows (vec.h) as one row: a sum without one of its
 * parts. Equal sums have equal bytes, so the result is byte for byte the sum of the other parts.
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
/* Replaces *out by `all` - `less`; *ret_meta is its head. If ret_meta->writes is 0, the difference
 * is empty, and so is *out. ERR_CORRUPT: `less` is not a part of `all`, or one of them is
 * saturated, so that the difference is unknown. */
NODISCARD int vecdiff_make(struct vecdiff *d, struct str all, struct str less, struct buf *out,
                           struct vec_meta *ret_meta, struct err *e);
/* The heads alone, with the same errors. */
NODISCARD int vecdiff_meta(const struct vec_meta *all, const struct vec_meta *less,
                           struct vec_meta *ret, struct err *e);

#endif

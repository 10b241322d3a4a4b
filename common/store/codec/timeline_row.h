/* SPDX-License-Identifier: Apache-2.0
 *
 * timeline_row.h: the bytes of a timeline row: totals and write counts of one series and type over
 * a chunk of time (keys.h, CF tl). Only points with writes are there.
 *
 *   row   version u8 = 1 | n varint, 1..4096 | scale varint, >= 1 |
 *         n varints: point - (point before + 1), the first against 0
 *         n varints: total / scale     n varints: writes, >= 1     | crc32c u32le
 *
 *   scale is the greatest common divisor of the totals (1 if all are 0). A total of 2^64-1 means
 *   that the sum stayed there.
 *
 *   points 2 and 3, totals 30 and 50, one and two writes:
 *   01 02 0a 02 00 03 05 01 02 | xx xx xx xx
 */
#ifndef COMMON_STORE_CODEC_TIMELINE_ROW_H
#define COMMON_STORE_CODEC_TIMELINE_ROW_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/vec.h"

#define TL_POINTS_MAX 4096

struct tl_point {
    uint32_t point; /* of the chunk */
    uint64_t total, writes;
};
struct tl {
    VEC(struct tl_point) points; /* ascending */
};
/* Replaces *out; 1..TL_POINTS_MAX points, ascending. */
void tl_encode(const struct tl_point *p, size_t n, struct buf *out);
/* Replaces ret->points. Points are < limit, else ERR_CORRUPT. */
NODISCARD int timeline_row_decode(struct str row, uint32_t limit, struct tl *ret, struct err *e);
/* Adds to the point, which is made if it is not there. Fast at the end. */
void tl_add(struct tl *t, uint32_t point, uint64_t total, uint64_t writes);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * sum.h: brings (id, value) pairs in order of id and adds the values of equal ids. For the few
 * thousand pairs of a push or a leaf; queries add into dense arrays instead (read.c).
 */
#ifndef COMMON_STORE_CODEC_SUM_H
#define COMMON_STORE_CODEC_SUM_H

#include "common/base/vec.h"

struct sum {
    VEC(uint64_t) keys;   /* id << 32 | index into values; at most 2^32 - 1 pairs */
    VEC(uint64_t) values; /* in order of adding */
    VEC(uint64_t) room;   /* for sorting */
    VEC(uint32_t) ids;    /* the result, ascending, */
    VEC(uint64_t) sums;   /* and its values, > 0 */
    uint64_t saturated;   /* sums that stayed at 2^64-1, since sum_init */
};
void sum_init(struct sum *s);
void sum_deinit(struct sum *s);
void sum_begin(struct sum *s);
static inline void sum_add(struct sum *s, uint32_t id, uint64_t value)
{
    uint64_t key = (uint64_t)id << 32 | (uint32_t)s->values.len;
    vec_push(&s->keys, key);
    vec_push(&s->values, value);
}
void sum_end(struct sum *s); /* fills ids and sums; values of 0 leave nothing */

#endif

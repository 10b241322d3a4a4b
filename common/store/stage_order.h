/* SPDX-License-Identifier: Apache-2.0
 *
 * stage_order.h: the nodes a request uses, in order of their ids in the dictionary, found once for
 * all its series.
 *
 *   node of the request ──place──> 0, 1, 2, ... ──> id, ascending
 *
 * A vector is spread over places and gathered in their order: what sum.h would make of its pairs,
 * without sorting them. Where that would not pay or would not be right nothing is gathered, and the
 * caller sorts: two nodes of one id (an overflow), ids that lie far apart, a vector of few of the
 * nodes.
 */
#ifndef COMMON_STORE_STAGE_ORDER_H
#define COMMON_STORE_STAGE_ORDER_H

#include "common/base/vec.h"

struct stage_order {
    VEC(uint64_t) bits;   /* by id: is it used? */
    VEC(uint32_t) at;     /* by id: its place */
    VEC(uint32_t) place;  /* by node of the request, where it is used */
    VEC(uint32_t) id;     /* by place; empty: nothing can be gathered */
    VEC(uint64_t) spread; /* by place, 0 from one vector to the next */
    VEC(uint32_t) ids;    /* the last vector that was gathered */
    VEC(uint64_t) values;
};
void stage_order_deinit(struct stage_order *x);
/* For the request with these nodes, those used of 0 .. nodes, and their ids. */
void stage_order_make(struct stage_order *x, const uint32_t *map, const uint8_t *used,
                      size_t nodes);
/* No request. */
void stage_order_end(struct stage_order *x);
/* How many entries of x->ids and x->values these pairs became; nodes are used ones and ascend,
 * values are above 0. 0: sort them. */
size_t stage_order_gather(struct stage_order *x, const uint32_t *nodes, const uint64_t *values,
                          size_t len);

#endif

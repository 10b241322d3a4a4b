/* SPDX-License-Identifier: Apache-2.0
 *
 * stage_sort.h: the nodes a request uses, in order of their ids in the dictionary, found once for
 * all its series.
 *
 *   node of the request ──place──> 0, 1, 2, ... ──> id, ascending
 *
 * A vector is spread over places and gathered in their order: what sum.h would make of its pairs,
 * without sorting them. Where that would not pay or would not be right nothing is gathered, and the
 * caller sorts: two nodes of one id (an overflow), ids that lie far apart, a vector of few of the
 * nodes.
 */
#ifndef COMMON_STORE_WRITE_STAGE_SORT_H
#define COMMON_STORE_WRITE_STAGE_SORT_H

#include "common/base/vec.h"

struct stage_sort {
    const uint32_t *map;  /* of the request; borrowed */
    VEC(uint8_t) seen;    /* by id: 1 while places are given out, else 0 */
    VEC(uint32_t) place;  /* by id, where it is used */
    VEC(uint32_t) id;     /* by place; empty: nothing can be gathered */
    VEC(uint64_t) spread; /* by place; 0 but for the first `full` */
    size_t full;
    size_t declined; /* bytes that the last request would have needed, where that was too much */
    VEC(uint32_t) some_ids;
    VEC(uint64_t) some_values;
    const uint32_t *ids; /* the vector that was gathered; until the next call */
    const uint64_t *values;
};
void stage_sort_deinit(struct stage_sort *x);
/* For the request whose nodes 0 .. nodes have these ids, below `span`, where they are used. Nothing
 * is gathered where that takes more than bytes_max. */
void stage_sort_make(struct stage_sort *x, const uint32_t *map, const uint8_t *used, size_t nodes,
                     size_t span, size_t bytes_max);
/* No request. */
void stage_sort_end(struct stage_sort *x);
/* How many entries of x->ids and x->values these pairs became; nodes are used ones and ascend,
 * values are above 0. 0: sort them. */
size_t stage_sort_gather(struct stage_sort *x, const uint32_t *nodes, const uint64_t *values,
                         size_t len);

#endif

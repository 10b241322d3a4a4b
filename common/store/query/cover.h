/* SPDX-License-Identifier: Apache-2.0
 *
 * cover.h: which nodes a query reads: the fewest usable ones whose union is its range, without the
 * ranges that are masked. Pure. TREE.md sections 3 and 5.
 *
 *   usable   a node of the base level of its time, always; a coarser one without a mark, not
 *            touched by a gap, in the range as a whole, and for groups not before `since`
 *
 * Edges inside a base node snap outward to it: cover.from, cover.to are the real bounds. A base
 * node that a gap touches is left out whole: what was deleted is never answered.
 */
#ifndef COMMON_STORE_QUERY_COVER_H
#define COMMON_STORE_QUERY_COVER_H

#include "common/store/state/dirty.h"
#include "common/store/state/floors.h"

struct cover_gap {
    uint32_t from, to; /* slots; from < to */
};
struct cover_in {
    uint32_t from, to; /* slots; any alignment */
    bool group;        /* levels 0, 1, 2 .. 7; else 0, 2 .. 7 */
    uint32_t since;    /* groups: nothing before it is covered; see cover_split */
    const struct floors *floors;
    const struct dirty_set *dirty;
    const struct cover_gap *gaps; /* ascending, disjoint, none empty */
    size_t gaps_len;
};
/* Nodes of one level, side by side: [from, to). */
struct cover_run {
    uint32_t level, from, to;
};
struct cover {
    VEC(struct cover_run) runs; /* ascending, disjoint */
    uint32_t from, to;          /* real bounds, gaps included; from == to: nothing is kept there */
};
/* Replaces *ret: zero it before the first time. */
void cover_make(const struct cover_in *in, struct cover *ret);
void cover_deinit(struct cover *c);
/* The real bounds alone. Reads no marks and no gaps; in->dirty may be NULL. */
void cover_bounds(const struct cover_in *in, uint32_t *ret_from, uint32_t *ret_to);

/* Where a range is cut so that members cover what is before `since` and groups the rest without
 * meeting in one node: `since`, rounded up to base nodes of members. */
uint32_t cover_split(const struct floors *f, uint32_t since);

#endif

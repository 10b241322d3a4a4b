/* SPDX-License-Identifier: Apache-2.0
 *
 * tl_cover.h: which points of which levels a timeline reads: for each of its own points the fewest
 * stored ones whose union it is. As cover.h for flame graphs, but nothing reaches over the edge
 * between two points, and members have a level 1. Pure. TREE.md sections 3, 5, 7.
 */
#ifndef COMMON_STORE_QUERY_TL_COVER_H
#define COMMON_STORE_QUERY_TL_COVER_H

#include "common/store/query/cover.h"

/* Point k holds the slots that start in (origin + (k-1) step, origin + k step]. Edges that would
 * cut a node of the base level stand behind it, the first one before it. */
struct tl_grid {
    int64_t origin_ms, step_ms;
    uint32_t points;
    bool vectors;         /* edges stand where vectors can be cut: at leaves, and by the base of */
    bool members;         /* members', not of groups. Set both before tl_grid_bounds */
    struct floors floors; /* of all services that are read: the coarser base counts */
    uint32_t from, to;    /* real bounds; from == to: nothing can be there */
    uint32_t lead;        /* slots before `from` that are read, too: pushes there reach into it */
};
/* Then tl_grid_floors for each service, then tl_grid_bounds. */
void tl_grid_init(struct tl_grid *g, int64_t origin_ms, int64_t step_ms, uint32_t points);
void tl_grid_floors(struct tl_grid *g, const struct floors *f);
void tl_grid_bounds(struct tl_grid *g);
/* The bounds asked for, whatever floors are. */
void tl_grid_asked(const struct tl_grid *g, uint32_t *ret_from, uint32_t *ret_to);
/* The point of slot t in [from, to): that of the first slot of its base node. */
uint32_t tl_grid_point(const struct tl_grid *g, uint32_t t);
/* The first slot of the next point, at most `to`. */
uint32_t tl_grid_edge(const struct tl_grid *g, uint32_t t);

struct tl_cover_in {
    const struct tl_grid *grid;
    uint32_t from, to; /* in the bounds of the grid; groups: `from` is not before their since */
    bool group;
    const struct floors *floors; /* of this service and type */
    const struct dirty_set *dirty;
    const struct cover_gap *gaps; /* ascending, disjoint, none empty */
    size_t gaps_len;
};
struct tl_cover {
    VEC(struct cover_run) at[KEY_LEVELS]; /* by level: runs of points, ascending, disjoint */
};
/* Replaces *ret: zero it before the first time. */
void tl_cover_make(const struct tl_cover_in *in, struct tl_cover *ret);
void tl_cover_deinit(struct tl_cover *c);

#endif

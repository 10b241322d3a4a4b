/* SPDX-License-Identifier: Apache-2.0
 *
 * diff.h: two call trees side by side over the union of their nodes, as flame graph bars.
 *
 * A bar is 7 numbers: xDelta, total, self of the left one, the same of the right one, name. Each
 * side is laid out as flame.h does, a side that lacks a node has zeros there.
 *
 * Format: proto/WIRE.md, "Flame graph encoding".
 */
#ifndef COMMON_RENDER_DIFF_H
#define COMMON_RENDER_DIFF_H

#include "common/render/bars.h"
#include "common/render/calltree.h"

enum diff_side { DIFF_LEFT, DIFF_RIGHT, DIFF_SIDES };

struct diff {
    VEC(struct str) names; /* names[0] = "total" */
    VEC(uint64_t) bars;    /* 7 per bar, level by level */
    VEC(size_t) level_end; /* level d ends before bar level_end[d] */
    uint64_t ticks[DIFF_SIDES];
    uint64_t max_self;
};

/* Memory it takes at most, roughly, beside the trees. */
size_t diff_cost(const struct calltree *left, const struct calltree *right);
/* Keeps the nodes with the largest sums of both sides, as layout_init does. Names are borrowed from
 * the trees. */
void diff_init(struct diff *d, const struct calltree *left, const struct calltree *right,
               size_t max_nodes);
void diff_deinit(struct diff *d);

/* {"names":[..],"levels":[[..]],"numTicks":n,"maxSelf":n,..}: the flamebearer's part; ticks apart.
 */
void diff_json(const struct diff *d, struct json *j);
/* The same in pieces: json_obj, bars_json_next until it is false, diff_json_end. */
struct bars diff_bars(const struct diff *d);
void diff_json_end(const struct diff *d, struct json *j);

#endif

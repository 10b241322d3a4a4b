/* SPDX-License-Identifier: Apache-2.0
 *
 * flame.h: a laid-out tree as flame graph bars, and as JSON. As a message:
 * querier/output/flame_msg.h.
 *
 * A bar is 4 numbers: xDelta, total, self, name. Level d holds the bars at depth d from left to
 * right; xDelta counts from the right edge of the bar before. A bar's own self stands at its left
 * edge, its children begin at x + self in order of name, a bar "other" with what was cut is last.
 *
 * Format: proto/WIRE.md, "Flame graph encoding".
 */
#ifndef COMMON_RENDER_FLAME_H
#define COMMON_RENDER_FLAME_H

#include "common/render/bars.h"
#include "common/render/calltree.h"

struct flame {
    VEC(struct str) names; /* names[0] = "total"; each once, in order of first use */
    VEC(uint64_t) bars;    /* 4 per bar, level by level */
    VEC(size_t) level_end; /* level d ends before bar level_end[d] */
    uint64_t total, max_self;
};

/* Memory the flame takes at most, roughly, with the layout it is made from; not its JSON. */
size_t flame_cost(const struct layout *l);
/* Names are borrowed from the tree. */
void flame_init(struct flame *f, const struct layout *l, const struct calltree *t);
void flame_deinit(struct flame *f);

/* {"names":[..],"levels":[[..]],"numTicks":n,"maxSelf":n}; names and levels [] when empty. */
void flame_json(const struct flame *f, struct json *j);
/* The same in pieces: json_obj, bars_json_next until it is false, flame_json_end. */
struct bars flame_bars(const struct flame *f);
void flame_json_end(const struct flame *f, struct json *j);

#endif

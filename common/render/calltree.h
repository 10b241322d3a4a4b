/* SPDX-License-Identifier: Apache-2.0
 *
 * calltree.h: the answers of all ingesters as one tree of function names, and the order in which
 * every output walks it.
 *
 *   calltree_init ─> calltree_add (each reply) ─> calltree_divide (gauges) ─> layout_init ─>
 * writers
 *
 * Thread: one at a time. Names point into the replies' strings: those must outlive the tree.
 */
#ifndef COMMON_RENDER_CALLTREE_H
#define COMMON_RENDER_CALLTREE_H

#include <stdatomic.h>

#include "common/base/arena.h"
#include "common/base/err.h"
#include "common/base/map.h"
#include "common/base/vec.h"
#include "common/model/stacks.h"

#define CALLTREE_TOTAL 0u /* name 0 is "total", of the root */
#define CALLTREE_OTHER 1u /* name 1 is "other": what truncation left out */

/* Node 0 is the root; a parent's index is below its children's. Siblings have different names. */
struct calltree {
    VEC(struct str) names;
    struct map_u64 name_ids; /* content hash -> name; contents are compared */
    VEC(uint32_t) parent;
    VEC(uint32_t) name;
    VEC(uint64_t) self;
    struct map_u64 edges; /* (parent << 32 | name) ^ seed -> node */
    struct arena *made;   /* owned; names of frames without symbols */
    uint64_t seed;
    bool saturated; /* a value passed INT64_MAX and was cut to it */
};

/* What one reply brings: self values of some nodes of its stacks. */
struct calltree_part {
    struct stacks_view stacks; /* checked */
    const uint32_t *nodes;     /* ids of stacks, any order */
    const uint64_t *values;
    size_t len;
};

/* Upper bound of the memory that adding this part and laying the tree out takes. */
size_t calltree_cost(const struct stacks_view *v);
void calltree_init(struct calltree *t, uint64_t seed);
void calltree_deinit(struct calltree *t);
/* ERR_CORRUPT if a node is out of range; ERR_LIMIT if names without symbols take too much;
 * ERR_CANCELED once *cancel (may be NULL) is true. */
NODISCARD int calltree_add(struct calltree *t, const struct calltree_part *p,
                           const atomic_bool *cancel, struct err *e);
/* Every self value becomes value / n, so rounded that the sum is round(sum / n). n > 0. */
void calltree_divide(struct calltree *t, uint64_t n);
/* The same for values that are not in a tree. */
void calltree_divide_values(uint64_t *values, size_t len, uint64_t n);
uint64_t calltree_total(const struct calltree *t);
/* Adds the nodes of another tree, whose names must outlive this one too, without their values;
 * ret_map[i] (from->parent.len entries) = node here of node i there. */
void calltree_graft(struct calltree *t, const struct calltree *from, uint32_t *ret_map);

/* ---- for views that make trees out of trees ---- */
/* The name with this text, which is borrowed, known or new; _find: MAP_U64_EMPTY if unknown. */
uint32_t calltree_name(struct calltree *t, struct str s);
uint32_t calltree_name_find(const struct calltree *t, struct str s);
/* The child with this name, which is added if missing; _find: MAP_U64_EMPTY if missing. */
uint32_t calltree_child(struct calltree *t, uint32_t parent, uint32_t name);
uint32_t calltree_child_find(const struct calltree *t, uint32_t parent, uint32_t name);
/* Adds to the self value of a node, up to INT64_MAX. */
void calltree_put(struct calltree *t, uint32_t node, uint64_t v);
/* By node: its own value and that of all below. The caller frees. */
uint64_t *calltree_totals(const struct calltree *t);

/* The display name of a frame: its function, else basename(file or module)!0xADDR. Formats onto
 * *out. */
void frame_name(const struct stacks_view *v, const struct str *strings, uint32_t frame,
                struct buf *out);

/* Least total of a node that is kept when the max_nodes largest stay (ties are kept; the root, node
 * 0, does not count); with 0 all stay that have any. */
uint64_t calltree_cut(const uint64_t *total, size_t nodes, size_t max_nodes, uint64_t seed);

/* The tree cut to the largest nodes, children in order of name. Kept nodes get new numbers, the
 * root is 0; children of i are child[child_at[i]] .. child[child_at[i + 1] - 1]. */
struct layout {
    uint32_t *name; /* owned arrays, `len` entries (child_at: one more) */
    uint32_t *node; /* of the tree */
    uint32_t *child_at;
    uint32_t *child;
    uint64_t *self, *total;
    uint64_t *other; /* total of the children that were cut, shown as one bar named "other" */
    size_t len;
};
/* Keeps the nodes whose total is at least that of the max_nodes-th largest (ties are kept; the root
 * does not count); 0 keeps all. Totals of kept nodes do not change. */
void layout_init(struct layout *l, const struct calltree *t, size_t max_nodes);
void layout_deinit(struct layout *l);

#endif

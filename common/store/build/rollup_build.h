/* SPDX-License-Identifier: Apache-2.0
 *
 * rollup_build.h: rows of groups of 10 m and up from their children. What they hold: rollup_row.h;
 * which exist: TREE.md.
 */
#ifndef COMMON_STORE_BUILD_ROLLUP_BUILD_H
#define COMMON_STORE_BUILD_ROLLUP_BUILD_H

#include "common/base/arena.h"
#include "common/base/vec.h"
#include "common/store/codec/keys.h"
#include "common/store/kv/kv.h"

struct store;

/* ---- build: any thread ---- */

/* Level 2 of all groups of a node, with their functions and points; m->series is not used.
 * `again`: it may have rows whose children are gone. Shard thread. */
NODISCARD int rollup_build2(struct store *s, const struct member *m, uint32_t t, bool again,
                            struct kv_batch *b, struct err *e);
/* The first group >= m->series that has rows of level - 1 in the node, into m->series; *ret_found:
 * there is one. Nodes older than the roll-ups of a dimension (since) have none. */
NODISCARD int rollup_next_group(const struct kv_view *v, uint32_t level, struct member *m,
                                uint32_t t, bool *ret_found, struct err *e);
/* All that rollup_row_merge needs for the row of group m->series in a node of level 2..7: its rows
 * of level - 1. Where the node will have a vector, lists among them get their sums from the rows
 * of their members. Bytes in the arena (ERR_LIMIT); appends to *ret. */
struct rollup_child {
    uint32_t t;
    struct str row;
};
struct rollup_children {
    VEC(struct rollup_child) at;
};
struct rollup_node {
    struct kv *kv;
    const struct kv_snap *snap; /* NULL: now */
    uint32_t level, t;
    struct member m; /* series: the group */
    struct arena *arena;
};
NODISCARD int rollup_children(const struct rollup_node *n, struct rollup_children *ret,
                              struct err *e);

/* ---- again: shard thread; one group at one node, with its functions and point ---- */

/* Its row above the base level from its present children; without children it has no row. */
struct rollup_rebuild;
struct rollup_rebuild *rollup_rebuild_new(struct store *s);
void rollup_rebuild_free(struct rollup_rebuild *x); /* NULL is fine */
NODISCARD int rollup_rebuild(struct rollup_rebuild *x, uint32_t level, const struct member *m,
                             uint32_t t, struct kv_batch *b, struct err *e);
/* All of it, level 2 and up. */
void rollup_drop(struct store *s, uint32_t level, const struct member *m, uint32_t t,
                 struct kv_batch *b);

#endif

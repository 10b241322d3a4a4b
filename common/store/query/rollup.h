/* SPDX-License-Identifier: Apache-2.0
 *
 * rollup.h: rows of groups, as the seal and the build write them and queries read them. What they
 * hold: ru.h; which exist: TREE.md.
 */
#ifndef COMMON_STORE_QUERY_ROLLUP_H
#define COMMON_STORE_QUERY_ROLLUP_H

#include <stdatomic.h>

#include "common/store/catalog/group.h"
#include "common/store/seal/seal.h"
#include "common/store/state/hot.h"
#include "common/store/state/ru.h"

struct dict_cache;
struct floors;
struct store_view;

/* ---- seal: shard thread ---- */

/* Memory of the shard thread. */
struct rollup;
struct rollup *rollup_new(struct dict_cache *dicts);
void rollup_free(struct rollup *x); /* NULL is fine */

/* Puts the roll-ups and timeline points of groups that the rows of one (tenant, scope, ptype) lead
 * to; `rows` are in order of series, then t. Reads what is stored now: the leaves of this entry
 * must not be written yet. */
NODISCARD int rollup_seal(struct store *s, uint64_t entry, const struct seal_row *rows, size_t n,
                          const struct floors *f, struct kv_batch *b, struct err *e);

/* ---- build: any thread ---- */

/* Level 2 of all groups of a node, with their functions and points; m->series is not used.
 * `again`: it may have rows whose children are gone. Shard thread. */
NODISCARD int rollup_build2(struct store *s, const struct member *m, uint32_t t, bool again,
                            struct kv_batch *b, struct err *e);
/* The first group >= m->series that has rows of level - 1 in the node, into m->series; *ret_found:
 * there is one. Nodes from before the roll-ups of a dimension (since) have none. */
NODISCARD int rollup_next_group(struct kv *kv, const struct kv_snap *snap, uint32_t level,
                                struct member *m, uint32_t t, bool *ret_found, struct err *e);
/* All that ru_merge needs for the row of group m->series in a node of level 2..7: its rows of level
 * - 1. Where the node will have a vector, lists among them get their sums from the rows of their
 * members. Bytes in the arena (ERR_LIMIT); appends to *ret. */
struct rollup_child {
    uint32_t t;
    struct str row;
};
struct rollup_children {
    VEC(struct rollup_child) at;
};
NODISCARD int rollup_children(struct kv *kv, const struct kv_snap *snap, uint32_t level,
                              const struct member *m, uint32_t t, struct arena *a,
                              struct rollup_children *ret, struct err *e);

/* ---- again: shard thread; one group at one node, with its functions and point ---- */

/* Its row above the base level from its children as they are now; no children, no row. */
struct rollup_rebuild;
struct rollup_rebuild *rollup_rebuild_new(struct store *s);
void rollup_rebuild_free(struct rollup_rebuild *x); /* NULL is fine */
NODISCARD int rollup_rebuild(struct rollup_rebuild *x, uint32_t level, const struct member *m,
                             uint32_t t, struct kv_batch *b, struct err *e);
/* All of it, level 2 and up. */
void rollup_drop(struct store *s, uint32_t level, const struct member *m, uint32_t t,
                 struct kv_batch *b);

/* ---- reading: any thread ---- */

/* `group` is an index into gids; t the first slot of the vector's node: of level, or of a member's
 * leaf where a part of a minute is read. */
typedef int (*rollup_fn)(void *cookie, size_t group, uint32_t t, struct str vector, struct err *e);
struct rollup_read {
    struct store_view *v;
    uint32_t tenant, scope;
    uint16_t ptype;
    const uint64_t *gids; /* ascending, of one dimension */
    size_t len;
    rollup_fn fn;
    hot_fn hot;                /* of rollup_raw: takes sums of unsealed rows instead; may be NULL */
    void *cookie;              /* of both */
    const atomic_bool *cancel; /* polled; may be NULL */
};
/* The sealed vectors of the groups in a run of nodes of one level (cover.h), whatever rows hold
 * them. Level 0: leaves, by rows of level 0 or of members. */
NODISCARD int rollup_read(const struct rollup_read *r, uint32_t level, uint32_t from, uint32_t to,
                          struct err *e);
/* Their unsealed rows in a range of slots, which are whole leaves; `low` by scan_raw_low. all:
 * every series of the service belongs to one of them and nobody wants to know which: fn gets group
 * 0. */
NODISCARD int rollup_raw(const struct rollup_read *r, bool all, uint32_t low, uint32_t from,
                         uint32_t to, struct err *e);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * dirty.h: marks on nodes that are not the sum of their children. TREE.md section 2.
 *
 *   key     55 tenant scope ptype level t
 *   value   version u8 = 1 | entry u64 | since u32
 *
 *   entry   what dirtied the node last, if the node was due already; else 0. A number of the seal
 *           log; other steps of the shard (purges) set bits 48.. to a number of their own, so that
 *           every change after the node was due changes the value. A build that read its children
 *           before that leaves the mark, so the node is built again.
 *   since   slot of engine time at which a node that was due already became dirty: rebuilding
 *           waits a little from then on, for more (build.h); of a node that was never built so much
 *           earlier that it does not wait. 0 while entry is 0.
 *
 * A writer that changes rows of a node puts the marks of all levels above into the same batch; the
 * builder of a node deletes its mark in the batch with its last rows.
 */
#ifndef COMMON_STORE_STATE_DIRTY_H
#define COMMON_STORE_STATE_DIRTY_H

#include "common/base/err.h"
#include "common/base/vec.h"
#include "common/store/codec/keys.h"
#include "common/store/kv/kv.h"

struct store;

struct dirty_mark {
    uint64_t entry;
    uint32_t since;
};
#define DIRTY_ROW_LEN 13
#define DIRTY_FIRST   2 /* the finest level that can be dirty: finer ones are written by the seal */
void dirty_row_put(const struct dirty_mark *m, char out[DIRTY_ROW_LEN]);
NODISCARD int dirty_row_read(struct str row, struct dirty_mark *ret, struct err *e);
/* ERR_NOT_FOUND: the node is clean (or was never built and has no data). */
NODISCARD int dirty_get(const struct kv_view *v, const struct member *m, uint32_t level, uint32_t t,
                        struct dirty_mark *ret, struct err *e);

/* ---- shard thread ---- */

/* Marks the nodes at slot t of all levels above `base` that can be dirty: rows at t of level `base`
 * or below changed, in batch b of seal entry `entry` or the like. For groups and members at once,
 * so `base` is the finer base, of groups (floors_base). If b is then not written, call
 * part_cache_clear(s->parts). */
struct dirty_change {
    struct member m; /* series unused */
    uint32_t t, base;
    int64_t engine_ms;
    uint64_t entry;
};
NODISCARD int dirty_mark(struct store *s, struct kv_batch *b, const struct dirty_change *c,
                         struct err *e);
/* An `entry` for a step outside of the seal log: no two calls give the same. */
uint64_t dirty_entry(struct store *s);
/* The node is built. */
void dirty_clean(struct store *s, struct kv_batch *b, const struct member *m, uint32_t level,
                 uint32_t t);

/* ---- any thread: the marks in a range ---- */

struct dirty_set {
    VEC(uint32_t) at[KEY_LEVELS]; /* first slots of marked nodes, ascending */
};
/* Replaces *d by all marked nodes that overlap [from, to). Zero *d before the first call, and free
 * it with dirty_deinit in any case. */
NODISCARD int dirty_load(struct dirty_set *d, const struct kv_view *v, const struct member *m,
                         uint32_t from, uint32_t to, struct err *e);
bool dirty_has(const struct dirty_set *d, uint32_t level, uint32_t t);
/* Is any node of the level in [from, to) marked? */
bool dirty_any(const struct dirty_set *d, uint32_t level, uint32_t from, uint32_t to);
void dirty_deinit(struct dirty_set *d);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * build.h: nodes of level 2 and up from their children. TREE.md sections 2 and 8.
 *
 *   due ──> read (a view: rows of the children) ──> merge (pure) ──> apply (shard thread)
 *              └─ once per job: whole series and groups, up to some bytes ─┘
 *
 * Any thread may read, and any process may merge. The shard thread writes a merged row only if its
 * total, writes and F are the sums of those of the children that it gave out. The shard builds
 * level 2 itself (store_build), the compactor builds the levels above, by the same functions.
 *
 * A node is built in jobs, in order of (column family, id). The last job removes the node's mark,
 * unless the node was dirtied after the first job was read. A marked node is not used by queries,
 * so they never see half of a node, and a job that is lost or applied twice does no harm.
 */
#ifndef COMMON_STORE_BUILD_BUILD_H
#define COMMON_STORE_BUILD_BUILD_H

#include "common/base/arena.h"
#include "common/store/codec/vec.h"
#include "common/store/state/dirty.h"
#include "common/store/state/floors.h"

struct store;
struct store_view;

/* All series and groups of a service and type at one node. */
struct build_node {
    struct member m; /* series unused */
    uint32_t level, t;
    int64_t due_ms; /* since when, engine time; of store_build_due */
};
struct build_nodes {
    VEC(struct build_node) at;
};
/* Which nodes are searched for. */
struct build_search {
    int64_t engine_ms;  /* as store_clock says, or earlier */
    uint32_t low, high; /* levels, both included */
    size_t max;         /* nodes */
};
/* Appends to *ret up to f->max dirty nodes that can be built, ascending by service, type, level, t.
 * A node can be built when no child is dirty and engine time has reached build_due_ms: its end and
 * the delay, or later if late data must gather first. */
NODISCARD int store_build_due(struct store_view *v, const struct build_search *f,
                              struct build_nodes *ret, struct err *e);

/* One row of a child or of the node. */
struct build_row {
    enum kv_cf cf; /* coarse or fine, ru, fn; of the node it belongs to: coarse, ru, fn */
    uint64_t id;   /* series or group */
    uint32_t t;
    struct str bytes;
};
/* What the row of (cf, id) must be the sum to; gone: its children have left, so must it. */
struct build_sum {
    enum kv_cf cf;
    uint64_t id;
    uint64_t total, writes, fp;
    bool saturated, gone;
};
/* Where the next job of a node begins. All zero: at the start. */
struct build_cursor {
    bool begun;
    uint64_t entry; /* of the mark, at the first job */
    enum kv_cf cf;
    uint64_t id;
};
struct build_job {
    struct build_node node;
    uint64_t entry;
    uint64_t applied;           /* length of the seal log when it was read: later deletes void it */
    bool last;                  /* nothing of the node is behind it */
    VEC(struct build_row) rows; /* by cf, id, t; bytes in the arena */
    VEC(struct build_sum) sums; /* by cf, id; what apply checks: all it needs of a job */
};
/* The limits of a job, and the memory of its rows. */
struct build_room {
    size_t bytes_max, rows_max; /* of rows that are read; SIZE_MAX: no limit */
    struct arena *arena;        /* borrowed; must outlive the job */
};
/* Reads the next job of a node, from *c on, and moves *c behind it. A job has at least one series
 * or group, and more until it reaches a limit of *room. Zero *ret before the first call; free it
 * with build_job_deinit. ERR_NOT_FOUND: the node is clean, has changed since the first job, or has
 * a dirty child; begin again at the start of the node when it is due. */
NODISCARD int store_build_read(struct store_view *v, const struct build_node *n,
                               struct build_cursor *c, const struct build_room *room,
                               struct build_job *ret, struct err *e);
void build_job_deinit(struct build_job *j);

struct build_result {
    VEC(struct build_row) rows; /* those of j->sums that are not gone, in order; t is the node's */
};
/* Pure: adds up; needs node and rows of the job. Bytes of the result are in the arena. The same
 * job gives the same bytes everywhere. ERR_CORRUPT, ERR_LIMIT. */
NODISCARD int build_merge(const struct build_job *j, struct arena *a, struct build_result *ret,
                          struct err *e);
void build_result_deinit(struct build_result *r);

/* Shard thread: checks, writes rows and timeline points, and cleans the node if it was the last
 * job. ERR_NOT_FOUND: as above, nothing is written; ERR_CORRUPT: a sum is wrong, nothing is
 * written. */
NODISCARD int store_build_apply(struct store *s, const struct build_job *expect,
                                const struct build_result *r, struct err *e);

/* Shard thread: a step of level 2, with store_opts.build_all of all levels: one job of one node, of
 * about `rows_max` rows. *ret_more: call again soon. */
NODISCARD int store_build(struct store *s, size_t rows_max, bool *ret_more, struct err *e);
/* Milliseconds until store_build may have something to do; at most a minute. */
uint64_t store_build_wait_ms(const struct store *s);

/* For metrics and readiness, from a view. */
struct build_stats {
    uint64_t built[KEY_LEVELS]; /* nodes, since the store was opened */
    uint64_t rows;              /* of them, and of parts of nodes */
    uint64_t marks[KEY_LEVELS]; /* dirty nodes */
    uint64_t due[KEY_LEVELS];   /* of them, those whose due time has come */
    int64_t lag_ms;             /* since the oldest of level 2 could be built */
    int64_t lag_coarse_ms;      /* the same of all levels above */
};
NODISCARD int store_build_stats(struct store_view *v, int64_t engine_ms, struct build_stats *ret,
                                struct err *e);
/* Shard thread: counts all marks in steps, once in 30 s, for store_stats. *ret_more: call again for
 * the next step. */
NODISCARD int store_build_watch(struct store *s, bool *ret_more, struct err *e);
/* Milliseconds until the next count begins. */
uint64_t store_build_watch_ms(struct store *s);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * store.h: the engine of one shard: write, seal, read. Knows no network.
 *
 *   shard thread   store_stage* ──> store_batch ──> committer: store_commit (write + fsync)
 *                  store_seal (rows of a finished minute become leaves: an entry of the seal log)
 *   any thread     store_view_get ──> store_merge / store_timeline / store_labels ──> view_put
 *
 * What a reader sees: exactly the committed batches. A staged but uncommitted push is invisible,
 * but its write id is already known, so that a retry joins it instead of doubling it.
 */
#ifndef COMMON_STORE_STORE_H
#define COMMON_STORE_STORE_H

#include <stdatomic.h>

#include "common/base/arena.h"
#include "common/base/err.h"
#include "common/model/exid.h"
#include "common/model/label.h"
#include "common/model/leaves.h"
#include "common/model/selector.h"
#include "common/model/stacks.h"
#include "common/store/catalog/group_drop.h"
#include "common/store/dict/dict_cap.h"
#include "common/store/kv/kv.h"
#include "common/sys/clock.h"

#define STORE_NAME_MAX 4096 /* bytes of a tenant's or service's name */

struct engine_clock_others;
struct store;
struct store_view;

struct store_opts {
    struct kv *kv;             /* owned by the store from store_open on, also on failure */
    const struct clock *clock; /* borrowed */
    uint32_t shard;            /* number, for errors */
    uint64_t dict_bytes_max;   /* memory for dictionaries */
    uint64_t cache_bytes;      /* block cache of kv; 0: store_shrink leaves it alone */
    uint64_t names_bytes_max;  /* of names and series; 0: as dictionaries, 192 MiB at most */
    uint32_t seal_delay_ms;    /* a minute is sealed this long after its end */
    uint32_t build_delay_ms;   /* a node of 10 m and up is built this long after its last seal */
    uint32_t build_pace_ms;    /* late data wait this long, coarse nodes longer, before theirs are
                                  built again; 0: not at all */
    bool build_all;            /* store_build makes the levels of the compactor, too */
    uint32_t wid_horizon_ms;   /* write ids are remembered this long */
    uint32_t delete_guard_ms;  /* what was deleted is refused so long when it comes again */
    uint64_t seed;             /* of the hashes of tenants created from now on; any number */
    uint64_t hot_bytes_max;    /* memory for sums of unsealed rows; 0: all are scanned */
    uint32_t hot_members_min;  /* rows a leaf of a group must have for one; 0: 16 */
    struct dict_cap_opts dict_cap; /* new stack nodes a day: dict_cap.h */
    uint32_t
        epoch_nodes_max; /* a dictionary epoch closes at this size, or at 64 times as many bytes of
                                  names; 0: 1,048,576 */
    group_drop_fn group_drop; /* labels to drop for roll-ups (group.h); NULL: the default list */
    void *group_cookie;
    /* Clocks of other processes (engine_clock.h); borrowed, or NULL. */
    const struct engine_clock_others *others;
    struct store_rollup_test { /* tests only: small numbers instead of those of group.h and
    rollup_row.h */
        uint32_t groups_max, whole_after, rolled_members, delta_bytes;
    } test;
    struct store_exm_opts {
        uint64_t retention_ms;     /* 0: none are kept */
        uint64_t rows_per_minute;  /* of one series and profile type */
        uint64_t bytes_per_minute; /* of one tenant */
    } exm;                         /* exemplars: exm.h */
    uint32_t hash_bits; /* tests only: 1..63 cuts hashes, to prove that none decides; 0: 64 */
};
/* Checks the format, reads the high-water marks and counts unsealed rows; replays nothing. */
NODISCARD int store_open(const struct store_opts *o, struct store **ret, struct err *e);
/* No flush needed for correctness. All views must be put back. NULL is fine. */
void store_close(struct store *s);

/* ---- write: shard thread ---- */
struct store_vector {
    uint32_t slot;          /* model/slot.h */
    const uint32_t *nodes;  /* of the request's stacks; ascending */
    const uint64_t *values; /* > 0 */
    size_t len;
};
/* The samples of one span, trace or profile within a series: they are in its vectors, too. Stands
 * in the slot of the first one, whole. */
struct store_exemplar {
    enum exid_kind kind;
    struct str id;        /* packed, exid.h */
    uint32_t duration_ms; /* of the push */
    const uint32_t *nodes;
    const uint64_t *values; /* > 0 */
    size_t len;
};
/* Labels that follow from the profile type and the service (`__name__`, `__profile_type__`,
 * `__type__`, `__unit__`, `__period_type__`, `__period_unit__`, `__service_name__`) may be given or
 * not: they are not stored, and answered and matched as if they stood in every series. service_name
 * may be missing, but not differ from the service. */
struct store_series {
    struct labels labels;    /* canonical */
    struct str profile_type; /* 5 parts */
    bool gauge;
    uint8_t wid[16];
    const struct store_vector *vectors;     /* slots strictly ascending; may hold no values */
    size_t len;                             /* >= 1 */
    const struct store_exemplar *exemplars; /* ascending by kind, then id */
    size_t exemplars_len;
    uint32_t spread; /* sums: slots that the window of a vector covers (spread.h); 0: not known */
};
struct dict_told;
struct store_write {
    struct str tenant, service;
    const struct stacks_view *stacks; /* checked by the caller: stacks_view_check */
    const struct store_series *series;
    size_t len;
    /* NULL, or in place of stacks: numbers of a session (dict_known.h), not checked yet. Then
     * stacks has only `nodes`, as many as told->nodes. */
    const struct dict_told *told;
    uint64_t distributor; /* acks.h; 0: no distributor will ask */
    uint32_t epoch;
    uint64_t print; /* fingerprint of the push, where its client chose the write id; 0: not known */
};
struct store_result {
    /* The batch that holds a duplicate may not be committed yet. Acknowledge only after the batch
     * into which this request was staged is committed; it is never older than the batches
     * of its duplicates. */
    uint32_t stored, duplicates;
    uint32_t exemplars, exemplars_left_out; /* of the series stored */
    uint64_t overflow; /* stacks of the series stored that went to [overflow] */
    bool learnt;       /* the session of `told` is known here, up to its numbers */
};
struct store_batch; /* many staged requests, committed together */
struct store_batch *store_batch_new(struct store *s);
size_t store_batch_bytes(const struct store_batch *b);
/* What store_stage asks of a request before anything else: ERR_INPUT, ERR_LIMIT. Any thread. */
NODISCARD int store_write_check(const struct store_write *w, struct err *e);
/* About how many bytes a request adds to a batch, rather too many. Any thread. */
size_t store_write_bytes(const struct store_write *w);
/* How many bytes a batch of the store may have. A larger batch is not written, and makes the store
 * read-only. Any thread. */
size_t store_batch_max(const struct store *s);
/* Adds one request: all or nothing. On error nothing of it is in the batch. ERR_INPUT, ERR_LIMIT,
 * ERR_UNAVAILABLE (read-only), ERR_IO, ERR_CORRUPT; ERR_NOT_FOUND: not all that `told` refers to is
 * known here, the same write with its stacks would be taken; ERR_CONFLICT: a write id of it is that
 * of another push, by their fingerprints. */
NODISCARD int store_stage(struct store *s, struct store_batch *b, const struct store_write *w,
                          struct store_result *ret, struct err *e);
/* Writes and fsyncs; frees the batch in any case. After an error the shard is read-only until it is
 * opened again, and no push of the batch is acknowledged: a failed fsync may or may not have left
 * the batch on disk. Committer thread. Every batch must be committed, in the order of creation. */
NODISCARD int store_commit(struct store *s, struct store_batch *b, struct err *e);
bool store_read_only(const struct store *s);            /* any thread */
const char *store_read_only_why(const struct store *s); /* "" while it takes writes */
int store_read_only_code(const struct store *s); /* of what failed; 0 while it takes writes */

/* Closes the database and opens it again in place, so that it takes writes after a failed one. All
 * state is then read from disk; pushes that were not acknowledged may be stored or not. `open` is
 * called when the old database is closed. Waits for current readers for a bounded time (ERR_BUSY:
 * nothing was done); new readers wait meanwhile. If opening fails, all functions return that error,
 * and this may be called again. Shard thread; no batch may be open or being committed. */
NODISCARD int store_reopen(struct store *s,
                           int (*open)(void *cookie, struct kv **ret, struct err *e), void *cookie,
                           struct err *e);

/* Rows the engine does not know of, with an fsync: what the cold tier changes. Shard thread. */
NODISCARD int store_put_rows(struct store *s, const struct kv_batch *b, struct err *e);

/* True if no batch is in flight (pipe.h), and new views show all of them. Everything on the shard's
 * thread except staging and sealing starts in this state, since it reads by views. */
bool store_settled(const struct store *s);
/* Waits for that state, at most wait_ms; UINT64_MAX: until it is reached, or a batch has failed and
 * the store is read-only; 0: does not wait. Also waits for a commit under way. */
void store_settle(struct store *s, uint64_t wait_ms);

/* ---- seal: shard thread ---- */
/* Seals due rows (by engine time), oldest first, at most `rows_max` raw rows; *ret_more is true if
 * due rows are left. The log entry is written in the same batch that applies it. */
NODISCARD int store_seal(struct store *s, size_t rows_max, bool *ret_more, struct err *e);
/* Does the same only for minutes that no entry has touched yet. It reads no rows that may be in the
 * cold tier (cold_read.h). */
NODISCARD int store_seal_fresh(struct store *s, size_t rows_max, bool *ret_more, struct err *e);
/* Milliseconds until store_seal has something to do; at most a minute. */
uint64_t store_seal_wait_ms(const struct store *s);

/* Engine time never goes back and follows the wall clock, but not over a jump of more than five
 * minutes: then what deletes by age waits until the wall clock has stood there for long, or is
 * back, and sealing for two minutes (engine_clock.h). Any thread. */
struct store_clock {
    int64_t engine_ms;
    bool held;       /* nothing is deleted for its age */
    bool paused;     /* nor sealed */
    int64_t jump_ms; /* how far the wall clock is ahead while held; below 0: behind, by a day */
};
void store_clock(const struct store *s, struct store_clock *ret);

/* An upper bound, by the minute, of the times of all stored and staged data. Shard thread, or
 * before other threads use the store. */
int64_t store_newest_ms(const struct store *s);

/* ---- read: any thread ---- */
/* What is committed now; cheap. Never NULL. */
struct store_view *store_view_get(struct store *s);
/* The same, but pushes committed later may be in its answers, too: cheaper while many come in. */
struct store_view *store_view_get_live(struct store *s);
void store_view_put(struct store_view *v);
/* The database under it, which is not closed before the view is put back: for the cold tier. */
struct kv *store_view_kv(const struct store_view *v);

struct store_query {
    struct str tenant;
    const struct selector *selector; /* compiled */
    struct str profile_type;
    int64_t start_ms, end_ms;  /* snapped outward to leaves */
    const atomic_bool *cancel; /* may be NULL; polled */
    uint64_t rows_max;         /* 0 = unlimited */
    bool members;              /* tests: without roll-ups */
    bool leaf_items;           /* timelines and functions of gauges: which leaves, too */
    bool spread; /* timelines of sums with steps below a minute: a push counts in all slots it
                    covers (TREE.md section 7), else in that of its start */
};
struct store_merge {
    struct stacks *stacks; /* caller's builder: stacks are added to it */
    VEC(uint32_t) nodes;   /* ascending, of *stacks */
    VEC(uint64_t) values;  /* self */
    uint64_t total;
    int64_t start_ms, end_ms; /* real bounds */
    uint64_t series, rows;
    bool gauge;
    VEC(uint32_t) leaves; /* gauges: leaves with data (slot / LEAF_SLOTS), ascending */
    uint64_t saturated;
};
void store_merge_deinit(struct store_merge *m);
NODISCARD int store_merge(struct store_view *v, const struct store_query *q,
                          struct store_merge *ret, struct err *e);

struct store_points {
    struct labels labels; /* group */
    VEC(uint32_t) point;
    VEC(uint64_t) value;
    VEC(uint64_t) writes;
    VEC(uint32_t) leaves;
    struct leaf_items items; /* of leaves, if asked for */
};
struct store_timeline {
    VEC(struct store_points) series;
    bool gauge;
    int64_t start_ms, end_ms; /* real bounds: edges inside a coarser kept node snap outward */
    uint64_t rows;            /* read */
    uint64_t targets;         /* with data: series (q.members), else also groups of them */
};
/* Point k sums the slots that start in (origin + (k-1) step, origin + k step]. */
struct store_timeline_query {
    struct store_query q; /* start_ms, end_ms are not used */
    int64_t origin_ms, step_ms;
    uint32_t points; /* >= 1 */
    const struct str *group_by;
    size_t group_by_len;
};
/* Where floors have left only nodes that cross an edge between points, a node counts in the point
 * its first slot lies in (at the left end: in point 0). Results up to the arena's limit
 * (ERR_LIMIT). */
NODISCARD int store_timeline(struct store_view *v, const struct store_timeline_query *q,
                             struct arena *a, struct store_timeline *ret, struct err *e);
void store_timeline_deinit(struct store_timeline *t);

/* What functions cost: self, and total (with callees, a stack counted once). The name of a function
 * is that of its frames; frames without one count for their file, or module. */
struct store_functions_query {
    struct store_query q;       /* start_ms, end_ms are not used */
    int64_t origin_ms, step_ms; /* points as in store_timeline; edges snap outward to leaves */
    uint32_t points;            /* >= 1 */
    const struct str *names;    /* only these; none: all */
    size_t names_len;
};
struct store_function {
    struct str name; /* in the arena */
    VEC(uint32_t) point;
    VEC(uint64_t) self;
    VEC(uint64_t) total;
};
struct store_functions {
    VEC(struct store_function) at; /* by name */
    VEC(uint64_t) all;             /* by point: what all stacks cost */
    VEC(uint32_t) leaves;          /* by point, gauges: leaves with data */
    struct leaf_items items;       /* of leaves, if asked for */
    bool gauge;
    int64_t start_ms, end_ms; /* real bounds */
    uint64_t rows, vectors;   /* read; vectors: those that no row of fn stands for */
    uint64_t saturated;
};
/* ERR_LIMIT: the arena is full. */
NODISCARD int store_functions(struct store_view *v, const struct store_functions_query *q,
                              struct arena *a, struct store_functions *ret, struct err *e);
void store_functions_deinit(struct store_functions *f);

enum store_labels_kind { STORE_NAMES, STORE_VALUES, STORE_SETS, STORE_TYPES };
struct store_labels_query {
    struct str tenant;
    enum store_labels_kind kind;
    struct str name;         /* STORE_VALUES */
    const struct str *names; /* STORE_SETS: projection; none = all */
    size_t names_len;
    const struct selector *selector; /* may be empty */
    int64_t start_ms, end_ms;        /* 0, 0: any time; else by days: between the first and the
                                        last day on which the series had data */
    size_t limit;                    /* 0 = none */
};
struct store_labels {
    VEC(struct str) values; /* sorted, distinct; in the arena */
    VEC(struct labels) sets;
    bool truncated;
};
NODISCARD int store_labels(struct store_view *v, const struct store_labels_query *q,
                           struct arena *a, struct store_labels *ret, struct err *e);
void store_labels_deinit(struct store_labels *l);

struct store_stats {
    uint64_t applied;   /* length of the seal log */
    uint64_t saturated; /* sums that stayed at 2^64-1 while sealing */
    uint64_t raw_rows;
    uint64_t series;
    uint64_t dict_nodes, dict_bytes;
    uint64_t overflow; /* stacks that went to [overflow] since the start */
    uint64_t exemplars, exemplars_over, exemplars_old; /* stored; left out: over a bound, too old */
    uint64_t names_bytes;                              /* of names and series in memory */
    uint64_t stage_bytes, stage_wants; /* kept from one request to the next; what they need */
    uint64_t hot_bytes;
    uint64_t nodes_built, rows_built;          /* of 10 m and up, since the start */
    uint64_t marks, marks_due;                 /* nodes to build, and those due: build.h */
    int64_t build_lag_ms, build_lag_coarse_ms; /* of 10 m; of the levels above */
    struct kv_stats kv;
};
void store_stats(struct store *s, struct store_stats *ret);

/* Block cache and dictionaries may hold this percentage of what they were given; what is over goes.
 * Any thread. */
void store_shrink(struct store *s, unsigned percent);
/* Other limits than it was opened with, for one of several stores that share memory. What is over
 * goes: of dictionaries at once, but for those being written; of those and of names when the
 * shard's thread trims. Any thread; forgotten when the store is opened again. */
struct store_shares {
    uint64_t dict_bytes, names_bytes, hot_bytes;
    uint64_t stage_bytes; /* tables kept from one request to the next; 0: as large as they become */
};
void store_share(struct store *s, const struct store_shares *to);
/* What was said last; all 0: nothing since it was opened. */
void store_shares(const struct store *s, struct store_shares *ret);
/* Drops what the caches of dictionaries and names hold over their limit, and what requests left for
 * the next ones if none came since the last time. Shard thread. */
void store_trim(struct store *s);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * build_state.h: what the files of the build share. Of other files only open.c includes it.
 */
#ifndef COMMON_STORE_BUILD_BUILD_STATE_H
#define COMMON_STORE_BUILD_BUILD_STATE_H

#include "common/store/build/build.h"
#include "common/store/codec/vecsum.h"
#include "common/store/state/rollup_row.h"
#include "common/store/state/view.h"
#include "common/store/store.h"

/* A count of all marks, in steps. */
struct build_watch {
    struct key next; /* len 0: none has begun */
    struct build_stats stats;
    uint64_t at_ms; /* monotonic: the next one */
};
/* What the shard thread is building. */
struct build_state {
    struct build_nodes due; /* of the last look */
    size_t at;              /* the one being built */
    struct build_cursor cursor;
    bool busy; /* due.at[at] is begun */
    struct arena *arena;
    struct build_watch watch;
};
struct build_state *build_state_new(void);
void build_state_free(struct build_state *b); /* NULL is fine */
/* As store_build_due; *ret_next: when the next of these levels is due by time, INT64_MAX: none. */
struct build_search {
    const struct kv_snap *snap; /* NULL: now */
    int64_t engine_ms;
    uint32_t low, high; /* levels */
    size_t max;
};
NODISCARD int build_find(struct store *s, const struct build_search *f, struct build_nodes *ret,
                         int64_t *ret_next, struct err *e);
/* As store_build_read, with a limit of rows, too. */
struct build_room { /* of a job */
    size_t bytes_max, rows_max;
    struct arena *arena;
};
NODISCARD int build_read(struct store_view *v, const struct build_node *n, struct build_cursor *c,
                         const struct build_room *room, struct build_job *ret, struct err *e);

/* The same without a look at the node's mark, for those who compare: with an entry in *c, rows of
 * the node that have no children are in the job, too, as sums that are gone. */
NODISCARD int build_read_node(struct store_view *v, const struct build_node *n,
                              struct build_cursor *c, const struct build_room *room,
                              struct build_job *ret, struct err *e);

/* total, writes, F of a row of coarse, ru or fn, added up: what a parent's must be. `sound` checks
 * the whole row, else only its heads. */
NODISCARD int build_sum_add(struct build_sum *s, struct str row, bool sound, struct err *e);

#endif

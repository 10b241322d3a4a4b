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
/* Does what store_build_due does, with the marks of a snapshot (NULL: the newest). *ret_next is the
 * engine time at which the next node of these levels is due, INT64_MAX if none is waiting. */
NODISCARD int build_find(struct store *s, const struct kv_snap *snap, const struct build_search *f,
                         struct build_nodes *ret, int64_t *ret_next, struct err *e);
/* Does what store_build_read does without reading the node's mark, for callers that compare. With
 * an entry in *c, the job also has rows of the node without children, as sums that are gone. */
NODISCARD int build_read_node(struct store_view *v, const struct build_node *n,
                              struct build_cursor *c, const struct build_room *room,
                              struct build_job *ret, struct err *e);

/* total, writes, F of a row of coarse, ru or fn, added up: what a parent's must be. `sound` checks
 * the whole row, else only its heads. */
NODISCARD int build_sum_add(struct build_sum *s, struct str row, bool sound, struct err *e);

#endif

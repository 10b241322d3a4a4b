/* SPDX-License-Identifier: Apache-2.0
 *
 * chores.h: what a shard's thread does between groups of writes besides sealing: building levels,
 * retention, purging. A chore works in bounded steps and says when it has something to do again;
 * they take turns, one step each. A new chore is a line in the table of chores.c.
 *
 * Thread: the shard's.
 */
#ifndef INGESTER_SHARD_CHORES_H
#define INGESTER_SHARD_CHORES_H

#include "common/obs/metrics.h"
#include "common/store/store.h"
#include "ingester/shard/far_turn.h"

#define CHORES_MAX 8

struct chore {
    const char *name;
    /* One step of at most some ten milliseconds; *ret_more: another one is due at once. */
    int (*step)(struct store *s, bool *ret_more, struct err *e);
    uint64_t (*wait_ms)(struct store *s); /* until there may be something to do */
};
extern const struct chore chore_table[];
extern const size_t chore_count; /* <= CHORES_MAX */

struct chores {
    struct store *store;
    uint32_t shard;
    struct chore_state {
        uint64_t look_ms; /* monotonic: ask or step not before */
        bool more;
        struct metric_cell *steps, *errors, *seconds;
    } at[CHORES_MAX];
    size_t next; /* whose turn it is */
};
void chores_init(struct chores *c, struct store *s, uint32_t shard, struct metrics *m);
/* At most one step of one chore. */
void chores_step(struct chores *c, struct far_turn *far, const struct clock *clock);
/* Milliseconds until a chore has something to do. */
uint64_t chores_wait(const struct chores *c, uint64_t now_ms);

#endif

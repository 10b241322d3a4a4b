/* SPDX-License-Identifier: Apache-2.0
 *
 * shard_jobs.h: what a shard's thread does between groups of writes besides sealing: building
 * levels, retention, purging. A chore works in bounded steps and says when it has something to do
 * again; they take turns, one step each. A new chore is a line in the table of shard_jobs.c.
 *
 * Thread: the shard's.
 */
#ifndef INGESTER_SHARD_SHARD_JOBS_H
#define INGESTER_SHARD_SHARD_JOBS_H

#include "common/obs/metrics.h"
#include "common/store/store.h"
#include "ingester/shard/cold_wait.h"

#define SHARD_JOBS_MAX 8

struct chore {
    const char *name;
    /* One step of at most some ten milliseconds; *ret_more: another one is due at once. */
    int (*step)(struct store *s, bool *ret_more, struct err *e);
    uint64_t (*wait_ms)(struct store *s); /* until there may be something to do */
};
extern const struct chore chore_table[];
extern const size_t chore_count; /* <= SHARD_JOBS_MAX */

struct shard_jobs {
    struct store *store;
    uint32_t shard;
    struct chore_state {
        uint64_t look_ms; /* monotonic: ask or step not before */
        bool more;
        struct metric_cell *steps, *errors, *seconds;
    } at[SHARD_JOBS_MAX];
    size_t next; /* whose turn it is */
};
void shard_jobs_init(struct shard_jobs *c, struct store *s, uint32_t shard, struct metrics *m);
/* At most one step of one chore. */
void shard_jobs_step(struct shard_jobs *c, struct cold_wait *far, const struct clock *clock);
/* Milliseconds until a chore has something to do. */
uint64_t shard_jobs_wait(const struct shard_jobs *c, uint64_t now_ms);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * scrape_sched.h: when each entry is due. Entries are spread over their interval by their hash, at
 * most so many run at once, one run of an entry at a time, and an entry that fails is retried less
 * and less often.
 *
 * Thread: the loop's. It runs on simulated loops, too.
 */
#ifndef DISTRIBUTOR_SCRAPE_SCRAPE_SCHED_H
#define DISTRIBUTOR_SCRAPE_SCRAPE_SCHED_H

#include "common/base/list.h"
#include "common/sys/env.h"
#include "common/sys/loop.h"

struct sched;
enum sched_state { SCHED_OFF, SCHED_WAITS, SCHED_QUEUED, SCHED_RUNS };
struct sched_entry { /* in the owner's struct, zeroed */
    uint64_t hash, interval_ms;
    enum sched_state state;
    uint64_t due_ms; /* monotonic */
    size_t at;       /* in the heap */
    struct list queue;
    uint32_t failures; /* in a row */
};
struct sched_opts {
    struct loop *loop;
    struct env *env;
    size_t running_max;
    /* Begins a run; sched_done ends it, now or later. */
    void (*start)(void *cookie, struct sched_entry *x);
    void *cookie;
};
#define SCHED_BACKOFF_MS 300000 /* the longest pause that failures cause, or the interval */

struct sched *sched_new(const struct sched_opts *o);
void sched_free(struct sched *s); /* entries are the owner's; NULL is fine */
/* x->hash and x->interval_ms are set. */
void sched_add(struct sched *s, struct sched_entry *x);
/* Not for an entry that runs: sched_done with `again` false removes it. */
void sched_del(struct sched *s, struct sched_entry *x);
/* From now on it has its turns by this interval; in any state. */
void sched_interval(struct sched *s, struct sched_entry *x, uint64_t interval_ms);
/* The run is over; `again`: it stays scheduled. */
void sched_done(struct sched *s, struct sched_entry *x, bool ok, bool again);
/* Starts no more entries; running ones continue. */
void sched_stop(struct sched *s);
size_t sched_running(const struct sched *s);
size_t sched_queued(const struct sched *s);
/* Turns of entries that came too late for them, so far. */
uint64_t sched_skipped(const struct sched *s);

#endif

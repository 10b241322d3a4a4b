/* SPDX-License-Identifier: Apache-2.0
 *
 * pool.h: worker threads for pure CPU jobs (gunzip, decode, merge, render).
 *
 * A job runs `work` on some worker, then `done` on the loop given at submit. The queue is bounded.
 * With threads = 0 `work` runs inline inside a posted call: simulation stays deterministic.
 * Thread: pool_submit from any thread.
 */
#ifndef COMMON_SYS_POOL_H
#define COMMON_SYS_POOL_H

#include "common/base/str.h"
#include "common/sys/loop.h"

struct pool;
typedef void (*pool_fn)(void *cookie);

/* Threads are named "<name>-<i>". */
struct pool *pool_new(const char *name, uint32_t threads, size_t queue_max);
/* Runs the queued jobs, joins the threads, frees. NULL is fine. */
void pool_free(struct pool *p);
/* False if the queue is full: nothing will be called, answer ERR_BUSY. `done` may be NULL. */
bool pool_submit(struct pool *p, struct loop *loop, pool_fn work, pool_fn done,
                 void *cookie) NODISCARD;
/* The same for a job of a tenant: tenants take turns (fair.h), by the time their jobs take; and
 * they take turns, one by one, with jobs that have no tenant. */
uint64_t pool_tenant(const struct pool *p, struct str name); /* its number */
uint64_t pool_tenant_writes(const struct pool *p,
                            struct str name); /* for its pushes: another one */
bool pool_submit_for(struct pool *p, uint64_t tenant, struct loop *loop, pool_fn work, pool_fn done,
                     void *cookie) NODISCARD;
/* At most so many jobs of one tenant run at once, so that another tenant finds a free thread
 * however long they are; 0: no limit. Call it before the first job. */
void pool_limit_tenant(struct pool *p, size_t running_max);
/* Long jobs of tenants run in slices: no more than `cores` run at once (a job that comes may have
 * one of the other threads until one of them stops), and a job that calls pool_slice after
 * `slice_us` waits there while a tenant that had less, or a job without a tenant, wants its place.
 * It keeps its thread and all it holds, and is the next of its tenant to continue. As many jobs may
 * wait so as there are threads, so twice as many threads are started. Call it before any job. */
void pool_slices(struct pool *p, uint32_t cores, uint64_t slice_us);
/* Call it often in a job, without a lock that another job might want. It is cheap, and does nothing
 * outside of a job. */
void pool_slice(void);
/* The same in a loop of short steps, of which this is step i. */
static inline void pool_slice_step(size_t i)
{
    if ((i & 1023) == 0)
        pool_slice();
}

struct pool_stats {
    uint64_t jobs;   /* that began */
    uint64_t pauses; /* how often a job stopped for others */
    /* Jobs of tenants without another job here: their number; the sum of turns of other jobs that
     * began while such a job waited for its first turn; the largest of these. */
    uint64_t single, passed, passed_max;
};
struct pool_stats pool_stats_of(const struct pool *p);
size_t pool_queued(const struct pool *p);
uint32_t pool_cores(const struct pool *p); /* jobs that run at once; 0: inline */

#endif

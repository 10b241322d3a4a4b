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
/* Runs what is queued, joins, frees. NULL is fine. */
void pool_free(struct pool *p);
/* False if the queue is full: nothing will be called, answer ERR_BUSY. `done` may be NULL. */
bool pool_submit(struct pool *p, struct loop *loop, pool_fn work, pool_fn done,
                 void *cookie) NODISCARD;
/* The same for a job of a tenant: tenants take turns (fair.h), by the time their jobs take; and
 * turns with jobs that are nobody's, one by one. */
uint64_t pool_tenant(const struct pool *p, struct str name); /* its number */
bool pool_submit_for(struct pool *p, uint64_t tenant, struct loop *loop, pool_fn work, pool_fn done,
                     void *cookie) NODISCARD;
/* At most so many jobs of one tenant run at once, so that another one finds a thread free however
 * long they are; 0: any. Before the first job. */
void pool_limit_tenant(struct pool *p, size_t running_max);
size_t pool_queued(const struct pool *p);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * read_load: counters of the queue of queries, for work that must yield to queries.
 *
 * The queue writes them (read/rpc_read.c); the scrubber, the auditor and builds only ask. They are
 * kept here, below all of these, so that background work need not know the queue.
 *
 * Invariant: far_used <= far_max. A place that is left goes to the queue first, which gives it to
 * the query that has waited longest; only when none waits is it counted as free.
 */
#include "ingester/shard/read_load.h"

#include <stdatomic.h>

#include "common/base/mem.h"
#include "common/sys/fair.h"

struct read_load {
    struct read_load_queue q;  /* loop, but for far_max, which is set before queries come */
    _Atomic uint32_t far_used; /* any thread */
};

struct read_load *read_load_new(void)
{
    return XNEW(struct read_load);
}

void read_load_free(struct read_load *l)
{
    xfree(l);
}

bool read_load_waiting(const struct read_load *l)
{
    return l->q.queue && fair_waiting(l->q.queue) > 0;
}

bool read_load_far_enter(struct read_load *l)
{
    uint32_t used = atomic_load(&l->far_used);

    while (used < l->q.far_max)
        if (atomic_compare_exchange_weak(&l->far_used, &used, used + 1))
            return true;
    return false;
}

void read_load_far_leave(struct read_load *l)
{
    CHECK(l->q.far_left);
    l->q.far_left(l->q.cookie);
}

void read_load_begin(struct read_load *l, const struct read_load_queue *q)
{
    CHECK(!l->q.queue && q->queue && q->far_left);
    l->q = *q;
}

void read_load_end(struct read_load *l)
{
    l->q = (struct read_load_queue){ 0 };
}

void read_load_far_release(struct read_load *l)
{
    CHECK(atomic_fetch_sub(&l->far_used, 1) > 0);
}

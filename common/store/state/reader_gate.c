/* SPDX-License-Identifier: Apache-2.0
 *
 * reader_gate: counts the readers of a store, and keeps them out while it is opened again.
 *
 * Each reader holds a view. The gate closes for new ones, waits until the last has left, and opens
 * when the store is whole again. A reader may take a second view while it holds a first: it waits,
 * the closing stops waiting after LEAVE_MS, and both proceed.
 *
 * Threads: any.
 */
#include "common/store/state/reader_gate.h"

#include "common/base/mem.h"
#include "common/sys/clock.h"
#include "common/sys/thread.h"

#define LEAVE_MS 2000

struct store_gate {
    struct mutex lock; /* guards what follows */
    struct cond moved;
    uint32_t inside;
    bool closed;
};

struct store_gate *gate_new(void)
{
    struct store_gate *g = XNEW(struct store_gate);

    mutex_init(&g->lock);
    cond_init(&g->moved);
    return g;
}

void gate_free(struct store_gate *g)
{
    CHECK(g->inside == 0);
    cond_deinit(&g->moved);
    mutex_deinit(&g->lock);
    xfree(g);
}

bool reader_gate_enter(struct store_gate *g, bool wait)
{
    mutex_lock(&g->lock);
    while (g->closed && wait)
        cond_wait(&g->moved, &g->lock);
    bool in = !g->closed;
    if (in)
        g->inside++;
    mutex_unlock(&g->lock);
    return in;
}

void reader_gate_leave(struct store_gate *g)
{
    mutex_lock(&g->lock);
    CHECK(g->inside > 0);
    if (--g->inside == 0 && g->closed)
        cond_wake_all(&g->moved);
    mutex_unlock(&g->lock);
}

void gate_open(struct store_gate *g)
{
    mutex_lock(&g->lock);
    g->closed = false;
    cond_wake_all(&g->moved);
    mutex_unlock(&g->lock);
}

bool gate_close(struct store_gate *g)
{
    uint64_t until = clock_mono_ms(clock_real()) + LEAVE_MS;
    bool late = false;

    mutex_lock(&g->lock);
    g->closed = true;
    while (g->inside && !late)
        late = !cond_wait_until(&g->moved, &g->lock, until);
    bool empty = g->inside == 0;
    mutex_unlock(&g->lock);
    if (!empty)
        gate_open(g);
    return empty;
}

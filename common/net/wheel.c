/* SPDX-License-Identifier: Apache-2.0
 *
 * wheel: a hashed timing wheel with one level.
 *
 * An entry stands in the slot of the tick at which it is looked at next. That tick may be earlier
 * than its deadline: because the deadline moved on since, or is more than a turn away. It is then
 * put back further on. So a later deadline is one store, and only an earlier one moves the entry.
 *
 * Invariants: (1) every entry's tick is in (wheel.tick, wheel.tick + SLOTS); (2) the timer is armed
 * for the earliest non-empty slot or an earlier one, as long as there are entries.
 */
#include "common/net/wheel.h"

static void on_timer(void *cookie);

void wheel_init(struct wheel *w, struct loop *loop, wheel_fn expired)
{
    w->loop = loop;
    w->timer = loop_timer_new(loop, on_timer, w);
    w->expired = expired;
    for (size_t i = 0; i < WHEEL_SLOTS; i++)
        list_init(&w->slots[i]);
    w->tick = 0;
    w->armed_tick = UINT64_MAX;
    w->len = 0;
}

void wheel_deinit(struct wheel *w)
{
    CHECK(w->len == 0);
    loop_timer_free(w->timer);
    w->timer = NULL;
}

static void arm(struct wheel *w, uint64_t tick)
{
    uint64_t now = clock_mono_ms(loop_clock(w->loop));
    uint64_t at = tick * WHEEL_TICK_MS;

    w->armed_tick = tick;
    loop_timer_start(w->timer, at > now ? at - now : 0, 0);
}

static void put(struct wheel *w, struct wheel_entry *e)
{
    uint64_t tick = e->due_ms / WHEEL_TICK_MS + 1;

    if (tick <= w->tick)
        tick = w->tick + 1;
    if (tick >= w->tick + WHEEL_SLOTS)
        tick = w->tick + WHEEL_SLOTS - 1;
    e->tick = tick;
    list_init(&e->link);
    list_add_tail(&w->slots[tick % WHEEL_SLOTS], &e->link);
    w->len++;
}

void wheel_set(struct wheel *w, struct wheel_entry *e, uint64_t due_ms)
{
    e->due_ms = due_ms;
    if (e->tick && due_ms / WHEEL_TICK_MS + 1 >= e->tick)
        return;
    wheel_clear(w, e);
    if (w->len == 0)
        w->tick = clock_mono_ms(loop_clock(w->loop)) / WHEEL_TICK_MS;
    put(w, e);
    if (e->tick < w->armed_tick)
        arm(w, e->tick);
}

void wheel_clear(struct wheel *w, struct wheel_entry *e)
{
    if (!e->tick)
        return;
    list_del(&e->link);
    e->tick = 0;
    CHECK(w->len > 0);
    if (--w->len == 0) {
        loop_timer_stop(w->timer);
        w->armed_tick = UINT64_MAX;
    }
}

/* Everything in the slots of the ticks that passed goes to `due`. */
static void collect(struct wheel *w, uint64_t target, struct list *due)
{
    uint64_t n = MIN(target - w->tick, (uint64_t)WHEEL_SLOTS);

    for (uint64_t i = 1; i <= n; i++) {
        struct list *slot = &w->slots[(w->tick + i) % WHEEL_SLOTS];
        while (!list_empty(slot)) {
            struct list *first = slot->next;
            list_del(first);
            list_add_tail(due, first);
        }
    }
    w->tick = target;
}

static void on_timer(void *cookie)
{
    struct wheel *w = cookie;
    uint64_t now = clock_mono_ms(loop_clock(w->loop));
    struct list due;

    list_init(&due);
    w->armed_tick = UINT64_MAX;
    if (now / WHEEL_TICK_MS > w->tick)
        collect(w, now / WHEEL_TICK_MS, &due);
    while (!list_empty(&due)) {
        struct wheel_entry *e = container_of(due.next, struct wheel_entry, link);
        list_del(&e->link);
        e->tick = 0;
        w->len--;
        if (e->due_ms > now)
            put(w, e);
        else
            w->expired(e); /* may clear or set this entry and others */
    }
    for (uint64_t i = 1; w->len && i < WHEEL_SLOTS; i++) {
        if (list_empty(&w->slots[(w->tick + i) % WHEEL_SLOTS]))
            continue;
        if (w->tick + i < w->armed_tick)
            arm(w, w->tick + i);
        break;
    }
}

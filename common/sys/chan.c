/* SPDX-License-Identifier: Apache-2.0
 *
 * chan: a ring of pointers under a mutex, with one condition for receivers.
 *
 * A lazy message does not wake a receiver that waits for at least `least` of them. So a thread that
 * also waits for other things (chan_wait_for) is woken once for many messages. A sender wakes a
 * receiver after it has released the lock, which the receiver needs at once; `sending` counts
 * senders in between, and chan_free waits for it to be 0.
 *
 * A receiver that waits without a limit gives its cached memory back after IDLE_MS (mem_idle). The
 * ring restarts at slot 0 whenever it is empty, so a quiet channel touches few pages.
 *
 * Invariants: len <= max; urgent <= len.  Threads: any.
 */
#include "common/sys/chan.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#include "common/base/mem.h"

#define IDLE_MS 500 /* a thread idle for so long gives back memory that only it can use */

struct slot {
    void *msg;
    bool lazy;
};

struct chan {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    struct slot *ring; /* owned; max slots. Untouched slots cost no memory */
    size_t max, head, len;
    size_t urgent;   /* of the messages, those that are not lazy */
    size_t least;    /* lazy ones that wake the receiver */
    size_t sleeping; /* receivers */
    bool closed;
    _Atomic uint32_t sending; /* threads between a message and its wake-up; chan_free waits */
    void (*wake)(void *cookie);
    void *cookie;
};

struct chan *chan_new(size_t max, void (*wake)(void *cookie), void *cookie)
{
    struct chan *c = XNEW(struct chan);
    pthread_condattr_t attr;

    CHECK(max > 0);
    CHECK(pthread_mutex_init(&c->lock, NULL) == 0);
    CHECK(pthread_condattr_init(&attr) == 0);
    CHECK(pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) == 0);
    CHECK(pthread_cond_init(&c->filled, &attr) == 0);
    CHECK(pthread_condattr_destroy(&attr) == 0);
    c->ring = XNEW_ARRAY(struct slot, max);
    c->max = max;
    c->wake = wake;
    c->cookie = cookie;
    return c;
}

void chan_free(struct chan *c)
{
    if (!c)
        return;
    while (atomic_load(&c->sending))
        (void)sched_yield();
    CHECK(c->len == 0);
    CHECK(pthread_cond_destroy(&c->filled) == 0);
    CHECK(pthread_mutex_destroy(&c->lock) == 0);
    xfree(c->ring);
    xfree(c);
}

/* True if a sleeping thread can be woken: what it waits for is here. */
static bool due(const struct chan *c)
{
    return c->sleeping && (c->urgent || c->len >= c->least);
}

static bool send_as(struct chan *c, void *msg, bool lazy)
{
    bool sent, first, wakes;

    CHECK(pthread_mutex_lock(&c->lock) == 0);
    sent = !c->closed && c->len < c->max;
    first = sent && c->len == 0;
    if (sent) {
        c->ring[(c->head + c->len) % c->max] = (struct slot){ msg, lazy };
        c->len++;
        c->urgent += !lazy;
        atomic_fetch_add(&c->sending, 1);
    }
    wakes = due(c);
    CHECK(pthread_mutex_unlock(&c->lock) == 0);
    if (!sent)
        return false;
    /* Not under the lock, on which the woken thread would run at once. */
    if (wakes)
        CHECK(pthread_cond_signal(&c->filled) == 0);
    if (first && c->wake)
        c->wake(c->cookie);
    atomic_fetch_sub(&c->sending, 1);
    return true;
}

bool chan_send(struct chan *c, void *msg)
{
    return send_as(c, msg, false);
}

bool chan_send_lazily(struct chan *c, void *msg)
{
    return send_as(c, msg, true);
}

static size_t take_locked(struct chan *c, void **ret_msgs, size_t max)
{
    size_t n = MIN(max, c->len);

    for (size_t i = 0; i < n; i++) {
        ret_msgs[i] = c->ring[c->head].msg;
        c->urgent -= !c->ring[c->head].lazy;
        c->head = (c->head + 1) % c->max;
    }
    c->len -= n;
    if (c->len == 0)
        c->head = 0; /* else the ring would in time touch all of its slots */
    /* A signal may have woken only one of several waiters for several messages. */
    if (due(c))
        CHECK(pthread_cond_signal(&c->filled) == 0);
    return n;
}

size_t chan_take(struct chan *c, void **ret_msgs, size_t max)
{
    size_t n;

    CHECK(pthread_mutex_lock(&c->lock) == 0);
    n = take_locked(c, ret_msgs, max);
    CHECK(pthread_mutex_unlock(&c->lock) == 0);
    return n;
}

static struct timespec deadline_in(uint64_t wait_ms)
{
    struct timespec t;

    CHECK(clock_gettime(CLOCK_MONOTONIC, &t) == 0);
    t.tv_sec += (time_t)(wait_ms / 1000);
    t.tv_nsec += (long)(wait_ms % 1000) * 1000000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000;
    }
    return t;
}

size_t chan_wait_for(struct chan *c, size_t least, void **ret_msgs, size_t max, uint64_t wait_ms)
{
    struct timespec until;
    size_t n;
    int r = wait_ms ? 0 : ETIMEDOUT;
    bool works = wait_ms == UINT64_MAX; /* until it has waited for a while */

    if (wait_ms) /* a year stands for no limit, and cannot overflow time_t */
        until = deadline_in(works ? IDLE_MS : MIN(wait_ms, (uint64_t)366 * 86400 * 1000));
    CHECK(pthread_mutex_lock(&c->lock) == 0);
    while (!c->urgent && c->len < least && !c->closed && r != ETIMEDOUT) {
        c->least = least;
        c->sleeping++;
        if (wait_ms == UINT64_MAX && !works)
            r = pthread_cond_wait(&c->filled, &c->lock);
        else
            r = pthread_cond_timedwait(&c->filled, &c->lock, &until);
        c->sleeping--;
        CHECK(r == 0 || r == ETIMEDOUT);
        if (r == 0 || !works)
            continue;
        works = false;
        r = 0;
        CHECK(pthread_mutex_unlock(&c->lock) == 0);
        mem_idle();
        CHECK(pthread_mutex_lock(&c->lock) == 0);
    }
    n = take_locked(c, ret_msgs, max);
    CHECK(pthread_mutex_unlock(&c->lock) == 0);
    return n;
}

size_t chan_wait(struct chan *c, void **ret_msgs, size_t max, uint64_t wait_ms)
{
    return chan_wait_for(c, 1, ret_msgs, max, wait_ms);
}

void chan_close(struct chan *c)
{
    CHECK(pthread_mutex_lock(&c->lock) == 0);
    c->closed = true;
    CHECK(pthread_cond_broadcast(&c->filled) == 0);
    CHECK(pthread_mutex_unlock(&c->lock) == 0);
}

size_t chan_len(const struct chan *c)
{
    /* Locking does not change what the caller sees. */
    struct chan *m = (struct chan *)(uintptr_t)c;
    size_t n;

    CHECK(pthread_mutex_lock(&m->lock) == 0);
    n = m->len;
    CHECK(pthread_mutex_unlock(&m->lock) == 0);
    return n;
}

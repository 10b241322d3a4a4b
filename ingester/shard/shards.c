/* SPDX-License-Identifier: Apache-2.0
 *
 * shards: a pointer and a count per place, without a lock, since every write passes here.
 *
 *   get:    holds + 1; then look at the pointer; NULL: holds - 1, it is not here
 *   close:  pointer = NULL; wait until holds is 0; then no thread has it and none can get it
 *
 * Both sides write one and then read the other, sequentially consistent: a get that still saw the
 * pointer had counted itself before, and close sees that. A late get may count itself for a moment
 * without getting a shard; close waits for it, too. The wait is a timer: closing is rare, and
 * shards_put should not have to know of it.
 *
 * A place whose copy left the node becomes another shard's. A late get for the first shard then
 * finds the second, so it compares the number of the shard that it got.
 *
 * Ending the threads of a shard and closing its database takes as long as its last step and a
 * flush, so another thread does both (blocking_job.h).
 */
#include "ingester/shard/shards.h"

#include <stdatomic.h>

#include "common/base/mem.h"
#include "ingester/base/blocking_job.h"

#define POLL_MS 5

struct place {
    struct shards *owner;
    _Atomic uint32_t number;
    _Atomic(struct shard *) shard; /* NULL: not served now */
    _Atomic uint32_t holds;
    /* The loop's. */
    struct shard *closing; /* NULL: nothing is being closed */
    struct timer *timer;
    void (*done)(void *cookie);
    void *cookie;
};

struct shards {
    struct shards_opts o;
    struct place at[SHARDS_MAX];
    _Atomic size_t len;
};

struct shards *shards_new(const struct shards_opts *o)
{
    struct shards *t = XNEW(struct shards);

    t->o = *o;
    return t;
}

void shards_free(struct shards *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->len; i++) {
        CHECK(!t->at[i].closing);
        loop_timer_free(t->at[i].timer);
        shard_free(t->at[i].shard);
    }
    xfree(t);
}

/* ---- any thread ----------------------------------------------------------------------------- */

static struct place *place_of(struct shards *t, uint32_t number)
{
    size_t len = t->len;

    for (size_t i = 0; i < len; i++)
        if (t->at[i].number == number)
            return &t->at[i];
    return NULL;
}

static struct shard *place_get(struct place *p)
{
    p->holds++;
    struct shard *s = p->shard;
    if (!s)
        p->holds--;
    return s;
}

struct shard *shards_get(struct shards *t, uint32_t number, struct err *e)
{
    struct place *p = place_of(t, number);
    struct shard *s = p ? place_get(p) : NULL;

    if (s && shard_number(s) == number)
        return s;
    if (s) /* the place is another's by now */
        p->holds--;
    if (t->o.moves)
        (void)err_set(e, ERR_UNAVAILABLE,
                      "this ingester does not lead shard %" PRIu32 "; ask its leader", number);
    else
        (void)err_set(e, ERR_INPUT,
                      "shard %" PRIu32 " is not on this ingester; cluster.ingesters and "
                      "cluster.shards must be the same everywhere",
                      number);
    return NULL;
}

void shards_put(struct shards *t, struct shard *s)
{
    if (!s)
        return;
    struct place *p = place_of(t, shard_number(s));
    CHECK(p && p->holds > 0);
    p->holds--;
}

static bool named_before(const uint32_t *numbers, size_t at)
{
    for (size_t i = 0; i < at; i++)
        if (numbers[i] == numbers[at])
            return true;
    return false;
}

int shards_get_all(struct shards *t, const uint32_t *numbers, size_t n,
                   struct shard *ret[SHARDS_MAX], struct err *e)
{
    size_t len = n ? n : t->len;
    int got = 0;

    if (n > SHARDS_MAX) {
        (void)err_set(e, ERR_LIMIT, "%zu shards named, an ingester has at most %d", n, SHARDS_MAX);
        return -1;
    }
    for (size_t i = 0; i < len; i++) {
        if (n && named_before(numbers, i))
            continue;
        struct shard *s = n ? shards_get(t, numbers[i], e) : place_get(&t->at[i]);
        if (!s && n) {
            shards_put_all(t, ret, (size_t)got);
            return -1;
        }
        if (s)
            ret[got++] = s;
    }
    return got;
}

void shards_put_all(struct shards *t, struct shard *const *all, size_t n)
{
    for (size_t i = 0; i < n; i++)
        shards_put(t, all[i]);
}

/* ---- loop ----------------------------------------------------------------------------------- */

size_t shards_len(const struct shards *t)
{
    return t->len;
}

struct shard *shards_at(const struct shards *t, size_t i)
{
    return t->at[i].shard;
}

uint32_t shards_number(const struct shards *t, size_t i)
{
    return t->at[i].number;
}

size_t shards_serving(const struct shards *t)
{
    size_t n = 0;

    for (size_t i = 0; i < t->len; i++)
        n += t->at[i].shard != NULL;
    return n;
}

size_t shards_place(struct shards *t, uint32_t number)
{
    const struct place *p = place_of(t, number);
    size_t i = t->len;

    CHECK(number != SHARDS_NO);
    if (!p)
        p = place_of(t, SHARDS_NO);
    if (p)
        i = (size_t)(p - t->at);
    if (i == SHARDS_MAX)
        return SHARDS_MAX;
    t->at[i].owner = t;
    t->at[i].number = number;
    if (!p)
        t->len = i + 1; /* last: other threads read what stands before it */
    return i;
}

void shards_leave(struct shards *t, uint32_t number)
{
    struct place *p = place_of(t, number);

    if (!p)
        return;
    CHECK(!p->shard && !p->closing);
    p->number = SHARDS_NO;
}

void shards_open(struct shards *t, struct shard *s)
{
    size_t i = shards_place(t, shard_number(s));

    CHECK(i < SHARDS_MAX && !t->at[i].shard && !t->at[i].closing);
    t->at[i].shard = s;
}

static void close_work(void *cookie)
{
    struct place *p = cookie;

    shard_end(p->closing);
}

static void close_done(void *cookie)
{
    struct place *p = cookie;
    void (*done)(void *cookie) = p->done;

    shard_free(p->closing);
    p->closing = NULL;
    done(p->cookie);
}

static void on_timer(void *cookie)
{
    struct place *p = cookie;
    const struct shards_opts *o = &p->owner->o;

    if (p->holds > 0) {
        loop_timer_start(p->timer, POLL_MS, 0);
        return;
    }
    shard_stop(p->closing);
    if (!shard_stopped(p->closing)) {
        loop_timer_start(p->timer, POLL_MS, 0);
        return;
    }
    blocking_job_run(o->loop, o->simulated, close_work, close_done, p);
}

void shards_close(struct shards *t, uint32_t number, void (*done)(void *cookie), void *cookie)
{
    struct place *p = place_of(t, number);

    CHECK(p && p->shard && !p->closing);
    p->closing = p->shard;
    p->shard = NULL;
    p->done = done;
    p->cookie = cookie;
    if (!p->timer)
        p->timer = loop_timer_new(t->o.loop, on_timer, p);
    loop_timer_start(p->timer, 0, 0);
}

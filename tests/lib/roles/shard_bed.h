/* SPDX-License-Identifier: Apache-2.0
 *
 * shard_bed.h: a shard on a loop, over a store that only takes notes: what is defined here is
 * linked instead of the engine. For one file of a test program.
 */
#ifndef TESTS_LIB_ROLES_SHARD_BED_H
#define TESTS_LIB_ROLES_SHARD_BED_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "common/base/mem.h"
#include "common/store/catalog/names_max.h"
#include "common/store/kv/cold_read.h"
#include "common/store/write/stage_ahead.h"
#include "ingester/shard/shard.h"
#include "tests/lib/roles/chores_idle.h"

#define WRITES_MAX 10000

/* ---- the store that takes notes ------------------------------------------------------------- */

struct store {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    size_t staged, committed, batches, batches_open;
    size_t seals_due; /* store_seal has this many steps to do */
    size_t seals_done, seal_fails;
    bool far;                               /* its seals need the cold tier, which hangs */
    size_t far_entered, far_refused, fresh; /* waits for it; seals without it */
    bool hold;                              /* commits wait */
    bool committing;
    bool fail_commit, read_only;
    bool unsettled;          /* work that was begun stays under way until a thread waits for it */
    size_t fail_stage_every; /* 0: never */
    size_t stage_calls;
    char order[4 * WRITES_MAX]; /* G: a group with writes, S: a step of sealing */
    size_t order_len;
    char turns[4 * WRITES_MAX]; /* first letters of the tenants whose writes were staged */
    size_t turns_len;
    void (*on_stage)(struct store *s); /* after each of them */
    void *cookie;
};
struct store_batch {
    struct store *store;
    size_t writes;
};

static inline void lock(struct store *s)
{
    assert_int_equal(pthread_mutex_lock(&s->lock), 0);
}

static inline void unlock(struct store *s)
{
    assert_int_equal(pthread_cond_broadcast(&s->moved), 0);
    assert_int_equal(pthread_mutex_unlock(&s->lock), 0);
}

static inline void note(struct store *s, char c)
{
    if (s->order_len < sizeof(s->order) - 1)
        s->order[s->order_len++] = c;
}

static inline struct store *store_new(void)
{
    struct store *s = XNEW(struct store);

    assert_int_equal(pthread_mutex_init(&s->lock, NULL), 0);
    assert_int_equal(pthread_cond_init(&s->moved, NULL), 0);
    return s;
}

void store_close(struct store *s)
{
    CHECK(s->batches_open == 0 && s->staged == s->committed);
    xfree(s);
}

struct store_batch *store_batch_new(struct store *s)
{
    struct store_batch *b = XNEW(struct store_batch);

    lock(s);
    s->batches_open++;
    unlock(s);
    b->store = s;
    return b;
}

size_t store_batch_bytes(const struct store_batch *b)
{
    return b->writes * 100;
}

static size_t batch_max = GIB;

size_t store_batch_max(const struct store *s)
{
    (void)s;
    return batch_max;
}

/* Here a request of n series. */
size_t store_write_bytes(const struct store_write *w)
{
    return MAX(w->len, 1u) * 100;
}

/* A request of 10,000 series and more has its stacks staged in ten parts. */
unsigned store_ahead_parts(const struct store_write *w)
{
    return w->len < 10000 ? 0 : 10;
}

bool store_stage_ahead(struct store *s, struct store_batch *b, const struct store_write *w,
                       unsigned i, unsigned n)
{
    CHECK(n == 10 && i >= 1 && i <= n);
    (void)b;
    lock(s);
    if (w->tenant.len && s->turns_len < sizeof(s->turns) - 1)
        s->turns[s->turns_len++] = (char)('0' + i % 10);
    unlock(s);
    if (s->on_stage)
        s->on_stage(s);
    return true;
}

int store_stage(struct store *s, struct store_batch *b, const struct store_write *w,
                struct store_result *ret, struct err *e)
{
    int code = 0;

    lock(s);
    s->stage_calls++;
    if (w->tenant.len && s->turns_len < sizeof(s->turns) - 1)
        s->turns[s->turns_len++] = w->tenant.ptr[0];
    if (s->fail_stage_every && s->stage_calls % s->fail_stage_every == 0) {
        code = err_set(e, ERR_LIMIT, "no room");
    } else {
        s->staged++;
        b->writes++;
        *ret = (struct store_result){ .stored = 1 };
    }
    unlock(s);
    if (s->on_stage)
        s->on_stage(s);
    return code;
}

int store_commit(struct store *s, struct store_batch *b, struct err *e)
{
    int code = 0;

    lock(s);
    CHECK(!s->committing);
    s->committing = true;
    while (s->hold)
        (void)pthread_cond_wait(&s->moved, &s->lock);
    s->committing = false;
    if (s->fail_commit) {
        s->read_only = true;
        code = err_set(e, ERR_IO, "the disk is gone");
    }
    s->committed += b->writes;
    s->batches++;
    s->batches_open--;
    if (b->writes)
        note(s, 'G');
    unlock(s);
    xfree(b);
    return code;
}

bool store_read_only(const struct store *s)
{
    struct store *m = (struct store *)(uintptr_t)s;
    bool r;

    lock(m);
    r = s->read_only;
    unlock(m);
    return r;
}

int store_seal(struct store *s, size_t rows_max, bool *ret_more, struct err *e)
{
    int code = 0;

    (void)rows_max;
    lock(s);
    CHECK(s->seals_due > 0);
    if (s->far) { /* as common/cold/cache.c does */
        struct cold_read *r = cold_read();

        CHECK(r && r->enter && !r->entered);
        r->entered = r->enter(r->cookie);
        r->refused = !r->entered;
        CHECK(!r->entered || r->deadline_ms > clock_mono_ms(clock_real()));
        code = err_set(e, r->entered ? ERR_TIMEOUT : ERR_BUSY, "remote");
        (*(r->entered ? &s->far_entered : &s->far_refused))++;
    } else if (s->seal_fails > 0) {
        s->seal_fails--;
        code = err_set(e, ERR_IO, "cannot seal");
    } else {
        s->seals_due--;
        s->seals_done++;
        note(s, 'S');
    }
    *ret_more = s->seals_due > 0;
    unlock(s);
    return code;
}

int store_seal_fresh(struct store *s, size_t rows_max, bool *ret_more, struct err *e)
{
    (void)rows_max, (void)e;
    CHECK(!cold_read()->entered);
    lock(s);
    s->fresh++;
    unlock(s);
    *ret_more = false;
    return 0;
}

bool store_settled(const struct store *s)
{
    struct store *m = (struct store *)(uintptr_t)s;
    bool r;

    lock(m);
    r = !s->unsettled;
    unlock(m);
    return r;
}

void store_settle(struct store *s, uint64_t wait_ms)
{
    lock(s);
    if (wait_ms == UINT64_MAX)
        s->unsettled = false;
    unlock(s);
}

uint64_t store_seal_wait_ms(const struct store *s)
{
    struct store *m = (struct store *)(uintptr_t)s;
    size_t due;

    lock(m);
    due = s->seals_due;
    unlock(m);
    return due ? 0 : 60000;
}

int store_read_only_code(const struct store *s)
{
    return store_read_only(s) ? ERR_NO_SPACE : 0;
}

int store_reopen(struct store *s, int (*open)(void *cookie, struct kv **ret, struct err *e),
                 void *cookie, struct err *e)
{
    struct kv *kv = NULL;

    (void)s;
    return open(cookie, &kv, e);
}

void store_tenants_max(struct store *s, uint32_t max)
{
    (void)s, (void)max;
}

void store_trim(struct store *s)
{
    (void)s;
}

void store_stats(struct store *s, struct store_stats *ret)
{
    lock(s);
    *ret = (struct store_stats){ .applied = s->seals_done, .raw_rows = s->committed };
    unlock(s);
}

void store_clock(const struct store *s, struct store_clock *ret)
{
    (void)s;
    *ret = (struct store_clock){ 0 };
}

/* ---- a shard on a loop ---------------------------------------------------------------------- */

struct bed {
    struct store *store;
    struct clock_fake fake;
    struct loop *loop;
    struct metrics *metrics;
    struct shard *shard;
    size_t done, want, failed, timed_out;
    bool drained;
};
struct test_write {
    struct bed *bed;
    struct shard_write w;
};

static inline void bed_open(struct bed *b, bool simulated, size_t group_bytes_max, uint64_t wait_ms)
{
    struct shard_opts o = {
        .writes_max = WRITES_MAX,
        .group_bytes_max = group_bytes_max,
        .group_wait_ms = wait_ms,
        .seal_rows = 10,
        .simulated = simulated,
    };

    *b = (struct bed){ .store = store_new() };
    clock_fake_init(&b->fake, 1800000000000);
    b->loop = simulated ? loop_sim_new(&b->fake) : loop_new(clock_real());
    b->metrics = metrics_new();
    o.store = b->store;
    o.loop = b->loop;
    o.clock = loop_clock(b->loop);
    o.metrics = b->metrics;
    b->shard = shard_new(&o);
}

static inline void on_drained(void *cookie)
{
    struct bed *b = cookie;

    b->drained = true;
    if (loop_uv(b->loop))
        loop_stop(b->loop);
}

static inline void bed_close(struct bed *b, bool simulated)
{
    shard_stop(b->shard);
    if (!simulated)
        shard_end(b->shard);
    loop_post(b->loop, on_drained, b);
    if (simulated)
        while (!b->drained)
            assert_true(loop_sim_step(b->loop));
    else
        loop_run(b->loop);
    assert_true(b->drained);
    if (simulated)
        shard_end(b->shard);
    shard_free(b->shard);
    loop_free(b->loop);
    metrics_free(b->metrics);
}

static inline void on_done(struct shard_write *w)
{
    struct test_write *t = container_of(w, struct test_write, w);
    struct bed *b = t->bed;

    lock(b->store);
    CHECK(w->err.code || b->store->committed > 0); /* never before a commit */
    unlock(b->store);
    b->failed += w->err.code != 0;
    b->timed_out += w->err.code == ERR_TIMEOUT;
    b->done++;
    if (loop_uv(b->loop) && b->done == b->want)
        loop_stop(b->loop);
    xfree(t);
}

static inline void bed_send(struct bed *b, size_t n, uint64_t deadline_ns)
{
    for (size_t i = 0; i < n; i++) {
        struct test_write *t = XNEW(struct test_write);

        t->bed = b;
        t->w.deadline_mono_ns = deadline_ns;
        t->w.done = on_done;
        shard_send(b->shard, &t->w);
    }
    b->want += n;
}

static inline void bed_step(struct bed *b)
{
    while (b->done < b->want)
        assert_true(loop_sim_step(b->loop));
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * pool: one bounded ring of jobs, N threads that take from it.
 *
 * A job is four words and is copied out of the ring before it runs; nothing is allocated per job.
 * `done` reaches the loop as a posted call, so completions of one loop arrive one after the other
 * on its thread. With no threads a job becomes a posted call that does both halves; it is also
 * kept in a list, so that pool_free can run what the loop has not come to yet.
 *
 * Jobs of tenants wait in a fair queue beside the ring; threads take from one and the other in
 * turn. Their cost is the time they run.
 */
#include "common/sys/pool.h"

#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "common/base/hash.h"
#include "common/base/list.h"
#include "common/base/mem.h"
#include "common/sys/fair.h"
#include "common/sys/thread.h"

#define GUESS_US 1000     /* a job of a tenant */
#define DEBT_US  10000000 /* what one long job costs its tenant, at most */

struct job {
    struct loop *loop; /* borrowed */
    pool_fn work, done;
    void *cookie;
};

struct fair_job {
    struct fair_item item;
    struct job job;
};

struct inline_job {
    struct list link;  /* in pool.inlined until it ran */
    struct pool *pool; /* NULL once it ran */
    struct job job;
};

struct pool {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    struct job *ring;      /* owned; max slots */
    size_t max, head, len; /* len: of the ring */
    struct fair *fair;     /* owned: of struct fair_job */
    bool fair_turn;        /* the ring had the last one */
    uint64_t seed;         /* of the numbers of tenants: nobody can choose a name to share one */
    bool stopping;
    struct list inlined; /* of struct inline_job, when threads = 0 */
    struct thread *threads;
    uint32_t threads_len;
};

static uint64_t now_us(void)
{
    struct timespec t;

    CHECK(clock_gettime(CLOCK_MONOTONIC, &t) == 0);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* Holding the lock. False: there is nothing to do. *ret_fair: the job's place in the fair queue. */
static bool take(struct pool *p, struct job *ret, struct fair_job **ret_fair)
{
    struct fair_item *next = p->fair_turn || p->len == 0 ? fair_next(p->fair) : NULL;

    *ret_fair = NULL;
    if (next) {
        *ret_fair = container_of(next, struct fair_job, item);
        *ret = (*ret_fair)->job;
        fair_take(p->fair, next);
        p->fair_turn = false;
        return true;
    }
    if (p->len == 0)
        return false;
    *ret = p->ring[p->head];
    p->head = (p->head + 1) % p->max;
    p->len--;
    p->fair_turn = true;
    return true;
}

static void pool_worker(void *cookie)
{
    struct pool *p = cookie;
    struct fair_job *f;
    struct job j;

    CHECK(pthread_mutex_lock(&p->lock) == 0);
    for (;;) {
        bool found;

        while (!(found = take(p, &j, &f)) && !p->stopping)
            CHECK(pthread_cond_wait(&p->filled, &p->lock) == 0);
        if (!found)
            break; /* what waits for a turn is taken by who has it now */
        CHECK(pthread_mutex_unlock(&p->lock) == 0);
        uint64_t began = f ? now_us() : 0;
        j.work(j.cookie);
        uint64_t took = f ? now_us() - began : 0;
        if (j.done)
            loop_post(j.loop, j.done, j.cookie);
        CHECK(pthread_mutex_lock(&p->lock) == 0);
        if (f)
            fair_done(p->fair, &f->item, took + 1);
        xfree(f);
    }
    CHECK(pthread_mutex_unlock(&p->lock) == 0);
}

struct pool *pool_new(const char *name, uint32_t threads, size_t queue_max)
{
    struct pool *p = XNEW(struct pool);

    CHECK(queue_max > 0);
    CHECK(pthread_mutex_init(&p->lock, NULL) == 0);
    CHECK(pthread_cond_init(&p->filled, NULL) == 0);
    list_init(&p->inlined);
    p->fair = fair_new(&(struct fair_opts){ .debt_max = DEBT_US });
    CHECK(getentropy(&p->seed, sizeof(p->seed)) == 0);
    p->ring = XNEW_ARRAY(struct job, queue_max);
    p->max = queue_max;
    p->threads = XNEW_ARRAY(struct thread, MAX(threads, 1u));
    p->threads_len = threads;
    for (uint32_t i = 0; i < threads; i++) {
        char full[16];

        (void)snprintf(full, sizeof(full), "%.10s-%" PRIu32, name, i % 1000);
        thread_start(&p->threads[i], full, pool_worker, p);
    }
    return p;
}

void pool_limit_tenant(struct pool *p, size_t running_max)
{
    struct fair_opts o = { .running_max = running_max, .debt_max = DEBT_US };

    CHECK(pthread_mutex_lock(&p->lock) == 0);
    fair_free(p->fair);
    p->fair = fair_new(&o);
    CHECK(pthread_mutex_unlock(&p->lock) == 0);
}

/* Runs the job once, whoever comes first: the loop or pool_free. */
static void inline_run(struct inline_job *i)
{
    struct pool *p = i->pool;

    CHECK(pthread_mutex_lock(&p->lock) == 0);
    list_del(&i->link);
    p->len--;
    CHECK(pthread_mutex_unlock(&p->lock) == 0);
    i->pool = NULL;
    i->job.work(i->job.cookie);
    if (i->job.done)
        i->job.done(i->job.cookie);
}

static void inline_posted(void *cookie)
{
    struct inline_job *i = cookie;

    if (i->pool)
        inline_run(i);
    xfree(i);
}

void pool_free(struct pool *p)
{
    if (!p)
        return;
    CHECK(pthread_mutex_lock(&p->lock) == 0);
    p->stopping = true;
    CHECK(pthread_cond_broadcast(&p->filled) == 0);
    CHECK(pthread_mutex_unlock(&p->lock) == 0);
    for (uint32_t i = 0; i < p->threads_len; i++)
        thread_join(&p->threads[i]);
    while (!list_empty(&p->inlined))
        inline_run(container_of(p->inlined.next, struct inline_job, link));
    CHECK(p->len == 0);
    fair_free(p->fair);
    CHECK(pthread_cond_destroy(&p->filled) == 0);
    CHECK(pthread_mutex_destroy(&p->lock) == 0);
    xfree(p->threads);
    xfree(p->ring);
    xfree(p);
}

bool pool_submit(struct pool *p, struct loop *loop, pool_fn work, pool_fn done, void *cookie)
{
    struct inline_job *i = NULL;
    bool taken;

    CHECK(loop || (!done && p->threads_len));
    if (p->threads_len == 0)
        i = XNEW(struct inline_job);
    CHECK(pthread_mutex_lock(&p->lock) == 0);
    taken = p->len + fair_waiting(p->fair) < p->max && !p->stopping;
    if (taken) {
        struct job j = { loop, work, done, cookie };

        if (i) {
            i->pool = p;
            i->job = j;
            list_add_tail(&p->inlined, &i->link);
        } else {
            p->ring[(p->head + p->len) % p->max] = j;
        }
        p->len++;
    }
    CHECK(pthread_mutex_unlock(&p->lock) == 0);
    /* Not under the lock, on which the woken thread would run at once. */
    if (taken && !i)
        CHECK(pthread_cond_signal(&p->filled) == 0);
    if (i && taken)
        loop_post(loop, inline_posted, i);
    else
        xfree(i);
    return taken;
}

uint64_t pool_tenant(const struct pool *p, struct str name)
{
    return hash64(name.ptr, name.len, p->seed);
}

bool pool_submit_for(struct pool *p, uint64_t tenant, struct loop *loop, pool_fn work, pool_fn done,
                     void *cookie)
{
    struct fair_job *f;
    bool taken;

    if (p->threads_len == 0)
        return pool_submit(p, loop, work, done, cookie);
    CHECK(loop || !done);
    f = XNEW(struct fair_job);
    f->job = (struct job){ loop, work, done, cookie };
    CHECK(pthread_mutex_lock(&p->lock) == 0);
    taken = p->len + fair_waiting(p->fair) < p->max && !p->stopping &&
            fair_push(p->fair, tenant, GUESS_US, &f->item);
    CHECK(pthread_mutex_unlock(&p->lock) == 0);
    if (taken)
        CHECK(pthread_cond_signal(&p->filled) == 0);
    else
        xfree(f);
    return taken;
}

size_t pool_queued(const struct pool *p)
{
    /* Locking does not change what the caller sees. */
    struct pool *m = (struct pool *)(uintptr_t)p;
    size_t n;

    CHECK(pthread_mutex_lock(&m->lock) == 0);
    n = m->len + fair_waiting(m->fair);
    CHECK(pthread_mutex_unlock(&m->lock) == 0);
    return n;
}

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
 *
 * With slices a job keeps its thread, stack and all, while it waits for its next turn, so nothing
 * in it needs to know how to be resumed:
 *
 *      idle ──take──> RUNNING ──pool_slice: another's turn──> PAUSED (in the fair queue, first)
 *       ^                │  ^                                   │
 *       └──ended─────────┘  └──another ends or pauses <─────────┘
 *
 * An idle thread is woken by its own condition variable, the thread that became idle last first:
 * its data is still in the caches, and the others stay asleep. No thread is woken while all places
 * are taken: a thread that ends a job looks for the next one itself.
 *
 * Invariants: running <= slots, of which those over `cores` are never given to a paused job; a
 * thread that ends or pauses a job gives its place away before it sleeps; paused <= slots, so that
 * `slots` threads of the 2 x slots are left for others.
 */
#include "common/sys/pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "common/base/hash.h"
#include "common/base/list.h"
#include "common/base/mem.h"
#include "common/base/pause.h"
#include "common/sys/fair.h"
#include "common/sys/thread.h"

#define GUESS_US 1000     /* a job of a tenant */
#define DEBT_US  10000000 /* what one long job costs its tenant, at most */

struct job {
    struct loop *loop; /* borrowed */
    pool_fn work, done;
    void *cookie;
    uint64_t came; /* pool.turns then */
    bool single;   /* its tenant had nothing else here */
};

struct fair_job {
    struct fair_item item;
    struct job job;
    struct worker *worker; /* on whose stack it is paused; NULL: has not begun */
};

struct seat {         /* of a thread */
    struct list link; /* in pool.idle while it waits to be called; in pool.left after its end */
    pthread_cond_t called;
    bool waits;
};

struct worker { /* a thread of the pool while it runs a tenant's job */
    struct pool *pool;
    struct fair_job *job;
    uint64_t began_us;  /* this turn */
    uint64_t looked_us; /* for others */
    bool resumed;
    pthread_cond_t resume;
};
static _Thread_local struct worker *self;

struct inline_job {
    struct list link;  /* in pool.inlined until it ran */
    struct pool *pool; /* NULL once it ran */
    struct job job;
};

struct pool {
    pthread_mutex_t lock;
    struct list idle;      /* of struct seat: the thread that became idle last is in front */
    struct list left;      /* of struct seat */
    uint32_t called;       /* taken out of `idle` and not there yet */
    struct job *ring;      /* owned; max slots */
    size_t max, head, len; /* len: of the ring */
    struct fair *fair;     /* owned: of struct fair_job */
    bool fair_turn;        /* the ring had the last one */
    uint64_t seed;         /* of the numbers of tenants: no tenant can choose a name to share one */
    bool stopping;
    struct list inlined; /* of struct inline_job, when threads = 0 */
    char name[11];
    struct thread *threads;
    uint32_t threads_len;
    uint32_t slots, cores;
    uint32_t running, paused; /* jobs */
    uint32_t untenanted;      /* of the running ones */
    bool sliced;
    uint64_t slice_us;
    atomic_bool wanted; /* another job may want a place; read without the lock */
    uint64_t turns;
    struct pool_stats stats;
};

static uint64_t now_us(void)
{
    struct timespec t;

    CHECK(clock_gettime(CLOCK_MONOTONIC, &t) == 0);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* ---- whose turn ------------------------------------------------------------------------------ */

/* Holding the lock: an idle thread for a place that is free, or NULL; signal_seat() wakes it. */
static struct seat *call(struct pool *p)
{
    struct seat *s;

    if (list_empty(&p->idle) || p->running + p->called >= p->slots)
        return NULL;
    s = container_of(p->idle.next, struct seat, link);
    list_del(&s->link);
    s->waits = false;
    p->called++;
    return s;
}

static void signal_seat(struct seat *s)
{
    if (s)
        CHECK(pthread_cond_signal(&s->called) == 0);
}

/* Holding the lock. */
static void wait_idle(struct pool *p, struct seat *s)
{
    s->waits = true;
    list_add(&p->idle, &s->link);
    while (s->waits)
        CHECK(pthread_cond_wait(&s->called, &p->lock) == 0);
    p->called--;
}

static void note_wanted(struct pool *p)
{
    bool wanted = p->sliced && (p->running > p->cores || p->len > 0 || fair_waiting(p->fair) > 0);

    atomic_store_explicit(&p->wanted, wanted, memory_order_relaxed);
}

static void count_turn(struct pool *p, const struct job *first)
{
    if (first) {
        uint64_t passed = first->single ? p->turns - first->came : 0;
        p->stats.jobs++;
        p->stats.single += first->single;
        p->stats.passed += passed;
        p->stats.passed_max = MAX(p->stats.passed_max, passed);
    }
    p->turns++;
    p->running++;
}

static void resume(struct pool *p, struct fair_job *f)
{
    struct worker *w = f->worker;

    f->worker = NULL;
    p->paused--;
    count_turn(p, NULL);
    w->resumed = true;
    CHECK(pthread_cond_signal(&w->resume) == 0);
}

/* The next job of a tenant: *ret_fair, or a paused job, which continues on its own thread. False:
 * no job may run. */
static bool take_fair(struct pool *p, struct job *ret, struct fair_job **ret_fair)
{
    struct fair_item *next;

    while ((next = fair_next(p->fair))) {
        struct fair_job *f = container_of(next, struct fair_job, item);
        if (f->worker && p->running >= p->cores)
            return false;
        fair_take(p->fair, next);
        p->fair_turn = false;
        if (!f->worker) {
            *ret_fair = f;
            *ret = f->job;
            count_turn(p, ret);
            return true;
        }
        resume(p, f);
        if (p->running >= p->slots)
            return false;
    }
    return false;
}

static bool take_nobodys(struct pool *p, struct job *ret)
{
    if (p->len == 0)
        return false;
    *ret = p->ring[p->head];
    p->head = (p->head + 1) % p->max;
    p->len--;
    if (p->len == 0)
        p->head = 0; /* else the ring would in time touch all of its slots */
    p->fair_turn = true;
    p->untenanted++;
    count_turn(p, ret);
    return true;
}

/* Holding the lock. False: there is nothing to do. *ret_fair: the job's place in the fair queue. */
static bool take(struct pool *p, struct job *ret, struct fair_job **ret_fair)
{
    bool found = false;

    *ret_fair = NULL;
    if (p->running < p->slots)
        found = ((p->fair_turn || p->len == 0) && take_fair(p, ret, ret_fair)) ||
                (p->running < p->slots && take_nobodys(p, ret));
    note_wanted(p);
    return found;
}

/* Holding the lock: true if another job should have this job's place now. */
static bool must_pause(const struct pool *p, const struct worker *w, uint64_t ran_us)
{
    const struct fair_item *i = &w->job->item;

    if (p->stopping || p->paused >= p->slots)
        return false;
    if (p->running > p->cores)
        return p->untenanted > 0 || fair_ahead(p->fair, i, ran_us, true);
    return p->len > 0 || fair_ahead(p->fair, i, ran_us, false);
}

static void pause_here(struct pool *p, struct worker *w, uint64_t ran_us)
{
    fair_pause(p->fair, &w->job->item, ran_us + 1, GUESS_US);
    w->job->worker = w;
    w->resumed = false;
    p->running--;
    p->paused++;
    p->stats.pauses++;
    note_wanted(p);
    signal_seat(call(p));
    while (!w->resumed)
        CHECK(pthread_cond_wait(&w->resume, &p->lock) == 0);
    w->began_us = now_us();
}

void pool_slice(void)
{
    struct worker *w = self;
    uint64_t now;

    if (!w || !atomic_load_explicit(&w->pool->wanted, memory_order_relaxed) || thread_locks > 0)
        return;
    struct pool *p = w->pool;
    now = now_us();
    if (now - w->began_us < p->slice_us || now - w->looked_us < p->slice_us / 4)
        return;
    w->looked_us = now;
    CHECK(pthread_mutex_lock(&p->lock) == 0);
    if (must_pause(p, w, now - w->began_us))
        pause_here(p, w, now - w->began_us);
    CHECK(pthread_mutex_unlock(&p->lock) == 0);
}

/* ---- threads --------------------------------------------------------------------------------- */

static void run_job(struct pool *p, const struct job *j, struct fair_job *f)
{
    struct worker w = { .pool = p, .job = f, .began_us = f ? now_us() : 0 };

    CHECK(pthread_cond_init(&w.resume, NULL) == 0);
    self = f && p->sliced ? &w : NULL;
    j->work(j->cookie);
    self = NULL;
    uint64_t took = f ? now_us() - w.began_us : 0;
    if (j->done)
        loop_post(j->loop, j->done, j->cookie);
    CHECK(pthread_mutex_lock(&p->lock) == 0);
    if (f)
        fair_done(p->fair, &f->item, took + 1);
    else
        p->untenanted--;
    p->running--;
    CHECK(pthread_cond_destroy(&w.resume) == 0);
    xfree(f);
}

static void pool_worker(void *cookie)
{
    struct pool *p = cookie;
    struct seat *s = XNEW(struct seat);
    struct fair_job *f;
    struct job j;

    CHECK(pthread_cond_init(&s->called, NULL) == 0);
    CHECK(pthread_mutex_lock(&p->lock) == 0);
    for (;;) {
        bool found;

        while (!(found = take(p, &j, &f)) && !p->stopping)
            wait_idle(p, s);
        if (!found)
            break; /* the job that waits is taken by the thread that runs now */
        CHECK(pthread_mutex_unlock(&p->lock) == 0);
        run_job(p, &j, f);
    }
    list_add(&p->left, &s->link);
    CHECK(pthread_mutex_unlock(&p->lock) == 0);
}

static void start_threads(struct pool *p, uint32_t n)
{
    struct thread *all = XNEW_ARRAY(struct thread, p->threads_len + n + 1);

    if (p->threads_len)
        memcpy(all, p->threads, p->threads_len * sizeof(*all));
    xfree(p->threads);
    p->threads = all;
    for (uint32_t i = 0; i < n; i++) {
        char full[16];

        (void)snprintf(full, sizeof(full), "%s-%" PRIu32, p->name, p->threads_len % 1000);
        thread_start(&p->threads[p->threads_len++], full, pool_worker, p);
    }
}

uint32_t pool_cores(const struct pool *p)
{
    return p->cores;
}

struct pool *pool_new(const char *name, uint32_t threads, size_t queue_max)
{
    struct pool *p = XNEW(struct pool);

    CHECK(queue_max > 0);
    CHECK(pthread_mutex_init(&p->lock, NULL) == 0);
    list_init(&p->idle);
    list_init(&p->left);
    list_init(&p->inlined);
    p->fair = fair_new(&(struct fair_opts){ .debt_max = DEBT_US });
    if (threads) /* else simulated: the same in each run */
        CHECK(getentropy(&p->seed, sizeof(p->seed)) == 0);
    p->ring = XNEW_ARRAY(struct job, queue_max);
    p->max = queue_max;
    (void)snprintf(p->name, sizeof(p->name), "%.10s", name);
    p->slots = p->cores = threads;
    start_threads(p, threads);
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

void pool_slices(struct pool *p, uint32_t cores, uint64_t slice_us)
{
    if (p->slots == 0)
        return;
    CHECK(cores > 0 && cores <= p->slots);
    pause_set(pool_slice); /* loops of common/base, too */
    CHECK(pthread_mutex_lock(&p->lock) == 0);
    CHECK(!p->sliced);
    p->sliced = true;
    p->cores = cores;
    p->slice_us = slice_us;
    CHECK(pthread_mutex_unlock(&p->lock) == 0);
    start_threads(p, p->slots);
}

/* Runs the job once: from the loop or from pool_free, whichever is first. */
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
    while (!list_empty(&p->idle)) {
        struct seat *idle = container_of(p->idle.next, struct seat, link);
        list_del(&idle->link);
        idle->waits = false;
        p->called++;
        signal_seat(idle);
    }
    CHECK(pthread_mutex_unlock(&p->lock) == 0);
    for (uint32_t i = 0; i < p->threads_len; i++)
        thread_join(&p->threads[i]);
    list_for (it, &p->left) {
        struct seat *gone = container_of(it, struct seat, link);
        CHECK(pthread_cond_destroy(&gone->called) == 0);
        xfree(gone);
    }
    while (!list_empty(&p->inlined))
        inline_run(container_of(p->inlined.next, struct inline_job, link));
    CHECK(p->len == 0);
    fair_free(p->fair);
    CHECK(pthread_mutex_destroy(&p->lock) == 0);
    xfree(p->threads);
    xfree(p->ring);
    xfree(p);
}

bool pool_submit(struct pool *p, struct loop *loop, pool_fn work, pool_fn done, void *cookie)
{
    struct inline_job *i = NULL;
    struct seat *idle = NULL;
    bool taken;

    CHECK(loop || (!done && p->threads_len));
    if (p->threads_len == 0)
        i = XNEW(struct inline_job);
    CHECK(pthread_mutex_lock(&p->lock) == 0);
    taken = p->len + fair_waiting(p->fair) < p->max && !p->stopping;
    if (taken) {
        struct job j = { loop, work, done, cookie, p->turns, false };

        if (i) {
            i->pool = p;
            i->job = j;
            list_add_tail(&p->inlined, &i->link);
        } else {
            p->ring[(p->head + p->len) % p->max] = j;
        }
        p->len++;
        note_wanted(p);
        idle = call(p);
    }
    CHECK(pthread_mutex_unlock(&p->lock) == 0);
    /* Not under the lock, on which the woken thread would run at once. */
    signal_seat(idle);
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

uint64_t pool_tenant_writes(const struct pool *p, struct str name)
{
    return hash_u64(pool_tenant(p, name) + 1);
}

bool pool_submit_for(struct pool *p, uint64_t tenant, struct loop *loop, pool_fn work, pool_fn done,
                     void *cookie)
{
    struct seat *idle = NULL;
    struct fair_job *f;
    bool taken;

    if (p->threads_len == 0)
        return pool_submit(p, loop, work, done, cookie);
    CHECK(loop || !done);
    f = XNEW(struct fair_job);
    CHECK(pthread_mutex_lock(&p->lock) == 0);
    f->job = (struct job){ loop, work, done, cookie, p->turns, false };
    taken = p->len + fair_waiting(p->fair) < p->max && !p->stopping &&
            fair_push(p->fair, tenant, GUESS_US, &f->item);
    if (taken)
        f->job.single = fair_alone(&f->item);
    note_wanted(p);
    if (taken)
        idle = call(p);
    CHECK(pthread_mutex_unlock(&p->lock) == 0);
    signal_seat(idle);
    if (!taken)
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

struct pool_stats pool_stats_of(const struct pool *p)
{
    struct pool *m = (struct pool *)(uintptr_t)p;
    struct pool_stats s;

    CHECK(pthread_mutex_lock(&m->lock) == 0);
    s = m->stats;
    CHECK(pthread_mutex_unlock(&m->lock) == 0);
    return s;
}

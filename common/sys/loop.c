/* SPDX-License-Identifier: Apache-2.0
 *
 * loop: posted calls and timers, over libuv or over a fake clock.
 *
 *   any thread ──loop_post──> posts (mutex, FIFO) ──eventfd──> drain ──> fn(cookie)
 *   loop thread ──timer──> uv_timer  | simulated: heap by (due, number) ──loop_sim_step──> fn
 *
 * Posted calls and simulated timers are numbered by one counter at the moment they are posted or
 * started, and equal times run in the order of the numbers, so a simulated run is a function of its
 * inputs alone. A call posted while posted calls run waits for the next round: sockets get their
 * turn in between.
 *
 * Other threads wake the loop by an eventfd of our own: uv_async_send marks its handle before and
 * after it writes, and a loop that wakes in between spins until the writer runs again.
 *
 * What the loop's own thread posts while it runs needs no eventfd to wake it: an idle handle keeps
 * the loop from sleeping and drains at the start of the next round. Two system calls less for each
 * message between roles of one process.
 *
 * Nothing posted is lost: loop_run drains once more after loop_stop, and loop_free runs what is
 * still there, so that an owner who hangs memory on a posted call can free it in the call.
 *
 * Posts are bounded by CHECK: senders are bounded themselves (queues, budgets), so a million of
 * them waiting is a bug, not load.
 */
#include "common/sys/loop.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <uv.h>

#include "common/base/mem.h"
#include "common/base/vec.h"

enum { POSTS_MAX = 1 << 20, CLOSE_ROUNDS_MAX = 1000 };
#define LOOP_MAGIC MAGIC('L', 'O', 'O', 'P')
#define NOT_QUEUED SIZE_MAX

struct post {
    loop_fn fn;
    void *cookie;
    uint64_t due_ns; /* when it was posted, on the loop's clock; used by simulation only */
    uint64_t number;
};

struct timer {
    uv_timer_t uv; /* real loops */
    struct loop *loop;
    loop_fn fn;
    void *cookie;
    uint64_t due_ns, number, repeat_ms; /* simulated loops */
    size_t slot;                        /* in loop.heap, or NOT_QUEUED */
};

struct loop {
    uint32_t magic;
    const struct clock *clock; /* borrowed */
    struct clock_fake *fake;   /* borrowed; NULL: a real loop */
    _Atomic uintptr_t owner;   /* address of the owning thread's `thread_mark` */
    _Atomic uintptr_t runner;  /* the same while it is in loop_run, else 0 */
    size_t timers;             /* alive, to CHECK in loop_free */
    uv_loop_t uv;
    int wake_fd;     /* eventfd: another thread has posted */
    uv_poll_t wake;  /* of wake_fd */
    uv_idle_t again; /* active while the loop's own thread has posted something */
    _Atomic bool stop;
    _Atomic uint32_t posting; /* threads between a post and its wake-up; loop_free waits */
    pthread_mutex_t lock;     /* guards posts and number */
    VEC(struct post) posts;
    size_t posts_head; /* simulated loops take one at a time */
    uint64_t number;
    VEC(struct timer *) heap; /* simulated loops: earliest first */
};

static _Thread_local char thread_mark;

static void own(struct loop *l)
{
    atomic_store(&l->owner, (uintptr_t)&thread_mark);
}

bool loop_is_mine(const struct loop *l)
{
    return atomic_load(&l->owner) == (uintptr_t)&thread_mark;
}

const struct clock *loop_clock(const struct loop *l)
{
    return l->clock;
}

void *loop_uv(struct loop *l)
{
    return l->fake ? NULL : &l->uv;
}

/* ---- posted calls ---------------------------------------------------------------------------- */

static uint64_t next_number(struct loop *l)
{
    uint64_t n;

    CHECK(pthread_mutex_lock(&l->lock) == 0);
    n = l->number++;
    CHECK(pthread_mutex_unlock(&l->lock) == 0);
    return n;
}

static void on_again(uv_idle_t *idle);

static void wake_other(struct loop *l)
{
    /* Cannot fail: the counter is far from full, as each wake-up takes all of it. */
    CHECK(eventfd_write(l->wake_fd, 1) == 0);
}

/* Not under the lock, on which the woken thread would run at once. The loop may run the call, and
 * by it come to its end, before we are through here: `posting` keeps it from being freed. */
static void wake(struct loop *l)
{
    if (atomic_load(&l->runner) == (uintptr_t)&thread_mark)
        CHECK(uv_idle_start(&l->again, on_again) == 0);
    else
        wake_other(l);
}

void loop_post(struct loop *l, loop_fn fn, void *cookie)
{
    struct post p = { fn, cookie, 0, 0 };
    bool first;

    CHECK(l->magic == LOOP_MAGIC);
    if (l->fake)
        p.due_ns = clock_mono_ns(l->clock);
    CHECK(pthread_mutex_lock(&l->lock) == 0);
    CHECK(l->posts.len - l->posts_head < POSTS_MAX);
    p.number = l->number++;
    vec_push(&l->posts, p);
    first = l->posts.len == 1; /* later posts need not: the first one wakes the loop */
    atomic_fetch_add(&l->posting, 1);
    CHECK(pthread_mutex_unlock(&l->lock) == 0);
    if (first && !l->fake)
        wake(l);
    atomic_fetch_sub(&l->posting, 1);
}

/* Runs what is posted now; what these calls post stays for the next time. */
static bool drain_posts(struct loop *l)
{
    struct post *posts;
    size_t from, to;

    CHECK(pthread_mutex_lock(&l->lock) == 0);
    posts = l->posts.ptr;
    from = l->posts_head;
    to = l->posts.len;
    l->posts.ptr = NULL;
    l->posts.len = l->posts.cap = l->posts_head = 0;
    CHECK(pthread_mutex_unlock(&l->lock) == 0);
    for (size_t i = from; i < to; i++)
        posts[i].fn(posts[i].cookie);
    xfree(posts);
    return to > from;
}

static void on_wake(uv_poll_t *poll, int status, int events)
{
    struct loop *l = container_of(poll, struct loop, wake);
    eventfd_t n;

    CHECK(status == 0 && (events & UV_READABLE));
    (void)eventfd_read(l->wake_fd, &n); /* before the drain: a later post writes again */
    (void)drain_posts(l);
    if (atomic_load(&l->stop))
        uv_stop(&l->uv);
}

/* The handle is stopped first: a call that posts again starts it again. */
static void on_again(uv_idle_t *idle)
{
    struct loop *l = container_of(idle, struct loop, again);

    CHECK(uv_idle_stop(&l->again) == 0);
    (void)drain_posts(l);
}

/* ---- life ------------------------------------------------------------------------------------ */

static struct loop *loop_new_common(const struct clock *clock)
{
    struct loop *l = XNEW(struct loop);

    l->magic = LOOP_MAGIC;
    l->clock = clock;
    CHECK(pthread_mutex_init(&l->lock, NULL) == 0);
    own(l);
    return l;
}

struct loop *loop_new(const struct clock *clock)
{
    struct loop *l = loop_new_common(clock);

    CHECK(uv_loop_init(&l->uv) == 0);
    l->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    CHECK(l->wake_fd >= 0);
    CHECK(uv_poll_init(&l->uv, &l->wake, l->wake_fd) == 0);
    CHECK(uv_poll_start(&l->wake, UV_READABLE, on_wake) == 0);
    CHECK(uv_idle_init(&l->uv, &l->again) == 0);
    return l;
}

struct loop *loop_sim_new(struct clock_fake *clock)
{
    struct loop *l = loop_new_common(&clock->clock);

    l->fake = clock;
    return l;
}

void loop_free(struct loop *l)
{
    if (!l)
        return;
    CHECK(l->magic == LOOP_MAGIC);
    while (atomic_load(&l->posting))
        (void)sched_yield();
    own(l);
    while (drain_posts(l))
        ;
    CHECK(l->timers == 0);
    if (!l->fake) {
        int rounds = 0;

        uv_close((uv_handle_t *)(void *)&l->wake, NULL);
        uv_close((uv_handle_t *)(void *)&l->again, NULL);
        /* Handles that are closing need a round or two; a handle that was never closed stays. */
        while (uv_loop_close(&l->uv) != 0) {
            CHECK(rounds++ < CLOSE_ROUNDS_MAX);
            (void)uv_run(&l->uv, UV_RUN_NOWAIT);
        }
        CHECK(close(l->wake_fd) == 0);
    }
    CHECK(l->posts.len == 0);
    CHECK(pthread_mutex_destroy(&l->lock) == 0);
    vec_free(&l->posts);
    vec_free(&l->heap);
    l->magic = 0;
    xfree(l);
}

void loop_run(struct loop *l)
{
    CHECK(!l->fake);
    own(l);
    atomic_store(&l->runner, (uintptr_t)&thread_mark);
    while (!atomic_load(&l->stop))
        (void)uv_run(&l->uv, UV_RUN_DEFAULT);
    (void)drain_posts(l);
    atomic_store(&l->runner, 0);
    atomic_store(&l->stop, false);
}

void loop_stop(struct loop *l)
{
    CHECK(!l->fake);
    /* With the lock: the loop cannot be freed between the two lines by someone who saw the flag. */
    CHECK(pthread_mutex_lock(&l->lock) == 0);
    atomic_store(&l->stop, true);
    wake_other(l);
    CHECK(pthread_mutex_unlock(&l->lock) == 0);
}

/* ---- simulated timers: a binary heap --------------------------------------------------------- */

static bool timer_before(const struct timer *a, const struct timer *b)
{
    return a->due_ns != b->due_ns ? a->due_ns < b->due_ns : a->number < b->number;
}

static void heap_set(struct loop *l, size_t i, struct timer *t)
{
    l->heap.ptr[i] = t;
    t->slot = i;
}

/* Moves the timer in slot i up or down to where it belongs. */
static void heap_fix(struct loop *l, size_t i)
{
    struct timer *t = l->heap.ptr[i];

    while (i > 0 && timer_before(t, l->heap.ptr[(i - 1) / 2])) {
        heap_set(l, i, l->heap.ptr[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    for (;;) {
        size_t child = 2 * i + 1;

        if (child + 1 < l->heap.len && timer_before(l->heap.ptr[child + 1], l->heap.ptr[child]))
            child++;
        if (child >= l->heap.len || !timer_before(l->heap.ptr[child], t))
            break;
        heap_set(l, i, l->heap.ptr[child]);
        i = child;
    }
    heap_set(l, i, t);
}

static void heap_add(struct loop *l, struct timer *t)
{
    vec_push(&l->heap, t);
    t->slot = l->heap.len - 1;
    heap_fix(l, t->slot);
}

static void heap_del(struct loop *l, struct timer *t)
{
    size_t i = t->slot;

    if (i == NOT_QUEUED)
        return;
    CHECK(i < l->heap.len && l->heap.ptr[i] == t);
    t->slot = NOT_QUEUED;
    l->heap.len--;
    if (i < l->heap.len) {
        heap_set(l, i, l->heap.ptr[l->heap.len]);
        heap_fix(l, i);
    }
}

static void sim_schedule(struct timer *t, uint64_t delay_ms)
{
    t->due_ns = clock_mono_ns(t->loop->clock) + delay_ms * 1000000;
    t->number = next_number(t->loop);
    heap_add(t->loop, t);
}

/* ---- timers ---------------------------------------------------------------------------------- */

struct timer *loop_timer_new(struct loop *l, loop_fn fn, void *cookie)
{
    struct timer *t = XNEW(struct timer);

    CHECK(l->magic == LOOP_MAGIC);
    t->loop = l;
    t->fn = fn;
    t->cookie = cookie;
    t->slot = NOT_QUEUED;
    if (!l->fake)
        CHECK(uv_timer_init(&l->uv, &t->uv) == 0);
    l->timers++;
    return t;
}

static void on_uv_timer(uv_timer_t *uv)
{
    struct timer *t = container_of(uv, struct timer, uv);

    t->fn(t->cookie);
}

void loop_timer_start(struct timer *t, uint64_t delay_ms, uint64_t repeat_ms)
{
    if (t->loop->fake) {
        heap_del(t->loop, t);
        t->repeat_ms = repeat_ms;
        sim_schedule(t, delay_ms);
        return;
    }
    /* libuv counts from the start of this round, which may be long ago: never fire early. */
    uv_update_time(&t->loop->uv);
    CHECK(uv_timer_start(&t->uv, on_uv_timer, delay_ms, repeat_ms) == 0);
}

void loop_timer_stop(struct timer *t)
{
    if (t->loop->fake)
        heap_del(t->loop, t);
    else
        CHECK(uv_timer_stop(&t->uv) == 0);
}

static void on_timer_closed(uv_handle_t *h)
{
    xfree(container_of(h, struct timer, uv));
}

void loop_timer_free(struct timer *t)
{
    if (!t)
        return;
    CHECK(t->loop->timers > 0);
    t->loop->timers--;
    if (t->loop->fake) {
        heap_del(t->loop, t);
        xfree(t);
    } else {
        uv_close((uv_handle_t *)(void *)&t->uv, on_timer_closed);
    }
}

/* ---- simulation ------------------------------------------------------------------------------ */

static void fake_move_to(struct clock_fake *f, uint64_t due_ns)
{
    uint64_t now = atomic_load(&f->mono_ns);

    /* A test may have advanced the clock past due_ns: then the timer is late, as in real life. */
    if (due_ns <= now)
        return;
    atomic_store(&f->mono_ns, due_ns);
    atomic_fetch_add(&f->wall_ms, (int64_t)(due_ns / 1000000 - now / 1000000));
}

/* The earliest posted call, or NULL. */
static const struct post *sim_post(const struct loop *l)
{
    return l->posts_head < l->posts.len ? &l->posts.ptr[l->posts_head] : NULL;
}

bool loop_sim_next(struct loop *l, uint64_t *ret_mono_ns)
{
    const struct timer *t = l->heap.len ? l->heap.ptr[0] : NULL;
    const struct post *p;
    bool any;

    CHECK(l->fake);
    CHECK(pthread_mutex_lock(&l->lock) == 0);
    p = sim_post(l);
    any = p || t;
    if (any)
        *ret_mono_ns = !t || (p && p->due_ns < t->due_ns) ? p->due_ns : t->due_ns;
    CHECK(pthread_mutex_unlock(&l->lock) == 0);
    return any;
}

static bool sim_take_post(struct loop *l, const struct timer *t, struct post *ret)
{
    const struct post *p;
    bool mine;

    CHECK(pthread_mutex_lock(&l->lock) == 0);
    p = sim_post(l);
    mine = p && (!t || p->due_ns < t->due_ns || (p->due_ns == t->due_ns && p->number < t->number));
    if (mine) {
        *ret = *p;
        l->posts_head++;
        if (l->posts_head == l->posts.len)
            l->posts.len = l->posts_head = 0;
    }
    CHECK(pthread_mutex_unlock(&l->lock) == 0);
    return mine;
}

bool loop_sim_step(struct loop *l)
{
    struct timer *t = l->heap.len ? l->heap.ptr[0] : NULL;
    struct post p;

    CHECK(l->fake);
    if (sim_take_post(l, t, &p)) {
        fake_move_to(l->fake, p.due_ns);
        p.fn(p.cookie);
        return true;
    }
    if (!t)
        return false;
    heap_del(l, t);
    fake_move_to(l->fake, t->due_ns);
    if (t->repeat_ms)
        sim_schedule(t, t->repeat_ms);
    t->fn(t->cookie); /* may free t */
    return true;
}

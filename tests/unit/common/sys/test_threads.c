/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "common/base/base.h"
#include "common/base/map.h"
#include "common/sys/budget.h"
#include "common/sys/chan.h"
#include "common/sys/clock.h"
#include "common/sys/pool.h"
#include "common/sys/signal.h"
#include "common/sys/thread.h"

/* ---- budget ---------------------------------------------------------------------------------- */

static void test_budget_refuses_and_remembers_the_peak(void **state)
{
    struct budget b;

    (void)state;
    budget_init(&b, 100);
    assert_true(budget_reserve(&b, 60));
    assert_false(budget_reserve(&b, 41));
    assert_false(budget_reserve(&b, SIZE_MAX));
    assert_true(budget_reserve(&b, 40));
    assert_false(budget_reserve(&b, 1));
    assert_true(budget_reserve(&b, 0));
    budget_release(&b, 100);
    assert_int_equal(atomic_load(&b.used), 0);
    assert_int_equal(atomic_load(&b.peak), 100);
}

static void churn_budget(void *cookie)
{
    struct budget *b = cookie;

    for (int i = 0; i < 20000; i++)
        if (budget_reserve(b, 30)) {
            CHECK(atomic_load(&b->used) <= 100);
            budget_release(b, 30);
        }
}

static void test_budget_holds_between_threads(void **state)
{
    struct thread t[4] = { 0 };
    struct budget b;

    (void)state;
    budget_init(&b, 100);
    for (size_t i = 0; i < ARRAY_LEN(t); i++)
        thread_start(&t[i], "churn", churn_budget, &b);
    for (size_t i = 0; i < ARRAY_LEN(t); i++)
        thread_join(&t[i]);
    assert_int_equal(atomic_load(&b.used), 0);
    assert_in_range(atomic_load(&b.peak), 30, 90);
}

/* ---- threads --------------------------------------------------------------------------------- */

struct seen {
    char name[16];
    sigset_t blocked;
};

static void look(void *cookie)
{
    struct seen *s = cookie;

    (void)prctl(PR_GET_NAME, s->name, 0, 0, 0);
    (void)pthread_sigmask(SIG_SETMASK, NULL, &s->blocked);
}

static void test_thread_has_its_name_and_only_sigprof(void **state)
{
    struct thread t = { 0 };
    struct seen s = { 0 };
    sigset_t mine;

    (void)state;
    thread_start(&t, "fifteen-letters", look, &s);
    thread_join(&t);
    thread_join(&t); /* twice is fine */
    assert_string_equal(s.name, "fifteen-letters");
    assert_true(sigismember(&s.blocked, SIGTERM));
    assert_true(sigismember(&s.blocked, SIGHUP));
    assert_false(sigismember(&s.blocked, SIGPROF));
    (void)pthread_sigmask(SIG_SETMASK, NULL, &mine);
    assert_false(sigismember(&mine, SIGTERM)); /* our own mask is unchanged */
}

/* ---- channels -------------------------------------------------------------------------------- */

static void count_up(void *cookie)
{
    (*(int *)cookie)++;
}

static void test_chan_is_bounded_and_wakes_once(void **state)
{
    int wakes = 0, a, b, c;
    struct chan *ch = chan_new(2, count_up, &wakes);
    void *got[4];

    (void)state;
    assert_int_equal(chan_take(ch, got, 4), 0);
    assert_true(chan_send(ch, &a));
    assert_true(chan_send(ch, &b));
    assert_false(chan_send(ch, &c)); /* full */
    assert_int_equal(wakes, 1);
    assert_int_equal(chan_len(ch), 2);
    assert_int_equal(chan_take(ch, got, 1), 1);
    assert_ptr_equal(got[0], &a);
    assert_true(chan_send(ch, &c)); /* wraps round */
    assert_int_equal(wakes, 1);     /* it was not empty */
    assert_int_equal(chan_wait(ch, got, 4, UINT64_MAX), 2);
    assert_ptr_equal(got[0], &b);
    assert_ptr_equal(got[1], &c);
    assert_int_equal(chan_wait(ch, got, 4, 1), 0); /* timeout */
    assert_true(chan_send(ch, &a));
    assert_int_equal(wakes, 2);
    chan_close(ch);
    assert_false(chan_send(ch, &b));
    assert_int_equal(chan_wait(ch, got, 4, UINT64_MAX), 1); /* what was sent before still comes */
    assert_int_equal(chan_wait(ch, got, 4, UINT64_MAX), 0); /* closed and empty */
    chan_free(ch);
    chan_free(NULL);
}

struct lazy {
    struct chan *chan;
    char order[4];
    size_t n;
};

static void lazy_receive(void *cookie)
{
    struct lazy *l = cookie;
    void *got[4];

    l->n = chan_wait_for(l->chan, 3, got, 4, UINT64_MAX);
    for (size_t i = 0; i < l->n; i++)
        l->order[i] = *(char *)got[i];
}

/* The wait ends after 3 lazy messages, one other message, the end of the chan, or the time. */
static void test_chan_lets_lazy_messages_wait(void **state)
{
    char a = 'a', b = 'b', c = 'c';
    void *got[4];

    (void)state;
    for (int way = 0; way < 3; way++) {
        struct lazy l = { .chan = chan_new(4, NULL, NULL) };
        struct thread t = { 0 };

        thread_start(&t, "receiver", lazy_receive, &l);
        assert_true(chan_send_lazily(l.chan, &a));
        assert_true(chan_send_lazily(l.chan, &b));
        if (way == 0)
            assert_true(chan_send_lazily(l.chan, &c));
        else if (way == 1)
            assert_true(chan_send(l.chan, &c));
        else
            chan_close(l.chan);
        thread_join(&t);
        assert_int_equal(l.n, way == 2 ? 2 : 3);
        assert_memory_equal(l.order, "abc", l.n);
        chan_free(l.chan);
    }
    struct chan *ch = chan_new(4, NULL, NULL);
    assert_true(chan_send_lazily(ch, &a));
    assert_int_equal(chan_wait_for(ch, 2, got, 4, 1), 1);
    assert_true(chan_send(ch, &a));
    assert_true(chan_send_lazily(ch, &b));
    assert_int_equal(chan_wait(ch, got, 1, UINT64_MAX), 1); /* the urgent one is gone with it */
    assert_int_equal(chan_wait_for(ch, 2, got, 4, 1), 1);
    assert_ptr_equal(got[0], &b);
    chan_free(ch);
}

enum { SENDERS = 3, RECEIVERS = 2, MESSAGES = 10000 };
struct relay {
    struct chan *chan;
    _Atomic uint64_t sum, n;
    _Atomic uint32_t next;
};

static void relay_send(void *cookie)
{
    struct relay *r = cookie;

    for (uintptr_t i = 1; i <= MESSAGES; i++)
        while (!chan_send(r->chan, (void *)i))
            (void)usleep(50);
}

static void relay_receive(void *cookie)
{
    struct relay *r = cookie;
    void *got[7];
    size_t n;

    while ((n = chan_wait(r->chan, got, ARRAY_LEN(got), UINT64_MAX)) > 0) {
        for (size_t i = 0; i < n; i++)
            atomic_fetch_add(&r->sum, (uintptr_t)got[i]);
        atomic_fetch_add(&r->n, n);
    }
}

static void test_chan_moves_everything_between_threads(void **state)
{
    struct thread s[SENDERS] = { 0 }, t[RECEIVERS] = { 0 };
    struct relay r = { .chan = chan_new(64, NULL, NULL) };

    (void)state;
    for (int i = 0; i < RECEIVERS; i++)
        thread_start(&t[i], "receiver", relay_receive, &r);
    for (int i = 0; i < SENDERS; i++)
        thread_start(&s[i], "sender", relay_send, &r);
    for (int i = 0; i < SENDERS; i++)
        thread_join(&s[i]);
    chan_close(r.chan);
    for (int i = 0; i < RECEIVERS; i++)
        thread_join(&t[i]);
    assert_int_equal(atomic_load(&r.n), SENDERS * MESSAGES);
    assert_int_equal(atomic_load(&r.sum), (uint64_t)SENDERS * MESSAGES * (MESSAGES + 1) / 2);
    chan_free(r.chan);
}

/* ---- pool ------------------------------------------------------------------------------------ */

enum { JOBS = 2000 };
struct batch {
    struct loop *loop;
    struct pool *pool;
    _Atomic uint64_t worked;
    uint64_t done, wrong_thread, expected;
};

static void batch_work(void *cookie)
{
    atomic_fetch_add(&((struct batch *)cookie)->worked, 1);
}

static void batch_done(void *cookie)
{
    struct batch *b = cookie;

    b->wrong_thread += !loop_is_mine(b->loop);
    if (++b->done == b->expected && loop_uv(b->loop))
        loop_stop(b->loop);
}

static void test_pool_runs_each_job_once_and_reports_on_the_loop(void **state)
{
    struct batch b = { .expected = JOBS };

    (void)state;
    b.loop = loop_new(clock_real());
    b.pool = pool_new("pool", 3, JOBS);
    for (int i = 0; i < JOBS; i++)
        assert_true(pool_submit(b.pool, b.loop, batch_work, batch_done, &b));
    loop_run(b.loop);
    assert_int_equal(atomic_load(&b.worked), JOBS);
    assert_int_equal(b.done, JOBS);
    assert_int_equal(b.wrong_thread, 0);
    pool_free(b.pool);
    loop_free(b.loop);
}

struct gate {
    pthread_mutex_t lock;
    _Atomic int in;
};

static void wait_at_gate(void *cookie)
{
    struct gate *g = cookie;

    atomic_fetch_add(&g->in, 1);
    CHECK(pthread_mutex_lock(&g->lock) == 0);
    CHECK(pthread_mutex_unlock(&g->lock) == 0);
}

static void test_pool_refuses_when_full_and_finishes_on_free(void **state)
{
    struct gate g = { PTHREAD_MUTEX_INITIALIZER, 0 };
    struct pool *p = pool_new("a-long-pool-name", 1, 2);

    (void)state;
    assert_int_equal(pthread_mutex_lock(&g.lock), 0);
    assert_true(pool_submit(p, NULL, wait_at_gate, NULL, &g));
    while (atomic_load(&g.in) == 0)
        (void)usleep(100);
    assert_int_equal(pool_queued(p), 0);
    assert_true(pool_submit(p, NULL, wait_at_gate, NULL, &g));
    assert_true(pool_submit(p, NULL, wait_at_gate, NULL, &g));
    assert_false(pool_submit(p, NULL, wait_at_gate, NULL, &g));
    assert_int_equal(pool_queued(p), 2);
    assert_int_equal(pthread_mutex_unlock(&g.lock), 0);
    pool_free(p);
    assert_int_equal(atomic_load(&g.in), 3);
    pool_free(NULL);
}

/* ---- jobs of tenants ---- */

struct note {
    char *text; /* one thread writes it */
    char c;
};

static _Atomic size_t written;

static void write_note(void *cookie)
{
    struct note *n = cookie;
    size_t len = strlen(n->text);

    n->text[len] = n->c;
    n->text[len + 1] = 0;
    atomic_fetch_add(&written, 1);
}

/* One thread, held at a gate while jobs come: then their order is that of the turns. Jobs take no
 * time to speak of, yet a guess each is charged before. */
static void test_pool_serves_tenants_in_turns(void **state)
{
    struct gate g = { PTHREAD_MUTEX_INITIALIZER, 0 };
    struct pool *p = pool_new("pool", 1, 100);
    char text[64] = "";
    struct note h = { text, 'h' }, q = { text, 'q' }, o = { text, 'o' };

    (void)state;
    assert_int_equal(pthread_mutex_lock(&g.lock), 0);
    assert_true(pool_submit(p, NULL, wait_at_gate, NULL, &g));
    while (atomic_load(&g.in) == 0)
        (void)usleep(100);
    for (int i = 0; i < 20; i++)
        assert_true(pool_submit_for(p, 'h', NULL, write_note, NULL, &h));
    assert_true(pool_submit_for(p, 'q', NULL, write_note, NULL, &q));
    assert_true(pool_submit(p, NULL, write_note, NULL, &o));
    assert_true(pool_submit(p, NULL, write_note, NULL, &o));
    assert_int_equal(pool_queued(p), 23);
    assert_int_equal(pthread_mutex_unlock(&g.lock), 0);
    pool_free(p);
    assert_int_equal(strlen(text), 23);
    assert_true(strchr(text, 'q') < text + 4); /* behind one h; untenanted jobs are between */
    assert_true(strrchr(text, 'o') < text + 4);
}

static void test_pool_keeps_a_thread_for_others(void **state)
{
    struct gate g = { PTHREAD_MUTEX_INITIALIZER, 0 };
    struct pool *p = pool_new("pool", 2, 100);
    char text[64] = "";
    struct note q = { text, 'q' };

    (void)state;
    pool_limit_tenant(p, 1);
    assert_int_equal(pthread_mutex_lock(&g.lock), 0);
    for (int i = 0; i < 5; i++)
        assert_true(pool_submit_for(p, 'h', NULL, wait_at_gate, NULL, &g));
    while (atomic_load(&g.in) == 0)
        (void)usleep(100);
    for (int i = 0; i < 3; i++)
        assert_true(pool_submit_for(p, 'q', NULL, write_note, NULL, &q));
    while (pool_queued(p) > 4) /* those of q go through while h's are held */
        (void)usleep(100);
    assert_int_equal(atomic_load(&g.in), 1);
    assert_int_equal(pthread_mutex_unlock(&g.lock), 0);
    pool_free(p);
    assert_int_equal(atomic_load(&g.in), 5);
    assert_string_equal(text, "qqq");
}

/* ---- slices ---- */

struct long_job {
    struct note note;
    _Atomic int began;
    _Atomic int *others; /* that came in the meantime */
    int wait_for, slices;
    struct mutex *held;    /* over its slices; may be NULL */
    struct map_u64 *grown; /* before its first slice it grows once more; may be NULL */
};

static void in_slices(void *cookie)
{
    struct long_job *j = cookie;

    atomic_store(&j->began, 1);
    while (j->others && atomic_load(j->others) < j->wait_for)
        (void)usleep(100);
    if (j->held)
        mutex_lock(j->held);
    if (j->grown)
        map_u64_reserve(j->grown, 2 * j->grown->len);
    for (int i = 0; i < j->slices; i++) {
        write_note(&j->note);
        pool_slice();
    }
    if (j->held)
        mutex_unlock(j->held);
}

/* Runs a long job of h on the only thread, which continues when `jobs` have come. `text`: what the
 * jobs wrote. */
static struct pool_stats run_slices(char *text, struct long_job *h, const char *jobs)
{
    struct pool *p = pool_new("pool", 1, 100);
    struct note notes[8];
    _Atomic int came = 0;
    struct pool_stats s;
    size_t n = strlen(jobs);

    pool_slices(p, 1, 0);
    atomic_store(&written, 0);
    h->note = (struct note){ text, 'h' };
    h->others = &came;
    h->wait_for = 1;
    assert_true(pool_submit_for(p, 'h', NULL, in_slices, NULL, h));
    while (!atomic_load(&h->began))
        (void)usleep(100);
    for (size_t i = 0; i < n; i++) {
        notes[i] = (struct note){ text, jobs[i] };
        if (jobs[i] == 'o')
            assert_true(pool_submit(p, NULL, write_note, NULL, &notes[i]));
        else
            assert_true(pool_submit_for(p, (uint64_t)jobs[i], NULL, write_note, NULL, &notes[i]));
    }
    atomic_store(&came, 1);
    while (atomic_load(&written) < (size_t)h->slices + n)
        (void)usleep(100);
    s = pool_stats_of(p);
    pool_free(p);
    return s;
}

static void test_pool_slices_let_others_go_first(void **state)
{
    struct long_job h = { .slices = 6 };
    char text[64] = "";
    struct pool_stats s = run_slices(text, &h, "q");

    (void)state;
    assert_string_equal(text, "hqhhhhh"); /* it waited for one slice, not for six */
    assert_int_equal(s.pauses, 1);
    assert_int_equal(s.jobs, 2);
    assert_int_equal(s.passed, 0);
}

/* A table of a body that grows is long work of the layer below; nothing is lost over a pause. */
static void test_pool_slices_while_a_table_grows(void **state)
{
    struct map_u64 m;
    struct long_job h = { .slices = 1, .grown = &m };
    char text[64] = "";

    (void)state;
    map_u64_init(&m);
    for (uint32_t i = 0; i < 100000; i++)
        (void)map_u64_put(&m, i, i);
    struct pool_stats s = run_slices(text, &h, "q");
    assert_string_equal(text, "qh");
    assert_int_equal(s.pauses, 1);
    for (uint32_t i = 0; i < 100000; i++)
        assert_int_equal(map_u64_get(&m, i), i);
    map_u64_deinit(&m);
}

static void test_pool_slices_are_for_pushes_too(void **state)
{
    struct long_job h = { .slices = 4 };
    char text[64] = "";
    struct pool_stats s = run_slices(text, &h, "oo");

    (void)state;
    assert_int_equal(text[0], 'h');
    assert_int_equal(text[1], 'o');
    assert_true(strrchr(text, 'o') < text + 4); /* the second at its next slice */
    assert_in_range(s.pauses, 1, 2);
}

static void test_pool_slices_are_not_for_ones_own(void **state)
{
    struct long_job h = { .slices = 4 };
    char text[64] = "";
    struct pool_stats s = run_slices(text, &h, "h");

    (void)state;
    assert_string_equal(text, "hhhhh");
    assert_int_equal(s.pauses, 0);
}

/* Three tenants of one want little, h much: each is served before h continues, and h ends. */
static void test_pool_slices_all_who_had_less(void **state)
{
    struct long_job h = { .slices = 5 };
    char text[64] = "";
    struct pool_stats s = run_slices(text, &h, "abc");

    (void)state;
    assert_string_equal(text, "habchhhh");
    assert_int_equal(s.pauses, 1);
    assert_int_equal(s.passed_max, 2); /* c: a and b */
    assert_int_equal(s.single, 4);
}

static void test_pool_slices_never_with_a_lock(void **state)
{
    struct mutex lock;
    struct long_job h = { .slices = 4, .held = &lock };
    char text[64] = "";

    (void)state;
    mutex_init(&lock);
    struct pool_stats s = run_slices(text, &h, "q");
    mutex_deinit(&lock);
    assert_string_equal(text, "hhhhq");
    assert_int_equal(s.pauses, 0);
}

#define CROWD_JOBS  60
#define CROWD_STEPS 40

struct crowd_job {
    _Atomic int *ended, *most, *in;
    int steps;
};

static void crowd_work(void *cookie)
{
    struct crowd_job *j = cookie;

    for (int i = 0; i < j->steps; i++) {
        int now = atomic_fetch_add(j->in, 1) + 1, most = atomic_load(j->most);
        while (now > most && !atomic_compare_exchange_weak(j->most, &most, now))
            ;
        if (i % 8 == 0)
            (void)sched_yield();
        atomic_fetch_sub(j->in, 1);
        pool_slice();
    }
    atomic_fetch_add(j->ended, 1);
}

/* Many tenants, jobs without a tenant, more threads than cores: all end, also those that are paused
 * when the pool is freed, and never do more than the slots run at once. */
static void test_pool_slices_of_a_crowd_all_end(void **state)
{
    struct crowd_job jobs[CROWD_JOBS];
    _Atomic int ended = 0, most = 0, in = 0;

    (void)state;
    for (int turn = 0; turn < 20; turn++) {
        struct pool *p = pool_new("pool", 3, 200);

        pool_limit_tenant(p, 2);
        pool_slices(p, 2, 0);
        atomic_store(&ended, 0);
        for (int i = 0; i < CROWD_JOBS; i++) {
            jobs[i] = (struct crowd_job){ &ended, &most, &in, i % 3 ? CROWD_STEPS : 1 };
            if (i % 5 == 4)
                assert_true(pool_submit(p, NULL, crowd_work, NULL, &jobs[i]));
            else
                assert_true(
                    pool_submit_for(p, (uint64_t)(i % 4), NULL, crowd_work, NULL, &jobs[i]));
        }
        pool_free(p);
        assert_int_equal(atomic_load(&ended), CROWD_JOBS);
    }
    assert_in_range(atomic_load(&most), 1, 3);
}

static void test_pool_without_threads_runs_in_posted_calls(void **state)
{
    struct clock_fake f;
    struct batch b = { .expected = 3 };

    (void)state;
    clock_fake_init(&f, 0);
    b.loop = loop_sim_new(&f);
    b.pool = pool_new("pool", 0, 2);
    assert_true(pool_submit(b.pool, b.loop, batch_work, batch_done, &b));
    assert_int_equal(atomic_load(&b.worked), 0); /* not inside submit */
    assert_true(pool_submit(b.pool, b.loop, batch_work, NULL, &b));
    assert_false(pool_submit(b.pool, b.loop, batch_work, batch_done, &b));
    assert_true(loop_sim_step(b.loop));
    assert_int_equal(atomic_load(&b.worked), 1);
    assert_int_equal(b.done, 1);
    assert_true(pool_submit(b.pool, b.loop, batch_work, batch_done, &b));
    pool_free(b.pool); /* runs the two that wait */
    assert_int_equal(atomic_load(&b.worked), 3);
    assert_int_equal(b.done, 2);
    loop_free(b.loop);
    assert_int_equal(atomic_load(&b.worked), 3);
}

/* ---- signals --------------------------------------------------------------------------------- */

struct caught {
    struct loop *loop;
    int hup, term;
};

static void on_signal(void *cookie, int number)
{
    struct caught *c = cookie;

    if (number == SIGHUP) {
        c->hup++;
        CHECK(raise(SIGPIPE) == 0); /* ignored, or we die here */
        CHECK(raise(SIGTERM) == 0);
    }
    if (number == SIGTERM) {
        c->term++;
        loop_stop(c->loop);
    }
}

static void test_signals_arrive_on_the_loop(void **state)
{
    struct caught c = { 0 };
    struct signals *s;

    (void)state;
    c.loop = loop_new(clock_real());
    s = signals_new(c.loop, on_signal, &c);
    assert_int_equal(raise(SIGHUP), 0);
    loop_run(c.loop);
    assert_int_equal(c.hup, 1);
    assert_int_equal(c.term, 1);
    signals_free(s);
    loop_free(c.loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_budget_refuses_and_remembers_the_peak),
        cmocka_unit_test(test_budget_holds_between_threads),
        cmocka_unit_test(test_thread_has_its_name_and_only_sigprof),
        cmocka_unit_test(test_chan_is_bounded_and_wakes_once),
        cmocka_unit_test(test_chan_moves_everything_between_threads),
        cmocka_unit_test(test_chan_lets_lazy_messages_wait),
        cmocka_unit_test(test_pool_runs_each_job_once_and_reports_on_the_loop),
        cmocka_unit_test(test_pool_refuses_when_full_and_finishes_on_free),
        cmocka_unit_test(test_pool_serves_tenants_in_turns),
        cmocka_unit_test(test_pool_keeps_a_thread_for_others),
        cmocka_unit_test(test_pool_slices_let_others_go_first),
        cmocka_unit_test(test_pool_slices_while_a_table_grows),
        cmocka_unit_test(test_pool_slices_are_for_pushes_too),
        cmocka_unit_test(test_pool_slices_are_not_for_ones_own),
        cmocka_unit_test(test_pool_slices_all_who_had_less),
        cmocka_unit_test(test_pool_slices_never_with_a_lock),
        cmocka_unit_test(test_pool_slices_of_a_crowd_all_end),
        cmocka_unit_test(test_pool_without_threads_runs_in_posted_calls),
        cmocka_unit_test(test_signals_arrive_on_the_loop),
    };

    return cmocka_run_group_tests_name("threads", tests, NULL, NULL);
}

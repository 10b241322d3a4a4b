/* SPDX-License-Identifier: Apache-2.0
 *
 * The self-profiler on workloads whose stacks are known. Sampling is statistics: tests look for
 * names and shares, with much room, and each burns CPU time until there are enough samples.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/mem.h"
#include "common/obs/selfprof.h"
#include "common/sys/thread.h"

#ifdef __SANITIZE_THREAD__
#define TSAN true
#else
#define TSAN false
#endif
#ifdef __SANITIZE_ADDRESS__
#define SANITIZED true
#else
#define SANITIZED TSAN
#endif

/* ---- what was pushed ------------------------------------------------------------------------- */

struct pushed {
    struct metrics *metrics;
    struct selfprof *prof;
    struct buf text; /* "role/thread|stack count\n" */
    uint64_t samples;
};

static void on_push(void *cookie, const struct selfprof_push *p)
{
    struct pushed *to = cookie;
    struct str rest = p->folded, line;
    bool more = true;

    CHECK(p->from_ms <= p->until_ms);
    to->samples += p->samples;
    while (str_next(&rest, '\n', &more, &line))
        if (line.len)
            CHECK(buf_addf(&to->text, "%s/%s|%.*s\n", p->role, p->thread, STR_ARG(line)));
}

static void begin(struct pushed *p, uint64_t hz)
{
    struct selfprof_opts o = {
        .env = env_real(),
        .metrics = p->metrics = metrics_new(),
        .hz = hz,
        .service = "test",
        .per_thread = true,
        .on_push = on_push,
        .cookie = p,
    };
    struct err e = { 0 };

    buf_init(&p->text, 64 * MIB);
    p->samples = 0;
    assert_int_equal(selfprof_start(&o, &p->prof, &e), 0);
}

static uint64_t metric(const struct pushed *p, const char *name)
{
    return metric_value(metric_at(metric_new(p->metrics, METRIC_COUNTER, name, "", NULL), NULL, 0));
}

static void finish(struct pushed *p)
{
    selfprof_stop(p->prof);
    assert_true(buf_add_c(&p->text, '\0'));
    if (getenv("SHOW")) /* SHOW=1: the profiles, for people */
        printf("%s", p->text.ptr);
    assert_int_equal(metric(p, "embertree_selfprof_dropped_samples_total"), 0);
    assert_int_equal(metric(p, "embertree_selfprof_samples_total"), p->samples);
}

static void drop(struct pushed *p)
{
    buf_deinit(&p->text);
    metrics_free(p->metrics);
}

/* Samples in stacks that contain all of the words, in this order. */
static uint64_t samples_with(const struct pushed *p, const char *const *words)
{
    struct str rest = str_c(p->text.ptr), line;
    bool more = true;
    uint64_t sum = 0;

    while (str_next(&rest, '\n', &more, &line)) {
        char copy[65536];
        const char *at = copy;
        uint64_t n;

        if (line.len == 0 || line.len >= sizeof(copy))
            continue;
        memcpy(copy, line.ptr, line.len);
        copy[line.len] = '\0';
        for (const char *const *w = words; *w && at; w++) {
            at = strstr(at, *w);
            at = at ? at + strlen(*w) : NULL;
        }
        if (at && str_u64(str_sub(line, (size_t)str_rfind(line, ' ') + 1, line.len), &n))
            sum += n;
    }
    return sum;
}

#define WITH(p, ...) samples_with(p, (const char *const[]){ __VA_ARGS__, NULL })

static uint64_t clock_ms(clockid_t id)
{
    struct timespec t;

    CHECK(clock_gettime(id, &t) == 0);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static uint64_t cpu_ms(void)
{
    return clock_ms(CLOCK_THREAD_CPUTIME_ID);
}

static uint64_t process_cpu_ms(void)
{
    return clock_ms(CLOCK_PROCESS_CPUTIME_ID);
}

/* Some seconds of CPU time at the most, however slow the machine. */
enum { WORK_MS = 400 };

static void expect_whole(const struct pushed *p, const char *what, uint64_t percent)
{
    uint64_t broken = metric(p, "embertree_selfprof_broken_stacks_total");

    printf("%s: %" PRIu64 " samples, %" PRIu64 " broken\n", what, p->samples, broken);
    assert_int_equal(WITH(p, "[broken stack]"), broken);
    /* TSan delivers signals late, when the registers are no longer those of the stack. */
    if (TSAN)
        return;
    assert_true(p->samples > 10);
    assert_true(broken * 100 <= p->samples * percent);
}

/* ---- workloads ------------------------------------------------------------------------------- */

/* Reached through volatile pointers, and with something left to do after each call, so that no
 * compiler can inline them or turn a call into a jump. */
static _Thread_local volatile uint64_t sink;

static void burn_leaf(uint64_t until_ms)
{
    while (cpu_ms() < until_ms)
        for (uint64_t i = 0; i < 20000; i++)
            sink += i * i;
}
static void (*volatile burn_leaf_ptr)(uint64_t) = burn_leaf;

static void descend(unsigned depth, uint64_t until_ms);
static void (*volatile descend_ptr)(unsigned, uint64_t) = descend;

static void descend(unsigned depth, uint64_t until_ms)
{
    if (depth == 0)
        burn_leaf_ptr(until_ms);
    else
        descend_ptr(depth - 1, until_ms);
    sink++;
}

static void test_recursion_is_seen_to_its_root(void **state)
{
    struct pushed p;

    (void)state;
    begin(&p, 500);
    descend_ptr(5, cpu_ms() + WORK_MS);
    finish(&p);
    expect_whole(&p, "recursion", 5);
    if (!SANITIZED)
        assert_true(WITH(&p, "main;", ";test_recursion_is_seen_to_its_root;",
                         "descend;descend;descend;descend;descend;descend;burn_leaf") *
                        10 >
                    p.samples * 7);
    drop(&p);
}

static void test_very_deep_stacks_keep_their_leaves(void **state)
{
    struct pushed p;

    (void)state;
    begin(&p, 500);
    descend_ptr(2000, cpu_ms() + WORK_MS);
    finish(&p);
    if (!SANITIZED) {
        assert_true(WITH(&p, "|[deep stack];descend;descend;", "descend;burn_leaf") * 10 >
                    p.samples * 5);
        assert_int_equal(WITH(&p, "[deep stack]", "main;"), 0);
    }
    drop(&p);
}

static int compare_slowly(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;

    for (uint32_t i = 0; i < 50; i++)
        sink += i;
    return (*x > *y) - (*x < *y);
}

static void sort_for(uint64_t until_ms)
{
    enum { N = 3000 };
    uint32_t *v = xmalloc(N * sizeof(*v));

    while (cpu_ms() < until_ms) {
        for (uint32_t i = 0; i < N; i++)
            v[i] = (i * 2654435761u) ^ (uint32_t)sink;
        qsort(v, N, sizeof(*v), compare_slowly);
    }
    xfree(v);
}
static void (*volatile sort_for_ptr)(uint64_t) = sort_for;

static void test_stacks_go_through_the_c_library(void **state)
{
    struct pushed p;

    (void)state;
    begin(&p, 500);
    sort_for_ptr(cpu_ms() + WORK_MS);
    finish(&p);
    expect_whole(&p, "qsort", 5);
    if (!SANITIZED)
        assert_true(WITH(&p, "main;", ";sort_for;", ";compare_slowly") * 10 > p.samples * 6);
    drop(&p);
}

static void on_usr1(int number)
{
    (void)number;
    burn_leaf_ptr(cpu_ms() + WORK_MS);
    sink++;
}

static void raise_it(void)
{
    CHECK(raise(SIGUSR1) == 0);
    sink++;
}
static void (*volatile raise_it_ptr)(void) = raise_it;

static void test_stacks_go_through_a_signal_handler(void **state)
{
    struct sigaction sa = { .sa_handler = on_usr1 }, before;
    struct pushed p;

    (void)state;
    assert_int_equal(sigaction(SIGUSR1, &sa, &before), 0);
    begin(&p, 500);
    raise_it_ptr();
    finish(&p);
    assert_int_equal(sigaction(SIGUSR1, &before, NULL), 0);
    expect_whole(&p, "signal", 5);
    if (!SANITIZED)
        assert_true(WITH(&p, "main;", ";raise_it;", ";on_usr1;", "burn_leaf") * 10 > p.samples * 6);
    drop(&p);
}

static void ask_the_time(uint64_t until_ms)
{
    struct timespec t;

    while (cpu_ms() < until_ms)
        for (int i = 0; i < 2000; i++)
            CHECK(clock_gettime(CLOCK_MONOTONIC, &t) == 0);
    sink++;
}
static void (*volatile ask_the_time_ptr)(uint64_t) = ask_the_time;

static void test_stacks_start_in_the_vdso(void **state)
{
    struct pushed p;

    (void)state;
    begin(&p, 500);
    ask_the_time_ptr(cpu_ms() + WORK_MS);
    finish(&p);
    expect_whole(&p, "vdso", 5);
    if (!SANITIZED)
        assert_true(WITH(&p, "main;", ";ask_the_time;", "clock_gettime;[vdso]") * 10 >
                    p.samples * 5);
    drop(&p);
}

static void load_and_unload(uint64_t until_ms)
{
    while (cpu_ms() < until_ms) {
        void *h = dlopen("libanl.so.1", RTLD_NOW | RTLD_LOCAL);

        if (!h)
            h = dlopen("libutil.so.1", RTLD_NOW | RTLD_LOCAL);
        CHECK(h);
        CHECK(dlclose(h) == 0);
    }
    sink++;
}
static void (*volatile load_and_unload_ptr)(uint64_t) = load_and_unload;

static void test_loading_libraries_meanwhile(void **state)
{
    struct pushed p;

    (void)state;
    begin(&p, 1000);
    load_and_unload_ptr(cpu_ms() + 2 * WORK_MS); /* several refreshes of the map */
    finish(&p);
    /* Loaders run code without tables, and libraries younger than the map are unknown. */
    expect_whole(&p, "dlopen", 20);
    if (!SANITIZED)
        assert_true(WITH(&p, "main;", ";load_and_unload;") * 10 > p.samples * 5);
    drop(&p);
}

/* ---- threads --------------------------------------------------------------------------------- */

struct worker {
    struct thread thread;
    _Atomic bool *stop;
};

static void spin(void *cookie)
{
    struct worker *w = cookie;

    while (!atomic_load(w->stop))
        burn_leaf_ptr(cpu_ms() + 10);
}

/* As a library would: not by thread_start, so the profiler has to find it. */
static void *foreign(void *cookie)
{
    thread_name_self("rocksdb:low 0");
    spin(cookie);
    return NULL;
}

static void test_threads_have_their_own_series(void **state)
{
    _Atomic bool stop = false;
    struct worker w = { .stop = &stop };
    struct pushed p;
    pthread_t id;

    (void)state;
    begin(&p, 200);
    uint64_t began = process_cpu_ms();
    thread_start(&w.thread, "shard-7", spin, &w);
    assert_int_equal(pthread_create(&id, NULL, foreign, &w), 0);
    (void)usleep(2500 * 1000);              /* past the first push */
    while (process_cpu_ms() < began + 1000) /* of a busy machine they got less */
        (void)usleep(10 * 1000);
    atomic_store(&stop, true);
    assert_int_equal(pthread_join(id, NULL), 0);
    thread_join(&w.thread);
    finish(&p);
    expect_whole(&p, "threads", 5);
    if (!SANITIZED) {
        assert_true(WITH(&p, "ingester/shard-7|", "clone;start_thread;", "thread_main;") > 20);
        assert_true(WITH(&p, "ingester/rocksdb:low_0|", ";foreign;") > 20);
        assert_true(WITH(&p, "selfprof/selfprof|") < p.samples / 4);
    }
    drop(&p);
}

static void test_stop_and_start_many_times(void **state)
{
    _Atomic bool stop = false;
    struct worker w[2] = { { .stop = &stop }, { .stop = &stop } };
    struct err e = { 0 };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(w); i++)
        thread_start(&w[i].thread, "spin", spin, &w[i]);
    for (int i = 0; i < 15; i++) {
        struct selfprof_opts o = { .env = env_real(), .hz = 1000, .service = "x" };
        struct selfprof *second;
        struct pushed p;

        begin(&p, 1000);
        o.on_push = on_push;
        assert_int_equal(selfprof_start(&o, &second, &e), ERR_BUSY);
        (void)usleep(30 * 1000);
        finish(&p);
        drop(&p);
    }
    atomic_store(&stop, true);
    for (size_t i = 0; i < ARRAY_LEN(w); i++)
        thread_join(&w[i].thread);
    selfprof_stop(NULL);
}

static void test_options_are_checked(void **state)
{
    static const struct {
        const char *name, *url, *service, *labels, *tenant;
        uint64_t hz;
    } rows[] = {
        { "no rate", "http://127.0.0.1:1", "s", NULL, NULL, 0 },
        { "high rate", "http://127.0.0.1:1", "s", NULL, NULL, 1001 },
        { "no url", NULL, "s", NULL, NULL, 100 },
        { "https", "https://127.0.0.1:1", "s", NULL, NULL, 100 },
        { "remote", "http://10.0.0.1:4040", "s", NULL, NULL, 100 },
        { "a name", "http://example.org", "s", NULL, NULL, 100 },
        { "looks near", "http://127.0.0.1.example.org", "s", NULL, NULL, 100 },
        { "bad port", "http://127.0.0.1:x", "s", NULL, NULL, 100 },
        { "header in path", "http://127.0.0.1:1/\r\nX: y", "s", NULL, NULL, 100 },
        { "no service", "http://127.0.0.1:1", "", NULL, NULL, 100 },
        { "service with labels", "http://127.0.0.1:1", "s{a=b}", NULL, NULL, 100 },
        { "labels closed", "http://127.0.0.1:1", "s", "a=b}", NULL, 100 },
        { "tenant with header", "http://127.0.0.1:1", "s", NULL, "a\r\nX: y", 100 },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct selfprof_opts o = { .env = env_real(),
                                   .hz = rows[i].hz,
                                   .url = rows[i].url,
                                   .service = rows[i].service,
                                   .labels = rows[i].labels,
                                   .tenant = rows[i].tenant };
        struct selfprof *p = NULL;
        struct err e = { 0 };

        if (selfprof_start(&o, &p, &e) != ERR_CONFIG || p || !*e.text)
            fail_msg("%s: %s", rows[i].name, e.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recursion_is_seen_to_its_root),
        cmocka_unit_test(test_very_deep_stacks_keep_their_leaves),
        cmocka_unit_test(test_stacks_go_through_the_c_library),
        cmocka_unit_test(test_stacks_go_through_a_signal_handler),
        cmocka_unit_test(test_stacks_start_in_the_vdso),
        cmocka_unit_test(test_loading_libraries_meanwhile),
        cmocka_unit_test(test_threads_have_their_own_series),
        cmocka_unit_test(test_stop_and_start_many_times),
        cmocka_unit_test(test_options_are_checked),
    };

    return cmocka_run_group_tests_name("selfprof", tests, NULL, NULL);
}

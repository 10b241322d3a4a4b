/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "common/obs/metrics.h"
#include "common/sys/thread.h"

static const char *render(struct metrics *m, struct buf *b)
{
    buf_reset(b);
    metrics_render(m, b);
    assert_true(buf_add_c(b, '\0'));
    return b->ptr;
}

static void test_text_is_prometheus_0_0_4(void **state)
{
    static const double bounds[] = { 0.005, 0.1, 2.5 };
    const struct str post[] = { STR("POST"), STR("/in\"g\\est\n") };
    const struct str q = STR("q");
    struct metrics *m = metrics_new();
    struct metric *requests, *delta, *took;
    struct buf b;

    (void)state;
    requests = metric_new(m, METRIC_COUNTER, "embertree_requests_total",
                          "Requests, \"all\" of\nthem \\", "method,path");
    delta = metric_new(m, METRIC_GAUGE, "embertree_delta", "A gauge", NULL);
    took = metric_new_histogram(m, "embertree_took_seconds", "Time", "role", bounds,
                                ARRAY_LEN(bounds));
    metric_add(metric_at(requests, post, 2), 3);
    metric_set(metric_at(delta, NULL, 0), 5);
    metric_move(metric_at(delta, NULL, 0), -7);
    metric_observe(metric_at(took, &q, 1), 0.005); /* le is inclusive */
    metric_observe(metric_at(took, &q, 1), 0.25);
    metric_observe(metric_at(took, &q, 1), 100);
    (void)metric_new(m, METRIC_COUNTER, "embertree_a_total", "No cells yet", "x");
    buf_init(&b, MIB);
    assert_string_equal(render(m, &b),
                        "# HELP embertree_a_total No cells yet\n"
                        "# TYPE embertree_a_total counter\n"
                        "# HELP embertree_delta A gauge\n"
                        "# TYPE embertree_delta gauge\n"
                        "embertree_delta -2\n"
                        "# HELP embertree_requests_total Requests, \"all\" of\\nthem \\\\\n"
                        "# TYPE embertree_requests_total counter\n"
                        "embertree_requests_total{method=\"POST\",path=\"/in\\\"g\\\\est\\n\"} 3\n"
                        "# HELP embertree_took_seconds Time\n"
                        "# TYPE embertree_took_seconds histogram\n"
                        "embertree_took_seconds_bucket{role=\"q\",le=\"0.005\"} 1\n"
                        "embertree_took_seconds_bucket{role=\"q\",le=\"0.1\"} 1\n"
                        "embertree_took_seconds_bucket{role=\"q\",le=\"2.5\"} 2\n"
                        "embertree_took_seconds_bucket{role=\"q\",le=\"+Inf\"} 3\n"
                        "embertree_took_seconds_sum{role=\"q\"} 100.255\n"
                        "embertree_took_seconds_count{role=\"q\"} 3\n");
    buf_deinit(&b);
    metrics_free(m);
    metrics_free(NULL);
}

static void test_same_name_is_the_same_metric(void **state)
{
    struct metrics *m = metrics_new();
    struct metric *a = metric_new(m, METRIC_COUNTER, "embertree_x_total", "X", NULL);

    (void)state;
    assert_ptr_equal(a, metric_new(m, METRIC_COUNTER, "embertree_x_total", "X", NULL));
    assert_ptr_equal(metric_at(a, NULL, 0), metric_at(a, NULL, 0));
    metrics_free(m);
}

static void test_label_sets_are_bounded(void **state)
{
    struct metrics *m = metrics_new();
    struct metric *x = metric_new(m, METRIC_COUNTER, "embertree_x_total", "X", "a,b");
    const struct str zero[] = { STR("same"), STR("v0") };
    struct metric_cell *first = NULL, *last = NULL;
    struct buf b;
    size_t lines = 0;

    (void)state;
    for (int i = 0; i < 3 * METRIC_CELLS_MAX; i++) {
        char name[32];
        struct str v[2] = { STR("same"), { name, 0 } };

        v[1].len = (size_t)snprintf(name, sizeof(name), "v%d", i);
        last = metric_at(x, v, 2);
        metric_add(last, 1);
        if (i == 0)
            first = last;
    }
    assert_ptr_equal(metric_at(x, zero, 2), first);
    assert_int_equal(metric_value(first), 1);
    assert_int_equal(metric_value(last), 2 * METRIC_CELLS_MAX + 1); /* nothing uncounted */
    buf_init(&b, MIB);
    assert_non_null(strstr(render(m, &b), "embertree_x_total{a=\"other\",b=\"other\"} "));
    for (size_t i = 0; i < b.len; i++)
        lines += b.ptr[i] == '\n';
    assert_int_equal(lines, METRIC_CELLS_MAX + 2);
    buf_deinit(&b);
    metrics_free(m);
}

static void test_forgotten_ones_make_room(void **state)
{
    struct metrics *m = metrics_new();
    struct metric *g = metric_new(m, METRIC_GAUGE, "embertree_x", "x", "who");
    const struct str a = STR("a"), b = STR("b"), c = STR("c");
    const struct str other = STR("other");
    struct buf out;
    char name[16];

    (void)state;
    metric_set(metric_at(g, &a, 1), 1);
    metric_set(metric_at(g, &b, 1), 2);
    metric_set(metric_at(g, &c, 1), 3);
    metric_forget(g, &b, 1);
    metric_forget(g, &b, 1);
    buf_init(&out, MIB);
    assert_non_null(
        strstr(render(m, &out), "embertree_x{who=\"a\"} 1\nembertree_x{who=\"c\"} 3\n"));
    assert_int_equal(metric_value(metric_at(g, &b, 1)), 0); /* a new one */

    /* Far more than there is room for, one after the other: none of them is "other". */
    for (int i = 0; i < 3 * METRIC_CELLS_MAX; i++) {
        struct str who = str_n(name, (size_t)snprintf(name, sizeof(name), "n%d", i));

        metric_set(metric_at(g, &who, 1), 1);
        metric_forget(g, &who, 1);
    }
    assert_null(strstr(render(m, &out), "other"));
    for (int i = 0; i < METRIC_CELLS_MAX; i++) {
        struct str who = str_n(name, (size_t)snprintf(name, sizeof(name), "n%d", i));

        metric_set(metric_at(g, &who, 1), 1);
    }
    metric_forget(g, &other, 1); /* shared: it stays */
    assert_non_null(strstr(render(m, &out), "{who=\"other\"} 1"));
    buf_deinit(&out);
    metrics_free(m);
}

static void test_odd_label_values(void **state)
{
    static char big[5000];
    const struct str nul = { "a\0b", 3 }, bad = { "\xff", 1 }, none = STR_NULL;
    const struct str lengthy = { big, sizeof(big) };
    struct metrics *m = metrics_new();
    struct metric *x = metric_new(m, METRIC_GAUGE, "embertree_x", "X", "a");
    struct buf b;
    const char *text;

    (void)state;
    memset(big, 'y', sizeof(big));
    metric_set(metric_at(x, &nul, 1), 1);
    metric_set(metric_at(x, &bad, 1), 2);
    metric_set(metric_at(x, &none, 1), 3);
    metric_set(metric_at(x, &lengthy, 1), 4);
    buf_init(&b, MIB);
    text = render(m, &b);
    assert_non_null(strstr(text, "embertree_x{a=\"a?b\"} 1\n"));
    assert_non_null(strstr(text, "embertree_x{a=\"?\"} 2\n"));
    assert_non_null(strstr(text, "embertree_x{a=\"\"} 3\n"));
    assert_non_null(strstr(text, "yyy\"} 4\n"));
    assert_true(b.len < 1000);
    buf_deinit(&b);
    metrics_free(m);
}

struct shared {
    struct metrics *m;
    struct metric *counter, *histogram;
};

static void count_much(void *cookie)
{
    struct shared *s = cookie;

    for (int i = 0; i < 5000; i++) {
        struct str v = i % 2 ? STR("odd") : STR("even");

        metric_add(metric_at(s->counter, &v, 1), 1);
        metric_observe(metric_at(s->histogram, NULL, 0), i % 10);
    }
}

static void on_render(void *cookie)
{
    struct shared *s = cookie;
    struct metric *m = metric_new(s->m, METRIC_GAUGE, "embertree_hook", "Set late", NULL);

    metric_move(metric_at(m, NULL, 0), 1);
}

static void test_threads_lose_nothing_while_rendering(void **state)
{
    static const double bounds[] = { 4.5 };
    struct thread t[4] = { 0 };
    struct shared s = { .m = metrics_new() };
    struct buf b;
    const char *text;

    (void)state;
    s.counter = metric_new(s.m, METRIC_COUNTER, "embertree_c_total", "C", "kind");
    s.histogram = metric_new_histogram(s.m, "embertree_h", "H", NULL, bounds, 1);
    metrics_on_render(s.m, on_render, &s);
    buf_init(&b, MIB);
    for (size_t i = 0; i < ARRAY_LEN(t); i++)
        thread_start(&t[i], "count", count_much, &s);
    for (int i = 0; i < 20; i++)
        (void)render(s.m, &b);
    for (size_t i = 0; i < ARRAY_LEN(t); i++)
        thread_join(&t[i]);
    text = render(s.m, &b);
    assert_non_null(strstr(text, "embertree_c_total{kind=\"odd\"} 10000\n"));
    assert_non_null(strstr(text, "embertree_h_bucket{le=\"4.5\"} 10000\n"));
    assert_non_null(strstr(text, "embertree_h_sum 90000\n"));
    assert_non_null(strstr(text, "embertree_h_count 20000\n"));
    assert_non_null(strstr(text, "embertree_hook 21\n"));
    buf_deinit(&b);
    metrics_free(s.m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_is_prometheus_0_0_4),
        cmocka_unit_test(test_same_name_is_the_same_metric),
        cmocka_unit_test(test_label_sets_are_bounded),
        cmocka_unit_test(test_forgotten_ones_make_room),
        cmocka_unit_test(test_odd_label_values),
        cmocka_unit_test(test_threads_lose_nothing_while_rendering),
    };

    return cmocka_run_group_tests_name("metrics", tests, NULL, NULL);
}

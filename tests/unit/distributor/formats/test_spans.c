/* SPDX-License-Identifier: Apache-2.0
 *
 * Ids of spans, traces and profiles on their way from a body to exemplars.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "distributor/base/options.h"
#include "tests/lib/gen/gen_pprof.h"
#include "tests/lib/roles/dist_push.h"

#define S1 "0000000000000001"
#define T1 "000000000000000000000000000000aa"

/* "<kind>:<id> <type>{pod} <leaf>=<value>,..." per line, sorted. */
static void exemplar_rows(const struct push *p, struct buf *out)
{
    buf_init(out, 64 * MIB);
    for (size_t i = 0; i < p->series_len; i++) {
        const struct push_series *s = &p->series[i];
        for (size_t k = 0; k < s->exemplars_len; k++) {
            const struct push_exemplar *x = &s->exemplars[k];
            char id[EXID_BYTES_MAX];
            buf_addf(out, "%d:%.*s %.*s{%.*s}", (int)x->kind, (int)exid_text(x->id, id), id,
                     STR_ARG(labels_get(&s->labels, STR("__type__"))),
                     STR_ARG(labels_get(&s->labels, STR("pod"))));
            for (size_t n = 0; n < x->len; n++) {
                buf_add_c(out, n ? ',' : ' ');
                dist_frame_name(&p->stacks, p->stacks.node_frame.ptr[x->nodes[n] - 1], out);
                buf_addf(out, "=%" PRIu64, x->values[n]);
            }
            buf_add_c(out, '\n');
        }
    }
    gen_sort_lines(out);
}

static void check(const struct push *p, const char *want)
{
    struct buf rows;

    exemplar_rows(p, &rows);
    buf_add_c(&rows, '\0');
    assert_string_equal(rows.ptr, want);
    buf_deinit(&rows);
}

static void begin(struct gen_pprof *g)
{
    gen_pprof_init(g);
    gen_type(g, "samples", "count");
    gen_type(g, "cpu", "nanoseconds");
    gen_period(g, "cpu", "nanoseconds", 10);
}

static void sample(struct gen_pprof *g, uint64_t at, int64_t n)
{
    gen_sample(g, &at, 1, (int64_t[]){ n, n * 10 }, 2);
}

static void decode(struct gen_pprof *g, const char *name, const struct limits *l,
                   struct dist_push *d)
{
    struct ingest_raw raw = { .name = str_c(name), .format = STR("pprof") };
    struct buf body;
    struct err e;

    buf_init(&body, MIB);
    gen_pprof_finish(g, &body);
    if (dist_decode_raw(d, &raw, buf_str(&body), l, &e))
        fail_msg("%s", e.text);
    buf_deinit(&body);
    gen_pprof_deinit(g);
}

static void test_samples(void **state)
{
    struct limits l = limits_default();
    struct gen_pprof g;
    struct dist_push d;

    (void)state;
    begin(&g);
    uint64_t f = gen_location(&g, gen_function(&g, "f", ""), 1);
    uint64_t h = gen_location(&g, gen_function(&g, "h", ""), 1);
    gen_label(&g, "span_id", S1);
    gen_label(&g, "trace_id", T1);
    sample(&g, f, 1);
    gen_label(&g, "profile_id", S1); /* how older agents call it */
    sample(&g, h, 2);
    gen_label(&g, "profile_id", "00000000000000AB"); /* the span's own label wins, either order */
    gen_label(&g, "span_id", "00000000000000ac");
    sample(&g, h, 3);
    gen_label_num(&g, "span_id", 0xac); /* a number is the same id */
    sample(&g, f, 4);
    gen_label(&g, "span_id", "00000000000000AC");
    gen_label(&g, "span_id", S1); /* the first of two */
    gen_label(&g, "pod", "a");
    sample(&g, f, 5);
    gen_label(&g, "span_id", "0000000000000000"); /* no span */
    sample(&g, f, 6);
    gen_label(&g, "span_id", "");
    sample(&g, f, 7);
    gen_label_num(&g, "span_id", 0);
    sample(&g, f, 8);
    gen_label(&g, "span_id", "12345678901234567890123456789012345678901234567890123456789012345");
    sample(&g, f, 9);
    gen_label(&g, "span_id", "any text");
    sample(&g, f, 10);
    decode(&g, "app", &l, &d);
    check(&d.push, "1:" S1 " cpu{} f=10,h=20\n"
                   "1:" S1 " samples{} f=1,h=2\n"
                   "1:00000000000000ac cpu{a} f=50\n"
                   "1:00000000000000ac cpu{} f=40,h=30\n"
                   "1:00000000000000ac samples{a} f=5\n"
                   "1:00000000000000ac samples{} f=4,h=3\n"
                   "1:any text cpu{} f=100\n"
                   "1:any text samples{} f=10\n"
                   "2:" T1 " cpu{} f=10\n"
                   "2:" T1 " samples{} f=1\n");
    assert_int_equal(d.push.drops[CHANGE_EXEMPLAR], 1);
    assert_int_equal(d.push.series_len, 4); /* ids never split a series */
    dist_push_free(&d);
}

static void test_name(void **state)
{
    struct limits l = limits_default();
    struct gen_pprof g;
    struct dist_push d;

    (void)state;
    begin(&g);
    uint64_t f = gen_location(&g, gen_function(&g, "f", ""), 1);
    gen_label(&g, "span_id", S1); /* the name says otherwise */
    gen_label(&g, "trace_id", T1);
    sample(&g, f, 1);
    sample(&g, f, 2);
    decode(&g, "app{profile_id=p-1,span_id=00000000000000ff}", &l, &d);
    check(&d.push, "1:00000000000000ff cpu{} f=30\n"
                   "1:00000000000000ff samples{} f=3\n"
                   "2:" T1 " cpu{} f=10\n"
                   "2:" T1 " samples{} f=1\n"
                   "3:p-1 cpu{} f=30\n"
                   "3:p-1 samples{} f=3\n");
    for (size_t i = 0; i < d.push.series_len; i++)
        assert_null(labels_get(&d.push.series[i].labels, STR("profile_id")).ptr);
    dist_push_free(&d);
}

static void test_text(void **state)
{
    struct limits l = limits_default();
    struct ingest_raw raw = { .name = STR("app.cpu{profile_id=" S1 ",trace_id=" T1 ",pod=a}") };
    struct dist_push d;
    struct err e;

    (void)state;
    assert_int_equal(dist_decode_raw(&d, &raw, STR("a;b 2\na;c 3\n"), &l, &e), 0);
    check(&d.push,
          "2:" T1 " cpu{a} b=20000000,c=30000000\n3:" S1 " cpu{a} b=20000000,c=30000000\n");
    dist_push_free(&d);
    raw.name = STR("app.cpu{profile_id=0000000000000000,span_id=}");
    assert_int_equal(dist_decode_raw(&d, &raw, STR("a;b 2\na;c 3\n"), &l, &e), 0);
    check(&d.push, "");
    dist_push_free(&d);
}

static void test_limit(void **state)
{
    struct limits l = limits_default();
    struct gen_pprof g;
    struct dist_push d;

    (void)state;
    l.exemplars = 7;
    begin(&g);
    uint64_t f = gen_location(&g, gen_function(&g, "f", ""), 1);
    for (int i = 1; i <= 10; i++) {
        char id[20];
        (void)snprintf(id, sizeof(id), "%016x", i);
        gen_label(&g, "span_id", id);
        sample(&g, f, 1);
    }
    decode(&g, "app", &l, &d);
    assert_int_equal(d.push.exemplars, 7);
    assert_int_equal(d.push.drops[CHANGE_EXEMPLAR], 13);
    assert_int_equal(d.push.series[0].values[0] + d.push.series[1].values[0], 110);
    dist_push_free(&d);
}

/* Random samples against a list of them. */
static void test_random(void **state)
{
    const char *text = getenv("SEED");
    uint64_t seed = text ? strtoull(text, NULL, 10) : 5;
    struct limits l = limits_default();
    struct prng p;

    (void)state;
    print_message("SEED=%" PRIu64 "\n", seed);
    prng_init(&p, seed);
    for (int round = 0; round < 200; round++) {
        uint64_t model[2][4][5][3] = { 0 }; /* kind, id, function, pod */
        uint64_t at[5], left = 0;
        struct gen_pprof g;
        struct dist_push d;

        begin(&g);
        for (int i = 0; i < 5; i++) {
            char name[8];
            (void)snprintf(name, sizeof(name), "f%d", i);
            at[i] = gen_location(&g, gen_function(&g, name, ""), 1);
        }
        for (size_t n = prng_below(&p, 60) + 1; n > 0; n--) {
            size_t f = prng_below(&p, 5), pod = prng_below(&p, 3);
            uint64_t v = 1 + prng_below(&p, 9);
            for (int kind = 0; kind < 2; kind++) {
                size_t id = prng_below(&p, 4);
                char hex[36];
                (void)snprintf(hex, sizeof(hex), kind ? "%032zx" : "%016zx", id);
                gen_label(&g,
                          kind                ? "trace_id"
                          : prng_below(&p, 2) ? "span_id"
                                              : "profile_id",
                          hex);
                model[kind][id][f][pod] += id ? v * 10 : 0;
            }
            if (pod)
                gen_label(&g, "pod", pod == 1 ? "1" : "2");
            sample(&g, at[f], (int64_t)v);
        }
        decode(&g, "app", &l, &d);
        for (size_t i = 0; i < d.push.series_len; i++) {
            const struct push_series *s = &d.push.series[i];
            struct str pod_text = labels_get(&s->labels, STR("pod"));
            size_t pod = pod_text.len ? (size_t)(pod_text.ptr[0] - '0') : 0;
            if (!str_eqc(labels_get(&s->labels, STR("__type__")), "cpu"))
                continue;
            for (size_t k = 0; k < s->exemplars_len; k++) {
                const struct push_exemplar *x = &s->exemplars[k];
                size_t id = (size_t)x->id.ptr[x->id.len - 1];
                for (size_t n = 0; n < x->len; n++) {
                    struct buf name;
                    buf_init(&name, KIB);
                    dist_frame_name(&d.push.stacks, d.push.stacks.node_frame.ptr[x->nodes[n] - 1],
                                    &name);
                    uint64_t *m = &model[x->kind - 1][id][name.ptr[1] - '0'][pod];
                    assert_int_equal(*m, x->values[n]);
                    *m = 0;
                    buf_deinit(&name);
                }
            }
        }
        for (size_t i = 0; i < sizeof(model) / sizeof(uint64_t); i++)
            left += (&model[0][0][0][0])[i];
        assert_int_equal(left, 0);
        dist_push_free(&d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_samples), cmocka_unit_test(test_name),   cmocka_unit_test(test_text),
        cmocka_unit_test(test_limit),   cmocka_unit_test(test_random),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

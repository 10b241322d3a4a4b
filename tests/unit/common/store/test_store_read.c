/* SPDX-License-Identifier: Apache-2.0
 *
 * Timelines, gauges and label queries in small examples with the answers written out.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "common/model/slot.h"
#include "tests/lib/store/store_bed.h"

#define GAUGE "memory:inuse_space:bytes::"

static struct store_bed bed;
static struct arena *arena;
static uint32_t now; /* slot, start of ten minutes */

static int setup(void **state)
{
    struct store_opts o = { .dict_bytes_max = 64 * MIB, .wid_horizon_ms = 3600 * 1000 };

    (void)state;
    store_bed_init(&bed, &o);
    arena = arena_new(MIB);
    now = store_bed_slot(&bed) / 120 * 120;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    arena_free(arena);
    store_bed_deinit(&bed);
    return 0;
}

static void push(uint64_t wid, uint32_t slot, const char *labels, const char *stacks)
{
    assert_int_equal(
        store_bed_push(
            &bed,
            &(struct bed_push){ .wid = wid, .slot = slot, .labels = labels, .stacks = stacks }),
        1);
}

static void push_gauge(uint64_t wid, uint32_t slot, const char *labels, const char *stacks)
{
    assert_int_equal(store_bed_push(&bed, &(struct bed_push){ .wid = wid,
                                                              .slot = slot,
                                                              .labels = labels,
                                                              .type = GAUGE,
                                                              .gauge = true,
                                                              .stacks = stacks }),
                     1);
}

static struct selector parse(const char *text)
{
    struct selector s;
    struct err e;

    if (selector_parse(str_c(text), SELECTOR_PROMETHEUS, arena, &s, &e) || selector_compile(&s, &e))
        fail_msg("%s", e.text);
    return s;
}

/* "group: point=value/writes[/leaves] ..." lines joined by '|'. */
static const char *timeline(const char *type, const char *selector, int64_t origin, int64_t step,
                            uint32_t points, const char *by)
{
    static char text[4096];
    struct selector s = parse(selector);
    struct store_query q = { .tenant = STR("t"), .selector = &s, .profile_type = str_c(type) };
    struct str name = str_c(by);
    struct store_timeline t;
    struct err e;
    size_t n = 0;

    struct store_view *v = store_view_get(bed.s);
    if (store_timeline(v,
                       &(struct store_timeline_query){ .q = q,
                                                       .origin_ms = origin,
                                                       .step_ms = step,
                                                       .points = points,
                                                       .group_by = &name,
                                                       .group_by_len = by ? 1 : 0 },
                       arena, &t, &e))
        fail_msg("%s", e.text);
    store_view_put(v);
    text[0] = '\0';
    vec_for (i, &t.series) {
        const struct store_points *p = &t.series.ptr[i];
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%.*s:", i ? "|" : "",
                              STR_ARG(labels_get(&p->labels, name)));
        vec_for (k, &p->point) {
            n += (size_t)snprintf(text + n, sizeof(text) - n, " %u=%" PRIu64 "/%" PRIu64,
                                  p->point.ptr[k], p->value.ptr[k], p->writes.ptr[k]);
            if (t.gauge)
                n += (size_t)snprintf(text + n, sizeof(text) - n, "/%u", p->leaves.ptr[k]);
        }
    }
    store_timeline_deinit(&t);
    selector_deinit(&s);
    return text;
}

static void check_timelines(void)
{
    int64_t t0 = slot_to_ms(now);

    /* Point k takes slots that start in (T(k-1), T(k)]. */
    assert_string_equal(timeline(BED_CPU, "{}", t0, 5000, 6, NULL), ": 0=3/2 1=4/1 3=8/1 4=16/1");
    assert_string_equal(timeline(BED_CPU, "{}", t0, 15000, 3, NULL), ": 0=3/2 1=12/2 2=16/1");
    assert_string_equal(timeline(BED_CPU, "{}", t0 + 1, 5000, 2, NULL), ": 0=3/2 1=4/1");
    assert_string_equal(timeline(BED_CPU, "{pod=\"b\"}", t0, 5000, 6, NULL), ": 0=2/1 4=16/1");
    assert_string_equal(timeline(BED_CPU, "{}", t0, 60000, 1, "pod"), "a: 0=1/1|b: 0=2/1");
    assert_string_equal(timeline(BED_CPU, "{}", t0 + 60000, 60000, 2, "pod"),
                        "a: 0=12/2|b: 0=16/1");
    assert_string_equal(timeline(BED_CPU, "{}", t0 + 60000, 60000, 2, "service_name"),
                        "svc: 0=28/3");
    assert_string_equal(timeline(BED_CPU, "{pod=\"c\"}", t0, 5000, 6, NULL), "");
    assert_string_equal(timeline("memory:alloc_space:bytes::", "{}", t0, 5000, 6, NULL), "");
    /* Two pods in one leaf are one leaf; the second slot of a leaf is the same leaf. */
    assert_string_equal(timeline(GAUGE, "{}", t0 + 60000, 60000, 1, NULL), ": 0=130/4/2");
    assert_string_equal(timeline(GAUGE, "{}", t0, 5000, 6, NULL), ": 2=100/2/1 3=10/1/1 4=20/1/1");
}

static void test_timelines(void **state)
{
    (void)state;
    push(1, now, "pod=a", "x=1");
    push(2, now, "pod=b", "x=2");
    push(3, now + 1, "pod=a", "x=3 y=1");
    push(4, now + 3, "pod=a", "x=8");
    push(5, now + 4, "pod=b", "=16");
    push_gauge(6, now + 2, "pod=a", "x=60");
    push_gauge(7, now + 2, "pod=b", "x=40");
    push_gauge(8, now + 3, "pod=b", "x=10");
    push_gauge(9, now + 4, "pod=a", "y=20");
    check_timelines();
    clock_fake_advance(&bed.clock, 1200000);
    clock_fake_advance(&bed.clock, 130000);
    store_bed_seal(&bed);
    store_bed_seal(&bed);
    check_timelines();
    store_bed_reopen(&bed, KV_MEM_KILL, 0);
    check_timelines();
}

static void test_bad_timelines(void **state)
{
    static const struct {
        int64_t origin, step;
        uint32_t points;
    } rows[] = { { 0, 0, 1 },
                 { 0, -5, 1 },
                 { 0, 5000, 0 },
                 { 0, 5000, UINT32_MAX },
                 { INT64_MAX, 5000, 1 },
                 { 0, INT64_MAX, 2 } };
    struct store_query q = { .tenant = STR("t"), .profile_type = STR(BED_CPU) };
    struct store_timeline t;
    struct err e;

    (void)state;
    struct store_view *v = store_view_get(bed.s);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        assert_int_equal(store_timeline(v,
                                        &(struct store_timeline_query){ .q = q,
                                                                        .origin_ms = rows[i].origin,
                                                                        .step_ms = rows[i].step,
                                                                        .points = rows[i].points },
                                        arena, &t, &e),
                         ERR_INPUT);
    assert_int_equal(store_timeline(v,
                                    &(struct store_timeline_query){ .q = q,
                                                                    .origin_ms = slot_to_ms(now),
                                                                    .step_ms = INT64_C(1) << 49,
                                                                    .points = 2 },
                                    arena, &t, &e),
                     0);
    store_timeline_deinit(&t);
    store_view_put(v);
}

static void test_gauge_leaves(void **state)
{
    struct store_query q = { .tenant = STR("t"),
                             .profile_type = STR(GAUGE),
                             .start_ms = slot_to_ms(now),
                             .end_ms = slot_to_ms(now + 10) };
    struct store_merge m = { 0 };
    struct stacks st;
    struct err e;

    (void)state;
    push_gauge(1, now, "pod=a", "x=5");
    push_gauge(2, now + 1, "pod=b", "x=5");
    push_gauge(3, now + 7, "pod=a", "x=2");
    stacks_init(&st, MIB, 1);
    m.stacks = &st;
    struct store_view *v = store_view_get(bed.s);
    assert_int_equal(store_merge(v, &q, &m, &e), 0);
    store_view_put(v);
    assert_true(m.gauge);
    assert_int_equal(m.total, 12); /* the caller divides by the leaves */
    assert_int_equal(m.leaves.len, 2);
    assert_int_equal(m.leaves.ptr[0], now / 2);
    assert_int_equal(m.leaves.ptr[1], now / 2 + 3);
    store_merge_deinit(&m);
    stacks_deinit(&st);
}

/* ---- labels ---- */

static const char *join(const struct store_labels *l)
{
    static char text[4096];
    struct buf b;

    buf_init(&b, sizeof(text) - 1);
    vec_for (i, &l->values) {
        if (i)
            buf_add_c(&b, ' ');
        buf_add_str(&b, l->values.ptr[i]);
    }
    vec_for (i, &l->sets)
        labels_format(&l->sets.ptr[i], &b);
    if (l->truncated)
        buf_add_str(&b, STR(" ..."));
    memcpy(text, b.ptr ? b.ptr : "", b.len);
    text[b.len] = '\0';
    buf_deinit(&b);
    return text;
}

static const char *labels(struct store_labels_query q, const char *selector)
{
    struct selector s = parse(selector);
    struct store_labels l;
    struct err e;

    q.tenant = q.tenant.len ? q.tenant : STR("t");
    q.selector = &s;
    struct store_view *v = store_view_get(bed.s);
    if (store_labels(v, &q, arena, &l, &e))
        fail_msg("%s", e.text);
    store_view_put(v);
    const char *text = join(&l);
    store_labels_deinit(&l);
    selector_deinit(&s);
    return text;
}

#define NAMES(...)  ((struct store_labels_query){ .kind = STORE_NAMES, __VA_ARGS__ })
#define VALUES(...) ((struct store_labels_query){ .kind = STORE_VALUES, __VA_ARGS__ })
#define TYPES(...)  ((struct store_labels_query){ .kind = STORE_TYPES, __VA_ARGS__ })
#define SETS(...)   ((struct store_labels_query){ .kind = STORE_SETS, __VA_ARGS__ })

static void test_labels(void **state)
{
    const struct str two[] = { STR("service_name"), STR("__profile_type__") };
    const struct str pod[] = { STR("pod") };
    uint32_t day = 17280;

    (void)state;
    push(1, now, "pod=a,zone=1", "x=1");
    push(2, now, "pod=b", "x=1");
    push_gauge(3, now - 3 * day, "pod=c", "x=1");
    assert_string_equal(labels(NAMES(.limit = 0), "{}"),
                        "__name__ __period_type__ __period_unit__ __profile_type__ "
                        "__service_name__ __type__ __unit__ pod service_name zone");
    assert_string_equal(labels(NAMES(.limit = 0), "{pod=\"c\"}"),
                        "__name__ __profile_type__ __service_name__ __type__ __unit__ pod "
                        "service_name");
    assert_string_equal(labels(NAMES(.limit = 2), "{}"), "__name__ __period_type__ ...");
    assert_string_equal(labels(VALUES(.name = STR("pod")), "{}"), "a b c");
    assert_string_equal(labels(VALUES(.name = STR("pod")), "{zone=\"\"}"), "b c");
    assert_string_equal(labels(VALUES(.name = STR("pod"), .limit = 3), "{}"), "a b c");
    assert_string_equal(labels(VALUES(.name = STR("pod"), .limit = 1), "{}"), "a ...");
    assert_string_equal(labels(VALUES(.name = STR("zone")), "{__type__=\"inuse_space\"}"), "");
    assert_string_equal(labels(VALUES(.name = STR("__type__")), "{}"), "cpu inuse_space");
    assert_string_equal(labels(VALUES(.name = STR("service_name")), "{}"), "svc");
    assert_string_equal(labels(VALUES(.name = STR("none")), "{}"), "");
    assert_string_equal(labels(TYPES(.limit = 0), "{}"), GAUGE " " BED_CPU);
    assert_string_equal(labels(TYPES(.limit = 0), "{pod=\"b\"}"), BED_CPU);
    assert_string_equal(labels(TYPES(.limit = 0), "{service_name=\"other\"}"), "");
    assert_string_equal(labels(TYPES(.tenant = STR("absent")), "{}"), "");
    assert_string_equal(labels(SETS(.names = two, .names_len = 2), "{}"),
                        "{__profile_type__=\"" GAUGE "\", service_name=\"svc\"}"
                        "{__profile_type__=\"" BED_CPU "\", service_name=\"svc\"}");
    assert_string_equal(labels(SETS(.names = pod, .names_len = 1), "{}"),
                        "{pod=\"a\"}{pod=\"b\"}{pod=\"c\"}");
    /* By days. */
    int64_t t = slot_to_ms(now);
    assert_string_equal(labels(VALUES(.name = STR("pod"), .start_ms = t, .end_ms = t + 1), "{}"),
                        "a b");
    assert_string_equal(labels(TYPES(.start_ms = t - INT64_C(3) * 86400000,
                                     .end_ms = t - INT64_C(3) * 86400000 + 1),
                               "{}"),
                        GAUGE);
    assert_string_equal(labels(TYPES(.start_ms = t - INT64_C(2) * 86400000,
                                     .end_ms = t - INT64_C(2) * 86400000 + 1),
                               "{}"),
                        "");
}

static void test_answer_too_large(void **state)
{
    struct store_labels_query q = { .tenant = STR("t"), .kind = STORE_VALUES, .name = STR("pod") };
    struct arena *small = arena_new(2 * KIB);
    struct store_labels l;
    struct err e;
    char pod[64];

    (void)state;
    for (uint32_t i = 0; i < 100; i++) {
        snprintf(pod, sizeof(pod), "pod=a-rather-long-name-of-a-pod-%u", i);
        push(i + 1, now, pod, "x=1");
    }
    struct store_view *v = store_view_get(bed.s);
    assert_int_equal(store_labels(v, &q, small, &l, &e), ERR_LIMIT);
    store_view_put(v);
    arena_free(small);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_timelines), T(test_bad_timelines),    T(test_gauge_leaves),
        T(test_labels),    T(test_answer_too_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * store_estimate against what store_merge then reads: exact while everything is looked at, close
 * where rows of one size are sampled, and bounded in work whatever the range is.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "common/base/size.h"
#include "common/model/slot.h"
#include "common/store/query/estimate.h"
#include "tests/lib/store/store_bed.h"

static struct store_estimate estimate(struct store_bed *b, const char *selector, const char *type,
                                      int64_t start_ms, int64_t end_ms, bool detail)
{
    struct arena *a = arena_new(MIB);
    struct store_view *v = store_view_get(b->s);
    struct selector s;
    struct store_estimate r;
    struct err e;

    assert_int_equal(selector_parse(str_c(selector), SELECTOR_PROMETHEUS, a, &s, &e), 0);
    assert_int_equal(selector_compile(&s, &e), 0);
    struct store_estimate_query q = { .q = { .tenant = STR("t"),
                                             .selector = &s,
                                             .profile_type = str_c(type),
                                             .start_ms = start_ms,
                                             .end_ms = end_ms },
                                      .detail = detail };
    if (store_estimate(v, &q, &r, &e))
        fail_msg("%s", e.text);
    selector_deinit(&s);
    store_view_put(v);
    arena_free(a);
    return r;
}

static struct store_merge merge(struct store_bed *b, const char *selector, int64_t start_ms,
                                int64_t end_ms)
{
    struct arena *a = arena_new(MIB);
    struct store_view *v = store_view_get(b->s);
    struct stacks stacks;
    struct store_merge m = { .stacks = &stacks };
    struct selector s;
    struct err e;

    stacks_init(&stacks, MIB, 1);
    assert_int_equal(selector_parse(str_c(selector), SELECTOR_PROMETHEUS, a, &s, &e), 0);
    assert_int_equal(selector_compile(&s, &e), 0);
    struct store_query q = { .tenant = STR("t"),
                             .selector = &s,
                             .profile_type = STR(BED_CPU),
                             .start_ms = start_ms,
                             .end_ms = end_ms };
    assert_int_equal(store_merge(v, &q, &m, &e), 0);
    store_merge_deinit(&m);
    stacks_deinit(&stacks);
    selector_deinit(&s);
    store_view_put(v);
    arena_free(a);
    return m;
}

/* Pods of one service push every ten seconds for `leaves` leaves, from `slot` on. */
static void fill(struct store_bed *b, size_t pods, uint32_t slot, uint32_t leaves)
{
    char labels[32];
    uint64_t wid = 1;

    for (size_t p = 0; p < pods; p++)
        for (uint32_t i = 0; i < leaves; i += 60) {
            struct bed_push push = { .labels = labels,
                                     .stacks = "a;b=5 a;c=2 d=1",
                                     .slot = slot + 2 * i,
                                     .wid = wid,
                                     .times = leaves - i < 60 ? leaves - i : 60,
                                     .every = 2 };
            snprintf(labels, sizeof(labels), "pod=p%zu", p);
            wid += 100;
            assert_int_equal(store_bed_push(b, &push), 1);
        }
}

static void test_exact_when_small(void **state)
{
    struct store_opts o = { 0 };
    struct store_bed b;
    const char *sel = "{service_name=\"svc\",pod=\"p0\"}";

    (void)state;
    store_bed_init(&b, &o);
    uint32_t slot = slot_leaf(store_bed_slot(&b)) - 240;
    fill(&b, 2, slot, 50);
    int64_t from = slot_to_ms(slot), to = slot_to_ms(slot + 100);

    for (int sealed = 0; sealed < 2; sealed++) {
        struct store_estimate r = estimate(&b, sel, BED_CPU, from, to, true);
        struct store_merge m = merge(&b, sel, from, to);
        assert_true(!r.sampled && !r.more && r.rows > 0 && r.bytes > r.rows);
        assert_int_equal(r.rows, m.rows);
        assert_int_equal(r.series, 1);
        assert_int_equal(r.units, 1);
        assert_int_equal(r.services, 1);
        assert_int_equal(r.writes, 50); /* once in each leaf */
        assert_int_equal(r.samples, 3 * r.rows);
        clock_fake_advance(&b.clock, 600000);
        store_bed_seal(&b);
    }
    struct store_estimate r = estimate(&b, "{}", "", from, to, true);
    assert_int_equal(r.series, 2); /* whatever is read for them */
    assert_int_equal(r.writes, 100);
    assert_int_equal(r.samples, 3 * r.rows);
    /* A series of the same day that has nothing in the range. */
    struct bed_push late = { .labels = "pod=late", .stacks = "a=1", .slot = slot + 130, .wid = 99 };
    store_bed_push(&b, &late);
    for (int sealed = 0; sealed < 2; sealed++) {
        r = estimate(&b, "{}", BED_CPU, from, to, true);
        assert_int_equal(r.series, 2);
        assert_int_equal(r.writes, 100);
        r = estimate(&b, "{}", BED_CPU, from, slot_to_ms(slot + 132), true);
        assert_int_equal(r.series, 3);
        assert_int_equal(r.writes, 101);
        clock_fake_advance(&b.clock, 600000);
        store_bed_seal(&b);
    }
    r = estimate(&b, "{service_name=\"other\"}", "", from, to, true);
    assert_int_equal(r.rows + r.bytes + r.series + r.writes + r.units, 0);
    r = estimate(&b, "{}", "memory:inuse_space:bytes::", from, to, true);
    assert_int_equal(r.rows + r.bytes + r.series + r.writes + r.units, 0);
    store_bed_deinit(&b);
}

/* Many series of a service, asked for by a label that roll-ups drop: sampled, and right, since all
 * rows are alike. A hundred years cost no more look-ups than a day. */
static void test_sampled(void **state)
{
    struct store_opts o = { 0 };
    struct store_bed b;
    const char *sel = "{service_name=\"svc\",pod=~\"p.*\"}";
    int64_t year = INT64_C(365) * 86400000;

    (void)state;
    store_bed_init(&b, &o);
    uint32_t slot = slot_leaf(store_bed_slot(&b)) - 240;
    fill(&b, 64, slot, 60);
    clock_fake_advance(&b.clock, 600000);
    store_bed_seal(&b);
    int64_t from = slot_to_ms(slot), to = slot_to_ms(slot + 120);
    struct store_estimate r = estimate(&b, sel, BED_CPU, from, to, false);
    struct store_merge m = merge(&b, sel, from, to);
    assert_true(r.sampled);
    assert_int_equal(r.units, 64);
    assert_in_range(r.rows, m.rows * 8 / 10, m.rows * 12 / 10);
    r = estimate(&b, sel, BED_CPU, from - 50 * year, to + 50 * year, true);
    assert_int_equal(r.series, 64);
    assert_int_equal(r.writes, 64 * 60);
    assert_true(r.nodes > 0);
    store_bed_deinit(&b);
}

static void test_canceled(void **state)
{
    struct store_opts o = { 0 };
    struct store_bed b;
    struct selector s = { 0 };
    struct store_estimate r;
    struct err e;
    atomic_bool cancel = true;

    (void)state;
    store_bed_init(&b, &o);
    uint32_t slot = slot_leaf(store_bed_slot(&b)) - 240;
    fill(&b, 3, slot, 10);
    struct store_view *v = store_view_get(b.s);
    struct store_estimate_query q = { .q = { .tenant = STR("t"),
                                             .selector = &s,
                                             .start_ms = slot_to_ms(slot),
                                             .end_ms = slot_to_ms(slot + 100),
                                             .cancel = &cancel } };
    assert_int_equal(store_estimate(v, &q, &r, &e), ERR_CANCELED);
    cancel = false;
    assert_int_equal(store_estimate(v, &q, &r, &e), 0);
    q.q.profile_type = STR("nonsense");
    assert_int_equal(store_estimate(v, &q, &r, &e), ERR_INPUT);
    store_view_put(v);
    store_bed_deinit(&b);
}

static void test_add(void **state)
{
    struct store_estimate a = { .rows = 1, .bytes = UINT64_MAX, .series = 2 };
    struct store_estimate c = { .rows = 2, .bytes = 5, .more = true, .writes = 7 };

    (void)state;
    store_estimate_add(&a, &c);
    assert_int_equal(a.rows, 3);
    assert_true(a.bytes == UINT64_MAX && a.more && !a.sampled);
    assert_int_equal(a.series + a.writes, 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact_when_small),
        cmocka_unit_test(test_sampled),
        cmocka_unit_test(test_canceled),
        cmocka_unit_test(test_add),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

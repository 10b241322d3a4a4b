/* SPDX-License-Identifier: Apache-2.0
 *
 * Old data that come together become one raw row; rows that may not be summed up stay apart.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/model/slot.h"
#include "common/store/check/check.h"
#include "common/store/retain/retain.h"
#include "common/store/state/commit.h"
#include "common/store/state/store_impl.h"
#include "tests/lib/store/store_bed.h"

#define HOUR    720u /* slots */
#define OLD     (40u * 24 * HOUR)
#define ALL     "{service_name=\"svc\"}"
#define GAUGE   "memory:inuse_space:bytes:space:bytes"
#define MAX_STR "18446744073709551615"

struct bed {
    struct store_bed s;
    struct retain_policy *policy;
    uint32_t hour; /* 40 days ago; the finest level there is 10 m */
};

static int setup(void **state)
{
    struct retain_policy_opts p = { .keep = retain_keep_default(), .interval_ms = 60000 };
    struct store_opts o = { .dict_bytes_max = 16 * MIB, .wid_horizon_ms = 3600000, .seed = 1 };
    struct bed *b = test_calloc(1, sizeof(*b));
    struct err e;

    store_bed_init(&b->s, &o);
    assert_int_equal(retain_policy_new(&p, &b->policy, &e), 0);
    store_set_retention(b->s.s, b->policy);
    b->hour = (store_bed_slot(&b->s) - OLD) / HOUR * HOUR;
    *state = b;
    return 0;
}

static int teardown(void **state)
{
    struct bed *b = *state;

    store_bed_deinit(&b->s);
    retain_policy_unref(b->policy);
    test_free(b);
    return 0;
}

/* The service and type are there, with their floors. */
static void begin(struct bed *b, const char *type, bool gauge)
{
    assert_int_equal(store_bed_push(&b->s, &(struct bed_push){ .slot = store_bed_slot(&b->s),
                                                               .type = type,
                                                               .gauge = gauge,
                                                               .stacks = "now=1",
                                                               .wid = 1 }),
                     1);
}

/* Raw rows that a push adds; -1: it was a duplicate. */
static int rows(struct bed *b, const struct bed_push *p)
{
    uint64_t before = atomic_load(&b->s.s->raw_rows);

    if (!store_bed_push(&b->s, p))
        return -1;
    return (int)(atomic_load(&b->s.s->raw_rows) - before);
}

static const char *ask(struct bed *b, const char *type, uint32_t from, uint32_t to)
{
    return store_bed_merge(&b->s, "t", ALL, type, from, to);
}

static void check(struct bed *b)
{
    struct store_view *v = store_view_get(b->s.s);
    struct check_report report;
    struct err e;

    if (store_check(v, &report, &e))
        fail_msg("check: %s", e.text);
    store_view_put(v);
}

static void test_nodes(void **state)
{
    struct bed *b = *state;
    struct bed_push p = {
        .stacks = "a;b=5 a;c=2", .slot = b->hour, .times = 60, .every = 12, .wid = 2
    };

    begin(b, NULL, false);
    assert_int_equal(rows(b, &p), 6);
    assert_int_equal(rows(b, &p), -1);
    assert_string_equal(ask(b, BED_CPU, b->hour, b->hour + HOUR), "a;b=300 a;c=120");
    assert_string_equal(ask(b, BED_CPU, b->hour + 130, b->hour + 131), "a;b=50 a;c=20");
    check(b);
    store_bed_seal(&b->s);
    assert_int_equal(atomic_load(&b->s.s->raw_rows), 1);
    assert_string_equal(ask(b, BED_CPU, b->hour, b->hour + HOUR), "a;b=300 a;c=120");
    assert_string_equal(ask(b, BED_CPU, b->hour + 130, b->hour + 131), "a;b=50 a;c=20");
    assert_int_equal(rows(b, &p), -1);
    check(b);
}

/* The first request of a service finds no floors yet: it is stored as it is. */
static void test_first(void **state)
{
    struct bed *b = *state;

    assert_int_equal(
        rows(b,
             &(struct bed_push){
                 .stacks = "a=1", .slot = b->hour, .times = 20, .every = 12, .wid = 1 }),
        20);
    store_bed_seal(&b->s);
    assert_string_equal(ask(b, BED_CPU, b->hour, b->hour + HOUR), "a=20");
    check(b);
}

/* Leaves that are kept stay leaves. */
static void test_recent(void **state)
{
    struct bed *b = *state;
    uint32_t now = store_bed_slot(&b->s) / HOUR * HOUR;

    begin(b, NULL, false);
    assert_int_equal(
        rows(b,
             &(struct bed_push){
                 .stacks = "a=1", .slot = now - HOUR, .times = 20, .every = 1, .wid = 2 }),
        20);
    assert_string_equal(ask(b, BED_CPU, now - HOUR, now - HOUR + 2), "a=2");
}

static void test_gauge(void **state)
{
    struct bed *b = *state;

    begin(b, GAUGE, true);
    assert_int_equal(rows(b, &(struct bed_push){ .stacks = "a=6",
                                                 .slot = b->hour,
                                                 .type = GAUGE,
                                                 .gauge = true,
                                                 .times = 10,
                                                 .every = 12,
                                                 .wid = 2 }),
                     10);
    store_bed_seal(&b->s);
    check(b);
}

/* Behind the horizon of write ids, under other floors: rows are found by the slots of vectors. */
static void test_again_later(void **state)
{
    struct bed *b = *state;
    uint32_t then = (store_bed_slot(&b->s) - 20 * 24 * HOUR) / HOUR * HOUR;
    struct bed_push p = { .stacks = "a=1", .slot = then, .times = 60, .every = 6, .wid = 2 };
    struct err e;
    bool more = true;

    begin(b, NULL, false);
    assert_int_equal(rows(b, &p), 30); /* minutes */
    for (int i = 0; i < 15 * 24; i++) {
        clock_fake_advance(&b->s.clock, 3600000);
        (void)store_now(b->s.s);
    }
    while (more)
        assert_int_equal(store_retain(b->s.s, 1000, &more, &e), 0);
    assert_int_equal(rows(b, &p), -1);
    p.wid = 3;
    p.slot += 3;
    assert_int_equal(rows(b, &p), 3); /* nodes of 10 m by now */
    store_bed_seal(&b->s);
    assert_string_equal(ask(b, BED_CPU, then, then + HOUR), "a=120");
    check(b);
}

static void test_saturated(void **state)
{
    struct bed *b = *state;
    struct bed_push p = {
        .stacks = "a=" MAX_STR " b=7", .slot = b->hour, .times = 3, .every = 12, .wid = 2
    };

    begin(b, NULL, false);
    assert_int_equal(rows(b, &p), 1);
    assert_string_equal(ask(b, BED_CPU, b->hour, b->hour + 120), "a=" MAX_STR " b=21");
    store_bed_seal(&b->s);
    assert_string_equal(ask(b, BED_CPU, b->hour, b->hour + 120), "a=" MAX_STR " b=21");
    check(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_nodes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_first, setup, teardown),
        cmocka_unit_test_setup_teardown(test_recent, setup, teardown),
        cmocka_unit_test_setup_teardown(test_gauge, setup, teardown),
        cmocka_unit_test_setup_teardown(test_again_later, setup, teardown),
        cmocka_unit_test_setup_teardown(test_saturated, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

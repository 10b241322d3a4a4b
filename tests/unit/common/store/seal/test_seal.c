/* SPDX-License-Identifier: Apache-2.0
 *
 * Sealing: raw rows of a minute that is over become leaves, once, in entries of a bounded size.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "common/base/size.h"
#include "common/store/check/check.h"
#include "common/store/kv/kv_impl.h"
#include "common/store/state/store_impl.h"
#include "tests/lib/store/store_bed.h"

static struct store_bed bed;
static uint32_t now; /* slot, start of a minute */

static int setup(void **state)
{
    struct store_opts o = {
        .dict_bytes_max = 64 * MIB,
        .seal_delay_ms = 30000,
        .wid_horizon_ms = 4 * 3600 * 1000,
        .seed = 42,
    };
    (void)state;
    store_bed_init(&bed, &o);
    now = store_bed_slot(&bed) / 12 * 12;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    store_bed_deinit(&bed);
    return 0;
}

static struct store_stats stats(void)
{
    struct store_stats st;

    store_stats(bed.s, &st);
    return st;
}

static const char *all(void)
{
    return store_bed_merge(&bed, NULL, "{}", NULL, now - 100, now + 100);
}

static void test_seal(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 24; i++)
        store_bed_push(&bed, &(struct bed_push){ .slot = now + i,
                                                 .wid = 1 + i,
                                                 .labels = i % 2 ? "pod=a" : "pod=b",
                                                 .stacks = "a;b=5 c=1" });
    assert_int_equal(stats().raw_rows, 24);
    store_bed_seal(&bed); /* the first minute is not over */
    assert_int_equal(stats().raw_rows, 24);
    assert_true(store_seal_wait_ms(bed.s) > 0);
    clock_fake_advance(&bed.clock, 60000 + 30000);
    assert_int_equal(store_seal_wait_ms(bed.s), 0);
    store_bed_seal(&bed);
    assert_int_equal(stats().raw_rows, 12);
    assert_int_equal(stats().applied, 1);
    assert_string_equal(all(), "a;b=120 c=24");
    assert_string_equal(store_bed_merge(&bed, NULL, "{pod=\"a\"}", NULL, now, now + 24),
                        "a;b=60 c=12");
    /* Late: stays raw until the next seal, then joins its leaf. */
    store_bed_push(&bed, &(struct bed_push){ .slot = now + 1, .wid = 100, .stacks = "a;b=5" });
    store_bed_push(&bed,
                   &(struct bed_push){
                       .slot = now + 1, .wid = 101, .labels = "pod=a", .stacks = "c=1 n;e;w=9" });
    assert_string_equal(all(), "a;b=125 c=25 n;e;w=9");
    clock_fake_advance(&bed.clock, 60000);
    store_bed_seal(&bed);
    assert_int_equal(stats().raw_rows, 0);
    assert_string_equal(all(), "a;b=125 c=25 n;e;w=9");
    store_bed_reopen(&bed, KV_MEM_KILL, 0);
    assert_string_equal(all(), "a;b=125 c=25 n;e;w=9");
    assert_int_equal(stats().applied, 2);
}

/* Engine time stands still behind a wall clock that went back; what comes late is sealed. */
static void test_seal_while_the_clock_is_back(void **state)
{
    struct bed_push p = { .slot = now, .wid = 1, .stacks = "a=1" };

    (void)state;
    store_bed_push(&bed, &p);
    clock_fake_advance(&bed.clock, 120000);
    store_bed_seal(&bed);
    clock_fake_jump(&bed.clock, -INT64_C(7200000));
    for (p.wid = 2; p.wid < 5; p.wid++) {
        store_bed_push(&bed, &p);
        assert_true(store_seal_wait_ms(bed.s) > 0);
        clock_fake_advance(&bed.clock, 10000);
        assert_int_equal(store_seal_wait_ms(bed.s), 0);
        store_bed_seal(&bed);
        assert_int_equal(stats().raw_rows, 0);
    }
    assert_string_equal(all(), "a=4");
}

static void test_lost_seal_is_done_again(void **state)
{
    (void)state;
    store_bed_push(&bed, &(struct bed_push){ .slot = now, .wid = 1, .stacks = "a=1" });
    store_bed_push(&bed, &(struct bed_push){ .slot = now, .wid = 2, .stacks = "a=1" });
    clock_fake_advance(&bed.clock, 120000);
    store_bed_seal(&bed);
    assert_int_equal(stats().applied, 1);
    store_bed_reopen(&bed, KV_MEM_POWER, 0); /* the seal was not synced */
    assert_int_equal(stats().applied, 0);
    assert_int_equal(stats().raw_rows, 2);
    assert_string_equal(all(), "a=2");
    store_bed_seal(&bed);
    assert_int_equal(stats().applied, 1);
    assert_string_equal(all(), "a=2");
}

/* Late rows stay raw, and are read as such; then they are sealed like all others. */
static void test_seal_what_is_fresh(void **state)
{
    struct err e;
    bool more;

    (void)state;
    store_bed_push(&bed, &(struct bed_push){ .slot = now, .wid = 1, .stacks = "a=1" });
    clock_fake_advance(&bed.clock, 200000);
    store_bed_seal(&bed);
    assert_int_equal(stats().applied, 1);
    store_bed_push(&bed, &(struct bed_push){ .slot = now, .wid = 2, .stacks = "a=2" });
    assert_int_equal(store_seal_fresh(bed.s, 10, &more, &e), 0);
    assert_int_equal(stats().applied, 1);
    store_bed_push(&bed, &(struct bed_push){ .slot = now + 36, .wid = 3, .stacks = "a=4" });
    clock_fake_advance(&bed.clock, 200000);
    assert_int_equal(store_seal_fresh(bed.s, 10, &more, &e), 0);
    assert_false(more);
    assert_int_equal(stats().applied, 2);
    assert_int_equal(stats().raw_rows, 1);
    assert_string_equal(store_bed_merge(&bed, NULL, "{}", NULL, now, now + 38), "a=7");
    store_bed_reopen(&bed, KV_MEM_KILL, 0);
    assert_int_equal(stats().raw_rows, 1);
    assert_string_equal(store_bed_merge(&bed, NULL, "{}", NULL, now, now + 38), "a=7");
    clock_fake_advance(&bed.clock, 20000);
    store_bed_seal(&bed);
    assert_int_equal(stats().raw_rows, 0);
    assert_string_equal(store_bed_merge(&bed, NULL, "{}", NULL, now, now + 38), "a=7");
}

/* An entry begins where the last one of its minutes ended; what came below it meanwhile is found
 * by one look more. */
static void test_seal_goes_on(void **state)
{
    struct bed_push p = { .slot = now, .stacks = "a=1" };
    bool more = true;
    struct err e;
    char labels[16];

    (void)state;
    p.labels = labels;
    for (unsigned i = 0; i < 5; i++) {
        (void)snprintf(labels, sizeof(labels), "pod=p%u", i);
        p.wid = i + 1;
        store_bed_push(&bed, &p);
    }
    clock_fake_advance(&bed.clock, 200000);
    for (unsigned i = 0; i < 3; i++) {
        struct key was = bed.s->seal_from;
        assert_int_equal(store_seal(bed.s, 1, &more, &e), 0);
        assert_true(more);
        assert_true(str_cmp(key_str(&bed.s->seal_from), key_str(&was)) > 0);
    }
    assert_int_equal(stats().raw_rows, 2);
    p.wid = 9;
    p.labels = "pod=p0";
    store_bed_push(&bed, &p);
    size_t entries = 0;
    for (; more; entries++)
        assert_int_equal(store_seal(bed.s, 1, &more, &e), 0);
    assert_int_equal(entries, 3);
    assert_int_equal(stats().raw_rows, 0);
    assert_int_equal(bed.s->seal_from.len, 0);
    assert_string_equal(store_bed_merge(&bed, NULL, "{}", NULL, now, now + 2), "a=6");
}

/* Replicas exchange batches of limited size; a larger batch ends all writing. So a seal takes fewer
 * rows where it must: of large rows, and of small ones that change large leaves. */
static void test_seal_in_small_batches(void **state)
{
    static char stacks[64 * KIB];
    char labels[16];
    size_t n = 0;

    (void)state;
    for (unsigned i = 0; i < 1000; i++)
        n += (size_t)snprintf(stacks + n, sizeof(stacks) - n, "%sm;f%u=%u", i ? " " : "", i,
                              1000000007u * (i + 1));
    for (unsigned late = 0; late < 2; late++) {
        bed.s->kv->batch_max = 0;
        for (unsigned i = 0; i < 40; i++) {
            struct bed_push p = { .labels = labels,
                                  .slot = now,
                                  .wid = 100 * late + i + 1,
                                  .stacks = late ? "m;f1=1" : stacks };
            (void)snprintf(labels, sizeof(labels), "pod=p%u", i);
            assert_int_equal(store_bed_push(&bed, &p), 1);
        }
        clock_fake_advance(&bed.clock, 120000);
        uint64_t before = stats().applied;
        bed.s->kv->batch_max = 64 * KIB;
        store_bed_seal(&bed);
        assert_false(store_read_only(bed.s));
        assert_int_equal(stats().raw_rows, 0);
        assert_true(stats().applied > before + 2);
    }
    struct check_report report;
    struct err e;
    struct store_view *v = store_view_get(bed.s);
    assert_int_equal(store_check(v, &report, &e), 0);
    store_view_put(v);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_seal),
        T(test_seal_while_the_clock_is_back),
        T(test_lost_seal_is_done_again),
        T(test_seal_what_is_fresh),
        T(test_seal_goes_on),
        T(test_seal_in_small_batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

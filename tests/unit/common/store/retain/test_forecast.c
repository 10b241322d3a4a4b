/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <time.h>

#include "common/base/prng.h"
#include "common/store/build/build.h"
#include "common/store/retain/forecast.h"
#include "common/store/retain/retain.h"
#include "tests/lib/store/store_bed.h"

#define DAY UINT64_C(86400000)

static void test_history(void **state)
{
    struct forecast_history h = { 0 }, back;
    int64_t per_day = 0;
    struct buf row;
    struct err e;

    (void)state;
    buf_init(&row, KIB);
    assert_false(forecast_measured(&h, &per_day));
    forecast_add(&h, 10, 100);
    assert_false(forecast_measured(&h, &per_day));
    forecast_add(&h, 11, 150);
    assert_true(forecast_measured(&h, &per_day));
    assert_int_equal(per_day, 50);
    forecast_add(&h, 11, 160);    /* the same day again */
    forecast_add(&h, 10, 7);      /* a day in the past */
    forecast_add(&h, 12, 100160); /* a day of imports does not count */
    forecast_add(&h, 14, 100300); /* 70 a day over two days */
    assert_int_equal(h.len, 4);
    assert_true(forecast_measured(&h, &per_day));
    assert_int_equal(per_day, 70);
    forecast_encode(&h, &row);
    assert_int_equal(row.len, 41);
    assert_int_equal(forecast_decode(buf_str(&row), &back, &e), 0);
    assert_memory_equal(&h, &back, sizeof(h));
    assert_int_equal(forecast_decode(str_n(row.ptr, row.len - 1), &back, &e), ERR_CORRUPT);
    row.ptr[0] = 2;
    assert_int_equal(forecast_decode(buf_str(&row), &back, &e), ERR_CORRUPT);
    row.ptr[0] = 1;
    row.ptr[12] = 1; /* the second day before the first */
    assert_int_equal(forecast_decode(buf_str(&row), &back, &e), ERR_CORRUPT);
    for (uint16_t day = 20; day < 100; day++)
        forecast_add(&h, day, day);
    assert_int_equal(h.len, FORECAST_DAYS);
    assert_int_equal(h.at[0].day, 100 - FORECAST_DAYS);
    buf_deinit(&row);
}

/* 10 s for 7 days at 100 a day, 1 h for 400 days at 2 a day: ends at 1,500. */
static struct forecast_in two_levels(uint64_t age)
{
    struct forecast_in in = { 0 };

    in.levels[0] = (struct forecast_level){ 100 * MIN(age, 7), MIN(age, 7) * DAY, 7 * DAY };
    in.levels[3] = (struct forecast_level){ 2 * MIN(age, 400), MIN(age, 400) * DAY, 400 * DAY };
    in.bytes = in.levels[0].bytes + in.levels[3].bytes;
    return in;
}

static void test_levels_fill_and_stay(void **state)
{
    struct forecast_in in = two_levels(2);
    struct forecast f;

    (void)state;
    forecast_make(&in, 10000, &f);
    assert_int_equal(f.bytes, 204);
    assert_int_equal(f.growth_per_day, 102);
    assert_int_equal(f.freed_per_day, 0);
    assert_int_equal(f.settles_bytes, 1500);
    assert_int_equal(f.days_left, FORECAST_FOREVER);
    forecast_make(&in, 102 * 3, &f);
    assert_int_equal(f.days_left, 2); /* on the third it is reached */
    /* After five days only 1 h grows. */
    forecast_make(&in, 102 * 5 + 2 * 100, &f);
    assert_int_equal(f.days_left, 104);
    forecast_make(&in, 0, &f);
    assert_int_equal(f.days_left, 0);
    in = two_levels(500);
    forecast_make(&in, 1, &f);
    assert_int_equal(f.growth_per_day, 0);
    assert_int_equal(f.freed_per_day, 102);
    assert_int_equal(f.settles_bytes, 1500);
    assert_int_equal(f.days_left, FORECAST_FOREVER);
}

static void test_the_rest_grows(void **state)
{
    struct forecast_in in = two_levels(500), all = { 0 };
    struct forecast f;

    (void)state;
    in.bytes += 1000;
    forecast_make(&in, 1000, &f); /* 1,000 in 400 days: 2.5 a day, as long as nothing is measured */
    assert_int_equal(f.days_left, 399);
    for (uint16_t day = 1; day < 9; day++)
        forecast_add(&in.history, day, 10 * day);
    forecast_make(&in, 1000, &f);
    assert_int_equal(f.growth_per_day, 10);
    assert_int_equal(f.settles_bytes, 0);
    assert_int_equal(f.days_left, 99);
    /* Two shards of one disk. */
    forecast_unite(&all, &in);
    forecast_unite(&all, &in);
    forecast_make(&all, 1000, &f);
    assert_int_equal(f.bytes, 2 * in.bytes);
    assert_int_equal(f.growth_per_day, 20);
    assert_int_equal(f.days_left, 49);
    /* Kept permanently. */
    in = two_levels(10);
    in.levels[3].keep_ms = 0;
    forecast_make(&in, 200, &f);
    assert_int_equal(f.settles_bytes, 0);
    assert_int_equal(f.days_left, 99);
}

/* Beside a day by day simulation. */
static void test_against_days(void **state)
{
    uint64_t seed = getenv("SEED") ? strtoull(getenv("SEED"), NULL, 0) : (uint64_t)time(NULL);
    struct prng p;

    (void)state;
    print_message("SEED=%" PRIu64 "\n", seed);
    prng_init(&p, seed);
    for (size_t round = 0; round < 300; round++) {
        uint64_t rate[KEY_LEVELS], age = 1 + prng_below(&p, 600), now = 0, room;
        struct forecast_in in = { 0 };
        struct forecast f;
        uint32_t day = 0;

        for (uint32_t l = 0; l < KEY_LEVELS; l++) {
            uint64_t keep = 1 + prng_below(&p, 400), span = MIN(age, keep);

            rate[l] = prng_below(&p, 1000);
            in.levels[l] = (struct forecast_level){ rate[l] * span, span * DAY, keep * DAY };
            now += rate[l] * span;
        }
        in.bytes = now;
        room = prng_below(&p, 300000);
        forecast_make(&in, room, &f);
        for (; day < FORECAST_DAYS_MAX; day++) {
            uint64_t then = 0;

            for (uint32_t l = 0; l < KEY_LEVELS; l++)
                then += rate[l] * MIN(age + day + 1, in.levels[l].keep_ms / DAY);
            if (then >= now + room)
                break;
        }
        assert_int_equal(f.days_left, day == FORECAST_DAYS_MAX ? FORECAST_FOREVER : day);
    }
}

/* What a shard says of itself, and that its history outlives it. */
static void test_of_a_shard(void **state)
{
    struct store_opts o = { .dict_bytes_max = 16 * MIB, .build_all = true };
    struct retain_policy_opts po = { .keep = retain_keep_default(), .interval_ms = 1000 };
    struct retain_policy *policy;
    struct forecast_in in;
    struct store_bed b;
    struct err e;

    (void)state;
    assert_int_equal(retain_policy_new(&po, &policy, &e), 0);
    store_bed_init(&b, &o);
    store_set_retention(b.s, policy);
    assert_false(store_forecast_own(b.s, &in));
    for (uint32_t day = 0; day < 5; day++) {
        bool more = true;

        assert_int_equal(store_bed_push(&b, &(struct bed_push){ .stacks = "a=1",
                                                                .slot = store_bed_slot(&b),
                                                                .wid = day + 1 }),
                         1);
        for (size_t i = 0; i < 288; i++)
            clock_fake_advance(&b.clock, (int64_t)(DAY / 288));
        store_bed_seal(&b);
        while (more)
            assert_int_equal(store_retain(b.s, 100, &more, &e), 0);
    }
    assert_true(store_forecast_own(b.s, &in));
    assert_true(in.history.len >= 5);
    assert_true(in.levels[0].span_ms >= 4 * DAY && in.levels[0].span_ms <= 6 * DAY);
    assert_int_equal(in.levels[0].keep_ms, 7 * DAY);
    assert_true(in.levels[0].bytes > 0);
    store_bed_reopen(&b, KV_MEM_KILL, 0);
    store_set_retention(b.s, policy);
    bool more = true;
    while (more)
        assert_int_equal(store_retain(b.s, 100, &more, &e), 0);
    struct forecast_history before = in.history;
    assert_true(store_forecast_own(b.s, &in));
    assert_int_equal(in.history.len, before.len);
    store_bed_deinit(&b);
    retain_policy_unref(policy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_history),        cmocka_unit_test(test_levels_fill_and_stay),
        cmocka_unit_test(test_the_rest_grows), cmocka_unit_test(test_against_days),
        cmocka_unit_test(test_of_a_shard),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

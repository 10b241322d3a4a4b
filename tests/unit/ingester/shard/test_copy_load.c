/* SPDX-License-Identifier: Apache-2.0
 *
 * How much copies take and store: they are weighed once a second.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ingester/shard/copy_load.h"
#include "ingester/shard/shards.h"

static uint64_t rate_of(struct copy_load *w, uint32_t shard, uint64_t appended)
{
    struct progress_shard p = { .shard = shard };

    copy_load_report(w, appended, 1000, &p);
    return p.rate;
}

/* Slow up, slow down; bytes that were stored before the first look give no rate. */
static void test_rate(void **state)
{
    (void)state;
    struct copy_load *w = copy_load_new();
    uint64_t at = UINT64_C(1) << 40, rate = 0, before;

    assert_int_equal(rate_of(w, 3, at), 0);
    copy_load_end(w);
    for (int s = 0; s < 30; s++) {
        before = rate;
        rate = rate_of(w, 3, at += 100000);
        assert_true(rate >= before);
        copy_load_end(w);
    }
    assert_in_range(rate, 60000, 66000); /* two thirds after half a minute */
    for (int s = 0; s < 300; s++) {
        rate = rate_of(w, 3, at += 100000);
        copy_load_end(w);
    }
    assert_in_range(rate, 98000, 100000);
    /* Reopened: it counts from 0, and no rate is made of that. */
    before = rate;
    rate = rate_of(w, 3, 5);
    assert_in_range(rate, before * 9 / 10, before);
    copy_load_end(w);
    for (int s = 0; s < 900; s++) {
        rate = rate_of(w, 3, 5);
        copy_load_end(w);
    }
    assert_int_equal(rate, 0);
    copy_load_free(w);
}

static void test_two_digits(void **state)
{
    (void)state;
    struct copy_load *w = copy_load_new();
    struct progress_shard p = { .shard = 1 };

    copy_load_report(w, 0, 1000, &p);
    copy_load_stored(w, 1, 123456789);
    copy_load_report(w, 0, 1000, &p);
    assert_int_equal(p.bytes, 120000000);
    copy_load_stored(w, 1, 99);
    copy_load_report(w, 0, 1000, &p);
    assert_int_equal(p.bytes, 99);
    copy_load_stored(w, 2, 7); /* no replica of shard 2 is here: its bytes are dropped */
    p.shard = 2;
    p.bytes = 1;
    copy_load_report(w, 0, 1000, &p);
    assert_int_equal(p.bytes, 0);
    copy_load_free(w);
}

/* Each gets its turn within as many periods as there are lines, or soon where those are few, one at
 * a time. */
static void turns(uint32_t shards, int periods)
{
    struct copy_load *w = copy_load_new();
    uint32_t turns[SHARDS_MAX] = { 0 };

    for (int period = 0; period < periods; period++) {
        uint32_t now = 0;

        for (uint32_t s = 0; s < shards; s++) {
            (void)rate_of(w, s * 100, 0);
            now += copy_load_turn(w, s * 100);
            turns[s] += copy_load_turn(w, s * 100);
        }
        assert_true(now <= 1);
        copy_load_end(w);
    }
    for (uint32_t s = 0; s < shards; s++)
        assert_int_equal(turns[s], 1);
    assert_false(copy_load_turn(w, 7));
    copy_load_free(w);
}

static void test_turns(void **state)
{
    (void)state;
    turns(1, 16);
    turns(5, 16);
    turns(16, 16);
    turns(40, 40);
    turns(SHARDS_MAX, SHARDS_MAX);
}

/* A copy that was not weighed for a period starts from 0. There is always room
 * for weighed copies. */
static void test_forgets(void **state)
{
    (void)state;
    struct copy_load *w = copy_load_new();

    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t s = 0; s < SHARDS_MAX; s++) {
            assert_int_equal(rate_of(w, round * 1000 + s, 100), 0);
            copy_load_stored(w, round * 1000 + s, 50);
        }
        assert_int_equal(rate_of(w, 9999, 5000), 0); /* one too many is not told */
        copy_load_end(w);
    }
    struct progress_shard p = { .shard = 1000 };
    copy_load_end(w);
    copy_load_report(w, 1000000, 1000, &p);
    assert_true(p.rate == 0 && p.bytes == 0);
    copy_load_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rate),
        cmocka_unit_test(test_two_digits),
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_forgets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/rate_estimate.h"

static uint64_t rate(const struct rate_estimate *s)
{
    uint64_t r = 0;

    assert_true(rate_estimate_of(s, &r));
    return r;
}

static void test_known_when(void **state)
{
    struct rate_estimate s = { 0 };
    uint64_t r = 7;

    (void)state;
    assert_false(rate_estimate_of(&s, &r));
    rate_estimate_note(&s, 50, 1000);
    assert_false(rate_estimate_of(&s, &r));
    for (uint64_t ms = 150; ms < 50 + RATE_ESTIMATE_LEAST_MS; ms += 100) {
        rate_estimate_note(&s, ms, 1000 + ms);
        assert_false(rate_estimate_of(&s, &r));
    }
    assert_int_equal(r, 7);
    rate_estimate_note(&s, 50 + RATE_ESTIMATE_LEAST_MS, 1000 + 5 * RATE_ESTIMATE_LEAST_MS);
    assert_int_equal(rate(&s), 5000);
}

/* The last quarter of a minute counts, however often values are added. */
static void test_window(void **state)
{
    (void)state;
    for (uint64_t every = 10; every <= 3000; every += 299) {
        struct rate_estimate s = { 0 };
        uint64_t ms = 0, value = 0;

        for (; ms < 100000; ms += every, value += every)
            rate_estimate_note(&s, ms, value);
        assert_in_range(rate(&s), 999, 1001);
        for (uint64_t until = ms + 60000; ms < until; ms += every)
            rate_estimate_note(&s, ms, value); /* it stands still */
        assert_int_equal(rate(&s), 0);
        assert_true(s.len <= RATE_ESTIMATE_POINTS);
    }
}

static void test_begins_anew(void **state)
{
    struct rate_estimate s = { 0 };
    uint64_t r;

    (void)state;
    for (uint64_t ms = 0; ms <= 10000; ms += 500)
        rate_estimate_note(&s, ms, ms);
    assert_int_equal(rate(&s), 1000);
    rate_estimate_note(&s, 10500, 3); /* another copy */
    assert_false(rate_estimate_of(&s, &r));
    rate_estimate_note(&s, 20500, UINT64_MAX / 2);
    assert_true(rate(&s) > UINT64_MAX / 2 / 11);
    rate_estimate_note(&s, 20000, UINT64_MAX); /* no such clock; no wrong number either */
    assert_false(rate_estimate_of(&s, &r));
}

static void test_left(void **state)
{
    (void)state;
    assert_int_equal(rate_estimate_left_s(0, 0), 0);
    assert_true(rate_estimate_left_s(0, 1) == RATE_ESTIMATE_NEVER);
    assert_int_equal(rate_estimate_left_s(10, 0), 0);
    assert_int_equal(rate_estimate_left_s(10, 1), 1);
    assert_int_equal(rate_estimate_left_s(10, 30), 3);
    assert_int_equal(rate_estimate_left_s(10, 31), 4);
    assert_true(rate_estimate_left_s(1, UINT64_MAX - 1) == UINT64_MAX - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_when),
        cmocka_unit_test(test_window),
        cmocka_unit_test(test_begins_anew),
        cmocka_unit_test(test_left),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

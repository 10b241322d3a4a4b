/* SPDX-License-Identifier: Apache-2.0
 *
 * Engine time: never back, no jumps, and on again by itself.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <time.h>

#include <cmocka.h>

#include "common/base/prng.h"
#include "common/store/eclock.h"

#define START INT64_C(1750000000000)

static void test_follows_the_wall(void **state)
{
    struct clock_fake f;
    struct eclock c;

    (void)state;
    clock_fake_init(&f, START);
    eclock_init(&c, &f.clock, -1);
    assert_int_equal(eclock_now(&c), START);
    clock_fake_advance(&f, 3600 * 1000);
    assert_int_equal(eclock_now(&c), START + 3600 * 1000);
    clock_fake_jump(&f, ECLOCK_SLACK_MS); /* small enough to believe */
    assert_int_equal(eclock_now(&c), START + 3600 * 1000 + ECLOCK_SLACK_MS);
    assert_false(c.paused);
}

static void test_back_is_a_stop(void **state)
{
    struct clock_fake f;
    struct eclock c;

    (void)state;
    clock_fake_init(&f, START);
    eclock_init(&c, &f.clock, START + 5000); /* what is on disk is newer */
    assert_int_equal(eclock_now(&c), START + 5000);
    clock_fake_advance(&f, 4000);
    assert_int_equal(eclock_now(&c), START + 5000);
    clock_fake_advance(&f, 4000);
    assert_int_equal(eclock_now(&c), START + 8000);
    clock_fake_jump(&f, -1000000);
    assert_int_equal(eclock_now(&c), START + 8000);
    assert_false(c.paused);
}

static void test_jump_pauses(void **state)
{
    struct clock_fake f;
    struct eclock c;

    (void)state;
    clock_fake_init(&f, START);
    eclock_init(&c, &f.clock, -1);
    clock_fake_jump(&f, ECLOCK_SLACK_MS + 1);
    assert_int_equal(eclock_now(&c), START);
    assert_true(c.paused);
    assert_int_equal(c.ahead_ms, ECLOCK_SLACK_MS + 1);
    clock_fake_advance(&f, ECLOCK_SETTLE_MS - 1000);
    assert_int_equal(eclock_now(&c), START + ECLOCK_SETTLE_MS - 1000);
    assert_true(c.paused);
    clock_fake_jump(&f, 86400 * 1000); /* another one: the wait begins again */
    assert_int_equal(eclock_now(&c), START + ECLOCK_SETTLE_MS - 1000);
    clock_fake_advance(&f, ECLOCK_SETTLE_MS - 1000);
    (void)eclock_now(&c);
    assert_true(c.paused);
    clock_fake_advance(&f, 1000);
    assert_int_equal(eclock_now(&c), atomic_load(&f.wall_ms));
    assert_false(c.paused);
}

static void test_jump_that_goes_away(void **state)
{
    struct clock_fake f;
    struct eclock c;

    (void)state;
    clock_fake_init(&f, START);
    eclock_init(&c, &f.clock, -1);
    clock_fake_jump(&f, 7200 * 1000);
    (void)eclock_now(&c);
    assert_true(c.paused);
    clock_fake_advance(&f, 60000);
    clock_fake_jump(&f, -7200 * 1000);
    assert_int_equal(eclock_now(&c), START + 60000);
    assert_false(c.paused);
}

/* Whatever the wall does, engine time never goes back and never leaps. */
static void test_random(void **state)
{
    struct clock_fake f;
    struct eclock c;
    struct prng p;
    uint64_t seed = (uint64_t)time(NULL);

    (void)state;
    printf("SEED=%" PRIu64 "\n", seed);
    prng_init(&p, seed);
    clock_fake_init(&f, START);
    eclock_init(&c, &f.clock, -1);
    int64_t before = eclock_now(&c);
    for (int i = 0; i < 10000; i++) {
        int64_t step = (int64_t)prng_below(&p, 30000);
        clock_fake_advance(&f, step);
        if (prng_chance(&p, 0.05))
            clock_fake_jump(&f, (int64_t)prng_below(&p, 86400000) - 43200000);
        bool was = c.paused;
        int64_t now = eclock_now(&c);
        assert_true(now >= before);
        if (!was && !c.paused)
            assert_true(now <= before + step + ECLOCK_SLACK_MS);
        before = now;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_follows_the_wall), cmocka_unit_test(test_back_is_a_stop),
        cmocka_unit_test(test_jump_pauses),      cmocka_unit_test(test_jump_that_goes_away),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

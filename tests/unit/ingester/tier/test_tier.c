/* SPDX-License-Identifier: Apache-2.0
 *
 * When data are old enough for the cold tier, by clocks that go, jump and stand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/model/slot.h"
#include "common/store/codec/keys.h"
#include "common/store/state/engine_clock.h"
#include "ingester/tier/tier.h"

#define DAY_MS  INT64_C(86400000)
#define HOUR_MS INT64_C(3600000)

static struct clock_fake fake;
static struct engine_clock engine;

static uint32_t before(void)
{
    struct store_clock s = { .engine_ms = engine_clock_now(&engine) };

    s.held = engine.held;
    return tier_before(&s, clock_wall_ms(&fake.clock), (uint64_t)DAY_MS);
}

static void test_clocks(void **state)
{
    int64_t begin = SLOT_EPOCH_MS + 1000 * DAY_MS;

    (void)state;
    clock_fake_init(&fake, begin);
    engine_clock_init(&engine, &fake.clock, begin);
    assert_int_equal(before(), 999 * DAY_SLOTS);
    clock_fake_advance(&fake, 60000);
    assert_int_equal(before(), 999 * DAY_SLOTS + 12);

    /* A year ahead and back again at once: nothing leaves that is not old. */
    clock_fake_jump(&fake, 365 * DAY_MS);
    assert_int_equal(before(), 0);
    clock_fake_advance(&fake, 10000);
    assert_int_equal(before(), 0);
    clock_fake_jump(&fake, -365 * DAY_MS);
    assert_int_equal(before(), 999 * DAY_SLOTS + 14);

    /* An hour ahead, and it stays so: believed once it has gone on from there for a while. */
    clock_fake_jump(&fake, HOUR_MS);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(before(), 0);
        clock_fake_advance(&fake, 10000);
    }
    for (int i = 0; i < 12; i++) {
        (void)before();
        clock_fake_advance(&fake, 10000);
    }
    assert_int_equal(before(), 999 * DAY_SLOTS + 720 + 14 + 36);

    /* Behind: what would leave waits until the wall clock is there, too. */
    clock_fake_jump(&fake, -DAY_MS);
    assert_int_equal(before(), 998 * DAY_SLOTS + 720 + 14 + 36);
    clock_fake_jump(&fake, -1000 * DAY_MS);
    assert_int_equal(before(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_clocks) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

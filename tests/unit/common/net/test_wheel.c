/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>

#include "common/base/prng.h"
#include "common/net/wheel.h"

enum { ENTRIES = 200 };

struct one {
    struct wheel_entry entry;
    uint64_t want_ms; /* 0: not set */
    int fired;
};
static struct {
    struct clock_fake clock;
    struct loop *loop;
    struct wheel wheel;
    struct one all[ENTRIES];
    uint64_t worst_ms;
} t;

static uint64_t now_ms(void)
{
    return clock_mono_ms(&t.clock.clock);
}

static void on_expired(struct wheel_entry *e)
{
    struct one *o = container_of(e, struct one, entry);

    assert_true(o->want_ms != 0 && now_ms() >= o->want_ms);
    if (now_ms() - o->want_ms > t.worst_ms)
        t.worst_ms = now_ms() - o->want_ms;
    o->want_ms = 0;
    o->fired++;
}

static void set(struct one *o, uint64_t due_ms)
{
    o->want_ms = due_ms;
    wheel_set(&t.wheel, &o->entry, due_ms);
}

static void pass(uint64_t ms)
{
    uint64_t until = clock_mono_ns(&t.clock.clock) + ms * 1000000, at;

    while (loop_sim_next(t.loop, &at) && at <= until)
        (void)loop_sim_step(t.loop);
    if (clock_mono_ns(&t.clock.clock) < until)
        clock_fake_advance(&t.clock, (int64_t)((until - clock_mono_ns(&t.clock.clock)) / 1000000));
}

static int up(void **state)
{
    (void)state;
    memset(&t, 0, sizeof(t));
    clock_fake_init(&t.clock, 1750000000000);
    t.loop = loop_sim_new(&t.clock);
    wheel_init(&t.wheel, t.loop, on_expired);
    return 0;
}

static int down(void **state)
{
    (void)state;
    wheel_deinit(&t.wheel);
    loop_free(t.loop);
    return 0;
}

static void test_one_deadline(void **state)
{
    uint64_t at;

    (void)state;
    set(&t.all[0], now_ms() + 1000);
    pass(999);
    assert_int_equal(t.all[0].fired, 0);
    pass(101);
    assert_int_equal(t.all[0].fired, 1);
    assert_false(loop_sim_next(t.loop, &at)); /* no timer without entries */
}

static void test_later_then_earlier(void **state)
{
    (void)state;
    set(&t.all[0], now_ms() + 1000);
    set(&t.all[0], now_ms() + 5000); /* stays where it is, looked at again */
    pass(4900);
    assert_int_equal(t.all[0].fired, 0);
    set(&t.all[0], now_ms() + 3600000);
    set(&t.all[0], now_ms() + 200);
    pass(300);
    assert_int_equal(t.all[0].fired, 1);
    set(&t.all[0], now_ms() + 300);
    wheel_clear(&t.wheel, &t.all[0].entry);
    wheel_clear(&t.wheel, &t.all[0].entry);
    pass(3600000);
    assert_int_equal(t.all[0].fired, 1);
}

static void on_expired_again(struct wheel_entry *e)
{
    struct one *o = container_of(e, struct one, entry);

    wheel_clear(&t.wheel, &t.all[1].entry); /* due at the same time: must not fire */
    if (++o->fired < 3)
        wheel_set(&t.wheel, e, now_ms());
}

static void test_changes_from_inside(void **state)
{
    (void)state;
    t.wheel.expired = on_expired_again;
    set(&t.all[0], now_ms() + 500);
    set(&t.all[1], now_ms() + 500);
    pass(2000);
    assert_int_equal(t.all[0].fired, 3);
    assert_int_equal(t.all[1].fired, 0);
}

static void test_clock_jump(void **state)
{
    (void)state;
    for (size_t i = 0; i < ENTRIES; i++)
        set(&t.all[i], now_ms() + 100 * i);
    clock_fake_advance(&t.clock, 86400000);
    pass(1);
    for (size_t i = 0; i < ENTRIES; i++)
        assert_int_equal(t.all[i].fired, 1);
}

/* Against the obvious model: each due timer has fired at most two ticks later, never early. */
static void test_random(void **state)
{
    struct prng p;
    const uint64_t seed = getenv("SEED") ? strtoull(getenv("SEED"), NULL, 0) : 20260101;

    (void)state;
    print_message("SEED=%" PRIu64 "\n", seed);
    prng_init(&p, seed);
    for (int step = 0; step < 20000; step++) {
        struct one *o = &t.all[prng_below(&p, ENTRIES)];
        uint64_t most = prng_chance(&p, 0.1) ? 100000 : 2000;

        if (prng_chance(&p, 0.2)) {
            wheel_clear(&t.wheel, &o->entry);
            o->want_ms = 0;
        } else {
            set(o, now_ms() + prng_below(&p, most));
        }
        pass(prng_below(&p, 20));
        for (size_t i = 0; i < ENTRIES; i++)
            assert_true(!t.all[i].want_ms ||
                        now_ms() < t.all[i].want_ms + 2 * (uint64_t)WHEEL_TICK_MS);
    }
    pass(200000);
    for (size_t i = 0; i < ENTRIES; i++)
        assert_int_equal(t.all[i].want_ms, 0);
    assert_true(t.worst_ms < 2 * (uint64_t)WHEEL_TICK_MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_one_deadline, up, down),
        cmocka_unit_test_setup_teardown(test_later_then_earlier, up, down),
        cmocka_unit_test_setup_teardown(test_changes_from_inside, up, down),
        cmocka_unit_test_setup_teardown(test_clock_jump, up, down),
        cmocka_unit_test_setup_teardown(test_random, up, down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

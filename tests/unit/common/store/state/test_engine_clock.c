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
#include "common/store/state/engine_clock.h"

#define START   INT64_C(1750000000000)
#define MIN_MS  INT64_C(60000)
#define HOUR_MS INT64_C(3600000)
#define DAY_MS  (24 * HOUR_MS)
#define YEAR_MS (365 * DAY_MS)

static void test_follows_the_wall(void **state)
{
    struct clock_fake f;
    struct engine_clock c;

    (void)state;
    clock_fake_init(&f, START);
    engine_clock_init(&c, &f.clock, -1);
    assert_int_equal(engine_clock_now(&c), START);
    clock_fake_advance(&f, 3600 * 1000);
    assert_int_equal(engine_clock_now(&c), START + 3600 * 1000);
    clock_fake_jump(&f, ENGINE_CLOCK_SLACK_MS); /* small enough to believe */
    assert_int_equal(engine_clock_now(&c), START + 3600 * 1000 + ENGINE_CLOCK_SLACK_MS);
    assert_false(c.paused);
}

static void test_back_is_a_stop(void **state)
{
    struct clock_fake f;
    struct engine_clock c;

    (void)state;
    clock_fake_init(&f, START);
    engine_clock_init(&c, &f.clock, START + 5000); /* what is on disk is newer */
    assert_int_equal(engine_clock_now(&c), START + 5000);
    clock_fake_advance(&f, 4000);
    assert_int_equal(engine_clock_now(&c), START + 5000);
    clock_fake_advance(&f, 4000);
    assert_int_equal(engine_clock_now(&c), START + 8000);
    clock_fake_jump(&f, -1000000);
    assert_int_equal(engine_clock_now(&c), START + 8000);
    assert_false(c.paused);
}

static void test_jump_pauses(void **state)
{
    struct clock_fake f;
    struct engine_clock c;

    (void)state;
    clock_fake_init(&f, START);
    engine_clock_init(&c, &f.clock, -1);
    clock_fake_jump(&f, ENGINE_CLOCK_SLACK_MS + 1);
    assert_int_equal(engine_clock_now(&c), START);
    assert_true(c.paused);
    assert_int_equal(c.ahead_ms, ENGINE_CLOCK_SLACK_MS + 1);
    clock_fake_advance(&f, ENGINE_CLOCK_SETTLE_MS - 1000);
    assert_int_equal(engine_clock_now(&c), START + ENGINE_CLOCK_SETTLE_MS - 1000);
    assert_true(c.paused);
    clock_fake_jump(&f, 3600 * 1000); /* another one: the wait begins again */
    assert_int_equal(engine_clock_now(&c), START + ENGINE_CLOCK_SETTLE_MS - 1000);
    clock_fake_advance(&f, ENGINE_CLOCK_SETTLE_MS - 1000);
    (void)engine_clock_now(&c);
    assert_true(c.paused);
    clock_fake_advance(&f, 1000);
    assert_int_equal(engine_clock_now(&c), atomic_load(&f.wall_ms));
    assert_false(c.paused);
}

static void test_jump_that_goes_away(void **state)
{
    struct clock_fake f;
    struct engine_clock c;

    (void)state;
    clock_fake_init(&f, START);
    engine_clock_init(&c, &f.clock, -1);
    clock_fake_jump(&f, 7200 * 1000);
    (void)engine_clock_now(&c);
    assert_true(c.paused);
    clock_fake_advance(&f, 60000);
    clock_fake_jump(&f, -7200 * 1000);
    assert_int_equal(engine_clock_now(&c), START + 60000);
    assert_false(c.paused);
}

/* Whatever the wall does, engine time never goes back and never leaps. */
static void test_random(void **state)
{
    struct clock_fake f;
    struct engine_clock c;
    struct prng p;
    uint64_t seed = (uint64_t)time(NULL);

    (void)state;
    printf("SEED=%" PRIu64 "\n", seed);
    prng_init(&p, seed);
    clock_fake_init(&f, START);
    engine_clock_init(&c, &f.clock, -1);
    int64_t before = engine_clock_now(&c);
    for (int i = 0; i < 10000; i++) {
        int64_t step = (int64_t)prng_below(&p, 30000);
        clock_fake_advance(&f, step);
        if (prng_chance(&p, 0.05))
            clock_fake_jump(&f, (int64_t)prng_below(&p, 86400000) - 43200000);
        bool was = c.held;
        int64_t now = engine_clock_now(&c);
        assert_true(now >= before);
        if (!was && !c.held)
            assert_true(now <= before + step + ENGINE_CLOCK_SLACK_MS);
        before = now;
    }
}

/* In steps of a minute, as shards look. */
static void run(struct clock_fake *f, struct engine_clock *c, int64_t ms)
{
    for (; ms > 0; ms -= MIN_MS) {
        clock_fake_advance(f, MIN(ms, MIN_MS));
        (void)engine_clock_now(c);
    }
}

static void test_years_ahead(void **state)
{
    struct clock_fake f;
    struct engine_clock c;

    (void)state;
    clock_fake_init(&f, START);
    engine_clock_init(&c, &f.clock, START);
    clock_fake_jump(&f, 10 * YEAR_MS);
    assert_int_equal(engine_clock_now(&c), START);
    assert_true(c.held && c.paused);
    assert_int_equal(engine_clock_seal_ahead(&c), 0);
    run(&f, &c, 3 * MIN_MS); /* sealing goes by it, nothing else does */
    assert_true(c.held && !c.paused);
    assert_int_equal(engine_clock_seal_ahead(&c), 10 * YEAR_MS);
    run(&f, &c, 6 * DAY_MS);
    assert_true(c.held);
    assert_int_equal(engine_clock_now(&c), START + 6 * DAY_MS + 3 * MIN_MS);
    clock_fake_jump(&f, -10 * YEAR_MS); /* the operator corrected it: as if it had never been */
    assert_int_equal(engine_clock_now(&c), START + 6 * DAY_MS + 3 * MIN_MS);
    assert_false(c.held || c.paused);
    assert_int_equal(engine_clock_seal_ahead(&c), 0);

    clock_fake_jump(&f, 10 * YEAR_MS); /* what it stood before does not count */
    run(&f, &c, 6 * DAY_MS);
    assert_true(c.held);
    run(&f, &c, DAY_MS + 3 * MIN_MS); /* not corrected: a week is the most */
    assert_false(c.held);
    assert_int_equal(engine_clock_now(&c), atomic_load(&f.wall_ms));
}

static void test_wait(void **state)
{
    (void)state;
    assert_int_equal(engine_clock_wait_ms(HOUR_MS), 2 * MIN_MS);
    assert_int_equal(engine_clock_wait_ms(DAY_MS), 2 * MIN_MS);
    assert_int_equal(engine_clock_wait_ms(DAY_MS + 60), 24 * MIN_MS + 1);
    assert_int_equal(engine_clock_wait_ms(30 * DAY_MS), 12 * HOUR_MS);
    assert_int_equal(engine_clock_wait_ms(10 * YEAR_MS), 7 * DAY_MS);
}

/* A laptop that lay in a drawer for a month, and is used for two hours a day, with a restart or
 * asleep between. */
static void test_counts_over_restarts(void **state)
{
    struct clock_fake f;
    struct engine_clock c;
    int days = 0;

    (void)state;
    clock_fake_init(&f, START);
    engine_clock_init(&c, &f.clock, START - 30 * DAY_MS);
    (void)engine_clock_now(&c);
    for (; c.held && days < 20; days++) {
        run(&f, &c, 2 * HOUR_MS);
        if (!c.held)
            break;
        clock_fake_jump(&f, 22 * HOUR_MS);
        if (days % 2) {
            int64_t stored = c.base_ms, stood = c.stood_ms, wall = c.wall_ms;
            assert_true(stood > 0);
            engine_clock_init(&c, &f.clock, stored);
            engine_clock_stood(&c, stood, wall);
        }
        (void)engine_clock_now(&c);
    }
    assert_int_equal(days, 7); /* 30 days / 60, and what came on top */

    clock_fake_jump(&f, 30 * DAY_MS);
    run(&f, &c, 11 * HOUR_MS);
    assert_true(c.held);
    int64_t stood = c.stood_ms, wall = c.wall_ms, stored = c.base_ms;
    clock_fake_jump(&f, -10 * DAY_MS); /* what it showed was wrong: it may be wrong again */
    engine_clock_init(&c, &f.clock, stored);
    engine_clock_stood(&c, stood, wall);
    run(&f, &c, 2 * HOUR_MS);
    assert_true(c.held);
    clock_fake_jump(&f, -HOUR_MS);
    (void)engine_clock_now(&c);
    assert_int_equal(c.stood_ms, 0);
}

static void test_far_behind(void **state)
{
    struct clock_fake f;
    struct engine_clock c;

    (void)state;
    clock_fake_init(&f, START);
    engine_clock_init(&c, &f.clock, START);
    clock_fake_jump(&f, -20 * YEAR_MS);
    assert_int_equal(engine_clock_now(&c), START);
    assert_true(c.held && !c.paused);
    assert_int_equal(c.ahead_ms, -20 * YEAR_MS);
    run(&f, &c, HOUR_MS);
    assert_int_equal(engine_clock_now(&c), START);
    clock_fake_jump(&f, 20 * YEAR_MS);
    run(&f, &c, 3 * MIN_MS); /* an hour ahead now */
    assert_int_equal(engine_clock_now(&c), atomic_load(&f.wall_ms));
    assert_false(c.held);
}

/* ---- others ---------------------------------------------------------------------------------- */

/* The clock of this process, first, and of others, off the truth by so much. */
struct bed {
    struct clock_fake truth, f;
    struct engine_clock_others others;
    struct engine_clock c;
    int64_t off[5];
    size_t len;
};

static void bed_look(struct bed *b)
{
    int64_t voices[ARRAY_LEN(b->off)], mono = (int64_t)clock_mono_ms(&b->f.clock);

    for (size_t i = 0; i < b->len; i++)
        voices[i] = atomic_load(&b->truth.wall_ms) + b->off[i] - mono;
    atomic_store(&b->f.wall_ms, atomic_load(&b->truth.wall_ms) + b->off[0]);
    engine_clock_others_set(&b->others, voices, b->len);
}

static void bed_init(struct bed *b, size_t len)
{
    *b = (struct bed){ .len = len };
    clock_fake_init(&b->truth, START);
    clock_fake_init(&b->f, START);
    engine_clock_others_init(&b->others);
    engine_clock_init(&b->c, &b->f.clock, START);
    b->c.others = &b->others;
    bed_look(b);
}

static void bed_run(struct bed *b, int64_t ms)
{
    for (; ms > 0; ms -= MIN_MS) {
        clock_fake_advance(&b->f, MIN(ms, MIN_MS));
        clock_fake_advance(&b->truth, MIN(ms, MIN_MS));
        bed_look(b);
        (void)engine_clock_now(&b->c);
    }
}

static int64_t bed_off(struct bed *b)
{
    return engine_clock_now(&b->c) - atomic_load(&b->truth.wall_ms);
}

static void test_others_know(void **state)
{
    static const int64_t wrong[] = { 10 * YEAR_MS, -30 * YEAR_MS, 2 * HOUR_MS, -2 * HOUR_MS };
    struct bed b;

    (void)state;
    for (size_t len = 2; len <= 5; len++)
        for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
            for (size_t who = 0; who < 2; who++) {
                bed_init(&b, len);
                bed_run(&b, HOUR_MS);
                b.off[who] = wrong[i]; /* ours, or that of another */
                bed_run(&b, 30 * DAY_MS);
                assert_int_equal(bed_off(&b), 0);
                assert_false(b.c.held || b.c.paused);
                b.off[who] = 0;
                bed_run(&b, HOUR_MS);
                assert_int_equal(bed_off(&b), 0);
            }
}

/* All were off for a month, and one has a wrong clock now: the time of the others is taken, after
 * as long a wait as alone. */
static void test_others_after_a_month(void **state)
{
    struct bed b;

    (void)state;
    bed_init(&b, 3);
    engine_clock_init(&b.c, &b.f.clock, START - 30 * DAY_MS);
    b.c.others = &b.others;
    b.off[0] = 10 * YEAR_MS;
    bed_look(&b);
    bed_run(&b, 11 * HOUR_MS);
    assert_true(b.c.held);
    bed_run(&b, 2 * HOUR_MS);
    assert_false(b.c.held);
    assert_int_equal(bed_off(&b), 0);
}

static void test_nobody_is_heard(void **state)
{
    struct bed b;
    int64_t own = 5;

    (void)state;
    bed_init(&b, 3);
    b.off[0] = 10 * YEAR_MS;
    bed_run(&b, HOUR_MS);
    assert_false(b.c.held);
    engine_clock_others_set(&b.others, &own, 1);
    (void)engine_clock_now(&b.c);
    assert_true(b.c.held); /* alone now, with a clock that is far ahead: as alone */
}

/* Whatever clocks say, as long as most of them are right, or a wrong one is corrected in time: rows
 * stay for as long as the retention says. */
static void test_random_wrong(void **state)
{
    struct bed b;
    struct prng p;
    uint64_t seed = (uint64_t)time(NULL);

    (void)state;
    printf("SEED=%" PRIu64 "\n", seed);
    prng_init(&p, seed);
    for (int world = 0; world < 60; world++) {
        bed_init(&b, 1 + prng_below(&p, 5));
        for (int i = 0; i < 40; i++) {
            int64_t by = (int64_t)prng_below(&p, 40 * YEAR_MS) - 20 * YEAR_MS;
            int64_t stays = DAY_MS + (int64_t)prng_below(&p, 20 * DAY_MS);
            bool far = by > 2 * DAY_MS || by < -DAY_MS;
            if (b.len < 3)
                stays = far && by > 0 ? engine_clock_wait_ms(by) * 9 / 10 : HOUR_MS;
            if (!far)
                continue;
            b.off[prng_below(&p, b.len)] = by;
            for (int64_t left = stays; left > 0; left -= HOUR_MS) {
                int64_t before = engine_clock_now(&b.c);
                if (prng_chance(&p, 0.02)) { /* a restart */
                    int64_t stood = b.c.stood_ms, wall = b.c.wall_ms, base = b.c.base_ms;
                    engine_clock_init(&b.c, &b.f.clock, base);
                    engine_clock_stood(&b.c, stood, wall);
                    b.c.others = &b.others;
                }
                bed_run(&b, MIN(left, HOUR_MS));
                assert_true(engine_clock_now(&b.c) >= before);
                assert_true(bed_off(&b) <= ENGINE_CLOCK_SLACK_MS);
                if (b.len >= 2) /* nor does it stand still */
                    assert_true(bed_off(&b) >= -ENGINE_CLOCK_SLACK_MS);
            }
            memset(b.off, 0, sizeof(b.off));
            bed_run(&b, 2 * DAY_MS);
            assert_false(b.c.held);
            assert_int_equal(bed_off(&b), 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_follows_the_wall),
        cmocka_unit_test(test_back_is_a_stop),
        cmocka_unit_test(test_jump_pauses),
        cmocka_unit_test(test_jump_that_goes_away),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_years_ahead),
        cmocka_unit_test(test_wait),
        cmocka_unit_test(test_counts_over_restarts),
        cmocka_unit_test(test_far_behind),
        cmocka_unit_test(test_others_know),
        cmocka_unit_test(test_others_after_a_month),
        cmocka_unit_test(test_nobody_is_heard),
        cmocka_unit_test(test_random_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

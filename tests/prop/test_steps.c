/* SPDX-License-Identifier: Apache-2.0
 *
 * A push counts once while places change, whichever process is cut off from the coordination
 * service and for how long, and whatever clocks say. Real views, members, leads and controllers
 * over a simulated service; replication is a model of terms that members promise; distributors have
 * views of their own, clocks that are up to an hour off, and send a push again elsewhere when its
 * answer is lost.
 *
 * The two worlds of mutants make steps valid without what makes them safe: no node confirms, or
 * leaders confirm whatever they hold. There, something must be counted twice.
 *
 * SEED=n and ROUNDS=m repeat and lengthen it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/cluster/control/controller.h"
#include "tests/lib/repl/steps_world.h"

enum { STEPS = 420 };

static const char *const names[] = { "a", "b", "big" };

/* ---- what happens ---------------------------------------------------------------------------- */

/* An operator wants another number; the mutant makes a step of that at once. */
static void change(struct world *w)
{
    const struct map *m = sw_map(w), *next = NULL, *then;
    struct map_whose who = { STR("t"), str_c(names[prng_below(&w->prng, ARRAY_LEN(names))]) };
    struct err e;

    if (prng_below(&w->prng, 5) == 0)
        who.service = STR_NULL;
    if (m && !map_pending_request(m, &who, 1 + (uint32_t)prng_below(&w->prng, SHARDS), &next, &e)) {
        if (w->mutant == UNCONFIRMED && map_whose_steps(next, &who)->next.version) {
            assert_int_equal(
                map_pending_announce(next, &who, sw_wall(w) + AFTER_MS, STR_NULL, &then, &e), 0);
            map_unref(next);
            assert_int_equal(map_pending_commit(then, &who, &next, &e), 0);
            map_unref(then);
        }
        sw_put_map(w, next);
    }
    map_unref(next);
    map_unref(m);
}

static void fault(struct world *w)
{
    switch (prng_below(&w->prng, 8)) {
    case 0:
    case 1:
        sw_cut(w, true);
        break;
    case 2:
        sw_cut(w, false);
        break;
    case 3:
        coord_site_away(w->site, prng_below(&w->prng, 3) == 0);
        break;
    case 4:
        coord_site_compact(w->site);
        break;
    case 5:
        coord_site_faults(w->site, &(struct coord_faults){ 1, 1 + prng_below(&w->prng, 400),
                                                           prng_unit(&w->prng) * 0.2,
                                                           prng_unit(&w->prng) * 0.2, false });
        break;
    default:
        change(w);
        break;
    }
}

static void count_steps(struct world *w)
{
    const struct map *m = sw_map(w);

    for (size_t i = 0; i < m->services_len; i++)
        w->steps += MAX(m->services[i].steps.len, 1u) - 1;
    for (size_t i = 0; i < m->tenants_len; i++)
        w->steps += MAX(m->tenants[i].steps.len, 1u) - 1;
    map_unref(m);
}

static void run(struct world *w, uint64_t seed, enum mutant mutant)
{
    sw_open(w, seed, mutant);
    for (int i = 0; i < STEPS; i++) {
        struct push *p = &w->pushes[prng_below(&w->prng, PUSHES)];

        sw_pass(w, prng_below(&w->prng, 10) ? prng_below(&w->prng, 1500)
                                            : prng_below(&w->prng, 15000));
        if (prng_below(&w->prng, 6) == 0)
            fault(w);
        if (prng_below(&w->prng, 8) == 0)
            sw_push(w, p);
        for (int k = 0; k < 8; k++)
            sw_attempt(w, &w->pushes[prng_below(&w->prng, PUSHES)],
                       &w->dists[prng_below(&w->prng, DISTS)]);
    }
    if (mutant == NO_MUTANT)
        sw_settle(w);
    count_steps(w);
    print_message("seed %" PRIu64 ": %" PRIu64 " taken, %" PRIu64
                  " of them by the cut off, %" PRIu64 " refused, %u steps, %" PRIu64
                  " aborted, %" PRIu64 " doubled\n",
                  seed, w->acked, w->cut_acked, w->refused, w->steps, w->given_up, w->doubled);
    sw_close(w);
}

static uint64_t env_or(const char *name, uint64_t other)
{
    const char *given = getenv(name);

    if (given)
        (void)str_u64(str_c(given), &other);
    return other;
}

static void test_each_counts_once(void **state)
{
    (void)state;
    uint64_t seed = env_or("SEED", 20261122), rounds = env_or("ROUNDS", 12), steps = 0, by_cut = 0;

    for (uint64_t i = 0; i < rounds; i++) {
        struct world w;

        run(&w, seed + i, NO_MUTANT);
        assert_int_equal(w.doubled, 0);
        steps += w.steps;
        by_cut += w.cut_acked;
    }
    assert_true(steps > rounds && by_cut > 10 * rounds);
}

/* Clocks are wrong where the seed is odd. */
static void finds(enum mutant mutant, uint64_t seed)
{
    uint64_t doubled = 0, i = 0;

    for (; i < 40 && !doubled; i++) {
        struct world w;

        run(&w, seed + 2 * i, mutant);
        doubled += w.doubled;
    }
    print_message("doubled in world %" PRIu64 "\n", i);
    assert_true(doubled > 0);
}

static void test_unconfirmed_steps_double(void **state)
{
    (void)state;
    finds(UNCONFIRMED, 2);
}

static void test_confirming_blindly_doubles(void **state)
{
    (void)state;
    finds(CONFIRMS_ALWAYS, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_counts_once),
        cmocka_unit_test(test_unconfirmed_steps_double),
        cmocka_unit_test(test_confirming_blindly_doubles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole clusters under crashes, partitions, bad disks and clocks, and ring changes:
 * tests/lib/sim/sim.h. A few in every run of the tests; `make sim SEED=n SEEDS=m` runs many.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/lib/sim/sim.h"

#define SEED_DEFAULT  100
#define SEEDS_DEFAULT 6

static uint64_t number(const char *name, uint64_t otherwise)
{
    return getenv(name) ? strtoull(getenv(name), NULL, 0) : otherwise;
}

static void test_worlds(void **state)
{
    uint64_t seed = number("SEED", SEED_DEFAULT), seeds = number("SEEDS", SEEDS_DEFAULT);
    struct sim_stats all = { 0 };
    char text[2000];

    (void)state;
    print_message("SEED=%" PRIu64 " SEEDS=%" PRIu64 "\n", seed, seeds);
    for (uint64_t i = 0; i < seeds; i++) {
        struct sim_result r;

        sim_run(&(struct sim_opts){ .seed = seed + i }, &r);
        if (r.broken)
            fail_msg("SEED=%" PRIu64 ": %s: %s", seed + i, r.broken, r.text);
        sim_stats_add(&all, &r.stats);
    }
    sim_stats_text(&all, text, sizeof(text));
    print_message("%s\n", text);
    assert_true(all.acked > all.pushes / 2);
}

#ifndef __SANITIZE_ADDRESS__ /* a world that broke is left as it stands */
/* A test of the test: pushes repeated under other keys must be found to count twice. */
static void test_mutant(void **state)
{
    struct sim_result r;

    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        sim_run(&(struct sim_opts){ .seed = seed, .mutant = SIM_NEW_KEYS }, &r);
        if (r.broken)
            return;
    }
    fail_msg("20 worlds in which repeated pushes have other keys, and no oracle noticed");
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_worlds),
#ifndef __SANITIZE_ADDRESS__
        cmocka_unit_test(test_mutant),
#endif
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

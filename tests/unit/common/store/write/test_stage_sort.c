/* SPDX-License-Identifier: Apache-2.0
 *
 * What is gathered in the order of a request is what sorting its pairs makes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "common/base/prng.h"
#include "common/store/codec/sum.h"
#include "common/store/write/stage_sort.h"

#define NODES 3000

static struct prng rnd;
static struct stage_sort order;
static struct sum sum;
static uint32_t map[NODES + 1], nodes[NODES + 1];
static uint64_t values[NODES + 1];
static uint8_t used[NODES + 1];

static int setup(void **state)
{
    const char *given = getenv("SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);

    (void)state;
    printf("SEED=%" PRIu64 "\n", seed);
    prng_init(&rnd, seed);
    sum_init(&sum);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sum_deinit(&sum);
    stage_sort_deinit(&order);
    return 0;
}

/* Ids that differ, in any order, `apart` of each other at most. Returns what all are below. */
static size_t random_map(size_t n, uint64_t apart)
{
    uint32_t id = (uint32_t)prng_below(&rnd, 1000);

    for (size_t i = 0; i <= n; i++) {
        map[i] = id;
        id += 1 + (uint32_t)prng_below(&rnd, apart);
    }
    for (size_t i = 0; i <= n; i++) {
        size_t k = i + prng_below(&rnd, n + 1 - i);
        uint32_t one = map[i];
        map[i] = map[k];
        map[k] = one;
    }
    return id;
}

static void random_used(size_t n, double chance)
{
    for (size_t i = 0; i <= n; i++)
        used[i] = (uint8_t)(prng_chance(&rnd, chance) ? 1 + prng_below(&rnd, 2) : 0);
}

/* Of used nodes, each by that chance. */
static size_t random_vector(size_t n, double chance)
{
    size_t len = 0;

    for (size_t i = 0; i <= n; i++) {
        if (!used[i] || !prng_chance(&rnd, chance))
            continue;
        nodes[len] = (uint32_t)i;
        values[len++] = 1 + (prng_u64(&rnd) >> (1 + prng_below(&rnd, 63)));
    }
    return len;
}

static void sort(size_t len)
{
    sum_begin(&sum);
    for (size_t i = 0; i < len; i++)
        sum_add(&sum, map[nodes[i]], values[i]);
    sum_end(&sum);
}

static void test_as_sorted(void **state)
{
    size_t gathered = 0;

    (void)state;
    for (int round = 0; round < 1000; round++) {
        size_t n = prng_below(&rnd, round % 2 ? NODES : 40);
        size_t span = random_map(n, 1 + prng_below(&rnd, 100));
        random_used(n, round % 3 ? 1 : 0.5);
        stage_sort_make(&order, map, used, n, span + prng_below(&rnd, 70), SIZE_MAX);
        for (int series = 0; series < 5; series++) {
            size_t len = random_vector(n, series % 3 ? 0.8 : 1);
            size_t got = stage_sort_gather(&order, nodes, values, len);
            if (!got)
                continue;
            gathered++;
            sort(len);
            assert_int_equal(got, sum.ids.len);
            assert_memory_equal(order.ids, sum.ids.ptr, got * sizeof(uint32_t));
            assert_memory_equal(order.values, sum.sums.ptr, got * sizeof(uint64_t));
        }
        if (round % 5 == 0)
            stage_sort_end(&order);
    }
    assert_true(gathered > 3000);
}

static size_t make_and_gather(size_t n, size_t span, size_t len)
{
    stage_sort_make(&order, map, used, n, span, SIZE_MAX);
    return stage_sort_gather(&order, nodes, values, len);
}

static void test_left_to_sorting(void **state)
{
    size_t span = random_map(100, 3), all;

    (void)state;
    random_used(100, 1);
    all = random_vector(100, 1);
    assert_int_equal(make_and_gather(100, span, all), 101);
    assert_int_equal(stage_sort_gather(&order, nodes, values, 11), 0); /* few of the nodes */
    stage_sort_end(&order);
    assert_int_equal(stage_sort_gather(&order, nodes, values, all), 0);

    map[40] = map[60]; /* two nodes of one id */
    assert_int_equal(make_and_gather(100, span, all), 0);
    used[40] = 0; /* only one of them is used */
    assert_int_equal(make_and_gather(100, span, random_vector(100, 1)), 100);
    assert_int_equal(make_and_gather(100, 65 * 101, 100), 0); /* a large dictionary */
    size_t bytes = 5 * span + 24 * 101;                       /* as much memory, and a byte less */
    stage_sort_make(&order, map, used, 100, span, bytes);
    assert_int_equal(stage_sort_gather(&order, nodes, values, 100), 100);
    assert_int_equal(order.declined, 0);
    stage_sort_make(&order, map, used, 100, span, bytes - 1);
    assert_int_equal(stage_sort_gather(&order, nodes, values, 100), 0);
    assert_int_equal(order.declined, bytes);
    memset(used, 0, sizeof(used));
    assert_int_equal(make_and_gather(100, span, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_sorted),
        cmocka_unit_test(test_left_to_sorting),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

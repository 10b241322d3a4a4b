/* SPDX-License-Identifier: Apache-2.0
 *
 * How much each shard gets: never more than there is together, and no shard gets less than it wants
 * while another has more than an equal part.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "common/base/prng.h"
#include "ingester/replicas/shard_memory.h"
#include "ingester/shard/shards.h"

static void test_table(void **state)
{
    static const struct {
        const char *name;
        uint64_t total, wants[4], get[4];
        size_t n;
    } rows[] = {
        { "a single shard gets all", 100, { 10 }, { 100 }, 1 },
        { "a single shard wants more", 100, { SHARD_MEMORY_MORE }, { 100 }, 1 },
        { "all want more",
          100,
          { SHARD_MEMORY_MORE, SHARD_MEMORY_MORE, 60, 80 },
          { 25, 25, 25, 25 },
          4 },
        { "a busy shard gets the rest", 100, { 10, SHARD_MEMORY_MORE, 5, 0 }, { 10, 85, 5, 0 }, 4 },
        { "two busy shards", 100, { 10, SHARD_MEMORY_MORE, 50, 0 }, { 10, 45, 45, 0 }, 4 },
        { "a shard wants less than an equal part",
          100,
          { 10, SHARD_MEMORY_MORE, 30 },
          { 10, 60, 30 },
          3 },
        { "all want less than there is", 100, { 10, 20, 10, 0 }, { 25, 35, 25, 15 }, 4 },
        { "no shards", 100, { 0 }, { 0 }, 0 },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        uint64_t get[4] = { 0 };
        shard_memory_fill(rows[i].total, rows[i].wants, rows[i].n, get);
        for (size_t k = 0; k < rows[i].n; k++)
            if (get[k] != rows[i].get[k])
                fail_msg("%s: the %zu. gets %" PRIu64, rows[i].name, k + 1, get[k]);
    }
}

static void test_any(void **state)
{
    uint64_t wants[SHARDS_MAX], get[SHARDS_MAX];
    struct prng p;

    (void)state;
    prng_init(&p, 77);
    for (int round = 0; round < 2000; round++) {
        uint64_t total = prng_below(&p, 1 << 20), sum = 0;
        size_t n = 1 + prng_below(&p, SHARDS_MAX);

        for (size_t i = 0; i < n; i++)
            wants[i] = prng_below(&p, 3) ? prng_below(&p, 1 << (1 + prng_below(&p, 20)))
                                         : SHARD_MEMORY_MORE;
        shard_memory_fill(total, wants, n, get);
        for (size_t i = 0; i < n; i++) {
            sum += get[i];
            assert_true(get[i] >= MIN(wants[i], total / n)); /* an equal part is sure */
            for (size_t k = 0; k < n; k++)
                assert_true(get[i] >= wants[i] || get[k] <= MAX(get[i], wants[k]));
        }
        assert_true(sum <= total && total - sum < n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_any),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

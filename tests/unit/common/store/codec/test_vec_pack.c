/* SPDX-License-Identifier: Apache-2.0
 *
 * The inner loops of writing against one entry at a time. test_vec_pack_plain.c includes this file
 * with VEC_PLAIN, so that both forms are tested on every machine.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/base/prng.h"
#include "common/store/codec/vec_pack.h"

#define N_MAX 3000

static struct prng prng;
static uint64_t values[N_MAX];
static uint32_t ids[N_MAX];

static size_t random_len(int round)
{
    return round < 300 ? (size_t)round : prng_below(&prng, N_MAX);
}

static void test_look(void **state)
{
    (void)state;
    prng_init(&prng, 21);
    for (int round = 0; round < 2000; round++) {
        size_t n = random_len(round);
        uint64_t sum = 0, any = 0;
        bool zero = false;
        for (size_t i = 0; i < n; i++) {
            values[i] = prng_u64(&prng) >> prng_below(&prng, 64);
            if (!values[i] || !(values[i] & UINT32_MAX)) /* a half of 0 is no 0 */
                values[i] = round % 2 ? UINT64_C(1) << 40 : 1;
        }
        if (n && round % 3 == 0)
            values[prng_below(&prng, n)] = 0;
        for (size_t i = 0; i < n; i++) {
            sum += values[i];
            any |= values[i];
            zero = zero || !values[i];
        }
        struct vec_look x = vec_look_at(values, n);
        assert_true(x.sum == sum && x.any == any);
        assert_int_equal(x.zero, zero);
    }
}

static void test_count_long(void **state)
{
    (void)state;
    prng_init(&prng, 22);
    for (int round = 0; round < 2000; round++) {
        size_t n = random_len(round);
        uint64_t got[3] = { 5, 6, 7 }, want[3] = { 5, 6, 7 };
        for (size_t i = 0; i < n; i++) {
            values[i] = prng_u64(&prng) >> (32 + prng_below(&prng, 32));
            for (size_t k = 0; k < 3; k++)
                want[k] += values[i] >> 8 * (k + 1) != 0;
        }
        vec_count_long(values, n, got);
        assert_memory_equal(got, want, sizeof(got));
    }
}

static void test_planes(void **state)
{
    (void)state;
    prng_init(&prng, 23);
    for (int round = 0; round < 2000; round++) {
        uint8_t got[8 * 20], want[8 * 20];
        size_t n = 8 + prng_below(&prng, 12), k = 1 + prng_below(&prng, 8);
        memset(got, round, sizeof(got));
        memcpy(want, got, sizeof(got));
        for (size_t i = 0; i < 8; i++) {
            values[i] = prng_u64(&prng);
            for (size_t p = 0; p < k; p++)
                want[p * n + i] = (uint8_t)(values[i] >> 8 * p);
        }
        vec_put_planes8(values, got, n, k);
        assert_memory_equal(got, want, sizeof(got)); /* and nothing beside */
    }
}

/* Gaps around 255, or of any size, from anywhere; ids up to 2^32 - 1. */
static size_t random_ids(int round)
{
    size_t n = random_len(round), len = 0;
    uint64_t id = round % 4 ? prng_below(&prng, 600) : prng_u64(&prng) >> 32;

    for (; len < n && id <= UINT32_MAX; len++) {
        ids[len] = (uint32_t)id;
        id += 1 + (prng_below(&prng, 20)  ? prng_below(&prng, 3)
                   : prng_below(&prng, 2) ? 250 + prng_below(&prng, 10)
                                          : prng_u64(&prng) >> (33 + prng_below(&prng, 31)));
    }
    return len;
}

static void test_gaps(void **state)
{
    size_t high = 0;

    (void)state;
    prng_init(&prng, 24);
    for (int round = 0; round < 4000; round++) {
        uint8_t got[N_MAX + 1], want[N_MAX + 1];
        size_t n = random_ids(round), far = 0, got_far;
        uint64_t base = 0;
        for (size_t i = 0; i < n; i++) {
            uint64_t gap = ids[i] - base;
            want[i] = (uint8_t)MIN(gap, 255u);
            far += gap >= 255;
            base = (uint64_t)ids[i] + 1;
        }
        got[n] = want[n] = 77;
        vec_put_gaps(ids, n, got);
        assert_memory_equal(got, want, n + 1);
        assert_true(vec_ascend(ids, n, &got_far));
        assert_int_equal(got_far, far);
        high += n && ids[n - 1] > INT32_MAX;
        if (n < 2)
            continue;
        size_t at = 1 + prng_below(&prng, n - 1);
        ids[at] = prng_chance(&prng, 0.5) ? ids[at - 1] : (uint32_t)prng_below(&prng, ids[at - 1]);
        assert_false(vec_ascend(ids, n, &got_far));
    }
    assert_true(high > 100);
}

/* Steps that look as if they went up, round and round. */
static void test_round(void **state)
{
    size_t far;

    (void)state;
    for (uint32_t i = 0; i < 32; i++)
        ids[i] = i * INT32_MAX;
    assert_false(vec_ascend(ids, 32, &far));
    assert_true(vec_ascend(ids, 3, &far));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_look),   cmocka_unit_test(test_count_long),
        cmocka_unit_test(test_planes), cmocka_unit_test(test_gaps),
        cmocka_unit_test(test_round),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The inner loops against one byte at a time. test_vec_bytes_plain.c includes this file with
 * VEC_PLAIN, so that both forms are tested on every machine.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/base/prng.h"
#include "common/store/codec/vec_bytes.h"

#define N_MAX 9000

static struct prng prng;
static uint8_t data[8 * N_MAX + 64];

/* Runs of 0, of 255, and anything. */
static void fill(uint8_t *p, size_t n)
{
    while (n) {
        size_t any = 1 + prng_below(&prng, 700), run = MIN(n, any);
        uint64_t kind = prng_below(&prng, 4);
        for (size_t i = 0; i < run; i++)
            p[i] = kind == 0   ? 0
                   : kind == 1 ? 255
                   : kind == 2 ? (uint8_t)prng_below(&prng, 3)
                               : (uint8_t)prng_u64(&prng);
        p += run;
        n -= run;
    }
}

static size_t random_len(int round)
{
    return round < 300 ? (size_t)round : prng_below(&prng, N_MAX);
}

static void test_sum(void **state)
{
    (void)state;
    prng_init(&prng, 11);
    for (int round = 0; round < 1000; round++) {
        size_t n = random_len(round), skip = prng_below(&prng, 8);
        uint8_t what = prng_chance(&prng, 0.5) ? 255 : 0;
        uint64_t sum = 0, count = 0, got;
        fill(data, n + skip);
        if (round % 7 == 0)
            memset(data, 255, n + skip); /* the largest sums and counts */
        for (size_t i = 0; i < n; i++) {
            sum += data[skip + i];
            count += data[skip + i] == what;
        }
        assert_int_equal(vec_sum(data + skip, n, what, &got), sum);
        assert_int_equal(got, count);
    }
}

static void test_count_zero(void **state)
{
    (void)state;
    prng_init(&prng, 12);
    for (int round = 0; round < 1000; round++) {
        size_t n = random_len(round) / 2, planes = 1 + prng_below(&prng, 8);
        uint64_t count = 0;
        fill(data, n * planes);
        for (size_t i = 0; i < n; i++) {
            uint8_t any = 0;
            for (size_t k = 0; k < planes; k++)
                any |= data[k * n + i];
            count += any == 0;
        }
        assert_int_equal(vec_count_zero(data, n, planes), count);
    }
}

static void test_ids8(void **state)
{
    (void)state;
    prng_init(&prng, 13);
    for (int round = 0; round < 20000; round++) {
        uint32_t base = (uint32_t)prng_u64(&prng) >> prng_below(&prng, 32), next = base;
        uint32_t ids[8] = { 0 }, want[8] = { 0 };
        bool escape = false;
        if (base > UINT32_MAX - 3000)
            base = next = UINT32_MAX - 3000;
        for (size_t i = 0; i < 8; i++) {
            data[i] = (uint8_t)(round % 3 ? prng_below(&prng, 255) : 254);
            if (round % 5 == 0 && prng_chance(&prng, 0.2))
                data[i] = 255;
            escape |= data[i] == 255;
        }
        for (size_t i = 0; i < 8 && !escape; i++) {
            want[i] = next + data[i];
            next = want[i] + 1;
        }
        assert_int_equal(vec_ids8(data, base, ids), escape ? base : next);
        assert_memory_equal(ids, want, sizeof(ids));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sum),
        cmocka_unit_test(test_count_zero),
        cmocka_unit_test(test_ids8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

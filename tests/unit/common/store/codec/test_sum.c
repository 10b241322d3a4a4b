/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums of pairs and of vector rows, beside a plain array.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <time.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/base/prng.h"
#include "common/store/codec/fp.h"
#include "common/store/codec/vecsum.h"

#define IDS 3000

static struct prng rnd;

static int setup(void **state)
{
    uint64_t seed = (uint64_t)time(NULL);

    (void)state;
    printf("SEED=%" PRIu64 "\n", seed);
    prng_init(&rnd, seed);
    return 0;
}

static uint64_t hash_of(uint32_t id)
{
    return fp_reduce(hash_u64(id + 1));
}

static void test_pairs(void **state)
{
    uint64_t *want = XNEW_ARRAY(uint64_t, IDS);
    struct sum s;

    (void)state;
    sum_init(&s);
    for (int round = 0; round < 300; round++) {
        uint32_t ids = 1 + (uint32_t)prng_below(&rnd, IDS), n = (uint32_t)prng_below(&rnd, 500);
        uint32_t shift = (uint32_t)prng_below(&rnd, 20); /* ids of all sizes */
        memset(want, 0, IDS * sizeof(*want));
        sum_begin(&s);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t id = round % 5 ? (uint32_t)prng_below(&rnd, ids) : MIN(i, ids - 1);
            uint64_t v = prng_below(&rnd, 100);
            sum_add(&s, id << shift, v);
            want[id] += v;
        }
        sum_end(&s);
        size_t at = 0;
        for (uint32_t i = 0; i < ids; i++) {
            if (!want[i])
                continue;
            assert_true(at < s.ids.len);
            assert_int_equal(s.ids.ptr[at], i << shift);
            assert_int_equal(s.sums.ptr[at++], want[i]);
        }
        assert_int_equal(at, s.ids.len);
    }
    assert_int_equal(s.saturated, 0);
    sum_begin(&s);
    sum_add(&s, 1, UINT64_MAX);
    sum_add(&s, 2, 1);
    sum_add(&s, 1, 1);
    sum_end(&s);
    assert_int_equal(s.saturated, 1);
    assert_true(s.sums.ptr[0] == UINT64_MAX && s.sums.ptr[1] == 1);
    sum_deinit(&s);
    xfree(want);
}

/* Some rows of up to three epochs, and their sum by hand. */
static void test_rows(void **state)
{
    enum { EPOCHS = 3, N = 200 };
    static uint64_t want[EPOCHS][N];
    struct vecsum v;
    struct buf rows[6], out;
    struct err e;

    (void)state;
    vecsum_init(&v);
    buf_init(&out, MIB);
    for (int round = 0; round < 200; round++) {
        uint64_t fp = 0, writes = 0;
        size_t count = 1 + prng_below(&rnd, ARRAY_LEN(rows));
        memset(want, 0, sizeof(want));
        vecsum_begin(&v);
        for (size_t r = 0; r < count; r++) {
            static uint32_t ids[EPOCHS][N];
            static uint64_t values[EPOCHS][N];
            struct vec_part parts[EPOCHS];
            struct vec_meta meta = { .writes = 1 + prng_below(&rnd, 3) };
            size_t n = 0;
            for (uint32_t ep = 0; ep < EPOCHS; ep++) {
                size_t len = 0;
                for (uint32_t i = 0; i < N && prng_chance(&rnd, 0.7);
                     i += 1 + (uint32_t)prng_below(&rnd, 9)) {
                    ids[ep][len] = i;
                    values[ep][len] = 1 + prng_below(&rnd, 1000);
                    want[ep][i] += values[ep][len];
                    meta.fp = fp_add_value(meta.fp, hash_of(ep * N + i), values[ep][len++]);
                }
                if (len)
                    parts[n++] = (struct vec_part){ ep * 10, ids[ep], values[ep], len };
            }
            buf_init(&rows[r], MIB);
            assert_true(vec_encode(parts, n, &meta, &rows[r]));
            assert_int_equal(vecsum_add(&v, buf_str(&rows[r]), &e), 0);
            writes += meta.writes;
        }
        assert_int_equal(vecsum_end(&v, &out, &e), 0);
        struct vec_reader r;
        struct vec_section s;
        uint64_t total = 0;
        assert_int_equal(vec_open(buf_str(&out), &r, &e), 0);
        assert_int_equal(r.meta.writes, writes);
        while (vec_next(&r, &s)) {
            uint64_t acc[N] = { 0 };
            assert_true(vec_add_dense(&s, acc, N));
            assert_memory_equal(acc, want[s.epoch / 10], sizeof(acc));
            memset(want[s.epoch / 10], 0, sizeof(acc));
            for (uint32_t i = 0; i < N; i++) {
                fp = fp_add_value(fp, hash_of(s.epoch / 10 * N + i), acc[i]);
                total += acc[i];
            }
        }
        for (size_t i = 0; i < EPOCHS * N; i++)
            assert_int_equal(want[i / N][i % N], 0);
        assert_int_equal(r.meta.total, total);
        assert_int_equal(r.meta.fp, fp);
        for (size_t i = 0; i < count; i++)
            buf_deinit(&rows[i]);
    }
    vecsum_begin(&v);
    assert_int_equal(vecsum_add(&v, STR("damaged"), &e), ERR_CORRUPT);
    vecsum_deinit(&v);
    buf_deinit(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_pairs), cmocka_unit_test(test_rows) };
    return cmocka_run_group_tests(tests, setup, NULL);
}

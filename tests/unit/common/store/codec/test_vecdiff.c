/* SPDX-License-Identifier: Apache-2.0
 *
 * Differences of vectors: a + b - b is a, byte for byte, over several epochs and all kinds of
 * values; what is no part of a sum is an error. SEED=n repeats the random ones.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/base/prng.h"
#include "common/base/size.h"
#include "common/store/codec/fp.h"
#include "common/store/codec/vecdiff.h"
#include "common/store/codec/vecsum.h"
#include "tests/lib/gen/vec_gen.h"

#define ROUNDS  400
#define EPOCHS  4
#define ENTRIES 600

static struct prng rnd;
static struct vecdiff diff;
static struct buf a, b, c, out;
static struct vec_meta left;
static struct err e;

static int setup(void **state)
{
    const char *text = getenv("SEED");
    uint64_t seed = text ? strtoull(text, NULL, 10) : (uint64_t)time(NULL);

    (void)state;
    printf("SEED=%" PRIu64 "\n", seed);
    prng_init(&rnd, seed);
    vecdiff_init(&diff);
    buf_init(&a, 64 * MIB);
    buf_init(&b, 64 * MIB);
    buf_init(&c, 64 * MIB);
    buf_init(&out, 64 * MIB);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    vecdiff_deinit(&diff);
    buf_deinit(&a);
    buf_deinit(&b);
    buf_deinit(&c);
    buf_deinit(&out);
    return 0;
}

/* ---- rows ---- */

/* A stack's content, whatever its id: h depends on epoch and id here. */
static uint64_t fp_of(uint32_t epoch, uint32_t id, uint64_t value)
{
    return fp_add_value(0, fp_reduce(((uint64_t)epoch << 32 | id) * UINT64_C(0x9e3779b97f4a7c15)),
                        value);
}

static void put(struct buf *ret, const struct vec_part *parts, size_t n, uint64_t writes)
{
    struct vec_meta m = { .writes = writes };

    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < parts[i].len; k++)
            m.fp = fp_add(m.fp, fp_of(parts[i].epoch, parts[i].ids[k], parts[i].values[k]));
    buf_reset(ret);
    assert_true(vec_encode(parts, n, &m, ret));
}

/* Values stay below 2^40, so that no sum saturates, but where they are as profiles'. */
static void put_random(struct buf *ret)
{
    static uint32_t ids[EPOCHS][ENTRIES];
    static uint64_t values[EPOCHS][ENTRIES];
    struct vec_part parts[EPOCHS];
    size_t n = 0;
    uint32_t spread = 1 + (uint32_t)prng_below(&rnd, prng_chance(&rnd, 0.3) ? 1000 : 4);

    for (uint32_t i = 0; i < EPOCHS; i++) {
        size_t len = prng_below(&rnd, prng_chance(&rnd, 0.5) ? 5 : ENTRIES);
        if (!len)
            continue;
        len = vec_gen_ids(&rnd, ids[n], len, spread);
        vec_gen_values(&rnd, values[n], len, (enum vec_gen_values)prng_below(&rnd, VEC_GEN_KINDS));
        for (size_t k = 0; k < len; k++)
            values[n][k] = 1 + values[n][k] % (UINT64_C(1) << 40);
        parts[n] = (struct vec_part){ 7 + i, ids[n], values[n], len };
        n++;
    }
    put(ret, parts, n, 1 + prng_below(&rnd, 1000));
}

/* One epoch, {id: value} of up to two stacks; value 0: none. */
static void put_two(struct buf *ret, uint32_t epoch, uint64_t v1, uint64_t v5, uint64_t writes)
{
    uint32_t ids[2];
    uint64_t values[2];
    struct vec_part part = { epoch, ids, values, 0 };

    if (v1) {
        ids[part.len] = 1;
        values[part.len++] = v1;
    }
    if (v5) {
        ids[part.len] = 5;
        values[part.len++] = v5;
    }
    put(ret, &part, part.len > 0, writes);
}

static void add(struct buf *ret, const struct buf *const rows[], size_t n)
{
    struct vecsum s;

    vecsum_init(&s);
    vecsum_begin(&s);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(vecsum_add(&s, buf_str(rows[i]), &e), 0);
    assert_int_equal(vecsum_end(&s, ret, &e), 0);
    vecsum_deinit(&s);
}

static void make(const struct buf *all, const struct buf *less)
{
    if (vecdiff_make(&diff, buf_str(all), buf_str(less), &out, &left, &e))
        fail_msg("%s", e.text);
}

static void refused(const struct buf *all, const struct buf *less, const char *why)
{
    e.text[0] = '\0';
    assert_int_equal(vecdiff_make(&diff, buf_str(all), buf_str(less), &out, &left, &e),
                     ERR_CORRUPT);
    if (!strstr(e.text, why))
        fail_msg("want \"%s\" in \"%s\"", why, e.text);
}

static void same(const struct buf *want)
{
    struct vec_reader r;

    assert_int_equal(out.len, want->len);
    assert_memory_equal(out.ptr, want->ptr, want->len);
    assert_int_equal(vec_open(buf_str(want), &r, &e), 0);
    assert_true(left.total == r.meta.total && left.writes == r.meta.writes &&
                left.fp == r.meta.fp && !left.saturated);
}

/* ---- tests ---- */

static void test_sum_less_part(void **state)
{
    struct buf all;

    (void)state;
    buf_init(&all, 64 * MIB);
    for (int i = 0; i < ROUNDS; i++) {
        put_random(&a);
        put_random(&b);
        put_random(&c);
        add(&all, (const struct buf *const[]){ &a, &b, &c }, 3);
        make(&all, &c); /* a + b */
        buf_reset(&all);
        buf_add(&all, out.ptr, out.len);
        struct buf two;
        buf_init(&two, 64 * MIB);
        add(&two, (const struct buf *const[]){ &a, &b }, 2);
        same(&two);
        buf_deinit(&two);
        make(&all, &b);
        same(&a);
        make(&all, &a);
        same(&b);
        make(&a, &a);
        assert_int_equal(left.writes, 0);
        assert_true(!left.total && !left.fp && !out.len);
    }
    buf_deinit(&all);
}

/* A section without entries does not stay, in front, in the middle or at the end. */
static void test_epochs_go(void **state)
{
    const uint32_t ids[] = { 3, 4 };
    const uint64_t values[] = { 10, 20 };
    struct vec_part parts[] = { { 1, ids, values, 2 },
                                { 2, ids, values, 2 },
                                { 9, ids, values, 2 } };

    (void)state;
    put(&a, parts, 3, 5);
    for (size_t i = 0; i < 3; i++) {
        struct vec_part two[] = { parts[i == 0], parts[i == 2 ? 1 : 2] };
        put(&b, &parts[i], 1, 2);
        put(&c, two, 2, 3);
        make(&a, &b);
        same(&c);
        make(&a, &c);
        same(&b);
    }
}

/* Pushes without a sample: writes stay, no stack does. */
static void test_empty_writes(void **state)
{
    (void)state;
    put_two(&a, 3, 10, 20, 4);
    put_two(&b, 3, 10, 20, 1);
    put(&c, NULL, 0, 3);
    make(&a, &b);
    same(&c);
    make(&a, &c);
    same(&b);
}

static void test_no_part(void **state)
{
    (void)state;
    put_two(&a, 3, 10, 20, 4);
    put_two(&b, 3, 11, 0, 1);
    refused(&a, &b, "a stack has more");
    put_two(&b, 3, 0, 31, 1);
    refused(&a, &b, "more than the sum");
    put_two(&b, 3, 10, 20, 5);
    refused(&a, &b, "more than the sum");
    put_two(&b, 4, 10, 0, 1);
    refused(&a, &b, "epochs");
    put_two(&b, 2, 10, 0, 1);
    refused(&a, &b, "epochs");
    put_two(&b, 3, 10, 0, 4); /* 20 would be left, of no write */
    refused(&a, &b, "no write");
    put_two(&b, 3, 0, 5, 2);
    put_two(&c, 3, 5, 0, 1);
    refused(&b, &c, "does not have one of its stacks");
    put_two(&b, 3, 5, 0, 2);
    put_two(&c, 3, 0, 5, 1);
    refused(&b, &c, "does not have one of its stacks");
    put_two(&b, 3, 0, 5, 2);
    put_two(&c, 3, 1, 4, 1);
    refused(&b, &c, "does not have one of its stacks");
    /* The same values and another fingerprint: other stacks had these ids. */
    put_two(&b, 3, 0, 5, 1);
    const uint32_t id = 5;
    const uint64_t value = 5;
    struct vec_meta m = { .writes = 1, .fp = 12345 };
    buf_reset(&c);
    assert_true(vec_encode(&(struct vec_part){ 3, &id, &value, 1 }, 1, &m, &c));
    refused(&b, &c, "no write");
}

static void test_saturated(void **state)
{
    (void)state;
    put_two(&b, 3, 1, 0, 1);
    put_two(&a, 3, UINT64_MAX, 0, 2);
    refused(&a, &b, "2^64-1");
    put_two(&a, 3, UINT64_MAX, UINT64_MAX, 2);
    refused(&a, &b, "2^64-1");
    put_two(&c, 3, UINT64_MAX - 1, 0, 2); /* the largest that is exact */
    make(&c, &b);
    assert_true(left.total == UINT64_MAX - 2 && left.writes == 1);
    struct vec_meta all = { .total = 5, .writes = UINT64_MAX }, less = { .total = 1, .writes = 1 };
    assert_int_equal(vecdiff_meta(&all, &less, &left, &e), ERR_CORRUPT);
    all.writes = 3;
    assert_int_equal(vecdiff_meta(&all, &less, &left, &e), 0);
    less.saturated = true;
    assert_int_equal(vecdiff_meta(&all, &less, &left, &e), ERR_CORRUPT);
}

/* Damaged rows are refused, whichever byte it is. */
static void test_damage(void **state)
{
    (void)state;
    put_two(&a, 3, 10, 20, 4);
    put_two(&b, 3, 1, 2, 1);
    for (size_t i = 0; i < a.len; i++) {
        a.ptr[i] ^= 1;
        assert_int_equal(vecdiff_make(&diff, buf_str(&a), buf_str(&b), &out, &left, &e),
                         ERR_CORRUPT);
        assert_int_equal(vecdiff_make(&diff, buf_str(&b), buf_str(&a), &out, &left, &e),
                         ERR_CORRUPT);
        a.ptr[i] ^= 1;
    }
    buf_deinit(&out);
    buf_init(&out, 8);
    assert_int_equal(vecdiff_make(&diff, buf_str(&a), buf_str(&b), &out, &left, &e), ERR_LIMIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_sum_less_part, setup, teardown),
        cmocka_unit_test_setup_teardown(test_epochs_go, setup, teardown),
        cmocka_unit_test_setup_teardown(test_empty_writes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_part, setup, teardown),
        cmocka_unit_test_setup_teardown(test_saturated, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damage, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

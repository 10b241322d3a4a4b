/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/base/prng.h"
#include "common/base/wr.h"
#include "common/store/codec/fp.h"
#include "common/store/codec/vec.h"
#include "tests/lib/gen/vec_gen.h"

#define PINNED_LEN 334450
#define PINNED_CRC 0x5947a215

static struct err e;
static struct buf row;

static int setup(void **state)
{
    (void)state;
    buf_init(&row, 64 * MIB);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    buf_deinit(&row);
    return 0;
}

static void encode(const struct vec_part *parts, size_t count, struct vec_meta meta)
{
    buf_reset(&row);
    assert_true(vec_encode(parts, count, &meta, &row));
}

static struct vec_reader opened(void)
{
    struct vec_reader r;

    if (vec_open(buf_str(&row), &r, &e))
        fail_msg("%s", e.text);
    return r;
}

/* The drawing of vec.h, byte by byte. */
static void test_worked_example(void **state)
{
    uint32_t ids[] = { 2, 5, 300 };
    uint64_t values[] = { 10, 20, 7000 };
    const uint8_t want[] = { 0x01, 0x02, 0xf6, 0x36, 0x02, 0x55, 0x44, 0x33, 0x22, 0x11,
                             0x00, 0x00, 0x00, 0x03, 0x03, 0x32, 0x0a, 0x01, 0x02, 0x02,
                             0xff, 0x27, 0x01, 0x02, 0xbc, 0x00, 0x00, 0x02 };

    (void)state;
    encode(&(struct vec_part){ 3, ids, values, 3 }, 1,
           (struct vec_meta){ .writes = 2, .fp = UINT64_C(0x1122334455) });
    assert_int_equal(row.len, sizeof(want) + 4);
    assert_memory_equal(row.ptr, want, sizeof(want));
    assert_int_equal(get_u32le(row.ptr + sizeof(want)), crc32c(0, want, sizeof(want)));
    struct vec_reader r = opened();
    assert_int_equal(r.meta.total, 7030);
    assert_int_equal(r.meta.writes, 2);
    assert_int_equal(r.meta.fp, UINT64_C(0x1122334455));
    assert_false(r.meta.saturated);
    struct vec_section s;
    assert_true(vec_next(&r, &s));
    assert_int_equal(s.epoch, 3);
    assert_int_equal(s.len, 3);
    assert_int_equal(s.last, 300);
    assert_int_equal(s.scale, 10);
    assert_int_equal(s.planes, 2);
    assert_false(vec_next(&r, &s));
    assert_false(vec_next(&r, &s));
}

static void test_no_entries(void **state)
{
    struct vec_section s;

    (void)state;
    encode(NULL, 0, (struct vec_meta){ .writes = 0, .fp = 0 });
    struct vec_reader r = opened();
    assert_int_equal(r.meta.total, 0);
    assert_int_equal(r.meta.writes, 0);
    assert_int_equal(r.sections, 0);
    assert_false(vec_next(&r, &s));
}

static void test_overflow_stream(void **state)
{
    uint32_t ids[100];
    uint64_t values[100], got[100];
    uint32_t got_ids[100];
    struct vec_section s;

    (void)state;
    for (uint32_t i = 0; i < 100; i++) {
        ids[i] = i * 3;
        values[i] = i + 1;
    }
    values[0] = UINT64_MAX / 2;
    values[7] = 256; /* low byte zero: the planes alone would say 0 */
    values[99] = 1 << 20;
    encode(&(struct vec_part){ 0, ids, values, 100 }, 1, (struct vec_meta){ .writes = 1 });
    struct vec_reader r = opened();
    assert_true(vec_next(&r, &s));
    assert_int_equal(s.planes, 1); /* 3 of 100 overflow */
    assert_true(s.overflow.len > 0);
    vec_decode(&s, got_ids, got);
    assert_memory_equal(got, values, sizeof(values));
    assert_memory_equal(got_ids, ids, sizeof(ids));
    uint64_t acc[298] = { 0 };
    assert_false(vec_add_dense(&s, acc, 297)); /* id 297 is not below 297 */
    for (size_t i = 0; i < 298; i++)
        assert_int_equal(acc[i], 0);
    assert_true(vec_add_dense(&s, acc, 298));
    for (size_t i = 0; i < 100; i++)
        assert_int_equal(acc[ids[i]], values[i]);
    /* At 7 of 100 (not fewer than a sixteenth) a second plane pays. */
    for (uint32_t i = 50; i < 54; i++)
        values[i] = 300;
    encode(&(struct vec_part){ 0, ids, values, 100 }, 1, (struct vec_meta){ .writes = 1 });
    r = opened();
    assert_true(vec_next(&r, &s));
    assert_int_equal(s.planes, 2);
}

static void test_scale(void **state)
{
    static const struct {
        uint64_t v[3], scale;
    } rows[] = {
        { { 10000000, 30000000, 770000000 }, 10000000 },
        { { 5, 5, 5 }, 5 },
        { { 6, 10, 15 }, 1 },
        { { UINT64_MAX, UINT64_MAX, UINT64_MAX }, UINT64_MAX },
        { { UINT64_C(1) << 63, UINT64_C(1) << 62, UINT64_C(3) << 62 }, UINT64_C(1) << 62 },
        { { UINT64_MAX, UINT64_MAX / 3, UINT64_MAX / 5 }, UINT64_MAX / 15 },
        { { UINT64_MAX, 1, 2 }, 1 },
        { { 1, UINT64_MAX - 1, UINT64_MAX }, 1 },
        { { 97, 97 * 97, 97 * 98 }, 97 },
    };
    uint32_t ids[] = { 0, 1, UINT32_MAX };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct vec_section s;
        uint32_t got_ids[3];
        uint64_t got[3];
        encode(&(struct vec_part){ UINT32_MAX, ids, rows[i].v, 3 }, 1,
               (struct vec_meta){ .writes = UINT64_MAX, .fp = FP_P - 1 });
        struct vec_reader r = opened();
        assert_true(vec_next(&r, &s));
        assert_int_equal(s.scale, rows[i].scale);
        assert_int_equal(s.last, UINT32_MAX);
        vec_decode(&s, got_ids, got);
        assert_memory_equal(got, rows[i].v, sizeof(got));
        assert_memory_equal(got_ids, ids, sizeof(ids));
    }
}

static void test_saturation(void **state)
{
    uint32_t ids[] = { 1, 2 };
    uint64_t values[] = { UINT64_MAX, 1 }, acc[3] = { 0 }, saturated = 0;
    struct vec_section s;

    (void)state;
    encode(&(struct vec_part){ 0, ids, values, 2 }, 1, (struct vec_meta){ .writes = 1 });
    struct vec_reader r = opened();
    assert_true(r.meta.saturated);
    assert_int_equal(r.meta.total, UINT64_MAX);
    assert_true(vec_next(&r, &s));
    assert_true(vec_add_dense_sat(&s, acc, 3, &saturated));
    assert_int_equal(saturated, 0);
    assert_true(vec_add_dense_sat(&s, acc, 3, &saturated));
    assert_int_equal(saturated, 1);
    assert_int_equal(acc[1], UINT64_MAX);
    assert_int_equal(acc[2], 2);
    assert_false(vec_add_dense_sat(&s, acc, 2, &saturated));
    /* The caller's flag is kept where the total fits. */
    encode(&(struct vec_part){ 0, ids, values, 1 }, 1,
           (struct vec_meta){ .writes = 1, .saturated = true });
    assert_true(opened().meta.saturated);
    encode(&(struct vec_part){ 0, ids, values, 1 }, 1, (struct vec_meta){ .writes = 1 });
    assert_false(opened().meta.saturated);
}

static void test_over_the_buffer(void **state)
{
    uint32_t ids[64];
    uint64_t values[64];
    struct vec_meta meta = { .writes = 1 };

    (void)state;
    for (uint32_t i = 0; i < 64; i++) {
        ids[i] = i;
        values[i] = 1 + (uint64_t)i * i;
    }
    struct vec_part part = { 0, ids, values, 64 };
    encode(&part, 1, meta);
    for (size_t max = 0; max < row.len; max++) {
        struct buf small;
        buf_init(&small, max);
        assert_false(vec_encode(&part, 1, &meta, &small));
        buf_deinit(&small);
    }
    /* Rows may follow other bytes in a buffer. */
    size_t len = row.len;
    assert_true(vec_encode(&part, 1, &meta, &row));
    assert_int_equal(row.len, 2 * len);
    assert_memory_equal(row.ptr, row.ptr + len, len);
}

static void test_peek(void **state)
{
    uint32_t ids[] = { 4 };
    uint64_t values[] = { 9 };
    struct vec_reader r;

    (void)state;
    encode(&(struct vec_part){ 0, ids, values, 1 }, 1, (struct vec_meta){ .writes = 7, .fp = 11 });
    assert_int_equal(vec_peek(buf_str(&row), &r, &e), 0);
    assert_int_equal(r.meta.total, 9);
    assert_int_equal(r.meta.writes, 7);
    assert_int_equal(r.meta.fp, 11);
    for (size_t n = 0; n < 12; n++)
        assert_int_equal(vec_peek(str_n(row.ptr, n), &r, &e), ERR_CORRUPT);
}

/* The bytes of 300 rows of all shapes, pinned: rows written once are compared byte by byte between
 * replicas of different versions. If this fails, the format changed (or vec_gen did). */
static void test_bytes_never_change(void **state)
{
    static uint32_t ids[400];
    static uint64_t values[400];
    struct prng p;

    (void)state;
    prng_init(&p, 2020);
    buf_reset(&row);
    for (uint64_t i = 0; i < 300; i++) {
        size_t n = vec_gen_ids(&p, ids, 1 + prng_below(&p, 400), (uint32_t)(1 + i * 3));
        vec_gen_values(&p, values, n, (enum vec_gen_values)(i % VEC_GEN_KINDS));
        struct vec_meta meta = { .writes = i, .fp = i };
        assert_true(vec_encode(&(struct vec_part){ (uint32_t)i, ids, values, n }, 1, &meta, &row));
    }
    assert_int_equal(row.len, PINNED_LEN);
    assert_int_equal(crc32c(0, row.ptr, row.len), PINNED_CRC);
}

/* ---- rows that must be refused ---- */

/* Appends the right checksum: what is wrong must be found behind it. */
static void want_corrupt(const char *name, const uint8_t *bytes, size_t n, const char *text)
{
    struct vec_reader r;

    buf_reset(&row);
    assert_true(buf_add(&row, bytes, n) && wr_u32le(&row, crc32c(0, bytes, n)));
    int rc = vec_open(buf_str(&row), &r, &e);
    if (rc != ERR_CORRUPT)
        fail_msg("%s: %s", name, err_name(rc));
    if (!strstr(e.text, text))
        fail_msg("%s: '%s' does not say '%s'", name, e.text, text);
}

#define F  0, 0, 0, 0, 0, 0, 0, 0 /* a fingerprint */
#define FF 0xff, 0xff, 0xff, 0xff
static const struct {
    const char *name;
    uint8_t len;
    uint8_t bytes[48];
    const char *text;
} hostile[] = {
    { "empty", 0, { 0 }, "shorter" },
    { "version alone", 1, { 1 }, "shorter" },
    { "version 0", 11, { 0, 0, 0, F }, "version 0" },
    { "version 2", 11, { 2, 0, 0, F }, "version 2" },
    { "unknown flag", 11, { 1, 8, 0, F }, "flags 0x08" },
    { "no total", 2, { 1, 0 }, "head" },
    { "one write in the long form", 12, { 1, 2, 0, 1, F }, "head" },
    { "one section in the long form", 12, { 1, 4, 0, 1, F }, "head" },
    { "fingerprint cut off", 10, { 1, 4, 0, 0, 0, 0, 0, 0, 0, 0 }, "head" },
    { "fingerprint is p", 12, { 1, 4, 0, 0, FF, 0xff, 0xff, 0xff, 0x1f }, "fingerprint" },
    { "4097 sections", 13, { 1, 4, 0, 0x81, 0x20, F }, "sections" },
    { "a section is missing", 11, { 1, 0, 0, F }, "section's head" },
    { "total of nothing is 1", 12, { 1, 4, 1, 0, F }, "total" },
    { "bytes behind no section", 13, { 1, 4, 0, 0, F, 0 }, "follow" },
    { "no entries", 14, { 1, 0, 0, F, 0, 0, 1 }, "section's head" },
    { "no planes", 15, { 1, 0, 0, F, 0, 1, 0, 0 }, "section's head" },
    { "nine planes", 24, { 1, 0, 0, F, 0, 1, 9, 0, 1 }, "section's head" },
    { "unknown form", 16, { 1, 0, 1, F, 0, 1, 0x81, 0, 1 }, "section's head" },
    { "scale 1", 17, { 1, 0, 1, F, 0, 1, 0x11, 1, 0, 1 }, "section's head" },
    { "no escapes in the long form", 17, { 1, 0, 1, F, 0, 1, 0x21, 0, 0, 1 }, "section's head" },
    { "no overflow in the long form", 17, { 1, 0, 1, F, 0, 1, 0x41, 0, 0, 1 }, "section's head" },
    { "epoch of 33 bits",
      20,
      { 1, 0, 1, F, 0x80, 0x80, 0x80, 0x80, 0x10, 1, 1, 0, 1 },
      "section's head" },
    { "2^32 entries",
      20,
      { 1, 0, 1, F, 0, 0x80, 0x80, 0x80, 0x80, 0x10, 1, 0, 1 },
      "section's head" },
    { "more entries than bytes", 16, { 1, 0, 1, F, 0, 100, 1, 0, 1 }, "section's head" },
    { "planes cut off", 15, { 1, 0, 1, F, 0, 1, 1, 0 }, "section's head" },
    { "an escape is missing", 16, { 1, 0, 1, F, 0, 1, 1, 255, 1 }, "escape" },
    { "an escape too many", 18, { 1, 0, 1, F, 0, 1, 0x21, 1, 0, 9, 1 }, "more escapes" },
    { "an escape is cut off", 18, { 1, 0, 1, F, 0, 1, 0x21, 1, 255, 0x80, 1 }, "escape" },
    { "an escape of 33 bits",
      22,
      { 1, 0, 1, F, 0, 1, 0x21, 5, 255, 0x80, 0x80, 0x80, 0x80, 0x10, 1 },
      "escape" },
    { "id 2^32",
      22,
      { 1, 0, 1, F, 0, 1, 0x21, 5, 255, 0x81, 0xfe, 0xff, 0xff, 0x0f, 1 },
      "ids pass" },
    { "a zero value", 18, { 1, 0, 1, F, 0, 2, 1, 0, 0, 0, 1 }, "zero" },
    { "a zero in two planes", 21, { 1, 0, 1, F, 0, 2, 2, 0, 0, 0, 1, 0, 0 }, "zero" },
    { "overflow behind the end", 19, { 1, 0, 1, F, 0, 1, 0x41, 2, 0, 1, 1, 1 }, "behind" },
    { "overflow cut off", 18, { 1, 0, 1, F, 0, 1, 0x41, 1, 0, 1, 0 }, "cut off" },
    { "overflow of zero", 19, { 1, 0, 1, F, 0, 1, 0x41, 2, 0, 1, 0, 0 }, "overflow is zero" },
    { "overflow of eight planes",
      26,
      { 1, 0, 1, F, 0, 1, 0x48, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1 },
      "overflow is zero" },
    { "overflow of 57 bits",
      27,
      { 1, 0, 1, F, 0, 1, 0x41, 10, 0, 1, 0, FF, 0xff, 0xff, 0xff, 0xff, 0x01 },
      "overflow is zero" },
    { "value times scale of 65 bits",
      27,
      { 1, 0, 1, F, 0, 1, 0x11, FF, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0, 2 },
      "64 bits" },
    { "overflow times scale of 65 bits",
      30,
      { 1, 0, 1, F, 0, 1, 0x51, FF, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 2, 0, 0, 0, 1 },
      "64 bits" },
    { "total too small", 16, { 1, 0, 1, F, 0, 1, 1, 0, 2 }, "total" },
    { "total too large", 16, { 1, 0, 3, F, 0, 1, 1, 0, 2 }, "total" },
    { "equal epochs", 22, { 1, 4, 4, 2, F, 7, 1, 1, 0, 2, 7, 1, 1, 0, 2 }, "ascend" },
    { "descending epochs", 22, { 1, 4, 4, 2, F, 7, 1, 1, 0, 2, 6, 1, 1, 0, 2 }, "ascend" },
    { "a second section is missing", 17, { 1, 4, 2, 2, F, 7, 1, 1, 0, 2 }, "section's head" },
    { "bytes behind", 17, { 1, 0, 2, F, 0, 1, 1, 0, 2, 0 }, "follow" },
};

static void test_hostile_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(hostile); i++)
        want_corrupt(hostile[i].name, hostile[i].bytes, hostile[i].len, hostile[i].text);
}

static void test_total_without_flag(void **state)
{
    /* Two values of 2^64 - 1 pass 64 bits; the flag is missing. */
    uint8_t bytes[64] = { 1, 0, FF, FF, 0xff, 0x01, F, 0, 2, 0x11, FF, FF, 0xff, 0x01, 0, 0, 1, 1 };
    struct vec_reader r;

    (void)state;
    want_corrupt("no flag", bytes, 37, "total");
    bytes[1] = 1;
    buf_reset(&row);
    assert_true(buf_add(&row, bytes, 37) && wr_u32le(&row, crc32c(0, bytes, 37)));
    assert_int_equal(vec_open(buf_str(&row), &r, &e), 0);
}

/* Every bit of a row matters: any flip is found by the checksum. */
static void test_bit_flips(void **state)
{
    uint32_t ids[] = { 2, 5, 300 };
    uint64_t values[] = { 10, 20, 7000 };
    struct vec_reader r;

    (void)state;
    encode(&(struct vec_part){ 3, ids, values, 3 }, 1, (struct vec_meta){ .writes = 2, .fp = 5 });
    for (size_t bit = 0; bit < row.len * 8; bit++) {
        row.ptr[bit / 8] ^= (char)(1 << bit % 8);
        assert_int_equal(vec_open(buf_str(&row), &r, &e), ERR_CORRUPT);
        row.ptr[bit / 8] ^= (char)(1 << bit % 8);
    }
    for (size_t n = 0; n < row.len; n++)
        assert_int_equal(vec_open(str_n(row.ptr, n), &r, &e), ERR_CORRUPT);
    assert_int_equal(vec_open(buf_str(&row), &r, &e), 0);
}

/* ---- fingerprints ---- */

static void test_fingerprint(void **state)
{
    struct prng p;

    (void)state;
    prng_init(&p, 3);
    assert_int_equal(fp_reduce(FP_P), 0);
    assert_int_equal(fp_reduce(UINT64_MAX), UINT64_MAX % FP_P);
    assert_int_equal(fp_mul(FP_P - 1, FP_P - 1), 1); /* (-1)^2 */
    assert_int_equal(fp_add(FP_P - 1, 1), 0);
    assert_int_equal(fp_sub(0, 1), FP_P - 1);
    for (int i = 0; i < 10000; i++) {
        uint64_t a = prng_u64(&p) % FP_P, b = prng_u64(&p) % FP_P, v = prng_u64(&p);
        assert_int_equal(fp_mul(a, b), (uint64_t)((u128)a * b % FP_P));
        assert_int_equal(fp_add(a, b), (a + b) % FP_P);
        assert_int_equal(fp_sub(fp_add(a, b), b), a);
        assert_int_equal(fp_reduce(v), v % FP_P);
        struct hash128 h = { prng_u64(&p), prng_u64(&p) };
        assert_true(fp_of_hash(h) > 0 && fp_of_hash(h) < FP_P);
    }
    assert_int_equal(fp_of_hash((struct hash128){ 0, 0 }), 1);
    /* F(x) + F(y) = F(x + y). */
    uint64_t h[4] = { 3, FP_P - 1, 12345678901234567, 1 };
    uint32_t x_ids[] = { 0, 2 }, y_ids[] = { 1, 2 }, sum_ids[] = { 0, 1, 2 };
    uint64_t x[] = { 5, UINT64_MAX / 4 }, y[] = { 7, UINT64_MAX / 3 };
    uint64_t sum[] = { 5, 7, UINT64_MAX / 4 + UINT64_MAX / 3 };
    assert_int_equal(fp_add(fp_vector(h, x_ids, x, 2), fp_vector(h, y_ids, y, 2)),
                     fp_vector(h, sum_ids, sum, 3));
}

/* As it is defined, value by value; the largest of both, too. */
static void test_fingerprint_of_many(void **state)
{
    uint64_t h[64], values[64];
    uint32_t ids[64];
    struct prng p;

    (void)state;
    prng_init(&p, 4);
    for (int i = 0; i < 5000; i++) {
        size_t n = prng_below(&p, 65);
        uint64_t want = 0;
        for (size_t k = 0; k < n; k++) {
            h[k] = i % 2 ? prng_u64(&p) % FP_P : FP_P - 1;
            values[k] = i % 3 ? prng_u64(&p) >> prng_below(&p, 64) : UINT64_MAX;
            ids[k] = (uint32_t)(n - 1 - k);
        }
        for (size_t k = 0; k < n; k++)
            want = fp_add_value(want, h[ids[k]], values[k]);
        assert_int_equal(fp_vector(h, ids, values, n), want);
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_worked_example),      TEST(test_no_entries),
        TEST(test_overflow_stream),     TEST(test_scale),
        TEST(test_saturation),          TEST(test_over_the_buffer),
        TEST(test_bytes_never_change),  TEST(test_peek),
        TEST(test_hostile_rows),        TEST(test_total_without_flag),
        TEST(test_bit_flips),           TEST(test_fingerprint),
        TEST(test_fingerprint_of_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * decode(encode(x)) = x for random vectors of all shapes; the bytes are those of the drawing in
 * vec.h, written here entry by entry; every way of reading agrees; a damaged row whose checksum was
 * made right is refused or means what it decodes to. SEED=n repeats a run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/base/wr.h"
#include "common/store/codec/fp.h"
#include "common/store/codec/vec.h"
#include "tests/lib/gen/vec_gen.h"

#define LEN_MAX      5000
#define SECTIONS_MAX 5
#define ACC          65536

static uint64_t seed;
static struct prng prng;
static struct err e;

struct vector {
    uint32_t ids[LEN_MAX];
    uint64_t values[LEN_MAX];
};
static struct vector in[SECTIONS_MAX], out[SECTIONS_MAX];
static struct vec_part parts[SECTIONS_MAX];
static uint64_t acc[ACC], expected[ACC];

static size_t random_len(void)
{
    static const size_t edges[] = { 1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 255, 256, 257, 512, 1023 };

    return prng_chance(&prng, 0.5) ? edges[prng_below(&prng, ARRAY_LEN(edges))]
                                   : 1 + prng_below(&prng, LEN_MAX);
}

static size_t random_parts(void)
{
    static const uint32_t spreads[] = { 1, 2, 13, 200, 300, 5000, 1 << 20, 1u << 31 };
    size_t count = prng_chance(&prng, 0.6) ? 1 : prng_below(&prng, SECTIONS_MAX + 1);
    uint32_t epoch = 0;

    for (size_t i = 0; i < count; i++) {
        uint32_t spread = spreads[prng_below(&prng, ARRAY_LEN(spreads))];
        size_t n = vec_gen_ids(&prng, in[i].ids, random_len(), spread);
        epoch += (uint32_t)(1 + prng_below(&prng, 3));
        vec_gen_values(&prng, in[i].values, n,
                       (enum vec_gen_values)prng_below(&prng, VEC_GEN_KINDS));
        parts[i] = (struct vec_part){ epoch, in[i].ids, in[i].values, MAX(n, 1) };
        if (n == 0) { /* the first id was past the end: one entry instead */
            in[i].ids[0] = UINT32_MAX;
            in[i].values[0] = 1;
        }
    }
    return count;
}

static uint64_t total_of(size_t count, bool *exact)
{
    uint64_t total = 0;

    *exact = true;
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < parts[i].len; k++)
            if (!u64_add(total, parts[i].values[k], &total)) {
                *exact = false;
                return UINT64_MAX;
            }
    return total;
}

/* The section means parts[i]: by decoding whole, in pieces, and by adding. */
static void check_section(const struct vec_section *s, size_t i)
{
    const struct vec_part *want = &parts[i];
    uint32_t ids[VEC_CHUNK];
    uint64_t values[VEC_CHUNK], saturated = 0;
    struct vec_iter it;
    size_t at = 0, n;

    assert_int_equal(s->epoch, want->epoch);
    assert_int_equal(s->len, want->len);
    assert_int_equal(s->last, want->ids[want->len - 1]);
    vec_decode(s, out[i].ids, out[i].values);
    assert_memory_equal(out[i].ids, want->ids, want->len * sizeof(uint32_t));
    assert_memory_equal(out[i].values, want->values, want->len * sizeof(uint64_t));
    vec_iter_init(&it, s);
    for (; (n = vec_iter_next(&it, ids, values)) > 0; at += n) {
        assert_memory_equal(ids, want->ids + at, n * sizeof(uint32_t));
        assert_memory_equal(values, want->values + at, n * sizeof(uint64_t));
    }
    assert_int_equal(at, want->len);
    assert_false(vec_add_dense(s, acc, s->last));
    if (s->last >= ACC)
        return;
    /* Adding twice on top of something: wraps and stays put as it should. */
    for (size_t k = 0; k < ACC; k++)
        acc[k] = expected[k] = k;
    for (size_t k = 0; k < want->len; k++)
        expected[want->ids[k]] += want->values[k];
    assert_true(vec_add_dense(s, acc, (size_t)s->last + 1));
    assert_memory_equal(acc, expected, sizeof(acc));
    for (size_t k = 0; k < ACC; k++)
        acc[k] = expected[k] = k;
    uint64_t over = 0;
    for (size_t k = 0; k < want->len; k++) {
        uint64_t *p = &expected[want->ids[k]];
        over += UINT64_MAX - *p < want->values[k];
        *p = u64_add_sat(*p, want->values[k]);
    }
    assert_true(vec_add_dense_sat(s, acc, ACC, &saturated));
    assert_memory_equal(acc, expected, sizeof(acc));
    assert_int_equal(saturated, over);
}

/* ---- the drawing, without a thought of speed ---- */

static uint64_t divisor_of(const struct vec_part *s)
{
    uint64_t g = 0;

    for (size_t i = 0; i < s->len; i++)
        for (uint64_t v = s->values[i]; v;) {
            uint64_t rest = g % v;
            g = v;
            v = rest;
        }
    return g;
}

static size_t count_above(const struct vec_part *s, uint64_t scale, uint32_t bytes)
{
    size_t n = 0;

    for (size_t i = 0; i < s->len && bytes < 8; i++)
        n += s->values[i] / scale >> 8 * bytes != 0;
    return n;
}

static void draw_section(const struct vec_part *s, struct buf *to)
{
    struct buf escapes, overflow;
    uint64_t scale = divisor_of(s);
    uint32_t k = 8;
    size_t last = SIZE_MAX;

    buf_init(&escapes, 64 * MIB);
    buf_init(&overflow, 64 * MIB);
    while (k > 1 && count_above(s, scale, k - 1) * 16 < s->len)
        k--;
    for (size_t i = 0; i < s->len; i++) {
        uint64_t gap = i ? s->ids[i] - s->ids[i - 1] - 1 : s->ids[0], q = s->values[i] / scale;
        if (gap >= 255)
            wr_varint(&escapes, gap - 255);
        if (k == 8 || !(q >> 8 * k))
            continue;
        wr_varint(&overflow, i - last - 1);
        wr_varint(&overflow, q >> 8 * k);
        last = i;
    }
    wr_varint(to, s->epoch);
    wr_varint(to, s->len);
    wr_u8(to, (uint8_t)(k | (scale > 1 ? 0x10 : 0) | (escapes.len ? 0x20 : 0) |
                        (overflow.len ? 0x40 : 0)));
    if (scale > 1)
        wr_varint(to, scale);
    if (escapes.len)
        wr_varint(to, escapes.len);
    if (overflow.len)
        wr_varint(to, overflow.len);
    for (size_t i = 0; i < s->len; i++)
        wr_u8(to, (uint8_t)MIN(i ? s->ids[i] - s->ids[i - 1] - 1 : s->ids[0], 255u));
    buf_add_str(to, buf_str(&escapes));
    for (uint32_t p = 0; p < k; p++)
        for (size_t i = 0; i < s->len; i++)
            wr_u8(to, (uint8_t)(s->values[i] / scale >> 8 * p));
    buf_add_str(to, buf_str(&overflow));
    buf_deinit(&escapes);
    buf_deinit(&overflow);
}

static void draw(size_t count, const struct vec_meta *meta, struct buf *to)
{
    bool exact;
    uint64_t total = total_of(count, &exact);

    wr_u8(to, 1);
    wr_u8(to,
          (uint8_t)((meta->saturated || !exact) | (meta->writes != 1) << 1 | (count != 1) << 2));
    wr_varint(to, total);
    if (meta->writes != 1)
        wr_varint(to, meta->writes);
    if (count != 1)
        wr_varint(to, count);
    wr_u64le(to, meta->fp);
    for (size_t i = 0; i < count; i++)
        draw_section(&parts[i], to);
    wr_u32le(to, crc32c(0, to->ptr, to->len));
}

static void test_round_trip(void **state)
{
    struct buf row, again;

    (void)state;
    buf_init(&row, 64 * MIB);
    buf_init(&again, 64 * MIB);
    for (int round = 0; round < 3000; round++) {
        size_t count = random_parts();
        struct vec_meta meta = { .writes = prng_chance(&prng, 0.5) ? 1 : prng_u64(&prng),
                                 .fp = prng_below(&prng, FP_P),
                                 .saturated = prng_chance(&prng, 0.1) };
        struct vec_reader r;
        struct vec_section s;
        bool exact;

        buf_reset(&row);
        buf_reset(&again);
        assert_true(vec_encode(parts, count, &meta, &row));
        draw(count, &meta, &again);
        assert_true(str_eq(buf_str(&row), buf_str(&again)));
        buf_reset(&again);
        if (vec_open(buf_str(&row), &r, &e))
            fail_msg("round %d: %s", round, e.text);
        assert_int_equal(r.meta.total, total_of(count, &exact));
        assert_int_equal(r.meta.writes, meta.writes);
        assert_int_equal(r.meta.fp, meta.fp);
        assert_int_equal(r.meta.saturated, meta.saturated || !exact);
        assert_int_equal(r.sections, count);
        for (size_t i = 0; i < count; i++) {
            assert_true(vec_next(&r, &s));
            check_section(&s, i);
            parts[i].ids = out[i].ids;
            parts[i].values = out[i].values;
        }
        assert_false(vec_next(&r, &s));
        assert_true(vec_encode(parts, count, &r.meta, &again)); /* the same bytes */
        assert_true(str_eq(buf_str(&row), buf_str(&again)));
    }
    buf_deinit(&row);
    buf_deinit(&again);
}

/* Flips bytes, repairs the checksum. Whatever is still accepted must decode to sums that match. */
static void test_damage(void **state)
{
    struct buf row;
    size_t accepted = 0, refused = 0;

    (void)state;
    buf_init(&row, 64 * MIB);
    for (int round = 0; round < 20000; round++) {
        struct vec_reader r;
        struct vec_section s;
        uint64_t total = 0;
        bool over = false;

        buf_reset(&row);
        size_t n = vec_gen_ids(&prng, in[0].ids, 1 + prng_below(&prng, 40), 200);
        vec_gen_values(&prng, in[0].values, n,
                       (enum vec_gen_values)prng_below(&prng, VEC_GEN_KINDS));
        parts[0] = (struct vec_part){ 1, in[0].ids, in[0].values, n };
        assert_true(vec_encode(parts, 1, &(struct vec_meta){ .writes = 1 }, &row));
        for (uint64_t flips = 1 + prng_below(&prng, 3); flips; flips--)
            row.ptr[prng_below(&prng, row.len - 4)] = (char)prng_u64(&prng);
        put_u32le(row.ptr + row.len - 4, crc32c(0, row.ptr, row.len - 4));
        if (vec_open(buf_str(&row), &r, &e)) {
            assert_int_equal(e.code, ERR_CORRUPT);
            refused++;
            continue;
        }
        accepted++;
        while (vec_next(&r, &s)) {
            assert_true(s.len <= LEN_MAX);
            vec_decode(&s, out[0].ids, out[0].values);
            assert_int_equal(out[0].ids[s.len - 1], s.last);
            for (size_t i = 0; i < s.len; i++) {
                assert_true(i == 0 || out[0].ids[i] > out[0].ids[i - 1]);
                assert_true(out[0].values[i] > 0);
                over |= !u64_add(total, out[0].values[i], &total);
            }
        }
        assert_int_equal(r.meta.total, over ? UINT64_MAX : total);
    }
    assert_true(accepted > 100 && refused > 100);
    buf_deinit(&row);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_damage),
    };
    const char *given = getenv("SEED");

    seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    printf("SEED=%" PRIu64 "\n", seed);
    prng_init(&prng, seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

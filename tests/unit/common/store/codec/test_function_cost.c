/* SPDX-License-Identifier: Apache-2.0
 *
 * Values of functions: rows as drawn, from vectors over several dictionary epochs beside the slow
 * way over texts, and sums of children beside what their vectors give at once.
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
#include "common/base/prng.h"
#include "common/base/wr.h"
#include "common/store/codec/fp.h"
#include "common/store/codec/function_cost.h"
#include "common/store/state/function_cost_calc.h"
#include "common/store/state/store_impl.h"
#include "tests/lib/store/store_bed.h"

#define NAMES 8 /* "a" .. "h" */

static struct prng rnd;
static struct store_bed bed;
static struct function_cost_calc *calc;
static struct buf row;
static struct err e;

struct values {
    uint64_t self[NAMES], total[NAMES], file;
};

static int setup(void **state)
{
    struct store_opts o = { .dict_bytes_max = 64 * MIB,
                            .wid_horizon_ms = 3600 * 1000,
                            .epoch_nodes_max = 60 };
    const char *text = getenv("SEED");
    uint64_t seed = text ? strtoull(text, NULL, 10) : (uint64_t)time(NULL);

    (void)state;
    printf("SEED=%" PRIu64 "\n", seed);
    prng_init(&rnd, seed);
    store_bed_init(&bed, &o);
    calc = fn_calc_new(bed.s->dicts);
    buf_init(&row, MIB);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fn_calc_free(calc);
    buf_deinit(&row);
    store_bed_deinit(&bed);
    return 0;
}

/* ---- pushes ---- */

/* "" is a frame without a name, which counts for its file. */
static void add_stack(struct values *v, const char *stack, size_t depth, uint64_t value)
{
    for (size_t i = 0; i < depth; i++) {
        bool before = memchr(stack, stack[i], i) != NULL;
        if (!before)
            v->total[stack[i] - 'a'] += value;
    }
    if (depth)
        v->self[stack[depth - 1] - 'a'] += value;
    else
        v->file += value;
}

/* A few random stacks, with recursion; functions sit on other depths in each. */
static void push_random(uint64_t wid, struct values *v)
{
    char text[1024];
    size_t n = 0;

    for (size_t stacks = 1 + prng_below(&rnd, NAMES); stacks; stacks--) {
        char stack[12];
        /* Each stack of a push begins with another function, or is empty: all are distinct. */
        size_t depth = stacks == NAMES ? 0 : 1 + prng_below(&rnd, sizeof(stack));
        uint64_t value = 1 + prng_below(&rnd, 1000);
        for (size_t i = 0; i < depth; i++) {
            stack[i] = (char)('a' + (i ? prng_below(&rnd, NAMES) : stacks - 1));
            n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%c", i ? ";" : "", stack[i]);
        }
        n += (size_t)snprintf(text + n, sizeof(text) - n, "=%" PRIu64 "%s", value,
                              stacks > 1 ? " " : "");
        add_stack(v, stack, depth, value);
    }
    struct bed_push p = { .wid = wid, .slot = store_bed_slot(&bed), .stacks = text };
    assert_int_equal(store_bed_push(&bed, &p), 1);
}

/* The vectors of all unsealed rows, in the order of keys. */
struct rows {
    VEC(struct str) at; /* owned */
    struct member m;
};

static void read_rows(struct rows *r)
{
    struct kv_iter *it = kv_iter_new(bed.s->kv, NULL, KV_RAW, STR_NULL, STR_NULL);
    struct raw_row raw;
    const uint8_t *wid;
    uint32_t t;

    for (; kv_iter_valid(it); kv_iter_next(it)) {
        assert_int_equal(raw_row_read(kv_iter_value(it), &raw, &e), 0);
        assert_true(key_raw_read(kv_iter_key(it), &r->m, &t, &wid));
        char *copy = xmalloc(raw.vector.len);
        memcpy(copy, raw.vector.ptr, raw.vector.len);
        vec_push(&r->at, str_n(copy, raw.vector.len));
    }
    kv_iter_free(it);
}

static void free_rows(struct rows *r)
{
    vec_for (i, &r->at)
        xfree((void *)(uintptr_t)r->at.ptr[i].ptr);
    vec_free(&r->at);
}

static int on_value(void *cookie, struct str name, uint64_t self, uint64_t total, struct err *err)
{
    struct values *v = cookie;

    (void)err;
    if (str_eqc(name, "x.c")) { /* frames without a function */
        v->file += total;
        return 0;
    }
    assert_int_equal(name.len, 1);
    v->self[name.ptr[0] - 'a'] += self;
    v->total[name.ptr[0] - 'a'] += total;
    return 0;
}

static void begin(const struct rows *r)
{
    fn_calc_begin(calc, NULL, r->m.tenant, r->m.scope);
}

/* ---- tests ---- */

static void want_hex(const char *hex)
{
    char text[512];
    size_t n = 0;

    for (size_t i = 0; i + 4 < row.len; i++)
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%02x", (uint8_t)row.ptr[i]);
    assert_string_equal(text, hex);
    assert_int_equal(get_u32le(row.ptr + row.len - 4), crc32c(0, row.ptr, row.len - 4));
}

/* As drawn in function_cost.h. */
static void test_bytes(void **state)
{
    struct function_cost_row got;
    struct buf self, total;
    uint32_t ids[] = { 1, 2 };
    uint64_t values[] = { 7, 7 };
    struct vec_part part = { .ids = ids + 1, .values = values, .len = 1 };

    (void)state;
    buf_init(&self, KIB);
    buf_init(&total, KIB);
    assert_true(vec_encode(&part, 1, &(struct vec_meta){ .writes = 1, .fp = 1 }, &self));
    part.ids = ids;
    part.len = 2;
    assert_true(vec_encode(&part, 1, &(struct vec_meta){ .writes = 1, .fp = 2 }, &total));
    assert_int_equal(fn_put(buf_str(&self), buf_str(&total), &row, &e), 0);
    want_hex("0115"                             /* version, bytes of self */
             "01000701000000000000000001110702" /* total 7, F 1; epoch 0, n 1, form, */
             "01ab0ca44f"                       /* scale 7; id 2 - 0; 1; crc */
             "01000e02000000000000000002110701000101a143d4b7");
    assert_int_equal(fn_read(buf_str(&row), &got, &e), 0);
    assert_true(str_eq(got.self, buf_str(&self)) && str_eq(got.total, buf_str(&total)));
    for (size_t i = 0; i < row.len * 8; i++) {
        row.ptr[i / 8] ^= (char)(1 << i % 8);
        assert_int_equal(fn_read(buf_str(&row), &got, &e), ERR_CORRUPT);
        row.ptr[i / 8] ^= (char)(1 << i % 8);
    }
    for (size_t n = 0; n < row.len; n++)
        assert_int_equal(fn_read(str_sub(buf_str(&row), 0, n), &got, &e), ERR_CORRUPT);
    buf_deinit(&self);
    buf_deinit(&total);
}

static void want_values(const struct values *have, const struct values *want)
{
    for (size_t i = 0; i < NAMES; i++) {
        assert_int_equal(have->self[i], want->self[i]);
        assert_int_equal(have->total[i], want->total[i]);
    }
    assert_int_equal(have->file, want->file);
}

static void test_recursion_counts_once(void **state)
{
    struct values v = { 0 };
    struct rows r = { 0 };

    (void)state;
    struct bed_push p = { .wid = 1,
                          .slot = store_bed_slot(&bed),
                          .stacks = "a;b;a;b=5 a;b=2 b;a=1 a=3 =9" };
    assert_int_equal(store_bed_push(&bed, &p), 1);
    read_rows(&r);
    begin(&r);
    assert_int_equal(fn_calc_add(calc, r.at.ptr[0], &e), 0);
    assert_int_equal(fn_calc_each(calc, on_value, &v, &e), 0);
    want_values(&v, &(struct values){ .self = { 4, 7 }, .total = { 11, 8 }, .file = 9 });
    free_rows(&r);
}

/* Rows in groups: each group's row by itself, and the sum of the groups' rows, are what the slow
 * way says; F of the sum is that of the names' content. */
static void test_random(void **state)
{
    (void)state;
    for (int round = 0; round < 30; round++) {
        struct values want = { 0 }, have = { 0 }, merged = { 0 };
        struct rows r = { 0 };
        VEC(struct str) parts = { 0 };
        size_t per = 1 + prng_below(&rnd, 5);
        for (size_t n = 1 + prng_below(&rnd, 20); n; n--)
            push_random(prng_u64(&rnd), &want);
        read_rows(&r);
        begin(&r);
        for (size_t i = 0; i < r.at.len; i++) {
            assert_int_equal(fn_calc_add(calc, r.at.ptr[i], &e), 0);
            if ((i + 1) % per && i + 1 < r.at.len)
                continue;
            assert_int_equal(fn_calc_row(calc, &row, &e), 0);
            assert_true(row.len > 0);
            assert_int_equal(fn_row_each(calc, buf_str(&row), on_value, &have, &e), 0);
            vec_push(&parts, buf_take(&row));
        }
        want_values(&have, &want);
        assert_int_equal(function_cost_merge(parts.ptr, parts.len, &row, &e), 0);
        assert_int_equal(fn_row_each(calc, buf_str(&row), on_value, &merged, &e), 0);
        want_values(&merged, &want);

        struct function_cost_row got;
        struct vec_reader self, total;
        uint64_t fp[2] = { 0 };
        assert_int_equal(fn_read(buf_str(&row), &got, &e), 0);
        assert_int_equal(vec_peek(got.self, &self, &e), 0);
        assert_int_equal(vec_peek(got.total, &total, &e), 0);
        for (size_t i = 0; i < NAMES; i++) {
            char name = (char)('a' + i);
            uint64_t h = fp_of_hash(hash128(&name, 1, 0));
            fp[0] = fp_add_value(fp[0], h, want.self[i]);
            fp[1] = fp_add_value(fp[1], h, want.total[i]);
        }
        uint64_t file = fp_of_hash(hash128("x.c", 3, 0));
        fp[0] = fp_add_value(fp[0], file, want.file);
        fp[1] = fp_add_value(fp[1], file, want.file);
        assert_int_equal(self.meta.fp, fp[0]);
        assert_int_equal(total.meta.fp, fp[1]);
        assert_int_equal(self.meta.writes, r.at.len);
        vec_for (i, &parts)
            xfree((void *)(uintptr_t)parts.ptr[i].ptr);
        vec_free(&parts);
        free_rows(&r);
        clock_fake_advance(&bed.clock, 1000000);
        store_bed_seal(&bed); /* the rows are gone */
    }
}

static int on_nameless(void *cookie, struct str name, uint64_t self, uint64_t total,
                       struct err *err)
{
    uint64_t *sum = cookie;

    (void)err;
    assert_int_equal(name.len, 0);
    sum[0] += self;
    sum[1] += total;
    return 0;
}

/* What the root has itself counts under "", so that self values add up to the vector's total. */
static void test_root_has_no_name(void **state)
{
    struct rows r = { 0 };
    struct vec_reader v;
    struct vec_section section;
    uint32_t id = 0;
    uint64_t value = 9, sum[2] = { 0 };
    struct buf vector;

    (void)state;
    buf_init(&vector, KIB);
    struct bed_push p = { .wid = 1, .slot = store_bed_slot(&bed), .stacks = "a=1" };
    assert_int_equal(store_bed_push(&bed, &p), 1);
    read_rows(&r);
    assert_int_equal(vec_open(r.at.ptr[0], &v, &e), 0);
    assert_true(vec_next(&v, &section));
    struct vec_part part = { section.epoch, &id, &value, 1 };
    assert_true(vec_encode(&part, 1, &(struct vec_meta){ .writes = 1, .fp = 1 }, &vector));
    begin(&r);
    assert_int_equal(fn_calc_add(calc, buf_str(&vector), &e), 0);
    assert_int_equal(fn_calc_row(calc, &row, &e), 0);
    assert_int_equal(fn_row_each(calc, buf_str(&row), on_nameless, sum, &e), 0);
    assert_int_equal(sum[0], 9);
    assert_int_equal(sum[1], 9);
    /* A node the dictionary has not is an error, not a crash. */
    id = 1000000;
    buf_reset(&vector);
    assert_true(vec_encode(&part, 1, &(struct vec_meta){ .writes = 1, .fp = 1 }, &vector));
    assert_int_equal(fn_calc_add(calc, buf_str(&vector), &e), ERR_CORRUPT);
    buf_deinit(&vector);
    free_rows(&r);
}

static void test_nothing(void **state)
{
    (void)state;
    fn_calc_begin(calc, NULL, 1, 1);
    assert_int_equal(fn_calc_row(calc, &row, &e), 0);
    assert_int_equal(row.len, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_bytes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_recursion_counts_once, setup, teardown),
        cmocka_unit_test_setup_teardown(test_random, setup, teardown),
        cmocka_unit_test_setup_teardown(test_root_has_no_name, setup, teardown),
        cmocka_unit_test_setup_teardown(test_nothing, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

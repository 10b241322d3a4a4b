/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "common/base/hash.h"
#include "common/store/codec/fp.h"
#include "common/store/state/rollup_row.h"

static struct str hex(struct buf *out, const char *text)
{
    buf_reset(out);
    for (; *text; text += 2) {
        unsigned v;
        while (*text == ' ')
            text++;
        assert_int_equal(sscanf(text, "%2x", &v), 1);
        wr_u8(out, (uint8_t)v);
    }
    return buf_str(out);
}

/* {id: value, id + 1: value} of epoch 1. */
static struct str vector(struct buf *out, uint32_t id, uint64_t value)
{
    const uint32_t ids[] = { id, id + 1 };
    const uint64_t values[] = { value, value };
    struct vec_part p = { 1, ids, values, 2 };
    struct vec_meta m = { .writes = 1,
                          .fp = fp_add_value(fp_add_value(0, id, value), id + 1, value) };

    buf_reset(out);
    assert_true(vec_encode(&p, 1, &m, out));
    return buf_str(out);
}

static void test_list_as_drawn(void **state)
{
    struct buf want, got;
    struct rollup_row_sum s;
    struct rollup_row r;
    struct err e;

    (void)state;
    buf_init(&want, KIB);
    buf_init(&got, KIB);
    rollup_row_sum_init(&s);
    rollup_row_sum_begin(&s);
    s.rows = 1;
    s.meta = (struct vec_meta){ .total = 30, .writes = 3, .fp = 0x11 };
    rollup_row_sum_member(&s, 0xb2);
    rollup_row_sum_member(&s, 0xa1);
    rollup_row_sum_member(&s, 0xb2);
    assert_int_equal(rollup_row_sum_end(&s, ROLLUP_ROW_LIST, &got, &e), 0);
    hex(&want, "0102 02 00000000000000a1 00000000000000b2 1e03 1100000000000000");
    assert_int_equal(got.len, want.len + 4);
    assert_memory_equal(got.ptr, want.ptr, want.len);
    assert_int_equal(rollup_row_read(buf_str(&got), &r, &e), 0);
    assert_int_equal(r.len, 2);
    assert_true(rollup_row_id(&r, 0) == 0xa1 && rollup_row_id(&r, 1) == 0xb2);
    assert_true(r.meta.total == 30 && r.meta.writes == 3 && r.meta.fp == 0x11);
    assert_null(r.vector.ptr);
    rollup_row_sum_deinit(&s);
    buf_deinit(&want);
    buf_deinit(&got);
}

static void test_hostile(void **state)
{
    static const char *const rows[] = {
        "",
        "01",
        "0200",
        "0100",                                     /* nothing in it */
        "0108",                                     /* unknown flag */
        "0101",                                     /* ROLLED0 without a vector */
        "010701",                                   /* ROLLED0 with a list */
        "0102 00",                                  /* no members */
        "0102 8109",                                /* more than may be */
        "0102 02 00000000000000a1",                 /* ends early */
        "0102 02 00000000000000a1 00000000000000a1" /* twice */
        " 1e03 1100000000000000",
        "0102 01 00000000000000a1 1e00 1100000000000000", /* no writes */
        "0102 01 00000000000000a1 1e03 ffffffffffffff1f", /* F is p */
        "0102 01 00000000000000a1 1e03 11000000",
    };
    struct buf b;
    struct rollup_row r;
    struct err e;

    (void)state;
    buf_init(&b, KIB);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        hex(&b, rows[i]);
        assert_int_equal(rollup_row_read(buf_str(&b), &r, &e), ERR_CORRUPT);
        wr_u32le(&b, crc32c(0, b.ptr ? b.ptr : "", b.len));
        assert_int_equal(rollup_row_read(buf_str(&b), &r, &e), ERR_CORRUPT);
    }
    hex(&b, "0102 01 00000000000000a1 1e03 1100000000000000");
    wr_u32le(&b, crc32c(0, b.ptr, b.len));
    assert_int_equal(rollup_row_read(buf_str(&b), &r, &e), 0);
    b.ptr[5] ^= 1; /* another member */
    assert_int_equal(rollup_row_read(buf_str(&b), &r, &e), ERR_CORRUPT);
    b.ptr[5] ^= 1;
    wr_u8(&b, 0); /* something behind it */
    assert_int_equal(rollup_row_read(buf_str(&b), &r, &e), ERR_CORRUPT);
    buf_deinit(&b);
}

static void row(struct rollup_row_sum *s, struct str v, uint64_t id, enum rollup_row_form form,
                struct buf *out)
{
    struct err e;

    rollup_row_sum_begin(s);
    assert_int_equal(rollup_row_sum_vector(s, v, &e), 0);
    if (id)
        rollup_row_sum_member(s, id);
    assert_int_equal(rollup_row_sum_end(s, form, out, &e), 0);
}

static uint64_t total(struct str row)
{
    struct rollup_row r;
    struct err e;

    assert_int_equal(rollup_row_read(row, &r, &e), 0);
    return r.meta.total;
}

/* Three members in two minutes make a list, a fourth a vector; lists lead to members' rows. */
static void test_merge(void **state)
{
    struct buf v[5], rows[5], out, up, full;
    struct str c[8];
    struct vec_meta meta;
    struct rollup_row_sum s;
    struct err e;
    struct rollup_row r;

    (void)state;
    rollup_row_sum_init(&s);
    buf_init(&out, MIB);
    buf_init(&up, MIB);
    buf_init(&full, MIB);
    for (uint32_t i = 0; i < 5; i++) {
        buf_init(&v[i], KIB);
        buf_init(&rows[i], KIB);
        vector(&v[i], 1 + i, 10 * (i + 1));
        row(&s, buf_str(&v[i]), i < 4 ? 100 + i % 4 : 0,
            i < 4 ? ROLLUP_ROW_LIST_VECTOR : ROLLUP_ROW_ROLLED_VECTOR, &rows[i]);
        c[i] = buf_str(&rows[i]);
    }
    assert_int_equal(rollup_row_merge(&s, c, 3, &out, &meta, &e), 0);
    assert_int_equal(rollup_row_read(buf_str(&out), &r, &e), 0);
    assert_true(r.len == 3 && !r.vector.ptr && r.meta.total == 120 && r.meta.writes == 3);
    assert_true(meta.total == 120 && meta.fp == r.meta.fp);
    assert_int_equal(rollup_row_merge(&s, c, 4, &up, &meta, &e), 0);
    assert_int_equal(rollup_row_read(buf_str(&up), &r, &e), 0);
    assert_true(!r.ids && r.vector.ptr && r.meta.total == 200);

    /* A list and a node of many: the members' rows are needed, and missing ones noticed. */
    c[0] = buf_str(&out);
    c[1] = buf_str(&rows[4]);
    bool list;
    assert_int_equal(rollup_row_merge_is_list(&s, c, 2, &list, &e), 0);
    assert_false(list);
    assert_int_equal(rollup_row_merge(&s, c, 2, &up, &meta, &e), ERR_CORRUPT);
    for (int n = 2; n < 4; n++) {
        rollup_row_sum_begin(&s);
        assert_int_equal(rollup_row_sum_head(&s, buf_str(&out), &e), 0);
        for (int i = 0; i < n; i++)
            assert_int_equal(rollup_row_sum_listed(&s, buf_str(&v[i]), &e), 0);
        assert_int_equal(rollup_row_sum_end(&s, ROLLUP_ROW_LIST_VECTOR, &full, &e),
                         n == 2 ? ERR_CORRUPT : 0);
    }
    c[0] = buf_str(&full);
    assert_int_equal(rollup_row_merge(&s, c, 2, &up, &meta, &e), 0);
    assert_int_equal(total(buf_str(&up)), 220);
    assert_int_equal(rollup_row_merge(&s, c, 1, &up, &meta, &e), 0);
    assert_int_equal(rollup_row_read(buf_str(&up), &r, &e), 0);
    assert_true(r.len == 3 && !r.vector.ptr && r.meta.total == 120);
    buf_deinit(&full);
    rollup_row_sum_deinit(&s);
    for (int i = 0; i < 5; i++) {
        buf_deinit(&v[i]);
        buf_deinit(&rows[i]);
    }
    buf_deinit(&out);
    buf_deinit(&up);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list_as_drawn),
        cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_merge),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

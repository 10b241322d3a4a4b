/* SPDX-License-Identifier: Apache-2.0
 *
 * Recordings that are cut, changed, or too large. (tests/fuzz/formats/fuzz_jfr.c continues
 * from here.)
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka wants the first two above first */
#include <cmocka.h>

#include "common/base/mem.h"
#include "distributor/formats/jfr/jfr_rd.h"
#include "tests/lib/gen/gen_jfr.h"
#include "tests/lib/roles/dist_push.h"

static int decode(struct str body, const struct limits *l, struct push *ret, struct err *e)
{
    const struct ingest_raw raw = { .name = STR("app"), .format = STR("jfr") };
    struct dist_push d;

    *e = (struct err){ 0 };
    int rc = dist_decode_raw(&d, &raw, body, l, e);
    if (ret)
        *ret = d.push; /* only its counters are looked at */
    dist_push_free(&d);
    return rc;
}

static void recording(struct gen_jfr *g, struct prng *p, size_t frames, size_t chunks)
{
    prng_init(p, 11);
    gen_jfr_init(g, p);
    for (size_t i = 0; i < chunks; i++) {
        gen_jfr_chunk(g);
        struct gen_jfr_frame *f = xcalloc(frames, sizeof(*f));
        for (size_t k = 0; k < frames; k++)
            f[k].method = k ? f[0].method : gen_jfr_method(g, "a/B", "c");
        struct gen_jfr_event e = { .trace = gen_jfr_trace(g, f, frames) };
        gen_jfr_event(g, &e);
        gen_jfr_finish(g);
        xfree(f);
    }
}

/* A piece of a recording is not a recording. */
static void test_cut(void **state)
{
    (void)state;
    struct limits l = limits_default();
    struct gen_jfr g;
    struct prng p;
    struct err e;

    recording(&g, &p, 3, 1);
    for (size_t n = 0; n < g.file.len; n += 1 + n / 50)
        assert_int_equal(decode(str_sub(buf_str(&g.file), 0, n), &l, NULL, &e), ERR_INPUT);
    assert_int_equal(decode(buf_str(&g.file), &l, NULL, &e), 0);
    buf_add_c(&g.file, '\0');
    assert_int_equal(decode(buf_str(&g.file), &l, NULL, &e), ERR_INPUT);
    gen_jfr_deinit(&g);
}

/* Whatever a byte becomes: an answer, and one with a reason. */
static void test_changed(void **state)
{
    (void)state;
    static const uint8_t with[] = { 0x01, 0x80, 0xff, 0x7f };
    struct limits l = limits_default();
    struct gen_jfr g;
    struct prng p;
    struct err e;
    size_t refused = 0;

    l.decode_bytes = 32 * MIB;
    recording(&g, &p, 3, 1);
    for (size_t i = 0; i < g.file.len; i++) {
        g.file.ptr[i] ^= (char)with[i % ARRAY_LEN(with)];
        int rc = decode(buf_str(&g.file), &l, NULL, &e);
        assert_true(rc == 0 || ((rc == ERR_INPUT || rc == ERR_LIMIT) && strlen(e.text) > 8));
        refused += rc != 0;
        g.file.ptr[i] ^= (char)with[i % ARRAY_LEN(with)];
    }
    assert_true(refused > 100);
    gen_jfr_deinit(&g);
}

/* Numbers of a chunk's header that nothing could be read by. */
static void test_head(void **state)
{
    (void)state;
    static const struct {
        size_t at;
        uint64_t value; /* of 8 bytes, big-endian */
        const char *says;
    } rows[] = {
        { 8, 67, "its size" },
        { 8, 1u << 30, "its size" },
        { 16, 67, "the offset of constants" },
        { 16, 1u << 30, "the offset of constants" },
        { 24, 67, "the offset of metadata" },
        { 24, 1u << 30, "the offset of metadata" },
        { 56, 0, "ticks per second" },
        { 56, UINT64_MAX, "ticks per second" },
    };
    struct limits l = limits_default();
    struct gen_jfr g;
    struct prng p;
    struct err e;

    recording(&g, &p, 3, 1);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char *bad = xmemdup(g.file.ptr, g.file.len);
        for (size_t k = 0; k < 8; k++)
            bad[rows[i].at + k] = (char)(rows[i].value >> (56 - 8 * k));
        assert_int_equal(decode(str_n(bad, g.file.len), &l, NULL, &e), ERR_INPUT);
        if (!strstr(e.text, rows[i].says))
            fail_msg("row %zu: %s", i, e.text);
        xfree(bad);
    }
    gen_jfr_deinit(&g);
}

static void test_depth(void **state)
{
    (void)state;
    struct limits l = limits_default();
    struct gen_jfr g;
    struct prng p;
    struct push push;
    struct err e;

    recording(&g, &p, (size_t)l.frames_keep, 1);
    assert_int_equal(decode(buf_str(&g.file), &l, &push, &e), 0);
    assert_int_equal(push.drops[CHANGE_TRUNCATED], 0);
    gen_jfr_deinit(&g);
    recording(&g, &p, (size_t)l.frames, 1);
    assert_int_equal(decode(buf_str(&g.file), &l, &push, &e), 0);
    assert_int_equal(push.drops[CHANGE_TRUNCATED], 1);
    gen_jfr_deinit(&g);
    recording(&g, &p, (size_t)l.frames + 1, 1);
    assert_int_equal(decode(buf_str(&g.file), &l, NULL, &e), ERR_LIMIT);
    assert_non_null(strstr(e.text, "frames"));
    gen_jfr_deinit(&g);
}

/* 1,000 chunks, not one more; and the memory of one is that of the next. */
static void test_chunks(void **state)
{
    (void)state;
    struct limits l = limits_default();
    struct gen_jfr g;
    struct prng p;
    struct buf many;
    struct err e;

    recording(&g, &p, 3, 1);
    buf_init(&many, 64 * MIB);
    for (int i = 0; i < 1000; i++)
        buf_add_str(&many, buf_str(&g.file));
    l.decode_bytes = 4 * MIB;
    struct push push;
    assert_int_equal(decode(buf_str(&many), &l, &push, &e), 0);
    assert_int_equal(push.samples, 1000);
    buf_add_str(&many, buf_str(&g.file));
    assert_int_equal(decode(buf_str(&many), &l, NULL, &e), ERR_LIMIT);
    assert_non_null(strstr(e.text, "chunks"));
    buf_deinit(&many);
    gen_jfr_deinit(&g);
}

/* What the constants of a chunk take is charged. */
static void test_budget(void **state)
{
    (void)state;
    struct limits l = limits_default();
    struct gen_jfr g;
    struct prng p;
    struct err e;

    prng_init(&p, 5);
    gen_jfr_init(&g, &p);
    gen_jfr_chunk(&g);
    for (int i = 0; i < 20000; i++)
        gen_jfr_state(&g, "STATE");
    gen_jfr_finish(&g);
    assert_int_equal(decode(buf_str(&g.file), &l, NULL, &e), 0);
    l.decode_bytes = MIB;
    assert_int_equal(decode(buf_str(&g.file), &l, NULL, &e), ERR_LIMIT);
    assert_non_null(strstr(e.text, "decode_bytes"));
    gen_jfr_deinit(&g);
}

/* `n` methods of one class, whose name has so many bytes, in one stack. */
static int decode_sharing(size_t n, size_t bytes, struct err *e)
{
    struct limits l = limits_default();
    uint64_t *keys = xcalloc(n, sizeof(*keys));
    struct gen_jfr_frame *f = xcalloc(n, sizeof(*f));
    char *class = xcalloc(bytes + 1, 1);
    struct gen_jfr g;
    struct prng p;

    prng_init(&p, 5);
    gen_jfr_init(&g, &p);
    g.encoding = 3;
    gen_jfr_chunk(&g);
    gen_jfr_methods(&g, memset(class, 'c', bytes), "m", keys, n);
    for (size_t i = 0; i < n; i++)
        f[i].method = keys[i];
    struct gen_jfr_event event = { .trace = gen_jfr_trace(&g, f, n) };
    gen_jfr_event(&g, &event);
    gen_jfr_finish(&g);
    int rc = decode(buf_str(&g.file), &l, NULL, e);
    gen_jfr_deinit(&g);
    xfree(class);
    xfree(keys);
    xfree(f);
    return rc;
}

/* A long name is read for each method that has it: 8,000 times 60 KB are half a gigabyte, of a
 * recording of 200 KB. */
static void test_shared_names(void **state)
{
    (void)state;
    struct err e;

    assert_int_equal(decode_sharing(8000, 500, &e), 0);
    assert_int_equal(decode_sharing(8000, 60000, &e), ERR_LIMIT);
    assert_non_null(strstr(e.text, "referred to so often"));
}

/* ---- primitives ----- */

static void test_varint(void **state)
{
    (void)state;
    static const uint64_t values[] = { 0,
                                       1,
                                       127,
                                       128,
                                       16383,
                                       16384,
                                       UINT32_MAX,
                                       (UINT64_C(1) << 56) - 1,
                                       UINT64_C(1) << 56,
                                       UINT64_C(0x8000000000000000),
                                       UINT64_MAX };
    struct buf b;

    buf_init(&b, 1024);
    for (size_t i = 0; i < ARRAY_LEN(values); i++)
        for (size_t behind = 0; behind < 10; behind++) {
            uint64_t got = 0;
            buf_reset(&b);
            gen_jfr_varint(&b, values[i]);
            size_t len = b.len;
            for (size_t k = 0; k < behind; k++)
                buf_add_c(&b, '\xff');
            struct rd r = rd_of(buf_str(&b));
            assert_true(jfr_varint(&r, &got));
            assert_true(got == values[i] && rd_left(&r) == behind);
            r = rd_of(str_sub(buf_str(&b), 0, len - 1));
            assert_false(jfr_varint(&r, &got)); /* cut */
        }
    buf_deinit(&b);
}

static void test_strings(void **state)
{
    (void)state;
    const struct {
        struct str in, want;
        bool bad;
    } rows[] = {
        { STR("\0"), STR(""), false },
        { STR("\1"), STR(""), false },
        { STR("\2\7"), STR(""), false }, /* a key */
        { STR("\3\2ab"), STR("ab"), false },
        { STR("\3\3ab"), STR(""), true },
        { STR("\3\2\xc0\x80"), STR("\0"), false },                               /* Java's NUL */
        { STR("\3\6\xed\xa0\xbd\xed\xb8\x80"), STR("\xf0\x9f\x98\x80"), false }, /* and pairs */
        { STR("\3\3\xed\xa0\xbd"), STR("?"), false },
        { STR("\3\3\xed\x9f\xbf"), STR("\xed\x9f\xbf"), false }, /* no surrogate */
        { STR("\3\2\xed\xa0"), STR("\xed\xa0"), false },
        { STR("\4\2a\xe9\1"), STR("a\xc3\xa9"), false },
        { STR("\4\1\xbd\xb0\3"), STR("?"), false }, /* half a pair */
        { STR("\4\2\xbd\xb0\3a"), STR("?a"), false },
        { STR("\4\2\xbd\xb0\3\x80\xbc\3"), STR("\xf0\x9f\x98\x80"), false },
        { STR("\4\3ab"), STR(""), true },
        { STR("\5\2\xe9!"), STR("\xc3\xa9!"), false },
        { STR("\6\1a"), STR(""), true },
        { STR(""), STR(""), true },
    };
    struct buf out;

    buf_init(&out, 1024);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct rd r = rd_of(rows[i].in);
        struct jfr_string s;
        buf_reset(&out);
        assert_int_equal(jfr_string_read(&r, &s), !rows[i].bad);
        if (rows[i].bad)
            continue;
        assert_int_equal(rd_left(&r), 0);
        jfr_string_append(&s, &out);
        if (!str_eq(buf_str(&out), rows[i].want))
            fail_msg("row %zu: %.*s", i, STR_ARG(buf_str(&out)));
    }
    buf_deinit(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut),          cmocka_unit_test(test_changed),
        cmocka_unit_test(test_head),         cmocka_unit_test(test_depth),
        cmocka_unit_test(test_chunks),       cmocka_unit_test(test_budget),
        cmocka_unit_test(test_varint),       cmocka_unit_test(test_strings),
        cmocka_unit_test(test_shared_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "common/base/mem.h"
#include "common/base/prng.h"
#include "tests/lib/gen/gen_pprof.h"
#include "tests/lib/roles/dist_push.h"

#define PERIOD 10000000 /* 100 Hz */

static int decode(struct dist_push *d, const char *format, struct str body, const struct limits *l,
                  struct err *e)
{
    struct ingest_raw raw = { .name = STR("app.cpu"),
                              .format = str_c(format),
                              .sample_rate = STR("0") };

    return dist_decode_raw(d, &raw, body, l, e);
}

static void check(const char *format, struct str body, const char *want, uint64_t left_out)
{
    struct limits l = limits_default();
    struct dist_push d;
    struct buf rows;
    struct err e = { 0 };

    if (decode(&d, format, body, &l, &e))
        fail_msg("%.*s: %s", STR_ARG(body), e.text);
    dist_rows(&d.push, &rows);
    if (!str_eqc(buf_str(&rows), want))
        fail_msg("%.*s: got\n%.*swant\n%s", STR_ARG(body), STR_ARG(buf_str(&rows)), want);
    assert_int_equal(d.push.drops[DROP_LINE], left_out);
    buf_deinit(&rows);
    dist_push_free(&d);
}

static void test_lines(void **state)
{
    (void)state;
#define ROW(s) "samples\t{}\t" s "\n"
    check("folded", STR("main;work 10\nmain;idle 3\n"), ROW("main;idle\t3") ROW("main;work\t10"),
          0);
    check("groups", STR("a 1"), ROW("a\t1"), 0);              /* no last newline */
    check("", STR("\n\na 1\r\n\r\na 2\r\n"), ROW("a\t3"), 0); /* empty lines, CRLF */
    check("", STR("a b;c d 1\n"), ROW("a b;c d\t1"), 0);      /* the last blank splits */
    check("", STR("a;;b 1\n;x 1\n"), ROW("[unknown];x\t1") ROW("a;[unknown];b\t1"), 0);
    check("", STR("a;b; 1\na;b 2\na;;b;; 3\n; 4\n;;; 5\n"),
          ROW("[unknown]\t9") ROW("a;[unknown];b\t3") ROW("a;b\t3"), 0); /* heaptrack's ends */
    check("", STR("# mode: wall\n# interval: 1000\n#a;b 1\na 2\n"), ROW("#a;b\t1") ROW("a\t2"), 2);
    check("lines", STR("# 1\n"), ROW("# 1\t1"), 0);
    check("", STR("a 1 2\n"), ROW("a 1\t2"), 0);
    check("", STR("a\t5 7\n"), ROW("a\t5\t7"), 0);
    check("", STR("a 0\nb 1\n"), ROW("b\t1"), 0);
    check("", STR("a\na -1\na 1.5\na 1e3\n 5\na +1\na 0x1\na 9223372036854775808\na 4\n"),
          ROW("a\t4"), 8);
    check("", STR("a 9223372036854775807\n"), ROW("a\t9223372036854775807"), 0);
    check("",
          STR("\xef\xbb\xbf"
              "a 1\n"),
          ROW("a\t1"), 0);
    check("", STR("x[go.shape.int];c.Foo$$Lambda$14/0x0000000800066840.run 1\n"),
          ROW("x;c.Foo$$Lambda_.run\t1"), 0);
    check("lines", STR("a;b\na;b\n\nc\n"), ROW("a;b\t2") ROW("c\t1"), 0);
    check("lines", STR("a;b;\na;b\n"), ROW("a;b\t2"), 0);
    check("lines", STR("a;b 10\n"), ROW("a;b 10\t1"), 0);
    check("", STR("\xff\xfe\xe4\0;\0=\xd8\x00\xde \0\x37\0\n\0"), /* UTF-16 with a surrogate pair */
          ROW("\xc3\xa4;\xf0\x9f\x98\x80\t7"), 0);
    check("", STR("\xfe\xff\0a\0 \0\x38"), ROW("a\t8"), 0);
    check("", STR("\xff\xfe\x3d\xd8 \0\x31\0"), ROW("\xef\xbf\xbd\t1"), 0); /* half a pair */
#undef ROW
}

static void test_refused(void **state)
{
    (void)state;
    struct limits l = limits_default();
    static const struct {
        const char *bytes;
        size_t len;
    } rows[] = {
#define ROW(s) { s, sizeof(s) - 1 }
        ROW(""),
        ROW("\n\n"),
        ROW("hello"),
        ROW("hello world"),
        ROW("a;b -1\n"),
        ROW("  f+0x1\n      g\n       17\n"),     /* DTrace: counts on lines of their own */
        ROW("\x89PNG\r\n\x1a\n\0\0\0\rIHDR 5\n"), /* NUL: no text */
        ROW("\x0a\x04\x08\x01\x10\x02\x12\x00 5\n"),
        ROW("\x1f\x8b\x08 5"), /* begins as gzip, and is not */
#undef ROW
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct dist_push d;
        struct err e = { 0 };
        if (decode(&d, "", str_n(rows[i].bytes, rows[i].len), &l, &e) != ERR_INPUT)
            fail_msg("row %zu was taken: %s", i, e.text);
        dist_push_free(&d);
    }
}

/* Sum, order and repetition do not matter: against a tally kept here. */
static void test_random(void **state)
{
    (void)state;
    struct limits l = limits_default();
    uint64_t sums[27] = { 0 }, total = 0;
    struct buf body, want, rows;
    struct dist_push d;
    struct prng p;
    struct err e;

    prng_init(&p, 11);
    buf_init(&body, MIB);
    buf_init(&want, MIB);
    for (int i = 0; i < 2000; i++) {
        unsigned pick = (unsigned)prng_below(&p, 27), v = (unsigned)prng_below(&p, 9);
        buf_addf(&body, "f%u;f%u;f%u %u\n", pick / 9, pick / 3 % 3, pick % 3, v);
        sums[pick] += v;
        total += v;
    }
    for (unsigned i = 0; i < 27; i++)
        buf_addf(&want, "samples\t{}\tf%u;f%u;f%u\t%" PRIu64 "\n", i / 9, i / 3 % 3, i % 3,
                 sums[i]);
    gen_sort_lines(&want);
    assert_int_equal(decode(&d, "", buf_str(&body), &l, &e), 0);
    dist_rows(&d.push, &rows);
    assert_true(str_eq(buf_str(&rows), buf_str(&want)));
    assert_int_equal(d.push.series[0].total, total);
    buf_deinit(&body);
    buf_deinit(&want);
    buf_deinit(&rows);
    dist_push_free(&d);
}

static void deep_body(struct buf *b, size_t frames)
{
    buf_init(b, 64 * MIB);
    buf_add_str(b, STR("root;"));
    for (size_t i = 2; i < frames; i++)
        buf_add_str(b, STR("m;"));
    buf_add_str(b, STR("leaf 3\n"));
}

static void test_deep(void **state)
{
    (void)state;
    struct limits l = limits_default();
    static const size_t depths[] = { 1024, 1025, 16000, 65536 };
    struct dist_push d;
    struct buf body, rows;
    struct err e;

    for (size_t i = 0; i < ARRAY_LEN(depths); i++) {
        deep_body(&body, depths[i]);
        assert_int_equal(decode(&d, "", buf_str(&body), &l, &e), 0);
        dist_rows(&d.push, &rows);
        assert_true(str_starts(buf_str(&rows), STR("samples\t{}\troot;m;")));
        assert_true(str_ends(buf_str(&rows), STR(";leaf\t3\n")));
        assert_int_equal(d.push.stacks.node_parent.len, 1024);
        assert_int_equal(d.push.drops[CHANGE_TRUNCATED], depths[i] > 1024);
        buf_deinit(&rows);
        buf_deinit(&body);
        dist_push_free(&d);
    }
    deep_body(&body, 1000000);
    assert_int_equal(decode(&d, "", buf_str(&body), &l, &e), ERR_LIMIT);
    buf_deinit(&body);
    dist_push_free(&d);
}

static void test_limits(void **state)
{
    (void)state;
    struct limits l = limits_default();
    struct dist_push d;
    struct buf body;
    struct err e;

    buf_init(&body, 64 * MIB);
    for (int i = 0; i < 11; i++)
        buf_addf(&body, "f%d 1\n", i);
    l.samples = 11;
    assert_int_equal(decode(&d, "", buf_str(&body), &l, &e), 0);
    dist_push_free(&d);
    l.samples = 10;
    assert_int_equal(decode(&d, "", buf_str(&body), &l, &e), ERR_LIMIT);
    dist_push_free(&d);

    l = limits_default();
    for (int more = 0; more < 2; more++) { /* a frame of a megabyte is cut, one byte more refused */
        buf_reset(&body);
        while (body.len < MIB + (size_t)more)
            buf_add_c(&body, 'x');
        buf_add_str(&body, STR(" 1\n"));
        assert_int_equal(decode(&d, "", buf_str(&body), &l, &e), more ? ERR_LIMIT : 0);
        if (!more)
            assert_int_equal(d.push.stacks.string_len.ptr[1], 65536);
        dist_push_free(&d);
    }
    buf_reset(&body); /* memory: every line brings new frames */
    for (int i = 0; i < 100000; i++)
        buf_addf(&body, "frame%d;other%d 1\n", i, i);
    l.decode_bytes = 4 * MIB;
    assert_int_equal(decode(&d, "", buf_str(&body), &l, &e), ERR_LIMIT);
    assert_true(stacks_bytes(&d.push.stacks) <= l.decode_bytes);
    dist_push_free(&d);
    buf_deinit(&body);
}

static void test_period(void **state)
{
    (void)state;
    struct limits l = limits_default();
    struct ingest_raw raw = { .name = STR("app.cpu") };
    struct dist_push d;
    struct err e;

    assert_int_equal(dist_decode_raw(&d, &raw, STR("a 3\nb 9223372036854775807\n"), &l, &e), 0);
    assert_true(
        str_eqc(d.push.series[0].profile_type, "process_cpu:cpu:nanoseconds:cpu:nanoseconds"));
    assert_int_equal(d.push.series[0].values[0], 3 * PERIOD);
    assert_true(d.push.series[0].values[1] == INT64_MAX);
    assert_int_equal(d.push.series[0].unit, PERIOD);
    assert_true(d.push.drops[CHANGE_SATURATED] > 0);
    assert_int_equal(d.push.drops[CHANGE_RATE], 0);
    dist_push_free(&d);

    /* No number: the default is used, and the reply says so. Where no rate counts it does not. */
    raw.sample_rate = STR("1e2");
    assert_int_equal(dist_decode_raw(&d, &raw, STR("a 3\n"), &l, &e), 0);
    assert_int_equal(d.push.series[0].values[0], 3 * PERIOD);
    assert_int_equal(d.push.drops[CHANGE_RATE], 1);
    assert_string_equal(push_drop_name(CHANGE_RATE), "sample_rate");
    dist_push_free(&d);
    raw.name = STR("app.inuse_space");
    assert_int_equal(dist_decode_raw(&d, &raw, STR("a 3\n"), &l, &e), 0);
    assert_int_equal(d.push.drops[CHANGE_RATE], 0);
    dist_push_free(&d);

    raw.name = STR("app.cpu");
    raw.sample_rate = STR("1000000001");
    assert_int_equal(dist_decode_raw(&d, &raw, STR("a 3\n"), &l, &e), ERR_INPUT);
    dist_push_free(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines), cmocka_unit_test(test_refused), cmocka_unit_test(test_random),
        cmocka_unit_test(test_deep),  cmocka_unit_test(test_limits),  cmocka_unit_test(test_period),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON value by value: what is taken, what is refused, and where.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/net/jpull.h"

static struct arena *arena;

static bool skips(struct str text, struct err *e)
{
    struct jpull j;

    arena_reset(arena);
    jpull_init(&j, text, arena, e);
    return jpull_skip(&j) && jpull_end(&j);
}

static void test_accepted(void **state)
{
    (void)state;
    static const char *const good[] = {
        "0",
        "-0",
        "1.5e+10",
        "-12E-3",
        "\"\"",
        "true",
        " null ",
        "[]",
        "{}",
        "[1 ,2]",
        "{\"a\":[{},[],\"x\"],\"a\":1}",
        "\"\\ud83d\\ude00\\n\"",
        "[[[[[[[[[[]]]]]]]]]]",
        "\t[\r\n]",
    };
    static const char *const bad[] = {
        "",      "[",   "]",     "[1,]",   "[,1]",     "{\"a\"}", "{\"a\":}",
        "{a:1}", "01",  "1.",    ".5",     "+1",       "1e",      "--1",
        "tru",   "nul", "\"",    "\"\\\"", "\"a\nb\"", "[1 2]",   "{\"a\":1,}",
        "[1}",   "1 2", "{1:2}", "\"\\",   "-",        "[\"a\"",  "{\"a\":1",
    };
    struct err e;

    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        if (!skips(str_c(good[i]), &e))
            fail_msg("%s: %s", good[i], e.text);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        if (skips(str_c(bad[i]), &e))
            fail_msg("%s was taken", bad[i]);
        assert_int_equal(e.code, ERR_INPUT);
        assert_non_null(strstr(e.text, "JSON, line 1 column "));
    }
}

static void test_strings(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        { "\"plain\"", "plain" },
        { "\"a\\\"\\\\\\/\\b\\f\\n\\r\\tb\"", "a\"\\/\b\f\n\r\tb" },
        { "\"\\u00e9\\u20AC\\ud83d\\ude00\"", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80" },
        { "\"\\ud83dx\\ude00\"", "\xef\xbf\xbdx\xef\xbf\xbd" },
        { "\"\\ud83d\\u0041\"", "\xef\xbf\xbd"
                                "A" },
        { "\"\xff\"", "\xff" },
    };
    static const char *const bad[] = { "\"\\x\"", "\"\\u12\"", "\"\\u12g4\"", "1", "[]" };
    struct jpull j;
    struct str got;
    struct err e;

    for (size_t i = 0; i < ARRAY_LEN(pairs); i++) {
        arena_reset(arena);
        jpull_init(&j, str_c(pairs[i][0]), arena, &e);
        assert_true(jpull_string(&j, &got) && jpull_end(&j));
        assert_true(str_eqc(got, pairs[i][1]));
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        jpull_init(&j, str_c(bad[i]), arena, &e);
        assert_false(jpull_string(&j, &got));
    }
}

static void test_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t want;
    } good[] = { { "7", 7 },
                 { "\"7\"", 7 },
                 { "-1", UINT64_MAX },
                 { "18446744073709551615", UINT64_MAX },
                 { "\"-9223372036854775808\"", (uint64_t)INT64_MIN },
                 { "1e3", 1000 },
                 { "5.0", 5 },
                 { "-2.0", (uint64_t)-2 } };
    static const char *const bad[] = {
        "1.5", "18446744073709551616", "1e30", "\"\"", "\"x\"", "true", "\"1 \""
    };
    struct jpull j;
    struct err e;

    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        uint64_t v = 99;
        jpull_init(&j, str_c(good[i].text), arena, &e);
        if (!jpull_number(&j, "n", &v) || v != good[i].want)
            fail_msg("%s", good[i].text);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        uint64_t v;
        jpull_init(&j, str_c(bad[i]), arena, &e);
        if (jpull_number(&j, "n", &v))
            fail_msg("%s was taken", bad[i]);
        assert_int_equal(e.code, ERR_INPUT);
    }
}

/* A value beyond 2^63 - 1 must not come back as a negative one, which is left out. */
static void test_signed_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t want;
    } good[] = { { "7", 7 },
                 { "-1", -1 },
                 { "\"9223372036854775807\"", INT64_MAX },
                 { "-9223372036854775808", INT64_MIN },
                 { "1e3", 1000 },
                 { "-2.0", -2 } };
    static const char *const bad[] = { "9223372036854775808",
                                       "\"9223372036854775808\"",
                                       "18446744073709551615",
                                       "9223372036854775808.0",
                                       "1e19",
                                       "1.5" };
    struct jpull j;
    struct err e;
    int64_t v;

    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        jpull_init(&j, str_c(good[i].text), arena, &e);
        if (!jpull_signed(&j, "n", &v) || v != good[i].want)
            fail_msg("%s", good[i].text);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        jpull_init(&j, str_c(bad[i]), arena, &e);
        if (jpull_signed(&j, "n", &v))
            fail_msg("%s was taken", bad[i]);
        assert_int_equal(e.code, ERR_INPUT);
    }
}

static void test_depth_and_keys(void **state)
{
    (void)state;
    char text[2 * JPULL_DEPTH + 4];
    struct err e;

    memset(text, '[', sizeof(text));
    memset(text + JPULL_DEPTH, ']', JPULL_DEPTH);
    assert_true(skips(str_n(text, 2 * JPULL_DEPTH), &e));
    memset(text, '[', sizeof(text));
    memset(text + JPULL_DEPTH + 1, ']', JPULL_DEPTH + 1);
    assert_false(skips(str_n(text, 2 * JPULL_DEPTH + 2), &e));
    assert_int_equal(e.code, ERR_LIMIT);
    assert_true(jpull_key_is(STR("stackIndex"), "stackIndex"));
    assert_true(jpull_key_is(STR("stack_index"), "stackIndex"));
    assert_false(jpull_key_is(STR("stack_Index"), "stackIndex"));
    assert_false(jpull_key_is(STR("stackInde"), "stackIndex"));
    assert_false(jpull_key_is(STR("stackIndexx"), "stackIndex"));
}

/* ---- documents that are read in parts ---- */

static void test_check(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int want;
    } rows[] = {
        { "{}", 0 },
        { " [1,{\"a\":\"\\u00e9\"}] ", 0 },
        { "", ERR_INPUT },
        { "1", ERR_INPUT },
        { "\"x\"", ERR_INPUT },
        { "{} {}", ERR_INPUT },
        { "{\"a\":\"\\q\"}", ERR_INPUT },
        { "{\"a\":\"\\u12\"}", ERR_INPUT },
        { "[\"\xff\"]", ERR_INPUT },
        { "[[[1]]]", 0 },
        { "[[[[1]]]]", ERR_LIMIT },
    };
    struct err e;

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (jpull_check(str_c(rows[i].text), 3, &e) != rows[i].want)
            fail_msg("%s", rows[i].text);
}

static void test_parts(void **state)
{
    (void)state;
    static const char *const names[] = { "a", "b" };
    static const char text[] =
        "{ \"x\": [\"]}\\\"\"],\n\"b\" : {\"y\":[{}]} , \"a\":null, \"c\":7}";
    struct str parts[2] = { STR("old"), STR("old") };
    struct jpull_obj obj;
    struct jpull_it it;
    struct jpull j, k;
    size_t which, others = 0;
    struct err e;

    arena_reset(arena);
    assert_int_equal(jpull_check(str_c(text), 9, &e), 0);
    jpull_init_checked(&j, str_c(text), arena, &e);
    assert_true(jpull_object(&j, &obj));
    while (jpull_member(&j, &obj, names, 2, &which)) {
        others += which == 2;
        assert_true(which < 2 ? jpull_value(&j, &parts[which]) : jpull_skip(&j));
    }
    assert_true(!j.bad && jpull_end(&j));
    assert_int_equal(others, 2);
    assert_null(parts[0].ptr);
    assert_true(str_eqc(parts[1], "{\"y\":[{}]}"));
    /* A part is read by itself; faults name their place in the whole text. */
    jpull_part(&j, parts[1], &k);
    assert_false(jpull_array(&k, &it));
    assert_true(!k.bad && jpull_end(&k));
    jpull_part(&j, parts[1], &k);
    assert_true(jpull_object(&k, &obj) && jpull_member(&k, &obj, names, 2, &which));
    assert_false(jpull_string(&k, &parts[0]));
    assert_non_null(strstr(e.text, "line 2 column 12"));
    jpull_init(&j, STR("{\"a\":1,\"z\":1,\"z\":2,\"a\":2}"), arena, &e);
    assert_true(jpull_object(&j, &obj));
    for (int i = 0; i < 3; i++)
        assert_true(jpull_member(&j, &obj, names, 2, &which) && jpull_skip(&j));
    assert_false(jpull_member(&j, &obj, names, 2, &which));
    assert_true(j.bad && e.code == ERR_INPUT);
}

static void test_reals(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool ok;
        double want;
    } rows[] = {
        { "1", true, 1 },
        { "123456789012345", true, 123456789012345.0 },
        { "18446744064077150000", true, 18446744064077150000.0 },
        { "-2.5e1", true, -25 },
        { "\"0.5\"", true, 0.5 },
        { "null", true, 99 },
        { "\"x\"", false, 0 },
        { "1e999", false, 0 },
        { "true", false, 0 },
        { "[1]", false, 0 },
    };
    struct jpull j;
    struct err e;

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        double v = 99;
        jpull_init(&j, str_c(rows[i].text), arena, &e);
        assert_int_equal(jpull_real(&j, "it", &v), rows[i].ok);
        if (rows[i].ok)
            assert_true(v == rows[i].want);
    }
    /* What is not there leaves a negative default alone, too. */
    int64_t n = -1;
    jpull_init(&j, STR("null"), arena, &e);
    assert_true(jpull_signed(&j, "it", &n) && n == -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accepted),       cmocka_unit_test(test_strings),
        cmocka_unit_test(test_numbers),        cmocka_unit_test(test_signed_numbers),
        cmocka_unit_test(test_depth_and_keys), cmocka_unit_test(test_check),
        cmocka_unit_test(test_parts),          cmocka_unit_test(test_reals),
    };
    arena = arena_new(MIB);
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    arena_free(arena);
    return rc;
}

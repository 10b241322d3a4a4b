/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "common/base/buf.h"
#include "common/net/json_in.h"

static const struct {
    const char *name;
    struct str text;
    int code;
} rows[] = {
#define ROW(name, text, code)                  \
    {                                          \
        name, { text, sizeof(text) - 1 }, code \
    }
    ROW("object", "{\"a\":1}", 0),
    ROW("array", " [1, 2.5, \"x\", null, true] ", 0),
    ROW("2^53 + 1", "[9007199254740993]", 0),
    ROW("empty", "", ERR_INPUT),
    ROW("scalar", "1", ERR_INPUT),
    ROW("trailing bytes", "{\"a\":1}x", ERR_INPUT),
    ROW("two documents", "{}{}", ERR_INPUT),
    ROW("duplicate key", "{\"a\":1,\"a\":2}", ERR_INPUT),
    ROW("trailing comma", "[1,]", ERR_INPUT),
    ROW("leading zero", "[01]", ERR_INPUT),
    ROW("NaN", "[NaN]", ERR_INPUT),
    ROW("2^63", "[9223372036854775808]", ERR_INPUT),
    ROW("escaped NUL", "[\"\\u0000\"]", ERR_INPUT),
    ROW("NUL", "[\"\0\"]", ERR_INPUT),
    ROW("bad UTF-8", "[\"\xff\"]", ERR_INPUT),
    ROW("lone surrogate", "[\"\\ud800\"]", ERR_INPUT),
    ROW("unfinished", "{\"a\":", ERR_INPUT),
    ROW("unfinished string", "[\"a\\", ERR_INPUT),
    ROW("comment", "[1]//x", ERR_INPUT),
    ROW("1e999", "[1e999]", ERR_INPUT),
#undef ROW
};

static void test_texts(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct json_doc *d = NULL;
        struct err e = { 0 };
        int code = json_parse(rows[i].text, &d, &e);

        if (code != rows[i].code)
            fail_msg("%s: want %d, got %d (%s)", rows[i].name, rows[i].code, code, e.text);
        assert_int_equal(code == 0, d != NULL);
        json_doc_free(d);
    }
}

static void test_depth(void **state)
{
    struct buf b;
    struct json_doc *d = NULL;
    struct err e;

    (void)state;
    buf_init(&b, 4 * MIB);
    for (int deep = JSON_IN_DEPTH_MAX; deep <= JSON_IN_DEPTH_MAX + 1; deep++) {
        buf_reset(&b);
        for (int i = 0; i < deep; i++)
            buf_add_c(&b, '[');
        for (int i = 0; i < deep; i++)
            buf_add_c(&b, ']');
        assert_int_equal(json_parse(buf_str(&b), &d, &e), deep > JSON_IN_DEPTH_MAX ? ERR_LIMIT : 0);
        json_doc_free(d);
        d = NULL;
    }
    buf_reset(&b);
    for (int i = 0; i < 1000000; i++)
        buf_add_c(&b, '[');
    assert_int_equal(json_parse(buf_str(&b), &d, &e), ERR_LIMIT);
    /* Brackets in strings are no nesting, and escaped quotes do not end one. */
    buf_reset(&b);
    buf_add_str(&b, STR("[\"\\\""));
    for (int i = 0; i < 1000; i++)
        buf_add_c(&b, '{');
    buf_add_str(&b, STR("\\\\\"]"));
    assert_int_equal(json_parse(buf_str(&b), &d, &e), 0);
    json_doc_free(d);
    buf_deinit(&b);
}

static void test_tree_is_bounded(void **state)
{
    struct buf b;
    struct json_doc *d = NULL;
    struct err e;

    (void)state;
    buf_init(&b, 32 * MIB);
    buf_add_c(&b, '[');
    for (int i = 0; i < 4000000; i++)
        buf_add_str(&b, STR("[],"));
    buf_add_str(&b, STR("1]"));
    assert_int_equal(json_parse(buf_str(&b), &d, &e), ERR_LIMIT);
    /* One object of a million pairs: their keys cost more than their values. */
    buf_reset(&b);
    buf_add_c(&b, '{');
    for (int i = 0; i < 1000000; i++)
        buf_addf(&b, "%s\"%d\":1", i ? "," : "", i);
    buf_add_c(&b, '}');
    assert_int_equal(json_parse(buf_str(&b), &d, &e), ERR_LIMIT);
    buf_reset(&b);
    buf_add_str(&b, STR("[\""));
    for (int i = 0; i < 20000000; i++)
        buf_add_c(&b, 'A');
    buf_add_str(&b, STR("\"]"));
    assert_int_equal(json_parse(buf_str(&b), &d, &e), 0);
    json_doc_free(d);
    buf_deinit(&b);
}

static void test_access(void **state)
{
    struct json_doc *d = NULL;
    struct err e;
    const struct json_val *root, *v;
    struct str key;
    void *pos = NULL;
    char keys[32] = "";
    size_t n = 0;

    (void)state;
    assert_int_equal(json_parse(STR("{\"z\":[1,null,\"x\"],\"profile_typeID\":\"p\",\"n\":null,"
                                    "\"a\":{\"b\":true}}"),
                                &d, &e),
                     0);
    root = json_root(d);
    assert_true(json_is_obj(root) && !json_is_arr(root) && !json_is_obj(NULL));
    assert_null(json_get(root, "nothing", NULL));
    assert_null(json_get(root, "n", NULL));
    assert_non_null(json_get(root, "profileTypeID", "profile_typeID"));
    v = json_get(root, "z", NULL);
    assert_true(json_is_arr(v) && json_len(v) == 3 && json_len(root) == 0);
    assert_null(json_at(v, 3));
    assert_null(json_at(root, 0));
    assert_null(json_get(v, "a", "b"));
    while (json_each(root, &pos, &key, &v))
        n += (size_t)snprintf(keys + n, sizeof(keys) - n, "%.3s,", key.ptr);
    assert_string_equal(keys, "z,pro,n,a,");
    json_doc_free(d);
    json_doc_free(NULL);
}

static void test_values(void **state)
{
    static const struct {
        const char *text;
        int code;
        int64_t want;
    } ints[] = {
        { "[5]", 0, 5 },
        { "[\"-5\"]", 0, -5 },
        { "[9223372036854775807]", 0, INT64_MAX },
        { "[\"-9223372036854775808\"]", 0, INT64_MIN },
        { "[1e3]", 0, 1000 },
        { "[\"5.0\"]", 0, 5 },
        { "[null]", 0, 77 },
        { "[]", 0, 77 },
        { "[1.5]", ERR_INPUT, 77 },
        { "[1e300]", ERR_INPUT, 77 },
        { "[\"9223372036854775808\"]", ERR_INPUT, 77 },
        { "[\"x\"]", ERR_INPUT, 77 },
        { "[\"\"]", ERR_INPUT, 77 },
        { "[true]", ERR_INPUT, 77 },
        { "[{}]", ERR_INPUT, 77 },
    };
    struct json_doc *d = NULL;
    struct err e;
    struct str s = STR_NULL;
    double f = 0;
    bool b = false;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(ints); i++) {
        int64_t got = 77;
        assert_int_equal(json_parse(str_c(ints[i].text), &d, &e), 0);
        int code = json_take_i64(json_at(json_root(d), 0), "start", &got, &e);
        if (code != ints[i].code || got != ints[i].want)
            fail_msg("%s: code %d, value %" PRId64, ints[i].text, code, got);
        if (code)
            assert_non_null(strstr(e.text, "start: want an integer"));
        json_doc_free(d);
    }
    assert_int_equal(json_parse(STR("[\"t\\u00e9xt\", 2.5, \"1e2\", 7, true, null]"), &d, &e), 0);
    const struct json_val *r = json_root(d);
    assert_int_equal(json_take_str(json_at(r, 0), "s", &s, &e), 0);
    assert_true(str_eqc(s, "t\xc3\xa9xt"));
    assert_int_equal(json_take_str(json_at(r, 1), "s", &s, &e), ERR_INPUT);
    assert_string_equal(e.text, "s: want a string, got a number");
    assert_int_equal(json_take_double(json_at(r, 1), "f", &f, &e), 0);
    assert_true(f > 2.49 && f < 2.51);
    assert_int_equal(json_take_double(json_at(r, 2), "f", &f, &e), 0);
    assert_true(f > 99.9 && f < 100.1);
    assert_int_equal(json_take_double(json_at(r, 3), "f", &f, &e), 0);
    assert_true(f > 6.9 && f < 7.1);
    assert_int_equal(json_take_double(json_at(r, 4), "f", &f, &e), ERR_INPUT);
    assert_int_equal(json_take_bool(json_at(r, 4), "b", &b, &e), 0);
    assert_true(b);
    assert_int_equal(json_take_bool(json_at(r, 5), "b", &b, &e), 0);
    assert_true(b);
    assert_int_equal(json_take_bool(json_at(r, 3), "b", &b, &e), ERR_INPUT);
    json_doc_free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),           cmocka_unit_test(test_depth),
        cmocka_unit_test(test_tree_is_bounded), cmocka_unit_test(test_access),
        cmocka_unit_test(test_values),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

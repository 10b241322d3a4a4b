/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/compress/compress.h"
#include "common/net/http.h"
#include "common/net/http_param.h"

static const struct {
    const char *form, *name;
    size_t i;
    struct str want; /* ptr NULL: absent */
} rows[] = {
#define ROW(form, name, i, want)   \
    {                              \
        form, name, i,             \
        {                          \
            want, sizeof(want) - 1 \
        }                          \
    }
#define NONE(form, name, i) \
    {                       \
        form, name, i,      \
        {                   \
            NULL, 0         \
        }                   \
    }
    ROW("a=b", "a", 0, "b"),
    ROW("a", "a", 0, ""),
    ROW("a=", "a", 0, ""),
    ROW("x=1&a=b&y=2", "a", 0, "b"),
    ROW("a=1&a=2&a=3", "a", 1, "2"),
    ROW("a=1&&a=3", "a", 1, "3"),
    NONE("a=1&a=2", "a", 2),
    NONE("", "a", 0),
    NONE("ab=1", "a", 0),
    NONE("b=a=1", "a", 0),
    NONE("=1", "a", 0),
    ROW("a=b=c", "a", 0, "b=c"),
    ROW("a=b+c%20d%2B", "a", 0, "b c d+"),
    ROW("%61=1", "a", 0, "1"),
    ROW("a+b=1", "a b", 0, "1"),
    ROW("a=%zz%4%", "a", 0, "%zz%4%"),
    ROW("a=%00x%0a", "a", 0, "\0x\n"),
    ROW("a=%c3%A9\xc3\xa9", "a", 0, "\xc3\xa9\xc3\xa9"),
    ROW("name=app.cpu{env=prod,b=%22c%22}&from=1", "name", 0, "app.cpu{env=prod,b=\"c\"}"),
    ROW("query=a%26b%3dc&b=d", "query", 0, "a&b=c"),
    NONE("query=a%26b%3dc", "b", 0),
    ROW("a=1;b=2", "a", 0, "1;b=2"),
#undef ROW
#undef NONE
};

static void test_form(void **state)
{
    struct arena *a = arena_new(MIB);

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct str got = STR_NULL;
        bool found = form_param(str_c(rows[i].form), rows[i].name, rows[i].i, a, &got);
        if (found != (rows[i].want.ptr != NULL) || (found && !str_eq(got, rows[i].want)))
            fail_msg("%s, %s[%zu]: got '%.*s'", rows[i].form, rows[i].name, rows[i].i,
                     STR_ARG(got));
    }
    arena_free(a);
}

static void test_full_arena_is_absent(void **state)
{
    struct arena *a = arena_new(16);
    struct str got;

    (void)state;
    assert_true(form_param(STR("a=xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"), "a", 0, a, &got));
    assert_false(form_param(STR("a=xxxxxxxxxxxxxxxxxxxxxxxxxxxx%20"), "a", 0, a, &got));
    arena_free(a);
}

static void test_query(void **state)
{
    struct http_req r = { .query = STR("a=1&b=%41&a=2"), .arena = arena_new(MIB) };
    struct str got;

    (void)state;
    assert_true(http_param(&r, "b", &got) && str_eqc(got, "A"));
    assert_true(http_param_at(&r, "a", 1, &got) && str_eqc(got, "2"));
    assert_false(http_param_at(&r, "a", 2, &got));
    arena_free(r.arena);
}

static void test_headers(void **state)
{
    const struct http_header h[] = { { STR("X-A"), STR("1") }, { STR("x-a"), STR("2") } };
    struct http_req r = { .headers = h, .headers_len = 2 };

    (void)state;
    assert_true(str_eqc(http_header(&r, "X-a"), "1"));
    assert_null(http_header(&r, "X").ptr);
}

static void test_none_match(void **state)
{
    static const struct {
        const char *value;
        bool match;
    } cases[] = {
        { "\"v1\"", true },
        { "W/\"v1\"", true },
        { "\"a\", W/\"b\",\"v1\"", true },
        { "*", true },
        { "\"v2\"", false },
        { "v1", false },
        { "\"v1", false },
        { "", false },
        { "\"a,v1\"", false },
        { "\"\", \"v1\"", true },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct http_header h = { STR("If-None-Match"), str_c(cases[i].value) };
        struct http_req r = { .headers = &h, .headers_len = 1 };
        if (http_none_match(&r, STR("v1")) != cases[i].match)
            fail_msg("%s", cases[i].value);
    }
}

static void test_body_plain(void **state)
{
    const struct inflate_limits l = { .bytes_max = 1000, .ratio_max = 200 };
    struct buf zip, tmp;
    struct err e;
    struct str got;
    char zeros[2000] = { 0 };

    (void)state;
    buf_init(&zip, MIB);
    buf_init(&tmp, MIB);
    assert_int_equal(gzip(STR("hello"), 6, &zip, &e), 0);
    struct http_header h[2] = { { STR("content-encoding"), STR("GZIP") } };
    struct http_req r = { .headers = h, .headers_len = 1, .body = buf_str(&zip) };
    assert_int_equal(http_body_plain(&r, &l, &tmp, &got, &e), 0);
    assert_true(str_eqc(got, "hello"));
    for (size_t cut = 0; cut < zip.len; cut++) {
        buf_reset(&tmp);
        r.body = str_sub(buf_str(&zip), 0, cut);
        assert_int_equal(http_body_plain(&r, &l, &tmp, &got, &e), ERR_INPUT);
    }
    h[0].value = STR("identity");
    r.body = STR("plain");
    assert_int_equal(http_body_plain(&r, &l, &tmp, &got, &e), 0);
    assert_true(str_eqc(got, "plain"));
    h[0].value = STR("lzma");
    assert_int_equal(http_body_plain(&r, &l, &tmp, &got, &e), ERR_INPUT);
    assert_non_null(strstr(e.text, "'lzma'"));
    h[0].value = STR("br, gzip"); /* stacked in one line */
    assert_int_equal(http_body_plain(&r, &l, &tmp, &got, &e), ERR_INPUT);
    h[0].value = STR("Br");
    buf_reset(&tmp);
    r.body = STR("\x0b\x02\x80hello\x03");
    assert_int_equal(http_body_plain(&r, &l, &tmp, &got, &e), 0);
    assert_true(str_eqc(got, "hello"));
    buf_reset(&tmp);
    h[0].value = h[1].value = STR("gzip");
    h[1].name = h[0].name;
    r.headers_len = 2;
    assert_int_equal(http_body_plain(&r, &l, &tmp, &got, &e), ERR_INPUT);
    r.headers_len = 1;
    buf_reset(&zip);
    buf_reset(&tmp);
    assert_int_equal(gzip((struct str){ zeros, sizeof(zeros) }, 6, &zip, &e), 0);
    r.body = buf_str(&zip);
    assert_int_equal(http_body_plain(&r, &l, &tmp, &got, &e), ERR_LIMIT);
    buf_deinit(&zip);
    buf_deinit(&tmp);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_form),       cmocka_unit_test(test_full_arena_is_absent),
        cmocka_unit_test(test_query),      cmocka_unit_test(test_headers),
        cmocka_unit_test(test_none_match), cmocka_unit_test(test_body_plain),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

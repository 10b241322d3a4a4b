/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "distributor/formats/appname.h"

static const struct appname_limits limits = { 30, 1024, 2048 };

static int parse(struct str text, const struct appname_limits *l, char *ret, size_t size,
                 struct err *e)
{
    CLEANUP(arena_freep) struct arena *a = arena_new(MIB);
    struct appname n;
    struct buf out;

    if (appname_parse(text, l, a, &n, e))
        return e->code;
    buf_init(&out, MIB);
    appname_format(&n, &out);
    snprintf(ret, size, "%.*s", STR_ARG(buf_str(&out)));
    buf_deinit(&out);
    return 0;
}

static void test_grammar(void **state)
{
    (void)state;
    static const struct {
        const char *text, *canonical;
    } rows[] = {
        { "app", "app{}" },
        { "app.cpu", "app.cpu{}" },
        { "  my-app/1_x.cpu  ", "my-app/1_x.cpu{}" },
        { "app{}", "app{}" },
        { "app{ }", "app{}" },
        { "app{b=2,a=1}", "app{a=1,b=2}" },
        { "app{ a = x y , b = }", "app{a=x y}" },
        { "app{a=1,a=2}", "app{a=2}" },
        { "app{a=1,a=}", "app{}" }, /* the last one wins, and says nothing */
        { "app{a=1,}", "app{a=1}" },
        { "app{a={\"x\"=y}", "app{a={\"x\"=y}" },
        { "app{a=1,b=2", "app{a=1}" }, /* not terminated: dropped */
        { "app{a=1", "app{}" },
        { "app{", "app{}" },
        { "app{a=1}tail{b=2}", "app{a=1}" },
        { "app{__name__=other.cpu,x=1}", "other.cpu{x=1}" },
        { "app{__session_id__=7}", "app{__session_id__=7}" },
        { "app{otel.scope.name=x}", "app{otel.scope.name=x}" },
        { "app{k=\xc3\xa4\xe2\x82\xac}", "app{k=\xc3\xa4\xe2\x82\xac}" },
        { "app{a=b=c}", "app{a=b=c}" },
        { "0", "0{}" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct err e = { 0 };
        char got[256] = "";
        int rc = parse(str_c(rows[i].text), &limits, got, sizeof(got), &e);
        if (rc || strcmp(got, rows[i].canonical) != 0)
            fail_msg("%s: %s %s, want %s", rows[i].text, got, e.text, rows[i].canonical);
    }
}

#define EMPTY    "name: the service name is empty; want for example name=my.app{env=dev}"
#define IN_APP   "a service name: letters, digits and _ . - / are"
#define IN_LABEL "a label name: letters, digits, _ and . are"

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } rows[] = {
        { "", EMPTY },
        { "  ", EMPTY },
        { "{a=1}", EMPTY },
        { "my app", "name: byte 0x20 is not allowed in " IN_APP },
        { "app;x", "name: character ';' is not allowed in " IN_APP },
        { "\xc3\xa4pp", "name: byte 0xc3 is not allowed in " IN_APP },
        { "app{a b=1}", "name: byte 0x20 is not allowed in " IN_LABEL },
        { "app{a b=1", "name: byte 0x20 is not allowed in " IN_LABEL },
        { "app{a-b=1}", "name: character '-' is not allowed in " IN_LABEL },
        { "app{=1}", "name: a label name is empty" },
        { "app{ =1}", "name: a label name is empty" },
        { "app{a}", "name: label a has no value" },
        { "app{a,b=1}", "name: label a has no value" },
        { "app{a=\xff}", "name: the value of label a is not valid UTF-8" },
        { "app{__name__=bad name}", "name: byte 0x20 is not allowed in " IN_APP },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct err e = { 0 };
        char got[256] = "";
        int rc = parse(str_c(rows[i].text), &limits, got, sizeof(got), &e);
        if (rc != ERR_INPUT || strcmp(e.text, rows[i].says) != 0)
            fail_msg("\"%s\": %s %s", rows[i].text, got, e.text);
    }
}

static void test_limits(void **state)
{
    (void)state;
    const struct appname_limits few = { 2, 4, 5 };
    struct err e;
    char got[256];

    assert_int_equal(parse(STR("a{x=1,y=2}"), &few, got, sizeof(got), &e), 0);
    assert_int_equal(parse(STR("a{x=1,y=2,z=3}"), &few, got, sizeof(got), &e), ERR_LIMIT);
    assert_int_equal(parse(STR("a{abcd=12345}"), &few, got, sizeof(got), &e), 0);
    assert_int_equal(parse(STR("a{abcde=1}"), &few, got, sizeof(got), &e), ERR_LIMIT);
    assert_int_equal(parse(STR("a{abcd=123456}"), &few, got, sizeof(got), &e), ERR_LIMIT);

    /* A million commas fit neither the arena nor the patience: refused, not crashed. */
    struct buf b;
    buf_init(&b, 4 * MIB);
    buf_add_str(&b, STR("a{"));
    for (size_t i = 0; i < 1000000; i++)
        buf_add_str(&b, STR("a=,"));
    assert_int_equal(parse(buf_str(&b), &limits, got, sizeof(got), &e), ERR_LIMIT);
    buf_deinit(&b);
}

/* The canonical form parses to itself. */
static void test_round_trip(void **state)
{
    (void)state;
    char once[256], twice[256];
    struct err e;

    assert_int_equal(parse(STR(" x.y { c=3 , a = 1, b=2,a=9 } "), &limits, once, sizeof(once), &e),
                     0);
    assert_int_equal(parse(str_c(once), &limits, twice, sizeof(twice), &e), 0);
    assert_string_equal(once, twice);
    assert_string_equal(once, "x.y{a=9,b=2,c=3}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grammar),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

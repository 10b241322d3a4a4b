/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/base/mem.h"
#include "common/base/prng.h"
#include "common/model/selector.h"

#define P SELECTOR_PROMETHEUS
#define F SELECTOR_FLAMEQL

static void test_parse(void **state)
{
    (void)state;
    static const struct {
        enum selector_dialect d;
        const char *text, *printed; /* as selector_format writes it */
    } rows[] = {
        { P, "{}", "{}" },
        { P, " { } ", "{}" },
        { P, "process_cpu:cpu:nanoseconds:cpu:nanoseconds",
          "process_cpu:cpu:nanoseconds:cpu:nanoseconds{}" },
        { P, "memory:inuse_space:bytes::{}", "memory:inuse_space:bytes::{}" },
        { P, "a{b=\"c\"}", "a{b=\"c\"}" },
        { P, "a {b = \"c\" , d!=\"e\",}", "a{b=\"c\",d!=\"e\"}" },
        { P, "{a=~\"b|c\",d!~\"e.*\"}", "{a=~\"b|c\",d!~\"e.*\"}" },
        { P, "{a=''}", "{a=\"\"}" },
        { P, "{a='it\\'s \"x\"'}", "{a=\"it's \\\"x\\\"\"}" },
        { P, "{a=`raw\\n\"`}", "{a=\"raw\\\\n\\\"\"}" },
        { P, "{a=\"\\x41\\101\\u00e9\\U0001f525\\t\"}", "{a=\"AA\xc3\xa9\xf0\x9f\x94\xa5\\x09\"}" },
        { P, "{\"service.name\"=\"x\"}", "{\"service.name\"=\"x\"}" },
        { P, "{\"a:b:c:d:e\", x=\"y\"}", "a:b:c:d:e{x=\"y\"}" },
        { P, "{\"my metric\"}", "{\"my metric\"}" },
        { P, "{__name__=\"n\",__profile_type__=\"a:b:c::\"}",
          "{__name__=\"n\",__profile_type__=\"a:b:c::\"}" },
        { P, "{a=\"b\",a=\"c\"}", "{a=\"b\",a=\"c\"}" },
        { F, "app.cpu", "{\"app.cpu\"}" },
        { F, "app.cpu{}", "{\"app.cpu\"}" },
        { F, "my-app/x.cpu{env=\"prod\", region!~\"eu.*\"}",
          "{\"my-app/x.cpu\",env=\"prod\",region!~\"eu.*\"}" },
        { F, "1app{k=\"a\\\"b\"}", "{\"1app\",k=\"a\\\\\\\"b\"}" },
        { F, "a{b!=\"\"}", "a{b!=\"\"}" },
        { F, "a{b.c=\"d\"}", "a{\"b.c\"=\"d\"}" },
    };
    CLEANUP(arena_freep) struct arena *a = arena_new(MIB);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct selector s;
        struct err e;
        struct buf out;
        print_message("%s\n", rows[i].text);
        assert_int_equal(selector_parse(str_c(rows[i].text), rows[i].d, a, &s, &e), 0);
        buf_init(&out, 4096);
        selector_format(&s, &out);
        buf_add_c(&out, '\0');
        assert_string_equal(out.ptr, rows[i].printed);
        buf_deinit(&out);
    }
}

static void test_errors_name_the_column(void **state)
{
    (void)state;
    static const struct {
        enum selector_dialect d;
        const char *text;
        int column; /* 0: no column */
    } rows[] = {
        { P, "", 0 },
        { P, "   ", 0 },
        { P, "{", 2 },
        { P, "{a", 3 },
        { P, "{a=", 4 },
        { P, "{a=b}", 4 },
        { P, "{a=\"b}", 4 },
        { P, "{a=\"b\"", 7 },
        { P, "{a=\"b\"}}", 8 },
        { P, "{a=\"b\"} x", 9 },
        { P, "{a=\"b\" c=\"d\"}", 8 },
        { P, "{,}", 2 },
        { P, "{a=\"b\",,}", 8 },
        { P, "{a:=\"b\"}", 3 },
        { P, "{1a=\"b\"}", 2 },
        { P, "{a==\"b\"}", 4 },
        { P, "{a>\"b\"}", 3 },
        { P, "1a{}", 1 },
        { P, "a.b{}", 2 },
        { P, "{a=\"\\q\"}", 5 },
        { P, "{a=\"\\'\"}", 5 },
        { P, "{a=\"\\x4\"}", 5 },
        { P, "{a=\"\\400\"}", 5 },
        { P, "{a=\"\\ud800\"}", 5 },
        { P, "{a=\"\\U00110000\"}", 5 },
        { P, "{a=\"x\ny\"}", 4 },
        { P, "m{\"n\"}", 3 },
        { P, "{\"\"}", 2 },
        { P, "{\"\"=\"x\"}", 2 },
        { F, "{a=\"b\"}", 1 },
        { F, "app{a='b'}", 7 },
        { F, "app{a=\"\"}", 7 },
        { F, "app{__name__=\"b\"}", 14 },
        { F, "app{a=\"b\\\"}", 7 },
        { F, "a:b", 2 },
    };
    CLEANUP(arena_freep) struct arena *a = arena_new(MIB);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct selector s;
        struct err e = { 0 };
        char want[40];
        print_message("%s\n", rows[i].text);
        assert_int_equal(selector_parse(str_c(rows[i].text), rows[i].d, a, &s, &e), ERR_INPUT);
        snprintf(want, sizeof(want), "column %d,", rows[i].column);
        if (rows[i].column && !strstr(e.text, want))
            fail_msg("\"%s\" has no \"%s\"", e.text, want);
    }
}

static void test_sizes_are_bounded(void **state)
{
    (void)state;
    CLEANUP(arena_freep) struct arena *a = arena_new(MIB);
    struct selector s;
    struct err e;
    struct buf b;

    buf_init(&b, MIB);
    buf_add_c(&b, '{');
    for (int i = 0; i < 64; i++)
        buf_addf(&b, "a%d=\"x\",", i);
    buf_add_c(&b, '}');
    assert_int_equal(selector_parse(buf_str(&b), P, a, &s, &e), 0);
    assert_int_equal(s.len, 64);
    b.len--;
    buf_add_str(&b, STR("b=\"x\"}"));
    assert_int_equal(selector_parse(buf_str(&b), P, a, &s, &e), ERR_INPUT);
    buf_reset(&b);
    buf_add_str(&b, STR("{a=\""));
    for (size_t i = 0; i < 17 * KIB; i++)
        buf_add_c(&b, 'x');
    buf_add_str(&b, STR("\"}"));
    assert_int_equal(selector_parse(buf_str(&b), P, a, &s, &e), ERR_INPUT);
    for (size_t len = 64 * KIB; len <= 64 * KIB + 1; len++) {
        buf_reset(&b);
        buf_add_str(&b, STR("{a=\"b\"}"));
        while (b.len < len)
            buf_add_c(&b, ' ');
        int code = selector_parse(buf_str(&b), P, a, &s, &e);
        assert_int_equal(code, len > 64 * KIB ? ERR_INPUT : 0);
    }
    CLEANUP(arena_freep) struct arena *tiny = arena_new(16);
    assert_int_equal(selector_parse(STR("{a=\"b\"}"), P, tiny, &s, &e), ERR_LIMIT);
    buf_deinit(&b);
}

static int match_one(const char *text, enum selector_dialect d, struct str value)
{
    CLEANUP(arena_freep) struct arena *a = arena_new(MIB);
    struct selector s;
    struct err e = { 0 };

    assert_int_equal(selector_parse(str_c(text), d, a, &s, &e), 0);
    assert_int_equal(selector_compile(&s, &e), 0);
    int hit = 1;
    for (size_t i = 0; i < s.len && hit == 1; i++)
        hit = matcher_match(&s.matchers[i], value, &e);
    selector_deinit(&s);
    return hit;
}

static void test_match(void **state)
{
    (void)state;
    const struct {
        enum selector_dialect d;
        const char *text;
        struct str value;
        int hit;
    } rows[] = {
        { P, "{a=\"b\"}", STR("b"), 1 },
        { P, "{a=\"b\"}", STR_NULL, 0 },
        { P, "{a=\"\"}", STR_NULL, 1 },
        { P, "{a!=\"x\"}", STR_NULL, 1 },
        { P, "{a=~\".*\"}", STR_NULL, 1 },
        { P, "{a=~\".+\"}", STR_NULL, 0 },
        { P, "{a=~\"b\"}", STR("abc"), 0 },
        { F, "m{a=~\"b\"}", STR("abc"), 1 },
        { P, "{a!~\"b\"}", STR("abc"), 1 },
        { F, "m{a!~\"b\"}", STR("abc"), 0 },
        { P, "{a!~\"x\"}", STR_NULL, 1 },
        { P, "{a=~\"b.*\",a!=\"bc\"}", STR("bc"), 0 },
        { P, "{a=~\"b.*\",a!=\"bc\"}", STR("bd"), 1 },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        print_message("%s\n", rows[i].text);
        assert_int_equal(match_one(rows[i].text, rows[i].d, rows[i].value), rows[i].hit);
    }
}

static void test_compile_and_limit_errors_name_the_matcher(void **state)
{
    (void)state;
    CLEANUP(arena_freep) struct arena *a = arena_new(MIB);
    struct selector s;
    struct err e = { 0 };
    char value[4000];

    assert_int_equal(selector_parse(STR("{x=~\"ok\",pod=~\"(a\"}"), P, a, &s, &e), 0);
    assert_int_equal(selector_compile(&s, &e), ERR_INPUT);
    assert_non_null(strstr(e.text, "matcher pod"));
    selector_deinit(&s);
    assert_int_equal(selector_parse(STR("{pod!~\"(a*)*[bc]\"}"), P, a, &s, &e), 0);
    assert_int_equal(selector_compile(&s, &e), 0);
    memset(value, 'a', sizeof(value));
    assert_int_equal(matcher_match(&s.matchers[0], str_n(value, sizeof(value)), &e), -1);
    assert_int_equal(e.code, ERR_LIMIT);
    assert_non_null(strstr(e.text, "matcher pod"));
    selector_deinit(&s);
}

/* parse(format(s)) is s, for random names and values. */
static void test_format_round_trip(void **state)
{
    (void)state;
    static const char bytes[] = "ab_:.\"'`\\\n\t\x7f\x01{}=~!,\xc3\xa9";
    uint64_t seed = 7;
    struct prng p;

    print_message("seed %llu\n", (unsigned long long)seed);
    prng_init(&p, seed);
    for (int round = 0; round < 3000; round++) {
        CLEANUP(arena_freep) struct arena *a = arena_new(MIB);
        char text[5][2][12];
        struct matcher m[4] = { 0 };
        struct selector s = { .matchers = m, .len = prng_below(&p, 5) }, back;
        struct err e;
        struct buf out;
        for (size_t i = 0; i < 5; i++)
            for (size_t k = 0; k < 12; k++) {
                text[i][0][k] = bytes[prng_below(&p, sizeof(bytes) - 1)];
                text[i][1][k] = bytes[prng_below(&p, sizeof(bytes) - 1)];
            }
        for (size_t i = 0; i < s.len; i++)
            m[i] = (struct matcher){ .op = (enum match_op)prng_below(&p, 4),
                                     .name = { text[i][0], 1 + prng_below(&p, 11) },
                                     .value = { text[i][1], prng_below(&p, 12) } };
        s.metric = (struct str){ text[4][0], prng_below(&p, 12) };
        buf_init(&out, MIB);
        selector_format(&s, &out);
        if (selector_parse(buf_str(&out), P, a, &back, &e))
            fail_msg("%.*s: %s", STR_ARG(buf_str(&out)), e.text);
        assert_true(str_eq(back.metric, s.metric));
        assert_int_equal(back.len, s.len);
        for (size_t i = 0; i < s.len; i++) {
            assert_int_equal(back.matchers[i].op, m[i].op);
            assert_true(str_eq(back.matchers[i].name, m[i].name));
            assert_true(str_eq(back.matchers[i].value, m[i].value));
        }
        buf_deinit(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse),
        cmocka_unit_test(test_errors_name_the_column),
        cmocka_unit_test(test_sizes_are_bounded),
        cmocka_unit_test(test_match),
        cmocka_unit_test(test_compile_and_limit_errors_name_the_matcher),
        cmocka_unit_test(test_format_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a question names ids; which point an exemplar stands in. The answers themselves:
 * tests/cluster/out/test_exemplars.py.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "querier/select/exemplars.h"

#define SPANS    (1u << EXID_SPAN)
#define TRACES   (1u << EXID_TRACE)
#define PROFILES (1u << EXID_SPAN | 1u << EXID_PROFILE)
#define CPU      "process_cpu:cpu:nanoseconds:cpu:nanoseconds"

static void test_of_spec(void **state)
{
    static const struct {
        const char *query;
        unsigned kinds;
        const char *ids; /* texts, blanks between */
        size_t matchers; /* left */
        const char *refused;
    } rows[] = {
        { CPU "{a=\"b\"}", 0, "", 1, NULL },
        { CPU "{span_id=\"x\"}", SPANS, "x", 0, NULL },
        { CPU "{a=\"b\",profile_id=\"x\",c=~\"d\"}", PROFILES, "x", 2, NULL },
        { CPU "{trace_id=~\"y|x|y\"}", TRACES, "x y", 0, NULL },
        { CPU "{span_id=\"00000000000000AB\"}", SPANS, "00000000000000ab", 0, NULL },
        { CPU "{span_id=\"\",a=\"b\"}", 0, "", 1, NULL }, /* no series has the label */
        { CPU "{span_id!=\"x\"}", 0, "", 0, "matched by" },
        { CPU "{span_id=~\"a.*\"}", 0, "", 0, "matched by" },
        { CPU "{span_id!~\"a\"}", 0, "", 0, "matched by" },
        { CPU "{span_id=\"a\",trace_id=\"b\"}", 0, "", 0, "one of" },
        { CPU "{span_id=\"0000000000000000\"}", 0, "", 0, "is no id" },
        { "app.cpu{profile_id=\"x\"}", PROFILES, "x", 1, NULL }, /* service_name stays */
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct arena *a = arena_new(MIB);
        struct query_spec *s = ARENA_NEW(a, struct query_spec);
        struct exm_ids ids;
        size_t left = 0;
        struct err e;

        assert_int_equal(query_spec_render(str_c(rows[i].query), true, a, s, &e), 0);
        int code = exm_of_spec(s, a, &ids, &e);
        if (rows[i].refused) {
            if (code != ERR_INPUT || !strstr(e.text, rows[i].refused))
                fail_msg("%s: %d %s", rows[i].query, code, e.text);
            arena_free(a);
            continue;
        }
        if (code)
            fail_msg("%s: %s", rows[i].query, e.text);
        assert_int_equal(ids.kinds, rows[i].kinds);
        for (size_t k = 0; k < s->len; k++)
            left += s->selectors[k].len;
        assert_int_equal(left, rows[i].matchers);
        struct str rest = str_c(rows[i].ids), part;
        bool more = rest.len > 0;
        for (size_t k = 0; k < ids.len; k++) {
            char text[EXID_BYTES_MAX];
            struct str got = str_n(text, exid_text(ids.ids[k], text));
            assert_true(str_next(&rest, ' ', &more, &part) && str_eq(got, part));
        }
        assert_int_equal(rest.len, 0);
        arena_free(a);
    }
}

static void test_point(void **state)
{
    const struct plan_grid g = { .origin_ms = 1000, .step_ms = 100, .points = 3 };
    static const struct {
        int64_t ms;
        int k; /* -1: none */
    } rows[] = { { 899, -1 }, { 900, -1 }, { 901, 0 },  { 1000, 0 }, { 1001, 1 },
                 { 1100, 1 }, { 1101, 2 }, { 1200, 2 }, { 1201, -1 } };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        uint32_t k = 99;
        bool in = exm_point(&g, rows[i].ms, &k);
        assert_int_equal(in, rows[i].k >= 0);
        if (in)
            assert_int_equal(k, rows[i].k);
    }
}

static void test_texts(void **state)
{
    struct arena *a = arena_new(4 * MIB);
    struct str many[1025], some[] = { STR("b"), STR("a"), STR("b") };
    struct exm_ids ids;
    struct err e;

    (void)state;
    assert_int_equal(exm_of_texts(some, 3, SPANS, a, &ids, &e), 0);
    assert_int_equal(ids.len, 2);
    assert_true(str_eq(ids.ids[0], STR("\x01"
                                       "a")));
    for (size_t i = 0; i < ARRAY_LEN(many); i++)
        many[i] = STR("x");
    assert_int_equal(exm_of_texts(many, ARRAY_LEN(many), SPANS, a, &ids, &e), ERR_LIMIT);
    assert_int_equal(exm_of_texts(NULL, 0, SPANS, a, &ids, &e), 0);
    assert_true(ids.kinds == SPANS && ids.len == 0); /* about spans, and none of them */
    arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_of_spec),
        cmocka_unit_test(test_point),
        cmocka_unit_test(test_texts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

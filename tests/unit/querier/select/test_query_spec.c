/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "common/base/buf.h"
#include "querier/select/query_spec.h"

#define CPU "process_cpu:cpu:nanoseconds:cpu:nanoseconds"

/* All matchers, for comparing. */
static void print(const struct query_spec *s, char *out, size_t size)
{
    struct buf b;

    buf_init(&b, size - 1);
    for (size_t i = 0; i < s->len; i++)
        selector_format(&s->selectors[i], &b);
    assert_true(buf_ok(&b));
    memcpy(out, b.ptr ? b.ptr : "", b.len);
    out[b.len] = '\0';
    buf_deinit(&b);
}

static void test_render_texts(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool flameql;
        const char *type, *matchers; /* type NULL: an error; "" an old name */
    } rows[] = {
        { CPU "{}", false, CPU, "{}" },
        { CPU, false, CPU, "{}" },
        { CPU ":delta{a=\"b\"}", false, CPU, "{a=\"b\"}" },
        { "{__name__=\"" CPU "\",a=\"b\"}", false, CPU, "{a=\"b\"}" },
        { "{a=\"b\",__profile_type__=\"" CPU "\"}", false, CPU, "{a=\"b\"}" },
        { "{__name__=\"process_cpu\",__profile_type__=\"" CPU "\"}", false, CPU,
          "{__name__=\"process_cpu\"}" },
        { "{\"" CPU "\",a=\"b\"}", false, CPU, "{a=\"b\"}" },
        { "{__name__!=\"" CPU "\"}", false, NULL, NULL },
        { "{a=\"b\"}", false, NULL, NULL },
        { "app.cpu{}", false, NULL, NULL },
        { "cpu{}", false, NULL, NULL },
        { "", false, NULL, NULL },
        { "  ", true, NULL, NULL },
        { "app.cpu", true, "", "{}{service_name=\"app\"}" },
        { "app.cpu{env=\"x\"}", true, "", "{env=\"x\"}{service_name=\"app\"}" },
        { "my.app", true, "", "{}{service_name=\"my.app\"}" },
        { CPU "{a=\"b\"}", true, CPU, "{a=\"b\"}" },
        { "{__name__=\"" CPU "\"}", true, CPU, "{}" },
        { "app.cpu{a='b'}", true, NULL, NULL },
        { CPU "{a=~\"(\"}", false, NULL, NULL },
        { "app{a=~\"(\"}", true, NULL, NULL },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        CLEANUP(arena_freep) struct arena *a = arena_new(MIB);
        struct query_spec s;
        struct err e;
        char out[512];
        print_message("%s\n", rows[i].text);
        int code = query_spec_render(str_c(rows[i].text), rows[i].flameql, a, &s, &e);
        assert_int_equal(code, rows[i].type ? 0 : ERR_INPUT);
        if (code)
            continue;
        assert_true(str_eqc(s.profile_type, rows[i].type));
        assert_int_equal(s.legacy, rows[i].type[0] == '\0');
        print(&s, out, sizeof(out));
        assert_string_equal(out, rows[i].matchers);
    }
}

static void test_flameql_regexes_search(void **state)
{
    (void)state;
    CLEANUP(arena_freep) struct arena *a = arena_new(MIB);
    struct query_spec s;
    struct err e;

    assert_int_equal(query_spec_render(STR("app.cpu{a=~\"b\"}"), true, a, &s, &e), 0);
    assert_true(s.selectors[0].matchers[0].unanchored);
    assert_int_equal(query_spec_render(STR(CPU "{a=~\"b\"}"), true, a, &s, &e), 0);
    assert_false(s.selectors[0].matchers[0].unanchored);
}

static void test_label_texts(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool flameql;
        const char *matchers;
    } rows[] = {
        { "", false, "" },
        { " ", true, "" },
        { "{a=\"b\"}", false, "{a=\"b\"}" },
        { CPU "{a=\"b\"}", false, "{a=\"b\"}{__profile_type__=\"" CPU "\"}" },
        { "process_cpu{}", false, "{}{__name__=\"process_cpu\"}" },
        { "app.cpu{a=\"b\"}", true, "{a=\"b\"}{service_name=\"app\"}" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        CLEANUP(arena_freep) struct arena *a = arena_new(MIB);
        struct query_spec s;
        struct err e;
        char out[512];
        assert_int_equal(query_spec_labels(str_c(rows[i].text), rows[i].flameql, a, &s, &e), 0);
        print(&s, out, sizeof(out));
        assert_string_equal(out, rows[i].matchers);
    }
}

static void test_many_selectors(void **state)
{
    (void)state;
    CLEANUP(arena_freep) struct arena *a = arena_new(16 * MIB);
    struct query_spec s = { 0 };
    struct err e;
    int n = 0;

    while (query_spec_add(&s, STR("{a=\"b\"}"), a, &e) == 0)
        n++;
    assert_int_equal(n, QUERY_SPEC_SELECTORS_MAX);
    assert_int_equal(e.code, ERR_LIMIT);
    CLEANUP(arena_freep) struct arena *tiny = arena_new(64);
    struct query_spec t = { 0 };
    assert_int_equal(query_spec_add(&t, STR("{a=\"b\"}"), tiny, &e), ERR_LIMIT);
}

static struct ptype type_of(const char *id)
{
    struct ptype t;
    struct err e;

    assert_int_equal(ptype_parse(str_c(id), &t, &e), 0);
    return t;
}

static void test_old_names(void **state)
{
    (void)state;
    static const struct {
        const char *name, *service, *best;
    } rows[] = {
        { "app.cpu", "app", CPU },
        { "app.itimer", "app", CPU },
        { "a.b.c.wall", "a.b.c", "wall:wall:nanoseconds:cpu:nanoseconds" },
        { "app.inuse_space", "app", "memory:inuse_space:bytes::" },
        { "app.alloc_objects", "app", "memory:alloc_objects:count::" },
        { "app.goroutines", "app", "goroutine:goroutines:count::" },
        { "app.mutex_duration", "app", "mutex:delay:nanoseconds::" },
        { "app.block_count", "app", "block:contentions:count::" },
        { "app.lock_count", "app", "block:contentions:count::" },
        { "app.alloc_in_new_tlab_bytes", "app", "memory:alloc_in_new_tlab_bytes:bytes::" },
        { "app.live", "app", "memory:live:count::" },
        { "app.exceptions", "app", "exceptions:samples:count::" },
        { "app.bytes", "app", "memory:samples:bytes::" },
        { "my.service", "my.service", CPU },
        { "app", "app", CPU },
        { ".cpu", ".cpu", CPU }, /* no service before the dot: the whole is the name */
        { "app.", "app.", CPU },
        { "app.CPU", "app.CPU", CPU },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct app_name_types_app a = app_name_types_app_of(str_c(rows[i].name));
        assert_true(str_eqc(a.service, rows[i].service));
        assert_string_equal(app_name_types_type_id(a.kind), rows[i].best);
        struct ptype t = type_of(rows[i].best);
        assert_int_equal(app_name_types_rank(a.kind, &t), 0);
    }
}

/* In either dialect an error says where in the query it is. */
static void test_errors_name_the_column(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *want;
    } rows[] = {
        { CPU "{a=\"b\" c=\"d\"}", "column 51" },
        { CPU "{a=~\"(\"}", "value at column 48" },
        { CPU "{a=\"b\",cc!~\"x**\"}", "value at column 55" },
        { "app.cpu{a=~\"[\"}", "value at column 12" },
        { "app.cpu{a=b}", "column 11" },
        { "app.cpu{a=\"\"}", "column 11" },
        { "app.cpu{__name__=\"x\"}", "column 18" },
        { "app.cpu{a=\"b\"", "column 14" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct arena *a = arena_new(64 * KIB);
        struct query_spec s;
        struct err e = { 0 };
        assert_int_equal(query_spec_render(str_c(rows[i].text), true, a, &s, &e), ERR_INPUT);
        if (!strstr(e.text, rows[i].want))
            fail_msg("%s: \"%s\", want \"%s\"", rows[i].text, e.text, rows[i].want);
        arena_free(a);
    }
}

static void test_ranks(void **state)
{
    (void)state;
    static const struct {
        const char *name, *type;
        int rank;
        const char *suffix; /* of the type */
    } rows[] = {
        { "a.cpu", "process_cpu:cpu:nanoseconds::", 0, "cpu" },
        { "a.cpu", "process_cpu:samples:count:cpu:nanoseconds", 1, "cpu" },
        { "a.cpu", "wall:wall:nanoseconds:cpu:nanoseconds", -1, "wall" },
        { "a.cpu", "process_cpu:cpu:microseconds::", -1, NULL },
        { "a.wall", "wall:wall:microseconds:wall:microseconds", 1, "wall" },
        { "a.wall", "wall:samples:count:wall:microseconds", 2, "wall" },
        { "a.inuse_space", "memory:inuse_space:bytes:space:bytes", 0, "inuse_space" },
        { "a.inuse_space", "memory:alloc_space:bytes:space:bytes", -1, "alloc_space" },
        { "a.goroutines", "goroutine:goroutine:count:goroutine:count", 1, "goroutines" },
        { "a.goroutines", "goroutines:goroutine:count:goroutine:count", 2, "goroutines" },
        { "a.lock_duration", "lock:lock_time:nanoseconds:cpu:nanoseconds", 1, "lock_duration" },
        { "a.exceptions", "exception:exception:count:cpu:nanoseconds", 1, "exceptions" },
        { "a.cpu", "otel:x:count::", -1, NULL },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct ptype t = type_of(rows[i].type);
        struct app_name_types_app a = app_name_types_app_of(str_c(rows[i].name));
        assert_int_equal(app_name_types_rank(a.kind, &t), rows[i].rank);
        if (rows[i].suffix)
            assert_string_equal(app_name_types_suffix(&t), rows[i].suffix);
        else
            assert_null(app_name_types_suffix(&t));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_render_texts),
        cmocka_unit_test(test_flameql_regexes_search),
        cmocka_unit_test(test_label_texts),
        cmocka_unit_test(test_many_selectors),
        cmocka_unit_test(test_old_names),
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_errors_name_the_column),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

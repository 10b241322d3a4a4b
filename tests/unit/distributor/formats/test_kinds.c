/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "distributor/formats/kinds.h"
#include "distributor/formats/sample_config.h"
#include "tests/lib/roles/dist_push.h"

static void test_suffixes(void **state)
{
    (void)state;
    static const struct {
        const char *app;
        uint64_t rate;
        const char *service, *id;
        uint64_t period;
    } rows[] = {
        { "app", 100, "app", "process_cpu:cpu:nanoseconds:cpu:nanoseconds", 10000000 },
        { "app.cpu", 100, "app", "process_cpu:cpu:nanoseconds:cpu:nanoseconds", 10000000 },
        { "app.itimer", 99, "app", "process_cpu:cpu:nanoseconds:cpu:nanoseconds", 10101010 },
        { "app.cpu", 0, "app", "process_cpu:samples:count::", 1 },
        { "app.wall", 1000, "app", "wall:wall:nanoseconds:cpu:nanoseconds", 1000000 },
        { "app.seconds", 0, "app", "wall:samples:count::", 1 },
        { "app.inuse_space", 100, "app", "memory:inuse_space:bytes::", 1 },
        { "app.alloc_objects", 100, "app", "memory:alloc_objects:count::", 1 },
        { "app.goroutines", 100, "app", "goroutine:goroutines:count::", 1 },
        { "app.mutex_count", 100, "app", "mutex:contentions:count::", 1 },
        { "app.lock_duration", 100, "app", "block:delay:nanoseconds::", 1 },
        { "app.alloc_in_new_tlab_bytes", 1, "app", "memory:alloc_in_new_tlab_bytes:bytes::", 1 },
        { "app.live", 1, "app", "memory:live:count::", 1 },
        { "app.exceptions", 1, "app", "exceptions:samples:count::", 1 },
        { "app.bytes", 1, "app", "memory:samples:bytes::", 1 },
        { "my.cool.app.cpu", 100, "my.cool.app", "process_cpu:cpu:nanoseconds:cpu:nanoseconds",
          10000000 },
        /* An unknown suffix belongs to the name. */
        { "my.service", 100, "my.service", "process_cpu:cpu:nanoseconds:cpu:nanoseconds",
          10000000 },
        { "app.CPU", 100, "app.CPU", "process_cpu:cpu:nanoseconds:cpu:nanoseconds", 10000000 },
        { "app.", 100, "app.", "process_cpu:cpu:nanoseconds:cpu:nanoseconds", 10000000 },
        { ".cpu", 100, ".cpu", "process_cpu:cpu:nanoseconds:cpu:nanoseconds", 10000000 },
        { "cpu", 1000000000, "cpu", "process_cpu:cpu:nanoseconds:cpu:nanoseconds", 1 },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct kind k = kind_of(str_c(rows[i].app), rows[i].rate);
        struct buf id;
        buf_init(&id, KIB);
        ptype_format(&k.type, &id);
        if (!str_eqc(k.app, rows[i].service) || !str_eqc(buf_str(&id), rows[i].id) ||
            k.period != rows[i].period)
            fail_msg("%s: %.*s %.*s %" PRIu64, rows[i].app, STR_ARG(k.app), STR_ARG(buf_str(&id)),
                     k.period);
        buf_deinit(&id);
    }
}

static void test_series_names(void **state)
{
    (void)state;
    static const struct {
        const char *types[4];
        const char *name;
    } rows[] = {
        { { "samples", "cpu" }, "process_cpu" },
        { { "samples" }, "process_cpu" },
        { { "alloc_objects", "alloc_space", "inuse_objects", "inuse_space" }, "memory" },
        { { "objects", "space" }, "memory" },
        { { "contentions", "delay" }, "mutex" },
        { { "goroutine" }, "goroutines" },
        { { "samples", "wall" }, "wall" },
        { { "exception", "lock_count" }, "lock_count" },
        { { "cpu", "exception" }, "process_cpu" },
        { { "block_count" }, "block" },
        { { "" }, "" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct str types[4], display[4];
        size_t n = 0;
        for (; n < 4 && rows[i].types[n]; n++) {
            types[n] = str_c(rows[i].types[n]);
            display[n] = kind_display_name(types[n]);
        }
        struct str got = kind_series_name(types, display, n);
        if (!str_eqc(got, rows[i].name))
            fail_msg("row %zu: %.*s, want %s", i, STR_ARG(got), rows[i].name);
    }
}

static void test_base_labels(void **state)
{
    (void)state;
    static const struct {
        const char *name, *format, *labels;
    } rows[] = {
        { "app.cpu", "", "{pyroscope_spy=\"unknown\", service_name=\"app\"}" },
        { "app.cpu{a=b,__session_id__=1,__x=y,profile_id=p,span_id=s,trace_id=t}", "",
          "{a=\"b\", pyroscope_spy=\"unknown\", service_name=\"app\"}" },
        { "app.cpu{service_name=x}", "",
          "{app_name=\"app\", pyroscope_spy=\"unknown\", service_name=\"x\"}" },
        { "app.cpu{service_name=x,app_name=y}", "",
          "{app_name=\"y\", pyroscope_spy=\"unknown\", service_name=\"x\"}" },
        { "app.cpu{__name__=other.wall}", "",
          "{pyroscope_spy=\"unknown\", service_name=\"other\"}" },
        { "app.cpu{pyroscope_spy=mine}", "",
          "{pyroscope_spy=\"unknown\", service_name=\"app\"}" }, /* spyName says it */
    };
    struct limits l = limits_default();

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct dist_push d;
        struct buf got;
        struct err e;
        if (dist_decode(&d, rows[i].name, rows[i].format, NULL, STR("a 1\n"), &l, &e))
            fail_msg("%s: %s", rows[i].name, e.text);
        buf_init(&got, KIB);
        labels_format(&d.push.base, &got);
        if (!str_eqc(buf_str(&got), rows[i].labels))
            fail_msg("%s: %.*s", rows[i].name, STR_ARG(buf_str(&got)));
        buf_deinit(&got);
        dist_push_free(&d);
    }
    /* 30 labels of the name and two that we add are two too many. */
    struct dist_push d;
    struct buf name;
    struct err e;
    buf_init(&name, 4 * KIB);
    buf_add_str(&name, STR("app{"));
    for (int i = 0; i < 29; i++)
        buf_addf(&name, "k%d=v,", i);
    buf_add_str(&name, STR("}"));
    buf_add_c(&name, '\0');
    assert_int_equal(dist_decode(&d, name.ptr, "", NULL, STR("a 1\n"), &l, &e), ERR_LIMIT);
    buf_deinit(&name);
    dist_push_free(&d);
}

static void test_detect(void **state)
{
    (void)state;
    static const struct {
        const char *format, *type;
        enum format want;
    } rows[] = {
        { "trie", NULL, FORMAT_TRIE },
        { NULL, "binary/octet-stream+trie", FORMAT_TRIE },
        { "pprof", "binary/octet-stream+trie", FORMAT_TRIE },
        { "tree", NULL, FORMAT_TREE },
        { NULL, "binary/octet-stream+tree", FORMAT_TREE },
        { "lines", "multipart/form-data; boundary=x", FORMAT_LINES },
        { "jfr", "multipart/form-data; boundary=x", FORMAT_JFR },
        { "pprof", "multipart/form-data; boundary=x", FORMAT_PPROF },
        { "speedscope", NULL, FORMAT_SPEEDSCOPE },
        { NULL, "multipart/form-data; boundary=x", FORMAT_MULTIPART },
        { "whatever", "multipart/form-data; boundary=x", FORMAT_MULTIPART },
        { "whatever", NULL, FORMAT_GROUPS },
        { "groups", "binary/octet-stream", FORMAT_GROUPS },
        { "collapsed", NULL, FORMAT_GROUPS },
        { NULL, NULL, FORMAT_GROUPS },
    };
    struct limits l = limits_default();

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        assert_int_equal(format_detect(str_c(rows[i].format), str_c(rows[i].type)), rows[i].want);
    for (enum format f = FORMAT_TRIE; f < FORMATS_LEN; f++) { /* said by name */
        struct dist_push d;
        struct err e;
        assert_int_equal(dist_decode(&d, "app", format_name(f), NULL, STR("x"), &l, &e), ERR_INPUT);
        assert_non_null(strstr(e.text, format_name(f)));
        dist_push_free(&d);
    }
}

static void test_config(void **state)
{
    (void)state;
    CLEANUP(arena_freep) struct arena *a = arena_new(MIB);
    struct sample_config c;
    struct err e;

    assert_int_equal(sample_config_parse(STR(" "), a, &c, &e), 0);
    assert_int_equal(c.len, 0);
    assert_int_equal(
        sample_config_parse(STR("{\"alloc_objects\":{\"units\":\"objects\",\"cumulative\":true},"
                                "\"lock-time\":{\"display-name\":\"block_duration\",\"x\":[1]},"
                                "\"samples\":{\"aggregation\":null,\"sampled\":false}}"),
                            a, &c, &e),
        0);
    assert_int_equal(c.len, 3);
    assert_true(sample_config_find(&c, STR("alloc_objects"))->cumulative);
    assert_true(str_eqc(sample_config_find(&c, STR("lock_time"))->display_name, "block_duration"));
    assert_null(sample_config_find(&c, STR("samples"))->display_name.ptr);
    assert_null(sample_config_find(&c, STR("cpu")));
    static const char *const bad[] = {
        "[]",
        "{",
        "x",
        "{\"a\":1}",
        "{\"a\":{\"units\":5}}",
        "{\"a\":{\"cumulative\":\"yes\"}}",
        "{\"a\":{}}{}",
        "{\"a\":{},\"a\":{}}",
        "null",
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (sample_config_parse(str_c(bad[i]), a, &c, &e) != ERR_INPUT ||
            !strstr(e.text, "sample_type_config"))
            fail_msg("%s was taken: %s", bad[i], e.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_suffixes),    cmocka_unit_test(test_series_names),
        cmocka_unit_test(test_base_labels), cmocka_unit_test(test_detect),
        cmocka_unit_test(test_config),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

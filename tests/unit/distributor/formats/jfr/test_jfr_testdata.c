/* SPDX-License-Identifier: Apache-2.0
 *
 * Every JFR sample file against the numbers that an independent decoder worked out, and every
 * hostile one against its verdict.
 *
 * The expected names are those of the file; ours went through the rules for names, so these go
 * through them here, too (the cluster test has its own copy of the rules).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "common/base/mem.h"
#include "distributor/formats/normalize.h"
#include "tests/lib/roles/dist_push.h"
#include "tests/lib/testdata.h"

static size_t files;

/* "metadata.no_class" of the expected file is ".name": a method of a class without a name. */
static struct str our_name(const char *name, size_t len, struct buf *tmp)
{
    return normalize_name(len && name[0] == '.' ? str_n(name + 1, len - 1) : str_n(name, len), tmp);
}

static bool in_list(const char *path, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(path, list[i]) == 0)
            return true;
    return false;
}

/* Names that differ in the file and not for us: sums of leaves and numbers of stacks may differ. */
static const char *const merged[] = {
    "jfr/cortex-dev-01__kafka-0__cpu_lock0_alloc0__0.jfr.gz",
};

static void check_self(const char *path, const char *type, const json_t *top,
                       const struct dist_summary *sum)
{
    struct buf tmp;
    size_t i;
    json_t *row;

    buf_init(&tmp, MIB);
    json_array_foreach((json_t *)(uintptr_t)top, i, row)
    {
        const json_t *text = json_array_get(row, 0);
        struct str name = our_name(json_string_value(text), json_string_length(text), &tmp);
        uint64_t want = (uint64_t)json_integer_value(json_array_get(row, 1)), got = 0;
        for (size_t k = 0; k < sum->self_len; k++)
            if (str_eq(str_n(sum->self[k].name, sum->self[k].len), name))
                got = sum->self[k].value;
        bool more = got > want && in_list(path, merged, ARRAY_LEN(merged));
        if (got != want && !more)
            fail_msg("%s %s: self of %.*s is %" PRIu64 ", want %" PRIu64, path, type, STR_ARG(name),
                     got, want);
    }
    buf_deinit(&tmp);
}

/* The series called `name`: "contentions" is a type of two. */
static struct push only(const struct push *p, struct str name)
{
    struct push some = *p;

    some.series = xcalloc(p->series_len + 1, sizeof(*some.series));
    some.series_len = 0;
    for (size_t i = 0; i < p->series_len; i++)
        if (str_eq(labels_get(&p->series[i].labels, STR("__name__")), name))
            some.series[some.series_len++] = p->series[i];
    return some;
}

/* `key` is "mutex:contentions", where native samples are "native:native". */
static size_t check_profile(const char *path, const char *key, const json_t *profile,
                            const struct push *push)
{
    json_t *types = json_object_get(profile, "sample_types"), *type;
    struct str name = str_n(key, strcspn(key, ":"));
    size_t i;

    struct push some = only(push, name);
    json_array_foreach(types, i, type)
    {
        const char *word = json_string_value(json_object_get(type, "type"));
        if (strcmp(json_string_value(json_object_get(type, "unit")), "ticks") == 0)
            continue; /* what a well-known server takes for nanoseconds */
        if (strcmp(word, "native") == 0)
            word = "samples";
        struct dist_summary sum;
        dist_summarise(&some, word, &sum);
        uint64_t total = (uint64_t)json_integer_value(json_object_get(type, "total"));
        if (sum.total != total)
            fail_msg("%s %.*s %s: total %" PRIu64 ", want %" PRIu64, path, STR_ARG(name), word,
                     sum.total, total);
        check_self(path, word, json_object_get(type, "top_self"), &sum);
        size_t stacks = (size_t)json_integer_value(json_object_get(profile, "distinct_stacks"));
        bool fewer = sum.stacks < stacks && in_list(path, merged, ARRAY_LEN(merged));
        if (sum.stacks != stacks && i == 0 && !fewer)
            fail_msg("%s %.*s %s: %zu stacks, want %zu", path, STR_ARG(name), word, sum.stacks,
                     stacks);
        dist_summary_deinit(&sum);
    }
    xfree(some.series);
    return json_array_size(types);
}

static void check_file(const char *path, const struct push *push)
{
    char expected[512];
    const char *key;
    json_t *profile;
    size_t types = 0;
    uint64_t without = 0;

    testdata_expected_path(path, expected, sizeof(expected));
    json_t *want = testdata_json(expected), *events = json_object_get(want, "events_without_stack");
    json_object_foreach(json_object_get(want, "profiles"), key, profile) types +=
        check_profile(path, key, profile, push);
    if (types == 0)
        assert_int_equal(push->series_len, 0);
    json_object_foreach(events, key, profile) without += (uint64_t)json_integer_value(profile);
    assert_int_equal(push->drops[DROP_NO_STACK], without);
    const char *setting = json_string_value(json_object_get(want, "jfr_event_setting"));
    for (size_t i = 0; i < push->series_len; i++)
        assert_true(str_eq(labels_get(&push->series[i].labels, STR("jfr_event")),
                           setting ? str_c(setting) : STR_NULL));
    json_t *chunk = json_array_get(json_object_get(want, "chunks"), 0);
    int64_t start = json_integer_value(json_object_get(chunk, "start_ns"));
    assert_true(push->has_time == (start / 1000000 < DIST_NOW_MS + 86400000));
    if (push->has_time)
        assert_int_equal(push->time_ns, start);
    json_decref(want);
}

static void one_file(const char *name, void *cookie)
{
    (void)cookie;
    struct limits l = limits_default();
    /* sampleRate=0: counts stay counts. */
    struct ingest_raw raw = { .name = STR("app"),
                              .from = STR("now-10s"), /* some are newer than the tests' clock */
                              .format = STR("jfr"),
                              .sample_rate = STR("0") };
    bool old = strstr(name, "_v0.9") || strstr(name, "_v1.0");
    struct dist_push d;
    struct buf body;
    struct err e = { 0 };
    char path[512];

    if (strstr(name, "labels"))
        return;
    snprintf(path, sizeof(path), "jfr/%s", name);
    testdata_read(path, &body);
    int rc = dist_decode_raw(&d, &raw, buf_str(&body), &l, &e);
    if (rc != (old ? ERR_INPUT : 0))
        fail_msg("%s: %s %s", path, err_name(rc), e.text);
    if (!old)
        check_file(path, &d.push);
    else
        assert_non_null(strstr(e.text, "version"));
    dist_push_free(&d);
    buf_deinit(&body);
    files++;
}

static void test_files(void **state)
{
    (void)state;

    if (!testdata_here("JFR samples"))
        skip();
    files = 0;
    testdata_each("jfr", one_file, NULL);
    assert_true(files >= 18);
}

static void one_verdict(const char *file, const char *verdict, void *cookie)
{
    (void)cookie;
    struct limits l = limits_default();
    struct ingest_raw raw = { .name = STR("app"), .format = STR("jfr"), .sample_rate = STR("0") };
    bool accept = strcmp(verdict, "ok") == 0 || strcmp(verdict, "drop") == 0;
    int want = accept ? 0 : strcmp(verdict, "limit") == 0 ? ERR_LIMIT : ERR_INPUT;
    struct dist_push d;
    struct buf body;
    struct err e = { 0 };
    char path[512];

    snprintf(path, sizeof(path), "corrupt/%s", file);
    testdata_read(path, &body);
    int rc = dist_decode_raw(&d, &raw, buf_str(&body), &l, &e);
    if (rc != want)
        fail_msg("%s (%s): %s %s", path, verdict, err_name(rc), e.text);
    if (accept)
        check_file(path, &d.push);
    else
        assert_true(strlen(e.text) > 8 && d.push.series_len == 0);
    dist_push_free(&d);
    buf_deinit(&body);
    files++;
}

static void test_verdicts(void **state)
{
    (void)state;

    if (!testdata_here("hostile JFR samples"))
        skip();
    files = 0;
    testdata_verdicts("jfr", one_verdict, NULL);
    assert_true(files >= 29);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_verdicts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

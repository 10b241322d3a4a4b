/* SPDX-License-Identifier: Apache-2.0
 *
 * The OTLP sample files, of all layouts and both encodings, against the numbers that an independent
 * decoder worked out; and the hostile ones against their verdicts.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "distributor/otlp/otlp_push.h"
#include "tests/lib/roles/batch_keep.h"
#include "tests/lib/roles/dist_push.h"
#include "tests/lib/testdata.h"

#define NOW_MS INT64_C(1790000000000) /* 2026-09-21 */

static int decode(struct str body, struct batch_keep *k, struct err *e)
{
    struct buf plain;
    int rc;

    batch_keep_init(k, NULL, NOW_MS);
    buf_init(&plain, 64 * MIB);
    if (gzip_sniff(body)) {
        const struct inflate_limits l = { .bytes_max = 64 * MIB };
        assert_int_equal(gunzip(body, &l, &plain, e), 0);
        body = buf_str(&plain);
    }
    if (body.len && body.ptr[0] == '{')
        rc = otlp_decode_json(body, &k->sink, e);
    else
        rc = otlp_decode_proto(body, OTLP_AUTO, &k->sink, e);
    buf_deinit(&plain);
    return rc;
}

static const char *text_at(const json_t *pair, size_t i)
{
    return json_is_array(pair) ? json_string_value(json_array_get(pair, i)) : "";
}

/* Values of CPU profiles are given in samples. */
static uint64_t scale_of(const json_t *profile)
{
    const json_t *type = json_array_get(json_object_get(profile, "sample_type"), 0);
    const json_t *period_type = json_object_get(profile, "period_type");
    int64_t period = json_integer_value(json_object_get(profile, "period"));
    bool cpu = strcmp(text_at(type, 0), "samples") == 0 && strcmp(text_at(type, 1), "count") == 0 &&
               strcmp(text_at(period_type, 0), "cpu") == 0 && period > 0;

    return cpu ? (uint64_t)period : 1;
}

/* A frame without symbols has an offset in the file here, an address of the process there: then the
 * largest of its file. */
static uint64_t self_of(const struct dist_summary *sum, struct str name)
{
    const char *mark = memmem(name.ptr, name.len, "!0x", 3);
    struct str file = mark ? str_sub(name, 0, (size_t)(mark - name.ptr) + 3) : name;

    for (size_t i = 0; i < sum->self_len; i++) {
        struct str at = str_n(sum->self[i].name, sum->self[i].len);
        if (mark ? str_starts(at, file) : str_eq(at, name))
            return sum->self[i].value;
    }
    return 0;
}

static void check_profile(const char *file, size_t at, const json_t *want, const struct push *push)
{
    uint64_t scale = scale_of(want), total;
    struct dist_summary sum;
    size_t i;
    json_t *row;

    dist_summarise(push, NULL, &sum);
    total = (uint64_t)json_integer_value(json_object_get(want, "sum_value")) * scale;
    if (sum.total != total)
        fail_msg("%s profile %zu: total %" PRIu64 ", want %" PRIu64, file, at, sum.total, total);
    json_array_foreach(json_object_get(want, "top_self"), i, row)
    {
        struct str name = str_c(json_string_value(json_array_get(row, 0)));
        uint64_t value = (uint64_t)json_integer_value(json_array_get(row, 1)) * scale;
        uint64_t got = self_of(&sum, name);
        if (got < value)
            fail_msg("%s profile %zu: self of %.*s is %" PRIu64 ", want %" PRIu64, file, at,
                     STR_ARG(name), got, value);
    }
    dist_summary_deinit(&sum);
}

static void check_file(const char *path, const struct batch_keep *k)
{
    char expected[512];

    testdata_expected_path(path, expected, sizeof(expected));
    json_t *want = testdata_json(expected), *profiles = json_object_get(want, "profiles"), *profile;
    size_t i;
    if (profiles) {
        assert_int_equal(k->pushes.len, json_array_size(profiles));
        json_array_foreach(profiles, i, profile)
            check_profile(path, i, profile, &k->pushes.ptr[i]->push);
    } else { /* JSON: totals by type only */
        const char *key;
        json_object_foreach(json_object_get(want, "totals_by_sample_type"), key, profile)
        {
            bool cpu = strcmp(key, "samples:count") == 0;
            char type[64] = { 0 };
            memcpy(type, key, MIN(strcspn(key, ":"), sizeof(type) - 1));
            assert_int_equal(batch_keep_total(k, cpu ? "cpu" : type),
                             (uint64_t)json_integer_value(profile) * (cpu ? 50000000 : 1));
        }
    }
    assert_int_equal(k->rejected, 0);
    json_decref(want);
}

static size_t files;

static void one_file(const char *name, void *cookie)
{
    struct batch_keep k;
    struct buf body, rows;
    struct err e = { 0 };
    char path[512];

    (void)cookie;
    snprintf(path, sizeof(path), "otlp/%s", name);
    testdata_read(path, &body);
    int rc = decode(buf_str(&body), &k, &e);
    if (strstr(name, "bad_stack_index")) {
        assert_int_equal(rc, ERR_INPUT);
    } else {
        if (rc)
            fail_msg("%s: %s", path, e.text);
        check_file(path, &k);
        buf_init(&rows, 64 * MIB);
        batch_keep_rows(&k, &rows);
        assert_true(rows.len > 0);
        buf_deinit(&rows);
    }
    batch_keep_free(&k);
    buf_deinit(&body);
    files++;
}

static void test_files(void **state)
{
    (void)state;
    if (!testdata_here("OTLP samples"))
        skip();
    files = 0;
    testdata_each("otlp", one_file, NULL);
    assert_true(files >= 9);
}

static void one_verdict(const char *file, const char *verdict, void *cookie)
{
    bool accept = strcmp(verdict, "ok") == 0;
    struct batch_keep k;
    struct buf body;
    struct err e = { 0 };
    char path[512];

    (void)cookie;
    snprintf(path, sizeof(path), "corrupt/%s", file);
    testdata_read(path, &body);
    int rc = decode(buf_str(&body), &k, &e);
    if (rc != (accept ? 0 : strcmp(verdict, "limit") == 0 ? ERR_LIMIT : ERR_INPUT))
        fail_msg("%s (%s): %s %s", file, verdict, err_name(rc), e.text);
    if (!accept)
        assert_true(k.pushes.len == 0 && strlen(e.text) > 8);
    else if (strstr(file, "amplify"))
        check_file(path, &k);
    else
        assert_int_equal(batch_keep_total(&k, NULL), 5);
    batch_keep_free(&k);
    buf_deinit(&body);
    files++;
}

static void test_verdicts(void **state)
{
    (void)state;
    if (!testdata_here("hostile OTLP samples"))
        skip();
    files = 0;
    testdata_verdicts("otlp", one_verdict, NULL);
    assert_int_equal(files, 8);
}

/* One request in two layouts, and in two encodings, is one and the same. */
static void same_rows(const char *one, const char *other)
{
    const char *paths[] = { one, other };
    struct batch_keep k[2];
    struct buf body, rows[2];
    struct err e;

    for (size_t i = 0; i < 2; i++) {
        testdata_read(paths[i], &body);
        if (decode(buf_str(&body), &k[i], &e))
            fail_msg("%s: %s", paths[i], e.text);
        buf_init(&rows[i], 64 * MIB);
        batch_keep_rows(&k[i], &rows[i]);
        batch_keep_free(&k[i]);
        buf_deinit(&body);
    }
    assert_true(str_eq(buf_str(&rows[0]), buf_str(&rows[1])));
    buf_deinit(&rows[0]);
    buf_deinit(&rows[1]);
}

static void test_same(void **state)
{
    (void)state;
    if (!testdata_here("OTLP samples in two forms"))
        skip();
    same_rows("otlp/v1.8_cpu_offcpu.bin", "otlp/v1.10_cpu_offcpu_same.bin");
    same_rows("otlp/v1.8_cpu_offcpu.bin", "otlp/v1.8_cpu_offcpu.json");
    same_rows("otlp/v1.10_77_resources.bin", "otlp/v1.10_77_resources.json");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_verdicts),
        cmocka_unit_test(test_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

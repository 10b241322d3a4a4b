/* SPDX-License-Identifier: Apache-2.0
 *
 * speedscope files: small ones by hand, refusals, fractions, and the sample files.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "common/base/prng.h"
#include "tests/lib/roles/dist_push.h"
#include "tests/lib/testdata.h"

#define HEAD "{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\","
#define ABC                                                                                  \
    "\"shared\":{\"frames\":[{\"name\":\"a\"},{\"name\":\"b\",\"file\":\"b.c\",\"line\":7}," \
    "{\"name\":\"c\"}]},"

static int decode(struct dist_push *d, const char *name, const char *rate, struct str body,
                  struct err *e)
{
    static struct limits l;
    struct ingest_raw raw = { .name = str_c(name),
                              .sample_rate = str_c(rate),
                              .format = STR("speedscope") };

    l = limits_default();
    return dist_decode_raw(d, &raw, body, &l, e);
}

static void check(const char *name, const char *rate, const char *body, const char *want)
{
    struct dist_push d;
    struct buf rows;
    struct err e = { 0 };

    if (decode(&d, name, rate, str_c(body), &e))
        fail_msg("%s refused: %s", body, e.text);
    dist_rows(&d.push, &rows);
    if (!str_eqc(buf_str(&rows), want))
        fail_msg("%s: got\n%.*swant\n%s", body, STR_ARG(buf_str(&rows)), want);
    buf_deinit(&rows);
    dist_push_free(&d);
}

static void test_types(void **state)
{
    (void)state;
    static const char sampled[] =
        HEAD ABC "\"profiles\":[{\"type\":\"sampled\",\"unit\":\"%s\",\"startValue\":0,"
                 "\"endValue\":4,\"samples\":[[0,1],[0,2],[0,1]],\"weights\":[1,2,1]%s}]}";
    static const struct {
        const char *app, *rate, *unit, *more, *want;
    } rows[] = {
        { "app", "100", "none", "", "cpu\t{}\ta;b\t20000000\ncpu\t{}\ta;c\t20000000\n" },
        { "app", "0", "none", "", "samples\t{}\ta;b\t2\nsamples\t{}\ta;c\t2\n" },
        { "app", "100", "microseconds", "", "cpu\t{}\ta;b\t2000\ncpu\t{}\ta;c\t2000\n" },
        { "app.wall", "100", "seconds", "",
          "wall\t{}\ta;b\t2000000000\nwall\t{}\ta;c\t2000000000\n" },
        { "app", "100", "bytes", "", "samples\t{}\ta;b\t2\nsamples\t{}\ta;c\t2\n" },
        { "app.alloc_space", "100", "bytes", "",
          "alloc_space\t{}\ta;b\t2\nalloc_space\t{}\ta;c\t2\n" },
        { "app.lock_duration", "100", "nanoseconds", "", "delay\t{}\ta;b\t2\ndelay\t{}\ta;c\t2\n" },
        { "app", "100", "nanoseconds", ",\"name\":\"t\"",
          "cpu\t{profile_name=t}\ta;b\t2\ncpu\t{profile_name=t}\ta;c\t2\n" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct buf body;
        buf_init(&body, MIB);
        buf_addf(&body, sampled, rows[i].unit, rows[i].more);
        buf_add_c(&body, '\0');
        check(rows[i].app, rows[i].rate, body.ptr, rows[i].want);
        buf_deinit(&body);
    }
}

static void test_evented(void **state)
{
    (void)state;
    /* a from 1 to 8, b in it from 2 to 5.5; c is open at the end, at 10. Starts at 1. */
    check("app", "100",
          HEAD ABC
          "\"profiles\":[{\"type\":\"evented\",\"unit\":\"milliseconds\",\"startValue\":1,"
          "\"endValue\":10,\"events\":[{\"type\":\"O\",\"frame\":0,\"at\":1},"
          "{\"type\":\"O\",\"frame\":1,\"at\":2},{\"type\":\"C\",\"frame\":1,\"at\":5.5},"
          "{\"type\":\"C\",\"frame\":0,\"at\":8},{\"type\":\"O\",\"frame\":2,\"at\":8}]}]}",
          "cpu\t{}\ta\t3500000\ncpu\t{}\ta;b\t3500000\ncpu\t{}\tc\t2000000\n");
    check("app", "100",
          HEAD ABC "\"profiles\":[{\"type\":\"evented\",\"unit\":\"none\",\"startValue\":0,"
                   "\"endValue\":0,\"events\":[]}]}",
          "");
}

/* Threads become series; two profiles of one name and type are one, whatever their units. */
static void test_several(void **state)
{
    (void)state;
#define ONE(name, unit, weight)                                    \
    "{\"type\":\"sampled\",\"name\":\"" name "\",\"unit\":\"" unit \
    "\",\"startValue\":0,\"endValue\":1,\"samples\":[[0]],\"weights\":[" weight "]}"
    check("app", "100",
          HEAD ABC "\"profiles\":[" ONE("x", "seconds", "1") "," ONE("y", "seconds", "2") "," ONE(
              "x", "milliseconds", "3") "," ONE("x", "bytes", "5") "]}",
          "samples\t{profile_name=x}\ta\t5\nwall\t{profile_name=x}\ta\t1003000000\n"
          "wall\t{profile_name=y}\ta\t2000000000\n");
#undef ONE
}

/* Any number of profiles may be one series, before and after others; of those there is a limit. */
static void test_many(void **state)
{
    (void)state;
    struct dist_push d;
    struct buf body;
    struct err e;

    for (int distinct = 1000; distinct <= 1001; distinct++) {
        buf_init(&body, 4 * MIB);
        buf_addf(&body, HEAD ABC "\"profiles\":[");
        for (int i = 0; i < 4000 + distinct; i++)
            buf_addf(&body,
                     "%s{\"type\":\"sampled\",\"name\":\"%d\",\"unit\":\"none\",\"startValue\":0,"
                     "\"endValue\":1,\"samples\":[[0]],\"weights\":[%d]}",
                     i ? "," : "", i < 4000 ? i % 2 : i - 4000, 1 + (i >= 4000));
        buf_addf(&body, "]}");
        int rc = decode(&d, "app", "0", buf_str(&body), &e);
        assert_int_equal(rc, distinct == 1000 ? 0 : ERR_LIMIT);
        if (rc) {
            assert_non_null(strstr(e.text, "more than 1000 profiles"));
        } else {
            assert_int_equal(d.push.series_len, 1000);
            for (size_t i = 0; i < 1000; i++)
                assert_int_equal(d.push.series[i].total, i < 2 ? 2002 : 2);
        }
        dist_push_free(&d);
        buf_deinit(&body);
    }
}

/* Parts come in any order, values in front of what they are values of. */
static void test_order(void **state)
{
    (void)state;
    check("app", "0",
          "{\"profiles\":[{\"weights\":[\"2\",3e0],\"samples\":[[0],[0,1]],\"unit\":\"none\","
          "\"type\":\"sampled\",\"more\":{\"frames\":[]}},{\"events\":[{\"at\":1,\"frame\":1,"
          "\"type\":\"O\"}],\"endValue\":5,\"type\":\"evented\",\"unit\":null,\"name\":null}],"
          "\"shared\":{\"x\":[1],\"frames\":[{\"line\":2,\"name\":\"\\u0061\"},{\"name\":\"b\"}]},"
          "\"$schema\":\"https:\\/\\/www.speedscope.app/file-format-schema.json\"}",
          "samples\t{}\ta\t2\nsamples\t{}\ta;b\t3\nsamples\t{}\tb\t4\n");
}

/* What an evented file of so many events comes to. */
static int events(uint64_t decode_bytes, int n, size_t *ret_bytes, struct err *e)
{
    const struct ingest_raw raw = { .name = STR("app"),
                                    .sample_rate = STR("0"),
                                    .format = STR("speedscope") };
    struct limits l = limits_default();
    struct dist_push d;
    struct buf body;

    l.decode_bytes = decode_bytes;
    buf_init(&body, 64 * MIB);
    buf_add_str(&body, STR(HEAD ABC "\"profiles\":[{\"type\":\"evented\",\"unit\":\"none\","
                                    "\"startValue\":0,\"endValue\":1,\"events\":["));
    for (int i = 0; i < n; i++)
        buf_addf(&body, "%s{\"type\":\"%c\",\"frame\":%d,\"at\":%d}", i ? "," : "",
                 i % 4 < 2 ? 'O' : 'C', i % 4 == 0 || i % 4 == 3 ? 0 : 1, i);
    buf_add_str(&body, STR("]}]}"));
    *ret_bytes = body.len;
    int rc = dist_decode_raw(&d, &raw, buf_str(&body), &l, e);
    if (!rc)
        assert_int_equal(d.push.series[0].total, n / 4 * 3);
    dist_push_free(&d);
    buf_deinit(&body);
    return rc;
}

/* A file as large as a body may be is read, in little memory. */
static void test_large(void **state)
{
    (void)state;
    size_t bytes;
    struct err e;

    if (events(256 * MIB, 920000, &bytes, &e))
        fail_msg("%s", e.text);
    assert_true(bytes > 28 * MIB && bytes < 32 * MIB);
    if (events(MIB, 920000, &bytes, &e))
        fail_msg("%s", e.text);
    assert_int_equal(events(256 * MIB, 1400000, &bytes, &e), ERR_LIMIT);
    assert_non_null(strstr(e.text, "distributor.samples"));
}

/* What a file makes us keep is charged. */
static void test_charged(void **state)
{
    (void)state;
    const struct ingest_raw raw = { .name = STR("app"), .format = STR("speedscope") };
    struct limits l = limits_default();
    struct dist_push d;
    struct buf body;
    struct err e;

    for (int kind = 0; kind < 2; kind++) {
        l.decode_bytes = 2 * MIB;
        buf_init(&body, 64 * MIB);
        buf_add_str(&body, STR(HEAD "\"shared\":{\"frames\":["));
        for (int i = 0; kind == 0 && i < 500000; i++)
            buf_add_str(&body, i ? STR(",{\"name\":\"\"}") : STR("{\"name\":\"\"}"));
        buf_add_str(&body, STR("]},\"profiles\":["));
        for (int i = 0; kind == 1 && i < 20000; i++)
            buf_add_str(&body, i ? STR(",{}") : STR("{}"));
        buf_add_str(&body, STR("]}"));
        assert_int_equal(dist_decode_raw(&d, &raw, buf_str(&body), &l, &e), ERR_LIMIT);
        assert_non_null(strstr(e.text, "distributor.decode_bytes"));
        dist_push_free(&d);
        buf_deinit(&body);
    }
}

/* 1,000 weights of 0.1 ns: 100 ns, not 0 and not 1,000. */
static void test_fractions(void **state)
{
    (void)state;
    struct buf body;

    buf_init(&body, MIB);
    buf_add_str(&body, STR(HEAD ABC "\"profiles\":[{\"type\":\"sampled\",\"unit\":\"nanoseconds\","
                                    "\"startValue\":0,\"endValue\":1,\"samples\":["));
    for (int i = 0; i < 1000; i++)
        buf_addf(&body, "%s[0]", i ? "," : "");
    buf_add_str(&body, STR("],\"weights\":["));
    for (int i = 0; i < 1000; i++)
        buf_addf(&body, "%s0.1", i ? "," : "");
    buf_add_str(&body, STR("]}]}"));
    buf_add_c(&body, '\0');
    check("app", "100", body.ptr, "cpu\t{}\ta\t100\n");
    buf_deinit(&body);
}

static void test_refused(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "",
        "{",
        "[]",
        "{\"$schema\":\"https://example.org\",\"shared\":{\"frames\":[]},\"profiles\":[]}",
        HEAD "\"profiles\":[]}",
        HEAD "\"shared\":{\"frames\":[{}]},\"profiles\":[]}",
        HEAD ABC "\"profiles\":{}}",
        HEAD ABC "\"profiles\":[3]}",
        HEAD ABC "\"profiles\":[{\"type\":\"sampled\",\"unit\":\"hours\"}]}",
        HEAD ABC "\"profiles\":[],\"profiles\":[]}", /* twice */
        HEAD ABC "\"profiles\":[]} x",
        HEAD ABC "\"profiles\":[],\"x\":\"\xff\"}",
        HEAD ABC "\"profiles\":[{\"type\":\"sampled\",\"samples\":[[0],[0]],\"weights\":[1]}]}",
        HEAD ABC "\"profiles\":[{\"type\":\"sampled\",\"samples\":[[0]],\"weights\":[1,1]}]}",
        HEAD ABC "\"profiles\":[{\"type\":\"sampled\",\"samples\":[[0]],\"weights\":[\"x\"]}]}",
        HEAD ABC "\"profiles\":[{\"type\":\"odd\",\"unit\":\"none\"}]}",
        HEAD ABC "\"profiles\":[{\"type\":\"sampled\",\"samples\":[[3]],\"weights\":[1]}]}",
        HEAD ABC "\"profiles\":[{\"type\":\"sampled\",\"samples\":[[-1]],\"weights\":[1]}]}",
        HEAD ABC "\"profiles\":[{\"type\":\"sampled\",\"samples\":[[0]],\"weights\":[1e30]}]}",
        HEAD ABC "\"profiles\":[{\"type\":\"sampled\",\"samples\":[0],\"weights\":[1]}]}",
        HEAD ABC "\"profiles\":[{\"type\":\"evented\",\"events\":[{\"type\":\"O\",\"frame\":0}]}]}",
        HEAD ABC "\"profiles\":[{\"type\":\"evented\",\"events\":[{\"type\":\"Q\",\"frame\":0,"
                 "\"at\":0}]}]}",
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct dist_push d;
        struct err e = { 0 };
        if (decode(&d, "app", "100", str_c(rows[i]), &e) != ERR_INPUT)
            fail_msg("row %zu: %s", i, e.text);
        assert_true(strlen(e.text) > 8);
        dist_push_free(&d);
    }
}

/* ---- sample files ---------------------------------------------------------------------------- */

static size_t files;

/* The expected totals are in the file's unit, per profile of the file. */
static uint64_t expected_total(const json_t *want)
{
    const json_t *profiles = json_object_get(want, "profiles"), *p;
    uint64_t total = 0;
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)profiles, i, p)
    {
        const char *unit = json_string_value(json_object_get(p, "unit"));
        uint64_t scale = strcmp(unit, "seconds") == 0 ? 1000000000 : 1;
        total += scale * (uint64_t)json_integer_value(json_object_get(p, "total"));
    }
    return total;
}

static void one_file(const char *name, void *cookie)
{
    (void)cookie;
    char path[512], expected[512];
    struct dist_summary sum;
    struct dist_push d;
    struct buf body;
    struct err e = { 0 };

    (void)snprintf(path, sizeof(path), "speedscope/%s", name);
    testdata_read(path, &body);
    testdata_expected_path(path, expected, sizeof(expected));
    json_t *want = testdata_json(expected);
    int rc = decode(&d, "app", "0", buf_str(&body), &e);
    if (strcmp(name, "out-of-order-events.json") == 0) {
        assert_int_equal(rc, ERR_INPUT);
    } else if (strcmp(name, "incomplete-trace.json") == 0) {
        assert_int_equal(rc, 0); /* the frame left open closes at the end of the profile */
        assert_int_equal(d.push.series[0].total, 100);
    } else {
        if (rc)
            fail_msg("%s: %s", path, e.text);
        dist_summarise(&d.push, NULL, &sum);
        assert_int_equal(sum.total, expected_total(want));
        dist_summary_deinit(&sum);
    }
    json_decref(want);
    dist_push_free(&d);
    buf_deinit(&body);
    files++;
}

static void one_verdict(const char *file, const char *verdict, void *cookie)
{
    (void)cookie;
    char path[512];
    struct dist_push d;
    struct buf body;
    struct err e = { 0 };

    (void)snprintf(path, sizeof(path), "corrupt/%s", file);
    testdata_read(path, &body);
    int rc = decode(&d, "app", "0", buf_str(&body), &e);
    if (rc != (strcmp(verdict, "limit") == 0 ? ERR_LIMIT : ERR_INPUT))
        fail_msg("%s (%s): %s %s", file, verdict, err_name(rc), e.text);
    dist_push_free(&d);
    buf_deinit(&body);
    files++;
}

static void test_files(void **state)
{
    (void)state;
    char speedscope[] = "speedscope";

    if (!testdata_here("speedscope samples"))
        skip();
    files = 0;
    testdata_each(speedscope, one_file, NULL);
    testdata_verdicts(speedscope, one_verdict, NULL);
    assert_true(files >= 13);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),   cmocka_unit_test(test_evented),
        cmocka_unit_test(test_several), cmocka_unit_test(test_order),
        cmocka_unit_test(test_large),   cmocka_unit_test(test_charged),
        cmocka_unit_test(test_many),    cmocka_unit_test(test_fractions),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

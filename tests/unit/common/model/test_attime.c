/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "common/model/attime.h"

#define NOW INT64_C(1790000000123)

static void test_table(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t ms;
    } rows[] = {
        /* digits: s, ms, us, ns of one instant */
        { "1700000000", INT64_C(1700000000000) },
        { "1700000000123", INT64_C(1700000000123) },
        { "1700000000123456", INT64_C(1700000000123) },
        { "1700000000123456789", INT64_C(1700000000123) },
        { "0", 0 },
        { "5", 5000 },
        { "00005", 5000 },
        { "1_700_000_000", INT64_C(1700000000000) },
        { " 1,700,000,000 ", INT64_C(1700000000000) },
        { "99999999999999", INT64_C(99999999999999000) }, /* 14 digits: seconds */
        /* dates; eight digits that are not a date are seconds */
        { "20200101", INT64_C(1577836800000) },
        { "20200229", INT64_C(1582934400000) },
        { "20190229", INT64_C(20190229000) },
        { "20201301", INT64_C(20201301000) },
        { "20200100", INT64_C(20200100000) },
        { "19000101", INT64_C(19000101000) },
        { "19010101", INT64_C(-2177452800000) },
        { "20000229", INT64_C(951782400000) },
        { "21000229", INT64_C(21000229000) },
        { "12345678", INT64_C(12345678000) },
        /* offsets */
        { "now", NOW },
        { "NOW", NOW },
        { "now-1h", NOW - 3600000 },
        { "now - 1h", NOW - 3600000 },
        { "-1h", NOW - 3600000 },
        { "now+30s", NOW + 30000 },
        { "now-1h30m", NOW - 5400000 },
        { "now-1d2h3m4s", NOW - 93784000 },
        { "now-7d", NOW - 604800000 },
        { "now-2w", NOW - 1209600000 },
        { "now-1M", NOW - INT64_C(2592000000) },
        { "now-1m", NOW - 60000 },
        { "now-5min", NOW - 300000 },
        { "now-5minutes", NOW - 300000 },
        { "now-2hours", NOW - 7200000 },
        { "now-3mon", NOW - INT64_C(7776000000) },
        { "now-1months", NOW - INT64_C(2592000000) },
        { "now-1y", NOW - INT64_C(31536000000) },
        { "now-0s", NOW },
        { "now-1_0s", NOW - 10000 },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct err e = { 0 };
        int64_t ms = -1;
        int rc = attime_parse(str_c(rows[i].text), NOW, &ms, &e);
        if (rc || ms != rows[i].ms)
            fail_msg("%s: %" PRId64 " %s, want %" PRId64, rows[i].text, ms, e.text, rows[i].ms);
    }
}

static void test_not_a_time(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "",
        " ",
        "_",
        "yesterday",
        "now-",
        "now+",
        "now-1",
        "now-h",
        "now-1x",
        "now-1hh",
        "now-1h-2m",
        "nowish-1h",
        "12:30",
        "2026-11-21T00:00:00Z",
        "1700000000.5",
        "1e9",
        "now-1.5h",
        "now-99999999999999999999h",
        "now-9999999999999y",
        "99999999999999999999",
        "9999999999999999999999999999999999999999999999999999999999999999999999999",
        "now--1h",
        "\xff",
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct err e = { 0 };
        int64_t ms = 77;
        if (attime_parse(str_c(rows[i]), NOW, &ms, &e) != ERR_INPUT || ms != 77)
            fail_msg("\"%s\" was taken for a time: %" PRId64, rows[i], ms);
        assert_true(strlen(e.text) > 10);
    }
    struct err e;
    int64_t ms;
    assert_int_equal(attime_parse(STR("now\0-1h"), NOW, &ms, &e), ERR_INPUT);
}

/* Errors name the column in the original text. */
static void test_errors_have_columns(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want;
    } rows[] = {
        { "yesterday", "column 1: " },
        { "  tomorrow", "column 3: " },
        { "now-1h2x", "column 7: \"2x\"" },
        { "now - 1_0 h, 5", "column 14: \"5\"" },
        { "now-", "column 5: " },
        { "now--1h", "column 5: " },
        { "now-9999999999999y", "column 5: " },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct err e = { 0 };
        int64_t ms;
        assert_int_equal(attime_parse(str_c(rows[i].text), NOW, &ms, &e), ERR_INPUT);
        if (!strstr(e.text, rows[i].want))
            fail_msg("%s: \"%s\", want \"%s\"", rows[i].text, e.text, rows[i].want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_not_a_time),
        cmocka_unit_test(test_errors_have_columns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Names that must not reach a terminal unescaped, columns, numbers with units.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/base/prng.h"
#include "deploy/ctl/cli/term.h"

static struct term utf8, ascii;

static int setup(void **state)
{
    (void)state;
    term_detect(&utf8, "never", 80); /* sets the locale that widths come from */
    utf8.utf8 = utf8.tty = true;
    ascii = utf8;
    ascii.utf8 = false;
    return 0;
}

static void check_name(const struct term *t, struct str s, size_t columns, const char *want,
                       size_t want_columns)
{
    struct buf b;

    buf_init(&b, MIB);
    size_t used = term_name(t, s, columns, &b);
    (void)buf_add_c(&b, '\0');
    assert_string_equal(b.ptr, want);
    assert_int_equal(used, want_columns);
    buf_deinit(&b);
}

static void test_names(void **state)
{
    static const struct {
        struct str name;
        size_t columns;
        const char *utf8, *ascii;
        size_t used;
    } rows[] = {
        { { "main", 4 }, 80, "main", "main", 4 },
        { { "", 0 }, 80, "", "", 0 },
        { { "abcdef", 6 }, 6, "abcdef", "abcdef", 6 },
        { { "abcdefg", 7 }, 6, "abcde\xe2\x80\xa6", "abcde~", 6 },
        { { "\033[2Jx", 5 }, 80, "?[2Jx", "?[2Jx", 5 },
        { { "a\nb\tc\rd\0e", 9 }, 80, "a?b?c?d?e", "a?b?c?d?e", 9 },
        { { "\xc2\x9b"
            "31m",
            5 },
          80,
          "?31m",
          "?31m",
          4 }, /* an escape sequence in one character */
        { { "\x9b"
            "31m",
            4 },
          80,
          "?31m",
          "?31m",
          4 },
        { { "\xe2\x80\xae"
            "cod.exe",
            10 },
          80,
          "?cod.exe",
          "?cod.exe",
          8 }, /* turns the direction */
        { { "\xe2\x80\x8b", 3 }, 80, "?", "?", 1 },
        { { "\xef\xbb\xbf", 3 }, 80, "?", "?", 1 },
        { { "\xf3\xa0\x81\x81", 4 }, 80, "?", "?", 1 },                         /* a tag */
        { { "\xc0\xaf\xed\xa0\x80\xf5\x80", 7 }, 80, "???????", "???????", 7 }, /* no UTF-8 */
        { { "\xe2\x82", 2 }, 80, "??", "??", 2 },                               /* cut */
        { { "gr\xc3\xbc\xc3\x9f", 6 }, 80, "gr\xc3\xbc\xc3\x9f", "gr??", 4 },
        { { "\xe4\xb8\xad\xe6\x96\x87", 6 }, 80, "\xe4\xb8\xad\xe6\x96\x87", "??", 4 },
        { { "a\xe4\xb8\xad\xe6\x96\x87", 7 }, 4, "a\xe4\xb8\xad\xe2\x80\xa6", NULL, 4 },
        { { "ab\xe4\xb8\xad\xe6\x96\x87", 8 }, 4, "ab\xe2\x80\xa6", NULL, 3 },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        check_name(&utf8, rows[i].name, rows[i].columns, rows[i].utf8, rows[i].used);
        if (rows[i].ascii)
            check_name(&ascii, rows[i].name, rows[i].columns, rows[i].ascii, strlen(rows[i].ascii));
    }
}

/* Whatever comes in: nothing a terminal would obey comes out, and no more than fits. */
static void test_random_names_are_harmless(void **state)
{
    const char *text = getenv("SEED");
    struct prng p;
    char bytes[64];
    uint64_t seed = text ? strtoull(text, NULL, 10) : (uint64_t)(uintptr_t)&p;

    (void)state;
    printf("SEED=%" PRIu64 "\n", seed);
    prng_init(&p, seed);
    for (int i = 0; i < 20000; i++) {
        size_t n = prng_below(&p, sizeof(bytes)), columns = 1 + prng_below(&p, 70);
        struct buf b, lines;
        for (size_t k = 0; k < n; k++)
            bytes[k] = (char)(prng_below(&p, 2) ? prng_below(&p, 256) : 0x80 + prng_below(&p, 64));
        buf_init(&b, MIB);
        buf_init(&lines, MIB);
        assert_true(term_name(&utf8, str_n(bytes, n), columns, &b) <= columns);
        term_lines(&utf8, str_n(bytes, n), &lines);
        assert_true(str_utf8_valid(buf_str(&b)));
        assert_true(str_utf8_valid(buf_str(&lines)));
        for (size_t k = 0; k < b.len; k++)
            assert_true((uint8_t)b.ptr[k] >= 0x20 && b.ptr[k] != 0x7f);
        for (size_t k = 0; k + 1 < b.len; k++)
            assert_false((uint8_t)b.ptr[k] == 0xc2 && (uint8_t)b.ptr[k + 1] < 0xa0);
        buf_deinit(&b);
        buf_deinit(&lines);
    }
}

static void test_values(void **state)
{
    static const struct {
        double v;
        const char *unit, *want;
    } rows[] = {
        { 0, "nanoseconds", "0 ns" },
        { 999, "nanoseconds", "999 ns" },
        { 1234567, "nanoseconds", "1.23 ms" },
        { 59.9e9, "nanoseconds", "59.9 s" },
        { 3600e9, "nanoseconds", "1 h" },
        { 999.96e6, "nanoseconds", "1.00 s" },
        { -1.5e9, "nanoseconds", "-1.50 s" },
        { 12, "milliseconds", "12 ms" },
        { 1536, "bytes", "1.50 KiB" },
        { 1073741824, "bytes", "1 GiB" },
        { 9223372036854775807., "bytes", "8 EiB" },
        { 9223372036854775807., "nanoseconds", "292 y" },
        { 42, "count", "42" },
        { 999499, "objects", "999499" },
        { 1234567, "samples", "1.23 M" },
        { 0.25, "count", "0.25" },
        { 9.2e18, "count", "9.20 E" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct buf b;
        buf_init(&b, KIB);
        term_value(rows[i].v, str_c(rows[i].unit), &b);
        assert_true(b.len <= 10);
        (void)buf_add_c(&b, '\0');
        assert_string_equal(b.ptr, rows[i].want);
        buf_deinit(&b);
    }
}

static void test_styles(void **state)
{
    struct term t = utf8;
    struct buf b;

    (void)state;
    buf_init(&b, KIB);
    term_style(&t, TERM_RED, &b);
    assert_int_equal(b.len, 0);
    t.color = true;
    term_style(&t, TERM_RED, &b);
    assert_true(str_eqc(buf_str(&b), "\033[31m"));
    buf_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_random_names_are_harmless),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_styles),
    };

    return cmocka_run_group_tests(tests, setup, NULL);
}

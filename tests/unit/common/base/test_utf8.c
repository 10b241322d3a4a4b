/* SPDX-License-Identifier: Apache-2.0
 *
 * Each code point becomes bytes that are UTF-8 and that mean it again.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/str.h"
#include "common/base/utf8.h"

/* By the table of RFC 3629, from the bytes. */
static uint32_t decode(const unsigned char *p, size_t n)
{
    static const unsigned char first[] = { 0, 0x7f, 0x1f, 0x0f, 0x07 };
    uint32_t c = p[0] & first[n];

    for (size_t i = 1; i < n; i++)
        c = c << 6 | (p[i] & 0x3f);
    return c;
}

static void test_all(void **state)
{
    (void)state;
    for (uint32_t c = 0; c <= 0x10ffff; c++) {
        char b[UTF8_MAX];
        if (c >= 0xd800 && c < 0xe000)
            continue;
        size_t n = utf8_put(b, c);
        if (n != (c < 0x80      ? 1
                  : c < 0x800   ? 2
                  : c < 0x10000 ? 3
                                : 4) ||
            !str_utf8_valid(str_n(b, n)) || decode((const unsigned char *)b, n) != c)
            fail_msg("U+%04X", c);
    }
}

static void test_known(void **state)
{
    char b[UTF8_MAX];

    (void)state;
    assert_int_equal(utf8_put(b, 'a'), 1);
    assert_memory_equal(b, "a", 1);
    assert_int_equal(utf8_put(b, 0xe4), 2);
    assert_memory_equal(b, "\xc3\xa4", 2);
    assert_int_equal(utf8_put(b, 0x20ac), 3);
    assert_memory_equal(b, "\xe2\x82\xac", 3);
    assert_int_equal(utf8_put(b, 0x1f525), 4);
    assert_memory_equal(b, "\xf0\x9f\x94\xa5", 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_all), cmocka_unit_test(test_known) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

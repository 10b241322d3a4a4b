/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/hex.h"
#include "common/base/prng.h"

static void test_digits(void **state)
{
    (void)state;
    static const char lower[] = "0123456789abcdef", upper[] = "0123456789ABCDEF";

    for (int c = -128; c < 256; c++) {
        const char *at = c > 0 ? strchr(lower, c) : NULL;
        if (c > 0 && !at && (at = strchr(upper, c)))
            at = lower + (at - upper);
        assert_int_equal(hex_digit(c), at ? at - lower : -1);
    }
}

static void test_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool lower, number;
        uint64_t value;
    } rows[] = {
        { "", false, false, 0 },
        { "0", true, true, 0 },
        { "f", true, true, 15 },
        { "0123456789abcdef", true, true, 0x0123456789abcdef },
        { "ffffffffffffffff", true, true, UINT64_MAX },
        { "0ffffffffffffffff", true, false, 0 },
        { "Ff", false, false, 0 },
        { "0x1", false, false, 0 },
        { "12 ", false, false, 0 },
        { "-1", false, false, 0 },
        { "g", false, false, 0 },
        { "`", false, false, 0 },
        { ":", false, false, 0 },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        uint64_t v = 42;
        bool ok = hex_u64(str_c(rows[i].text), &v);
        if (hex_is_lower(str_c(rows[i].text)) != rows[i].lower || ok != rows[i].number ||
            v != (ok ? rows[i].value : 42))
            fail_msg("\"%s\": %d, %llu", rows[i].text, ok, (unsigned long long)v);
    }
}

static void test_read_refuses(void **state)
{
    (void)state;
    char text[8];
    uint8_t out[4];

    for (size_t at = 0; at < sizeof(text); at++)
        for (unsigned c = 0; c < 256; c++) {
            memcpy(text, "00aAfF99", sizeof(text));
            text[at] = (char)c;
            assert_int_equal(hex_read(text, 4, out), hex_digit((int)c) >= 0);
        }
}

static void test_round_trip(void **state)
{
    (void)state;
    struct prng p;
    struct buf out;
    uint8_t bytes[32], again[32];
    char text[65];

    prng_init(&p, 7);
    buf_init(&out, 64);
    for (int round = 0; round < 200; round++) {
        size_t n = (size_t)prng_below(&p, 33);
        for (size_t i = 0; i < n; i++)
            bytes[i] = (uint8_t)prng_u64(&p);
        memset(text, '!', sizeof(text));
        hex_put(bytes, n, text);
        assert_int_equal(text[2 * n], '!');
        hex_put_c(bytes, n, text);
        assert_int_equal(strlen(text), 2 * n);
        assert_true(n == 0 || hex_is_lower(str_c(text)));
        assert_true(hex_read(text, n, again));
        assert_memory_equal(bytes, again, n);
        buf_reset(&out);
        assert_true(hex_add(&out, bytes, n));
        assert_true(str_eqc(buf_str(&out), text));
    }
    buf_reset(&out);
    assert_true(hex_add(&out, bytes, 31));
    assert_false(hex_add(&out, bytes, 2)); /* over the maximum */
    assert_int_equal(out.len, 62);
    assert_false(buf_ok(&out));
    buf_deinit(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_digits),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_read_refuses),
        cmocka_unit_test(test_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

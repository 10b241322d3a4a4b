/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/base/prng.h"
#include "common/model/exid.h"

static void test_texts(void **state)
{
    static const struct {
        const char *text, *packed, *back; /* packed NULL: no id; back NULL: as text */
        size_t len;
    } rows[] = {
        { "00000bac2a5ab0c7", "\x88\x00\x00\x0b\xac\x2a\x5a\xb0\xc7", NULL, 9 },
        { "00000BAC2A5AB0C7", "\x88\x00\x00\x0b\xac\x2a\x5a\xb0\xc7", "00000bac2a5ab0c7", 9 },
        { "4bf92f3577b34da6a3ce929d0e0e4736",
          "\x90\x4b\xf9\x2f\x35\x77\xb3\x4d\xa6\xa3\xce\x92\x9d\x0e\x0e\x47\x36", NULL, 17 },
        { "4bf92f35-77b3-4da6-a3ce-929d0e0e4736",
          "\x90\x4b\xf9\x2f\x35\x77\xb3\x4d\xa6\xa3\xce\x92\x9d\x0e\x0e\x47\x36",
          "4bf92f3577b34da6a3ce929d0e0e4736", 17 },
        { "4bf92f3577-b34da6-a3ce-929d0e0e4736-",
          "\x24"
          "4bf92f3577-b34da6-a3ce-929d0e0e4736-",
          NULL, 37 },
        { "req-7", "\x05req-7", NULL, 6 },
        { "123",
          "\x03"
          "123",
          NULL, 4 },
        { "00000bac2a5ab0cg",
          "\x10"
          "00000bac2a5ab0cg",
          NULL, 17 },
        { "", NULL, NULL, 0 },
        { "0", NULL, NULL, 0 },
        { "0000000000000000", NULL, NULL, 0 },
        { "00000000-0000-0000-0000-000000000000", NULL, NULL, 0 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        char text[EXID_BYTES_MAX];
        struct exid id;
        bool is = exid_parse(str_c(rows[i].text), &id);

        assert_int_equal(is, rows[i].packed != NULL);
        if (!is)
            continue;
        assert_int_equal(id.len, rows[i].len);
        assert_memory_equal(id.packed, rows[i].packed, id.len);
        assert_true(exid_valid(exid_str(&id)));
        struct str back = str_n(text, exid_text(exid_str(&id), text));
        assert_true(str_eqc(back, rows[i].back ? rows[i].back : rows[i].text));
    }
}

static void test_lengths(void **state)
{
    char text[EXID_BYTES_MAX + 1];
    struct exid id;

    (void)state;
    memset(text, 'x', sizeof(text));
    assert_true(exid_parse(str_n(text, EXID_BYTES_MAX), &id));
    assert_int_equal(id.len, EXID_PACKED_MAX);
    assert_false(exid_parse(str_n(text, EXID_BYTES_MAX + 1), &id));
}

static void test_bytes(void **state)
{
    struct exid a, b;

    (void)state;
    assert_true(exid_number(0xbac2a5ab0c7, &a));
    assert_true(exid_parse(STR("00000bac2a5ab0c7"), &b));
    assert_int_equal(a.len, b.len);
    assert_memory_equal(a.packed, b.packed, a.len);
    assert_true(exid_bytes(STR("\x00\x00\x0b\xac\x2a\x5a\xb0\xc7"), &b));
    assert_memory_equal(a.packed, b.packed, a.len);
    assert_false(exid_number(0, &a));
    assert_false(exid_bytes(STR("1234567"), &a));
    assert_false(exid_bytes(STR("\0\0\0\0\0\0\0\0"), &a));
}

static void test_invalid(void **state)
{
    static const struct str rows[] = {
        { "", 0 },
        { "\x00", 1 },
        { "\x02x", 2 },
        { "\x01xy", 3 },
        { "\x84wxyz", 5 },
        { "\x88\0\0\0\0\0\0\0\0", 9 },
        { "\x41", 1 },
        { "\x10"
          "00000bac2a5ab0c7",
          17 }, /* has a shorter form */
        { "\x03"
          "000",
          4 },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        assert_false(exid_valid(rows[i]));
}

/* What is valid comes back from its text unchanged. */
static void test_random(void **state)
{
    struct prng p;

    (void)state;
    const char *text_seed = getenv("SEED");
    uint64_t seed = text_seed ? strtoull(text_seed, NULL, 10) : 3;
    print_message("SEED=%" PRIu64 "\n", seed);
    prng_init(&p, seed);
    for (int n = 0; n < 20000; n++) {
        char in[EXID_PACKED_MAX], text[EXID_BYTES_MAX];
        size_t len = 1 + prng_below(&p, 20);
        struct exid id;

        for (size_t i = 0; i < len; i++)
            in[i] = prng_below(&p, 3) ? "0123456789abcdefABCDEF-"[prng_below(&p, 23)]
                                      : (char)prng_below(&p, 256);
        if (prng_below(&p, 2))
            in[0] = (char)(len - 1);
        if (!exid_valid(str_n(in, len)))
            continue;
        size_t m = exid_text(str_n(in, len), text);
        assert_true(exid_parse(str_n(text, m), &id));
        assert_true(str_eq(exid_str(&id), str_n(in, len)));
    }
}

static void test_labels(void **state)
{
    (void)state;
    assert_int_equal(exid_label(STR("span_id")), EXID_SPAN);
    assert_int_equal(exid_label(STR("profile_id")), EXID_SPAN);
    assert_int_equal(exid_label(STR("trace_id")), EXID_TRACE);
    assert_int_equal(exid_label(STR("span_name")), EXID_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),  cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_bytes),  cmocka_unit_test(test_invalid),
        cmocka_unit_test(test_random), cmocka_unit_test(test_labels),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

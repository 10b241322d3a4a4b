/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/base64.h"
#include "common/base/prng.h"

static void test_rows(void **state)
{
    (void)state;
    static const struct {
        const char *text, *bytes; /* NULL: refused */
    } rows[] = {
        { "", "" },
        { "Zg==", "f" },
        { "Zg", "f" },
        { "Zm8=", "fo" },
        { "Zm8", "fo" },
        { "Zm9v", "foo" },
        { "Zm9vYg==", "foob" },
        { "Zm9vYmE", "fooba" },
        { "Pz8/Pj4+", "?\?\?>>>" },
        { "Pz8_Pj4-", "?\?\?>>>" }, /* both alphabets */
        { "Zg==Zm9v", "ffoo" },     /* put together */
        { "Z", NULL },
        { "Zg=", NULL },
        { "Zg===", NULL },
        { "=", NULL },
        { "====", NULL },
        { "Zm9=", NULL },
        { "Zh", NULL }, /* bits left over */
        { "Zm 9v", NULL },
        { "Zm9v\n", NULL },
        { "Zm9v!", NULL },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct buf out;
        buf_init(&out, 64);
        bool ok = base64_decode(str_c(rows[i].text), &out);
        if (ok != (rows[i].bytes != NULL) || (ok && !str_eqc(buf_str(&out), rows[i].bytes)))
            fail_msg("row %zu: %d %.*s", i, ok, STR_ARG(buf_str(&out)));
        buf_deinit(&out);
    }
}

static void test_there_and_back(void **state)
{
    (void)state;
    struct prng r;

    prng_init(&r, 7);
    for (size_t n = 0; n < 300; n++) {
        uint8_t bytes[300];
        struct buf text, back;
        for (size_t i = 0; i < n; i++)
            bytes[i] = (uint8_t)prng_u64(&r);
        buf_init(&text, KIB);
        buf_init(&back, KIB);
        assert_true(base64_encode(str_n(bytes, n), &text));
        assert_int_equal(text.len, (n + 2) / 3 * 4);
        assert_true(base64_decode(buf_str(&text), &back));
        assert_true(str_eq(buf_str(&back), str_n(bytes, n)));
        buf_deinit(&text);
        buf_deinit(&back);
    }
}

static void test_room(void **state)
{
    (void)state;
    struct buf out;

    buf_init(&out, 3);
    assert_false(base64_encode(STR("abc"), &out));
    assert_false(base64_decode(STR("Zm9vYg=="), &out));
    buf_deinit(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_there_and_back),
        cmocka_unit_test(test_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

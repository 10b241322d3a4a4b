/* SPDX-License-Identifier: Apache-2.0
 *
 * Ids of leaves never change, since users keep them in links; and texts that are not ids.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/base/prng.h"
#include "common/model/leafid.h"
#include "common/model/slot.h"

static void test_example(void **state)
{
    char text[EXID_BYTES_MAX];
    struct exid id;

    (void)state;
    leafid_make(0x0123456789abcdef, 37500002, &id);
    struct str got = str_n(text, exid_text(exid_str(&id), text));
    if (!str_eqc(got, "0123456789abcdef023c3462572a03f5"))
        fail_msg("%.*s", STR_ARG(got));
}

static void test_series(void **state)
{
    (void)state;
    uint64_t a = leafid_series(leafid_service(STR("t"), STR("shop")), STR("\x01\x01p\x01v"));

    assert_true(a == UINT64_C(0xb8b5603761705726));
    assert_true(a != leafid_series(leafid_service(STR("u"), STR("shop")), STR("\x01\x01p\x01v")));
    assert_true(a != leafid_series(leafid_service(STR("t"), STR("pay")), STR("\x01\x01p\x01v")));
    assert_true(a != leafid_series(leafid_service(STR("t"), STR("shop")), STR("\x01\x01p\x01w")));
    assert_true(leafid_service(STR("ts"), STR("hop")) != leafid_service(STR("t"), STR("shop")));
}

/* Any bit that is changed makes it another id, of no leaf. */
static void test_random(void **state)
{
    struct prng p;
    uint64_t series;
    uint32_t slot;

    (void)state;
    prng_init(&p, 5);
    for (int i = 0; i < 2000; i++) {
        uint64_t want = i ? prng_u64(&p) : 0;
        uint32_t at = i ? slot_leaf((uint32_t)prng_u64(&p)) : 0;
        struct exid id, again;
        char text[EXID_BYTES_MAX];

        leafid_make(want, at, &id);
        assert_true(exid_valid(exid_str(&id)));
        assert_true(leafid_read(exid_str(&id), &series, &slot) && series == want && slot == at);
        assert_true(exid_parse(str_n(text, exid_text(exid_str(&id), text)), &again));
        assert_true(str_eq(exid_str(&again), exid_str(&id)));
        id.packed[1 + prng_below(&p, 16)] ^= (char)(1u << prng_below(&p, 8));
        assert_false(leafid_read(exid_str(&id), &series, &slot));
    }
}

static void test_others(void **state)
{
    static const char *const texts[] = { "req-1", "0123456789abcdef",
                                         "0123456789abcdef023c346200000001",
                                         "4bf92f35-77b3-4da6-a3ce-929d0e0e4736" };
    struct exid id;
    uint64_t series;
    uint32_t slot;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        assert_true(exid_parse(str_c(texts[i]), &id));
        assert_false(leafid_read(exid_str(&id), &series, &slot));
    }
    assert_false(leafid_read(STR(""), &series, &slot));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_example),
        cmocka_unit_test(test_series),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_others),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

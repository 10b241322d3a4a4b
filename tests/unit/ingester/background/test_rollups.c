/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "ingester/background/rollups.h"

static const char *const drop[] = { "pod", " host ", "k8s.*" };
static const char *const tenants[] = { "acme= zone  pod", "none=" };

static void test_lists(void **state)
{
    const struct rollup_conf c = { .drop = { drop, 3 }, .tenants = { tenants, 2 } };
    struct rollups *r;
    struct err e;

    (void)state;
    assert_int_equal(rollups_new(&c, &r, &e), 0);
    struct group_drop d = rollups_drop(r, STR("anonymous"));
    assert_int_equal(d.len, 3);
    assert_true(str_eqc(d.names[1], "host"));
    assert_ptr_equal(rollups_drop(r, STR("other")).names, d.names); /* nothing has changed */
    d = rollups_drop(r, STR("acme"));
    assert_int_equal(d.len, 2);
    assert_true(str_eqc(d.names[0], "zone") && str_eqc(d.names[1], "pod"));
    assert_int_equal(rollups_drop(r, STR("none")).len, 0);
    rollups_free(r);
}

static void test_wrong(void **state)
{
    static const char *const wrong[] = { "acme", "=pod", " =pod", "a b=pod", "..=pod" };
    struct rollups *r;
    struct err e;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        const struct rollup_conf c = { .tenants = { wrong + i, 1 } };
        assert_int_equal(rollups_new(&c, &r, &e), ERR_CONFIG);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_lists),
                                        cmocka_unit_test(test_wrong) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

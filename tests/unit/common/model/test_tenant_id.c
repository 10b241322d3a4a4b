/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/model/tenant_id.h"

static void names(void **state)
{
    static const struct {
        const char *id, *why; /* NULL: fine */
    } rows[] = {
        { "anonymous", NULL },
        { "A-z_0.9!*'()", NULL },
        { "...", NULL },
        { "", "empty" },
        { ".", "'.' or '..'" },
        { "..", "'.' or '..'" },
        { "a/b", "byte 0x2f at position 1; allowed are letters, digits and !-_.*'()" },
        { "a:b", "byte 0x3a at position 1" },
        { " a", "byte 0x20 at position 0" },
        { "\xc3\xa4", "byte 0xc3 at position 0" },
    };
    struct err e;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        int rc = tenant_id_check(str_c(rows[i].id), &e);
        assert_int_equal(rc, rows[i].why ? ERR_INPUT : 0);
        if (rows[i].why && !strstr(e.text, rows[i].why))
            fail_msg("%s: %s", rows[i].id, e.text);
    }
    assert_int_equal(tenant_id_check(str_n("a\0b", 3), &e), ERR_INPUT);
}

static void lengths(void **state)
{
    char text[TENANT_ID_BYTES_MAX + 1];
    struct err e;

    (void)state;
    memset(text, 'a', sizeof(text));
    assert_int_equal(tenant_id_check(str_n(text, TENANT_ID_BYTES_MAX), &e), 0);
    assert_int_equal(tenant_id_check(str_n(text, sizeof(text)), &e), ERR_INPUT);
    assert_non_null(strstr(e.text, "tenant id is 151 bytes, at most 150"));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(names), cmocka_unit_test(lengths) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

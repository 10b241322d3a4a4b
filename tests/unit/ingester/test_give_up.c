/* SPDX-License-Identifier: Apache-2.0
 *
 * An ingester is asked to abort a change of places. It refuses what it cannot read, and a change
 * that is not its own.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/lib/roles/ingester_bed.h"

static void test_refused(void **state)
{
    (void)state;
    static const char request[] = "\x07\0\0\0\0\0\0\0node-1 00000000000000ab";
    static const struct {
        size_t len;
        int code;
    } rows[] = {
        { 0, ERR_INPUT },
        { 7, ERR_INPUT },
        { 8, ERR_CONFLICT },
        { sizeof(request) - 1, ERR_CONFLICT },
    };
    const char *const flags[] = { NULL };
    struct rpc_bed_call c;
    struct ingester_bed b;
    struct err e;

    ingester_bed_init(&b, true, 1, flags);
    assert_int_equal(ingester_bed_start(&b, &e), 0);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        assert_int_equal(ingester_bed_call(&b, RPC_GIVE_UP, str_n(request, rows[i].len), &c),
                         rows[i].code);
        buf_deinit(&c.reply);
    }
    ingester_bed_stop(&b);
    ingester_bed_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_refused) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

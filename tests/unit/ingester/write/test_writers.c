/* SPDX-License-Identifier: Apache-2.0
 *
 * What tenants may have under way on an ingester: writes and bytes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/err.h"
#include "ingester/write/writers.h"

#define BYTES 1000000

/* Writes of `bytes` until one is refused; why. */
static int flood(struct writers *ws, const char *name, size_t bytes, struct writer **ret_w,
                 size_t *ret_n, struct err *e)
{
    *ret_n = 0;
    while (writers_enter(ws, str_c(name), bytes, ret_w, e) == 0)
        ++*ret_n;
    return e->code;
}

/* Many small ones run into the bound of their number, large ones into that of their bytes; both
 * leave room for another tenant, and say what to do. */
static void test_a_flood_leaves_room(void **state)
{
    static const struct {
        size_t bytes;
        const char *says;
    } rows[] = { { 1, "ingester.writes_max" }, { BYTES / 100, "memory.limit" } };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct writers_opts o = { .writes_max = 400, .many = true };
        struct writer *bob, *alice;
        struct budget bytes;
        struct err e;
        size_t n;

        budget_init(&bytes, BYTES);
        o.bytes = &bytes;
        struct writers *ws = writers_new(&o);
        assert_int_equal(flood(ws, "bob", rows[i].bytes, &bob, &n, &e), ERR_RATE);
        assert_non_null(strstr(e.text, rows[i].says));
        assert_in_range(n, 70, 310);
        assert_int_equal(writers_enter(ws, STR("alice"), rows[i].bytes, &alice, &e), 0);
        assert_int_equal(writers_len(ws), 2);
        assert_int_equal(writers_more(alice, rows[i].bytes, BYTES / 100, &e), 0);
        writers_leave(alice, rows[i].bytes + BYTES / 100);
        for (; n; n--)
            writers_leave(bob, rows[i].bytes);
        assert_int_equal(writers_pending(ws) + writers_len(ws) + bytes.used, 0);
        writers_free(ws);
    }
}

/* With one tenant nothing is held back for another. */
static void test_one_tenant_has_all(void **state)
{
    struct writers_opts o = { .writes_max = 100 };
    struct budget bytes;
    struct writer *w;
    struct err e;
    size_t n;

    (void)state;
    budget_init(&bytes, BYTES);
    o.bytes = &bytes;
    struct writers *ws = writers_new(&o);
    assert_int_equal(flood(ws, "", 1, &w, &n, &e), ERR_BUSY);
    assert_int_equal(n, 100);
    for (; n; n--)
        writers_leave(w, 1);
    assert_int_equal(flood(ws, "", BYTES / 10, &w, &n, &e), ERR_BUSY);
    assert_int_equal(n, 10);
    for (; n; n--)
        writers_leave(w, BYTES / 10);
    writers_free(ws);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_flood_leaves_room),
        cmocka_unit_test(test_one_tenant_has_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

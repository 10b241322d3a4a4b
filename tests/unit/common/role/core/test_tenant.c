/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/role/core/role.h"

#define MANY 3

static int ask(const char *header, bool multi, size_t many, struct str *ret, size_t *len,
               struct err *e)
{
    struct http_header h = { STR("x-scope-orgid"), str_c(header) };
    struct http_req r = { .headers = &h, .headers_len = header ? 1 : 0 };
    struct tenancy_conf t = { .multi = multi };

    return tenant_of(&r, &t, many, ret, len, e);
}

static void test_single_tenant_mode_ignores_the_header(void **state)
{
    struct str got;
    struct err e;
    size_t len = 0;

    (void)state;
    assert_int_equal(ask("../../etc", false, 1, &got, &len, &e), 0);
    assert_int_equal(len, 1);
    assert_true(str_eqc(got, "anonymous"));
    assert_int_equal(ask(NULL, false, MANY, &got, &len, &e), 0);
    assert_true(str_eqc(got, "anonymous"));
}

static void test_table(void **state)
{
    static const struct {
        const char *header;
        size_t many;
        int code;
        const char *want; /* tenants joined by a blank, or a part of the error */
    } rows[] = {
        { "team-a", 1, 0, "team-a" },
        { "  team-a\t", 1, 0, "team-a" },
        { "a:sub", 1, 0, "a" },
        { "azAZ09!-_.*'()", 1, 0, "azAZ09!-_.*'()" },
        { "...", 1, 0, "..." },
        { "b|a|b", MANY, 0, "a b" },
        { "c|a:x|b|a", MANY, 0, "a b c" },
        { "a|a", 1, 0, "a" },
        { NULL, 1, ERR_UNAUTHENTICATED, "no org id" },
        { "", 1, ERR_UNAUTHENTICATED, "no org id" },
        { ":sub", 1, ERR_UNAUTHENTICATED, "no org id" },
        { "a|", MANY, ERR_UNAUTHENTICATED, "no org id" },
        { ".", 1, ERR_INPUT, "'.'" },
        { "..", 1, ERR_INPUT, "'.'" },
        { "..:x", 1, ERR_INPUT, "'.'" },
        { "a/b", 1, ERR_INPUT, "0x2f at position 1" },
        { "a b", 1, ERR_INPUT, "0x20" },
        { "\xc3\xa4", 1, ERR_INPUT, "0xc3" },
        { "a|b", 1, ERR_INPUT, "exactly one" },
        { "a|b|c|d", MANY, ERR_LIMIT, "more than 3" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct str got[MANY] = { 0 };
        struct err e = { 0 };
        struct buf text;
        size_t len = 0;
        int code = ask(rows[i].header, true, rows[i].many, got, &len, &e);

        assert_int_equal(code, rows[i].code);
        buf_init(&text, KIB);
        for (size_t k = 0; !code && k < len; k++) {
            (void)buf_add(&text, " ", k ? 1 : 0);
            (void)buf_add_str(&text, got[k]);
        }
        if (code ? !strstr(e.text, rows[i].want) : !str_eqc(buf_str(&text), rows[i].want))
            fail_msg("row %zu: %.*s %s", i, STR_ARG(buf_str(&text)), e.text);
        buf_deinit(&text);
    }
}

static void test_length(void **state)
{
    char name[152];
    struct str got;
    struct err e;
    size_t len;

    (void)state;
    memset(name, 'x', sizeof(name));
    name[151] = '\0';
    assert_int_equal(ask(name, true, 1, &got, &len, &e), ERR_INPUT);
    assert_non_null(strstr(e.text, "151 bytes"));
    name[150] = '\0';
    assert_int_equal(ask(name, true, 1, &got, &len, &e), 0);
    assert_int_equal(got.len, 150);
}

/* Two headers: a gateway may have checked the header that would not be used. */
static void test_twice(void **state)
{
    const struct tenancy_conf multi = { .multi = true }, single = { 0 };
    static const char *const second[] = { "bob", "alice", "" };
    struct str got[MANY];
    struct err e;
    size_t len;

    (void)state;
    for (size_t i = 0; i < 2 * ARRAY_LEN(second); i++) {
        struct http_header h[] = {
            { STR("X-Scope-OrgID"), i % 2 ? STR("alice") : str_c(second[i / 2]) },
            { STR("Accept"), STR("x") },
            { STR("x-scope-orgid"), i % 2 ? str_c(second[i / 2]) : STR("alice") },
        };
        struct http_req r = { .headers = h, .headers_len = ARRAY_LEN(h) };

        assert_int_equal(tenant_of(&r, &multi, 1, got, &len, &e), ERR_INPUT);
        assert_non_null(strstr(e.text, "more than one X-Scope-OrgID"));
        assert_int_equal(tenant_of(&r, &multi, MANY, got, &len, &e), ERR_INPUT);
        assert_int_equal(tenant_of(&r, &single, 1, got, &len, &e), 0); /* it is not looked at */
    }
}

static void test_strict(void **state)
{
    static const char *const refused[] = { "a|b", "a|a", "a|", "a:x", "a:", ":a", "a|b:x" };
    const struct tenancy_conf strict = { .multi = true, .strict = true };
    struct str got[MANY];
    struct err e;
    size_t len;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        struct http_header h = { STR("X-Scope-OrgID"), str_c(refused[i]) };
        struct http_req r = { .headers = &h, .headers_len = 1 };

        assert_int_equal(tenant_of(&r, &strict, MANY, got, &len, &e), ERR_INPUT);
        assert_non_null(strstr(e.text, "tenancy.strict"));
        h.value = STR("a");
        assert_int_equal(tenant_of(&r, &strict, MANY, got, &len, &e), 0);
        assert_true(len == 1 && str_eqc(got[0], "a"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_single_tenant_mode_ignores_the_header),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_length),
        cmocka_unit_test(test_twice),
        cmocka_unit_test(test_strict),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

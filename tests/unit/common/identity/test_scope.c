/* SPDX-License-Identifier: Apache-2.0
 *
 * What grants say of one tenant: matchers for reads and deletes, labels for pushes, and the
 * fingerprint of both.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
/* cmocka wants the ones above first */
#include <cmocka.h>

#include "common/identity/scope.h"
#include "tests/lib/roles/fake_identity.h"

#define G(tenants, role, rest) "{\"tenants\":[" tenants "],\"roles\":[\"" role "\"]" rest "}"
#define ONE                    "\"one\""
#define TEAM(x)                ",\"match\":\"{team=\\\"" x "\\\"}\""
#define SET(x)                 ",\"set\":{\"team\":\"" x "\"}"

static void test_match(void **state)
{
    static const struct {
        const char *grants;
        unsigned role;
        const char *tenant, *want; /* "": all; NULL: refused */
    } rows[] = {
        { "[" G(ONE, "read", TEAM("a")) "]", ROLE_READ, "one", "{team=\"a\"}" },
        { "[" G(ONE, "read", TEAM("a")) "]", ROLE_READ, "two", NULL },
        { "[" G(ONE, "read", TEAM("a")) "]", ROLE_DELETE, "one", NULL },
        { "[" G("\"*\"", "read", TEAM("a")) "]", ROLE_READ, "two", "{team=\"a\"}" },
        { "[" G(ONE, "read", "") "]", ROLE_READ, "one", "" },
        { "[" G(ONE, "push", "") "]", ROLE_READ, "one", NULL },
        { "[" G(ONE, "tenant-admin", "") "]", ROLE_DELETE, "one", "" },
        { "[" G("\"*\"", "server-admin", "") "]", ROLE_READ, "one", NULL },
        { "[]", ROLE_READ, "one", NULL },
        /* Grants add up. */
        { "[" G(ONE, "read", TEAM("a")) "," G("\"*\"", "read", "") "]", ROLE_READ, "one", "" },
        { "[" G(ONE, "read", TEAM("a")) "," G("\"two\"", "read", TEAM("b")) "]", ROLE_READ, "two",
          "{team=\"b\"}" },
        { "[" G(ONE, "read", TEAM("a")) "," G(ONE, "read", TEAM("a")) "]", ROLE_READ, "one",
          "{team=\"a\"}" },
        { "[" G(ONE, "read", TEAM("a")) "," G(ONE, "read", TEAM("b")) "]", ROLE_READ, "one", NULL },
        { "[" G(ONE, "read", TEAM("a")) "," G(ONE, "delete", TEAM("b")) "]", ROLE_DELETE, "one",
          "{team=\"b\"}" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct key_record *k = fake_identity("aaaaaaaaaaaa", rows[i].grants);
        struct str tenant = str_c(rows[i].tenant);
        const struct selector *match;
        struct buf text;
        struct err e;
        int rc = scope_match(k, rows[i].role, tenant, &match, &e);

        buf_init(&text, KIB);
        if (!rc && match)
            selector_format(match, &text);
        if (rc != (rows[i].want ? 0 : ERR_FORBIDDEN) ||
            (rows[i].want && !str_eqc(buf_str(&text), rows[i].want)))
            fail_msg("row %zu: %d, %.*s", i, rc, STR_ARG(buf_str(&text)));
        assert_int_equal(scope_limited(k, rows[i].role, &tenant, 1),
                         !rows[i].want || rows[i].want[0] != '\0');
        buf_deinit(&text);
        record_key_unref(k);
    }
    const struct selector *match;
    struct err e;
    assert_int_equal(scope_match(NULL, ROLE_READ, STR("one"), &match, &e), 0);
    assert_null(match);
    assert_false(scope_limited(NULL, ROLE_READ, &STR("one"), 1));
}

static void test_set(void **state)
{
    static const struct {
        const char *grants, *want; /* NULL: refused */
    } rows[] = {
        { "[" G(ONE, "push", SET("a")) "]", "{team=\"a\"}" },
        { "[" G(ONE, "push", "") "]", "{}" },
        { "[" G("\"two\"", "push", SET("a")) "]", NULL },
        { "[" G(ONE, "read", "") "]", NULL },
        { "[" G(ONE, "tenant-admin", "") "]", "{}" },
        /* What one grant sets, another one without `set` does not take away. */
        { "[" G("\"*\"", "push", "") "," G(ONE, "push", SET("a")) "]", "{team=\"a\"}" },
        { "[" G(ONE, "push", SET("a")) "," G("\"*\"", "push", ",\"set\":{\"env\":\"p\"}") "]",
          "{env=\"p\", team=\"a\"}" },
        { "[" G(ONE, "push", SET("a")) "," G(ONE, "push", SET("a")) "]", "{team=\"a\"}" },
        { "[" G(ONE, "push", SET("a")) "," G(ONE, "push", SET("b")) "]", NULL },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct key_record *k = fake_identity("aaaaaaaaaaaa", rows[i].grants);
        struct arena *a = arena_new(KIB);
        struct labels set;
        struct buf text;
        struct err e;
        int rc = scope_set(k, STR("one"), a, &set, &e);

        buf_init(&text, KIB);
        if (!rc)
            labels_format(&set, &text);
        if (rc != (rows[i].want ? 0 : ERR_FORBIDDEN) ||
            (rows[i].want && !str_eqc(buf_str(&text), rows[i].want)))
            fail_msg("row %zu: %d, %.*s", i, rc, STR_ARG(buf_str(&text)));
        buf_deinit(&text);
        arena_free(a);
        record_key_unref(k);
    }
}

/* Each request has another fingerprint than all others, and always the same. */
static void test_fingerprint(void **state)
{
    static const struct {
        const char *id, *grants;
        const char *tenants[2];
    } rows[] = {
        { "aaaaaaaaaaaa", "[" G(ONE, "read", "") "]", { "one" } },
        { "bbbbbbbbbbbb", "[" G(ONE, "read", "") "]", { "one" } },
        { "aaaaaaaaaaaa", "[" G(ONE, "read", TEAM("a")) "]", { "one" } },
        { "aaaaaaaaaaaa", "[" G(ONE, "read", TEAM("b")) "]", { "one" } },
        { "aaaaaaaaaaaa", "[" G("\"*\"", "read", TEAM("a")) "]", { "two" } },
        { "aaaaaaaaaaaa", "[" G("\"*\"", "read", TEAM("a")) "]", { "one", "two" } },
        { "aaaaaaaaaaaa", "[" G(ONE, "push", "") "]", { "one" } },
    };
    enum { N = sizeof(rows) / sizeof(rows[0]) };
    uint8_t got[N + 1][SCOPE_BYTES];

    (void)state;
    for (size_t i = 0; i < N; i++) {
        struct key_record *k = fake_identity(rows[i].id, rows[i].grants);
        struct str tenants[2];
        uint8_t again[SCOPE_BYTES];
        size_t n = 0;
        for (; n < 2 && rows[i].tenants[n]; n++)
            tenants[n] = str_c(rows[i].tenants[n]);
        scope_fingerprint(k, tenants, n, got[i]);
        scope_fingerprint(k, tenants, n, again);
        assert_memory_equal(got[i], again, SCOPE_BYTES);
        record_key_unref(k);
    }
    scope_fingerprint(NULL, &STR("one"), 1, got[N]);
    for (size_t i = 0; i <= N; i++)
        for (size_t k = 0; k < i; k++)
            assert_memory_not_equal(got[i], got[k], SCOPE_BYTES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_match),
        cmocka_unit_test(test_set),
        cmocka_unit_test(test_fingerprint),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

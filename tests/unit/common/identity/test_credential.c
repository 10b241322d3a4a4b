/* SPDX-License-Identifier: Apache-2.0
 *
 * What a request shows of itself: forms of the header Authorization, and credentials that are no
 * keys.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "common/identity/decide.h"

static struct registry *registry;
static struct arena *arena;

static struct key_record *on_older(void *cookie, const struct http_req *r)
{
    struct str header = http_header(r, "Authorization");

    return str_eqc(header, "Bearer an older token") ? cookie : NULL;
}

/* A token that an older option lists makes an identity; another text does not. */
static void test_older(void **state)
{
    const struct http_door door = { .path = "/a", .roles = ROLE_PUSH, .tenants = HTTP_TENANTS_ONE };
    struct key_record *who = NULL;
    struct err e;

    (void)state;
    assert_int_equal(
        record_key_read(STR("{\"id\":\"olderPusher0\",\"hash\":"
                            "\"00000000000000000000000000000000"
                            "00000000000000000000000000000000\",\"name\":\"tokens\","
                            "\"grants\":[{\"tenants\":[\"shop\"],\"roles\":[\"push\"]}]}"),
                        &who, &e),
        0);
    static const struct {
        const char *proof, *tenant, *reason;
        int code;
    } rows[] = {
        { "Bearer an older token", NULL, "key", 0 },
        { "Bearer an older token", "shop", "key", 0 },
        { "Bearer an older token", "bank", "tenant", ERR_FORBIDDEN },
        { "Bearer an older token!", "shop", "unknown", ERR_UNAUTHENTICATED },
        { "", "shop", "none", ERR_UNAUTHENTICATED },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct http_header h[] = { { STR("Authorization"), str_c(rows[i].proof) },
                                   { STR("X-Scope-OrgID"), str_c(rows[i].tenant) } };
        struct http_req r = { .headers = h,
                              .headers_len = rows[i].tenant ? 2 : 1,
                              .arena = arena,
                              .peer = "10.0.0.1:1" };
        struct decide_in in = { .registry = registry,
                                .door = &door,
                                .r = &r,
                                .now_ms = 1000,
                                .multi = true,
                                .fresh = true,
                                .older = on_older,
                                .older_cookie = who };
        struct decision got;

        decide(&in, &got);
        assert_int_equal(got.code, rows[i].code);
        assert_string_equal(got.reason, rows[i].reason);
    }
    record_key_unref(who);
}

static void test_credential(void **state)
{
    static const struct {
        const char *header, *key, *wish; /* key NULL: none is shown */
    } rows[] = {
        { "", NULL, NULL },
        { "Bearer", NULL, NULL },
        { "Bearer ", NULL, NULL },
        { "Bearer k", "k", NULL },
        { "bEARER \t k ", "k", NULL },
        { "Bearerk", NULL, NULL },
        { "k", NULL, NULL },
        { "Digest username=\"a\"", NULL, NULL },
        { "Basic", NULL, NULL },
        { "Basic c2hvcDprOms=", "k:k", "shop" }, /* shop:k:k */
        { "basic c2hvcDpr", "k", "shop" },
        { "Basic Oms=", "k", NULL },    /* :k */
        { "Basic c2hvcA==", "", NULL }, /* shop */
        { "Basic ???", "", NULL },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct str key, wish;
        bool shown = decide_credential(str_c(rows[i].header), arena, &key, &wish);

        if (shown != (rows[i].key != NULL) || (shown && !str_eqc(key, rows[i].key)) ||
            (rows[i].wish ? !str_eqc(wish, rows[i].wish) : wish.len > 0))
            fail_msg("\"%s\": %d \"%.*s\" \"%.*s\"", rows[i].header, shown, STR_ARG(key),
                     STR_ARG(wish));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_older),
        cmocka_unit_test(test_credential),
    };
    const uint8_t pepper[KEY_PEPPER_BYTES] = { 0 };

    registry = registry_new(pepper);
    arena = arena_new(MIB);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    arena_free(arena);
    registry_free(registry);
    return failed;
}

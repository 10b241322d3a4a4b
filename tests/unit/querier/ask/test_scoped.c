/* SPDX-License-Identifier: Apache-2.0
 *
 * The matchers of a question: what the request asks, then what its identity may see; and the place
 * that they name. What answers make of them: tests/unit/querier/test_scope_leak.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
/* cmocka wants the ones above first */
#include <cmocka.h>

#include "querier/ask/scoped.h"
#include "querier/select/query_spec.h"
#include "tests/lib/roles/fake_identity.h"

#define READ(tenant, match) \
    "[{\"tenants\":[\"" tenant "\"],\"roles\":[\"read\"],\"match\":\"" match "\"}]"

/* All matchers as text, "name op value" with blanks between. */
static void text_of(const struct scoped_matchers *s, struct arena *a, struct buf *out)
{
    static const char *const ops[] = { "=", "!=", "=~", "!~" };
    size_t n = 99;
    Embertree__Matcher **m = scoped_matchers_pack(s, a, &n);

    assert_non_null(m);
    for (size_t i = 0; i < n; i++)
        buf_addf(out, "%s%.*s%s%s%.*s", i ? " " : "", (int)m[i]->name.len,
                 (const char *)m[i]->name.data, ops[m[i]->op], m[i]->unanchored ? "~" : "",
                 (int)m[i]->value.len, (const char *)m[i]->value.data);
}

static void test_joined(void **state)
{
    static const struct {
        const char *grants, *query; /* of a tenant "one" */
        bool flameql;
        const char *want, *service; /* want NULL: refused */
    } rows[] = {
        { NULL, "", false, "", NULL },
        { NULL, "{pod=\"x\"}", false, "pod=x", NULL },
        { READ("one", "{team=\\\"a\\\"}"), "", false, "team=a", NULL },
        { READ("one", "{team=\\\"a\\\"}"), "{pod!=\"x\",b=~\"c|d\"}", false, "pod!=x b=~c|d team=a",
          NULL },
        { READ("one", "{team=~\\\"a|b\\\",env!=\\\"x\\\"}"), "{team=\"c\"}", false,
          "team=c team=~a|b env!=x", NULL },
        { READ("one", "{team=~\\\"a\\\"}"), "shop.cpu{pod=~\"x\"}", true,
          "pod=~~x service_name=shop team=~a", "shop" },
        /* The service of either decides on the places; of two, ingesters find nothing. */
        { READ("one", "{service_name=\\\"mine\\\"}"), "{pod=\"x\"}", false,
          "pod=x service_name=mine", "mine" },
        { READ("one", "{service_name=\\\"mine\\\"}"), "{service_name=\"yours\"}", false,
          "service_name=yours service_name=mine", "yours" },
        { READ("two", "{team=\\\"a\\\"}"), "", false, NULL, NULL },
        { "[{\"tenants\":[\"one\"],\"roles\":[\"read\"]}]", "{pod=\"x\"}", false, "pod=x", NULL },
        { "[{\"tenants\":[\"one\"],\"roles\":[\"push\"]}]", "", false, NULL, NULL },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct key_record *k =
            rows[i].grants ? fake_identity("aaaaaaaaaaaa", rows[i].grants) : NULL;
        struct arena *a = arena_new(MIB);
        struct query_spec *spec = ARENA_NEW(a, struct query_spec);
        const struct scoped_matchers *s;
        struct str service;
        struct buf text;
        struct err e;

        buf_init(&text, KIB);
        if (query_spec_labels(str_c(rows[i].query), rows[i].flameql, a, spec, &e))
            fail_msg("row %zu: %s", i, e.text);
        struct scoped_ask ask = { k, ROLE_READ, STR("one"), spec->selectors, spec->len };
        int rc = scoped_matchers_make(&ask, a, &s, &e);
        assert_int_equal(rc, rows[i].want ? 0 : ERR_FORBIDDEN);
        if (!rc) {
            text_of(s, a, &text);
            assert_true(str_eqc(scoped_matchers_tenant(s), "one"));
            if (!str_eqc(buf_str(&text), rows[i].want))
                fail_msg("row %zu: %.*s", i, STR_ARG(buf_str(&text)));
            bool named = scoped_matchers_service(s, &service);
            assert_int_equal(named, rows[i].service != NULL);
            if (named)
                assert_true(str_eqc(service, rows[i].service));
        }
        buf_deinit(&text);
        arena_free(a);
        if (k)
            record_key_unref(k);
    }
}

/* No room is an error, not a question with fewer matchers. */
static void test_no_room(void **state)
{
    struct key_record *k = fake_identity("aaaaaaaaaaaa", READ("one", "{team=\\\"a\\\"}"));
    struct scoped_ask ask = { .who = k, .role = ROLE_READ, .tenant = STR("one") };

    (void)state;
    for (size_t room = 1; room < 4096; room += 7) {
        struct arena *a = arena_new(room);
        const struct scoped_matchers *s;
        struct err e;
        size_t n = 0;
        int rc = scoped_matchers_make(&ask, a, &s, &e);
        assert_true(rc == 0 || rc == ERR_LIMIT);
        if (!rc && scoped_matchers_pack(s, a, &n))
            assert_int_equal(n, 1);
        arena_free(a);
    }
    record_key_unref(k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_joined),
        cmocka_unit_test(test_no_room),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

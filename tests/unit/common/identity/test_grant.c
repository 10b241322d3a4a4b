/* SPDX-License-Identifier: Apache-2.0
 *
 * Grants as JSON, and rules of grants_cover by example (tests/prop/test_grants_cover.c has the
 * general one).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/identity/grant.h"

static struct arena *arena;

static int read_text(const char *text, struct grants *ret, struct err *e)
{
    struct json_doc *doc;
    int code;

    if (json_parse(str_c(text), &doc, e))
        fail_msg("%s: %s", text, e->text);
    code = grants_read(json_root(doc), arena, ret, e);
    json_doc_free(doc);
    return code;
}

static struct grants grants_of(const char *text)
{
    struct grants g = { 0 };
    struct err e;

    if (read_text(text, &g, &e))
        fail_msg("%s: %s", text, e.text);
    return g;
}

static void test_roles_have_names(void **state)
{
    (void)state;
    static const char *const names[] = { "push",         "read",    "delete", "tenant-admin",
                                         "server-admin", "gateway", "scrape" };

    for (unsigned i = 0; i < 32; i++) {
        const char *name = grants_role_name(1u << i);

        if (i >= ARRAY_LEN(names)) {
            assert_null(name);
            continue;
        }
        assert_string_equal(name, names[i]);
        assert_int_equal(grants_role_of(str_c(name)), 1u << i);
    }
    assert_null(grants_role_name(0));
    assert_null(grants_role_name(ROLE_PUSH | ROLE_READ));
    assert_int_equal(grants_role_of(STR("Push")), 0);
    assert_int_equal(grants_role_of(STR("pus")), 0);
    assert_int_equal(grants_role_of(STR("")), 0);
}

static void test_there_and_back(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out; /* out NULL: the same */
    } rows[] = {
        { "[]", NULL },
        { "[{\"tenants\":[\"shop\"],\"roles\":[\"read\"]}]", NULL },
        { "[{\"roles\":[\"delete\",\"push\",\"push\"],\"tenants\":[\"b\",\"a\",\"b\"]}]",
          "[{\"tenants\":[\"a\",\"b\"],\"roles\":[\"push\",\"delete\"]}]" },
        { "[{\"tenants\":[\"*\"],\"roles\":[\"server-admin\",\"scrape\",\"gateway\"]}]",
          "[{\"tenants\":[\"*\"],\"roles\":[\"server-admin\",\"gateway\",\"scrape\"]}]" },
        { "[{\"tenants\":[\"shop\"],\"roles\":[\"read\"],\"match\":\" { team = 'a' , x =~ `b.*` } "
          "\",\"edit\":true}]",
          "[{\"tenants\":[\"shop\"],\"roles\":[\"read\"],\"match\":\"{team=\\\"a\\\","
          "x=~\\\"b.*\\\"}\",\"edit\":true}]" },
        { "[{\"tenants\":[\"shop\"],\"roles\":[\"push\"],\"set\":{\"z\":\"1\",\"team\":\"a "
          "\\\"b\\\"\"},\"edit\":false}]",
          "[{\"tenants\":[\"shop\"],\"roles\":[\"push\"],\"set\":{\"team\":\"a "
          "\\\"b\\\"\",\"z\":\"1\"}}]" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct grants g = grants_of(rows[i].in);
        struct buf b;
        struct json j;

        buf_init(&b, 4 * KIB);
        json_init(&j, &b);
        grants_write(&g, &j);
        buf_add_c(&b, '\0');
        assert_string_equal(b.ptr, rows[i].out ? rows[i].out : rows[i].in);
        buf_deinit(&b);
        grants_deinit(&g);
    }
}

static void test_match_is_compiled(void **state)
{
    (void)state;
    struct grants g = grants_of(
        "[{\"tenants\":[\"shop\"],\"roles\":[\"read\"],\"match\":\"{team=~\\\"a|b\\\"}\"}]");
    struct label has[] = { { STR("team"), STR("b") } }, not [] = { { STR("team"), STR("ab") } };
    struct err e;

    assert_int_equal(g.ptr[0].match.len, 1);
    assert_int_equal(selector_match(&g.ptr[0].match, &(struct labels){ has, 1 }, &e), 1);
    assert_int_equal(selector_match(&g.ptr[0].match, &(struct labels){ not, 1 }, &e), 0);
    grants_deinit(&g);
}

#define OF(more)    "[{\"tenants\":[\"t\"],\"roles\":[\"read\",\"push\"]," more "}]"
#define MATCH(text) OF("\"match\":\"" text "\"")

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want;
        int code;
    } rows[] = {
        { "{}", "grants: want a list", ERR_INPUT },
        { "[3]", "grants[0]: want an object", ERR_INPUT },
        { "[null]", "grants[0]: want an object", ERR_INPUT },
        { "[{}]", "grants[0]: tenants: want a list", ERR_INPUT },
        { "[{\"tenants\":[],\"roles\":[\"read\"]}]", "tenants: want a list", ERR_INPUT },
        { "[{\"tenants\":\"*\",\"roles\":[\"read\"]}]", "tenants: want a list", ERR_INPUT },
        { "[{\"tenants\":[\"\"],\"roles\":[\"read\"]}]", "tenants: tenant id is empty", ERR_INPUT },
        { "[{\"tenants\":[null],\"roles\":[\"read\"]}]", "tenants: tenant id", ERR_INPUT },
        { "[{\"tenants\":[\"a|b\"],\"roles\":[\"read\"]}]", "tenants: tenant id", ERR_INPUT },
        { "[{\"tenants\":[\"*\",\"a\"],\"roles\":[\"read\"]}]", "leave out the others", ERR_INPUT },
        { "[{\"tenants\":[\"a\"]}]", "roles: want a list", ERR_INPUT },
        { "[{\"tenants\":[\"a\"],\"roles\":[]}]", "roles: want a list", ERR_INPUT },
        { "[{\"tenants\":[\"a\"],\"roles\":[\"admin\"]}]", "\"admin\" is not a role", ERR_INPUT },
        { "[{\"tenants\":[\"a\"],\"roles\":[\"scrape\"]}]", "whole server", ERR_INPUT },
        { "[{\"tenants\":[\"a\"],\"roles\":[\"server-admin\"]}]", "whole server", ERR_INPUT },
        { OF("\"matches\":\"{}\""), "\"matches\" is null, or not a field", ERR_INPUT },
        { OF("\"match\":null"), "\"match\" is null", ERR_INPUT },
        { OF("\"set\":null"), "\"set\" is null", ERR_INPUT },
        { OF("\"match\":3"), "match: want a string", ERR_INPUT },
        { OF("\"edit\":\"yes\""), "edit: want true or false", ERR_INPUT },
        { OF("\"set\":{}"), "set: want an object", ERR_INPUT },
        { OF("\"set\":[\"a\"]"), "set: want an object", ERR_INPUT },
        { OF("\"set\":{\"a b\":\"c\"}"), "\"a b\" cannot be set", ERR_INPUT },
        { OF("\"set\":{\"__name__\":\"c\"}"), "\"__name__\" cannot be set", ERR_INPUT },
        { OF("\"set\":{\"a\":\"\"}"), "the value of a is empty", ERR_INPUT },
        { OF("\"set\":{\"a\":3}"), "set: want a string", ERR_INPUT },
        { OF("\"set\":{\"a\":null}"), "the value of a is empty", ERR_INPUT },
        { MATCH(""), "match: selector: empty", ERR_INPUT },
        { MATCH("{}"), "selects all series", ERR_INPUT },
        { MATCH("cpu{a=\\\"b\\\"}"), "only labels in braces", ERR_INPUT },
        { MATCH("{a=}"), "match: selector: wanted a quoted value", ERR_INPUT },
        { MATCH("{a=~\\\"(\\\"}"), "match: matcher a", ERR_INPUT },
        { MATCH("{a=\\\"\\\\xff\\\"}"), "UTF-8", ERR_INPUT },
        { "[{\"tenants\":[\"t\"],\"roles\":[\"push\"],\"match\":\"{a=\\\"b\\\"}\"}]",
          "match: only for the roles read and delete", ERR_INPUT },
        { "[{\"tenants\":[\"t\"],\"roles\":[\"read\"],\"set\":{\"a\":\"b\"}}]",
          "set: only for the role push", ERR_INPUT },
        { "[{\"tenants\":[\"t\"],\"roles\":[\"push\"],\"edit\":true}]",
          "edit: only for the role read", ERR_INPUT },
        { "[{\"tenants\":[\"t\"],\"roles\":[\"read\"],\"match\":\"{a=~\\\"b\\\"}\"},{}]",
          "grants[1]: tenants", ERR_INPUT },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct grants g;
        struct err e;
        int code = read_text(rows[i].text, &g, &e);

        if (code != rows[i].code || !strstr(e.text, rows[i].want))
            fail_msg("%s: %d, \"%s\"", rows[i].text, code, code ? e.text : "taken");
    }
}

/* A text with `n` of something in the middle; "%" in `one` stands for its number. */
static int of_many(const char *head, const char *one, size_t n, const char *tail, struct err *e)
{
    struct grants g;
    struct buf b;
    int code;

    buf_init(&b, MIB);
    buf_add_str(&b, str_c(head));
    for (size_t i = 0; i < n; i++) {
        ptrdiff_t at = str_find(str_c(one), '%');

        if (i)
            buf_add_c(&b, ',');
        buf_add_str(&b, str_sub(str_c(one), 0, at < 0 ? strlen(one) : (size_t)at));
        if (at >= 0) {
            buf_add_u64(&b, i);
            buf_add_str(&b, str_c(one + at + 1));
        }
    }
    buf_add_str(&b, str_c(tail));
    buf_add_c(&b, '\0');
    assert_true(buf_ok(&b));
    code = read_text(b.ptr, &g, e);
    if (!code)
        grants_deinit(&g);
    buf_deinit(&b);
    arena_reset(arena);
    return code;
}

static void test_limits(void **state)
{
    (void)state;
    static const struct {
        const char *head, *one, *tail, *want;
        size_t most;
    } rows[] = {
        { "[", "{\"tenants\":[\"t\"],\"roles\":[\"push\"]}", "]", "at most 64", GRANTS_MAX },
        { "[{\"tenants\":[", "\"t%\"", "],\"roles\":[\"push\"]}]", "at most 64",
          GRANT_TENANTS_MAX },
        { "[{\"tenants\":[\"t\"],\"roles\":[\"push\"],\"set\":{", "\"l%\":\"v\"", "}}]",
          "at most 16", GRANT_LABELS_MAX },
        { "[{\"tenants\":[\"t\"],\"roles\":[\"read\"],\"match\":\"{", "l%=\\\"v\\\"", "}\"}]",
          "at most 16", GRANT_LABELS_MAX },
        /* Commas alone, one less than there are elements, and six other characters. */
        { "[{\"tenants\":[\"t\"],\"roles\":[\"read\"],\"match\":\"{a=\\\"", "", "\\\"}\"}]",
          "at most 1024", GRANT_TEXT_MAX - 5 },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct err e;

        if (of_many(rows[i].head, rows[i].one, rows[i].most, rows[i].tail, &e))
            fail_msg("row %zu: %s", i, e.text);
        assert_int_equal(of_many(rows[i].head, rows[i].one, rows[i].most + 1, rows[i].tail, &e),
                         ERR_LIMIT);
        if (!strstr(e.text, rows[i].want))
            fail_msg("row %zu: %s", i, e.text);
    }
}

/* The text fits, but not as it is written: each control character takes four bytes. */
static void test_limit_of_escapes(void **state)
{
    (void)state;
    struct buf b;
    struct grants g;
    struct err e;

    buf_init(&b, 4 * KIB);
    buf_add_str(&b, STR("[{\"tenants\":[\"t\"],\"roles\":[\"read\"],\"match\":\"{a=\\\""));
    for (int i = 0; i < 300; i++)
        buf_add_str(&b, STR("\\u0001"));
    buf_add_str(&b, STR("\\\"}\"}]"));
    buf_add_c(&b, '\0');
    assert_int_equal(read_text(b.ptr, &g, &e), ERR_LIMIT);
    assert_non_null(strstr(e.text, "with its escapes"));
    buf_deinit(&b);
}

static void test_a_full_arena(void **state)
{
    (void)state;
    static const char text[] =
        "[{\"tenants\":[\"b\",\"a\"],\"roles\":[\"read\",\"push\"],\"match\":\"{x=~\\\"1\\\","
        "y=\\\"2\\\"}\",\"set\":{\"l\":\"v\"}},{\"tenants\":[\"*\"],\"roles\":[\"read\"],"
        "\"match\":\"{z=~\\\"1\\\"}\"}]";
    struct arena *was = arena;
    size_t limit = 0;

    /* Whatever does not fit: an error, nothing leaks (ASan), and at last it fits. */
    for (int code = 1; code; limit += 16) {
        struct grants g;
        struct err e;

        arena = arena_new(limit);
        code = read_text(text, &g, &e);
        if (code)
            assert_int_equal(code, ERR_LIMIT);
        else
            grants_deinit(&g);
        arena_free(arena);
        assert_true(limit < 4096);
    }
    arena = was;
}

#define T(tenants, rest) "[{\"tenants\":[" tenants "],\"roles\":[" rest "}]"
#define A                "\"match\":\"{team=\\\"a\\\"}\""

static void test_cover(void **state)
{
    (void)state;
    static const struct {
        const char *mine, *theirs, *want; /* want NULL: covered */
    } rows[] = {
        { "[]", "[]", NULL },
        { "[]", T("\"t\"", "\"read\"]"), "grants[0]: read in tenant t is more" },
        { T("\"*\"", "\"server-admin\"]"), T("\"t\"", "\"read\"]"), "read in tenant t" },
        { T("\"*\"", "\"server-admin\"]"), T("\"*\"", "\"scrape\"]"), "scrape in all tenants" },
        { T("\"*\"", "\"server-admin\"]"), T("\"*\"", "\"server-admin\"]"), NULL },
        { T("\"t\"", "\"tenant-admin\"]"), T("\"t\"", "\"read\",\"push\",\"delete\"]"), NULL },
        { T("\"t\"", "\"tenant-admin\"]"), T("\"t\"", "\"read\"],\"edit\":true"), NULL },
        { T("\"t\"", "\"read\"]"), T("\"t\"", "\"read\"],\"edit\":true"), "edit in tenant t" },
        { T("\"t\"", "\"read\",\"push\",\"delete\"]"), T("\"t\"", "\"tenant-admin\"]"),
          "tenant-admin in tenant t" },
        { T("\"t\"", "\"tenant-admin\"]"), T("\"t\",\"u\"", "\"read\"]"), "read in tenant u" },
        { T("\"t\"", "\"tenant-admin\"]"), T("\"*\"", "\"read\"]"), "read in all tenants" },
        { T("\"*\"", "\"tenant-admin\"]"), T("\"t\"", "\"tenant-admin\"]"), NULL },
        { T("\"*\"", "\"tenant-admin\"]"), T("\"t\"", "\"gateway\"]"), "gateway in tenant t" },
        { T("\"t\"", "\"read\"]," A), T("\"t\"", "\"read\"]," A), NULL },
        { T("\"t\"", "\"read\"]," A),
          T("\"t\"", "\"read\"],\"match\":\"{env=\\\"x\\\",team=\\\"a\\\"}\""), NULL },
        { T("\"t\"", "\"read\"]," A), T("\"t\"", "\"read\"]"),
          "grants[0]: read in tenant t without the matchers of its grant is more" },
        { T("\"t\"", "\"read\"]," A), T("\"t\"", "\"read\"],\"match\":\"{team=\\\"b\\\"}\""),
          "without the matchers" },
        { T("\"t\"", "\"read\"]," A), T("\"t\"", "\"read\"],\"match\":\"{team=~\\\"a\\\"}\""),
          "without the matchers" },
        { T("\"t\"", "\"read\",\"delete\"]," A), T("\"t\"", "\"delete\"]"),
          "delete in tenant t without" },
        { T("\"t\"", "\"push\"],\"set\":{\"team\":\"a\"}"), T("\"t\"", "\"push\"]"),
          "push without team=\"a\"" },
        { T("\"t\"", "\"push\"],\"set\":{\"team\":\"a\"}"),
          T("\"t\"", "\"push\"],\"set\":{\"team\":\"b\"}"), "push without team=\"a\"" },
        { T("\"t\"", "\"push\"],\"set\":{\"team\":\"a\"}"),
          T("\"t\"", "\"push\"],\"set\":{\"env\":\"x\",\"team\":\"a\"}"), NULL },
        /* Where mine is narrower in one tenant, "*" is too much. */
        { "[{\"tenants\":[\"*\"],\"roles\":[\"push\"]},{\"tenants\":[\"t\"],\"roles\":[\"push\"],"
          "\"set\":{\"team\":\"a\"}}]",
          T("\"*\"", "\"push\"]"), "push without team=\"a\"" },
        { "[{\"tenants\":[\"t\"],\"roles\":[\"read\"]},{\"tenants\":[\"u\"],\"roles\":[\"read\"]}]",
          T("\"u\",\"t\"", "\"read\"]"), NULL },
        { T("\"t\"", "\"tenant-admin\"]"),
          "[{\"tenants\":[\"t\"],\"roles\":[\"read\"]},{\"tenants\":[\"u\"],\"roles\":[\"push\"]}]",
          "grants[1]: push in tenant u" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct grants mine = grants_of(rows[i].mine), theirs = grants_of(rows[i].theirs);
        struct err e;
        bool covers = grants_cover(&mine, &theirs, &e);

        if (covers != !rows[i].want || (!covers && !strstr(e.text, rows[i].want)))
            fail_msg("%s\n%s: %s", rows[i].mine, rows[i].theirs, covers ? "covered" : e.text);
        if (!covers)
            assert_int_equal(e.code, ERR_FORBIDDEN);
        grants_deinit(&mine);
        grants_deinit(&theirs);
    }
}

static void test_questions(void **state)
{
    (void)state;
    struct grants g = grants_of("[{\"tenants\":[\"t\"],\"roles\":[\"read\"]," A "},"
                                "{\"tenants\":[\"u\",\"t\"],\"roles\":[\"tenant-admin\"]},"
                                "{\"tenants\":[\"*\"],\"roles\":[\"scrape\"]}]");
    struct grants one = grants_of("[{\"tenants\":[\"t\"],\"roles\":[\"read\"]," A "},"
                                  "{\"tenants\":[\"t\"],\"roles\":[\"push\"]}]");
    const unsigned admin = ROLE_TENANT_ADMIN | ROLE_READ | ROLE_PUSH | ROLE_DELETE;

    assert_int_equal(grants_roles(&g, STR("t")), admin | ROLE_SCRAPE);
    assert_int_equal(grants_roles(&g, STR("v")), ROLE_SCRAPE);
    assert_int_equal(grants_roles(&g, STR_NULL), ROLE_SCRAPE);
    assert_int_equal(grants_roles(&one, STR_NULL), 0);
    assert_true(grants_read_all(&g, ROLE_READ, STR("t")));
    assert_true(grants_read_all(&g, ROLE_DELETE, STR("u")));
    assert_false(grants_read_all(&g, ROLE_READ, STR("v")));
    assert_false(grants_read_all(&one, ROLE_READ, STR("t")));
    assert_false(grants_read_all(&one, ROLE_DELETE, STR("t")));
    assert_null(grants_only_tenant(&g).ptr);
    assert_true(str_eqc(grants_only_tenant(&one), "t"));
    assert_null(grants_only_tenant(&(struct grants){ 0 }).ptr);
    grants_deinit(&g);
    grants_deinit(&one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_roles_have_names),
        cmocka_unit_test(test_there_and_back),
        cmocka_unit_test(test_match_is_compiled),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_limit_of_escapes),
        cmocka_unit_test(test_a_full_arena),
        cmocka_unit_test(test_cover),
        cmocka_unit_test(test_questions),
    };

    arena = arena_new(4 * MIB);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    arena_free(arena);
    return failed;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Every row of the table of doors, with every kind of key and header, against a second reading of
 * the rules. The reading is of decide.h and of the design, and has no code of decide.c: keys are
 * lists of words here, and what a header names stands beside it in a table.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "common/base/base64.h"
#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/identity/decide.h"
#include "common/role/core/doors.h"
#include "common/sys/env.h"

#define NOW  INT64_C(1790000000000)
#define HOUR INT64_C(3600000)

/* ---- kinds of keys -------------------------------------------------------------------------- */

enum state { GOOD, NONE, MALFORMED, UNKNOWN, WRONG, EXPIRED, EARLY, REVOKED, FAR };
struct words {
    const char *tenants, *roles; /* with a blank between them */
    bool match, edit;
};
struct kind {
    const char *name;
    enum state state;
    struct words g[3];
    char text[KEY_TEXT_LEN + 1];
};

static struct kind kinds[] = {
    { "none", NONE, { { 0 } }, "" },
    { "malformed", MALFORMED, { { 0 } }, "" },
    { "unknown", UNKNOWN, { { 0 } }, "" },
    { "wrong secret", WRONG, { { "*", "read push delete", false, true } }, "" },
    { "expired", EXPIRED, { { "*", "read push server-admin", false, true } }, "" },
    { "not begun", EARLY, { { "*", "read push server-admin", false, true } }, "" },
    { "revoked", REVOKED, { { "*", "read push server-admin", false, true } }, "" },
    { "from elsewhere", FAR, { { "*", "read push server-admin", false, true } }, "" },
    { "push", GOOD, { { "shop", "push", false, false } }, "" },
    { "read", GOOD, { { "shop", "read", false, false } }, "" },
    { "edit", GOOD, { { "shop", "read", false, true } }, "" },
    { "scoped read", GOOD, { { "shop", "read", true, false } }, "" },
    { "scoped edit", GOOD, { { "shop", "read", true, true } }, "" },
    { "delete", GOOD, { { "shop", "delete", false, false } }, "" },
    { "scoped delete", GOOD, { { "shop", "delete", true, false } }, "" },
    { "tenant-admin", GOOD, { { "shop", "tenant-admin", false, false } }, "" },
    { "editing tenant-admin", GOOD, { { "shop", "tenant-admin read", false, true } }, "" },
    { "scoped tenant-admin", GOOD, { { "shop", "tenant-admin read", true, false } }, "" },
    { "server-admin", GOOD, { { "*", "server-admin", false, false } }, "" },
    { "scrape", GOOD, { { "*", "scrape", false, false } }, "" },
    { "gateway alone", GOOD, { { "*", "gateway", false, false } }, "" },
    { "reading gateway", GOOD, { { "*", "gateway read push", false, false } }, "" },
    { "gateway of a tenant", GOOD, { { "shop", "gateway read", false, false } }, "" },
    { "read of another", GOOD, { { "bank", "read push", false, true } }, "" },
    { "read of two", GOOD, { { "bank shop", "read", false, false } }, "" },
    { "push here, read there",
      GOOD,
      { { "shop", "push", false, false }, { "bank", "read", false, false } },
      "" },
    { "some here, all there",
      GOOD,
      { { "shop", "read", true, false }, { "bank", "read", false, true } },
      "" },
    { "some and all",
      GOOD,
      { { "shop", "read", true, false }, { "shop", "read", false, false } },
      "" },
    { "some, and may edit all",
      GOOD,
      { { "shop", "read", true, true }, { "*", "delete", false, false } },
      "" },
    { "read everywhere", GOOD, { { "*", "read", false, false } }, "" },
    { "scoped everywhere, all here",
      GOOD,
      { { "*", "read", true, false }, { "shop", "read delete", false, false } },
      "" },
    { "of the only tenant", GOOD, { { "anonymous", "read push delete", false, true } }, "" },
    { "everything",
      GOOD,
      { { "*", "push read delete tenant-admin server-admin scrape", false, true } },
      "" },
};

static bool has_word(const char *words, const char *word)
{
    char padded[200], wanted[100];

    (void)snprintf(padded, sizeof(padded), " %s ", words ? words : "");
    (void)snprintf(wanted, sizeof(wanted), " %s ", word);
    return strstr(padded, wanted) != NULL;
}

static void put_words(struct json *j, const char *key, const char *words)
{
    struct str rest = str_c(words), word;
    bool more = true;

    json_key(j, key);
    json_arr(j);
    while (str_next(&rest, ' ', &more, &word))
        json_str(j, word);
    json_arr_end(j);
}

static void put_grants(struct json *j, const struct kind *k)
{
    json_key(j, "grants");
    json_arr(j);
    for (size_t i = 0; i < ARRAY_LEN(k->g) && k->g[i].roles; i++) {
        json_obj(j);
        put_words(j, "tenants", k->g[i].tenants);
        put_words(j, "roles", k->g[i].roles);
        if (k->g[i].match)
            json_put_cstr(j, "match", "{team=\"a\"}");
        if (k->g[i].edit)
            json_put_bool(j, "edit", true);
        json_obj_end(j);
    }
    json_arr_end(j);
}

/* Into the registry, as the state wants it. */
static void enter(struct registry *g, const struct kind *k, const uint8_t pepper[KEY_PEPPER_BYTES])
{
    char other[KEY_TEXT_LEN + 1], hex[2 * KEY_HASH_BYTES + 1];
    uint8_t hash[KEY_HASH_BYTES];
    struct key_record *r = NULL;
    struct key_text t, secret;
    struct json j;
    struct buf b;
    struct err e;

    key_make(env_real(), KEY_API, other);
    assert_true(key_text_parse(str_c(k->text), &t));
    assert_true(key_text_parse(str_c(k->state == WRONG ? other : k->text), &secret));
    key_hash(pepper, t.id, secret.secret, hash);
    for (size_t i = 0; i < sizeof(hash); i++)
        (void)snprintf(hex + 2 * i, 3, "%02x", hash[i]);
    buf_init(&b, KEY_RECORD_BYTES_MAX);
    json_init(&j, &b);
    json_obj(&j);
    json_put_str(&j, "id", t.id);
    json_put_cstr(&j, "hash", hex);
    json_put_cstr(&j, "name", k->name);
    put_grants(&j, k);
    json_put_i64(&j, "from", k->state == EARLY ? NOW + HOUR : 0);
    json_put_i64(&j, "until", k->state == EXPIRED ? NOW - HOUR : 0);
    if (k->state == FAR)
        put_words(&j, "nets", "192.168.0.0/16");
    json_obj_end(&j);
    if (record_key_read(buf_str(&b), &r, &e) || registry_put(g, r, &e))
        fail_msg("%s: %s", k->name, e.text);
    record_key_unref(r);
    buf_deinit(&b);
    if (k->state == REVOKED)
        registry_block(g, &(struct block_record){ .id = t.id, .why = STR("lost"), .at_ms = NOW });
}

static struct registry *fill(void)
{
    uint8_t pepper[KEY_PEPPER_BYTES];
    struct registry *g;

    memset(pepper, 7, sizeof(pepper));
    g = registry_new(pepper);
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        key_make(env_real(), KEY_API, kinds[i].text);
        if (kinds[i].state == MALFORMED)
            kinds[i].text[30] = kinds[i].text[30] == 'x' ? 'y' : 'x'; /* its sum is wrong now */
        else if (kinds[i].state != NONE && kinds[i].state != UNKNOWN)
            enter(g, &kinds[i], pepper);
    }
    return g;
}

/* ---- what a request says -------------------------------------------------------------------- */

enum form { BEARER, BASIC, FORMS };
struct saying {
    const char *header; /* X-Scope-OrgID; NULL: none */
    const char *user;   /* of Basic */
    /* What the header names; NULL: nothing. Then `code` and `reason` are the answer to an
     * identity that has all. */
    const char *names;
    int code;
    const char *reason;
    bool special; /* '|' or ':' in it */
};
static const struct saying sayings[] = {
    { NULL, "", NULL, 0, NULL, false },
    { NULL, "shop", NULL, 0, NULL, false },
    { NULL, "bank", NULL, 0, NULL, false },
    { NULL, "123456", NULL, 0, NULL, false },
    { "", "shop", NULL, 0, NULL, false },
    { "shop", "", "shop", 0, NULL, false },
    { " shop ", "bank", "shop", 0, NULL, false },
    { "bank", "shop", "bank", 0, NULL, false },
    { "other", "", "other", 0, NULL, false },
    { "shop|bank", "", "bank shop", 0, NULL, true },
    { "shop|shop", "", "shop", 0, NULL, true },
    { "shop|other", "", "other shop", 0, NULL, true },
    { "shop:x", "", "shop", 0, NULL, true },
    { "shop|", "", "", ERR_INPUT, "no_tenant", true },
    { ":x", "", "", ERR_INPUT, "no_tenant", true },
    { "../etc", "", "", ERR_INPUT, "tenant_name", false },
    { "shop|..", "", "", ERR_INPUT, "tenant_name", true },
};

/* ---- the second reading --------------------------------------------------------------------- */

struct world {
    bool multi, strict;
};
struct want {
    int code;
    const char *reason;
    char tenants[200];
};

static struct want no(int code, const char *reason)
{
    return (struct want){ .code = code, .reason = reason };
}

static bool gives(const struct words *g, const char *role)
{
    if (!g->roles)
        return false;
    if (has_word(g->roles, role))
        return true;
    return has_word(g->roles, "tenant-admin") &&
           (!strcmp(role, "push") || !strcmp(role, "read") || !strcmp(role, "delete"));
}

static bool for_tenant(const struct words *g, const char *tenant)
{
    return g->roles && (has_word(g->tenants, "*") || has_word(g->tenants, tenant));
}

static bool any_grant(const struct kind *k, const char *role)
{
    return gives(&k->g[0], role) || gives(&k->g[1], role) || gives(&k->g[2], role);
}

/* The tenant all grants name, or NULL. */
static const char *only(const struct kind *k)
{
    for (size_t i = 0; i < 3 && k->g[i].roles; i++) {
        if (strchr(k->g[i].tenants, ' ') || !strcmp(k->g[i].tenants, "*") ||
            strcmp(k->g[i].tenants, k->g[0].tenants))
            return NULL;
    }
    return k->g[0].tenants;
}

static struct want name_tenants(const struct http_door *d, const struct kind *k, enum form form,
                                const struct saying *s, struct world w)
{
    struct want ret = { 0 };
    const char *names = s->names;

    if (!w.multi) {
        (void)snprintf(ret.tenants, sizeof(ret.tenants), "anonymous");
        return ret;
    }
    if (!s->header || !s->header[0]) {
        if (any_grant(k, "gateway"))
            return no(ERR_INPUT, "no_tenant");
        names = only(k) ? only(k) : form == BASIC && s->user[0] ? s->user : NULL;
        if (!names)
            return no(ERR_INPUT, "no_tenant");
    } else if (w.strict && s->special) {
        return no(ERR_INPUT, "tenant_name");
    } else if (s->code && strchr(s->header, '|') && !strcmp(s->reason, "tenant_name") &&
               d->tenants == HTTP_TENANTS_ONE) {
        return no(ERR_INPUT, "tenant_name");
    } else if (s->code) {
        return no(s->code, s->reason);
    } else if (strchr(names, ' ') && d->tenants == HTTP_TENANTS_ONE) {
        return no(ERR_INPUT, "tenant_name");
    }
    (void)snprintf(ret.tenants, sizeof(ret.tenants), "%s", names);
    return ret;
}

static const struct {
    unsigned bit;
    const char *name;
} roles[] = { { ROLE_PUSH, "push" },
              { ROLE_READ, "read" },
              { ROLE_DELETE, "delete" },
              { ROLE_TENANT_ADMIN, "tenant-admin" },
              { ROLE_SERVER_ADMIN, "server-admin" },
              { ROLE_GATEWAY, "gateway" },
              { ROLE_SCRAPE, "scrape" } };

/* May it, in this tenant; and if so, for all series? */
static bool may(const struct http_door *d, const struct kind *k, const char *tenant, bool *all)
{
    bool edits = false, ret = false;

    *all = false;
    for (size_t i = 0; i < 3; i++)
        edits |= k->g[i].edit && for_tenant(&k->g[i], tenant) && gives(&k->g[i], "read");
    for (size_t r = 0; r < ARRAY_LEN(roles); r++) {
        const char *name = roles[r].name;
        bool limits =
            !strcmp(name, "read") || !strcmp(name, "delete") || !strcmp(name, "tenant-admin");

        if (!(d->roles & roles[r].bit) ||
            (d->roles & HTTP_ROLES_EDIT && !strcmp(name, "read") && !edits))
            continue;
        for (size_t i = 0; i < 3; i++) {
            if (!gives(&k->g[i], name) || !for_tenant(&k->g[i], tenant))
                continue;
            ret = true;
            *all |= !limits || !k->g[i].match;
        }
    }
    return ret;
}

static struct want server_route(const struct http_door *d, const struct kind *k)
{
    for (size_t r = 0; r < ARRAY_LEN(roles); r++) {
        if (d->roles & roles[r].bit &&
            (has_word(k->g[0].roles, roles[r].name) || has_word(k->g[1].roles, roles[r].name) ||
             has_word(k->g[2].roles, roles[r].name)))
            return no(0, "key");
    }
    return no(ERR_FORBIDDEN, "role");
}

static struct want expect(const struct http_door *d, const struct kind *k, enum form form,
                          const struct saying *s, struct world w)
{
    static const char *const faults[] = {
        [NONE] = "none",       [MALFORMED] = "unknown", [UNKNOWN] = "unknown", [WRONG] = "unknown",
        [EXPIRED] = "expired", [EARLY] = "expired",     [REVOKED] = "revoked", [FAR] = "address"
    };
    struct want ret;
    char names[200];
    bool all = true;

    if (d->roles == HTTP_ROLES_OPEN)
        return no(0, "open");
    if (k->state != GOOD)
        return no(ERR_UNAUTHENTICATED, faults[k->state]);
    if (d->tenants == HTTP_TENANTS_NONE)
        return d->roles & HTTP_ROLES_ANY ? no(0, "key") : server_route(d, k);
    ret = name_tenants(d, k, form, s, w);
    if (ret.code)
        return ret;
    for (int pass = 0; pass < 3; pass++) {
        (void)snprintf(names, sizeof(names), "%s", ret.tenants);
        char *at = names, *end = names;
        while (end && *at) {
            end = strchr(at, ' ');
            if (end)
                *end = '\0';
            bool here =
                for_tenant(&k->g[0], at) || for_tenant(&k->g[1], at) || for_tenant(&k->g[2], at);
            if (pass == 0 && !here)
                return no(ERR_FORBIDDEN, "tenant");
            if (pass == 1 && !may(d, k, at, &all))
                return no(ERR_FORBIDDEN, "role");
            if (pass == 2 && d->scope == HTTP_SCOPE_REFUSE && may(d, k, at, &all) && !all)
                return no(ERR_FORBIDDEN, "scoped_key");
            at = end ? end + 1 : at;
        }
    }
    ret.reason = "key";
    return ret;
}

/* ---- both ----------------------------------------------------------------------------------- */

static struct registry *registry;
static struct arena *arena;

static void authorization(const struct kind *k, enum form form, const char *user, struct buf *out)
{
    char plain[KEY_TEXT_LEN + 100];
    const char *text = k->state == NONE ? "" : k->text;

    if (form == BASIC) {
        (void)snprintf(plain, sizeof(plain), "%s:%s", user, text);
        (void)buf_add_str(out, STR("Basic "));
        (void)base64_encode(str_c(plain), out);
    } else {
        (void)buf_addf(out, "Bearer %s", text);
    }
}

static void ask(const struct http_door *d, const struct kind *k, enum form form,
                const struct saying *s, struct world w, struct decision *ret)
{
    struct http_header h[2];
    struct http_req r = { .method = HTTP_GET, .headers = h, .arena = arena, .peer = "10.1.2.3:44" };
    struct decide_in in = { .registry = registry,
                            .door = d,
                            .r = &r,
                            .now_ms = NOW,
                            .multi = w.multi,
                            .strict = w.strict,
                            .fresh = true };
    struct buf proof;

    buf_init(&proof, KIB);
    authorization(k, form, s->user, &proof);
    if (k->state != NONE)
        h[r.headers_len++] = (struct http_header){ STR("authorization"), buf_str(&proof) };
    if (s->header)
        h[r.headers_len++] = (struct http_header){ STR("X-Scope-OrgID"), str_c(s->header) };
    decide(&in, ret);
    buf_deinit(&proof);
}

static void compare(const struct http_door *d, const struct kind *k, enum form form,
                    const struct saying *s, struct world w)
{
    struct arena_mark mark = arena_mark(arena);
    struct want want = expect(d, k, form, s, w);
    struct decision got;
    struct buf names;

    ask(d, k, form, s, w, &got);
    buf_init(&names, 8 * KIB);
    for (size_t i = 0; i < got.tenants_len; i++)
        (void)buf_addf(&names, "%s%.*s", i ? " " : "", STR_ARG(got.tenants[i]));
    if (got.code != want.code || strcmp(got.reason, want.reason) ||
        !str_eqc(buf_str(&names), want.code ? "" : want.tenants) ||
        (got.code != 0) != (got.err.code != 0))
        fail_msg("%s (methods %u) with the key \"%s\" (form %d), X-Scope-OrgID \"%s\", user %s, "
                 "multi %d strict %d: %d %s \"%.*s\", want %d %s \"%s\"",
                 d->path, d->methods, k->name, form, s->header ? s->header : "-", s->user, w.multi,
                 w.strict, got.code, got.reason, STR_ARG(buf_str(&names)), want.code, want.reason,
                 want.tenants);
    if (k->state == GOOD && d->roles != HTTP_ROLES_OPEN)
        assert_true(got.who && str_eqc(got.who->name, k->name));
    else
        assert_null(got.who);
    if (strstr(got.err.text, k->text) && k->text[0])
        fail_msg("an error shows the key");
    buf_deinit(&names);
    arena_rewind(arena, mark);
}

static void test_all(void **state)
{
    static const struct world worlds[] = { { true, false }, { true, true }, { false, false } };
    const struct http_door *d;
    size_t n;

    (void)state;
    d = doors(&n);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < ARRAY_LEN(kinds); k++)
            for (enum form form = BEARER; form < FORMS; form++)
                for (size_t s = 0; s < ARRAY_LEN(sayings); s++)
                    for (size_t w = 0; w < ARRAY_LEN(worlds); w++)
                        compare(&d[i], &kinds[k], form, &sayings[s], worlds[w]);
}

/* What the operator's socket asks for needs no key and is not looked at, whatever it shows. */
static void test_socket(void **state)
{
    struct http_header h[] = { { STR("Authorization"), STR("Bearer nonsense") },
                               { STR("X-Scope-OrgID"), STR("shop") } };
    struct http_req r = { .headers = h, .headers_len = 2, .arena = arena, .local = true };
    const struct http_door *d;
    struct decision got;
    size_t n;

    (void)state;
    d = doors(&n);
    for (size_t i = 0; i < n; i++) {
        decide(&(struct decide_in){ .registry = registry, .door = &d[i], .r = &r }, &got);
        assert_int_equal(got.code, 0);
        assert_null(got.who);
        assert_int_equal(got.tenants_len, 0);
        assert_string_equal(got.reason, d[i].roles == HTTP_ROLES_OPEN ? "open" : "socket");
    }
}

/* Two of a header that says who the caller is, or for whom: no one of them is believed. */
static void test_twice(void **state)
{
    static const char *const names[] = { "Authorization", "X-Scope-OrgID" };
    const struct http_door door = { .path = "/a", .roles = HTTP_ROLES_ANY };
    const struct kind *k = &kinds[ARRAY_LEN(kinds) - 1];
    char right[KEY_TEXT_LEN + 8];
    struct decision got;

    (void)state;
    (void)snprintf(right, sizeof(right), "Bearer %s", k->text);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct http_header h[] = { { STR("Authorization"), str_c(right) },
                                   { STR("X-Scope-OrgID"), STR("shop") },
                                   { str_c(names[i]), i ? STR("shop") : str_c(right) } };
        struct http_req r = {
            .headers = h, .headers_len = 2, .arena = arena, .peer = "10.0.0.1:1"
        };
        struct decide_in in = { .registry = registry, .door = &door, .r = &r, .now_ms = NOW };

        decide(&in, &got);
        assert_int_equal(got.code, 0);
        r.headers_len = 3;
        decide(&in, &got);
        assert_int_equal(got.code, ERR_INPUT);
        assert_string_equal(got.reason, "headers");
        assert_null(got.who);
    }
}

/* While records may be missing, only what could be a key of them is asked to try again. */
static void test_stale(void **state)
{
    static const struct saying plain = { NULL, "", NULL, 0, NULL, false };
    const struct http_door door = { .path = "/a", .roles = HTTP_ROLES_ANY };
    struct buf proof;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        const struct kind *k = &kinds[i];
        struct want want = expect(&door, k, BEARER, &plain, (struct world){ true, false });
        struct http_header h = { STR("Authorization"), STR_NULL };
        struct http_req r = { .headers = &h, .arena = arena, .peer = "10.0.0.1:1" };
        struct decision got;

        buf_init(&proof, KIB);
        authorization(k, BEARER, "", &proof);
        h.value = buf_str(&proof);
        r.headers_len = k->state != NONE;
        decide(&(struct decide_in){ .registry = registry, .door = &door, .r = &r, .now_ms = NOW },
               &got);
        if (k->state == UNKNOWN || k->state == WRONG)
            want = no(ERR_UNAVAILABLE, "stale");
        assert_int_equal(got.code, want.code);
        assert_string_equal(got.reason, want.reason);
        assert_true(!got.code || got.code != ERR_UNAVAILABLE || got.err.again_s > 0);
        buf_deinit(&proof);
    }
}

/* "unknown" and "wrong secret" cannot be told apart. */
static void test_same_text(void **state)
{
    static const struct saying plain = { NULL, "", NULL, 0, NULL, false };
    const struct http_door door = { .path = "/a", .roles = HTTP_ROLES_ANY };
    struct decision got[3];
    size_t n = 0;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        enum state s = kinds[i].state;
        if (s == MALFORMED || s == UNKNOWN || s == WRONG)
            ask(&door, &kinds[i], BEARER, &plain, (struct world){ true, false }, &got[n++]);
    }
    assert_int_equal(n, 3);
    assert_string_equal(got[0].err.text, got[1].err.text);
    assert_string_equal(got[0].err.text, got[2].err.text);
}

/* As many tenants as a request may be for, and one more. */
static void test_many(void **state)
{
    const struct http_door door = { .path = "/a",
                                    .roles = ROLE_READ,
                                    .tenants = HTTP_TENANTS_MANY };
    const struct kind *k = &kinds[ARRAY_LEN(kinds) - 1];
    struct saying s = { .user = "" };
    struct decision got;
    char header[400];
    size_t len = 0;

    (void)state;
    for (int i = 0; i < DECIDE_TENANTS_MAX; i++)
        len += (size_t)snprintf(header + len, sizeof(header) - len, "%st%d", i ? "|" : "", i);
    s.header = header;
    ask(&door, k, BEARER, &s, (struct world){ true, false }, &got);
    assert_int_equal(got.code, 0);
    assert_int_equal(got.tenants_len, DECIDE_TENANTS_MAX);
    (void)snprintf(header + len, sizeof(header) - len, "|more");
    ask(&door, k, BEARER, &s, (struct world){ true, false }, &got);
    assert_int_equal(got.code, ERR_LIMIT);
    assert_string_equal(got.reason, "tenant_name");
    assert_int_equal(got.tenants_len, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all),       cmocka_unit_test(test_socket),
        cmocka_unit_test(test_twice),     cmocka_unit_test(test_stale),
        cmocka_unit_test(test_same_text), cmocka_unit_test(test_many),

    };

    registry = fill();
    arena = arena_new(MIB);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    arena_free(arena);
    registry_free(registry);
    return failed;
}

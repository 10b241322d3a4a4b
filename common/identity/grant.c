/* SPDX-License-Identifier: Apache-2.0
 *
 * grant: the JSON of grants, read and written. What they allow is in grant_cover.c.
 *
 * Fields that are not known are refused, and so is null: a field of a later version may narrow a
 * grant, and a process that skipped it would give too much. For the same reason `match` is refused
 * without a role that it limits. Limits of bytes hold for the text as it is written, which may have
 * more escapes than the text that was read, so that whatever was read can be written and read
 * again.
 *
 * Thread: any; no state.
 */
#include "common/identity/grant.h"

#include <stdlib.h>

#include "common/base/mem.h"
#include "common/model/tenant_id.h"

#define ROLES_OF_SERVER (ROLE_SERVER_ADMIN | ROLE_SCRAPE)
#define ROLES_MAX       16 /* elements of `roles`; there are fewer roles */
#define SCRATCH_MAX     (64 * KIB)

static const struct {
    const char *name;
    enum identity_role role;
} roles[] = {
    { "push", ROLE_PUSH },
    { "read", ROLE_READ },
    { "delete", ROLE_DELETE },
    { "tenant-admin", ROLE_TENANT_ADMIN },
    { "server-admin", ROLE_SERVER_ADMIN },
    { "gateway", ROLE_GATEWAY },
    { "scrape", ROLE_SCRAPE },
};

const char *grants_role_name(unsigned role)
{
    for (size_t i = 0; i < ARRAY_LEN(roles); i++)
        if (roles[i].role == role)
            return roles[i].name;
    return NULL;
}

unsigned grants_role_of(struct str name)
{
    for (size_t i = 0; i < ARRAY_LEN(roles); i++)
        if (str_eqc(name, roles[i].name))
            return roles[i].role;
    return 0;
}

/* ---- reading --------------------------------------------------------------------------------- */

static int full(const struct arena *a, struct err *e)
{
    return err_set(e, ERR_LIMIT, "grants take more than %zu bytes", arena_limit(a));
}

static int cmp_str(const void *a, const void *b)
{
    return str_cmp(*(const struct str *)a, *(const struct str *)b);
}

static int one_tenant(const struct json_val *v, struct grant *g, struct arena *a, struct err *e)
{
    struct str name = STR_NULL;

    if (json_take_str(v, "tenants", &name, e))
        return e->code;
    if (str_eq(name, STR("*"))) {
        g->everywhere = true;
        return 0;
    }
    if (tenant_id_check(name, e))
        return err_wrap(e, "tenants");
    name = arena_strdup(a, name);
    if (!name.ptr)
        return full(a, e);
    g->tenants[g->tenants_len++] = name;
    return 0;
}

static int read_tenants(const struct json_val *v, struct grant *g, struct arena *a, struct err *e)
{
    size_t n = json_len(v), kept = 0;

    if (!n)
        return err_set(e, ERR_INPUT,
                       "tenants: want a list of names, or [\"*\"] for all tenants there are");
    if (n > GRANT_TENANTS_MAX)
        return err_set(e, ERR_LIMIT, "tenants: %zu names, at most %d are allowed in a grant", n,
                       GRANT_TENANTS_MAX);
    g->tenants = ARENA_ARRAY(a, struct str, n);
    if (!g->tenants)
        return full(a, e);
    for (size_t i = 0; i < n; i++)
        if (one_tenant(json_at(v, i), g, a, e))
            return e->code;
    if (g->everywhere && n > 1)
        return err_set(e, ERR_INPUT, "tenants: \"*\" is all of them; leave out the others");
    qsort(g->tenants, g->tenants_len, sizeof(*g->tenants), cmp_str);
    for (size_t i = 0; i < g->tenants_len; i++)
        if (!kept || !str_eq(g->tenants[kept - 1], g->tenants[i]))
            g->tenants[kept++] = g->tenants[i];
    g->tenants_len = kept;
    return 0;
}

static int read_roles(const struct json_val *v, struct grant *g, struct err *e)
{
    size_t n = json_len(v);

    if (!n || n > ROLES_MAX)
        return err_set(e, ERR_INPUT,
                       "roles: want a list of push, read, delete, tenant-admin, server-admin, "
                       "gateway, scrape");
    for (size_t i = 0; i < n; i++) {
        struct str name = STR_NULL;

        if (json_take_str(json_at(v, i), "roles", &name, e))
            return e->code;
        unsigned role = grants_role_of(name);
        if (!role)
            return err_set(e, ERR_INPUT,
                           "roles: \"%.*s\" is not a role; want push, read, delete, tenant-admin, "
                           "server-admin, gateway or scrape",
                           STR_ARG(str_sub(name, 0, 40)));
        g->roles |= role;
    }
    return 0;
}

/* The parser takes room for 64 matchers; kept is an array of as many as there are. */
static int keep_match(const struct selector *s, struct grant *g, struct arena *a, struct err *e)
{
    struct matcher *m = ARENA_ARRAY(a, struct matcher, s->len);

    if (!m)
        return full(a, e);
    for (size_t i = 0; i < s->len; i++) {
        m[i] = s->matchers[i];
        m[i].column = 0;
        if (!str_utf8_valid(m[i].name) || !str_utf8_valid(m[i].value))
            return err_set(e, ERR_INPUT, "labels are UTF-8, and an escape makes other bytes");
        m[i].name = arena_strdup(a, m[i].name);
        m[i].value = arena_strdup(a, m[i].value);
        if (!m[i].name.ptr || !m[i].value.ptr)
            return full(a, e);
    }
    g->match = (struct selector){ .matchers = m, .len = s->len };
    return selector_compile(&g->match, e);
}

/* As it is written back, it may be longer. */
static bool match_fits(const struct selector *s)
{
    struct buf b;

    buf_init(&b, GRANT_TEXT_MAX);
    selector_format(s, &b);
    bool ok = buf_ok(&b);
    buf_deinit(&b);
    return ok;
}

static int parse_match(struct str text, struct arena *scratch, struct grant *g, struct arena *a,
                       struct err *e)
{
    struct selector s;

    if (text.len > GRANT_TEXT_MAX)
        return err_set(e, ERR_LIMIT, "it has %zu bytes, at most %d are allowed", text.len,
                       GRANT_TEXT_MAX);
    if (selector_parse(text, SELECTOR_PROMETHEUS, scratch, &s, e))
        return e->code;
    if (s.metric.len)
        return err_set(e, ERR_INPUT,
                       "want only labels in braces, such as {team=\"a\"}; a profile type is "
                       "{__profile_type__=\"...\"}");
    if (!s.len)
        return err_set(e, ERR_INPUT, "it selects all series; leave it out to say so");
    if (s.len > GRANT_LABELS_MAX)
        return err_set(e, ERR_LIMIT, "%zu matchers, at most %d are allowed", s.len,
                       GRANT_LABELS_MAX);
    if (!match_fits(&s))
        return err_set(e, ERR_LIMIT, "with its escapes it has over %d bytes", GRANT_TEXT_MAX);
    return keep_match(&s, g, a, e);
}

static int read_match(const struct json_val *v, struct grant *g, struct arena *a, struct err *e)
{
    struct str text = STR_NULL;

    if (json_take_str(v, "match", &text, e))
        return e->code;
    if (!(g->roles & (ROLE_READ | ROLE_DELETE)))
        return err_set(e, ERR_INPUT, "match: only for the roles read and delete");
    struct arena *scratch = arena_new(SCRATCH_MAX);
    int code = parse_match(text, scratch, g, a, e);
    arena_free(scratch);
    return code ? err_wrap(e, "match") : 0;
}

static int one_label(struct str name, const struct json_val *v, struct grant *g, struct arena *a,
                     struct err *e)
{
    struct str value = STR_NULL;

    if (!label_name_plain(name) || str_starts(name, STR("__")))
        return err_set(e, ERR_INPUT,
                       "set: \"%.*s\" cannot be set: want letters, digits and _, and not __ in "
                       "front",
                       STR_ARG(str_sub(name, 0, 40)));
    if (json_take_str(v, "set", &value, e))
        return e->code;
    if (!value.len)
        return err_set(e, ERR_INPUT, "set: the value of %.*s is empty",
                       STR_ARG(str_sub(name, 0, 40)));
    name = arena_strdup(a, name);
    value = arena_strdup(a, value);
    if (!name.ptr || !value.ptr)
        return full(a, e);
    g->set.ptr[g->set.len++] = (struct label){ name, value };
    return 0;
}

static int read_set(const struct json_val *v, struct grant *g, struct arena *a, struct err *e)
{
    const struct json_val *val;
    struct str name;
    void *pos = NULL;
    size_t n = 0;

    if (!(g->roles & ROLE_PUSH))
        return err_set(e, ERR_INPUT, "set: only for the role push");
    while (json_each(v, &pos, &name, &val))
        n++;
    if (!n)
        return err_set(e, ERR_INPUT, "set: want an object of labels, such as {\"team\": \"a\"}");
    if (n > GRANT_LABELS_MAX)
        return err_set(e, ERR_LIMIT, "set: %zu labels, at most %d are allowed", n,
                       GRANT_LABELS_MAX);
    g->set.ptr = ARENA_ARRAY(a, struct label, n);
    if (!g->set.ptr)
        return full(a, e);
    pos = NULL;
    while (json_each(v, &pos, &name, &val))
        if (one_label(name, val, g, a, e))
            return e->code;
    return labels_sort(&g->set, e) ? err_wrap(e, "set") : 0;
}

static int check_names(const struct json_val *v, struct err *e)
{
    static const char *const known[] = { "tenants", "roles", "match", "set", "edit" };
    const struct json_val *val;
    struct str name;
    void *pos = NULL;

    if (!json_is_obj(v))
        return err_set(e, ERR_INPUT, "want an object with tenants and roles");
    while (json_each(v, &pos, &name, &val)) {
        bool found = false;

        for (size_t i = 0; i < ARRAY_LEN(known); i++)
            found |= str_eqc(name, known[i]) && json_get(v, known[i], NULL);
        if (!found)
            return err_set(
                e, ERR_INPUT,
                "\"%.*s\" is null, or not a field of a grant; want tenants, roles, match, set, "
                "edit",
                STR_ARG(str_sub(name, 0, 40)));
    }
    return 0;
}

static int read_one(const struct json_val *v, struct arena *a, struct grant *g, struct err *e)
{
    const struct json_val *match = json_get(v, "match", NULL), *set = json_get(v, "set", NULL);

    if (check_names(v, e) || read_tenants(json_get(v, "tenants", NULL), g, a, e) ||
        read_roles(json_get(v, "roles", NULL), g, e))
        return e->code;
    if (json_take_bool(json_get(v, "edit", NULL), "edit", &g->edit, e))
        return e->code;
    if (g->edit && !(g->roles & ROLE_READ))
        return err_set(e, ERR_INPUT, "edit: only for the role read");
    if ((g->roles & ROLES_OF_SERVER) && !g->everywhere)
        return err_set(e, ERR_INPUT,
                       "roles: server-admin and scrape are for the whole server; give them in a "
                       "grant with tenants [\"*\"]");
    if (match && read_match(match, g, a, e))
        return e->code;
    return set ? read_set(set, g, a, e) : 0;
}

int grants_read(const struct json_val *list, struct arena *a, struct grants *ret, struct err *e)
{
    size_t n = json_len(list);
    struct grants g = { 0 };

    if (!json_is_arr(list))
        return err_set(e, ERR_INPUT, "grants: want a list");
    if (n > GRANTS_MAX)
        return err_set(e, ERR_LIMIT, "grants: there are %zu, at most %d are allowed", n,
                       GRANTS_MAX);
    g.ptr = ARENA_ARRAY(a, struct grant, n);
    if (!g.ptr)
        return full(a, e);
    for (; g.len < n; g.len++) {
        if (!read_one(json_at(list, g.len), a, &g.ptr[g.len], e))
            continue;
        size_t bad = g.len++; /* its regexes, too */
        grants_deinit(&g);
        return err_wrap(e, "grants[%zu]", bad);
    }
    *ret = g;
    return 0;
}

void grants_deinit(struct grants *g)
{
    for (size_t i = 0; i < g->len; i++)
        selector_deinit(&g->ptr[i].match);
}

/* ---- writing --------------------------------------------------------------------------------- */

static void write_match(const struct selector *s, struct json *j)
{
    struct buf b;

    buf_init(&b, GRANT_TEXT_MAX);
    selector_format(s, &b);
    CHECK(buf_ok(&b)); /* match_fits */
    json_put_str(j, "match", buf_str(&b));
    buf_deinit(&b);
}

static void write_one(const struct grant *g, struct json *j)
{
    json_obj(j);
    json_key(j, "tenants");
    json_arr(j);
    if (g->everywhere)
        json_cstr(j, "*");
    for (size_t i = 0; i < g->tenants_len; i++)
        json_str(j, g->tenants[i]);
    json_arr_end(j);
    json_key(j, "roles");
    json_arr(j);
    for (size_t i = 0; i < ARRAY_LEN(roles); i++)
        if (g->roles & roles[i].role)
            json_cstr(j, roles[i].name);
    json_arr_end(j);
    if (g->match.len)
        write_match(&g->match, j);
    if (g->set.len) {
        json_key(j, "set");
        json_obj(j);
        for (size_t i = 0; i < g->set.len; i++) {
            json_key_str(j, g->set.ptr[i].name);
            json_str(j, g->set.ptr[i].value);
        }
        json_obj_end(j);
    }
    if (g->edit)
        json_put_bool(j, "edit", true);
    json_obj_end(j);
}

void grants_write(const struct grants *g, struct json *j)
{
    json_arr(j);
    for (size_t i = 0; i < g->len; i++)
        write_one(&g->ptr[i], j);
    json_arr_end(j);
}

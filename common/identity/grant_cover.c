/* SPDX-License-Identifier: Apache-2.0
 *
 * grant_cover: what grants allow, and whether one identity may hand out the grants of another.
 *
 * A grant counts in a tenant for a role if it names the tenant (or all) and gives the role; a
 * tenant-admin has push, read and delete with it. What an identity may do in a tenant is
 *
 *   read, delete   the series that the `match` of any such grant selects
 *   push           series with the labels that all such grants set: a grant that sets none does
 *                  not free a sender from the labels of the others
 *
 * `mine` covers `theirs` if in each tenant each right of `theirs` is within `mine`. The tenants are
 * those that either side names, and one without a name, which stands for all others: only "*" is
 * for it. A server-admin without a read grant cannot hand out one.
 *
 * Matchers are compared, not understood: some grant of mine must have no matcher that theirs lacks,
 * so that theirs selects no more. This refuses some grants that would do no harm, such as team="a"
 * under team=~"a|b", and allows none that gives more.
 *
 *   mine {team="a"}     covers {team="a"}, {team="a", env="x"}     not {}, {team=~"a"}
 *   mine set team=a     covers set team=a; set team=a, env=x       not set env=x
 *
 * Thread: any; no state.
 */
#include "common/identity/grant.h"

#define ROLES_ADMIN_HAS (ROLE_PUSH | ROLE_READ | ROLE_DELETE)
#define ROLES_OF_SERIES (ROLE_READ | ROLE_DELETE | ROLE_TENANT_ADMIN) /* `match` limits them */

/* Stands for all tenants that neither side names: only "*" is for it. */
static const struct str other = { "", 0 };

static unsigned roles_of(const struct grant *g)
{
    return g->roles | (g->roles & ROLE_TENANT_ADMIN ? ROLES_ADMIN_HAS : 0u);
}

static bool names(const struct grant *g, struct str tenant)
{
    size_t low = 0, high = g->tenants_len;

    while (low < high) {
        size_t mid = low + (high - low) / 2;
        int order = str_cmp(g->tenants[mid], tenant);

        if (order == 0)
            return true;
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return false;
}

static bool counts(const struct grant *g, unsigned role, struct str tenant)
{
    return (roles_of(g) & role) && (g->everywhere || names(g, tenant));
}

/* ---- questions ------------------------------------------------------------------------------- */

unsigned grants_roles(const struct grants *g, struct str tenant)
{
    unsigned ret = 0;

    for (size_t i = 0; i < g->len; i++)
        if (counts(&g->ptr[i], ~0u, tenant))
            ret |= roles_of(&g->ptr[i]);
    return ret;
}

struct str grants_only_tenant(const struct grants *g)
{
    struct str ret = STR_NULL;

    for (size_t i = 0; i < g->len; i++) {
        const struct grant *one = &g->ptr[i];

        if (one->everywhere || one->tenants_len != 1)
            return STR_NULL;
        if (ret.ptr && !str_eq(ret, one->tenants[0]))
            return STR_NULL;
        ret = one->tenants[0];
    }
    return ret;
}

bool grants_read_all(const struct grants *g, unsigned role, struct str tenant)
{
    for (size_t i = 0; i < g->len; i++)
        if (counts(&g->ptr[i], role, tenant) && !g->ptr[i].match.len)
            return true;
    return false;
}

/* ---- cover ----------------------------------------------------------------------------------- */

static bool has_matcher(const struct selector *s, const struct matcher *m)
{
    for (size_t i = 0; i < s->len; i++)
        if (s->matchers[i].op == m->op && str_eq(s->matchers[i].name, m->name) &&
            str_eq(s->matchers[i].value, m->value))
            return true;
    return false;
}

/* Does `narrow` select no series that `wide` does not? */
static bool selects_within(const struct selector *narrow, const struct selector *wide)
{
    for (size_t i = 0; i < wide->len; i++)
        if (!has_matcher(narrow, &wide->matchers[i]))
            return false;
    return true;
}

/* Has mine a grant for this role there that selects all that theirs selects? */
static bool covers_series(const struct grants *mine, unsigned role, bool edit,
                          const struct grant *theirs, struct str tenant)
{
    for (size_t i = 0; i < mine->len; i++) {
        const struct grant *g = &mine->ptr[i];

        if (counts(g, role, tenant) && (!edit || g->edit || (g->roles & ROLE_TENANT_ADMIN)) &&
            selects_within(&theirs->match, &g->match))
            return true;
    }
    return false;
}

static bool has_role(const struct grants *g, unsigned role, struct str tenant)
{
    for (size_t i = 0; i < g->len; i++)
        if (counts(&g->ptr[i], role, tenant))
            return true;
    return false;
}

static bool sets(const struct grants *g, struct str tenant, const struct label *l)
{
    for (size_t i = 0; i < g->len; i++)
        if (counts(&g->ptr[i], ROLE_PUSH, tenant) &&
            str_eq(labels_get(&g->ptr[i].set, l->name), l->value))
            return true;
    return false;
}

/* The label that my pushes to the tenant get and theirs would not; NULL: there is no such. */
static const struct label *label_lacking(const struct grants *mine, const struct grants *theirs,
                                         struct str tenant)
{
    for (size_t i = 0; i < mine->len; i++) {
        const struct grant *g = &mine->ptr[i];

        for (size_t k = 0; counts(g, ROLE_PUSH, tenant) && k < g->set.len; k++)
            if (!sets(theirs, tenant, &g->set.ptr[k]))
                return &g->set.ptr[k];
    }
    return NULL;
}

struct cover {
    const struct grants *mine, *theirs;
    size_t at; /* in theirs */
    struct err *e;
};

static bool lacks(const struct cover *c, const char *what, const char *how, struct str tenant)
{
    (void)err_set(c->e, ERR_FORBIDDEN,
                  "grants[%zu]: %s in %s%.*s%s is more than the maker of the key has", c->at, what,
                  tenant.len ? "tenant " : "all tenants", STR_ARG(tenant), how);
    return false;
}

static bool covers_push(const struct cover *c, struct str tenant)
{
    const struct label *l = label_lacking(c->mine, c->theirs, tenant);

    if (!l)
        return true;
    (void)err_set(c->e, ERR_FORBIDDEN,
                  "grants[%zu]: push without %.*s=\"%.*s\" is more than the maker of the key has, "
                  "whose pushes get this label; add it to `set`",
                  c->at, STR_ARG(l->name), STR_ARG(l->value));
    return false;
}

/* One role of one grant in one tenant. */
static bool covers_role(const struct cover *c, unsigned role, struct str tenant)
{
    const struct grant *g = &c->theirs->ptr[c->at];

    if (!has_role(c->mine, role, tenant))
        return lacks(c, grants_role_name(role), "", tenant);
    if (role == ROLE_PUSH)
        return covers_push(c, tenant);
    if ((role & ROLES_OF_SERIES) && !covers_series(c->mine, role, false, g, tenant))
        return lacks(c, grants_role_name(role), " without the matchers of its grant", tenant);
    return true;
}

static bool covers_in(const struct cover *c, struct str tenant)
{
    const struct grant *g = &c->theirs->ptr[c->at];
    unsigned want = roles_of(g);

    for (unsigned role = 1; role && role <= want; role <<= 1)
        if ((want & role) && !covers_role(c, role, tenant))
            return false;
    if (g->edit && !covers_series(c->mine, ROLE_READ, true, g, tenant))
        return lacks(c, "edit", "", tenant);
    return true;
}

static bool covers_named(const struct cover *c, const struct grants *by)
{
    for (size_t i = 0; i < by->len; i++)
        for (size_t k = 0; k < by->ptr[i].tenants_len; k++)
            if (!covers_in(c, by->ptr[i].tenants[k]))
                return false;
    return true;
}

/* A grant for all tenants is one for each that is named, too: there mine may be narrower, since
 * more of its grants set labels. */
static bool covers_grant(const struct cover *c)
{
    const struct grant *g = &c->theirs->ptr[c->at];
    const struct grants alone = { &c->theirs->ptr[c->at], 1 };

    if (!g->everywhere)
        return covers_named(c, &alone);
    return covers_in(c, other) && covers_named(c, c->mine) && covers_named(c, c->theirs);
}

bool grants_cover(const struct grants *mine, const struct grants *theirs, struct err *e)
{
    struct cover c = { .mine = mine, .theirs = theirs, .e = e };

    for (; c.at < theirs->len; c.at++)
        if (!covers_grant(&c))
            return false;
    return true;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * scope.c: reads the grants of an identity for one tenant.
 *
 * A grant counts for a role if it gives that role, or tenant-admin, which may push, read and
 * delete. A grant without `match` is for all series, so it wins over limited ones of the same role:
 * grants are added up, never taken away from each other. With `set` it is the other way round: a
 * label that any grant of pushes sets is set, since it is there to keep a sender from saying
 * another one.
 *
 *   read   grants ──> those of role and tenant ──> one without match: all
 *                                              ──> one text: that
 *                                              ──> several texts: refused
 *
 * Matchers are compared as texts (selector_format): the same ones in another order are different,
 * which is refused rather than guessed at.
 */
#include "common/identity/scope.h"

#include "common/rpc/rpc_crypto.h"

#define FINGERPRINT_KEY "embertree scope of an answer 1"

static bool grants_in(const struct grant *g, struct str tenant)
{
    bool found = g->everywhere;

    for (size_t i = 0; i < g->tenants_len && !found; i++)
        found = str_eq(g->tenants[i], tenant);
    return found;
}

static bool counts(const struct grant *g, unsigned role, struct str tenant)
{
    return (g->roles & (role | ROLE_TENANT_ADMIN)) && grants_in(g, tenant);
}

static bool same_match(const struct selector *a, const struct selector *b)
{
    struct buf x, y;

    buf_init(&x, 16 * GRANT_TEXT_MAX);
    buf_init(&y, 16 * GRANT_TEXT_MAX);
    selector_format(a, &x);
    selector_format(b, &y);
    bool same = buf_ok(&x) && buf_ok(&y) && str_eq(buf_str(&x), buf_str(&y));
    buf_deinit(&x);
    buf_deinit(&y);
    return same;
}

/* ---- reading --------------------------------------------------------------------------------- */

int scope_match(const struct key_record *who, unsigned role, struct str tenant,
                const struct selector **ret, struct err *e)
{
    const struct selector *found = NULL;
    bool differ = false;

    *ret = NULL;
    for (size_t i = 0; who && i < who->grants.len; i++) {
        const struct grant *g = &who->grants.ptr[i];
        if (!counts(g, role, tenant))
            continue;
        if (!g->match.len)
            return 0;
        differ |= found && !same_match(found, &g->match);
        found = &g->match;
    }
    if (!who)
        return 0;
    if (!found)
        return err_set(e, ERR_FORBIDDEN, "the key %.*s has no grant to %s in this tenant",
                       STR_ARG(who->id), grants_role_name(role));
    if (differ)
        return err_set(e, ERR_FORBIDDEN,
                       "the key %.*s has several grants to %s in this tenant, with different "
                       "matchers, and one question cannot ask for either; make one grant, for "
                       "example with team=~\"a|b\"",
                       STR_ARG(who->id), grants_role_name(role));
    /* Grants are read without one; a text before the braces would otherwise be dropped. */
    if (found->metric.len)
        return err_set(e, ERR_FORBIDDEN,
                       "the key %.*s has a profile type before the braces of its matchers; write "
                       "{__profile_type__=\"...\"} instead",
                       STR_ARG(who->id));
    *ret = found;
    return 0;
}

bool scope_limited(const struct key_record *who, unsigned role, const struct str *tenants, size_t n)
{
    const struct selector *match;
    struct err e;

    for (size_t i = 0; who && i < n; i++)
        if (scope_match(who, role, tenants[i], &match, &e) || match)
            return true;
    return false;
}

void scope_fingerprint(const struct key_record *who, const struct str *tenants, size_t n,
                       uint8_t ret[SCOPE_BYTES])
{
    struct buf text;

    memset(ret, 0, SCOPE_BYTES);
    if (!who)
        return;
    /* Lengths stand before texts, so that no two lists have the same bytes. */
    buf_init(&text, MIB);
    buf_addf(&text, "%zu %.*s %zu", who->id.len, STR_ARG(who->id), n);
    for (size_t i = 0; i < n; i++) {
        const struct selector *match;
        struct err e;
        int rc = scope_match(who, ROLE_READ, tenants[i], &match, &e);
        buf_addf(&text, " %zu %.*s %s", tenants[i].len, STR_ARG(tenants[i]),
                 rc      ? "none"
                 : match ? "some "
                         : "all");
        if (!rc && match)
            selector_format(match, &text);
    }
    CHECK(buf_ok(&text)); /* 32 tenants, and each `match` is bounded */
    rpc_hkdf(STR(FINGERPRINT_KEY), STR(""), buf_str(&text), ret, SCOPE_BYTES);
    buf_deinit(&text);
}

/* ---- pushing --------------------------------------------------------------------------------- */

static int join(const struct key_record *who, const struct grant *g, struct arena *a,
                struct labels *ret, struct err *e)
{
    for (size_t i = 0; i < g->set.len; i++) {
        const struct label *l = &g->set.ptr[i];
        struct str before = labels_get(ret, l->name);
        if (before.ptr && !str_eq(before, l->value))
            return err_set(e, ERR_FORBIDDEN,
                           "grants of the key %.*s set two values of %.*s in this tenant; a key "
                           "for each of them tells which one is meant",
                           STR_ARG(who->id), STR_ARG(l->name));
        if (!before.ptr && labels_set(ret, a, l->name, l->value, e))
            return e->code;
    }
    return 0;
}

int scope_set(const struct key_record *who, struct str tenant, struct arena *a, struct labels *ret,
              struct err *e)
{
    bool any = false;

    *ret = (struct labels){ 0 };
    for (size_t i = 0; who && i < who->grants.len; i++) {
        const struct grant *g = &who->grants.ptr[i];
        if (!counts(g, ROLE_PUSH, tenant))
            continue;
        any = true;
        if (join(who, g, a, ret, e))
            return e->code;
    }
    if (who && !any)
        return err_set(e, ERR_FORBIDDEN, "the key %.*s has no grant to push in this tenant",
                       STR_ARG(who->id));
    return 0;
}

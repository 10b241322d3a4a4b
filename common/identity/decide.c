/* SPDX-License-Identifier: Apache-2.0
 *
 * decide: the rules by which a request may use a route.
 *
 *   open door ────────────────────────────────────────────────────────────────> yes
 *   socket ───────────────────────────────────────────────────────────────────> yes
 *   two headers? ──> credential? ──> which tenants? ──> role in all of them? ──> labels? ──> yes
 *        400           401, 503          400, 403              403                 403
 *
 * Each step sees only what the steps before let through, so that a caller without a right key
 * learns nothing of tenants and roles, and one without the role nothing of labels. Nothing is read
 * but the head of the request: its body may not have come yet.
 *
 * What a request says of itself (a tenant's name in a header, or as the user name of Basic) only
 * chooses among what its key was granted. A tenant that does not exist and one of others get the
 * same answer, since grants are all that is looked at.
 *
 * A door with several roles opens with one of them in each tenant. That may be another role in each
 * of them. HTTP_ROLES_EDIT takes something away: the read role then counts only where a grant has
 * `edit`.
 *
 * Thread: the loop's, as the registry.
 */
#include "common/identity/decide.h"

#include "common/base/base64.h"
#include "common/model/tenant_id.h"

#define BASIC_BYTES_MAX (8 * KIB) /* of user name and password */
#define SHOWN_MAX       150       /* bytes of a name that an error repeats */
#define STALE_RETRY_S   2

#define ROLES_REAL (HTTP_ROLES_EDIT - 1) /* the bits below the flags */
static_assert(ROLE_SCRAPE < HTTP_ROLES_EDIT && HTTP_ROLES_EDIT < HTTP_ROLES_ANY,
              "flags of a door stand above all roles");

static int refuse(struct decision *d, int code, const char *reason)
{
    d->code = code;
    d->reason = reason;
    return code;
}

/* ---- 1. who -------------------------------------------------------------------------------- */

/* "Bearer", and what is behind it; false: another scheme. */
static bool after_scheme(struct str header, struct str scheme, struct str *ret)
{
    if (!str_eq_nocase(str_sub(header, 0, scheme.len), scheme) ||
        (header.len > scheme.len && header.ptr[scheme.len] != ' ' &&
         header.ptr[scheme.len] != '\t'))
        return false;
    *ret = str_trim(str_sub(header, scheme.len, header.len));
    return true;
}

/* "user:password" in base64; what is not that has an empty password, which no key is. */
static void read_basic(struct str coded, struct arena *a, struct str *ret_key, struct str *ret_wish)
{
    struct buf plain;

    buf_init(&plain, BASIC_BYTES_MAX);
    if (base64_decode(coded, &plain)) {
        struct str text = arena_strdup(a, buf_str(&plain));
        ptrdiff_t colon = str_find(text, ':');

        if (colon > 0)
            *ret_wish = str_sub(text, 0, (size_t)colon);
        if (colon >= 0)
            *ret_key = str_sub(text, (size_t)colon + 1, text.len);
    }
    buf_deinit(&plain);
}

bool decide_credential(struct str authorization, struct arena *a, struct str *ret_key,
                       struct str *ret_wish)
{
    struct str header = str_trim(authorization), rest;

    *ret_key = STR("");
    *ret_wish = STR_NULL;
    if (after_scheme(header, STR("Bearer"), &rest)) {
        *ret_key = rest;
        return rest.len > 0;
    }
    if (after_scheme(header, STR("Basic"), &rest)) {
        read_basic(rest, a, ret_key, ret_wish);
        return rest.len > 0;
    }
    return false;
}

static int refuse_stale(struct decision *d)
{
    (void)err_set_again(&d->err, ERR_UNAVAILABLE, STALE_RETRY_S,
                        "this key is not known here, and keys may be missing: the cluster's "
                        "coordination service was not heard lately; try again");
    return refuse(d, ERR_UNAVAILABLE, "stale");
}

static int refuse_credential(const struct decide_in *in, enum credential_fault fault,
                             struct str key, struct decision *d)
{
    struct key_text unused;

    switch (fault) {
    case CREDENTIAL_NONE:
        (void)err_set(&d->err, ERR_UNAUTHENTICATED,
                      "this wants a key: send \"Authorization: Bearer KEY\", or Basic with the key "
                      "as the password");
        return refuse(d, ERR_UNAUTHENTICATED, "none");
    case CREDENTIAL_EXPIRED:
        (void)err_set(&d->err, ERR_UNAUTHENTICATED,
                      "the time of this key is over, or has not begun; ask for another one");
        return refuse(d, ERR_UNAUTHENTICATED, "expired");
    case CREDENTIAL_REVOKED:
        (void)err_set(&d->err, ERR_UNAUTHENTICATED, "this key was revoked; ask for another one");
        return refuse(d, ERR_UNAUTHENTICATED, "revoked");
    case CREDENTIAL_NET:
        (void)err_set(&d->err, ERR_UNAUTHENTICATED, "this key is not for use from your address, %s",
                      in->r->peer);
        return refuse(d, ERR_UNAUTHENTICATED, "address");
    case CREDENTIAL_OK:
    case CREDENTIAL_UNKNOWN:
        break;
    }
    if (!in->fresh && key_text_parse(key, &unused)) /* what is no key at all never becomes one */
        return refuse_stale(d);
    (void)err_set(&d->err, ERR_UNAUTHENTICATED,
                  "this key is not valid here; see that it was copied whole, and that it is of "
                  "this cluster");
    return refuse(d, ERR_UNAUTHENTICATED, "unknown");
}

static int find_who(const struct decide_in *in, struct str authorization, struct str *ret_wish,
                    struct decision *d)
{
    enum credential_fault fault = CREDENTIAL_NONE;
    struct str key;

    if (decide_credential(authorization, in->r->arena, &key, ret_wish))
        fault = registry_prove(in->registry, key, in->now_ms, in->r->peer, &d->who);
    if (fault == CREDENTIAL_OK)
        return 0;
    d->who = fault == CREDENTIAL_UNKNOWN && in->older ? in->older(in->older_cookie, in->r) : NULL;
    return d->who ? 0 : refuse_credential(in, fault, key, d);
}

/* ---- 2. for which tenants ------------------------------------------------------------------- */

static unsigned all_roles(const struct grants *g)
{
    unsigned roles = 0;

    for (size_t i = 0; i < g->len; i++)
        roles |= g->ptr[i].roles;
    return roles;
}

static int refuse_no_tenant(struct decision *d, bool gateway)
{
    (void)err_set(&d->err, ERR_INPUT,
                  gateway ? "a gateway names the tenant of each request: send X-Scope-OrgID"
                          : "this key is for several tenants: name one with X-Scope-OrgID");
    return refuse(d, ERR_INPUT, "no_tenant");
}

/* What the request may name, or the only one there is: into d->tenants. */
static int named_tenants(const struct decide_in *in, struct str header, struct str wish,
                         struct decision *d)
{
    size_t many = in->door->tenants == HTTP_TENANTS_MANY ? DECIDE_TENANTS_MAX : 1;
    bool gateway = all_roles(&d->who->grants) & ROLE_GATEWAY;
    struct str only = grants_only_tenant(&d->who->grants), named = str_trim(header);

    if (!named.len && !gateway)
        named = only.len ? only : str_trim(wish);
    if (!named.len)
        return refuse_no_tenant(d, gateway);
    int code = tenant_ids_read(named, in->strict, many, d->tenants, &d->tenants_len, &d->err);
    if (!code)
        return 0;
    if (code == ERR_UNAUTHENTICATED) /* "a|": a name is missing, which is not the key's fault */
        return refuse_no_tenant(d, gateway);
    return refuse(d, code, "tenant_name");
}

static bool covers(const struct grant *g, struct str tenant)
{
    for (size_t i = 0; i < g->tenants_len; i++) {
        if (str_eq(g->tenants[i], tenant))
            return true;
    }
    return g->everywhere;
}

/* Is there any grant for it? */
static bool has_tenant(const struct grants *g, struct str tenant)
{
    for (size_t i = 0; i < g->len; i++) {
        if (covers(&g->ptr[i], tenant))
            return true;
    }
    return false;
}

static int find_tenants(const struct decide_in *in, struct str header, struct str wish,
                        struct decision *d)
{
    if (in->door->tenants == HTTP_TENANTS_NONE)
        return 0;
    if (!in->multi) {
        d->tenants[0] = STR("anonymous");
        d->tenants_len = 1;
    } else if (named_tenants(in, header, wish, d)) {
        return d->code;
    }
    for (size_t i = 0; i < d->tenants_len; i++) {
        struct str t = d->tenants[i];

        if (has_tenant(&d->who->grants, t))
            continue;
        (void)err_set(&d->err, ERR_FORBIDDEN, "this key has nothing for the tenant %.*s",
                      (int)MIN(t.len, SHOWN_MAX), t.ptr);
        return refuse(d, ERR_FORBIDDEN, "tenant");
    }
    return 0;
}

/* ---- 3. in which role ----------------------------------------------------------------------- */

/* Reading with leave to change notes, settings and uploads. A tenant-admin reads, too. */
static bool may_edit(const struct grants *g, struct str tenant)
{
    for (size_t i = 0; i < g->len; i++) {
        if (g->ptr[i].edit && g->ptr[i].roles & (ROLE_READ | ROLE_TENANT_ADMIN) &&
            covers(&g->ptr[i], tenant))
            return true;
    }
    return false;
}

/* Those of the door's roles that the identity has in a tenant. */
static unsigned roles_in(const struct decide_in *in, const struct grants *g, struct str tenant)
{
    unsigned roles = grants_roles(g, tenant) & in->door->roles & ROLES_REAL;

    if (in->door->roles & HTTP_ROLES_EDIT && !may_edit(g, tenant))
        roles &= ~(unsigned)ROLE_READ;
    return roles;
}

static void put_roles(unsigned roles, struct buf *out)
{
    const char *between = "";

    for (unsigned bit = 1; bit < HTTP_ROLES_EDIT; bit <<= 1) {
        if (!(roles & bit))
            continue;
        (void)buf_addf(out, "%s%s%s", between, grants_role_name(bit),
                       bit == ROLE_READ && roles & HTTP_ROLES_EDIT ? " with \"edit\"" : "");
        between = " or ";
    }
}

static int refuse_role(const struct decide_in *in, struct str tenant, struct decision *d)
{
    struct buf names;

    buf_init(&names, KIB);
    put_roles(in->door->roles, &names);
    (void)err_set(&d->err, ERR_FORBIDDEN, "this wants a key with the role %.*s%s%.*s",
                  STR_ARG(buf_str(&names)), tenant.len ? " in the tenant " : "",
                  (int)MIN(tenant.len, SHOWN_MAX), tenant.len ? tenant.ptr : "");
    buf_deinit(&names);
    return refuse(d, ERR_FORBIDDEN, "role");
}

static int check_roles(const struct decide_in *in, struct decision *d)
{
    const struct grants *g = &d->who->grants;

    if (in->door->roles & HTTP_ROLES_ANY)
        return 0;
    if (in->door->tenants == HTTP_TENANTS_NONE)
        return all_roles(g) & in->door->roles & ROLES_REAL ? 0 : refuse_role(in, STR_NULL, d);
    for (size_t i = 0; i < d->tenants_len; i++) {
        if (!roles_in(in, g, d->tenants[i]))
            return refuse_role(in, d->tenants[i], d);
    }
    return 0;
}

/* ---- 4. for which series -------------------------------------------------------------------- */

/* Does one of the roles hold for all series of the tenant? Only roles that read and delete are ever
 * limited to some. */
static bool sees_all(const struct grants *g, unsigned roles, struct str tenant)
{
    static const unsigned limited[] = { ROLE_READ, ROLE_DELETE, ROLE_TENANT_ADMIN };

    for (size_t i = 0; i < ARRAY_LEN(limited); i++) {
        if (roles & limited[i] && grants_read_all(g, limited[i], tenant))
            return true;
        roles &= ~limited[i];
    }
    return roles != 0;
}

static int check_labels(const struct decide_in *in, struct decision *d)
{
    const struct grants *g = &d->who->grants;

    if (in->door->scope != HTTP_SCOPE_REFUSE)
        return 0;
    for (size_t i = 0; i < d->tenants_len; i++) {
        if (sees_all(g, roles_in(in, g, d->tenants[i]), d->tenants[i]))
            continue;
        (void)err_set(&d->err, ERR_FORBIDDEN,
                      "this key is for some series only, and what you ask for has no labels to "
                      "judge by");
        return refuse(d, ERR_FORBIDDEN, "scoped_key");
    }
    return 0;
}

/* --------------------------------------------------------------------------------------------- */

static int decide_asked(const struct decide_in *in, struct decision *d)
{
    struct str authorization, tenant, wish = STR_NULL;

    if (http_header_once(in->r, "Authorization", &authorization, &d->err) ||
        http_header_once(in->r, "X-Scope-OrgID", &tenant, &d->err))
        return refuse(d, ERR_INPUT, "headers");
    if (find_who(in, authorization, &wish, d) || find_tenants(in, tenant, wish, d) ||
        check_roles(in, d) || check_labels(in, d))
        return d->code;
    d->reason = "key";
    return 0;
}

void decide(const struct decide_in *in, struct decision *ret)
{
    *ret = (struct decision){ .reason = "open" };
    if (in->door->roles == HTTP_ROLES_OPEN)
        return;
    if (in->r->local) {
        ret->reason = "socket";
        return;
    }
    if (decide_asked(in, ret))
        ret->tenants_len = 0;
}

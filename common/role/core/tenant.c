/* SPDX-License-Identifier: Apache-2.0
 *
 * tenant: the tenant that a request belongs to. The header decides only when multi-tenancy is on;
 * then it must be present once and valid, because the name becomes part of keys, paths and log
 * lines.
 */
#include "common/model/tenant_id.h"
#include "common/role/core/role.h"

static int tenant_check(struct str id, struct err *e)
{
    return id.len ? tenant_id_check(id, e) : err_set(e, ERR_UNAUTHENTICATED, "no org id");
}

/* Sorted insert without duplicates. False when there is no room for another one. */
static bool tenant_add(struct str id, size_t many, struct str *ret, size_t *len)
{
    size_t at = 0;

    while (at < *len && str_cmp(ret[at], id) < 0)
        at++;
    if (at < *len && str_eq(ret[at], id))
        return true;
    if (*len == many)
        return false;
    memmove(ret + at + 1, ret + at, (*len - at) * sizeof(*ret));
    ret[at] = id;
    (*len)++;
    return true;
}

int tenant_of(const struct http_req *r, const struct tenancy_conf *t, size_t many, struct str *ret,
              size_t *ret_len, struct err *e)
{
    struct str rest, part;
    bool more = true;
    size_t len = 0;

    CHECK(many > 0);
    if (!t->multi) {
        ret[0] = STR("anonymous");
        *ret_len = 1;
        return 0;
    }
    if (http_header_once(r, "X-Scope-OrgID", &rest, e))
        return e->code;
    rest = str_trim(rest);
    if (t->strict && (str_find(rest, '|') >= 0 || str_find(rest, ':') >= 0))
        return err_set(e, ERR_INPUT,
                       "X-Scope-OrgID must be the name of one tenant, without '|' and ':', since "
                       "tenancy.strict is set here");
    while (str_next(&rest, '|', &more, &part)) {
        ptrdiff_t colon = str_find(part, ':');
        int code;

        if (colon >= 0)
            part = str_sub(part, 0, (size_t)colon);
        code = tenant_check(part, e);
        if (code)
            return code;
        if (tenant_add(part, many, ret, &len))
            continue;
        if (many == 1)
            return err_set(e, ERR_INPUT, "multiple org IDs present; this needs exactly one");
        return err_set(e, ERR_LIMIT, "more than %zu tenants in X-Scope-OrgID", many);
    }
    if (len == 0)
        return err_set(e, ERR_UNAUTHENTICATED, "no org id");
    *ret_len = len;
    return 0;
}

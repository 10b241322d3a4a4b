/* SPDX-License-Identifier: Apache-2.0
 *
 * tenant: the tenant that a request belongs to. Where callers have an identity it was decided when
 * the request came in (common/identity/decide.c), and nothing that the request says of itself is
 * looked at again. Else the header decides, when multi-tenancy is on; then it must be present once
 * and valid, because the name becomes part of keys, paths and log lines.
 */
#include "common/model/tenant_id.h"
#include "common/role/core/role.h"

/* No tenant can be called this. */
#define OF_NO_TENANT STR("/")

static int decided(const struct http_req *r, size_t many, struct str *ret, size_t *ret_len,
                   struct err *e)
{
    if (r->tenants_len > many && many == 1)
        return err_set(e, ERR_INPUT, "multiple org IDs present; this needs exactly one");
    if (r->tenants_len > many)
        return err_set(e, ERR_LIMIT, "more than %zu tenants in X-Scope-OrgID", many);
    for (size_t i = 0; i < r->tenants_len; i++)
        ret[i] = r->tenants[i];
    *ret_len = r->tenants_len;
    if (r->tenants_len)
        return 0;
    /* The route is of no tenant (its version, say), and the identity may have none. A handler that
     * asks gets a tenant without data, not a tenant of the caller's choice. */
    ret[0] = OF_NO_TENANT;
    *ret_len = 1;
    return 0;
}

int tenant_of(const struct http_req *r, const struct tenancy_conf *t, size_t many, struct str *ret,
              size_t *ret_len, struct err *e)
{
    struct str header;

    CHECK(many > 0);
    if (r->identity || r->tenants_len)
        return decided(r, many, ret, ret_len, e);
    if (!t->multi) {
        ret[0] = STR("anonymous");
        *ret_len = 1;
        return 0;
    }
    if (http_header_once(r, "X-Scope-OrgID", &header, e))
        return e->code;
    return tenant_ids_read(header, t->strict, many, ret, ret_len, e);
}

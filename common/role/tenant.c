/* SPDX-License-Identifier: Apache-2.0
 *
 * tenant: who a request belongs to. The header decides only when multi-tenancy is on; then it must
 * be there and be clean, because the name becomes part of keys, paths and log lines.
 */
#include "common/role/role.h"

#define TENANT_BYTES_MAX 150

static bool tenant_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != '\0' && strchr("!-_.*'()", c) != NULL);
}

static int tenant_check(struct str id, struct err *e)
{
    if (id.len == 0)
        return err_set(e, ERR_UNAUTHENTICATED, "no org id");
    if (id.len > TENANT_BYTES_MAX)
        return err_set(e, ERR_INPUT, "tenant id is %zu bytes, at most %d are allowed", id.len,
                       TENANT_BYTES_MAX);
    if (str_eq(id, STR(".")) || str_eq(id, STR("..")))
        return err_set(e, ERR_INPUT, "tenant id is '.' or '..'");
    for (size_t i = 0; i < id.len; i++) {
        if (!tenant_char(id.ptr[i]))
            return err_set(e, ERR_INPUT,
                           "tenant id has byte 0x%02x at position %zu; allowed are letters, "
                           "digits and !-_.*'()",
                           (unsigned)(unsigned char)id.ptr[i], i);
    }
    return 0;
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
    rest = str_trim(http_header(r, "X-Scope-OrgID"));
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

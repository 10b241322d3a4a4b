/* SPDX-License-Identifier: Apache-2.0 */
#include "common/model/tenant_id.h"

static bool allowed(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != '\0' && strchr("!-_.*'()", c) != NULL);
}

int tenant_id_check(struct str id, struct err *e)
{
    if (id.len == 0)
        return err_set(e, ERR_INPUT, "tenant id is empty");
    if (id.len > TENANT_ID_BYTES_MAX)
        return err_set(e, ERR_INPUT, "tenant id is %zu bytes, at most %d are allowed", id.len,
                       TENANT_ID_BYTES_MAX);
    if (str_eq(id, STR(".")) || str_eq(id, STR("..")))
        return err_set(e, ERR_INPUT, "tenant id is '.' or '..'");
    for (size_t i = 0; i < id.len; i++) {
        if (!allowed(id.ptr[i]))
            return err_set(e, ERR_INPUT,
                           "tenant id has byte 0x%02x at position %zu; allowed are letters, "
                           "digits and !-_.*'()",
                           (unsigned)(unsigned char)id.ptr[i], i);
    }
    return 0;
}

/* ---- the header ----------------------------------------------------------------------------- */

static int name_check(struct str id, struct err *e)
{
    return id.len ? tenant_id_check(id, e) : err_set(e, ERR_UNAUTHENTICATED, "no org id");
}

/* Sorted insert without duplicates. False when there is no room for another one. */
static bool name_add(struct str id, size_t many, struct str *ret, size_t *len)
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

int tenant_ids_read(struct str header, bool strict, size_t many, struct str *ret, size_t *ret_len,
                    struct err *e)
{
    struct str rest = str_trim(header), part;
    bool more = true;
    size_t len = 0;

    CHECK(many > 0);
    if (strict && (str_find(rest, '|') >= 0 || str_find(rest, ':') >= 0))
        return err_set(e, ERR_INPUT,
                       "X-Scope-OrgID must be the name of one tenant, without '|' and ':', since "
                       "tenancy.strict is set here");
    while (str_next(&rest, '|', &more, &part)) {
        ptrdiff_t colon = str_find(part, ':');
        int code;

        if (colon >= 0)
            part = str_sub(part, 0, (size_t)colon);
        code = name_check(part, e);
        if (code)
            return code;
        if (name_add(part, many, ret, &len))
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

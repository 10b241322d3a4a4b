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

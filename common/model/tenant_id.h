/* SPDX-License-Identifier: Apache-2.0
 *
 * tenant_id.h: what a tenant may be called. It becomes part of keys, paths and log lines, and
 * whatever names tenants, a header or a file, is held against this.
 *
 * Rules: proto/WIRE.md, "Tenant header".
 */
#ifndef COMMON_MODEL_TENANT_ID_H
#define COMMON_MODEL_TENANT_ID_H

#include "common/base/err.h"
#include "common/base/str.h"

#define TENANT_ID_BYTES_MAX 150

/* Letters, digits and !-_.*'(), but not "." nor ".."; 1 to TENANT_ID_BYTES_MAX bytes. ERR_INPUT,
 * with a text that says what is wrong. */
NODISCARD int tenant_id_check(struct str id, struct err *e);

/* The names in a value of X-Scope-OrgID: sorted, each once, slices of it. "a|b" is two, and what
 * follows a ':' in a name is cut off; strict: one name, with neither. ERR_UNAUTHENTICATED "no org
 * id" if a name is missing; more than `many` is ERR_INPUT for one, else ERR_LIMIT. */
NODISCARD int tenant_ids_read(struct str header, bool strict, size_t many, struct str *ret,
                              size_t *ret_len, struct err *e);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * scope.h: what the grants of an identity say about the series of one tenant: which of them it may
 * see (`match`), and which labels its pushes get (`set`).
 *
 * Every function takes NULL for a request of a server that asks for no keys: everything may be
 * seen, and nothing is set. An identity without a grant for the role in that tenant is refused
 * here, too, although decide.c did so before: what fails here fails closed.
 *
 * Two grants of one role in one tenant with different matchers cannot be asked in one question,
 * since matchers are joined by AND; such an identity is refused, with what to write instead. For
 * pushes, the labels of all grants are joined, and two values for one label are refused.
 *
 * Thread: any; records do not change.
 */
#ifndef COMMON_IDENTITY_SCOPE_H
#define COMMON_IDENTITY_SCOPE_H

#include "common/identity/record.h"

#define SCOPE_BYTES 32

/* The matchers for ROLE_READ or ROLE_DELETE in that tenant; *ret is NULL for all series, else it is
 * the record's. ERR_FORBIDDEN. */
NODISCARD int scope_match(const struct key_record *who, unsigned role, struct str tenant,
                          const struct selector **ret, struct err *e);
/* Is it limited to some series in any of the tenants? Also where it may see none. */
bool scope_limited(const struct key_record *who, unsigned role, const struct str *tenants,
                   size_t n);
/* The labels to set on each series of a push. *ret is in the arena, its texts are the record's.
 * ERR_FORBIDDEN; ERR_LIMIT where the arena is full. */
NODISCARD int scope_set(const struct key_record *who, struct str tenant, struct arena *a,
                        struct labels *ret, struct err *e);
/* The same for two requests only if the same identity reads the same tenants with the same
 * matchers; zeros without an identity. On all processes and in all builds the same. */
void scope_fingerprint(const struct key_record *who, const struct str *tenants, size_t n,
                       uint8_t ret[SCOPE_BYTES]);

#endif

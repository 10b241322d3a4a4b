/* SPDX-License-Identifier: Apache-2.0
 *
 * scoped.h: the tenant and the matchers of a question to ingesters: those of the request, joined by
 * AND with what the identity behind it may see in that tenant.
 *
 * What is inside a struct scoped_matchers is known to scoped.c alone, and no other file of the
 * querier writes a matcher into a message (tests/lint/scope.py): a question without the identity's
 * matchers does not compile. The matchers travel in the field that ingesters have always read. A
 * new field would be skipped by an ingester of an older version, which would then answer too much.
 */
#ifndef QUERIER_ASK_SCOPED_H
#define QUERIER_ASK_SCOPED_H

#include "common/base/arena.h"
#include "common/identity/scope.h"
#include "common/model/selector.h"
#include "proto/query.pb-c.h"

struct scoped_matchers;

struct scoped_ask {
    const struct key_record *who;     /* of the request; NULL: the server asks for no keys */
    unsigned role;                    /* ROLE_READ, ROLE_DELETE */
    struct str tenant;                /* what is asked about; one */
    const struct selector *selectors; /* of the request, joined by AND; borrowed */
    size_t len;
};

/* In the arena, for as long as the selectors and the identity live. ERR_FORBIDDEN: the identity may
 * see nothing of the tenant. ERR_LIMIT. */
NODISCARD int scoped_matchers_make(const struct scoped_ask *ask, struct arena *a,
                                   const struct scoped_matchers **ret, struct err *e);
struct str scoped_matchers_tenant(const struct scoped_matchers *s);
/* The matchers that the identity adds, or NULL: it may see all series. */
const struct selector *scoped_matchers_added(const struct scoped_matchers *s);
/* If they name one service by service_name="x", true and that (plan.h). */
bool scoped_matchers_service(const struct scoped_matchers *s, struct str *ret);
/* As messages of ingesters have them, in the arena. NULL: it is full. */
Embertree__Matcher **scoped_matchers_pack(const struct scoped_matchers *s, struct arena *a,
                                          size_t *ret_len);

#endif

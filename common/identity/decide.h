/* SPDX-License-Identifier: Apache-2.0
 *
 * decide.h: may this request use this route, as whom, and for which tenants? The rules as one pure
 * function, so that a test can walk all of them; identity.h asks it for each request.
 *
 *   1. Credential: the Unix socket, or Authorization (Bearer KEY; Basic, where the password is the
 *      key and the user name may name the tenant). A route that is open asks for none.
 *   2. Tenant: the only tenant of the grants; else X-Scope-OrgID, else the user name of Basic.
 *      A header that names a tenant without a grant is 403. "a|b" needs a grant for each.
 *      Where there is one tenant only, it is "anonymous", whatever is named.
 *   3. Role: one of the door's, in every tenant named (server routes: in any).
 *   4. Labels: a door that cannot judge by labels refuses an identity whose grants are limited to
 *      some series.
 *
 * An identity of the gateway role names the tenant by header alone and acts by its other roles.
 */
#ifndef COMMON_IDENTITY_DECIDE_H
#define COMMON_IDENTITY_DECIDE_H

#include "common/identity/registry.h"
#include "common/net/http.h"

#define DECIDE_TENANTS_MAX 32

struct decide_in {
    struct registry *registry;
    const struct http_door *door;
    const struct http_req *r; /* headers, peer, local, arena; nothing of the body */
    int64_t now_ms;           /* engine time */
    bool multi, strict;       /* tenancy.multi, tenancy.strict */
    bool fresh;               /* false: records may be missing here, so an unknown key is 503 */
    /* Asked where a request shows no known key: the identity of a caller that an older option
     * lists (identity_older.h). It returns NULL for others, else a record that is borrowed. May be
     * NULL. */
    struct key_record *(*older)(void *cookie, const struct http_req *r);
    void *older_cookie;
};
struct decision {
    int code;           /* 0: yes; ERR_UNAUTHENTICATED, _FORBIDDEN, _INPUT, _UNAVAILABLE, _LIMIT */
    const char *reason; /* a constant, of a metric's label and of the answer: "expired", ... */
    struct err err;     /* the sentence of a refusal */
    struct key_record *who; /* borrowed; NULL: the operator's socket, or an open route */
    struct str tenants[DECIDE_TENANTS_MAX]; /* in the request's arena, sorted */
    size_t tenants_len;
};

void decide(const struct decide_in *in, struct decision *ret);

/* The key and the tenant wish (STR_NULL: none) that a header shows; false if it shows no
 * credential. The slices lie in the header or in the arena. */
bool decide_credential(struct str authorization, struct arena *a, struct str *ret_key,
                       struct str *ret_wish);

#endif

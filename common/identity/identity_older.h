/* SPDX-License-Identifier: Apache-2.0
 *
 * identity_older.h: identities without a key. Two older options stay valid as credentials: a token
 * of http.admin_token_file makes a server-admin, and by one of distributor.tokens_file a sender may
 * push to its tenant. They are in no registry: the options keep the secrets, and are asked each
 * time. The third identity is of the process itself, which pushes its own profiles. Thread: the
 * loop's.
 */
#ifndef COMMON_IDENTITY_IDENTITY_OLDER_H
#define COMMON_IDENTITY_IDENTITY_OLDER_H

#include "common/identity/identity.h"

#define IDENTITY_OLDER_BY "option" /* made_by of these records; their name is the option's */

struct map_str;
struct identity_older {
    bool (*shows_token)(void *cookie, const struct http_req *r);
    void *token_cookie;
    identity_tokens_fn tokens;
    void *tokens_cookie;
    const char *own_tenant; /* of the process's own profiles; borrowed */
    char own_token[65];
    bool multi;
    struct key_record *admin, *own; /* NULL until one asks */
    struct map_str *by_tenant;      /* of struct key_record, for those that have asked */
};

/* The fields above must be set. */
void identity_older_init(struct identity_older *o, struct env *env);
void identity_older_deinit(struct identity_older *o);
/* decide_in.older; the cookie is the identity_older. */
struct key_record *identity_older_find(void *cookie, const struct http_req *r);

#endif

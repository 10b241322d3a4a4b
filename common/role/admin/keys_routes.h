/* SPDX-License-Identifier: Apache-2.0
 *
 * keys_routes.h: the API of keys.
 *
 *   GET    /api/v1/keys[?tenant=T]             {"keys":[..],"file","fresh"}
 *   POST   /api/v1/keys                        {"name","owner","grants","until"|"valid_for","nets"}
 *                                              -> {"id","key",..}: the key is shown this once
 *   POST   /api/v1/keys/ID/rotate[?overlap=7d] -> the same, of its successor
 *   DELETE /api/v1/keys/ID[?why=TEXT]          -> {"id","revoked":true,"away"}; 202 while the
 *                                              coordination service is away
 *
 * A caller hands out, lists and revokes only what its own grants cover; the operator's socket, and
 * callers that pass the doors without an identity, may do all. Thread: the loop's.
 */
#ifndef COMMON_ROLE_ADMIN_KEYS_ROUTES_H
#define COMMON_ROLE_ADMIN_KEYS_ROUTES_H

#include "common/identity/keystore.h"
#include "common/net/http.h"

struct keys_routes { /* the caller's storage, until the server is freed; all borrowed */
    struct env *env;
    struct registry *registry;
    struct keystore *store;   /* NULL: there are no keys here, and each route says so */
    uint64_t keys_per_tenant; /* in force at a time */
    const char *file;         /* identity.file; "": none */
};
void keys_routes(const struct keys_routes *k, struct http_server *http);

#endif

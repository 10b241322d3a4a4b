/* SPDX-License-Identifier: Apache-2.0
 *
 * tokens.h: tenants of senders that prove who they are but do not say it: servers up to 0.37 send a
 * bearer token and no X-Scope-OrgID.
 *
 *   tokens: {"<token>": team-a}
 *   users: {alloy: {password: "...", tenant: team-b}}
 */
#ifndef DISTRIBUTOR_BASE_TOKENS_H
#define DISTRIBUTOR_BASE_TOKENS_H

#include "common/net/http.h"
#include "common/sys/fs.h"

#define TOKENS_MAX 1000

struct tokens;
NODISCARD int tokens_load(const struct fs *fs, const char *file, struct tokens **ret,
                          struct err *e);
void tokens_free(struct tokens *t); /* NULL is fine */
/* The tenant of the request's Authorization; STR_NULL if it has none that is known. */
struct str tokens_tenant(const struct tokens *t, const struct http_req *r);

#endif

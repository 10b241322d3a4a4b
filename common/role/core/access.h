/* SPDX-License-Identifier: Apache-2.0
 *
 * access.h: which callers have what a route needs (struct http_door, common/role/core/doors.c).
 * With http.admin_token_file a route that tells of all tenants or changes the cluster wants
 * "Authorization: Bearer <token>", one of the file's lines. Without it, what tells is for all
 * callers. What comes through the Unix socket of http.admin_socket needs no token. Thread: the
 * loop's.
 */
#ifndef COMMON_ROLE_CORE_ACCESS_H
#define COMMON_ROLE_CORE_ACCESS_H

#include "common/net/http.h"
#include "common/sys/fs.h"

#define ACCESS_TOKENS_MAX      64
#define ACCESS_TOKEN_BYTES_MIN 16
/* Of a refusal, to callers on this machine: the path of the socket. embertreectl reads it. */
#define ACCESS_SOCKET_HEADER "X-Embertree-Admin-Socket"

struct access {          /* zeroed: no tokens */
    const struct fs *fs; /* borrowed */
    const char *file;    /* borrowed; "" or NULL: none */
    bool metrics;        /* /metrics wants a token, too */
    const char *socket;  /* borrowed; where operators need no token; NULL: no socket */
};
/* Reads the file to see that it is fine: ERR_CONFIG. */
NODISCARD int access_init(struct access *a, const struct fs *fs, const char *file, struct err *e);
/* http_server_opts.admit; the cookie is the access. False: it was answered, 401 or 403. The file is
 * read for each such request, so that a token can be changed at any time; where it cannot be read
 * no caller is admitted. */
bool access_admits(void *cookie, struct http_req *r, const struct http_door *door);

/* Where identities are asked for (common/identity/identity.h): does the request show one of the
 * tokens, and where the socket is, for a refusal to a caller on this machine. */
bool access_shows_token(void *cookie, const struct http_req *r);
void access_hint(void *cookie, struct http_req *r, const struct http_door *door);

/* Is this header one of the tokens? */
bool access_knows(struct str tokens, struct str header);

#endif

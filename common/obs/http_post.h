/* SPDX-License-Identifier: Apache-2.0
 *
 * http_post.h: sends one POST to a server on this machine and reads the status (RFC 9112). It
 * blocks, with one deadline over everything; it is for a background thread that pushes every few
 * seconds, not for roles (they have net/). Thread: any.
 */
#ifndef COMMON_OBS_HTTP_POST_H
#define COMMON_OBS_HTTP_POST_H

#include <sys/socket.h>

#include "common/base/err.h"
#include "common/base/str.h"

struct http_target {
    struct sockaddr_storage addr;
    socklen_t addr_len;
    char host[64];   /* as in the URL, for the Host header */
    char prefix[64]; /* path before ours, without a trailing '/' */
};

/* "http://127.0.0.1:4040", "http://[::1]:80/base", "http://localhost:4040": loopback only, since
 * nothing here encrypts or authenticates. */
NODISCARD int http_target_parse(const char *url, struct http_target *ret, struct err *e);
/* One request; all of it is borrowed for the call. */
struct http_post {
    const char *path;    /* "/ingest?..." */
    const char *headers; /* lines, each ended by \r\n; or "" */
    struct str body;
    uint32_t timeout_ms; /* of the whole call */
    int cancel_fd;       /* readable: the call ends with ERR_CANCELED; -1: no such descriptor */
};
/* Returns 0 once a status was read, whatever it is. Errors: ERR_UNAVAILABLE (no connection),
 * ERR_TIMEOUT, ERR_CANCELED, ERR_IO. */
NODISCARD int http_post(const struct http_target *t, const struct http_post *p, int *ret_status,
                        struct err *e);

#endif

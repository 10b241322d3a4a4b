/* SPDX-License-Identifier: Apache-2.0
 *
 * ctl_http.h: one POST at a time, for commands: blocking, HTTP/1.1 (RFC 9112) without TLS.
 */
#ifndef DEPLOY_CTL_CTL_HTTP_H
#define DEPLOY_CTL_CTL_HTTP_H

#include "common/base/buf.h"
#include "common/base/err.h"

struct ctl_server {
    char host[256], port[8]; /* as getaddrinfo takes them */
    char prefix[256];        /* of paths, without a trailing '/' */
};
struct ctl_reply {
    int status;
    uint32_t retry_after_s; /* 0: the server did not say */
    struct buf body;        /* cut at its max; the caller's: init before, deinit after */
};
/* "http://host:port/prefix". ERR_CONFIG. */
NODISCARD int ctl_server_parse(const char *url, struct ctl_server *ret, struct err *e);
/* 0 once a whole reply is there, whatever its status. `headers`: lines each ended by \r\n.
 * ERR_UNAVAILABLE: no connection, or it broke; ERR_IO: no HTTP. */
NODISCARD int ctl_post(const struct ctl_server *s, const char *path, const char *headers,
                       struct str body, uint32_t timeout_s, struct ctl_reply *ret, struct err *e);

#endif

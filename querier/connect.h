/* SPDX-License-Identifier: Apache-2.0
 *
 * connect.h: what a unary Connect request over HTTP/1.1 must look like (Connect protocol), and
 * proto3 JSON in its body.
 */
#ifndef QUERIER_CONNECT_H
#define QUERIER_CONNECT_H

#include "common/net/http.h"
#include "common/net/json_in.h"

/* Content type, protocol version, compression. False: the reply is sent. Loop thread. */
bool connect_accepts(struct http_req *r);
/* Connect-Timeout-Ms, if there; else *ret stays. ERR_INPUT. */
NODISCARD int connect_timeout(const struct http_req *r, uint64_t *ret, struct err *e);
/* Inflates and parses the body; the doc's text lives in it. Pool thread. */
NODISCARD int connect_body(const struct http_req *r, size_t bytes_max, struct json_doc **ret,
                           struct err *e);
/* True if Accept allows label names beyond [A-Za-z_][A-Za-z0-9_]*. */
bool connect_utf8_names(const struct http_req *r);

#endif

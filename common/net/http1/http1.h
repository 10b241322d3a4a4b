/* SPDX-License-Identifier: Apache-2.0
 *
 * http1.h: HTTP/1.1 on one stream.
 */
#ifndef COMMON_NET_HTTP1_HTTP1_H
#define COMMON_NET_HTTP1_HTTP1_H

#include "common/net/http_server.h"

/* Takes the stream over. */
void http1_open(struct http_server *s, struct stream *stream);
/* The same, answers at once and closes; `full`: because there are too many connections. */
void http1_open_refused(struct http_server *s, struct stream *stream, bool full, int status,
                        const char *why);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * http1.h: HTTP/1.1 on one stream.
 */
#ifndef COMMON_NET_HTTP1_H
#define COMMON_NET_HTTP1_H

#include "common/net/http_server.h"

/* Takes the stream over; `refuse`: answer 503 at once and close. */
void http1_open(struct http_server *s, struct stream *stream, bool refuse);

#endif

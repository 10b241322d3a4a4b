/* SPDX-License-Identifier: Apache-2.0
 *
 * http2.h: HTTP/2 (RFC 9113) on one stream.
 */
#ifndef COMMON_NET_HTTP2_HTTP2_H
#define COMMON_NET_HTTP2_HTTP2_H

#include "common/net/http_server.h"

#define HTTP2_PREFACE STR("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")

/* Takes the stream over; `first` are the bytes read from it so far, the preface in front. */
void http2_open(struct http_server *s, struct stream *stream, struct str first);

#endif

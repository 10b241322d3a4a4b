/* SPDX-License-Identifier: Apache-2.0
 *
 * http_start.h: a connection of which nothing was read yet.
 */
#ifndef COMMON_NET_HTTP_START_H
#define COMMON_NET_HTTP_START_H

#include "common/net/http_server.h"

/* Takes the stream over and hands it on to the protocol its first bytes speak. */
void http_start_open(struct http_server *s, struct stream *stream);

#endif

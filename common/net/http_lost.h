/* SPDX-License-Identifier: Apache-2.0
 *
 * http_lost.h: what to say to a request whose path leads nowhere: what was probably meant.
 *
 * That is, in this order: a route that is the path but for letters' case and slashes too many; what
 * a role knows of paths that people try (http_lost_hint); a route at the path's end, as in
 * "/ingest/push.v1.PusherService/Push" of an agent whose address ends in /ingest.
 */
#ifndef COMMON_NET_HTTP_LOST_H
#define COMMON_NET_HTTP_LOST_H

#include "common/net/http_route.h"

/* Of a path without a route, or of a prefix where it ends with '*', is said what to do instead.
 * Both texts outlive the server. Where there is a route it counts, and the hint does not. */
void http_lost_hint(struct http_server *s, const char *path, const char *text);
/* Appends "; did you mean /x?" or ": text", or nothing. */
void http_lost_text(const struct http_routes *t, struct str path, struct buf *out);
/* The handler of what has no route, over HTTP/2: takes the body, up to so much, then answers. An
 * answer before it is followed by a reset, of which some clients (curl 7) tell in its place. */
#define HTTP_LOST_TAKES (64 * MIB)
void http_lost_taken(struct http_req *r);
/* 404 with the above; callers of gRPC get `unimplemented`, since they read nothing else. */
void http_reply_lost(struct http_req *r);

#endif

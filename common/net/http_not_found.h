/* SPDX-License-Identifier: Apache-2.0
 *
 * http_not_found.h: answers requests with an unknown path, with a hint at the path that was meant.
 *
 * The hint is the first of these: a route that differs only in case or extra slashes; a text that a
 * role has registered for the path (http_not_found_hint); a route at the path's end, as in
 * "/ingest/push.v1.PusherService/Push" of an agent whose address ends in /ingest.
 */
#ifndef COMMON_NET_HTTP_NOT_FOUND_H
#define COMMON_NET_HTTP_NOT_FOUND_H

#include "common/net/http_route.h"

/* Registers a hint for a path without a route, or for a prefix if it ends with '*'. Both texts must
 * outlive the server. Routes take precedence over hints. */
void http_not_found_hint(struct http_server *s, const char *path, const char *text);
/* Appends "; did you mean /x?" or ": text", or nothing. */
void http_lost_text(const struct http_routes *t, struct str path, struct buf *out);
/* The handler of unknown paths over HTTP/2: takes the body, up to so much, then answers. An earlier
 * answer is followed by a reset, which some clients (curl 7) report instead of the answer. */
#define HTTP_LOST_TAKES (64 * MIB)
void http_lost_taken(struct http_req *r);
/* 404 with the above; callers of gRPC get `unimplemented`, since they read nothing else. */
void http_reply_not_found(struct http_req *r);

#endif

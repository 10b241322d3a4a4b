/* SPDX-License-Identifier: Apache-2.0
 *
 * http_door.h: may a request come in: by the name its client uses for this server, and by the web
 * page that makes a browser send it. The essay is in http_door.c. Thread: the loop's; the checks of
 * options any.
 */
#ifndef COMMON_NET_HTTP_DOOR_H
#define COMMON_NET_HTTP_DOOR_H

#include "common/net/http_server.h"

/* True if a client may call this server by that Host (or :authority), port included or not. */
bool http_host_known(const struct http_server_opts *o, struct str host);
/* True if a page of another site makes a browser send this, and its origin is not listed. */
bool http_from_other_site(const struct http_server_opts *o, const struct http_req *r);

/* ---- http_xchg.c asks these in turn; false: the request was answered. */
/* Every request, before a route is looked for: 421; 400 if it shows two credentials. */
bool http_door_host(struct http_xchg *x);
/* Once x->route is there: 403, or what the server's admit answers. */
bool http_door_route(struct http_xchg *x);
/* OPTIONS by which a browser asks, for a page, whether it may send one of the methods `acts`. */
bool http_door_preflight(struct http_xchg *x, unsigned acts);

/* Fills what a route of these methods asks of its callers: from the server's table of doors, which
 * must have it, or by the methods alone where the server has no table. */
void http_door_of(const struct http_server_opts *o, struct http_route *r);

#endif

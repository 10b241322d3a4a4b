/* SPDX-License-Identifier: Apache-2.0
 *
 * http_route.h: which handler a path and a method lead to. The route for everything ("/" and all
 * below it) does not count as a path: requests that it does not take are not found, rather than not
 * allowed.
 */
#ifndef COMMON_NET_HTTP_ROUTE_H
#define COMMON_NET_HTTP_ROUTE_H

#include "common/base/map.h"
#include "common/base/vec.h"
#include "common/net/http.h"

#define HTTP_METHODS 7 /* kinds, and one more slot for "other" where they are counted */

struct http_route {
    struct http_route *next; /* same path, other methods */
    char *path;              /* owned; as registered, so with its '*' */
    struct str match;        /* without the '*' */
    bool prefix;
    bool stream; /* the handler runs at the end of the head */
    unsigned methods;
    unsigned acts; /* those of them that pages of other sites may not send */
    const struct http_door *doors[HTTP_METHODS]; /* by method; NULL: the server has no table */
    size_t body_max;
    http_handler_fn fn;
    void *cookie;
    void *owned; /* what the cookie stands for, freed with the route */
    struct metric_cell *requests[HTTP_METHODS + 1][6]; /* by method and status class, lazily */
    struct metric_cell *seconds;
};

/* A hint for a path that is not registered: see http_not_found.h. */
struct http_hint {
    const char *path, *text; /* constants */
};

struct http_routes {
    VEC(struct http_hint) hints;
    VEC(struct http_route *) all;      /* owned */
    VEC(struct http_route *) prefixes; /* first of each chain, longest first */
    struct map_str *exact;             /* match -> first of a chain */
};

void http_routes_init(struct http_routes *t);
void http_routes_deinit(struct http_routes *t);
struct http_route *http_routes_add(struct http_routes *t, const char *path);
/* The route, or NULL with *ret_allow = methods that path has (0: no such path). */
struct http_route *http_routes_find(const struct http_routes *t, struct str path,
                                    enum http_method method, unsigned *ret_allow);
/* Methods of that path that act. */
unsigned http_routes_acts(const struct http_routes *t, struct str path);
/* "GET, HEAD, POST" */
void http_methods_text(unsigned methods, struct buf *out);
/* 0..HTTP_METHODS-1, or HTTP_METHODS. */
size_t http_method_index(enum http_method method);
const char *http_method_name(size_t index);
/* 0: unknown. */
enum http_method http_method_of(struct str name);

#endif

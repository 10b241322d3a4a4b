/* SPDX-License-Identifier: Apache-2.0
 *
 * http_multi.h: many requests to other servers at once, for a loop: HTTP/1.1, TLS,
 * authentication, deadlines, and a limit for each body. Redirects are not followed, proxies of the
 * environment not used. (http_client.h: one at a time, for a thread that may wait.)
 *
 * Thread: the loop's for all calls and callbacks; libcurl runs on a thread of its own.
 */
#ifndef COMMON_NET_CLIENT_HTTP_MULTI_H
#define COMMON_NET_CLIENT_HTTP_MULTI_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/net/client/http_client.h"
#include "common/sys/budget.h"
#include "common/sys/loop.h"

#define HTTP_MULTI_UNREAD_MAX (4 * MIB) /* of a stream: over it the call ends */

struct http_multi;
struct http_call;

struct http_multi_reply {
    const struct err *err; /* no whole reply: ERR_UNAVAILABLE, ERR_TIMEOUT, ERR_TOO_LARGE, ERR_BUSY,
                              ERR_CONFIG (URL, files of TLS); or NULL, whatever the status is */
    int status;
    uint64_t retry_after_s; /* 0: the server did not say */
    uint64_t took_ms;
    /* The body of a call without on_data. Code that moves it out (buf_move) takes over `charged`:
     * it sets it to 0 here and later gives so much back to the budget. */
    struct buf body;
    size_t charged;
};
struct http_multi_req {         /* everything is copied */
    const char *method;         /* NULL: GET, or POST where there is a body */
    const char *url;            /* http:// or https:// */
    const char *const *headers; /* "Name: value" */
    size_t headers_len;
    struct str body;
    const char *user, *password; /* basic authentication; user NULL or "": none */
    const char *bearer;          /* NULL or "": none */
    struct http_client_tls tls;
    uint64_t connect_ms;   /* 0: 10 s */
    uint64_t timeout_ms;   /* of the whole call; 0: none */
    uint64_t stall_ms;     /* nothing came for so long; 0: does not matter. Whole seconds count. */
    size_t body_max;       /* of the reply */
    struct budget *budget; /* bytes of the reply are charged to it; NULL: they are not */
    /* A reply of status 200 in pieces, borrowed for the call; `done` gets no body then. */
    void (*on_data)(void *cookie, struct str bytes);
    /* Once, unless the call is canceled. *r is gone when it returns. */
    void (*done)(void *cookie, struct http_multi_reply *r);
    void *cookie;
};

/* `agent`: what User-Agent says. */
struct http_multi *http_multi_new(struct loop *loop, const char *agent);
/* Calls still running end without `done`. NULL is fine. */
void http_multi_free(struct http_multi *c);
/* Does not fail: an error in the request is reported to `done`, later. */
struct http_call *http_multi_start(struct http_multi *c, const struct http_multi_req *r);
/* No callback comes any more. Not to be used after `done` was called. NULL is fine. */
void http_call_cancel(struct http_call *call);

#endif

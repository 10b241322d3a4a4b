/* SPDX-License-Identifier: Apache-2.0
 *
 * http.h: the HTTP/1.1 server (RFC 9110, 9112): routes, requests, replies.
 *
 * A handler runs on the loop once the whole body is there (bounded by the route's body_max and by
 * the server's in-flight budget), and replies exactly once, now or later, on the loop. The request
 * and all slices in it live until the reply was handed over. If the client goes away first,
 * req->gone turns true and on_gone is called; the handler still has to call a reply function.
 * A client that only closed its sending side looks the same, so the reply is still sent to it.
 */
#ifndef COMMON_NET_HTTP_H
#define COMMON_NET_HTTP_H

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/net/http_head.h"
#include "common/obs/metrics.h"
#include "common/sys/budget.h"
#include "common/sys/loop.h"
#include "common/sys/pool.h"

enum http_method {
    HTTP_GET = 1,
    HTTP_HEAD = 2,
    HTTP_POST = 4,
    HTTP_PUT = 8,
    HTTP_DELETE = 16,
    HTTP_OPTIONS = 32,
    HTTP_PATCH = 64
};

/* Limit of req->arena: for decoded parameters and a handler's small things. Bodies do not live in
 * it, and what grows with a body wants an arena of its own. */
#define HTTP_ARENA_MAX (8 * MIB)

struct http_server;
struct http_req {
    uint32_t magic;
    enum http_method method;
    struct str path;  /* percent-decoded, without query */
    struct str query; /* raw, without '?' */
    const struct http_header *headers;
    size_t headers_len;
    struct str body;     /* after chunked decoding; Content-Encoding still applied */
    struct arena *arena; /* lives as long as the request */
    struct loop *loop;
    uint64_t id; /* request id: logs, X-Request-Id (16 hexadecimal digits) */
    uint64_t start_mono_ns;
    const char *peer;                    /* "127.0.0.1:40312" */
    _Atomic bool gone;                   /* set on the loop, may be read anywhere */
    void (*on_gone)(struct http_req *r); /* set by the handler, may be NULL */
    void *cookie;                        /* the handler's */
    void *route_cookie;
};
typedef void (*http_handler_fn)(struct http_req *r);

struct http_server_opts {
    struct loop *loop;
    struct pool *pool;        /* compresses large replies; NULL: inline */
    struct budget *in_flight; /* bytes of heads and bodies of all connections; over it 503 */
    struct metrics *metrics;
    const char *listen;       /* "127.0.0.1:4040", "[::1]:0", ":4040"; NULL: no listener */
    uint32_t connections_max; /* one more gets 503 and is closed */
    uint32_t head_bytes_max;
    uint32_t head_ms, body_ms, idle_ms, write_ms; /* per-phase progress deadlines */
};
/* SIGPIPE is ignored from here on, for the whole process. */
NODISCARD int http_server_new(const struct http_server_opts *o, struct http_server **ret,
                              struct err *e);
uint16_t http_server_port(const struct http_server *s); /* the real one after ":0" */
/* Exact path; or a prefix when path ends with '*'; exact goes before prefix, long before short.
 * Wrong method: 405 with Allow. HEAD follows GET; the handler sees HTTP_HEAD and replies as to GET.
 * OPTIONS is answered by the server unless a route asks for it. */
void http_route(struct http_server *s, unsigned methods, const char *path, size_t body_max,
                http_handler_fn fn, void *route_cookie);
/* Stops accepting, answers what is running, closes idle connections; then calls done on the loop.
 */
void http_server_drain(struct http_server *s, void (*done)(void *cookie), void *cookie);
void http_server_free(struct http_server *s); /* after drain; NULL is fine */

/* First header of that name (case-insensitive), or STR_NULL. */
struct str http_header(const struct http_req *r, const char *name);
/* First query parameter, decoded (arena); false if absent. "a" and "a=" both give "". A '%' without
 * two digits behind it stands for itself. False, too, where the arena is full. */
bool http_param(const struct http_req *r, const char *name, struct str *ret);
/* The i-th occurrence (0-based). */
bool http_param_at(const struct http_req *r, const char *name, size_t i, struct str *ret);
/* As http_param on an application/x-www-form-urlencoded text. */
bool form_param(struct str form, const char *name, size_t i, struct arena *a, struct str *ret);
/* Does If-None-Match name this tag (without quotes), by weak comparison? */
bool http_none_match(const struct http_req *r, struct str etag);
/* Does Accept-Encoding allow gzip? */
bool http_accepts_gzip(const struct http_req *r);

/* Adds a header to the reply to come; copies. */
void http_reply_header(struct http_req *r, const char *name, struct str value);
/* Moves *body out (NULL = empty). Compresses with gzip when the client accepts it, the body has
 * 1400 bytes or more and no Content-Encoding was set. A body that did not fit its buf (buf_ok is
 * false) becomes a 500. After this `r` is gone. */
void http_reply(struct http_req *r, int status, const char *content_type, struct buf *body);
/* {"code","message"} with the status of e->code; Retry-After where it helps; JSON plus newline. */
void http_reply_err(struct http_req *r, const struct err *e);
/* The same with a status and a code name of your own: for what has no ERR_ code. */
void http_reply_status(struct http_req *r, int status, const char *code, const char *message);
/* The same by the rules of Connect (status mapping, no newline). */
void http_reply_connect_err(struct http_req *r, const struct err *e);
/* A file of the page: 304 when If-None-Match names `etag` (no quotes), else `gz` (may be empty)
 * where the client accepts gzip, else `plain`. Both are borrowed until the server is freed. */
void http_reply_static(struct http_req *r, const char *content_type, struct str plain,
                       struct str gz, const char *etag, const char *cache_control);
/* The body without its Content-Encoding (identity, gzip, zstd), bounded by l; runs on a pool
 * thread. *ret points into r->body or into *tmp. Unknown encodings: ERR_INPUT. */
struct inflate_limits;
NODISCARD int http_body_plain(const struct http_req *r, const struct inflate_limits *l,
                              struct buf *tmp, struct str *ret, struct err *e);

#endif

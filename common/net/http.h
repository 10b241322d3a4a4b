/* SPDX-License-Identifier: Apache-2.0
 *
 * http.h: the HTTP server (RFC 9110; HTTP/1.1 by 9112, HTTP/2 by 9113): routes, requests, replies.
 *
 * A handler runs on the loop once the whole body is there (bounded by the route's body_max and by
 * the server's in-flight budget), and replies exactly once, now or later, on the loop. The request
 * and all slices in it live until the reply was handed over. If the client goes away first,
 * req->gone turns true and on_gone is called; the handler still has to call a reply function.
 * A client that only closed its sending side looks the same, so the reply is still sent to it.
 *
 * Streams are the two exceptions. A handler of http_route_stream runs at the end of the head and
 * gets the body in pieces (on_data, on_end). And any handler may reply in pieces: http_stream_send
 * any number of times, then http_stream_end (or http_stream_abort), instead of one http_reply. The
 * request then lives until that last call, which is owed even if the client is gone.
 */
#ifndef COMMON_NET_HTTP_H
#define COMMON_NET_HTTP_H

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/conf/conf.h"
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

/* Limit of req->arena: for decoded parameters and small data of a handler. Bodies are not stored in
 * it, and data that grow with a body need an arena of their own. */
#define HTTP_ARENA_MAX (8 * MIB)

#define HTTP_STREAM_WINDOW    (256 * KIB) /* given to on_data and not yet taken, at most */
#define HTTP_STREAM_ROOM      (64 * KIB)
#define HTTP_STREAM_QUEUE_MAX (4 * MIB) /* a reader that lets more than this wait is cut off */

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
    const char *peer;  /* "127.0.0.1:40312" */
    bool own;          /* peer address is local; also of a client behind a local proxy */
    bool local;        /* through the server's Unix socket: its operator */
    _Atomic bool gone; /* set on the loop, may be read anywhere */
    void (*on_gone)(struct http_req *r); /* set by the handler, may be NULL */
    /* Callbacks of http_route_stream, set by the handler before it returns. Both may reply. on_end
     * is called once, unless the client is gone or a reply was finished before: with NULL after the
     * last byte, or with the reason why the rest will not come (ERR_TOO_LARGE over body_max,
     * ERR_BUSY over the budget, ERR_TIMEOUT, ERR_INPUT); the handler must still reply, and the
     * reply reaches the client. */
    void (*on_data)(struct http_req *r, struct str bytes); /* borrowed for the call */
    void (*on_end)(struct http_req *r, const struct err *e);
    /* For a reply in pieces: called when less than HTTP_STREAM_ROOM is queued again. May be
     * NULL. */
    void (*on_room)(struct http_req *r);
    void *cookie; /* the handler's */
    void *route_cookie;
    /* Set by the server's admit where callers have an identity (common/identity); else NULL, 0. */
    struct key_record *identity;
    const struct str *tenants; /* those this request is for, sorted */
    size_t tenants_len;
};
typedef void (*http_handler_fn)(struct http_req *r);

/* What a route requires of its callers. One table has a row for every route of the product
 * (common/role/core/doors.c). A server with a table refuses to register a route without a row. */
enum http_needs {
    HTTP_NEEDS_NOTHING,
    HTTP_NEEDS_METRICS,  /* what /metrics requires of scrapers */
    HTTP_NEEDS_TOKEN,    /* the server's admin token, if it has one: shows data of all tenants */
    HTTP_NEEDS_OPERATOR, /* that token, or the way through the server's Unix socket */
};
enum http_tenants { HTTP_TENANTS_NONE, HTTP_TENANTS_ONE, HTTP_TENANTS_MANY };
/* How a route treats an identity that may see only some series. */
enum http_scope {
    HTTP_SCOPE_NONE,    /* its answer has nothing of a series */
    HTTP_SCOPE_CONJOIN, /* the identity's matchers are joined to the request's */
    HTTP_SCOPE_OWN,     /* it shows only what this identity made */
    HTTP_SCOPE_SET,     /* a push: the identity's labels are set */
    HTTP_SCOPE_REFUSE,  /* it has no labels to judge by: 403 */
};
#define HTTP_ROLES_OPEN 0u         /* for all callers, also without a credential */
#define HTTP_ROLES_ANY  (1u << 15) /* any identity */
#define HTTP_ROLES_EDIT (1u << 14) /* the read role counts only with the grant's `edit` */
struct http_door {
    unsigned methods;
    const char *path; /* as registered, so with its '*' */
    bool acts; /* changes something or costs much: not for pages of other sites (http_door.c) */
    enum http_needs needs;
    /* With identities (common/identity/decide.h): */
    unsigned roles; /* enum identity_role, one of which is wanted; or HTTP_ROLES_ */
    enum http_tenants tenants;
    enum http_scope scope;
    char audit; /* 'A' always, 'R' reads, '-' failures only */
};

struct http_server_opts {
    struct loop *loop;
    struct pool *pool;        /* compresses large replies; NULL: inline */
    struct budget *in_flight; /* bytes of heads and bodies of all connections; over it 503 */
    bool tenants;             /* each holds at most its share of it: http_shares.h; over it 429 */
    struct metrics *metrics;
    const char *listen;       /* "127.0.0.1:4040", "[::1]:0", ":4040"; NULL: no listener */
    uint32_t connections_max; /* one more gets 503 and is closed */
    uint32_t head_bytes_max;
    uint32_t head_ms, body_ms, idle_ms, write_ms; /* per-phase progress deadlines */
    /* PEM files; with a certificate the port speaks TLS (ALPN h2, http/1.1) beside plain HTTP. They
     * are read again when they change. NULL or "": none. */
    const char *tls_cert, *tls_key;
    const char *tls_client_ca; /* clients must show a certificate of these; implies tls_only */
    bool tls_only;             /* plain HTTP is answered 400 */
    /* By which names clients may call the server, and which pages may act: http_door.c. */
    bool local; /* it listens for this machine only */
    struct conf_list hosts, origins;
    const struct http_door *doors; /* borrowed; NULL: every method but GET acts */
    size_t doors_len;
    /* Asked for each request that found a route with a row in `doors`, at the end of its head: may
     * it come in? False: it was answered. NULL: always true. What found no route, or only other
     * methods, is answered without it. */
    bool (*admit)(void *cookie, struct http_req *r, const struct http_door *door);
    /* The request ends: gives back what admit kept in it. Called for each one, admitted or not, and
     * its arena is still there. May be NULL. */
    void (*forget)(void *cookie, struct http_req *r);
    void *admit_cookie; /* of both */
    /* Called after the files changed. e NULL: they are in use now; else they cannot be used, and
     * the old files stay in use. */
    void (*on_tls_files)(void *cookie, const struct err *e);
    void *tls_cookie;
};
/* SIGPIPE is ignored from here on, for the whole process. */
NODISCARD int http_server_new(const struct http_server_opts *o, struct http_server **ret,
                              struct err *e);
/* Check that lists are valid for http_server_opts.hosts and .origins. ERR_CONFIG names the
 * entry. */
NODISCARD int http_hosts_check(const struct conf_list *hosts, struct err *e);
NODISCARD int http_origins_check(const struct conf_list *origins, struct err *e);
/* Listens on a Unix socket as well (local.h), in plain HTTP whatever the port speaks; the path is
 * borrowed until the server is freed. */
NODISCARD int http_server_listen_local(struct http_server *s, const char *path, struct err *e);
uint16_t http_server_port(const struct http_server *s); /* the real one after ":0" */
/* Exact path; or a prefix when path ends with '*'; exact goes before prefix, long before short.
 * Wrong method: 405 with Allow. HEAD follows GET; the handler sees HTTP_HEAD and replies as to GET.
 * OPTIONS is answered by the server unless a route asks for it. */
void http_route(struct http_server *s, unsigned methods, const char *path, size_t body_max,
                http_handler_fn fn, void *route_cookie);
/* The same, but fn runs at the end of the head; r->body stays empty, see on_data. body_max bounds
 * the sum of all pieces. */
void http_route_stream(struct http_server *s, unsigned methods, const char *path, uint64_t body_max,
                       http_handler_fn fn, void *route_cookie);
/* Stops accepting, answers what is running, closes idle connections; then calls done on the loop.
 */
void http_server_drain(struct http_server *s, void (*done)(void *cookie), void *cookie);
void http_server_free(struct http_server *s); /* after drain; NULL is fine */

bool http_is_h2(const struct http_req *r);

/* First header of that name (case-insensitive), or STR_NULL. */
struct str http_header(const struct http_req *r, const char *name);
/* The same for a header that says who the caller is: ERR_INPUT if the request has it twice, since a
 * gateway may have checked the other one. */
NODISCARD int http_header_once(const struct http_req *r, const char *name, struct str *ret,
                               struct err *e);
/* First query parameter, decoded (arena); false if absent. "a" and "a=" both give "". A '%' without
 * two digits behind it stands for itself. False, too, where the arena is full. */
bool http_param(const struct http_req *r, const char *name, struct str *ret);
/* The i-th occurrence (0-based). */
bool http_param_at(const struct http_req *r, const char *name, size_t i, struct str *ret);
/* As http_param on an application/x-www-form-urlencoded text. */
bool form_param(struct str form, const char *name, size_t i, struct arena *a, struct str *ret);
/* Does If-None-Match name this tag (without quotes), by weak comparison? */
bool http_none_match(const struct http_req *r, struct str etag);
#define HTTP_GZIP_LEVEL 4 /* of replies */
/* Does Accept-Encoding allow gzip? From any thread. */
bool http_accepts_gzip(const struct http_req *r);

/* Adds a header to the reply to come; copies. */
void http_reply_header(struct http_req *r, const char *name, struct str value);
/* Moves *body out (NULL = empty). Compresses with gzip when the client accepts it, the body has
 * 1400 bytes or more and no Content-Encoding was set. A body that did not fit its buf (buf_ok is
 * false) becomes a 500. After this `r` is gone. */
void http_reply(struct http_req *r, int status, const char *content_type, struct buf *body);
/* Adds a trailer to the reply to come; copies; at most 8. HTTP/2 sends it behind the body of any
 * reply, HTTP/1.1 drops it. */
void http_reply_trailer(struct http_req *r, const char *name, struct str value);

/* ---- replies in pieces. The server does not compress them: the handler that makes the pieces does
 * so on the pool (gzip_stream, HTTP_GZIP_LEVEL), and adds Vary and Content-Encoding. No
 * Content-Length is sent (HTTP/1.1: chunked). */
/* The first call sends the head with the headers added by http_reply_header; the others ignore
 * status and type. Moves *part out (NULL or empty: the head only). Never calls back into the
 * handler. Look at http_stream_queued before you produce more: over HTTP_STREAM_QUEUE_MAX, or with
 * a full budget, the client is cut off in a later turn of the loop; r->gone and on_gone report it.
 * A part that did not fit its buf (buf_ok is false) cuts the client off, too. After the client is
 * gone this does nothing. */
void http_stream_send(struct http_req *r, int status, const char *content_type, struct buf *part);
/* Ends the reply, with the trailers added so far. After this `r` is gone. */
void http_stream_end(struct http_req *r);
/* Ends it so that the client sees a broken reply (reset, or closed in the middle). `r` is gone. */
void http_stream_abort(struct http_req *r);
/* Bytes sent that the client did not take yet; 0 once it is gone. */
size_t http_stream_queued(const struct http_req *r);
/* For http_route_stream: n more of the bytes given to on_data are processed, and the client may
 * send as many again. At most HTTP_STREAM_WINDOW are outstanding, charged to the in-flight budget;
 * a handler that keeps more must acknowledge them and charge them itself. After the last byte the
 * call is not needed. */
void http_stream_took(struct http_req *r, size_t n);

/* Seconds until a retry may help: from e, or a guess; 0: a retry does not help. */
uint32_t http_retry_after(int status, const struct err *e);
/* Adds Retry-After if a retry may help: from e, or a guess. For replies with a body of your own;
 * the functions below call it. */
void http_reply_retry(struct http_req *r, int status, const struct err *e);
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
/* The body without its Content-Encoding (identity, gzip, zstd, br, deflate), bounded by l; runs on
 * a pool thread. *ret points into r->body or into *tmp. Unknown encodings: ERR_INPUT. */
struct inflate_limits;
NODISCARD int http_body_plain(const struct http_req *r, const struct inflate_limits *l,
                              struct buf *tmp, struct str *ret, struct err *e);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * http_server.h: what the parts of the server know of each other; nobody outside common/net
 * includes it.
 *
 *   tcp.c ──stream──> http1.c ──exchange──> handler ──http_reply*──> http_reply.c ──answer──>
 * http1.c
 *
 * An exchange is one request and its reply. It knows no connection, only a sink that takes the
 * answer: the same exchange serves HTTP/1.1 and, one day, a stream of HTTP/2. If its connection
 * dies first it loses the sink and lives on until the handler replied.
 */
#ifndef COMMON_NET_HTTP_SERVER_H
#define COMMON_NET_HTTP_SERVER_H

#include "common/base/list.h"
#include "common/net/cbuf.h"
#include "common/net/http.h"
#include "common/net/http_route.h"
#include "common/net/stream.h"
#include "common/net/wheel.h"

#define HTTP_XCHG_MAGIC        MAGIC('X', 'C', 'H', 'G')
#define HTTP_REPLY_HEADERS_MAX 24
#define HTTP_REPLY_VALUE_MAX   (4 * KIB)
#define HTTP_COMPRESS_LEAST    1400
#define HTTP_COMPRESS_INLINE   (64 * KIB) /* longer bodies go to the pool */
#define HTTP_ARENAS_KEPT       64
#define HTTP_REFUSING_MAX      128 /* connections over the limit that are being told so */

/* What a protocol has to send. Slices live for the call; *own may be moved out. */
struct http_answer {
    int status;
    bool close;   /* the connection should not be used again */
    bool no_body; /* HEAD, 204, 304 */
    const struct http_header *headers;
    size_t headers_len;
    struct str body;
    struct buf *own; /* where body lives; NULL: body is borrowed until the server is freed */
};

struct http_xchg;
struct http_sink {
    /* Takes the answer; *x is freed by the caller afterwards. */
    void (*answer)(void *proto, struct http_xchg *x, const struct http_answer *a);
};

struct http_xchg {
    struct http_req req; /* first; magic is HTTP_XCHG_MAGIC */
    struct http_server *server;
    const struct http_sink *sink; /* NULL: nobody waits for the answer any more */
    void *proto;
    struct http_route *route; /* the server's `unrouted` until one is found */
    struct cbuf body;
    size_t charged; /* for the copy of the head */
    bool started;   /* the handler was called */
    bool replied;
    bool close; /* the answer must end the connection */
    char peer[56];
    /* the reply */
    int status;
    bool no_gzip; /* Content-Encoding was set */
    bool has_retry;
    struct buf out, zip;
    struct str borrowed; /* instead of out, where out_borrowed */
    bool out_borrowed;
    struct buf text; /* of the headers below */
    struct {
        uint32_t name, name_len, value, value_len; /* offsets into text */
    } headers[HTTP_REPLY_HEADERS_MAX];
    size_t headers_len;
};

/* Head of every connection, whatever it speaks. */
struct http_conn {
    struct list link; /* server.conns */
    struct http_server *server;
    void (*drain)(struct http_conn *c); /* close if idle; else the running ones end it */
    bool refused;                       /* over connections_max */
};

enum http_refusal {
    HTTP_REFUSED_CONNECTIONS,
    HTTP_REFUSED_BUDGET,
    HTTP_REFUSED_TIMEOUT,
    HTTP_REFUSED_BODY,
    HTTP_REFUSED_MALFORMED,
    HTTP_REFUSED_ACCEPT,
    HTTP_REFUSALS
};

struct tcp_listener;
struct http_server {
    struct http_server_opts o;
    struct budget budget_own;    /* where o.in_flight is NULL */
    struct metrics *metrics_own; /* where o.metrics is NULL */
    struct http_routes routes;
    struct http_route unrouted; /* counts what found no route */
    struct tcp_listener *listener;
    struct wheel wheel;
    struct list conns;
    size_t conns_len, refusing, xchgs;
    struct arena *arenas[HTTP_ARENAS_KEPT];
    size_t arenas_len;
    struct http_head head; /* scratch of one parse */
    uint64_t id_last;
    int64_t date_s;
    char date[64];
    bool draining, drained;
    void (*done)(void *cookie);
    void *done_cookie;
    struct metric *requests, *seconds;
    struct metric_cell *running, *connections, *received, *sent, *refused[HTTP_REFUSALS];
};

/* ---- http_server.c */
/* A new connection: starts the protocol on it, or refuses it. Takes the stream over. */
void http_server_attach(struct http_server *s, struct stream *stream);
void http_server_add(struct http_server *s, struct http_conn *c);
void http_server_del(struct http_server *s, struct http_conn *c);
void http_server_check_drained(struct http_server *s);
uint64_t http_server_now_ms(const struct http_server *s);
struct str http_server_date(struct http_server *s);

/* ---- http_xchg.c */
struct http_xchg *http_xchg_new(struct http_server *s, const struct http_sink *sink, void *proto,
                                const char *peer);
/* Fills the request from a parsed head and finds the route. False: it was answered already. */
bool http_xchg_begin(struct http_xchg *x, const struct http_head *h);
/* Appends to the body; `max` bounds the capacity. 0, or ERR_TOO_LARGE, ERR_BUSY. */
NODISCARD int http_xchg_body(struct http_xchg *x, struct str bytes, size_t max);
void http_xchg_run(struct http_xchg *x); /* calls the handler; x may be gone after it */
/* The connection died: tells the handler, or frees what it never saw. */
void http_xchg_detach(struct http_xchg *x);
void http_xchg_gone(struct http_xchg *x); /* tells the handler, keeps the sink */
void http_xchg_free(struct http_xchg *x);
void http_xchg_count(struct http_xchg *x);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * http_server.h: declarations shared by the parts of the server; only common/net includes it.
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
#include "common/net/http_shares.h"
#include "common/net/stream.h"
#include "common/net/wheel.h"

#define HTTP_XCHG_MAGIC        MAGIC('X', 'C', 'H', 'G')
#define HTTP_REPLY_HEADERS_MAX 24
#define HTTP_TRAILERS_MAX      8
#define HTTP_REPLY_VALUE_MAX   (4 * KIB)
#define HTTP_COMPRESS_LEAST    1400
#define HTTP_COMPRESS_INLINE   (64 * KIB) /* longer bodies go to the pool */
#define HTTP_ARENAS_KEPT       64
#define HTTP_DRAIN_IDLE_MS     500 /* a draining server waits so long for what may be on its way */
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
    const struct http_header *trailers;
    size_t trailers_len;
};

struct http_xchg;
struct http_sink {
    /* Takes the answer; *x is freed by the caller afterwards. */
    void (*answer)(void *proto, struct http_xchg *x, const struct http_answer *a);
    /* The same in pieces: the head (body is empty), more of the body (moved out), the end, where
     * only the trailers of *a count; or an end that looks broken. *x is freed by the caller after
     * end and abort. None of them calls the handler. */
    void (*begin)(void *proto, struct http_xchg *x, const struct http_answer *a);
    void (*part)(void *proto, struct http_xchg *x, struct buf *part);
    void (*end)(void *proto, struct http_xchg *x, const struct http_answer *a);
    void (*abort)(void *proto, struct http_xchg *x);
    size_t (*queued)(const void *proto, const struct http_xchg *x);
    /* The handler dealt with n bytes of the body; the next may be handed on, but not from here. */
    void (*took)(void *proto, struct http_xchg *x, size_t n);
};

struct http_xchg {
    struct http_req req; /* first; magic is HTTP_XCHG_MAGIC */
    struct http_server *server;
    const struct http_sink *sink; /* NULL: no connection waits for the answer any more */
    void *proto;
    struct http_route *route; /* the server's `unrouted` until one is found */
    struct cbuf body;
    struct http_hold hold; /* body and outstanding */
    size_t charged;        /* for the copy of the head */
    size_t outstanding;    /* of a streamed body: handed on, not taken, charged */
    uint64_t got;          /* of a streamed body */
    bool started;          /* the handler was called */
    bool ended;            /* on_end was called, or is not due */
    bool replied;
    bool streaming;  /* replied in pieces */
    bool wants_room; /* on_room is due */
    bool http2;
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
    struct http_line {
        uint32_t name, name_len, value, value_len; /* offsets into text */
    } headers[HTTP_REPLY_HEADERS_MAX], trailers[HTTP_TRAILERS_MAX];
    size_t headers_len, trailers_len;
};

/* Head of every connection, whatever it speaks. */
struct http_conn {
    struct list link; /* server.conns */
    struct http_server *server;
    void (*drain)(struct http_conn *c); /* close if idle; else the running ones end it */
    void (*on_deadline)(struct http_conn *c);
    struct wheel_entry deadline;
    bool refused; /* over connections_max */
};

enum http_refusal {
    HTTP_REFUSED_CONNECTIONS,
    HTTP_REFUSED_BUDGET,
    HTTP_REFUSED_TIMEOUT,
    HTTP_REFUSED_BODY,
    HTTP_REFUSED_MALFORMED,
    HTTP_REFUSED_ACCEPT,
    HTTP_REFUSED_FLOOD,
    HTTP_REFUSED_TLS,
    HTTP_REFUSED_HOST,
    HTTP_REFUSED_SITE,
    HTTP_REFUSED_SHARE,
    HTTP_REFUSALS
};

struct tcp_listener;
struct tls_ctx;
struct http_server {
    struct http_server_opts o;
    struct budget budget_own;    /* where o.in_flight is NULL */
    struct metrics *metrics_own; /* where o.metrics is NULL */
    struct http_routes routes;
    struct http_route unrouted; /* counts what found no route */
    struct http_route lost;     /* the same, where its body is taken first */
    struct tcp_listener *listener;
    struct tcp_listener *local; /* the Unix socket; NULL: none */
    struct tls_ctx *tls;        /* NULL: plain only */
    struct http_shares *shares; /* NULL: there is one tenant */
    size_t held;                /* fixed costs of connections that are not small */
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
    struct metric_cell *running, *connections, *received, *sent, *tls_not_after,
        *refused[HTTP_REFUSALS];
};

/* ---- http_server.c */
/* A new connection: starts the protocol on it, or refuses it. Takes the stream over. */
void http_server_attach(struct http_server *s, struct stream *stream);
void http_server_add(struct http_server *s, struct http_conn *c);
void http_server_del(struct http_server *s, struct http_conn *c);
/* Half as many bytes as the in-flight budget has may go for what TLS and HTTP/2 cost each open
 * connection, whatever it does. */
NODISCARD bool http_server_hold(struct http_server *s, size_t bytes);
void http_server_release(struct http_server *s, size_t bytes);
void http_server_check_drained(struct http_server *s);
uint64_t http_server_now_ms(const struct http_server *s);
struct str http_server_date(struct http_server *s);

/* ---- http_xchg.c */
struct http_xchg *http_xchg_new(struct http_server *s, const struct http_sink *sink, void *proto,
                                const struct stream *from);
/* Fills the request from a parsed head and finds the route. False: it was answered already. */
bool http_xchg_begin(struct http_xchg *x, const struct http_head *h);
/* Appends to the body; `max` bounds the capacity. 0, or ERR_TOO_LARGE, ERR_RATE, ERR_BUSY. */
NODISCARD int http_xchg_body(struct http_xchg *x, struct str bytes, size_t max);
/* Of a streaming route, after http_xchg_run: bytes of the body that may be handed on now. */
static inline size_t http_xchg_window(const struct http_xchg *x)
{
    return HTTP_STREAM_WINDOW - x->outstanding;
}
/* Hands on at most that many; the handler may reply: x may be gone after it. 0, or ERR_TOO_LARGE,
 * ERR_RATE, ERR_BUSY with nothing handed on: then http_xchg_ended is due. */
NODISCARD int http_xchg_data(struct http_xchg *x, struct str bytes, struct err *e);
/* The body is whole (NULL) or will not be; x may be gone after it. Twice is fine. */
void http_xchg_ended(struct http_xchg *x, const struct err *e);
/* The client took some of a reply in pieces; `queued` is left. x may be gone after it. */
void http_xchg_room(struct http_xchg *x, size_t queued);
void http_xchg_run(struct http_xchg *x); /* calls the handler; x may be gone after it */
/* The connection died: tells the handler, or frees what it never saw. */
void http_xchg_detach(struct http_xchg *x);
void http_xchg_gone(struct http_xchg *x); /* tells the handler, keeps the sink */
void http_xchg_free(struct http_xchg *x);
void http_xchg_count(struct http_xchg *x);

/* ---- http_reply.c, for http_stream.c */
struct http_reply_head {
    struct http_header list[HTTP_REPLY_HEADERS_MAX + 6], trailers[HTTP_TRAILERS_MAX];
    size_t len, trailers_len;
    char id[16], length[20];
};
void http_reply_status_set(struct http_xchg *x, int status, const char *content_type);
/* All headers of the reply; points into x and *to. length: NULL for none. */
void http_reply_head(struct http_xchg *x, const size_t *length, struct http_reply_head *to);

#endif

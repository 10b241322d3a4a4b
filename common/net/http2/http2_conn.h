/* SPDX-License-Identifier: Apache-2.0
 *
 * http2_conn.h: one HTTP/2 connection, for the files that make it up: http2.c (events, the run that
 * moves bytes, the end), http2_timer.c (deadlines), http2_in.c (what frames mean), http2_out.c
 * (what goes out).
 */
#ifndef COMMON_NET_HTTP2_HTTP2_CONN_H
#define COMMON_NET_HTTP2_HTTP2_CONN_H

#include <nghttp2/nghttp2.h>

#include "common/net/http_server.h"
#include "common/net/outq.h"

#define HTTP2_MAGIC        MAGIC('H', 'T', 'P', '2')
#define HTTP2_STREAMS_MAX  100 /* at once; sent to the client in SETTINGS */
#define HTTP2_LEFT_MAX     200 /* with those it reset while their handlers run */
#define HTTP2_CONN_WINDOW  (1 * MIB)
#define HTTP2_STREAM_COST  (6 * KIB)  /* charged for what a stream needs whatever it carries */
#define HTTP2_CONN_COST    (20 * KIB) /* of nghttp2's session and its tables, roughly */
#define HTTP2_NEVER        UINT64_MAX
#define HTTP2_LINGER_MS    2000
#define HTTP2_PROGRESS     (8 * KIB) /* bytes that must move within body_ms and write_ms */
#define HTTP2_RESETS_BURST 200       /* streams reset by the client, and how many a second */
#define HTTP2_RESETS_RATE  20
#define HTTP2_IDLE_FRAMES  1000 /* frames without any use, and how many a second */
#define HTTP2_IDLE_RATE    100

/* Tokens that come back with time. */
struct http2_bucket {
    uint32_t left;
    uint64_t at_ms;
};

/* The header block that is being read; one at a time on a connection. */
struct http2_head {
    int32_t id;
    bool trailers; /* they are counted and thrown away */
    struct cbuf text;
    struct http_line lines[HTTP_HEADERS_MAX];
    size_t len, bytes;
    bool over; /* more or longer than allowed: 431 */
    struct http_line method, path, scheme, authority;
};

/* One request; lives until nghttp2 closed its stream and its handler replied. */
struct http2_stream {
    struct list link; /* conn.streams */
    struct http2 *conn;
    int32_t id;
    struct http_xchg *x; /* from the end of its head to its answer */
    bool dead;           /* nghttp2 knows it no more */
    bool ended;          /* the client's END_STREAM was seen */
    bool discard;        /* what still comes of its body is thrown away */
    /* the reply */
    bool answering;   /* its head was submitted */
    bool done;        /* no bytes will be added to the waiting ones */
    bool deferred;    /* nghttp2 waits for http2_resume */
    bool overrun;     /* the client takes too little: to be reset */
    bool mute;        /* no body: HEAD */
    struct str bytes; /* the rest of one answer: in own, or constant */
    struct buf own;
    size_t charged;   /* for own */
    struct cbuf tail; /* or the pieces, from tail_pos on */
    size_t tail_pos;
    struct buf trailer_text;
    struct http_line trailers[HTTP_TRAILERS_MAX];
    size_t trailers_len;
    uint64_t sent;
    /* deadlines, monotonic ms */
    uint64_t body_due, write_due;
    uint64_t body_mark, sent_mark; /* progress when they were set */
};

struct http2 {
    struct http_conn conn; /* first */
    uint32_t magic;
    struct stream *stream;    /* owned until on_closed */
    nghttp2_session *session; /* owned */
    struct list streams;
    size_t streams_len, live; /* live: not dead */
    struct http2_head *head;  /* owned; NULL between header blocks */
    struct outq out;
    struct http2_bucket resets, idle_frames;
    bool running, kicked;
    bool reading;
    bool greeted;   /* the client's SETTINGS came */
    bool goaway;    /* no new streams */
    bool lingering; /* all was said, the client's bytes are thrown away */
    bool closing;
    uint64_t goaway_due; /* of a server that drains; 0: it does not */
    uint64_t phase_due;  /* greeting, header block, idle, linger */
    uint64_t write_due;
    size_t unsent_mark;
};

/* ---- http2.c */
void http2_close(struct http2 *c); /* safe in every state, twice too */
void http2_kick(struct http2 *c);  /* runs soon, not from inside the caller */
/* Ends the connection with this code, once it was sent. */
void http2_terminate(struct http2 *c, uint32_t error_code);
struct http2_stream *http2_stream_new(struct http2 *c, int32_t id);
void http2_stream_free(struct http2_stream *s);
/* Resets it, and notifies its handler, if one runs, that the client is gone. */
void http2_reset(struct http2_stream *s, uint32_t error_code);

/* ---- http2_timer.c */
uint64_t http2_timer_in(const struct http2 *c, uint32_t ms);
/* One token; false if none is left. */
bool http2_bucket_take(struct http2_bucket *b, uint64_t now_ms, uint32_t max, uint32_t rate);
void http2_set_deadline(struct http2 *c);
void http2_set_phase(struct http2 *c); /* after its head, its streams or its greeting changed */
void http2_on_deadline(struct http_conn *conn);

/* ---- http2_in.c */
void http2_callbacks_in(nghttp2_session_callbacks *cb);
void http2_head_free(struct http2 *c);
/* The rest of a body will not come: refuses the request, or tells the handler that runs. */
void http2_refuse(struct http2_stream *s, int code, const char *why);

/* ---- http2_out.c */
extern const struct http_sink http2_sink;
void http2_callbacks_out(nghttp2_session_callbacks *cb);
size_t http2_waiting(const struct http2_stream *s); /* bytes of its reply not given to nghttp2 */

#endif

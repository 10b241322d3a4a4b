/* SPDX-License-Identifier: Apache-2.0
 *
 * http1_conn.h: one HTTP/1.1 connection, for the three files that make it up: http1.c (events, the
 * loop that advances, deadlines), http1_step.c (what the bytes mean), http1_answer.c (what goes
 * out).
 */
#ifndef COMMON_NET_HTTP1_HTTP1_CONN_H
#define COMMON_NET_HTTP1_HTTP1_CONN_H

#include "common/net/http_chunk.h"
#include "common/net/http_server.h"
#include "common/net/outq.h"

#define HTTP1_MAGIC MAGIC('H', 'T', 'P', '1')

enum http1_state {
    HTTP1_IDLE,
    HTTP1_HEAD,
    HTTP1_BODY,
    HTTP1_WORK,
    HTTP1_FLUSH,
    HTTP1_LINGER,
    HTTP1_CLOSING,
};
struct http1 {
    struct http_conn conn; /* first */
    uint32_t magic;
    enum http1_state state;
    struct stream *stream; /* owned until on_closed */
    bool running;          /* inside run() */
    bool reading;          /* the last argument of stream->ops->read */
    bool eof;              /* the client closed its sending side */
    /* input */
    struct cbuf in;
    struct str view; /* input not yet consumed; valid inside run() */
    size_t scanned;  /* bytes of view the gate has seen */
    struct http_gate gate;
    /* the request */
    struct http_xchg *x; /* from the end of its head to its answer */
    bool minor_zero;     /* HTTP/1.0: keep-alive must be said */
    bool keep_alive;
    bool unread; /* its body was not consumed: nothing behind it can be trusted */
    bool chunked;
    uint64_t left; /* of a body with a length */
    struct http_chunk chunk;
    /* output */
    struct outq out;
    bool close_after;
    bool linger;
    /* a reply in pieces, from its head to its end */
    struct cbuf tail; /* what the write under way keeps from out */
    bool plain;       /* its bytes are sent without chunk framing: HTTP/1.0 */
    bool mute;        /* it has no body: HEAD */
    bool overrun;     /* the client takes too little: to be closed */
    bool kicked;      /* a run is posted */
    /* deadlines, monotonic ms */
    uint64_t phase_due, write_due;
    uint64_t body_mark; /* progress when the deadline was set */
    size_t unsent_mark;
};

/* ---- http1.c */
void http1_go(struct http1 *c, enum http1_state to); /* the only place that changes the state */
/* Advances as far as `view` leads; keeps the rest of it. Not from inside itself. */
void http1_run(struct http1 *c, struct str view);
void http1_close(struct http1 *c); /* safe in every state, twice too */
void http1_kick(struct http1 *c);  /* runs soon, not from inside the caller */
static inline struct str http1_kept(const struct http1 *c)
{
    return (struct str){ c->in.ptr, c->in.len };
}

/* ---- http1_step.c: true means something moved, step again */
bool http1_step(struct http1 *c);

/* ---- http1_answer.c */
void http1_begin_xchg(struct http1 *c);
/* Answers before any handler saw the request, and gives the connection up. */
void http1_refuse(struct http1 *c, int status, const char *code, const char *why);
void http1_refuse_busy(struct http1 *c);
/* The rest of a streamed body will not come: its handler says so to the client. */
void http1_cut_body(struct http1 *c, const struct err *e);
/* A body in pieces that the handler must deal with before more can be handed on. */
bool http1_body_waits(const struct http1 *c);
/* What a reply in pieces has for the stream goes there, if it is free. */
void http1_pump(struct http1 *c);
size_t http1_queued(const struct http1 *c);

#endif

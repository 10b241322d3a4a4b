/* SPDX-License-Identifier: Apache-2.0
 *
 * http_start: which protocol a connection speaks, by its first bytes.
 *
 *   bytes ──0x16, and there is a certificate──> tls.c ──its plain bytes, or ALPN──┐
 *     │ <───────────────────────────────────────────────────────────────────────┘
 *     ├──"PRI * HTTP/2.0..." (24 bytes)──> http2.c
 *     └──anything else, as soon as it differs──> http1.c
 *
 * So one port serves TLS, HTTP/2 and HTTP/1.1. A handshake has until the deadline of the first
 * byte. A client that uses TLS where plain HTTP is expected, or the reverse, gets an answer in
 * plain HTTP that says so.
 *
 * No request of HTTP/1 begins like the preface, which was chosen for that (RFC 9113 3.4). What was
 * read to find out, 23 bytes at most, is handed on in front of the rest.
 */
#include "common/net/http_start.h"

#include "common/net/http1/http1.h"
#include "common/net/http2/http2.h"
#include "common/net/tls.h"

#define START_MAGIC MAGIC('S', 'T', 'R', 'T')

struct start {
    struct http_conn conn; /* first */
    uint32_t magic;
    struct stream *stream; /* owned until handed on */
    bool closing;
    size_t len;
    char first[24];
};

static const struct stream_events events;

static void free_start(struct start *c)
{
    wheel_clear(&c->conn.server->wheel, &c->conn.deadline);
    c->magic = 0;
    http_server_del(c->conn.server, &c->conn);
    xfree(c);
}

static void close_start(struct start *c)
{
    if (c->closing)
        return;
    c->closing = true;
    wheel_clear(&c->conn.server->wheel, &c->conn.deadline);
    c->stream->ops->close(c->stream);
}

/* The new owner is there before the old one goes, so that a draining server sees one of them. */
static void hand_on(struct start *c, bool h2, struct str rest)
{
    struct http_server *s = c->conn.server;
    struct stream *stream = c->stream;
    struct str first = { c->first, c->len };

    if (h2) {
        http2_open(s, stream, first);
    } else {
        http1_open(s, stream);
        if (first.len)
            stream->up->on_bytes(stream->cookie, first);
    }
    free_start(c);
    if (rest.len)
        stream->up->on_bytes(stream->cookie, rest);
}

/* ---- TLS */

static void tls_done(void *cookie)
{
    http_server_release(cookie, TLS_COST);
}

static void check_files(struct http_server *s)
{
    struct err e;
    bool changed;
    int code = tls_ctx_check(s->tls, http_server_now_ms(s), &changed, &e);

    if (changed)
        metric_set(s->tls_not_after, tls_ctx_not_after(s->tls));
    if ((code || changed) && s->o.on_tls_files)
        s->o.on_tls_files(s->o.tls_cookie, code ? &e : NULL);
}

static void wrap(struct start *c, struct str bytes)
{
    struct http_server *s = c->conn.server;
    struct stream *down = c->stream;

    if (!http_server_hold(s, TLS_COST)) {
        metric_add(s->refused[HTTP_REFUSED_BUDGET], 1);
        close_start(c);
        return;
    }
    check_files(s);
    c->stream = tls_server_stream(s->tls, down, s->o.loop, tls_done, s);
    c->stream->up = &events;
    c->stream->cookie = c;
    c->stream->ops->read(c->stream, true);
    down->up->on_bytes(down->cookie, bytes);
}

static void refuse(struct start *c, const char *why)
{
    http1_open_refused(c->conn.server, c->stream, false, 400, why);
    free_start(c);
}

/* True: these bytes are dealt with. */
static bool sort_first(struct start *c, struct str bytes)
{
    const struct http_server *s = c->conn.server;
    bool hello = (uint8_t)bytes.ptr[0] == TLS_FIRST_BYTE;

    if (c->stream->tls || c->len || bytes.len == 0)
        return false;
    if (hello && s->tls)
        wrap(c, bytes);
    else if (hello)
        refuse(c, "this port speaks plain HTTP, not TLS: use http://");
    else if (s->o.tls_only && !c->stream->local)
        refuse(c, "this port speaks only TLS: use https://");
    else
        return false;
    return true;
}

/* ---- events */

static void on_bytes(void *cookie, struct str bytes)
{
    struct start *c = cookie;
    struct str preface = HTTP2_PREFACE;

    CHECK(c->magic == START_MAGIC);
    if (c->closing || sort_first(c, bytes))
        return;
    if (c->stream->h2) {
        hand_on(c, true, bytes);
        return;
    }
    for (size_t i = 0; i < bytes.len && c->len < preface.len; i++) {
        if (bytes.ptr[i] != preface.ptr[c->len]) {
            if (c->len == i) /* they all came in this piece, which is handed on whole */
                c->len = i = 0;
            hand_on(c, false, str_sub(bytes, i, bytes.len));
            return;
        }
        c->first[c->len++] = bytes.ptr[i];
        if (c->len == preface.len) {
            hand_on(c, true, str_sub(bytes, i + 1, bytes.len));
            return;
        }
    }
}

static void on_end(void *cookie, bool broken)
{
    struct start *c = cookie;

    if (c->stream->tls && broken)
        metric_add(c->conn.server->refused[HTTP_REFUSED_TLS], 1);
    close_start(c);
}

static void on_written(void *cookie, bool ok)
{
    (void)cookie, (void)ok; /* nothing is written here */
}

static void on_closed(void *cookie)
{
    struct start *c = cookie;

    CHECK(c->magic == START_MAGIC && c->closing);
    free_start(c);
}

static void on_deadline(struct http_conn *conn)
{
    close_start(container_of(conn, struct start, conn));
}

/* Its first request may be on its way. */
static void on_drain(struct http_conn *conn)
{
    struct start *c = container_of(conn, struct start, conn);

    if (!c->closing)
        wheel_set(&conn->server->wheel, &conn->deadline,
                  http_server_now_ms(conn->server) + HTTP_DRAIN_IDLE_MS);
}

static const struct stream_events events = {
    .on_bytes = on_bytes,
    .on_end = on_end,
    .on_written = on_written,
    .on_closed = on_closed,
};

void http_start_open(struct http_server *s, struct stream *stream)
{
    struct start *c = XNEW(struct start);

    c->magic = START_MAGIC;
    c->conn.drain = on_drain;
    c->conn.on_deadline = on_deadline;
    c->stream = stream;
    stream->up = &events;
    stream->cookie = c;
    http_server_add(s, &c->conn);
    if (s->o.head_ms)
        wheel_set(&s->wheel, &c->conn.deadline, http_server_now_ms(s) + s->o.head_ms);
    if (s->draining)
        on_drain(&c->conn);
    stream->ops->read(stream, true);
}

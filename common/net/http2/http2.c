/* SPDX-License-Identifier: Apache-2.0
 *
 * http2: one connection that speaks HTTP/2, by nghttp2.
 *
 *   bytes ──> nghttp2 ──> http2_in.c ──exchange──> handler
 *   stream <── outq <── nghttp2 <── http2_out.c <──answer──┘
 *
 * nghttp2 knows frames, HPACK, flow control and which of them break the protocol. What may cost
 * something is decided here, since nghttp2 says yes to nearly everything:
 *
 *   streams at once        HTTP2_STREAMS_MAX; with those reset while a handler runs HTTP2_LEFT_MAX
 *   a stream               HTTP2_STREAM_COST, charged, before anything is kept for it
 *   a header block         head_bytes_max and HTTP_HEADERS_MAX, counted decoded (so that HPACK
 *                          expands nothing), charged; one at a time; CONTINUATIONs: nghttp2, 8
 *   a body                 as HTTP/1.1: body_max, charged as it comes; the connection's window
 *                          opens as soon as bytes are charged: its size promises no memory
 *   a body in pieces       its stream's window, HTTP_STREAM_WINDOW, opens as the handler takes them
 *   a reply                charged; over a full budget a large one becomes a 503; a stream that
 *                          takes less than 8 KiB of it in write_ms, or not its end, is reset
 *   frames to be written   outq holds about 64 KiB, the rest stays in nghttp2; while the socket is
 *                          stuck and more than OUTBOUND_MAX frames wait, nothing is read
 *   resets                 a bucket (CVE-2023-44487); empty: GOAWAY, ENHANCE_YOUR_CALM
 *   PING, SETTINGS, WINDOW_UPDATE, empty DATA, PRIORITY   another bucket, filled by bytes
 *                          of bodies and replies
 *
 * run() is the only place where bytes move; callbacks of nghttp2 come from inside it, and a handler
 * that replies there is picked up by the writing that follows. From elsewhere a kick posts a run,
 * so that many replies go out in one write. A stream is freed when nghttp2 has closed it and its
 * handler has replied, whichever is later.
 *
 * The end: after GOAWAY nghttp2 wants neither to read nor to write; then the sending side is shut
 * and input is thrown away for a while, as HTTP/1.1 does and for the same reason.
 */
#include "common/net/http2/http2.h"

#include "common/net/http1/http1.h"
#include "common/net/http2/http2_conn.h"

#define OUTBOUND_MAX 128
#define OUT_ENOUGH   (64 * KIB)

static void http2_run(struct http2 *c, struct str bytes);

/* ---- streams */

struct http2_stream *http2_stream_new(struct http2 *c, int32_t id)
{
    struct http2_stream *s;

    if (!budget_reserve(c->conn.server->o.in_flight, HTTP2_STREAM_COST))
        return NULL;
    s = XNEW(struct http2_stream);
    s->conn = c;
    s->id = id;
    s->body_due = s->write_due = HTTP2_NEVER;
    buf_init(&s->own, SIZE_MAX);
    buf_init(&s->trailer_text, HTTP_TRAILERS_MAX * (HTTP_REPLY_VALUE_MAX + 256));
    list_init(&s->link);
    list_add_tail(&c->streams, &s->link);
    c->streams_len++;
    c->live++;
    return s;
}

void http2_stream_free(struct http2_stream *s)
{
    struct http2 *c = s->conn;
    struct budget *g = c->conn.server->o.in_flight;

    CHECK(s->dead && !s->x);
    budget_release(g, HTTP2_STREAM_COST + s->charged);
    cbuf_free(&s->tail, g);
    buf_deinit(&s->own);
    buf_deinit(&s->trailer_text);
    list_del(&s->link);
    c->streams_len--;
    xfree(s);
}

void http2_reset(struct http2_stream *s, uint32_t error_code)
{
    if (!s->dead)
        (void)nghttp2_submit_rst_stream(s->conn->session, NGHTTP2_FLAG_NONE, s->id, error_code);
    s->discard = true;
    if (s->x)
        http_xchg_gone(s->x);
}

/* ---- the end */

void http2_close(struct http2 *c)
{
    if (c->closing)
        return;
    c->closing = true;
    wheel_clear(&c->conn.server->wheel, &c->conn.deadline);
    c->stream->ops->close(c->stream);
    while (!list_empty(&c->streams)) {
        struct http2_stream *s = container_of(c->streams.next, struct http2_stream, link);
        struct http_xchg *x = s->x;

        if (!s->dead) {
            (void)nghttp2_session_set_stream_user_data(c->session, s->id, NULL);
            s->dead = true;
            c->live--;
        }
        s->x = NULL;
        http2_stream_free(s);
        if (x)
            http_xchg_detach(x);
    }
}

void http2_terminate(struct http2 *c, uint32_t error_code)
{
    c->goaway = true;
    (void)nghttp2_session_terminate_session(c->session, error_code);
    http2_kick(c);
}

static void on_closed(void *cookie)
{
    struct http2 *c = cookie;

    CHECK(c->magic == HTTP2_MAGIC && c->closing && !c->running && list_empty(&c->streams));
    c->magic = 0;
    nghttp2_session_del(c->session);
    http2_head_free(c);
    outq_free(&c->out);
    http_server_release(c->conn.server, HTTP2_CONN_COST);
    http_server_del(c->conn.server, &c->conn);
    if (!c->kicked)
        xfree(c);
}

static void on_kick(void *cookie)
{
    struct http2 *c = cookie;

    CHECK(!c->running);
    c->kicked = false;
    if (c->magic == 0)
        xfree(c);
    else if (!c->closing)
        http2_run(c, STR_NULL);
}

void http2_kick(struct http2 *c)
{
    if (c->running || c->kicked || c->closing)
        return;
    c->kicked = true;
    loop_post(c->conn.server->o.loop, on_kick, c);
}

/* ---- run */

static void read_input(struct http2 *c, struct str bytes)
{
    ssize_t n =
        nghttp2_session_mem_recv(c->session, (const uint8_t *)(const void *)bytes.ptr, bytes.len);

    if (n >= 0)
        return;
    metric_add(c->conn.server->refused[HTTP_REFUSED_MALFORMED], 1);
    http2_close(c); /* not HTTP/2, or so many frames to answer that even GOAWAY has no place */
}

/* Takes frames from nghttp2 until the stream is stuck or there are no more. */
static void write_output(struct http2 *c)
{
    bool more = true;

    while (more && !c->closing && !c->out.frozen) {
        struct buf *b = outq_text(&c->out);
        size_t before = b->len;

        while (more && b->len < OUT_ENOUGH) {
            const uint8_t *p = NULL;
            ssize_t n = nghttp2_session_mem_send(c->session, &p);
            if (n < 0) {
                http2_close(c);
                return;
            }
            more = n > 0;
            buf_add(b, p, (size_t)n);
        }
        outq_text_end(&c->out, b->len - before);
        metric_add(c->conn.server->sent, b->len - before);
        if (b->len == 0) {
            outq_free(&c->out); /* an idle connection holds no buffer */
            return;
        }
        if (outq_flush(&c->out) == OUTQ_BROKEN)
            http2_close(c);
    }
}

static void linger(struct http2 *c)
{
    if (c->lingering || c->closing || c->out.frozen || nghttp2_session_want_read(c->session) ||
        nghttp2_session_want_write(c->session))
        return;
    c->lingering = true;
    c->phase_due = http2_timer_in(c, HTTP2_LINGER_MS);
    c->stream->ops->shut(c->stream);
}

/* First a word that no requests should come, while those on their way are served; then the last. */
static void drain(struct http2 *c)
{
    if (!c->conn.server->draining || c->closing || c->lingering)
        return;
    if (!c->goaway && !c->goaway_due) {
        c->goaway_due = http2_timer_in(c, HTTP_DRAIN_IDLE_MS);
        (void)nghttp2_submit_shutdown_notice(c->session);
    }
    if (!c->goaway && http_server_now_ms(c->conn.server) < c->goaway_due)
        return;
    if (!c->goaway) {
        c->goaway = true;
        (void)nghttp2_submit_goaway(c->session, NGHTTP2_FLAG_NONE,
                                    nghttp2_session_get_last_proc_stream_id(c->session),
                                    NGHTTP2_NO_ERROR, NULL, 0);
    }
    if (c->live == 0)
        (void)nghttp2_session_terminate_session(c->session, NGHTTP2_NO_ERROR);
}

static void set_reading(struct http2 *c)
{
    bool on =
        !(c->out.frozen && nghttp2_session_get_outbound_queue_size(c->session) > OUTBOUND_MAX);

    if (c->closing || on == c->reading)
        return;
    c->reading = on;
    c->stream->ops->read(c->stream, on);
}

/* Tells the handlers whose replies have room again. They may reply, so the list may change. */
static void give_room(struct http2 *c)
{
    bool again = true;

    while (again && !c->closing) {
        again = false;
        list_for (it, &c->streams) {
            struct http2_stream *s = container_of(it, struct http2_stream, link);
            if (!s->x || s->dead || !s->x->wants_room || http2_waiting(s) >= HTTP_STREAM_ROOM)
                continue;
            http_xchg_room(s->x, http2_waiting(s));
            again = true;
            break;
        }
    }
}

static void http2_run(struct http2 *c, struct str bytes)
{
    bool was_under_way = c->out.frozen > 0;

    CHECK(!c->running && !c->closing);
    c->running = true;
    if (bytes.len)
        read_input(c, bytes);
    drain(c);
    write_output(c);
    if (c->out.frozen && !was_under_way && !c->closing) {
        c->write_due = http2_timer_in(c, c->conn.server->o.write_ms);
        c->unsent_mark = c->stream->ops->unsent(c->stream);
    }
    drain(c); /* the last stream may just have ended */
    if (!c->closing && nghttp2_session_want_write(c->session))
        write_output(c);
    c->running = false;
    linger(c);
    give_room(c);
    if (c->closing)
        return;
    set_reading(c);
    http2_set_deadline(c);
}

/* ---- events */

static void on_bytes(void *cookie, struct str bytes)
{
    struct http2 *c = cookie;

    CHECK(c->magic == HTTP2_MAGIC);
    metric_add(c->conn.server->received, bytes.len);
    if (!c->closing && !c->lingering)
        http2_run(c, bytes);
}

static void on_end(void *cookie, bool broken)
{
    struct http2 *c = cookie;

    (void)broken; /* no HTTP/2 client closes one side only */
    CHECK(c->magic == HTTP2_MAGIC);
    http2_close(c);
}

static void on_written(void *cookie, bool ok)
{
    struct http2 *c = cookie;

    CHECK(c->magic == HTTP2_MAGIC);
    outq_written(&c->out);
    if (!ok)
        http2_close(c);
    else if (!c->closing)
        http2_run(c, STR_NULL);
}

static void on_drain(struct http_conn *conn)
{
    struct http2 *c = container_of(conn, struct http2, conn);

    CHECK(c->magic == HTTP2_MAGIC);
    http2_kick(c);
}

/* ---- life */

static void open_session(struct http2 *c)
{
    const nghttp2_settings_entry settings[] = {
        { NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, HTTP2_STREAMS_MAX },
        { NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, HTTP_STREAM_WINDOW },
        { NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, c->conn.server->o.head_bytes_max },
        { NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1 },
    };
    nghttp2_session_callbacks *cb;
    nghttp2_option *o;

    CHECK(nghttp2_session_callbacks_new(&cb) == 0);
    CHECK(nghttp2_option_new(&o) == 0);
    http2_callbacks_in(cb);
    http2_callbacks_out(cb);
    nghttp2_option_set_no_auto_window_update(o, 1);
    nghttp2_option_set_no_closed_streams(o, 1);
    nghttp2_option_set_max_outbound_ack(o, 2 * HTTP2_IDLE_FRAMES);
    CHECK(nghttp2_session_server_new2(&c->session, cb, c, o) == 0);
    nghttp2_session_callbacks_del(cb);
    nghttp2_option_del(o);
    CHECK(nghttp2_submit_settings(c->session, NGHTTP2_FLAG_NONE, settings, ARRAY_LEN(settings)) ==
          0);
    CHECK(nghttp2_session_set_local_window_size(c->session, NGHTTP2_FLAG_NONE, 0,
                                                HTTP2_CONN_WINDOW) == 0);
}

void http2_open(struct http_server *s, struct stream *stream, struct str first)
{
    static const struct stream_events events = {
        .on_bytes = on_bytes,
        .on_end = on_end,
        .on_written = on_written,
        .on_closed = on_closed,
    };
    struct http2 *c;

    if (!http_server_hold(s, HTTP2_CONN_COST)) {
        http1_open_refused(s, stream, false, 503, "too many connections; try again");
        return;
    }
    c = XNEW(struct http2);
    c->magic = HTTP2_MAGIC;
    c->conn.drain = on_drain;
    c->conn.on_deadline = http2_on_deadline;
    c->stream = stream;
    c->out.stream = stream;
    c->out.in_flight = s->o.in_flight;
    list_init(&c->streams);
    stream->up = &events;
    stream->cookie = c;
    http_server_add(s, &c->conn);
    c->resets = (struct http2_bucket){ HTTP2_RESETS_BURST, http_server_now_ms(s) };
    c->idle_frames = (struct http2_bucket){ HTTP2_IDLE_FRAMES, http_server_now_ms(s) };
    c->phase_due = http2_timer_in(c, s->o.head_ms);
    open_session(c);
    http2_run(c, first);
}

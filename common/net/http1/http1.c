/* SPDX-License-Identifier: Apache-2.0
 *
 * http1: one connection that speaks HTTP/1.1 (or 1.0).
 *
 *   IDLE ──byte──> HEAD ──head, no body──> WORK ──answer──> FLUSH ──all sent──> IDLE
 *     │              ├──head──> BODY ──all──┘                   ▲ └─to be closed─> LINGER ──>
 * CLOSING └──refused─────┴──refused──┴──────────────────────────────┘ any ── broken, or deadline
 * ──> CLOSING ──stream closed──> freed
 *
 * run() is the only place that advances: it steps until nothing moves, then keeps the rest of the
 * input, writes what was collected, and sets the deadline. Events only record and call run(). An
 * answer that comes from inside run() (a handler that replies at once) is picked up by its loop, so
 * pipelined requests do not recurse.
 *
 * Bytes are looked at where the stream read them. Only the remainder is kept, charged to the
 * in-flight budget: the beginning of a head, or requests pipelined behind a running one. While a
 * request runs, reading continues up to PIPELINE_MAX, because that is how a client that leaves is
 * noticed.
 *
 * One request at a time: the next head is looked at when the answer to the last was handed over.
 * Replies to pipelined requests are collected (outq_may_cork) as long as more input is at hand.
 *
 * A streaming route's handler is called at the end of the head and gets its body in BODY; what does
 * not fit its window stays in the input, and then reading stops. A reply in pieces goes through
 * `tail`, which waits while a write is under way; it does not change the state until it ends.
 *
 * A connection that ends with unread input lingers: it closes its sending side and throws input
 * away for a while, since closing at once would make the kernel reset the connection and the
 * client might never see the answer that tells it why.
 */
#include "common/net/http1/http1.h"

#include "common/net/http1/http1_conn.h"

#define PIPELINE_MAX   (16 * KIB)
#define IN_MAX         (512 * KIB) /* head_bytes_max and one read of the stream are far below */
#define LINGER_MS      2000
#define PROGRESS_LEAST (8 * KIB) /* bytes that must move within body_ms and write_ms */
#define NEVER          UINT64_MAX

static const uint8_t next_states[] = {
    [HTTP1_IDLE] = 1 << HTTP1_HEAD | 1 << HTTP1_FLUSH | 1 << HTTP1_CLOSING,
    [HTTP1_HEAD] = 1 << HTTP1_BODY | 1 << HTTP1_WORK | 1 << HTTP1_FLUSH | 1 << HTTP1_CLOSING,
    [HTTP1_BODY] = 1 << HTTP1_WORK | 1 << HTTP1_FLUSH | 1 << HTTP1_CLOSING,
    [HTTP1_WORK] = 1 << HTTP1_FLUSH | 1 << HTTP1_CLOSING,
    [HTTP1_FLUSH] = 1 << HTTP1_IDLE | 1 << HTTP1_LINGER | 1 << HTTP1_CLOSING,
    [HTTP1_LINGER] = 1 << HTTP1_CLOSING,
    [HTTP1_CLOSING] = 0,
};

static uint64_t due_in(const struct http1 *c, uint32_t ms)
{
    return ms ? http_server_now_ms(c->conn.server) + ms : NEVER;
}

void http1_go(struct http1 *c, enum http1_state to)
{
    const struct http_server_opts *o = &c->conn.server->o;

    CHECK(next_states[c->state] & (1 << to));
    c->state = to;
    switch (to) {
    case HTTP1_IDLE:
        c->phase_due = due_in(c, c->conn.server->draining ? HTTP_DRAIN_IDLE_MS : o->idle_ms);
        break;
    case HTTP1_HEAD:
        c->phase_due = due_in(c, o->head_ms);
        c->gate = (struct http_gate){ 0 };
        c->scanned = 0;
        break;
    case HTTP1_BODY:
        c->phase_due = due_in(c, c->x->route->stream ? o->idle_ms : o->body_ms);
        c->body_mark = 0;
        break;
    case HTTP1_LINGER:
        c->phase_due = due_in(c, LINGER_MS);
        break;
    case HTTP1_WORK:
    case HTTP1_FLUSH:
    case HTTP1_CLOSING:
        c->phase_due = NEVER;
        break;
    }
}

/* ---- the end */

/* Safe in every state, twice too. The rest follows in on_closed. */
void http1_close(struct http1 *c)
{
    struct http_xchg *x = c->x;

    if (c->state == HTTP1_CLOSING)
        return;
    http1_go(c, HTTP1_CLOSING);
    wheel_clear(&c->conn.server->wheel, &c->conn.deadline);
    c->stream->ops->close(c->stream);
    c->x = NULL;
    if (x)
        http_xchg_detach(x);
}

static void on_closed(void *cookie)
{
    struct http1 *c = cookie;

    CHECK(c->magic == HTTP1_MAGIC && c->state == HTTP1_CLOSING && !c->running);
    c->magic = 0;
    cbuf_free(&c->in, c->conn.server->o.in_flight);
    cbuf_free(&c->tail, c->conn.server->o.in_flight);
    outq_free(&c->out);
    http_server_del(c->conn.server, &c->conn);
    if (!c->kicked)
        xfree(c);
}

/* Tells the handler of a reply in pieces that there is room. It may reply, so this comes last. */
static void give_room(struct http1 *c)
{
    if (c->x && c->state != HTTP1_CLOSING)
        http_xchg_room(c->x, http1_queued(c));
}

static void on_kick(void *cookie)
{
    struct http1 *c = cookie;

    CHECK(!c->running);
    c->kicked = false;
    if (c->magic == 0) {
        xfree(c);
    } else if (c->state != HTTP1_CLOSING) {
        http1_run(c, http1_kept(c));
        give_room(c); /* a client that takes all at once never lets a write wait */
    }
}

void http1_kick(struct http1 *c)
{
    if (c->running || c->kicked)
        return;
    c->kicked = true;
    loop_post(c->conn.server->o.loop, on_kick, c);
}

/* ---- run */

/* Keeps the input that was not consumed for the next step. False: there is no memory for it, and an
 * error answer was started; step again. */
static bool keep_rest(struct http1 *c)
{
    struct budget *g = c->conn.server->o.in_flight;
    struct str rest = c->view;

    c->view = STR_NULL;
    if (c->state == HTTP1_CLOSING || c->state == HTTP1_LINGER || rest.len == 0) {
        c->in.len = 0;
        if (c->in.cap)
            cbuf_free(&c->in, g);
        return true;
    }
    if (c->in.len) { /* then rest is the end of it */
        memmove(c->in.ptr, rest.ptr, rest.len);
        c->in.len = rest.len;
        return true;
    }
    if (cbuf_add(&c->in, g, rest, IN_MAX))
        return true;
    if (c->state == HTTP1_HEAD || c->state == HTTP1_BODY) {
        http1_refuse_busy(c);
        return false;
    }
    c->close_after = c->linger = true; /* the request that runs is the last one */
    return true;
}

static void set_reading(struct http1 *c)
{
    bool on = !c->eof && c->state != HTTP1_CLOSING;

    if (c->state == HTTP1_WORK || c->state == HTTP1_FLUSH || http1_body_waits(c))
        on = on && !c->close_after && c->in.len < PIPELINE_MAX;
    if (on != c->reading && c->state != HTTP1_CLOSING) {
        c->reading = on;
        c->stream->ops->read(c->stream, on);
    }
}

static void set_deadline(struct http1 *c)
{
    /* A body that waits for its handler is not late, but looked at again a period later. */
    uint64_t due = MIN(c->phase_due, c->out.frozen ? c->write_due : NEVER);

    if (c->overrun)
        due = 0;
    if (c->state == HTTP1_CLOSING || due == NEVER)
        wheel_clear(&c->conn.server->wheel, &c->conn.deadline);
    else
        wheel_set(&c->conn.server->wheel, &c->conn.deadline, due);
}

void http1_run(struct http1 *c, struct str view)
{
    bool was_under_way = c->out.frozen > 0;

    CHECK(!c->running);
    c->running = true;
    c->view = view;
    do {
        while (http1_step(c))
            ;
    } while (!keep_rest(c));
    http1_pump(c);
    if (c->state != HTTP1_CLOSING && outq_flush(&c->out) == OUTQ_BROKEN)
        http1_close(c);
    if (c->out.frozen && !was_under_way && c->state != HTTP1_CLOSING) {
        c->write_due = due_in(c, c->conn.server->o.write_ms);
        c->unsent_mark = c->stream->ops->unsent(c->stream);
    }
    c->running = false;
    set_reading(c);
    set_deadline(c);
}

/* ---- events */

static void on_bytes(void *cookie, struct str bytes)
{
    struct http1 *c = cookie;

    CHECK(c->magic == HTTP1_MAGIC);
    metric_add(c->conn.server->received, bytes.len);
    if (c->state == HTTP1_CLOSING || c->state == HTTP1_LINGER)
        return;
    if (c->in.len == 0) {
        http1_run(c, bytes);
    } else if (cbuf_add(&c->in, c->conn.server->o.in_flight, bytes, IN_MAX)) {
        http1_run(c, http1_kept(c));
    } else if (c->state == HTTP1_HEAD || c->state == HTTP1_BODY) {
        http1_refuse_busy(c);
    } else {
        c->close_after = c->linger = true;
        http1_run(c, http1_kept(c));
    }
}

static void on_end(void *cookie, bool broken)
{
    struct http1 *c = cookie;

    CHECK(c->magic == HTTP1_MAGIC);
    c->eof = true;
    c->reading = false;
    if (broken) {
        http1_close(c);
        return;
    }
    if (c->state == HTTP1_WORK && c->x)
        http_xchg_gone(c->x);
    if (c->state != HTTP1_CLOSING)
        http1_run(c, http1_kept(c));
}

static void on_written(void *cookie, bool ok)
{
    struct http1 *c = cookie;

    CHECK(c->magic == HTTP1_MAGIC);
    outq_written(&c->out);
    if (!ok)
        http1_close(c);
    else if (c->state != HTTP1_CLOSING)
        http1_run(c, http1_kept(c));
    give_room(c);
}

/* True if the write under way moved enough to wait on. */
static bool write_moved(struct http1 *c)
{
    size_t unsent = c->stream->ops->unsent(c->stream);
    size_t moved = c->unsent_mark - MIN(unsent, c->unsent_mark);

    c->unsent_mark = unsent;
    c->write_due = due_in(c, c->conn.server->o.write_ms);
    return moved >= PROGRESS_LEAST;
}

/* A stream may be slow, as long as it is not dead: its pieces cost what they hold. */
static bool body_moved(struct http1 *c)
{
    bool stream = c->x->started;
    uint64_t got = stream ? c->x->got : c->x->body.len;
    uint64_t moved = got - c->body_mark;

    c->body_mark = got;
    c->phase_due = due_in(c, stream ? c->conn.server->o.idle_ms : c->conn.server->o.body_ms);
    return moved >= (stream ? 1 : PROGRESS_LEAST) || http1_body_waits(c);
}

static void on_deadline(struct http_conn *conn)
{
    struct http1 *c = container_of(conn, struct http1, conn);
    uint64_t now = http_server_now_ms(c->conn.server);

    CHECK(c->magic == HTTP1_MAGIC && !c->running);
    if (c->overrun || (c->out.frozen && now >= c->write_due && !write_moved(c))) {
        metric_add(c->conn.server->refused[HTTP_REFUSED_TIMEOUT], 1);
        http1_close(c);
    } else if (now >= c->phase_due) {
        if (c->state == HTTP1_HEAD)
            http1_refuse(c, 408, "deadline_exceeded", "the head did not arrive in time");
        else if (c->state != HTTP1_BODY)
            http1_close(c);
        else if (!body_moved(c))
            http1_refuse(c, 408, "deadline_exceeded", "the body did not arrive in time");
    }
    if (c->state != HTTP1_CLOSING)
        set_deadline(c);
}

/* ---- life */

static void on_drain(struct http_conn *conn)
{
    struct http1 *c = container_of(conn, struct http1, conn);

    CHECK(c->magic == HTTP1_MAGIC);
    if (c->state != HTTP1_IDLE)
        return; /* its answer says that it is the last one */
    c->phase_due = MIN(c->phase_due, due_in(c, HTTP_DRAIN_IDLE_MS));
    if (!c->running)
        set_deadline(c);
}

static struct http1 *open_conn(struct http_server *s, struct stream *stream, bool full)
{
    static const struct stream_events events = {
        .on_bytes = on_bytes,
        .on_end = on_end,
        .on_written = on_written,
        .on_closed = on_closed,
    };
    struct http1 *c = XNEW(struct http1);

    c->magic = HTTP1_MAGIC;
    c->conn.drain = on_drain;
    c->conn.on_deadline = on_deadline;
    c->conn.refused = full;
    c->stream = stream;
    c->out.stream = stream;
    c->out.in_flight = s->o.in_flight;
    stream->up = &events;
    stream->cookie = c;
    http_server_add(s, &c->conn);
    c->phase_due = due_in(c, s->draining ? HTTP_DRAIN_IDLE_MS : s->o.head_ms);
    return c;
}

void http1_open(struct http_server *s, struct stream *stream)
{
    http1_run(open_conn(s, stream, false), STR_NULL);
}

void http1_open_refused(struct http_server *s, struct stream *stream, bool full, int status,
                        const char *why)
{
    struct http1 *c = open_conn(s, stream, full);

    http1_refuse(c, status, status == 503 ? "unavailable" : "invalid_argument", why);
}

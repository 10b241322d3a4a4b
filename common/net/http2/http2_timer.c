/* SPDX-License-Identifier: Apache-2.0
 *
 * http2_due: the deadlines of a connection and of its streams, on one entry of the wheel: it is set
 * to the earliest, and when it fires everything that is due is looked at.
 *
 *   connection  greeting (head_ms), header block (head_ms), no stream (idle_ms), write, linger
 *   stream      body (body_ms; in pieces: idle_ms), reply that the client lets wait (write_ms)
 *
 * PING moves no deadline: an idle connection is one without requests.
 */
#include "common/net/http2/http2_conn.h"

uint64_t http2_timer_in(const struct http2 *c, uint32_t ms)
{
    return ms ? http_server_now_ms(c->conn.server) + ms : HTTP2_NEVER;
}

bool http2_bucket_take(struct http2_bucket *b, uint64_t now_ms, uint32_t max, uint32_t rate)
{
    uint64_t back = (now_ms - b->at_ms) * rate / 1000;

    if (back) {
        b->left = (uint32_t)MIN((uint64_t)max, b->left + back);
        b->at_ms = now_ms;
    }
    if (b->left == 0)
        return false;
    b->left--;
    return true;
}

/* For the client to take of it, or for its window: the end of a reply takes one, too, though it has
 * no bytes (nghttp2 asks for nothing while the window is 0). */
static bool reply_waits(const struct http2_stream *s)
{
    return s->answering && (http2_waiting(s) || s->done);
}

static uint64_t stream_due(const struct http2_stream *s)
{
    uint64_t due = HTTP2_NEVER;

    if (s->dead)
        return HTTP2_NEVER;
    if (s->overrun)
        return 0;
    if (!s->ended && !s->discard)
        due = s->body_due;
    if (reply_waits(s))
        due = MIN(due, s->write_due);
    return due;
}

void http2_set_deadline(struct http2 *c)
{
    uint64_t due = MIN(c->phase_due, c->out.frozen ? c->write_due : HTTP2_NEVER);

    if (c->closing)
        return;
    if (c->goaway_due && !c->goaway)
        due = MIN(due, c->goaway_due);
    list_for (it, &c->streams)
        due = MIN(due, stream_due(container_of(it, struct http2_stream, link)));
    if (due == HTTP2_NEVER)
        wheel_clear(&c->conn.server->wheel, &c->conn.deadline);
    else
        wheel_set(&c->conn.server->wheel, &c->conn.deadline, due);
}

/* True if the write under way moved enough to wait on. */
static bool write_moved(struct http2 *c)
{
    size_t unsent = c->stream->ops->unsent(c->stream);
    size_t moved = c->unsent_mark - MIN(unsent, c->unsent_mark);

    c->unsent_mark = unsent;
    c->write_due = http2_timer_in(c, c->conn.server->o.write_ms);
    return moved >= HTTP2_PROGRESS;
}

static bool body_moved(struct http2_stream *s)
{
    const struct http_server_opts *o = &s->conn->conn.server->o;
    bool pieces = s->x->started;
    uint64_t got = pieces ? s->x->got : s->x->body.len;
    uint64_t moved = got - s->body_mark;

    s->body_mark = got;
    s->body_due = http2_timer_in(s->conn, pieces ? o->idle_ms : o->body_ms);
    return moved >= (pieces ? 1 : HTTP2_PROGRESS) || (pieces && http_xchg_window(s->x) == 0);
}

static bool reply_moved(struct http2_stream *s)
{
    uint64_t moved = s->sent - s->sent_mark;

    s->sent_mark = s->sent;
    s->write_due = http2_timer_in(s->conn, s->conn->conn.server->o.write_ms);
    return moved >= HTTP2_PROGRESS;
}

/* Acts on one stream that is due; a handler may have run then, and the list may be another. */
static bool expire_stream(struct http2 *c, struct http2_stream *s, uint64_t now)
{
    struct metric_cell *timeouts = c->conn.server->refused[HTTP_REFUSED_TIMEOUT];

    if (stream_due(s) > now)
        return false;
    if (s->overrun || (reply_waits(s) && now >= s->write_due)) {
        if (!s->overrun && reply_moved(s))
            return false;
        s->overrun = false;
        metric_add(timeouts, 1);
        s->done = true;
        s->write_due = HTTP2_NEVER; /* report it once */
        s->bytes = STR_NULL;
        cbuf_free(&s->tail, c->conn.server->o.in_flight);
        s->tail_pos = 0;
        http2_reset(s, NGHTTP2_CANCEL);
        return true;
    }
    if (!s->x) {
        s->body_due = HTTP2_NEVER;
        return false;
    }
    if (body_moved(s))
        return false;
    http2_refuse(s, ERR_TIMEOUT, "the body did not arrive in time");
    return true;
}

static void expire_streams(struct http2 *c, uint64_t now)
{
    bool again = true;

    while (again && !c->closing) {
        again = false;
        list_for (it, &c->streams) {
            if (expire_stream(c, container_of(it, struct http2_stream, link), now)) {
                again = true;
                break;
            }
        }
    }
}

void http2_on_deadline(struct http_conn *conn)
{
    struct http2 *c = container_of(conn, struct http2, conn);
    uint64_t now = http_server_now_ms(conn->server);

    CHECK(c->magic == HTTP2_MAGIC && !c->running && !c->closing);
    if (c->out.frozen && now >= c->write_due && !write_moved(c)) {
        metric_add(conn->server->refused[HTTP_REFUSED_TIMEOUT], 1);
        http2_close(c);
        return;
    }
    if (now >= c->phase_due && c->lingering) {
        http2_close(c);
        return;
    }
    if (now >= c->phase_due) { /* GOAWAY, and when that is written the lingering */
        if (!c->greeted || c->head)
            metric_add(conn->server->refused[HTTP_REFUSED_TIMEOUT], 1);
        c->phase_due = HTTP2_NEVER;
        http2_terminate(c, NGHTTP2_NO_ERROR);
    }
    expire_streams(c, now);
    http2_kick(c);
    http2_set_deadline(c);
}

void http2_set_phase(struct http2 *c)
{
    const struct http_server_opts *o = &c->conn.server->o;

    if (c->lingering || !c->greeted)
        return;
    if (c->head)
        c->phase_due = http2_timer_in(c, o->head_ms);
    else
        c->phase_due = c->live ? HTTP2_NEVER : http2_timer_in(c, o->idle_ms);
}

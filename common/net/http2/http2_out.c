/* SPDX-License-Identifier: Apache-2.0
 *
 * http2_out: answers as frames.
 *
 * nghttp2 asks for DATA when windows and the order of the streams allow (read_data); until then a
 * reply waits in its stream: the body of one answer where it was made, pieces in `tail`. All of it
 * is charged. An answer that the budget has no room for is not kept for a client that may never
 * open its window: it becomes a 503.
 *
 * A reply that ends before its request did is followed by RST_STREAM with NO_ERROR, so that the
 * client stops sending (RFC 9113 8.1).
 */
#include <stdio.h>

#include "common/net/http2/http2_conn.h"

#define UNCHARGED_MAX (16 * KIB) /* short answers go out whatever the budget says */

size_t http2_waiting(const struct http2_stream *s)
{
    return s->bytes.len + s->tail.len - s->tail_pos;
}

/* ---- to nghttp2 */

struct nv_list {
    nghttp2_nv nv[HTTP_REPLY_HEADERS_MAX + 5];
    size_t len;
    char names[(HTTP_REPLY_HEADERS_MAX + 5) * 128];
    size_t names_len;
};

/* nghttp2 copies names and values; names have to be lower case. */
static void add_nv(struct nv_list *l, struct str name, struct str value)
{
    char *to = l->names + l->names_len;

    CHECK(l->len < ARRAY_LEN(l->nv) && name.len <= sizeof(l->names) - l->names_len);
    for (size_t i = 0; i < name.len; i++)
        to[i] = (char)(name.ptr[i] >= 'A' && name.ptr[i] <= 'Z' ? name.ptr[i] | 0x20 : name.ptr[i]);
    l->names_len += name.len;
    l->nv[l->len++] = (nghttp2_nv){ (uint8_t *)(void *)to, (uint8_t *)(uintptr_t)value.ptr,
                                    name.len, value.len, NGHTTP2_NV_FLAG_NONE };
}

static int submit_trailers(struct http2_stream *s)
{
    struct nv_list l = { .len = 0 };

    for (size_t i = 0; i < s->trailers_len; i++) {
        const char *text = s->trailer_text.ptr;
        const struct http_line *t = &s->trailers[i];
        add_nv(&l, (struct str){ text + t->name, t->name_len },
               (struct str){ text + t->value, t->value_len });
    }
    return nghttp2_submit_trailer(s->conn->session, s->id, l.nv, l.len);
}

static void drop_own(struct http2_stream *s)
{
    s->bytes = STR_NULL;
    buf_deinit(&s->own);
    budget_release(s->conn->conn.server->o.in_flight, s->charged);
    s->charged = 0;
}

/* Takes up to n bytes of the reply. */
static size_t take_bytes(struct http2_stream *s, uint8_t *to, size_t n)
{
    struct budget *g = s->conn->conn.server->o.in_flight;

    n = MIN(n, http2_waiting(s));
    if (n && s->bytes.len) {
        memcpy(to, s->bytes.ptr, n);
        s->bytes = str_sub(s->bytes, n, s->bytes.len);
    } else if (n) {
        memcpy(to, s->tail.ptr + s->tail_pos, n);
        s->tail_pos += n;
        if (s->tail_pos == s->tail.len) {
            cbuf_free(&s->tail, g);
            s->tail_pos = 0;
        }
    }
    s->sent += n;
    return n;
}

static ssize_t read_data(nghttp2_session *session, int32_t id, uint8_t *to, size_t most,
                         uint32_t *flags, nghttp2_data_source *source, void *user)
{
    struct http2_stream *s = source->ptr;
    size_t n;

    (void)session, (void)id, (void)user;
    if (!http2_waiting(s) && !s->done) {
        s->deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    n = take_bytes(s, to, most);
    /* The window updates that answer this are no idle frames. */
    s->conn->idle_frames.left = MIN(s->conn->idle_frames.left + 2, (uint32_t)HTTP2_IDLE_FRAMES);
    if (http2_waiting(s) || !s->done)
        return (ssize_t)n;
    drop_own(s);
    *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (s->trailers_len) {
        *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
        if (submit_trailers(s))
            return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    return (ssize_t)n;
}

static void resume(struct http2_stream *s)
{
    if (s->deferred && !s->dead)
        (void)nghttp2_session_resume_data(s->conn->session, s->id);
    s->deferred = false;
    http2_kick(s->conn);
}

/* From now on the client has write_ms to take some of the waiting bytes. */
static void begin_wait(struct http2_stream *s)
{
    s->sent_mark = s->sent;
    s->write_due = http2_timer_in(s->conn, s->conn->conn.server->o.write_ms);
}

static void submit_head(struct http2_stream *s, const struct http_answer *a, bool body)
{
    nghttp2_data_provider data = { .source.ptr = s, .read_callback = read_data };
    struct nv_list l;
    char status[16];

    l.len = l.names_len = 0;
    (void)snprintf(status, sizeof(status), "%d", a->status);
    add_nv(&l, STR(":status"), str_c(status));
    for (size_t i = 0; i < a->headers_len; i++)
        add_nv(&l, a->headers[i].name, a->headers[i].value);
    s->answering = true;
    begin_wait(s);
    if (!s->ended)
        s->body_due = HTTP2_NEVER;
    if (nghttp2_submit_response(s->conn->session, s->id, l.nv, l.len, body ? &data : NULL))
        http2_reset(s, NGHTTP2_INTERNAL_ERROR);
    http2_kick(s->conn);
}

static void keep_trailers(struct http2_stream *s, const struct http_answer *a)
{
    s->trailers_len = 0;
    for (size_t i = 0; i < a->trailers_len; i++) {
        struct http_line *t = &s->trailers[s->trailers_len++];
        struct str name = a->trailers[i].name, value = a->trailers[i].value;

        t->name = (uint32_t)s->trailer_text.len;
        t->name_len = (uint32_t)name.len;
        buf_add_str(&s->trailer_text, name);
        t->value = (uint32_t)s->trailer_text.len;
        t->value_len = (uint32_t)value.len;
        buf_add_str(&s->trailer_text, value);
    }
    CHECK(buf_ok(&s->trailer_text));
}

/* ---- the sink */

/* The stream of an answer; NULL (and it is gone) where the client reset it. */
static struct http2_stream *answered(void *proto, struct http_xchg *x)
{
    struct http2_stream *s = proto;

    CHECK(s->conn->magic == HTTP2_MAGIC && s->x == x);
    s->x = NULL;
    if (s->dead) {
        http2_stream_free(s);
        return NULL;
    }
    if (!s->ended)
        s->discard = true;
    return s;
}

/* False: the budget is full, and this answer too long to be kept beside it. */
static bool keep_body(struct http2_stream *s, const struct http_answer *a)
{
    struct budget *g = s->conn->conn.server->o.in_flight;

    if (a->own && budget_reserve(g, a->own->cap))
        s->charged = a->own->cap;
    else if (a->own && a->body.len > UNCHARGED_MAX)
        return false;
    s->bytes = a->body;
    if (a->own)
        buf_move(&s->own, a->own);
    return true;
}

static void answer_busy(struct http2_stream *s)
{
    const struct http_header list[] = { { STR("Content-Type"), STR("application/json") },
                                        { STR("Retry-After"), STR("1") } };
    const struct http_answer a = { .status = 503, .headers = list, .headers_len = 2 };

    metric_add(s->conn->conn.server->refused[HTTP_REFUSED_BUDGET], 1);
    s->bytes =
        STR("{\"code\":\"unavailable\",\"message\":\"the reply finds no room; try again\"}\n");
    submit_head(s, &a, true);
}

static void answer(void *proto, struct http_xchg *x, const struct http_answer *a)
{
    struct http2_stream *s = answered(proto, x);

    if (!s)
        return;
    s->done = true;
    if (!a->no_body && a->body.len && !keep_body(s, a)) {
        answer_busy(s);
        return;
    }
    keep_trailers(s, a);
    submit_head(s, a, s->bytes.len || s->trailers_len);
}

static void begin(void *proto, struct http_xchg *x, const struct http_answer *a)
{
    struct http2_stream *s = proto;

    CHECK(s->conn->magic == HTTP2_MAGIC && s->x == x);
    if (s->dead)
        return;
    s->mute = a->no_body;
    submit_head(s, a, true);
}

static void compact(struct http2_stream *s)
{
    if (s->tail_pos < s->tail.len / 2 || !s->tail_pos)
        return;
    memmove(s->tail.ptr, s->tail.ptr + s->tail_pos, s->tail.len - s->tail_pos);
    s->tail.len -= s->tail_pos;
    s->tail_pos = 0;
}

static void part(void *proto, struct http_xchg *x, struct buf *bytes)
{
    struct http2_stream *s = proto;
    struct budget *g = s->conn->conn.server->o.in_flight;
    size_t waiting = http2_waiting(s);

    CHECK(s->conn->magic == HTTP2_MAGIC && s->x == x);
    if (s->dead || s->done || s->mute)
        return;
    compact(s);
    if (waiting == 0)
        begin_wait(s);
    s->overrun = s->overrun || !buf_ok(bytes) ||
                 (waiting && waiting + bytes->len > HTTP_STREAM_QUEUE_MAX) ||
                 !cbuf_add(&s->tail, g, buf_str(bytes), HTTP_STREAM_QUEUE_MAX);
    resume(s);
}

static void end(void *proto, struct http_xchg *x, const struct http_answer *a)
{
    struct http2_stream *s = answered(proto, x);

    if (!s)
        return;
    s->done = true;
    if (s->overrun)
        http2_reset(s, NGHTTP2_CANCEL);
    if (!http2_waiting(s))
        begin_wait(s);
    keep_trailers(s, a);
    resume(s);
}

static void abort_reply(void *proto, struct http_xchg *x)
{
    struct http2_stream *s = answered(proto, x);

    if (!s)
        return;
    http2_reset(s, NGHTTP2_INTERNAL_ERROR);
    http2_kick(s->conn);
}

static size_t queued(const void *proto, const struct http_xchg *x)
{
    (void)x;
    return http2_waiting(proto);
}

static void took(void *proto, struct http_xchg *x, size_t n)
{
    struct http2_stream *s = proto;

    (void)x;
    if (s->dead)
        return;
    (void)nghttp2_session_consume_stream(s->conn->session, s->id, n);
    http2_kick(s->conn);
}

const struct http_sink http2_sink = {
    .answer = answer,
    .begin = begin,
    .part = part,
    .end = end,
    .abort = abort_reply,
    .queued = queued,
    .took = took,
};

/* ---- after a write */

static int on_frame_sent(nghttp2_session *session, const nghttp2_frame *f, void *user)
{
    struct http2_stream *s;

    (void)user;
    if ((f->hd.type != NGHTTP2_HEADERS && f->hd.type != NGHTTP2_DATA) ||
        !(f->hd.flags & NGHTTP2_FLAG_END_STREAM))
        return 0;
    s = nghttp2_session_get_stream_user_data(session, f->hd.stream_id);
    if (s && !s->ended)
        (void)nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, s->id, NGHTTP2_NO_ERROR);
    return 0;
}

void http2_callbacks_out(nghttp2_session_callbacks *cb)
{
    nghttp2_session_callbacks_set_on_frame_send_callback(cb, on_frame_sent);
}

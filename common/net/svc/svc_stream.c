/* SPDX-License-Identifier: Apache-2.0
 *
 * svc_stream: calls with streams of messages, over gRPC and gRPC-Web.
 *
 *   pieces of the body ──> in ──a whole frame──> now ──> (gunzip on the pool) ──> on_message
 *        ^                                        │                                   │
 *        └── window opens only while a frame is ──┴──────────── svc_next <────────────┘
 *            incomplete and no handler works
 *
 * One message is in work at a time; what arrives meanwhile waits in `in`, at most the server's
 * window of it. Both buffers are charged to the budget of the server, so a stream holds at most two
 * messages and a window, whatever its client sends.
 *
 * An outside end of a call (client gone, deadline, invalid input) is reported once, and only while
 * no message is in work: a handler has one callback for it, and one way out, svc_end. svc_end may
 * be called from within any callback, so freeing waits until the pump is left.
 */
#include "common/base/mem.h"
#include "common/net/cbuf.h"
#include "common/net/http_server.h"
#include "common/net/svc/svc_wire.h"

#define MAGIC_STREAM MAGIC('s', 'v', 's', 't')
#define RATIO_MAX    200

struct svc_stream {
    uint32_t magic;
    struct svc_call call;
    struct budget *budget; /* the server's */
    struct http_hold hold; /* in, now and charged */
    struct pool *pool;     /* the server's, or NULL */
    size_t message_max;
    struct cbuf in, now;
    size_t untaken; /* bytes of `in` for which the window was not opened again */
    struct svc_frame frame;
    struct buf plain; /* the message inflated */
    size_t charged;   /* for plain */
    struct err zip_err;
    struct timer *timer; /* the deadline, or NULL */
    struct err why;      /* code 0: nothing is wrong */
    bool busy;           /* a message is in work */
    bool zipping;        /* it is on the pool */
    bool ready;          /* it can be handed over */
    bool eof, told, pumping, dead;
    bool began; /* a message was sent */
};

struct stream_route {
    unsigned codecs;
    size_t message_max;
    svc_fn fn;
    void *cookie;
};

static void pump(struct svc_stream *s);

static void stream_free(struct svc_stream *s)
{
    http_hold_free(&s->hold, s->budget, &s->in);
    http_hold_free(&s->hold, s->budget, &s->now);
    http_hold_give(&s->hold, s->budget, s->charged);
    http_hold_end(&s->hold);
    buf_deinit(&s->plain);
    loop_timer_free(s->timer);
    s->magic = 0;
    xfree(s);
}

/* The first reason counts. */
static void stream_break(struct svc_stream *s, const struct err *why)
{
    if (!s->why.code)
        s->why = *why;
    pump(s);
}

/* ---- messages in ---------------------------------------------------------------------------- */

static void zip_work(void *cookie)
{
    struct svc_stream *s = cookie;
    const struct inflate_limits l = { .bytes_max = s->message_max, .ratio_max = RATIO_MAX };

    CHECK(s->magic == MAGIC_STREAM);
    if (s->call.inflate(s->frame.bytes, &l, &s->plain, &s->zip_err) == 0)
        err_clear(&s->zip_err);
}

static void message_over(struct svc_stream *s)
{
    s->busy = false;
    http_hold_free(&s->hold, s->budget, &s->now);
    buf_deinit(&s->plain);
    buf_init(&s->plain, s->message_max);
    http_hold_give(&s->hold, s->budget, s->charged);
    s->charged = 0;
}

static void zip_done(void *cookie)
{
    struct svc_stream *s = cookie;
    struct err e = s->zip_err;

    CHECK(s->magic == MAGIC_STREAM);
    s->zipping = false;
    if (s->dead) {
        stream_free(s);
        return;
    }
    int code = e.code ? 0 : http_hold_take(&s->hold, s->budget, s->plain.cap);
    if (code)
        (void)err_set(&e, code, "%s", http_hold_why(code));
    else if (!e.code)
        s->charged = s->plain.cap;
    if (e.code) {
        message_over(s);
        stream_break(s, &e);
        return;
    }
    s->frame.bytes = buf_str(&s->plain);
    s->ready = true;
    pump(s);
}

/* Moves the first frame of `in` to `now`; later bytes stay. */
static int take_frame(struct svc_stream *s, struct err *e)
{
    struct str all = { s->in.ptr, s->in.len }, rest = all;
    size_t need;

    int got = svc_frame_take(&rest, s->message_max, &s->frame, &need, e);
    if (got <= 0)
        return got;
    if ((s->frame.flags & SVC_FRAME_GZIP) && !s->call.inflate)
        return -err_set(e, ERR_INPUT, "a compressed frame without grpc-encoding");
    s->now = s->in;
    s->in = (struct cbuf){ 0 };
    int code = rest.len ? http_hold_add(&s->hold, s->budget, &s->in, rest, SIZE_MAX) : 0;
    return code ? -err_set(e, code, "%s", http_hold_why(code)) : 1;
}

/* Starts on the next message; false if no message can be handed over now. */
static bool next_message(struct svc_stream *s)
{
    struct err e;
    int got = take_frame(s, &e);

    if (got == 0 && s->eof && s->in.len)
        got = -err_set(&e, ERR_INPUT, "the request ends inside a frame");
    if (got < 0) {
        s->why = e;
        return false;
    }
    if (got == 0)
        return false;
    s->busy = true;
    if (!(s->frame.flags & SVC_FRAME_GZIP)) {
        s->ready = true;
        return true;
    }
    s->zipping = true;
    if (s->pool && pool_submit(s->pool, s->call.r->loop, zip_work, zip_done, s))
        return false;
    if (s->pool) {
        (void)err_set(&s->zip_err, ERR_BUSY, "too much waits for a thread; try again");
    } else {
        zip_work(s);
    }
    loop_post(s->call.r->loop, zip_done, s);
    return false;
}

static void tell_over(struct svc_stream *s)
{
    struct err why = s->why;

    s->told = true;
    s->call.on_gone(&s->call, &why);
}

/* Hands over what can be handed over. Comes back at once if it is at work further up the stack. */
static void pump(struct svc_stream *s)
{
    if (s->pumping)
        return;
    s->pumping = true;
    while (!s->dead && !s->zipping && !s->told) {
        if (s->ready) {
            s->ready = false;
            s->call.on_message(&s->call, s->frame.bytes);
        } else if (s->busy) {
            break;
        } else if (s->why.code) {
            tell_over(s);
        } else if (!next_message(s) && !s->why.code && !s->zipping) {
            if (!s->eof) {
                http_stream_took(s->call.r, s->untaken);
                s->untaken = 0;
                break;
            }
            if (!s->call.on_end)
                break;
            void (*on_end)(struct svc_call * c) = s->call.on_end;
            s->call.on_end = NULL;
            on_end(&s->call);
        }
    }
    s->pumping = false;
    if (s->dead && !s->zipping)
        stream_free(s);
}

void svc_next(struct svc_call *c)
{
    struct svc_stream *s = c->stream;

    CHECK(s->magic == MAGIC_STREAM && s->busy && !s->zipping);
    message_over(s);
    pump(s);
}

/* ---- events of the request ------------------------------------------------------------------ */

static void on_data(struct http_req *r, struct str bytes)
{
    struct svc_stream *s = r->cookie;
    struct err e;

    CHECK(s->magic == MAGIC_STREAM);
    s->untaken += bytes.len;
    int code = s->why.code ? 0
                           : http_hold_add(&s->hold, s->budget, &s->in, bytes,
                                           s->message_max + HTTP_STREAM_WINDOW);
    if (code) {
        (void)err_set(&e, code, "%s", http_hold_why(code));
        stream_break(s, &e);
        return;
    }
    pump(s);
}

static void on_body_end(struct http_req *r, const struct err *e)
{
    struct svc_stream *s = r->cookie;

    CHECK(s->magic == MAGIC_STREAM);
    s->eof = true;
    if (e)
        stream_break(s, e);
    else
        pump(s);
}

static void on_client_gone(struct http_req *r)
{
    struct svc_stream *s = r->cookie;
    struct err e;

    CHECK(s->magic == MAGIC_STREAM);
    (void)err_set(&e, ERR_CANCELED, "the client went away");
    stream_break(s, &e);
}

static void on_deadline(void *cookie)
{
    struct svc_stream *s = cookie;
    struct err e;

    CHECK(s->magic == MAGIC_STREAM);
    (void)err_set(&e, ERR_TIMEOUT, "the timeout of the call is over");
    stream_break(s, &e);
}

static void on_stream(struct http_req *r)
{
    const struct stream_route *route = r->route_cookie;
    struct http_server *server = container_of(r, struct http_xchg, req)->server;
    struct svc_call call;

    if (!svc_check(r, route->codecs, true, &call))
        return;
    struct svc_stream *s = XNEW(struct svc_stream);
    *s = (struct svc_stream){ .magic = MAGIC_STREAM,
                              .call = call,
                              .budget = server->o.in_flight,
                              .pool = server->o.pool,
                              .message_max = route->message_max };
    http_hold_begin(server->shares, r, &s->hold);
    s->call.stream = s;
    s->call.cookie = route->cookie;
    buf_init(&s->plain, s->message_max);
    r->cookie = s;
    r->on_data = on_data;
    r->on_end = on_body_end;
    r->on_gone = on_client_gone;
    if (call.deadline_ms != SVC_FOREVER) {
        s->timer = loop_timer_new(r->loop, on_deadline, s);
        loop_timer_start(s->timer, svc_left_ms(&s->call, UINT64_MAX), 0);
    }
    s->pumping = true; /* no callback before the handler has set its callbacks */
    route->fn(&s->call);
    s->pumping = false;
    if (!s->dead)
        CHECK(s->call.on_message && s->call.on_end && s->call.on_gone);
    pump(s);
}

void svc_route_stream(struct http_server *s, const char *path, unsigned codecs, size_t message_max,
                      svc_fn fn, void *cookie)
{
    struct stream_route *own = XNEW(struct stream_route);

    *own = (struct stream_route){ codecs, message_max, fn, cookie };
    http_route_stream(s, HTTP_POST, path, UINT64_MAX, on_stream, own);
    s->routes.all.ptr[s->routes.all.len - 1]->owned = own;
}

/* ---- messages out --------------------------------------------------------------------------- */

static const char *reply_type(const struct svc_call *c)
{
    struct svc_type t = { c->protocol, c->codec, c->base64 };

    return svc_type_text(&t);
}

void svc_send(struct svc_call *c, struct buf *message)
{
    char head[SVC_FRAME_HEAD];
    struct buf out;

    CHECK(c->stream->magic == MAGIC_STREAM && !c->stream->dead);
    buf_init(&out, message->len + sizeof(head));
    svc_frame_head(0, message->len, head);
    buf_add(&out, head, sizeof(head));
    buf_add_str(&out, buf_str(message));
    out.failed = out.failed || message->failed;
    buf_deinit(message);
    c->stream->began = true;
    http_stream_send(c->r, 200, reply_type(c), &out);
}

static void tail_trailers(struct svc_call *c, const struct err *e)
{
    struct svc_retry retry;
    struct buf out;

    buf_init(&out, 8 * ERR_TEXT_MAX);
    buf_addf(&out, "%" PRIu32, svc_status(e));
    http_reply_trailer(c->r, "grpc-status", buf_str(&out));
    buf_reset(&out);
    svc_status_text(e, &out);
    if (e)
        http_reply_trailer(c->r, "grpc-message", buf_str(&out));
    svc_retry_init(&retry, e);
    if (retry.after_s) {
        http_reply_trailer(c->r, SVC_RETRY_PUSHBACK, str_c(retry.pushback_ms));
        http_reply_trailer(c->r, SVC_RETRY_DETAILS, buf_str(&retry.details));
    }
    svc_retry_deinit(&retry);
    buf_deinit(&out);
}

void svc_end(struct svc_call *c, const struct err *e)
{
    struct svc_stream *s = c->stream;
    struct buf out;

    CHECK(s->magic == MAGIC_STREAM && !s->dead);
    s->dead = true;
    buf_init(&out, 8 * ERR_TEXT_MAX);
    if (c->protocol == SVC_GRPC && e && !s->began) {
        svc_reply_err(c, e);
    } else if (c->protocol == SVC_GRPC) {
        tail_trailers(c, e);
        http_stream_send(c->r, 200, reply_type(c), NULL);
        http_stream_end(c->r);
    } else {
        svc_frame_tail(e, &out);
        http_stream_send(c->r, 200, reply_type(c), &out);
        http_stream_end(c->r);
    }
    buf_deinit(&out);
    pump(s);
}

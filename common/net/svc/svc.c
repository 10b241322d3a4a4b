/* SPDX-License-Identifier: Apache-2.0
 *
 * svc: unary calls over the HTTP server, in three protocols.
 *
 *             request                                reply                       error
 *   Connect   body is the message; Content-Encoding  the same                    status, JSON
 *   gRPC      one frame; grpc-encoding; HTTP/2 only  frame, trailers             trailers only
 *   gRPC-Web  one frame, in base64 if asked          frame, trailers as a frame  that last frame
 *
 * The body is all there before a handler runs (bounded by the route's body_max), so a unary call
 * needs nothing of the server's streams. gRPC's errors go out with status 200 and no body, so that
 * trailers are the head; gRPC-Web's always in a frame, since HTTP/1.1 clients can't see trailers.
 *
 * Compression: Connect leaves it to HTTP. Frames are gzip'd where the caller takes it and it pays,
 * large ones on the pool.
 */
#include "common/net/svc/svc.h"

#include "common/base/base64.h"
#include "common/net/http_server.h"
#include "common/net/svc/svc_wire.h"

#define GZIP_LEVEL     1
#define REPLY_SLACK    (4 * KIB)  /* frame heads and trailers */
#define NO_METHOD_BODY (32 * MIB) /* taken, so that the answer is one of its protocol */

struct route {
    unsigned codecs;
    svc_fn fn;
    void *cookie;
};

struct reply_job {        /* in r->arena */
    struct svc_call call; /* a copy: the caller's is gone by then */
    struct buf message, zip;
    bool zipped;
};

/* ---- the head ------------------------------------------------------------------------------- */

static struct svc_type type_of(const struct svc_call *c)
{
    return (struct svc_type){ c->protocol, c->codec, c->base64 };
}

/* Is gzip among the names? */
static bool names_gzip(struct str list)
{
    struct str part;
    bool more = true;

    while (str_next(&list, ',', &more, &part))
        if (str_eq_nocase(str_trim(part), STR("gzip")))
            return true;
    return false;
}

static int check_encoding(const struct http_req *r, const char *header, svc_inflate_fn *ret,
                          struct err *e)
{
    static const struct {
        const char *name;
        svc_inflate_fn fn;
    } known[] = { { "gzip", gunzip }, { "zstd", zstd_inflate }, { "snappy", snappy_inflate } };
    struct str v = http_header(r, header);

    *ret = NULL;
    if (!v.len || str_eq_nocase(v, STR("identity")))
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        if (str_eq_nocase(v, str_c(known[i].name))) {
            *ret = known[i].fn;
            return 0;
        }
    }
    return err_set(e, ERR_UNIMPLEMENTED,
                   "unknown compression \"%.*s\": use gzip, zstd, snappy or identity",
                   (int)MIN(v.len, 40), v.ptr);
}

static int check_timeout(struct svc_call *c, struct err *e)
{
    bool connect = c->protocol == SVC_CONNECT;
    const char *header = connect ? "Connect-Timeout-Ms" : "grpc-timeout";
    struct str text = http_header(c->r, header);
    uint64_t ms;

    c->deadline_ms = SVC_FOREVER;
    if (!text.ptr)
        return 0;
    if (!(connect ? svc_connect_timeout(text, &ms) : svc_grpc_timeout(text, &ms)))
        return err_set(e, ERR_INPUT, "%s is \"%.*s\"; it must be %s", header,
                       (int)MIN(text.len, 40), text.ptr,
                       connect ? "1 to 10 digits" : "1 to 8 digits and one of HMSmun");
    if (ms == 0)
        return err_set(e, ERR_TIMEOUT, "the timeout of the request is 0");
    c->deadline_ms = clock_mono_ms(loop_clock(c->r->loop)) + ms;
    return 0;
}

static int check_head(struct svc_call *c, struct err *e)
{
    struct str version = http_header(c->r, "Connect-Protocol-Version");

    if (c->protocol == SVC_CONNECT) {
        if (version.ptr && !str_eqc(version, "1"))
            return err_set(e, ERR_INPUT, "Connect-Protocol-Version must be \"1\", not \"%.*s\"",
                           (int)MIN(version.len, 40), version.ptr);
        if (check_encoding(c->r, "Content-Encoding", &c->inflate, e))
            return e->code;
    } else {
        if (check_encoding(c->r, "grpc-encoding", &c->inflate, e))
            return e->code;
        c->gzip_reply = names_gzip(http_header(c->r, "grpc-accept-encoding"));
    }
    return check_timeout(c, e);
}

static void refuse_type(struct http_req *r, unsigned codecs, bool streams)
{
    struct buf list;

    buf_init(&list, KIB);
    svc_accept_post(codecs, streams, &list);
    http_reply_header(r, "Accept-Post", buf_str(&list));
    buf_deinit(&list);
    http_reply(r, 415, NULL, NULL);
}

bool svc_check(struct http_req *r, unsigned codecs, bool streams, struct svc_call *ret)
{
    struct svc_type t;
    struct err e;

    if (!svc_type_parse(http_header(r, "Content-Type"), &t) || !(codecs & t.codec) ||
        (streams && (t.protocol == SVC_CONNECT || t.base64))) {
        refuse_type(r, codecs, streams);
        return false;
    }
    *ret =
        (struct svc_call){ .r = r, .protocol = t.protocol, .codec = t.codec, .base64 = t.base64 };
    /* The client that sends this (connect-go without TLS) reads a status in the head, and would not
     * understand 505. */
    if (t.protocol == SVC_GRPC && !http_is_h2(r)) {
        (void)err_set(
            &e, ERR_UNIMPLEMENTED,
            "gRPC came over HTTP/1.1 and needs HTTP/2: use https, HTTP/2 without TLS (h2c, "
            "prior knowledge), or the protocols Connect or gRPC-Web, which need neither");
        svc_reply_err(ret, &e);
        return false;
    }
    if (check_head(ret, &e)) {
        svc_reply_err(ret, &e);
        return false;
    }
    return true;
}

bool svc_accept(struct http_req *r, unsigned codecs, struct svc_call *ret)
{
    return svc_check(r, codecs, false, ret);
}

/* ---- routes --------------------------------------------------------------------------------- */

static void on_call(struct http_req *r)
{
    const struct route *route = r->route_cookie;
    struct svc_call *c = ARENA_NEW(r->arena, struct svc_call);

    CHECK(c); /* the arena is still empty */
    if (!svc_accept(r, route->codecs, c))
        return;
    c->cookie = route->cookie;
    route->fn(c);
}

static void add_route(struct http_server *s, const char *path, size_t body_max, http_handler_fn fn,
                      struct route route)
{
    struct route *own = XNEW(struct route);

    *own = route;
    http_route(s, HTTP_POST, path, body_max, fn, own);
    s->routes.all.ptr[s->routes.all.len - 1]->owned = own;
}

void svc_route(struct http_server *s, const char *path, unsigned codecs, size_t body_max, svc_fn fn,
               void *cookie)
{
    add_route(s, path, body_max, on_call, (struct route){ codecs, fn, cookie });
}

static void no_such_method(struct svc_call *c)
{
    struct err e;

    (void)err_set(&e, ERR_UNIMPLEMENTED, "there is no method %.*s", (int)MIN(c->r->path.len, 200),
                  c->r->path.ptr);
    svc_reply_err(c, &e);
}

void svc_service(struct http_server *s, const char *prefix)
{
    struct str p = str_c(prefix);

    CHECK(p.len > 2 && p.ptr[p.len - 1] == '*');
    svc_route(s, prefix, SVC_PROTO | SVC_JSON, NO_METHOD_BODY, no_such_method, NULL);
}

/* ---- the message: pool ---------------------------------------------------------------------- */

/* The decoder names the limit; here it is one of a message. */
static int inflate(const struct svc_call *c, struct str zipped, const struct inflate_limits *l,
                   struct buf *tmp, struct str *ret, struct err *e)
{
    if (c->inflate(zipped, l, tmp, e))
        return err_wrap(e, "compressed message");
    *ret = buf_str(tmp);
    return 0;
}

static int frame_message(const struct svc_call *c, struct str body, const struct inflate_limits *l,
                         struct buf *tmp, struct str *ret, struct err *e)
{
    struct svc_frame frame;

    if (svc_frame_only(body, &frame, e))
        return e->code;
    *ret = frame.bytes;
    if (!(frame.flags & SVC_FRAME_GZIP))
        return 0;
    if (!c->inflate)
        return err_set(e, ERR_INPUT, "a compressed frame without grpc-encoding");
    return inflate(c, frame.bytes, l, tmp, ret, e);
}

/* Frames in base64: unpacked to a buffer of their own, so that the message ends up in *tmp. */
static int base64_message(const struct svc_call *c, const struct inflate_limits *l, struct buf *tmp,
                          struct str *ret, struct err *e)
{
    struct buf plain;
    int rc;

    buf_init(&plain, c->r->body.len + 4);
    if (!base64_decode(c->r->body, &plain))
        rc = err_set(e, ERR_INPUT, "the body is no base64");
    else
        rc = frame_message(c, buf_str(&plain), l, tmp, ret, e);
    if (!rc && ret->ptr != tmp->ptr) {
        if (!buf_add_str(tmp, *ret))
            rc = err_set(e, ERR_LIMIT, "a message of %zu bytes, at most %zu", ret->len, tmp->max);
        else
            *ret = buf_str(tmp);
    }
    buf_deinit(&plain);
    return rc;
}

int svc_message(const struct svc_call *c, const struct inflate_limits *l, struct buf *tmp,
                struct str *ret, struct err *e)
{
    if (c->base64)
        return base64_message(c, l, tmp, ret, e);
    if (c->protocol != SVC_CONNECT)
        return frame_message(c, c->r->body, l, tmp, ret, e);
    *ret = c->r->body;
    return c->inflate ? inflate(c, c->r->body, l, tmp, ret, e) : 0;
}

static int parse_object(struct str text, struct json_doc **ret, struct err *e)
{
    struct json_doc *doc;

    if (text.len == 0)
        return err_set(e, ERR_INPUT, "zero-length body is no JSON message; send {}");
    if (json_parse(text, &doc, e))
        return e->code;
    if (!json_is_obj(json_root(doc))) {
        json_doc_free(doc);
        return err_set(e, ERR_INPUT, "the body is no JSON object");
    }
    *ret = doc;
    return 0;
}

int svc_body_json(const struct http_req *r, const struct inflate_limits *l, struct json_doc **ret,
                  struct err *e)
{
    struct str text;
    struct buf tmp;

    buf_init(&tmp, l->bytes_max);
    int rc = http_body_plain(r, l, &tmp, &text, e);
    if (!rc)
        rc = parse_object(text, ret, e);
    buf_deinit(&tmp);
    return rc;
}

int svc_message_json(const struct svc_call *c, const struct inflate_limits *l,
                     struct json_doc **ret, struct err *e)
{
    struct str text;
    struct buf tmp;

    CHECK(c->codec == SVC_JSON);
    buf_init(&tmp, l->bytes_max);
    int rc = svc_message(c, l, &tmp, &text, e);
    if (!rc)
        rc = parse_object(text, ret, e);
    buf_deinit(&tmp);
    return rc;
}

/* ---- replies -------------------------------------------------------------------------------- */

/* Frame, and in gRPC-Web the trailers behind it: moves the message out. */
static void send_frames(struct svc_call *c, struct buf *message, uint8_t flags)
{
    struct svc_type t = type_of(c);
    struct buf out, text;
    char head[SVC_FRAME_HEAD];

    buf_init(&out, message->len + REPLY_SLACK);
    svc_frame_head(flags, message->len, head);
    buf_add(&out, head, sizeof(head));
    buf_add_str(&out, buf_str(message));
    buf_deinit(message);
    http_reply_header(c->r, "grpc-accept-encoding", STR("gzip,zstd,snappy"));
    if (flags & SVC_FRAME_GZIP)
        http_reply_header(c->r, "grpc-encoding", STR("gzip"));
    if (c->protocol == SVC_GRPC)
        http_reply_trailer(c->r, "grpc-status", STR("0"));
    else
        svc_frame_tail(NULL, &out);
    if (c->base64) {
        buf_init(&text, out.len / 3 * 4 + 4);
        base64_encode(buf_str(&out), &text);
        buf_move(&out, &text);
    }
    http_reply(c->r, 200, svc_type_text(&t), &out);
    buf_deinit(&out);
}

static void zip_work(void *cookie)
{
    struct reply_job *j = cookie;
    struct err e;

    buf_init(&j->zip, j->message.len);
    j->zipped = gzip(buf_str(&j->message), GZIP_LEVEL, &j->zip, &e) == 0;
}

static void zip_done(void *cookie)
{
    struct reply_job *j = cookie;

    if (j->zipped)
        buf_move(&j->message, &j->zip);
    buf_deinit(&j->zip);
    send_frames(&j->call, &j->message, j->zipped ? SVC_FRAME_GZIP : 0);
}

static void reply_zipped(struct svc_call *c, struct buf *message)
{
    struct pool *pool = container_of(c->r, struct http_xchg, req)->server->o.pool;
    struct reply_job *j = ARENA_NEW(c->r->arena, struct reply_job);

    if (!j) {
        send_frames(c, message, 0);
        return;
    }
    j->call = *c;
    buf_move(&j->message, message);
    if (j->message.len > HTTP_COMPRESS_INLINE && pool &&
        pool_submit(pool, c->r->loop, zip_work, zip_done, j))
        return;
    if (j->message.len > HTTP_COMPRESS_INLINE) {
        send_frames(c, &j->message, 0); /* the pool has better things to do than save bytes */
        return;
    }
    zip_work(j);
    zip_done(j);
}

void svc_stream_head(struct svc_call *c, const char **ret_type)
{
    struct svc_type t = type_of(c);

    CHECK(c->protocol == SVC_CONNECT);
    http_reply_header(c->r, "Accept-Encoding", STR("gzip"));
    *ret_type = svc_type_text(&t);
}

void svc_reply(struct svc_call *c, struct buf *message)
{
    struct svc_type t = type_of(c);
    struct err e;
    struct buf own;

    buf_init(&own, 16);
    if (message && !buf_ok(message)) {
        buf_deinit(message);
        (void)err_set(&e, ERR_INTERNAL, "the reply is larger than its buffer may get");
        svc_reply_err(c, &e);
        return;
    }
    if (!message) {
        message = &own;
        buf_add_str(message, c->codec == SVC_JSON ? STR("{}") : STR(""));
    }
    if (c->protocol == SVC_CONNECT) {
        http_reply_header(c->r, "Accept-Encoding", STR("gzip"));
        http_reply(c->r, 200, svc_type_text(&t), message);
        buf_deinit(&own);
        return;
    }
    if (c->gzip_reply && message->len >= HTTP_COMPRESS_LEAST)
        reply_zipped(c, message);
    else
        send_frames(c, message, 0);
}

/* The status is in the head; a message does not follow, and HTTP/2 ends the stream with it. */
static void trailers_only(struct svc_call *c, const struct err *e)
{
    struct svc_type t = type_of(c);
    struct svc_retry retry;
    struct buf text;

    buf_init(&text, 4 * ERR_TEXT_MAX);
    buf_addf(&text, "%" PRIu32, svc_status(e));
    http_reply_header(c->r, "grpc-status", buf_str(&text));
    buf_reset(&text);
    svc_status_text(e, &text);
    http_reply_header(c->r, "grpc-message", buf_str(&text));
    buf_deinit(&text);
    svc_retry_init(&retry, e);
    if (retry.after_s) {
        http_reply_header(c->r, SVC_RETRY_PUSHBACK, str_c(retry.pushback_ms));
        http_reply_header(c->r, SVC_RETRY_DETAILS, buf_str(&retry.details));
    }
    svc_retry_deinit(&retry);
    http_reply(c->r, 200, svc_type_text(&t), NULL);
}

void svc_reply_err(struct svc_call *c, const struct err *e)
{
    struct svc_type t = type_of(c);
    struct buf out, text;

    if (c->protocol == SVC_CONNECT) {
        http_reply_connect_err(c->r, e);
        return;
    }
    if (c->protocol == SVC_GRPC) {
        trailers_only(c, e);
        return;
    }
    buf_init(&out, REPLY_SLACK);
    svc_frame_tail(e, &out);
    if (c->base64) {
        buf_init(&text, 2 * REPLY_SLACK);
        base64_encode(buf_str(&out), &text);
        buf_move(&out, &text);
    }
    http_reply(c->r, 200, svc_type_text(&t), &out);
    buf_deinit(&out);
}

bool svc_refuse(struct http_req *r, const struct err *e)
{
    struct svc_type t;

    if (!svc_type_parse(http_header(r, "Content-Type"), &t) || t.protocol == SVC_CONNECT)
        return false;
    struct svc_call c = { .r = r, .protocol = t.protocol, .codec = t.codec, .base64 = t.base64 };
    svc_reply_err(&c, e);
    return true;
}

uint64_t svc_left_ms(const struct svc_call *c, uint64_t most)
{
    uint64_t now = clock_mono_ms(loop_clock(c->r->loop));

    if (c->deadline_ms == SVC_FOREVER)
        return most;
    return now >= c->deadline_ms ? 0 : MIN(most, c->deadline_ms - now);
}

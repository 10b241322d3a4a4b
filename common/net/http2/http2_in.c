/* SPDX-License-Identifier: Apache-2.0
 *
 * http2_in: what the client's frames mean: header blocks to requests, DATA to bodies, and what a
 * frame costs that is good for nothing.
 *
 * nghttp2 has checked already: which frame may come when, lower-case names, no header of a
 * connection, the pseudo headers each once and in front, a Content-Length that is the length. What
 * it would drop silently (a field with bytes that may not be there) resets the stream here: two
 * readers of the same request must not see two requests. The rest of the rules are those of
 * http_head.c: one authority, a path without blanks, the same numbers.
 */
#include "common/net/http2/http2_conn.h"

/* ---- header blocks */

void http2_head_free(struct http2 *c)
{
    if (!c->head)
        return;
    cbuf_free(&c->head->text, c->conn.server->o.in_flight);
    xfree(c->head);
    c->head = NULL;
}

static struct http2_stream *stream_of(nghttp2_session *session, int32_t id)
{
    return nghttp2_session_get_stream_user_data(session, id);
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *f, void *user)
{
    struct http2 *c = user;

    if (f->hd.type != NGHTTP2_HEADERS)
        return 0;
    http2_head_free(c);
    if (f->headers.cat == NGHTTP2_HCAT_REQUEST) {
        struct http2_stream *s =
            c->streams_len < HTTP2_LEFT_MAX ? http2_stream_new(c, f->hd.stream_id) : NULL;
        if (!s) {
            metric_add(c->conn.server->refused[HTTP_REFUSED_BUDGET], 1);
            (void)nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, f->hd.stream_id,
                                            NGHTTP2_REFUSED_STREAM);
            return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
        }
        CHECK(nghttp2_session_set_stream_user_data(session, s->id, s) == 0);
    }
    c->head = XNEW(struct http2_head);
    c->head->id = f->hd.stream_id;
    c->head->trailers = f->headers.cat != NGHTTP2_HCAT_REQUEST;
    http2_set_phase(c);
    return 0;
}

/* Keeps a field in the block's text. */
static bool keep_line(struct http2 *c, struct str name, struct str value, struct http_line *ret)
{
    struct http2_head *h = c->head;
    struct budget *g = c->conn.server->o.in_flight;
    size_t max = c->conn.server->o.head_bytes_max;

    ret->name = (uint32_t)h->text.len;
    ret->name_len = (uint32_t)name.len;
    ret->value = (uint32_t)(h->text.len + name.len);
    ret->value_len = (uint32_t)value.len;
    return cbuf_add(&h->text, g, name, max) && cbuf_add(&h->text, g, value, max);
}

static struct http_line *pseudo_of(struct http2_head *h, struct str name)
{
    return str_eqc(name, ":method")      ? &h->method
           : str_eqc(name, ":path")      ? &h->path
           : str_eqc(name, ":scheme")    ? &h->scheme
           : str_eqc(name, ":authority") ? &h->authority
                                         : NULL;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *f, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *user)
{
    struct http2 *c = user;
    struct http2_head *h = c->head;
    struct str n = { (const char *)(const void *)name, name_len };
    struct str v = { (const char *)(const void *)value, value_len };
    struct http_line *to, unknown;

    (void)flags;
    if (!h || h->id != f->hd.stream_id)
        return 0;
    h->bytes += n.len + v.len + 4; /* as many as it would have on HTTP/1.1 */
    h->over = h->over || h->bytes > c->conn.server->o.head_bytes_max;
    if (h->trailers)
        return h->over ? NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE : 0;
    if (n.len && n.ptr[0] == ':') {
        to = pseudo_of(h, n);
        to = to ? to : &unknown;
    } else {
        h->over = h->over || h->len == HTTP_HEADERS_MAX;
        to = h->over ? &unknown : &h->lines[h->len++];
    }
    if (h->over || keep_line(c, n, v, to))
        return 0;
    metric_add(c->conn.server->refused[HTTP_REFUSED_BUDGET], 1);
    (void)nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, h->id, NGHTTP2_REFUSED_STREAM);
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}

static int on_invalid_header(nghttp2_session *session, const nghttp2_frame *f, const uint8_t *name,
                             size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                             void *user)
{
    struct http2 *c = user;

    (void)session, (void)f, (void)name, (void)name_len, (void)value, (void)value_len, (void)flags;
    metric_add(c->conn.server->refused[HTTP_REFUSED_MALFORMED], 1);
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}

/* ---- requests */

static struct str line_name(const struct http2_head *h, const struct http_line *l)
{
    return l->name_len ? (struct str){ h->text.ptr + l->name, l->name_len } : STR_NULL;
}

static struct str line_value(const struct http2_head *h, const struct http_line *l)
{
    return l->name_len ? (struct str){ h->text.ptr + l->value, l->value_len } : STR_NULL;
}

struct framing {
    size_t hosts, lengths, expects;
    bool expect_ok;
};

/* The checks HTTP/1.1 makes of one header. 0, or a status. */
static int check_header(struct http_header l, struct http_head *h, struct framing *f,
                        const char **ret_why)
{
    if (str_eqc(l.name, "host")) {
        *ret_why = "the Host header is no host";
        return f->hosts++ == 0 && http_host_ok(l.value) ? 0 : 400;
    }
    if (str_eqc(l.name, "content-length")) {
        *ret_why = "Content-Length is not one decimal number";
        return f->lengths++ == 0 && str_u64(l.value, &h->length) ? 0 : 400;
    }
    if (str_eqc(l.name, "expect")) {
        *ret_why = "the only expectation known here is '100-continue'";
        h->expect_continue = str_eq_nocase(l.value, STR("100-continue"));
        return f->expects++ == 0 && h->expect_continue ? 0 : 417;
    }
    return 0;
}

static bool path_ok(struct str path)
{
    for (size_t i = 0; i < path.len; i++) {
        uint8_t c = (uint8_t)path.ptr[i];
        if (c <= ' ' || c == '#' || c == 0x7f)
            return false;
    }
    return path.len > 0;
}

/* From the header block to what a parsed head of HTTP/1.1 is. 0, or a status and why. */
static int read_head(const struct http2_head *in, struct http_head *h, const char **ret_why)
{
    struct str scheme = line_value(in, &in->scheme), authority = line_value(in, &in->authority);
    struct framing f = { 0 };
    int status;

    *h = (struct http_head){ 0 };
    h->method = line_value(in, &in->method);
    h->target = line_value(in, &in->path);
    *ret_why = "more headers than allowed";
    if (in->over || in->len + 1 > HTTP_HEADERS_MAX)
        return 431;
    *ret_why = "the request does not begin with a known method";
    if (!http_method_of(h->method))
        return 501;
    *ret_why = "a blank, TAB or '#' in the path, or none";
    if (!path_ok(h->target))
        return 400;
    *ret_why = "the scheme is neither http nor https";
    if (!str_eqc(scheme, "http") && !str_eqc(scheme, "https"))
        return 400;
    *ret_why = "the authority is no host";
    if (!http_host_ok(authority))
        return 400;
    if (authority.len)
        h->headers[h->headers_len++] = (struct http_header){ STR("host"), authority };
    for (size_t i = 0; i < in->len; i++) {
        struct http_header l = { line_name(in, &in->lines[i]), line_value(in, &in->lines[i]) };
        status = check_header(l, h, &f, ret_why);
        if (status)
            return status;
        if (!authority.len || !str_eqc(l.name, "host")) {
            h->headers[h->headers_len++] = l;
        } else if (!str_eq(l.value, authority)) {
            *ret_why = "Host and :authority differ";
            return 400;
        }
    }
    *ret_why = "no authority";
    return authority.len || f.hosts ? 0 : 400;
}

static const char *refusal_name(int status)
{
    return status == 501   ? "unimplemented"
           : status == 431 ? "resource_exhausted"
           : status == 429 ? "resource_exhausted"
           : status == 503 ? "unavailable"
           : status == 408 ? "deadline_exceeded"
                           : "invalid_argument";
}

static void refuse(struct http2_stream *s, int status, const char *why)
{
    enum http_refusal kind = status == 408   ? HTTP_REFUSED_TIMEOUT
                             : status == 413 ? HTTP_REFUSED_BODY
                             : status == 503 ? HTTP_REFUSED_BUDGET
                             : status == 429 ? HTTP_REFUSED_SHARE
                                             : HTTP_REFUSED_MALFORMED;

    metric_add(s->conn->conn.server->refused[kind], 1);
    s->discard = true;
    http_reply_status(&s->x->req, status, refusal_name(status), why);
}

void http2_refuse(struct http2_stream *s, int code, const char *why)
{
    struct err e;

    if (!s->x)
        return;
    if (!s->x->started) {
        refuse(s, code == ERR_TIMEOUT ? 408 : err_http_status(code), why);
        return;
    }
    s->discard = true;
    err_set(&e, code, "%s", why);
    http_xchg_ended(s->x, &e);
}

static void go_ahead(struct http2_stream *s)
{
    char status[] = ":status", text[] = "100";
    const nghttp2_nv nv = { (uint8_t *)(void *)status, (uint8_t *)(void *)text, 7, 3,
                            NGHTTP2_NV_FLAG_NONE };

    (void)nghttp2_submit_headers(s->conn->session, NGHTTP2_FLAG_NONE, s->id, NULL, &nv, 1, NULL);
}

/* The header block of a request is complete. */
static void take_head(struct http2_stream *s, bool last)
{
    struct http2 *c = s->conn;
    struct http_server *server = c->conn.server;
    struct http_head *h = &server->head;
    const char *why = NULL;
    int status;

    s->x = http_xchg_new(server, &http2_sink, s, c->stream);
    s->x->http2 = true;
    status = read_head(c->head, h, &why);
    if (status) {
        refuse(s, status, why);
        return;
    }
    bool expects = h->expect_continue && !last;
    if (!http_xchg_begin(s->x, h))
        return;
    s->body_due = http2_timer_in(c, s->x->route->stream ? server->o.idle_ms : server->o.body_ms);
    if (expects)
        go_ahead(s);
    if (s->x->route->stream)
        http_xchg_run(s->x);
}

static void end_body(struct http2_stream *s)
{
    s->ended = true;
    if (!s->x || s->discard)
        return;
    if (s->x->started)
        http_xchg_ended(s->x, NULL);
    else
        http_xchg_run(s->x);
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data,
                   size_t len, void *user)
{
    struct http2 *c = user;
    struct http2_stream *s = stream_of(session, id);
    struct str bytes = { (const char *)(const void *)data, len };
    struct err e;
    int code;

    (void)flags;
    c->idle_frames.left = MIN(c->idle_frames.left + 1, (uint32_t)HTTP2_IDLE_FRAMES);
    (void)nghttp2_session_consume_connection(session, len);
    if (s && s->x && s->x->started && !s->discard) {
        code = len <= http_xchg_window(s->x)
                   ? http_xchg_data(s->x, bytes, &e)
                   : err_set(&e, ERR_INPUT, "more bytes than the window of the stream has");
        if (code)
            http2_refuse(s, code, e.text);
        return 0;
    }
    (void)nghttp2_session_consume_stream(session, id, len);
    if (!s || !s->x || s->discard)
        return 0;
    code = http_xchg_body(s->x, bytes, SIZE_MAX);
    if (code)
        http2_refuse(s, code,
                     code == ERR_TOO_LARGE ? "the body has more bytes than are taken here"
                                           : http_hold_why(code));
    return 0;
}

/* ---- frames */

static void calm(struct http2 *c)
{
    metric_add(c->conn.server->refused[HTTP_REFUSED_FLOOD], 1);
    c->goaway = true;
    (void)nghttp2_session_terminate_session(c->session, NGHTTP2_ENHANCE_YOUR_CALM);
}

/* Does the frame do nothing for any request? */
static bool is_idle(const nghttp2_frame *f)
{
    switch (f->hd.type) {
    case NGHTTP2_DATA:
        return f->hd.length == f->data.padlen && !(f->hd.flags & NGHTTP2_FLAG_END_STREAM);
    case NGHTTP2_HEADERS:
    case NGHTTP2_RST_STREAM:
        return false;
    default:
        return true;
    }
}

/* PRIORITY, which nghttp2 throws away without another call. */
static int on_begin_frame(nghttp2_session *session, const nghttp2_frame_hd *hd, void *user)
{
    struct http2 *c = user;

    (void)session;
    if (hd->type == NGHTTP2_PRIORITY &&
        !http2_bucket_take(&c->idle_frames, http_server_now_ms(c->conn.server), HTTP2_IDLE_FRAMES,
                           HTTP2_IDLE_RATE))
        calm(c);
    return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *f, void *user)
{
    struct http2 *c = user;
    struct http2_stream *s = f->hd.stream_id ? stream_of(session, f->hd.stream_id) : NULL;
    uint64_t now = http_server_now_ms(c->conn.server);
    bool last = f->hd.flags & NGHTTP2_FLAG_END_STREAM;

    if (f->hd.type == NGHTTP2_SETTINGS && !c->greeted) {
        c->greeted = true;
        http2_set_phase(c);
    }
    if (is_idle(f) && !http2_bucket_take(&c->idle_frames, now, HTTP2_IDLE_FRAMES, HTTP2_IDLE_RATE))
        calm(c);
    if (f->hd.type == NGHTTP2_RST_STREAM &&
        !http2_bucket_take(&c->resets, now, HTTP2_RESETS_BURST, HTTP2_RESETS_RATE))
        calm(c);
    if (f->hd.type == NGHTTP2_HEADERS) {
        if (s && c->head && f->headers.cat == NGHTTP2_HCAT_REQUEST)
            take_head(s, last);
        http2_head_free(c);
        http2_set_phase(c);
    }
    if (s && last && (f->hd.type == NGHTTP2_HEADERS || f->hd.type == NGHTTP2_DATA))
        end_body(s);
    return 0;
}

static int on_invalid_frame(nghttp2_session *session, const nghttp2_frame *f, int code, void *user)
{
    struct http2 *c = user;

    (void)session, (void)code;
    /* gRPC's Go client closes with its own last stream in GOAWAY, where a stream of the server
     * belongs. The frame is accepted, since the client closes anyway. */
    if (f->hd.type != NGHTTP2_GOAWAY)
        metric_add(c->conn.server->refused[HTTP_REFUSED_MALFORMED], 1);
    return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t id, uint32_t error_code, void *user)
{
    struct http2 *c = user;
    struct http2_stream *s = stream_of(session, id);
    struct http_xchg *x;

    (void)error_code;
    if (c->head && c->head->id == id)
        http2_head_free(c);
    if (!s)
        return 0;
    x = s->x;
    s->dead = true;
    s->bytes = STR_NULL;
    buf_deinit(&s->own);
    cbuf_free(&s->tail, c->conn.server->o.in_flight);
    s->tail_pos = 0;
    CHECK(c->live > 0);
    c->live--;
    http2_set_phase(c);
    if (x && (x->started || x->replied)) {
        http_xchg_gone(x); /* s stays until the handler replied, which may be in here */
        return 0;
    }
    s->x = NULL;
    http2_stream_free(s);
    if (x)
        http_xchg_detach(x);
    return 0;
}

void http2_callbacks_in(nghttp2_session_callbacks *cb)
{
    nghttp2_session_callbacks_set_on_begin_headers_callback(cb, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
    nghttp2_session_callbacks_set_on_invalid_header_callback(cb, on_invalid_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data);
    nghttp2_session_callbacks_set_on_begin_frame_callback(cb, on_begin_frame);
    nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame);
    nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(cb, on_invalid_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_stream_close);
}

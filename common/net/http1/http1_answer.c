/* SPDX-License-Identifier: Apache-2.0
 *
 * http1_answer: from an answer to the bytes of HTTP/1.1, and refusals of what no handler may see.
 *
 * Whether the connection may be used again is decided here: not if the client does not want it, if
 * the request was not read to its end (nothing behind it can be trusted), or if the server drains.
 */
#include <stdio.h>

#include "common/net/http1/http1_conn.h"

static const char *reason(int status)
{
    static const struct {
        int status;
        const char *text;
    } rows[] = {
        { 200, "OK" },
        { 201, "Created" },
        { 202, "Accepted" },
        { 204, "No Content" },
        { 302, "Found" },
        { 304, "Not Modified" },
        { 400, "Bad Request" },
        { 401, "Unauthorized" },
        { 403, "Forbidden" },
        { 404, "Not Found" },
        { 405, "Method Not Allowed" },
        { 408, "Request Timeout" },
        { 409, "Conflict" },
        { 413, "Content Too Large" },
        { 415, "Unsupported Media Type" },
        { 417, "Expectation Failed" },
        { 421, "Misdirected Request" },
        { 429, "Too Many Requests" },
        { 431, "Request Header Fields Too Large" },
        { 499, "Client Closed Request" },
        { 500, "Internal Server Error" },
        { 501, "Not Implemented" },
        { 503, "Service Unavailable" },
        { 504, "Gateway Timeout" },
        { 505, "HTTP Version Not Supported" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (rows[i].status == status)
            return rows[i].text;
    }
    return "Status"; /* may be anything; clients read the number */
}

static void write_head(struct buf *b, const struct http1 *c, const struct http_answer *a)
{
    buf_add_str(b, STR("HTTP/1.1 "));
    buf_add_i64(b, a->status);
    buf_add_c(b, ' ');
    buf_add_str(b, str_c(reason(a->status)));
    buf_add_str(b, STR("\r\n"));
    for (size_t i = 0; i < a->headers_len; i++) {
        buf_add_str(b, a->headers[i].name);
        buf_add_str(b, STR(": "));
        buf_add_str(b, a->headers[i].value);
        buf_add_str(b, STR("\r\n"));
    }
    if (c->close_after)
        buf_add_str(b, STR("Connection: close\r\n"));
    else if (c->minor_zero)
        buf_add_str(b, STR("Connection: keep-alive\r\n"));
    buf_add_str(b, STR("\r\n"));
}

/* Whether the connection ends with this answer, and its head. */
static void send_head(struct http1 *c, const struct http_answer *a)
{
    struct buf *b;
    size_t before;

    if (a->close || !c->keep_alive || c->unread || c->conn.server->draining)
        c->close_after = true;
    if (a->close || c->unread || c->conn.server->draining)
        c->linger = true;
    b = outq_text(&c->out);
    before = b->len;
    write_head(b, c, a);
    outq_text_end(&c->out, b->len - before);
    metric_add(c->conn.server->sent, b->len - before);
}

static void answer(void *proto, struct http_xchg *x, const struct http_answer *a)
{
    struct http1 *c = proto;

    CHECK(c->magic == HTTP1_MAGIC && c->x == x);
    c->x = NULL;
    send_head(c, a);
    if (!a->no_body) {
        metric_add(c->conn.server->sent, a->body.len);
        outq_body(&c->out, a->body, a->own);
    }
    http1_go(c, HTTP1_FLUSH);
    if (!c->running)
        http1_run(c, http1_kept(c));
}

/* ---- replies in pieces */

size_t http1_queued(const struct http1 *c)
{
    return c->out.bytes + c->tail.len;
}

/* The tail becomes one segment of the queue: with its memory, out of its charge, which the queue
 * takes over when the client lets it wait. */
static void queue_tail(struct http1 *c)
{
    struct buf own = { .ptr = c->tail.ptr, .len = c->tail.len, .cap = c->tail.cap };

    if (c->tail.len == 0)
        return;
    own.max = SIZE_MAX;
    budget_release(c->conn.server->o.in_flight, c->tail.cap);
    c->tail = (struct cbuf){ 0 };
    outq_body(&c->out, buf_str(&own), &own);
    buf_deinit(&own);
}

void http1_pump(struct http1 *c)
{
    if (c->state != HTTP1_CLOSING && !c->out.frozen)
        queue_tail(c);
}

/* False: the client is to be cut off. */
static bool tail_add(struct http1 *c, struct str s)
{
    metric_add(c->conn.server->sent, s.len);
    return cbuf_add(&c->tail, c->conn.server->o.in_flight, s, HTTP_STREAM_QUEUE_MAX + 64 * KIB);
}

static void begin(void *proto, struct http_xchg *x, const struct http_answer *a)
{
    struct http1 *c = proto;
    struct http_header list[HTTP_REPLY_HEADERS_MAX + 5];
    struct http_answer chunked = *a;

    CHECK(c->magic == HTTP1_MAGIC && c->x == x && a->headers_len < ARRAY_LEN(list));
    c->plain = c->minor_zero;
    c->mute = a->no_body;
    c->overrun = false;
    if (c->plain && !c->mute)
        c->keep_alive = false; /* only the end of the connection says where the body ends */
    if (!c->plain && !c->mute) {
        memcpy(list, a->headers, a->headers_len * sizeof(list[0]));
        list[chunked.headers_len++] =
            (struct http_header){ STR("Transfer-Encoding"), STR("chunked") };
        chunked.headers = list;
    }
    send_head(c, &chunked);
    http1_kick(c);
}

static void part(void *proto, struct http_xchg *x, struct buf *bytes)
{
    struct http1 *c = proto;
    bool ok = buf_ok(bytes) && !c->overrun;

    CHECK(c->magic == HTTP1_MAGIC && c->x == x);
    if (ok && !c->mute) {
        char size[24];
        int n = snprintf(size, sizeof(size), "%zx\r\n", bytes->len);
        ok = http1_queued(c) + bytes->len <= HTTP_STREAM_QUEUE_MAX || http1_queued(c) == 0;
        ok = ok && (c->plain || tail_add(c, (struct str){ size, (size_t)n })) &&
             tail_add(c, buf_str(bytes)) && (c->plain || tail_add(c, STR("\r\n")));
    }
    c->overrun = !ok;
    http1_kick(c);
}

static void end(void *proto, struct http_xchg *x, const struct http_answer *a)
{
    struct http1 *c = proto;

    (void)a; /* HTTP/1.1 has no place for trailers that clients agree on */
    CHECK(c->magic == HTTP1_MAGIC && c->x == x);
    c->x = NULL;
    if (c->overrun || (!c->plain && !c->mute && !tail_add(c, STR("0\r\n\r\n")))) {
        http1_close(c);
        return;
    }
    if (c->unread)
        c->close_after = c->linger = true;
    queue_tail(c);
    http1_go(c, HTTP1_FLUSH);
    if (!c->running)
        http1_run(c, http1_kept(c));
}

static void abort_reply(void *proto, struct http_xchg *x)
{
    struct http1 *c = proto;

    CHECK(c->magic == HTTP1_MAGIC && c->x == x);
    c->x = NULL;
    http1_close(c);
}

static size_t queued(const void *proto, const struct http_xchg *x)
{
    (void)x;
    return http1_queued(proto);
}

static void took(void *proto, struct http_xchg *x, size_t n)
{
    (void)x;
    (void)n;
    http1_kick(proto);
}

static const struct http_sink sink = {
    .answer = answer,
    .begin = begin,
    .part = part,
    .end = end,
    .abort = abort_reply,
    .queued = queued,
    .took = took,
};

void http1_begin_xchg(struct http1 *c)
{
    c->x = http_xchg_new(c->conn.server, &sink, c, c->stream);
    c->minor_zero = c->keep_alive = c->unread = false;
}

static enum http_refusal refusal_kind(const struct http1 *c, int status)
{
    switch (status) {
    case 408:
        return HTTP_REFUSED_TIMEOUT;
    case 413:
        return HTTP_REFUSED_BODY;
    case 429:
        return HTTP_REFUSED_SHARE;
    case 503:
        return c->conn.refused ? HTTP_REFUSED_CONNECTIONS : HTTP_REFUSED_BUDGET;
    default:
        return HTTP_REFUSED_MALFORMED;
    }
}

static int code_of(int status)
{
    switch (status) {
    case 408:
        return ERR_TIMEOUT;
    case 413:
        return ERR_TOO_LARGE;
    case 429:
        return ERR_RATE;
    case 503:
        return ERR_BUSY;
    default:
        return ERR_INPUT;
    }
}

void http1_cut_body(struct http1 *c, const struct err *e)
{
    int status = err_http_status(e->code);
    struct http_xchg *x = c->x;

    metric_add(c->conn.server->refused[refusal_kind(c, e->code == ERR_TIMEOUT ? 408 : status)], 1);
    c->view = STR_NULL;
    c->close_after = c->linger = true;
    http1_go(c, HTTP1_WORK); /* and unread stays true */
    http_xchg_ended(x, e);
    http1_kick(c);
}

/* Answers before any handler saw the request, and gives the connection up. */
void http1_refuse(struct http1 *c, int status, const char *code, const char *why)
{
    struct http_xchg *x;
    struct err e;

    if (c->x && c->x->started) { /* a streamed body went wrong */
        err_set(&e, code_of(status), "%s", why);
        http1_cut_body(c, &e);
        return;
    }
    if (!c->x)
        http1_begin_xchg(c);
    x = c->x;
    metric_add(c->conn.server->refused[refusal_kind(c, status)], 1);
    c->unread = true;
    c->view = STR_NULL;
    http_reply_status(&x->req, status, code, why);
}

void http1_refuse_busy(struct http1 *c)
{
    http1_refuse(c, 503, "unavailable", HTTP_FULL_TEXT);
}

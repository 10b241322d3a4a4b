/* SPDX-License-Identifier: Apache-2.0
 *
 * http1_answer: from an answer to the bytes of HTTP/1.1, and refusals of what no handler may see.
 *
 * Whether the connection may be used again is decided here: not if the client does not want it, if
 * the request was not read to its end (nothing behind it can be trusted), or if the server drains.
 */
#include "common/net/http1_conn.h"

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
    buf_addf(b, "HTTP/1.1 %d %s\r\n", a->status, reason(a->status));
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

static void answer(void *proto, struct http_xchg *x, const struct http_answer *a)
{
    struct http1 *c = proto;
    struct buf *b;
    size_t before;

    CHECK(c->magic == HTTP1_MAGIC && c->x == x);
    c->x = NULL;
    if (a->close || !c->keep_alive || c->unread || c->conn.server->draining)
        c->close_after = true;
    if (a->close || c->unread || c->conn.server->draining)
        c->linger = true;
    b = outq_text(&c->out);
    before = b->len;
    write_head(b, c, a);
    outq_text_end(&c->out, b->len - before);
    metric_add(c->conn.server->sent, b->len - before + (a->no_body ? 0 : a->body.len));
    if (!a->no_body)
        outq_body(&c->out, a->body, a->own);
    http1_go(c, HTTP1_FLUSH);
    if (!c->running)
        http1_run(c, http1_kept(c));
}

static const struct http_sink sink = { .answer = answer };

void http1_begin_xchg(struct http1 *c)
{
    c->x = http_xchg_new(c->conn.server, &sink, c, c->stream->peer);
    c->minor_zero = c->keep_alive = c->unread = false;
}

static enum http_refusal refusal_kind(const struct http1 *c, int status)
{
    switch (status) {
    case 408:
        return HTTP_REFUSED_TIMEOUT;
    case 413:
        return HTTP_REFUSED_BODY;
    case 503:
        return c->conn.refused ? HTTP_REFUSED_CONNECTIONS : HTTP_REFUSED_BUDGET;
    default:
        return HTTP_REFUSED_MALFORMED;
    }
}

/* Answers before any handler saw the request, and gives the connection up. */
void http1_refuse(struct http1 *c, int status, const char *code, const char *why)
{
    struct http_xchg *x;

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
    http1_refuse(c, 503, "unavailable", "too many bytes of requests are held at once; try again");
}

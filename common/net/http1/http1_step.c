/* SPDX-License-Identifier: Apache-2.0
 *
 * http1_step: one step per state: what the input at hand means. A step consumes from c->view,
 * changes the state, answers; it never reads or waits.
 */
#include "common/net/http1/http1_conn.h"

static void end_of_input(struct http1 *c)
{
    if (outq_flush(&c->out) != OUTQ_LATER)
        http1_close(c);
}

static bool step_idle(struct http1 *c)
{
    /* Old clients send an empty line after a POST: that is no request that begins. */
    while (str_starts(c->view, STR("\r\n")))
        c->view = str_sub(c->view, 2, c->view.len);
    if (c->view.len) {
        http1_go(c, HTTP1_HEAD);
        return true;
    }
    if (c->eof)
        end_of_input(c);
    return false;
}

static const char *refusal_code(int status)
{
    return status == 501 || status == 505 ? "unimplemented"
           : status == 431                ? "resource_exhausted"
                                          : "invalid_argument";
}

/* The head is complete: parse, find the route, decide about the body. */
static void take_head(struct http1 *c, struct str head)
{
    struct http_head *h = &c->conn.server->head;
    const char *why = NULL;
    int status = http_head_parse(head, h, &why);

    if (status) {
        http1_refuse(c, status, refusal_code(status), why);
        return;
    }
    http1_begin_xchg(c);
    c->minor_zero = h->minor == 0;
    c->keep_alive = h->keep_alive;
    c->chunked = h->chunked;
    c->chunk = (struct http_chunk){ 0 };
    c->left = h->length;
    c->unread = c->chunked || c->left;
    bool expects = h->expect_continue;
    if (!http_xchg_begin(c->x, h))
        return; /* answered: the state is FLUSH */
    bool stream = c->x->route->stream;
    http1_go(c, c->unread ? HTTP1_BODY : HTTP1_WORK);
    if (c->unread && expects && c->view.len == 0) {
        struct str text = STR("HTTP/1.1 100 Continue\r\n\r\n");
        buf_add_str(outq_text(&c->out), text);
        outq_text_end(&c->out, text.len);
    }
    if (!c->unread || stream)
        http_xchg_run(c->x);
    if (!c->unread && stream && c->x)
        http_xchg_ended(c->x, NULL);
}

static bool step_head(struct http1 *c)
{
    size_t most = c->conn.server->o.head_bytes_max;
    struct str look = str_sub(c->view, 0, most);
    const char *why = NULL;

    switch (http_gate_scan(&c->gate, look, &c->scanned, &why)) {
    case HTTP_GATE_DONE: {
        struct str head = str_sub(c->view, 0, c->scanned);
        c->view = str_sub(c->view, c->scanned, c->view.len);
        take_head(c, head);
        return true;
    }
    case HTTP_GATE_BAD:
        http1_refuse(c, 400, "invalid_argument", why);
        return true;
    case HTTP_GATE_MORE:
        break;
    }
    if (c->view.len >= most) {
        http1_refuse(c, 431, "resource_exhausted", "the request line and headers are too long");
        return true;
    }
    if (c->eof)
        end_of_input(c);
    return false;
}

static void refuse_large(struct http1 *c)
{
    struct err e;

    err_set(&e, ERR_TOO_LARGE, "the body has more than the %zu bytes that are taken here",
            c->x->route->body_max);
    http1_refuse(c, 413, "invalid_argument", e.text);
}

/* Bytes of the body that have a place to go to. */
static size_t body_room(const struct http1 *c)
{
    return c->x->started ? http_xchg_window(c->x) : SIZE_MAX;
}

/* Returns false if the request was answered instead. */
static bool add_body(struct http1 *c, struct str bytes, uint64_t most)
{
    struct http_xchg *x = c->x;
    struct err e;
    int code;

    if (x->started) {
        code = http_xchg_data(x, bytes, &e);
        if (code)
            http1_cut_body(c, &e);
        return code == 0 && c->x == x;
    }
    code = http_xchg_body(x, bytes, (size_t)MIN(most, (uint64_t)SIZE_MAX));
    if (code == ERR_RATE)
        http1_refuse(c, 429, "resource_exhausted", http_hold_why(code));
    else if (code == ERR_BUSY)
        http1_refuse_busy(c);
    else if (code)
        refuse_large(c);
    return code == 0;
}

/* Does the body pass body_max with `ahead` more bytes? */
static bool too_large(const struct http1 *c, uint64_t ahead)
{
    return ahead > c->x->route->body_max - (c->x->started ? c->x->got : c->x->body.len);
}

/* 1: complete; 0: more input or room is needed; -1: answered. */
static int take_chunks(struct http1 *c)
{
    size_t pos = 0;

    while (pos < c->view.len && body_room(c)) {
        size_t room = MIN(body_room(c), c->view.len - pos);
        struct str look = str_sub(c->view, 0, pos + room), data = STR_NULL;
        const char *why = NULL;
        enum http_chunk_result r = http_chunk_next(&c->chunk, look, &pos, &data, &why);

        if (r == HTTP_CHUNK_BAD) {
            http1_refuse(c, 400, "invalid_argument", why);
            return -1;
        }
        if (r == HTTP_CHUNK_DATA && !add_body(c, data, SIZE_MAX))
            return -1;
        /* A chunk that says it is too long need not be waited for. */
        if (too_large(c, http_chunk_ahead(&c->chunk))) {
            refuse_large(c);
            return -1;
        }
        if (r == HTTP_CHUNK_DONE) {
            c->view = str_sub(c->view, pos, c->view.len);
            return 1;
        }
    }
    c->view = str_sub(c->view, pos, c->view.len);
    return 0;
}

static int take_length(struct http1 *c)
{
    uint64_t most = MIN(c->left, (uint64_t)body_room(c));
    struct str bytes = str_sub(c->view, 0, (size_t)MIN(most, (uint64_t)c->view.len));

    c->left -= bytes.len;
    if (bytes.len && !add_body(c, bytes, c->x->body.len + bytes.len + c->left))
        return -1;
    c->view = str_sub(c->view, bytes.len, c->view.len);
    return c->left == 0;
}

bool http1_body_waits(const struct http1 *c)
{
    return c->state == HTTP1_BODY && c->x && c->x->started && http_xchg_window(c->x) == 0;
}

static bool step_body(struct http1 *c)
{
    int done = c->chunked ? take_chunks(c) : take_length(c);

    if (done < 0)
        return true;
    if (done) {
        c->unread = false;
        http1_go(c, HTTP1_WORK);
        if (c->x->started)
            http_xchg_ended(c->x, NULL);
        else
            http_xchg_run(c->x);
        return true;
    }
    if (c->eof && !http1_body_waits(c)) {
        http1_refuse(c, 400, "invalid_argument", "the connection ended before the body did");
        return true;
    }
    return false;
}

static bool step_flush(struct http1 *c)
{
    if (!c->close_after && c->view.len && outq_may_cork(&c->out)) {
        http1_go(c, HTTP1_IDLE);
        return true;
    }
    switch (outq_flush(&c->out)) {
    case OUTQ_LATER:
        return false;
    case OUTQ_BROKEN:
        http1_close(c);
        return false;
    case OUTQ_EMPTY:
        break;
    }
    if (!c->close_after) {
        http1_go(c, HTTP1_IDLE);
        return true;
    }
    if (c->eof || (!c->linger && c->view.len == 0)) {
        http1_close(c);
        return false;
    }
    http1_go(c, HTTP1_LINGER);
    c->view = STR_NULL;
    c->stream->ops->shut(c->stream);
    return false;
}

bool http1_step(struct http1 *c)
{
    switch (c->state) {
    case HTTP1_IDLE:
        return step_idle(c);
    case HTTP1_HEAD:
        return step_head(c);
    case HTTP1_BODY:
        return step_body(c);
    case HTTP1_FLUSH:
        return step_flush(c);
    case HTTP1_WORK:
        return false;
    case HTTP1_LINGER:
        if (c->eof)
            http1_close(c);
        return false;
    case HTTP1_CLOSING:
        return false;
    }
    return false;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * http_stream: replies in pieces.
 *
 *   http_stream_send ──first──> sink->begin ──> sink->part ... ──> http_stream_end ──> sink->end
 *
 * The sink queues what the client does not take, charged; how far that may go is decided here. A
 * reader that is too slow is not cut off inside the handler's own call: the sink closes soon after,
 * so that on_gone never comes from within http_stream_send.
 */
#include <stdatomic.h>

#include "common/net/http_server.h"

static struct http_xchg *xchg_of(const struct http_req *r)
{
    struct http_xchg *x = container_of((uintptr_t)r, struct http_xchg, req);

    CHECK(r->magic == HTTP_XCHG_MAGIC);
    return x;
}

bool http_is_h2(const struct http_req *r)
{
    return xchg_of(r)->http2;
}

static void answer_of(struct http_xchg *x, struct http_reply_head *head, struct http_answer *ret)
{
    http_reply_head(x, NULL, head);
    *ret = (struct http_answer){
        .status = x->status,
        .close = x->close,
        .no_body = x->req.method == HTTP_HEAD || x->status == 204 || x->status == 304,
        .headers = head->list,
        .headers_len = head->len,
        .trailers = head->trailers,
        .trailers_len = head->trailers_len,
    };
}

static void begin(struct http_xchg *x, int status, const char *content_type)
{
    struct http_reply_head head;
    struct http_answer a;

    http_reply_status_set(x, status, content_type);
    x->streaming = true;
    answer_of(x, &head, &a);
    if (x->sink)
        x->sink->begin(x->proto, x, &a);
}

void http_stream_send(struct http_req *r, int status, const char *content_type, struct buf *part)
{
    struct http_xchg *x = xchg_of(r);

    if (!x->streaming)
        begin(x, status, content_type);
    if (!part)
        return;
    if (x->sink && (part->len || !buf_ok(part))) {
        x->sink->part(x->proto, x, part);
        x->wants_room = x->sink->queued(x->proto, x) >= HTTP_STREAM_ROOM;
    }
    buf_deinit(part);
}

size_t http_stream_queued(const struct http_req *r)
{
    const struct http_xchg *x = xchg_of(r);

    return x->sink && x->streaming ? x->sink->queued(x->proto, x) : 0;
}

void http_xchg_room(struct http_xchg *x, size_t queued)
{
    if (!x->streaming || !x->wants_room || queued >= HTTP_STREAM_ROOM)
        return;
    x->wants_room = false;
    if (x->req.on_room)
        x->req.on_room(&x->req);
}

void http_stream_end(struct http_req *r)
{
    struct http_xchg *x = xchg_of(r);
    struct http_reply_head head;
    struct http_answer a;

    CHECK(x->streaming);
    x->ended = true;
    answer_of(x, &head, &a);
    http_xchg_count(x);
    if (x->sink)
        x->sink->end(x->proto, x, &a);
    http_xchg_free(x);
}

void http_stream_abort(struct http_req *r)
{
    struct http_xchg *x = xchg_of(r);

    CHECK(x->streaming);
    x->ended = true;
    http_xchg_count(x);
    if (x->sink)
        x->sink->abort(x->proto, x);
    http_xchg_free(x);
}

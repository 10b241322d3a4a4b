/* SPDX-License-Identifier: Apache-2.0
 *
 * query_stream.c: answers in pieces, for texts that may be many times what they are made from.
 *
 *   STEP (pool): collects the first STREAM_FROM bytes ──(that was all)──> an answer as any other
 *                                     │ there is more
 *                                     v
 *   SENDS (loop) ──(the client takes them)──> PIECE (pool) ──> SENDS .. ──(the last one)──> ended
 *     └──(64 KiB and more wait for the client)──> waits for room ──┘
 *
 * So a long answer costs what it is made from and one piece. Where the client takes gzip the pieces
 * are compressed on the pool, too, each so that it can be read once it is there; a query without
 * the memory for that sends them without compression.
 *
 * After the first piece is sent, an error cannot be reported in words any more: the connection is
 * closed, so that no client takes the part for the whole. A gRPC message has its length before it:
 * those are collected; a Connect one is the body, and its end is the body's.
 *
 * Thread: query_stream on the pool, else the loop's.
 */
#include "common/base/compress/compress.h"
#include "common/base/size.h"
#include "common/sys/pool.h"
#include "querier/query/query.h"

#define STREAM_FROM (1 * MIB)
#define PIECE       (512 * KIB)
#define PIECE_MAX   (64 * MIB) /* one line of text may be as long as a path */
#define SLICE       (64 * KIB) /* handed to the server at once, while less than that waits there */

static int collect(struct query *q, size_t until, struct err *e)
{
    struct query_stream *s = &q->stream;

    while (s->more && q->out.len < until) {
        pool_slice();
        if (s->next(q, s->cookie, PIECE, &q->out, &s->more, e))
            return e->code;
        if (!buf_ok(&q->out) || atomic_load_explicit(&q->cancel, memory_order_relaxed))
            break;
    }
    return 0;
}

/* ---- gzip */

/* Called after the first piece, for an answer that is known to be long; *e is not the query's. */
static void zip_begin(struct query *q)
{
    struct query_stream *s = &q->stream;
    struct err e;

    s->varies = !gzip_sniff(buf_str(&q->out));
    if (!s->varies || !http_accepts_gzip(q->http))
        return;
    /* The piece is there twice while it is compressed, and this one is the longest. */
    if (query_take(q, GZIP_STREAM_BYTES + q->out.len, &e) == 0)
        s->zip = gzip_stream_new(HTTP_GZIP_LEVEL);
}

/* The piece in q->out. */
static int zip_piece(struct query *q, struct err *e)
{
    struct query_stream *s = &q->stream;
    struct str left = buf_str(&q->out);
    struct buf to;
    int code = 0;

    if (!s->zip)
        return 0;
    buf_init(&to, left.len + left.len / 64 + KIB); /* noise grows by 5 bytes in 16 KiB */
    do {
        struct str slice = str_sub(left, 0, MIN(left.len, SLICE));
        left = str_sub(left, slice.len, left.len);
        pool_slice();
        code = gzip_stream_add(s->zip, slice,
                               left.len  ? GZIP_STREAM_MORE
                               : s->more ? GZIP_STREAM_PIECE
                                         : GZIP_STREAM_END,
                               &to, e);
    } while (!code && left.len);
    buf_move(&q->out, &to);
    return code;
}

/* ---- pieces */

NODISCARD int query_stream(struct query *q, query_piece_fn next, void (*free)(void *cookie),
                           void *cookie, struct err *e)
{
    bool whole = !q->http || (q->route->connect && q->call.protocol != SVC_CONNECT);

    CHECK(!q->stream.next);
    q->stream = (struct query_stream){ .next = next, .free = free, .cookie = cookie, .more = true };
    buf_init(&q->out, query_left(q));
    if (collect(q, whole ? SIZE_MAX : STREAM_FROM, e))
        return e->code;
    if (query_out_end(q, e))
        return e->code;
    if (whole || !q->stream.more)
        return 0;
    zip_begin(q);
    return zip_piece(q, e);
}

static int step_piece(struct query *q, struct err *e)
{
    buf_init(&q->out, PIECE_MAX);
    if (collect(q, PIECE, e))
        return e->code;
    if (!buf_ok(&q->out))
        return err_set(e, ERR_LIMIT, "a line of the answer is over 64 MiB");
    return zip_piece(q, e);
}

/* Hands over what the client takes. True once all of the piece is. */
static bool hand_over(struct query *q)
{
    struct query_stream *s = &q->stream;

    while (s->at < q->out.len && http_stream_queued(q->http) < HTTP_STREAM_ROOM) {
        struct str rest = str_sub(buf_str(&q->out), s->at, q->out.len);
        struct buf slice;

        buf_init(&slice, SLICE);
        rest.len = MIN(rest.len, SLICE);
        buf_add_str(&slice, rest);
        http_stream_send(q->http, 200, q->content_type, &slice);
        s->at += rest.len;
    }
    return s->at == q->out.len;
}

static void go_on(struct query *q)
{
    struct query_stream *s = &q->stream;

    s->waits = !hand_over(q);
    if (s->waits)
        return;
    buf_deinit(&q->out);
    buf_init(&q->out, 0);
    s->at = 0;
    if (!s->more) {
        query_end(q);
        return;
    }
    q->step = step_piece;
    query_run_step(q);
}

static void on_room(struct http_req *r)
{
    struct query *q = r->cookie;

    if (q->stream.waits)
        go_on(q);
}

bool query_stream_send(struct query *q)
{
    struct query_stream *s = &q->stream;

    if (!s->next || (!s->more && !s->began))
        return false;
    if (!s->began) {
        s->began = true;
        query_reply_headers(q);
        if (q->route->connect)
            svc_stream_head(&q->call, &q->content_type);
        if (s->varies)
            http_reply_header(q->http, "Vary", STR("Accept-Encoding"));
        if (s->zip)
            http_reply_header(q->http, "Content-Encoding", STR("gzip"));
        q->http->on_room = on_room;
    }
    go_on(q);
    return true;
}

void query_stream_end(struct query *q)
{
    CHECK(q->stream.began);
    if (q->err.code)
        http_stream_abort(q->http);
    else
        http_stream_end(q->http);
}

void query_stream_free(struct query *q)
{
    gzip_stream_free(q->stream.zip);
    if (q->stream.free)
        q->stream.free(q->stream.cookie);
}

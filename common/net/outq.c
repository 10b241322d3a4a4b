/* SPDX-License-Identifier: Apache-2.0
 *
 * outq: at most one write is under way. Its segments are frozen: they keep their place and their
 * bytes until the stream says they are written. New ones queue behind them.
 */
#include "common/net/outq.h"

bool outq_may_cork(const struct outq *q)
{
    return q->len + 2 * OUTQ_PER_REPLY <= OUTQ_SEGS && q->bytes < OUTQ_CORK_MAX;
}

struct buf *outq_text(struct outq *q)
{
    struct outq_seg *last = q->len > q->frozen ? &q->segs[q->len - 1] : NULL;

    if (!last || last->bytes.ptr) {
        CHECK(q->len < OUTQ_SEGS);
        last = &q->segs[q->len++];
        *last = (struct outq_seg){ 0 };
        buf_init(&last->own, SIZE_MAX);
        (void)buf_room(&last->own, 512);
    }
    return &last->own;
}

void outq_text_end(struct outq *q, size_t appended)
{
    q->bytes += appended;
}

void outq_body(struct outq *q, struct str bytes, struct buf *own)
{
    if (bytes.len == 0)
        return;
    if (bytes.len <= OUTQ_COPY_MAX) {
        buf_add_str(outq_text(q), bytes);
    } else {
        CHECK(q->len < OUTQ_SEGS);
        struct outq_seg *s = &q->segs[q->len++];
        *s = (struct outq_seg){ .bytes = bytes };
        if (own)
            buf_move(&s->own, own);
    }
    q->bytes += bytes.len;
}

static void drop(struct outq *q, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct outq_seg *s = &q->segs[i];
        q->bytes -= s->bytes.ptr ? s->bytes.len : s->own.len;
        buf_deinit(&s->own);
    }
    memmove(q->segs, q->segs + n, (q->len - n) * sizeof(q->segs[0]));
    q->len -= n;
    budget_release(q->in_flight, q->charged);
    q->charged = 0;
}

enum outq_result outq_flush(struct outq *q)
{
    struct str v[OUTQ_SEGS];

    if (q->frozen)
        return OUTQ_LATER;
    if (q->len == 0)
        return OUTQ_EMPTY;
    for (size_t i = 0; i < q->len; i++)
        v[i] = q->segs[i].bytes.ptr ? q->segs[i].bytes : buf_str(&q->segs[i].own);
    switch (q->stream->ops->write(q->stream, v, q->len)) {
    case STREAM_ALL:
        drop(q, q->len);
        return OUTQ_EMPTY;
    case STREAM_LATER:
        q->frozen = q->len;
        /* The bytes exist already, so a full budget only means that they stay uncounted. */
        if (budget_reserve(q->in_flight, q->bytes))
            q->charged = q->bytes;
        return OUTQ_LATER;
    case STREAM_BROKEN:
        break;
    }
    return OUTQ_BROKEN;
}

void outq_written(struct outq *q)
{
    size_t n = q->frozen;

    q->frozen = 0;
    drop(q, n);
}

void outq_free(struct outq *q)
{
    drop(q, q->len);
    q->frozen = 0;
}

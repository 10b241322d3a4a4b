/* SPDX-License-Identifier: Apache-2.0
 *
 * exported.c: adds replies to one set of stacks with whole frames, and writes it as pprof.
 *
 * Half of the memory of a query is for the set, since writing needs the rest. Chains of innermost
 * frames (pgo) may take more than their reply: room for them is reserved first, and the rest of it
 * given back. A compressed stream is a sequence of gzip members, one for each piece (RFC 1952), so
 * that no state of the compressor is kept between pieces.
 */
#include "querier/merge/exported.h"

#include "common/base/compress/compress.h"
#include "common/base/mem.h"

#define GZIP_LEVEL 6

void exported_init(struct exported *x, struct query *q, const struct export_how *how)
{
    *x = (struct exported){ 0 };
    export_init(&x->set, how, q->qr->query_bytes_max / 2, q->qr->seed);
}

void exported_deinit(struct exported *x)
{
    export_deinit(&x->set);
    vec_free(&x->facts.leaves);
}

/* Chains of innermost frames may take more than the reply they come from: what they may take is
 * reserved, and what they did not take given back. */
static int add_innermost(struct exported *x, struct query *q, const struct wire_merged *w,
                         struct err *e)
{
    size_t before = export_bytes(&x->set), room = query_left(q) / 3;

    x->set.stacks.bytes_max = stacks_bytes(&x->set.stacks) + room;
    if (query_take(q, 2 * room, e) || export_add(&x->set, &w->part, &q->cancel, e))
        return e->code;
    query_give(q, 2 * room - MIN(2 * room, 2 * (export_bytes(&x->set) - before)));
    return 0;
}

static int add_reply(struct exported *x, struct query *q, const struct wire_merged *w,
                     struct err *e)
{
    size_t leaves = w->leaves_len * 2 * sizeof(uint32_t);

    if (query_take(q, leaves, e))
        return e->code;
    merged_facts_add(&x->facts, q, w);
    if (x->set.how.keep_locations)
        return add_innermost(x, q, w, e);
    if (query_take(q, export_cost(&w->part.stacks), e))
        return e->code;
    return export_add(&x->set, &w->part, &q->cancel, e);
}

NODISCARD int exported_read(struct exported *x, struct query *q, size_t ask, size_t max_nodes,
                            struct err *e)
{
    struct wire_merged w;
    size_t pos = 0;
    int n;

    while ((n = query_next_merged(q, ask, &pos, &w, e)) > 0)
        if (add_reply(x, q, &w, e))
            return e->code;
    if (n < 0)
        return e->code;
    export_divide(&x->set, merged_facts_end(&x->facts));
    q->saturated += x->set.saturated;
    return export_cut(&x->set, max_nodes, e);
}

NODISCARD int exported_head(struct str type, int64_t start_ms, int64_t end_ms,
                            struct export_head *ret, struct err *e)
{
    const int64_t most = INT64_MAX / 1000000;

    *ret = (struct export_head){ .time_ns = MIN(end_ms, most) * 1000000,
                                 .duration_ns = MIN(end_ms - start_ms, most) * 1000000 };
    return ptype_parse(type, &ret->type, e);
}

NODISCARD int exported_pprof(const struct exported *x, struct query *q, const struct export_head *h,
                             bool gzipped, struct err *e)
{
    struct buf plain;

    buf_init(&q->out, query_left(q));
    if (!gzipped)
        return export_pprof_write(&x->set, h, &q->out, e) ? e->code : query_out_end(q, e);
    buf_init(&plain, query_left(q) / 2);
    int code = export_pprof_write(&x->set, h, &plain, e);
    if (!code)
        code = gzip(buf_str(&plain), GZIP_LEVEL, &q->out, e);
    buf_deinit(&plain);
    return code ? code : query_out_end(q, e);
}

/* ---- in pieces ---- */

struct pieces {
    struct exported x;
    struct export_pprof *w;
    bool gzipped;
};

static void pieces_free(void *cookie)
{
    struct pieces *p = cookie;

    export_pprof_free(p->w);
    exported_deinit(&p->x);
    xfree(p);
}

/* A gzip'd piece is a member of its own: members behind each other are one gzip file (RFC 1952). */
static int next_piece(struct query *q, void *cookie, size_t want, struct buf *out, bool *ret_more,
                      struct err *e)
{
    struct pieces *p = cookie;
    struct buf plain, zipped;

    (void)q;
    if (!p->gzipped)
        return export_pprof_next(p->w, want, out, ret_more, e);
    buf_init(&plain, 4 * want);
    buf_init(&zipped, 4 * want);
    int code = export_pprof_next(p->w, 4 * want - want / 2, &plain, ret_more, e);
    if (!code)
        code = gzip(buf_str(&plain), GZIP_LEVEL, &zipped, e);
    if (!code)
        buf_add_str(out, buf_str(&zipped));
    buf_deinit(&plain);
    buf_deinit(&zipped);
    return code;
}

NODISCARD int exported_pprof_stream(struct exported *x, struct query *q,
                                    const struct export_head *h, bool gzipped, struct err *e)
{
    struct pieces *p = XNEW(struct pieces);

    p->x = *x;
    *x = (struct exported){ 0 };
    p->gzipped = gzipped;
    p->w = export_pprof_new(&p->x.set, h, SIZE_MAX / 2);
    return query_stream(q, next_piece, pieces_free, p, e);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * flame_stream.c: BEGIN, BARS, TAIL: each call of `next` continues where the last one ended.
 *
 * The JSON writer lives as long as the answer, since objects stay open between pieces; the bars are
 * kept and written piece by piece, and the caller writes head and tail by functions. All that can
 * fail (memory of the layout, of the comparison) is done by flame_stream_tree and _diff before the
 * first piece.
 */
#include "querier/output/flame_stream.h"

#include "common/base/mem.h"
#include "querier/output/flame_msg.h"

struct answer {
    struct flame_stream s;
    struct json json; /* what is open in it outlives the pieces */
    struct bars_json bars;
    enum { BEGIN, BARS, TAIL } phase;
};

static void answer_free(void *cookie)
{
    struct answer *a = cookie;

    flame_deinit(&a->s.flame);
    diff_deinit(&a->s.diff);
    for (int i = 0; i < DIFF_SIDES; i++)
        merged_deinit(&a->s.trees[i]);
    if (a->s.free)
        a->s.free(a->s.cookie);
    xfree(a);
}

static void begin(struct answer *a, struct buf *out)
{
    json_init(&a->json, out);
    json_obj(&a->json);
    if (a->s.message)
        json_key(&a->json, "flamegraph");
    else
        a->s.head(a->s.cookie, &a->json);
    json_obj(&a->json);
    if (a->s.message)
        a->bars = flame_msg_bars(&a->s.flame, &a->s.diff, a->s.two);
    else
        a->bars.b = a->s.two ? diff_bars(&a->s.diff) : flame_bars(&a->s.flame);
    a->phase = BARS;
}

/* Behind the bars, the object's end included. */
static void numbers(struct answer *a)
{
    if (a->s.message)
        flame_msg_numbers(&a->s.flame, &a->s.diff, a->s.two, &a->json);
    else if (a->s.two)
        diff_json_end(&a->s.diff, &a->json);
    else
        flame_json_end(&a->s.flame, &a->json);
    a->phase = TAIL;
}

static int next(struct query *q, void *cookie, size_t want, struct buf *out, bool *ret_more,
                struct err *e)
{
    struct answer *a = cookie;
    size_t from = out->len;

    (void)e;
    if (a->phase == BEGIN)
        begin(a, out);
    CHECK(a->json.out == out);
    if (a->phase == BARS && !bars_json_next(&a->bars, want, &a->json))
        numbers(a);
    *ret_more = true;
    if (a->phase == BARS || out->len - from >= want)
        return 0;
    *ret_more = a->s.tail && a->s.tail(q, a->s.cookie, want, &a->json);
    if (!*ret_more)
        json_obj_end(&a->json);
    return 0;
}

NODISCARD int flame_stream(struct query *q, const struct flame_stream *s, struct err *e)
{
    struct answer *a = XNEW(struct answer);

    CHECK(s->message ? !s->head && !s->tail : s->head && s->tail);
    *a = (struct answer){ .s = *s };
    return query_stream(q, next, answer_free, a, e);
}

NODISCARD int flame_stream_tree(struct query *q, struct merged *m, size_t max_nodes,
                                struct flame_stream *s, struct err *e)
{
    struct layout l;

    s->trees[0] = *m;
    merged_init(m, q);
    if (merged_layout(&s->trees[0], q, max_nodes, &l, e)) {
        merged_deinit(&s->trees[0]);
        return e->code;
    }
    flame_init(&s->flame, &l, &s->trees[0].tree);
    layout_deinit(&l);
    return 0;
}

NODISCARD int flame_stream_diff(struct query *q, struct merged m[DIFF_SIDES], size_t max_nodes,
                                struct flame_stream *s, struct err *e)
{
    if (query_take(q, diff_cost(&m[DIFF_LEFT].tree, &m[DIFF_RIGHT].tree), e))
        return e->code;
    diff_init(&s->diff, &m[DIFF_LEFT].tree, &m[DIFF_RIGHT].tree, max_nodes);
    s->two = true;
    for (int i = 0; i < DIFF_SIDES; i++) {
        s->trees[i] = m[i];
        merged_init(&m[i], q);
    }
    return 0;
}

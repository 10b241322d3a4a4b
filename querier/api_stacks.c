/* SPDX-License-Identifier: Apache-2.0
 *
 * api_stacks.c: SelectMergeStacktraces, SelectMergeSpanProfile and Diff (wire facts 4.4, 4.6).
 */
#include "querier/api_connect.h"
#include "querier/flame_msg.h"
#include "querier/merged.h"
#include "querier/pick.h"

enum { ASK_LEFT, ASK_RIGHT, SIDES };

/* ---- SelectMergeStacktraces, SelectMergeSpanProfile -------------------------------------------*/

static int put_flame(struct query *q, const struct pick *p, const struct merged *m, struct err *e)
{
    struct msg_out o;
    struct layout l;
    struct flame f;

    if (merged_layout(m, q, p->max_nodes, &l, e))
        return e->code;
    flame_init(&f, &l, &m->tree);
    query_msg(q, &o);
    flame_msg(&o, 1, "flamegraph", &f);
    msg_out_end(&o);
    flame_deinit(&f);
    layout_deinit(&l);
    return query_out_end(q, e);
}

static int reply_stacks(struct query *q, struct err *e)
{
    const struct pick *p = q->state;
    struct merged m;

    merged_init(&m, q);
    int code = merged_read(&m, q, ASK_LEFT, e);
    if (!code)
        code = put_flame(q, p, &m, e);
    merged_deinit(&m);
    return code;
}

static int stacks(struct query *q, enum pick_kind kind, struct err *e)
{
    struct v1_merge m;
    struct pick *p;

    if (msg_read(q, kind == PICK_SPANS ? &v1_span_profile_desc : &v1_stacktraces_desc, &m, e) ||
        pick_read(q, &m, kind, &p, e))
        return e->code;
    if (m.async)
        return err_set(e, ERR_UNIMPLEMENTED, "async is not supported by this version");
    if (p->format > V1_FLAMEGRAPH)
        return err_set(e, ERR_UNIMPLEMENTED,
                       "format %s is not supported by this version: use "
                       "PROFILE_FORMAT_FLAMEGRAPH",
                       v1_formats.names[p->format]);
    q->state = p;
    q->step = reply_stacks;
    return pick_ask(q, ASK_LEFT, p, e);
}

int api_select_merge_stacktraces(struct query *q, struct err *e)
{
    return stacks(q, PICK_STACKS, e);
}

int api_select_merge_span_profile(struct query *q, struct err *e)
{
    return stacks(q, PICK_SPANS, e);
}

/* ---- Diff -------------------------------------------------------------------------------------*/

struct diff_state {
    struct pick *side[SIDES];
};

static int put_diff(struct query *q, const struct diff_state *s, const struct merged *m,
                    struct err *e)
{
    size_t nodes = MAX(s->side[ASK_LEFT]->max_nodes, s->side[ASK_RIGHT]->max_nodes);
    const struct calltree *left = &m[ASK_LEFT].tree, *right = &m[ASK_RIGHT].tree;
    struct msg_out o;
    struct diff d;

    if (query_take(q, diff_cost(left, right), e))
        return e->code;
    diff_init(&d, left, right, nodes);
    query_msg(q, &o);
    flame_msg_diff(&o, 1, "flamegraph", &d);
    msg_out_end(&o);
    diff_deinit(&d);
    return query_out_end(q, e);
}

static int reply_diff(struct query *q, struct err *e)
{
    const struct diff_state *s = q->state;
    struct merged m[SIDES];
    int code = 0;

    for (size_t i = 0; i < SIDES; i++)
        merged_init(&m[i], q);
    for (size_t i = 0; i < SIDES && !code; i++)
        code = merged_read(&m[i], q, i, e);
    q->bounds_start_ms = q->bounds_end_ms = 0; /* there are two */
    if (!code)
        code = put_diff(q, s, m, e);
    for (size_t i = 0; i < SIDES; i++)
        merged_deinit(&m[i]);
    return code;
}

int api_diff_rpc(struct query *q, struct err *e)
{
    static const char *const names[SIDES] = { "left", "right" };
    struct diff_state *s = ARENA_NEW(q->arena, struct diff_state);
    struct v1_diff m;

    CHECK(s);
    if (msg_read(q, &v1_diff_desc, &m, e))
        return e->code;
    const struct v1_merge *sides[SIDES] = { m.left, m.right };
    for (size_t i = 0; i < SIDES; i++) {
        if (!sides[i])
            return err_set(e, ERR_INPUT, "%s is missing: a diff is of two", names[i]);
        if (pick_read(q, sides[i], PICK_STACKS, &s->side[i], e))
            return err_wrap(e, "%s", names[i]);
    }
    q->state = s;
    q->step = reply_diff;
    for (size_t i = 0; i < SIDES; i++)
        if (pick_ask(q, i, s->side[i], e))
            return err_wrap(e, "%s", names[i]);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * api_stacks.c: SelectMergeStacktraces, SelectMergeSpanProfile, SelectMergeProfile and Diff (wire
 * facts 4.4, 4.6). Flame graphs, trees and DOT are made of names (merged.h), pprof of whole frames
 * (exported.h). What may be large is written into the reply where it belongs; JSON alone needs it
 * beside the text.
 */
#include "querier/api/api.h"
#include "querier/async/async.h"
#include "querier/async/msg_json.h"
#include "querier/merge/exported.h"
#include "querier/merge/merged.h"
#include "querier/output/flame_msg.h"
#include "querier/output/flame_stream.h"
#include "querier/render/dot.h"
#include "querier/render/tree_bytes.h"
#include "querier/select/stack_selection.h"

enum { ASK_LEFT, ASK_RIGHT, SIDES };

/* ---- SelectMergeStacktraces, SelectMergeSpanProfile -------------------------------------------*/

/* Moves *m where it is JSON. */
static int put_flame(struct query *q, const struct stack_selection *p, struct merged *m,
                     struct err *e)
{
    struct flame_stream s = { .message = true };
    struct msg_out o;
    struct layout l;
    struct flame f;

    if (q->call.codec != SVC_PROTO)
        return flame_stream_tree(q, m, p->max_nodes, &s, e) ? e->code : flame_stream(q, &s, e);
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

static int put_tree(struct query *q, const struct stack_selection *p, const struct merged *m,
                    struct err *e)
{
    struct buf bytes;
    struct msg_out o;
    struct layout l;

    if (merged_layout(m, q, p->max_nodes, &l, e))
        return e->code;
    query_msg(q, &o);
    if (o.is_json) {
        buf_init(&bytes, query_left(q) / 3);
        tree_bytes_write(&l, &m->tree, &bytes);
        msg_out_bytes(&o, 2, "tree", buf_str(&bytes));
        q->out.failed |= bytes.failed;
        buf_deinit(&bytes);
    } else if (calltree_total(&m->tree)) {
        msg_out_obj_of(&o, 2, "tree", l.len * 40);
        tree_bytes_write(&l, &m->tree, o.out);
        msg_out_obj_end(&o);
    }
    msg_out_end(&o);
    layout_deinit(&l);
    return query_out_end(q, e);
}

static int put_dot(struct query *q, const struct stack_selection *p, const struct merged *m,
                   struct err *e)
{
    struct dot_opts how = { .title = p->spec.profile_type, .nodes = p->asked_nodes };
    struct ptype type;
    struct msg_out o;
    struct buf text;

    if (ptype_parse(p->spec.profile_type, &type, e) || query_take(q, dot_cost(&m->tree), e))
        return e->code;
    how.unit = type.sample_unit;
    query_msg(q, &o);
    buf_init(&text, query_left(q) / 3);
    dot_write(&m->tree, &how, &text);
    msg_out_str(&o, 3, "dot", buf_str(&text));
    q->out.failed |= text.failed;
    buf_deinit(&text);
    msg_out_end(&o);
    return query_out_end(q, e);
}

static int reply_tree(struct query *q, struct err *e)
{
    const struct stack_selection *p = q->state;
    struct merged m;

    merged_init(&m, q);
    int code = merged_read(&m, q, ASK_LEFT, e);
    if (!code)
        code = p->format == V1_TREE  ? put_tree(q, p, &m, e)
               : p->format == V1_DOT ? put_dot(q, p, &m, e)
                                     : put_flame(q, p, &m, e);
    merged_deinit(&m);
    return code;
}

/* ---- pprof ------------------------------------------------------------------------------------*/

static int not_ours(struct err *e)
{
    return err_set(e, ERR_INTERNAL, "a profile that was just written cannot be read");
}

/* In JSON; `wrapped`: as a field of SelectMergeStacktracesResponse. */
static int put_pprof_json(struct query *q, const struct exported *x, const struct export_head *h,
                          bool wrapped, struct err *e)
{
    struct buf plain;
    struct json j;

    buf_init(&plain, query_left(q) / 4);
    int code = export_pprof_write(&x->set, h, &plain, e);
    if (!code)
        code = query_take(q, plain.len, e);
    if (!code) {
        query_json(q, &j);
        if (wrapped)
            buf_add_str(&q->out, STR("{\"pprof\":{\"profile\":"));
        if (!msg_json(&msg_json_profile, buf_str(&plain), &j))
            code = not_ours(e);
        if (wrapped)
            buf_add_str(&q->out, STR("}}"));
    }
    buf_deinit(&plain);
    return code ? code : query_out_end(q, e);
}

static int put_pprof(struct query *q, const struct exported *x, const struct export_head *h,
                     bool wrapped, struct err *e)
{
    size_t guess = export_bytes(&x->set);
    struct msg_out o;

    if (q->call.codec == SVC_JSON)
        return put_pprof_json(q, x, h, wrapped, e);
    if (!wrapped)
        return exported_pprof(x, q, h, false, e);
    query_msg(q, &o);
    msg_out_obj_of(&o, 5, "pprof", guess);
    msg_out_obj_of(&o, 1, "profile", guess);
    int code = export_pprof_write(&x->set, h, o.out, e);
    msg_out_obj_end(&o);
    msg_out_obj_end(&o);
    msg_out_end(&o);
    return code ? code : query_out_end(q, e);
}

static int reply_pprof_as(struct query *q, bool wrapped, struct err *e)
{
    const struct stack_selection *p = q->state;
    struct export_how how = { 0 };
    struct export_head h;
    struct exported x;

    if (p->go_pgo)
        how = (struct export_how){ (uint64_t)p->go_pgo->keep_locations,
                                   p->go_pgo->aggregate_callees };
    if (exported_head(p->spec.profile_type, p->times.start_ms, p->times.end_ms, &h, e))
        return e->code;
    exported_init(&x, q, &how);
    int code = exported_read(&x, q, ASK_LEFT, p->max_nodes, e);
    if (!code)
        code = put_pprof(q, &x, &h, wrapped, e);
    exported_deinit(&x);
    return code;
}

static int reply_pprof(struct query *q, struct err *e)
{
    return reply_pprof_as(q, true, e);
}

static int reply_profile(struct query *q, struct err *e)
{
    return reply_pprof_as(q, false, e);
}

int api_select_merge_profile(struct query *q, struct err *e)
{
    struct v1_merge m;
    struct stack_selection *p;

    if (msg_read(q, &v1_profile_desc, &m, e) ||
        stack_selection_read(q, &m, STACK_SELECTION_PROFILE, &p, e))
        return e->code;
    q->state = p;
    q->step = reply_profile;
    return stack_selection_ask(q, ASK_LEFT, p, e);
}

/* ---- the requests -----------------------------------------------------------------------------*/

static int stacks(struct query *q, enum stack_selection_kind kind, struct err *e)
{
    struct v1_merge m;
    struct stack_selection *p;

    if (msg_read(q, kind == STACK_SELECTION_SPANS ? &v1_span_profile_desc : &v1_stacktraces_desc,
                 &m, e))
        return e->code;
    if (m.async && m.async->request_id.len) {
        async_fetch(q, m.async->request_id);
        return 0;
    }
    if (stack_selection_read(q, &m, kind, &p, e))
        return e->code;
    if (kind == STACK_SELECTION_SPANS && p->format > V1_TREE)
        return err_set(e, ERR_INPUT, "format %s: a span profile is a flame graph or a tree",
                       v1_formats.names[p->format]);
    q->state = p;
    q->step = p->format == V1_PPROF ? reply_pprof : reply_tree;
    if (m.async && m.async->type)
        async_detach(q);
    return stack_selection_ask(q, ASK_LEFT, p, e);
}

int api_select_merge_stacktraces(struct query *q, struct err *e)
{
    return stacks(q, STACK_SELECTION_STACKS, e);
}

int api_select_merge_span_profile(struct query *q, struct err *e)
{
    return stacks(q, STACK_SELECTION_SPANS, e);
}

/* ---- Diff -------------------------------------------------------------------------------------*/

struct diff_state {
    struct stack_selection *side[SIDES];
};

/* Moves m where it is JSON. */
static int put_diff(struct query *q, const struct diff_state *s, struct merged m[DIFF_SIDES],
                    struct err *e)
{
    struct flame_stream json = { .message = true };
    size_t nodes = MAX(s->side[ASK_LEFT]->max_nodes, s->side[ASK_RIGHT]->max_nodes);
    const struct calltree *left = &m[ASK_LEFT].tree, *right = &m[ASK_RIGHT].tree;
    struct msg_out o;
    struct diff d;

    if (q->call.codec != SVC_PROTO)
        return flame_stream_diff(q, m, nodes, &json, e) ? e->code : flame_stream(q, &json, e);
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
        if (stack_selection_read(q, sides[i], STACK_SELECTION_STACKS, &s->side[i], e))
            return err_wrap(e, "%s", names[i]);
    }
    q->state = s;
    q->step = reply_diff;
    for (size_t i = 0; i < SIDES; i++)
        if (stack_selection_ask(q, i, s->side[i], e))
            return err_wrap(e, "%s", names[i]);
    return 0;
}

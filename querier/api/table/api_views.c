/* SPDX-License-Identifier: Apache-2.0
 *
 * api_views.c: the table of functions, one function's stacks, its callers and callees.
 *
 *   read parameters ─> view_ask ─> reply: view_read ─> common/render/{top,focus} ─> JSON
 *
 * Each view is a route of its own rather than a mode of one: what is needed (a function, a page)
 * and what comes back differs, and so the names in metrics and logs say what was asked.
 */
#include "querier/api/table/api_views.h"

#include "common/base/size.h"
#include "common/render/metadata.h"
#include "querier/render/focus.h"
#include "querier/render/top.h"
#include "querier/select/function_view_args.h"

#define HOUR_MS 3600000
#define ASK     0

struct views {
    struct view_side side;
    struct view_page page;
    struct str function; /* empty: of all */
    size_t max_nodes;
    size_t sort;
    bool reversed;
};

static int begin(struct query *q, struct views **ret, struct err *e)
{
    int64_t now = clock_wall_ms(q->qr->ctx->env->clock);
    struct views *v = ARENA_NEW(q->arena, struct views);

    CHECK(v);
    q->state = *ret = v;
    return view_side_read(q, "", MAX(now - HOUR_MS, 1), now, &v->side, e);
}

static int ask(struct query *q, query_step_fn reply, struct err *e)
{
    const struct views *v = q->state;

    q->step = reply;
    return view_ask(q, ASK, &v->side, e);
}

/* The function of a request in the tree; a new name, which no node has, if it is not there. */
static uint32_t function_of(struct merged *m, struct str text)
{
    return calltree_name(&m->tree, text);
}

static void put_sums(struct json *j, uint64_t self, uint64_t total, uint64_t all)
{
    json_put_u64(j, "self", self);
    json_put_double(j, "selfPercent", view_percent(self, all));
    json_put_u64(j, "total", total);
    json_put_double(j, "totalPercent", view_percent(total, all));
}

/* ---- top --------------------------------------------------------------------------------------*/

static void put_top(struct query *q, const struct views *v, const struct merged *m,
                    const struct top *top, struct json *j)
{
    size_t begin = (size_t)MIN(v->page.offset, top->len);
    size_t end = begin + (size_t)MIN(v->page.limit, top->len - begin);

    json_obj(j);
    view_side_json(&v->side, m, j);
    view_notes_json(q, j);
    json_put_u64(j, "functions", top->functions);
    json_put_u64(j, "matching", top->len);
    json_put_u64(j, "offset", v->page.offset);
    json_key(j, "rows");
    json_arr(j);
    for (size_t i = begin; i < end; i++) {
        json_obj(j);
        json_put_str(j, "name", m->tree.names.ptr[top->rows[i].name]);
        put_sums(j, top->rows[i].self, top->rows[i].total, top->total);
        json_obj_end(j);
    }
    json_arr_end(j);
    json_obj_end(j);
}

static int reply_top(struct query *q, struct err *e)
{
    struct views *v = q->state;
    struct merged m;
    struct top top;
    struct json j;
    int code = view_read(q, ASK, &v->side, &m, e);

    /* The table of a function is of the stacks that contain it; percents are of those, too. */
    if (!code && v->function.len)
        focus_keep(&m.tree, function_of(&m, v->function));
    if (!code && !(code = query_take(q, top_cost(&m.tree), e))) {
        top_init(&top, &m.tree);
        if (v->page.search.len)
            top_search(&top, &m.tree, v->page.search);
        top_order(&top, &m.tree, (enum top_sort)v->sort, v->reversed);
        query_json(q, &j);
        put_top(q, v, &m, &top, &j);
        top_deinit(&top);
        code = query_out_end(q, e);
    }
    merged_deinit(&m);
    return code;
}

int api_top(struct query *q, struct err *e)
{
    static const char *const sorts[] = {
        [TOP_SELF] = "self", [TOP_TOTAL] = "total", [TOP_NAME] = "name"
    };
    static const char *const orders[] = { "default", "reverse" };
    struct views *v;
    size_t order = 0;

    if (begin(q, &v, e) || view_page_read(q, &v->page, e) ||
        view_word(q, "sort", sorts, ARRAY_LEN(sorts), &v->sort, e) ||
        view_word(q, "order", orders, ARRAY_LEN(orders), &order, e))
        return e->code;
    v->reversed = order;
    (void)http_param(q->http, "function", &v->function);
    return ask(q, reply_top, e);
}

/* ---- focus ------------------------------------------------------------------------------------*/

static uint64_t self_of(const struct calltree *t, uint32_t name)
{
    uint64_t sum = 0;

    for (size_t i = 1; i < t->name.len; i++)
        if (t->name.ptr[i] == name)
            sum = MIN(u64_add_sat(sum, t->self.ptr[i]), (uint64_t)INT64_MAX);
    return sum;
}

static void put_metadata(const struct views *v, struct json *j)
{
    struct ptype t = { 0 };
    struct err e;

    CHECK(ptype_parse(v->side.spec.profile_type, &t, &e) == 0); /* it was parsed before */
    json_key(j, "metadata");
    json_obj(j);
    metadata_json(&t, "single", j);
    json_obj_end(j);
}

static int put_focus(struct query *q, const struct views *v, struct merged *m, struct json *j,
                     struct err *e)
{
    uint32_t name = function_of(m, v->function);
    uint64_t all = calltree_total(&m->tree);

    json_obj(j);
    json_put_u64(j, "version", 1);
    view_side_json(&v->side, m, j);
    view_notes_json(q, j);
    focus_keep(&m->tree, name);
    json_key(j, "function");
    json_obj(j);
    json_put_str(j, "name", v->function);
    put_sums(j, self_of(&m->tree, name), calltree_total(&m->tree), all);
    json_obj_end(j);
    put_metadata(v, j);
    json_key(j, "flamebearer");
    if (view_flame_json(q, &m->tree, v->max_nodes, j, e))
        return e->code;
    json_obj_end(j);
    return query_out_end(q, e);
}

static int reply_focus(struct query *q, struct err *e)
{
    struct views *v = q->state;
    struct merged m;
    struct json j;
    int code = view_read(q, ASK, &v->side, &m, e);

    if (!code) {
        query_json(q, &j);
        code = put_focus(q, v, &m, &j, e);
    }
    merged_deinit(&m);
    return code;
}

int api_focus(struct query *q, struct err *e)
{
    struct views *v;

    if (begin(q, &v, e) || view_function(q, &v->function, e) || view_nodes(q, &v->max_nodes, e))
        return e->code;
    return ask(q, reply_focus, e);
}

/* ---- sandwich ---------------------------------------------------------------------------------*/

static int put_sandwich(struct query *q, const struct views *v, const struct merged *m,
                        const struct sandwich *s, struct err *e)
{
    struct json j;

    query_json(q, &j);
    json_obj(&j);
    json_put_u64(&j, "version", 1);
    view_side_json(&v->side, m, &j);
    view_notes_json(q, &j);
    json_key(&j, "function");
    json_obj(&j);
    json_put_str(&j, "name", v->function);
    put_sums(&j, s->self, s->total, calltree_total(&m->tree));
    json_obj_end(&j);
    put_metadata(v, &j);
    json_key(&j, "callers");
    if (view_flame_json(q, &s->callers, 0, &j, e))
        return e->code;
    json_key(&j, "callees");
    if (view_flame_json(q, &s->callees, v->max_nodes, &j, e))
        return e->code;
    json_obj_end(&j);
    return query_out_end(q, e);
}

static int reply_sandwich(struct query *q, struct err *e)
{
    struct views *v = q->state;
    struct merged m;
    struct sandwich s;
    int code = view_read(q, ASK, &v->side, &m, e);

    if (!code) {
        uint32_t name = function_of(&m, v->function);
        code = query_take(q, sandwich_cost(&m.tree, name, v->max_nodes), e);
        if (!code) {
            code = sandwich_init(&s, &m.tree, name, v->max_nodes, &q->cancel, e);
            if (!code)
                code = put_sandwich(q, v, &m, &s, e);
            sandwich_deinit(&s);
        }
    }
    merged_deinit(&m);
    return code;
}

int api_sandwich(struct query *q, struct err *e)
{
    struct views *v;

    if (begin(q, &v, e) || view_function(q, &v->function, e) || view_nodes(q, &v->max_nodes, e))
        return e->code;
    return ask(q, reply_sandwich, e);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * api_select.c: SelectSeries (proto/WIRE.md, "SelectSeries").
 *
 * A request has one of three answers: points of whole profiles (a timeline of each group), points
 * below a call site (select_site.c), and points of spans, traces or profiles by id, which are made
 * from lists of exemplars since timelines have no ids. Exemplars of the largest value are added to
 * each point when the request asks for them. Steps run one after the other: read, ask, reply; each
 * ends the query at its first error.
 */
#include "querier/api/api.h"

#include <stdlib.h>

#include "common/base/size.h"
#include "common/model/slot.h"
#include "querier/api/flame/select.h"
#include "querier/merge/collectors.h"

enum { ASK_SERIES, ASK_EXEMPLARS };

/* The largest exemplar of each point. */
struct top {
    const struct wire_exemplar *x;
    const struct labels *series;
};
struct tops {
    VEC(struct top) at;
    struct map_u64 points;  /* group << 32 | k -> index into at */
    struct map_str *groups; /* canonical labels -> index */
};

static void add_top(struct tops *tops, uint32_t group, uint32_t k, struct top top)
{
    uint32_t at = map_u64_put(&tops->points, (uint64_t)group << 32 | k, (uint32_t)tops->at.len);

    if (at == MAP_U64_EMPTY)
        vec_push(&tops->at, top);
    else if (top.x->total > tops->at.ptr[at].x->total)
        tops->at.ptr[at] = top;
}

/* What has nothing below the call site is in lists by id alone. */
static bool list_point(const struct select_series *s, const struct select_list *list,
                       const struct wire_exemplar *x, uint32_t *ret_k)
{
    int64_t ms = list->leaves ? slot_to_ms(slot_leaf(slot_of_ms(x->start_ms))) : x->start_ms;

    return (!s->site.len || x->total) && exm_point(&list->grid, ms, ret_k);
}

static int add_tops(struct query *q, const struct select_series *s, const struct select_list *list,
                    const struct wire_exm_list *l, struct tops *tops, struct err *e)
{
    uintptr_t *groups = ARENA_ARRAY(q->data, uintptr_t, l->series_len + 1);
    struct exm_group mine;
    uint32_t k;

    if (!groups || query_take(q, l->len * 64, e))
        return groups ? e->code : err_set(e, ERR_LIMIT, "too many series in one answer");
    for (size_t i = 0; i < l->series_len; i++) {
        if (exm_group(&l->series[i], s->group_by, s->group_by_len, q->arena, &mine, e))
            return e->code;
        groups[i] = (uintptr_t)map_str_get(tops->groups, mine.key);
    }
    for (size_t i = 0; i < l->len; i++) {
        const struct wire_exemplar *x = &l->items[i];
        if (groups[x->series] && list_point(s, list, x, &k))
            add_top(tops, (uint32_t)groups[x->series] - 1, k,
                    (struct top){ x, &l->series[x->series] });
    }
    return 0;
}

static int make_tops(struct query *q, const struct select_series *s, const struct timeline *t,
                     const struct select_list *list, struct tops *tops, struct err *e)
{
    vec_for (i, &t->groups)
        map_str_put(tops->groups, t->groups.ptr[i].key, (void *)(uintptr_t)(i + 1));
    for (size_t i = 0; i < list->len && s->asked.exemplars > V1_EXM_NONE; i++)
        if (add_tops(q, s, list, &list->at[i], tops, e))
            return e->code;
    return 0;
}

static void put_top(const struct select_series *s, const struct tops *tops, uint32_t group,
                    uint32_t k, struct msg_out *o)
{
    uint32_t at = map_u64_get(&tops->points, (uint64_t)group << 32 | k);

    msg_out_list(o, 4, "exemplars");
    if (at != MAP_U64_EMPTY)
        exm_put(tops->at.ptr[at].x, tops->at.ptr[at].series, s->group_by, s->group_by_len, o);
    msg_out_list_end(o);
}

static void put_series(const struct select_series *s, const struct timeline *t, uint32_t group,
                       const struct tops *tops, struct msg_out *o)
{
    const struct timeline_group *g = &t->groups.ptr[group];

    msg_out_obj_of(o, MSG_ITEM, g->points.len * 18);
    msg_out_labels(o, 1, "labels", &g->labels);
    msg_out_list(o, 2, "points");
    vec_for (i, &g->points) {
        const struct timeline_point *p = &g->points.ptr[i];
        if (s->site.len && !p->value)
            continue; /* there are pushes, but none of this call site */
        msg_out_obj(o, MSG_ITEM);
        msg_out_double(o, 1, "value", timeline_value(t, p, s->asked.average != 0));
        msg_out_i64(o, 2, "timestamp", s->grid.origin_ms + (int64_t)p->k * s->grid.step_ms);
        put_top(s, tops, group, p->k, o);
        msg_out_obj_end(o);
    }
    msg_out_list_end(o);
    msg_out_obj_end(o);
}

static int put_all(struct query *q, const struct select_series *s, const struct timeline *t,
                   const struct tops *tops, struct err *e)
{
    size_t n = t->groups.len;
    struct msg_out o;

    q->bounds_start_ms = t->start_ms;
    q->bounds_end_ms = t->end_ms;
    while (n && s->site.len && t->groups.ptr[n - 1].sum <= 0)
        n--;
    if (s->asked.limit > 0)
        n = MIN(n, (size_t)s->asked.limit);
    query_msg(q, &o);
    msg_out_list(&o, 1, "series");
    for (size_t i = 0; i < n; i++)
        put_series(s, t, (uint32_t)i, tops, &o);
    msg_out_list_end(&o);
    msg_out_end(&o);
    return query_out_end(q, e);
}

NODISCARD int select_reply(struct query *q, const struct select_series *s, const struct timeline *t,
                           const struct select_list *list, struct err *e)
{
    struct tops tops = { .groups = map_str_new() };

    map_u64_init(&tops.points);
    int code = make_tops(q, s, t, list, &tops, e);
    if (!code)
        code = put_all(q, s, t, &tops, e);
    map_u64_deinit(&tops.points);
    map_str_free(tops.groups);
    vec_free(&tops.at);
    return code;
}

NODISCARD int select_read_list(struct query *q, size_t ask, struct select_list *ret, struct err *e)
{
    struct wire_exm_list *at = ARENA_ARRAY(q->arena, struct wire_exm_list, q->calls.len + 1);
    size_t pos = 0;
    int n;

    *ret = (struct select_list){ .at = at };
    if (!at)
        return err_set(e, ERR_LIMIT, "too many ingesters and tenants in one request");
    while ((n = query_next_exemplars(q, ask, &pos, &at[ret->len], e)) > 0)
        q->truncated |= at[ret->len++].truncated;
    return n < 0 ? e->code : 0;
}

/* By id, points are those of the exemplars themselves. */
static struct plan_grid list_grid(const struct select_series *s)
{
    return s->ids.kinds ? s->grid : plan_grid_asked(s->grid);
}

static int reply_select_series(struct query *q, struct err *e)
{
    const struct select_series *s = q->state;
    struct select_list list;
    struct timeline t;

    timeline_init(&t, q->arena);
    int code = merged_timeline(q, ASK_SERIES, s->grid.points, s->asked.average != 0, &t, e);
    if (!code)
        code = select_read_list(q, ASK_EXEMPLARS, &list, e);
    if (!code) {
        list.grid = list_grid(s);
        code = select_reply(q, s, &t, &list, e);
    }
    timeline_deinit(&t);
    return code;
}

/* ---- by id and in groups: the list has the labels of each exemplar, a timeline has not ---- */

struct one {
    uint32_t group, k, leaf;
    uint64_t value;
};
struct ones {
    VEC(struct one) at;
    VEC(struct labels) groups;
    struct map_str *by_key; /* canonical labels -> index + 1 */
    bool gauge;
};

static int find_group(struct query *q, const struct select_series *s, const struct labels *series,
                      struct ones *o, uint32_t *ret, struct err *e)
{
    struct exm_group mine;

    if (exm_group(series, s->group_by, s->group_by_len, q->arena, &mine, e))
        return e->code;
    *ret = (uint32_t)map_str_index(o->by_key, mine.key, o->groups.len);
    if (*ret == o->groups.len)
        vec_push(&o->groups, mine.labels);
    return 0;
}

static int add_list(struct query *q, const struct select_series *s, const struct wire_exm_list *l,
                    struct ones *o, struct err *e)
{
    uint32_t *groups = ARENA_ARRAY(q->data, uint32_t, l->series_len + 1);

    if (!groups || query_take(q, l->len * 4 * sizeof(struct one), e))
        return groups ? e->code : err_set(e, ERR_LIMIT, "too many series in one answer");
    o->gauge |= l->gauge;
    for (size_t i = 0; i < l->series_len; i++)
        if (find_group(q, s, &l->series[i], o, &groups[i], e))
            return e->code;
    for (size_t i = 0; i < l->len; i++) {
        const struct wire_exemplar *x = &l->items[i];
        uint32_t k;
        if (exm_point(&s->grid, x->start_ms, &k))
            vec_push(&o->at, ((struct one){ groups[x->series], k,
                                            slot_of_ms(x->start_ms) / LEAF_SLOTS, x->total }));
    }
    return 0;
}

static int by_place(const void *a, const void *b)
{
    const struct one *x = a, *y = b;

    if (x->group != y->group)
        return x->group < y->group ? -1 : 1;
    if (x->k != y->k)
        return x->k < y->k ? -1 : 1;
    return x->leaf < y->leaf ? -1 : x->leaf > y->leaf;
}

/* Points of the group that number i is the first of; *ret_next is behind them. A leaf in which
 * several exemplars stand counts once, as it does where nothing is grouped by. */
static int add_points(struct query *q, const struct ones *o, size_t i, struct timeline *t,
                      size_t *ret_next, struct err *e)
{
    const struct one *all = o->at.ptr;
    size_t end = i;

    while (end < o->at.len && all[end].group == all[i].group)
        end++;
    uint32_t *point = ARENA_ARRAY(q->data, uint32_t, end - i);
    uint32_t *leaves = ARENA_ARRAY(q->data, uint32_t, end - i);
    uint64_t *value = ARENA_ARRAY(q->data, uint64_t, end - i);
    uint64_t *writes = ARENA_ARRAY(q->data, uint64_t, end - i);
    struct wire_points p = { .labels = o->groups.ptr[all[i].group],
                             .point = point,
                             .value = value,
                             .writes = writes,
                             .leaves = leaves };
    struct wire_timelines w = { .series = &p, .len = 1, .gauge = o->gauge };

    if (!point || !leaves || !value || !writes)
        return err_set(e, ERR_LIMIT, "too many exemplars in one answer");
    for (size_t n = i; n < end; n++) {
        bool first = n == i || all[n].k != all[n - 1].k;
        size_t at = first ? p.len++ : p.len - 1;
        point[at] = all[n].k;
        value[at] = first ? all[n].value : u64_add_sat(value[at], all[n].value);
        writes[at] = first ? 1 : writes[at] + 1;
        leaves[at] = first ? 1 : leaves[at] + (all[n].leaf != all[n - 1].leaf);
    }
    *ret_next = end;
    return query_take(q, timeline_cost(&w), e) || timeline_add(t, &w, e) ? e->code : 0;
}

static int group_ids(struct query *q, const struct select_series *s, const struct select_list *list,
                     struct ones *o, struct timeline *t, struct err *e)
{
    for (size_t i = 0; i < list->len; i++)
        if (add_list(q, s, &list->at[i], o, e))
            return e->code;
    if (o->at.len)
        qsort(o->at.ptr, o->at.len, sizeof(*o->at.ptr), by_place);
    for (size_t i = 0; i < o->at.len;)
        if (add_points(q, o, i, t, &i, e))
            return e->code;
    timeline_finish(t, s->asked.average != 0);
    return 0;
}

static int reply_ids(struct query *q, struct err *e)
{
    const struct select_series *s = q->state;
    struct ones o = { .by_key = map_str_new() };
    struct select_list list;
    struct timeline t;

    timeline_init(&t, q->arena);
    int code = select_read_list(q, ASK_SERIES, &list, e);
    if (!code)
        code = group_ids(q, s, &list, &o, &t, e);
    list.grid = list_grid(s);
    if (!code)
        code = select_reply(q, s, &t, &list, e);
    timeline_deinit(&t);
    map_str_free(o.by_key);
    vec_free(&o.at);
    vec_free(&o.groups);
    return code;
}

/* ---- questions ---- */

static struct plan_range range_of(const struct select_series *s)
{
    /* The first point reaches one step back. */
    return plan_range(s->grid.origin_ms - s->grid.step_ms, s->times.end_ms + 1);
}

static int ask_ids(struct query *q, const struct select_series *s, struct wire_query *wq,
                   struct err *e)
{
    if (s->group_by_len)
        return exm_ask_ids(q, ASK_SERIES, wq, &s->ids, s->site, e);
    const struct exm_timeline timeline = { s->grid, s->site };
    if (exm_ask_timeline(q, ASK_SERIES, wq, &s->ids, &timeline, e))
        return e->code;
    return s->asked.exemplars > V1_EXM_NONE ? exm_ask_ids(q, ASK_EXEMPLARS, wq, &s->ids, s->site, e)
                                            : 0;
}

NODISCARD int select_ask_list(struct query *q, const struct select_series *s, size_t ask,
                              struct wire_query *wq, struct err *e)
{
    bool spans = s->asked.exemplars == V1_EXM_SPAN;
    /* One for each point that can be shown. */
    struct wire_exemplars x = { .kinds = spans ? 1u << EXID_SPAN : 1u << EXID_PROFILE,
                                .leaves = !spans,
                                .grid = plan_grid_asked(s->grid),
                                .whole_leaves = s->site.len > 0,
                                .group_by = s->group_by,
                                .group_by_len = s->group_by_len };

    return s->asked.exemplars > V1_EXM_NONE ? exm_ask_list(q, ask, wq, x, s->site, e) : 0;
}

static int ask_series(struct query *q, const struct select_series *s, struct wire_query *wq,
                      struct err *e)
{
    /* A mean is over pushes: those of a point, and the sums of the same ones. */
    struct wire_timeline tl = { plan_grid_asked(s->grid), s->group_by, s->group_by_len,
                                s->asked.average == 0 };

    return query_ask_timeline(q, ASK_SERIES, wq, &tl, e)
               ? e->code
               : select_ask_list(q, s, ASK_EXEMPLARS, wq, e);
}

static int read_site(struct query *q, struct select_series *s, struct err *e)
{
    const struct v1_stack_selector *selector = s->asked.stack_trace_selector;
    size_t n = selector ? selector->call_site.len : 0;
    struct str *names = ARENA_ARRAY(q->arena, struct str, n + 1);

    if (!names)
        return err_set(e, ERR_LIMIT, "stackTraceSelector: too much text in one request");
    for (size_t i = 0; i < n; i++)
        names[i] = ((const struct v1_location *)selector->call_site.ptr)[i].name;
    s->site = (struct exm_site){ names, n };
    return 0;
}

static int read_select_series(struct query *q, struct select_series *s, struct err *e)
{
    struct v1_series *m = &s->asked;

    if (msg_read(q, &v1_series_desc, m, e) ||
        msg_selection(q, m->profile_type, m->label_selector, &s->spec, e) ||
        msg_times(q, m->start, m->end, false, &s->times, e) ||
        plan_series_grid(s->times.start_ms, s->times.end_ms, m->step, q->qr->conf->points_max,
                         &s->grid, e) ||
        exm_of_spec(&s->spec, q->arena, &s->ids, e) || read_site(q, s, e))
        return e->code;
    s->group_by = msg_strs(&m->group_by);
    s->group_by_len = m->group_by.len;
    return 0;
}

int api_select_series(struct query *q, struct err *e)
{
    struct select_series *s = ARENA_NEW(q->arena, struct select_series);

    CHECK(s);
    q->state = s;
    if (read_select_series(q, s, e))
        return e->code;
    collectors_apart(q, s->group_by, s->group_by_len);
    if (s->site.len && !s->ids.kinds)
        return select_site_ask(q, e);
    struct wire_query wq = { .profile_type = s->spec.profile_type,
                             .selectors = s->spec.selectors,
                             .selectors_len = s->spec.len,
                             .range = range_of(s) };
    int code = 0;
    q->step = s->ids.kinds && s->group_by_len ? reply_ids : reply_select_series;
    for (size_t i = 0; i < q->tenants_len && !wq.range.empty && !code; i++) {
        wq.tenant = q->tenants[i];
        code = s->ids.kinds ? ask_ids(q, s, &wq, e)
                            : ask_series(q, s, &wq, e) || collectors_ask(q, 0, i, &wq, e);
    }
    return code ? e->code : 0;
}

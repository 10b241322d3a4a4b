/* SPDX-License-Identifier: Apache-2.0
 *
 * api_select.c: SelectMergeStacktraces and SelectSeries (wire facts 4.4 to 4.6).
 */
#include "querier/api_connect.h"

#include "querier/connect_msg.h"
#include "querier/exemplars.h"
#include "querier/merged.h"

#define EXEMPLARS_INDIVIDUAL 2 /* ExemplarType */

enum { ASK_MERGE, ASK_SERIES, ASK_EXEMPLARS };

/* stack_trace_selector.call_site: names, root first. */
static int read_call_site(struct query *q, const struct json_val *m, const struct str **ret,
                          size_t *ret_len, struct err *e)
{
    const struct json_val *selector = json_get(m, "stackTraceSelector", "stack_trace_selector");
    const struct json_val *sites = json_get(selector, "callSite", "call_site");
    size_t n = json_len(sites);

    if ((selector && !json_is_obj(selector)) || (sites && !json_is_arr(sites)))
        return err_set(e, ERR_INPUT, "stackTraceSelector: want {\"callSite\":[{\"name\":..}]}");
    if (n > 8192)
        return err_set(e, ERR_LIMIT, "stackTraceSelector: %zu frames, the limit is 8192", n);
    struct str *names = ARENA_ARRAY(q->arena, struct str, n + 1);
    if (!names)
        return err_set(e, ERR_LIMIT, "stackTraceSelector: too much text in one request");
    for (size_t i = 0; i < n; i++)
        if (json_take_str(json_get(json_at(sites, i), "name", NULL), "callSite.name", &names[i], e))
            return e->code;
    *ret = names;
    *ret_len = n;
    return 0;
}

/* ---- SelectMergeStacktraces -------------------------------------------------------------------*/

struct stacktraces {
    struct spec spec;
    struct msg_times times;
    const struct str *call_site;
    size_t call_site_len;
    size_t max_nodes;
    struct exm_ids ids;
};

static int read_max_nodes(struct query *q, const struct json_val *m, size_t *ret, struct err *e)
{
    const struct querier_conf *c = q->qr->conf;
    int64_t n = 0;

    if (json_take_i64(json_get(m, "maxNodes", "max_nodes"), "maxNodes", &n, e))
        return e->code;
    if (n < 0 || n > (int64_t)c->nodes_max)
        return err_set(e, ERR_INPUT, "maxNodes is %" PRId64 ", it must be 0 to %" PRIu64, n,
                       c->nodes_max);
    *ret = n ? (size_t)n : c->nodes_default;
    return 0;
}

static int read_format(const struct json_val *m, struct err *e)
{
    static const char *const formats[] = { "PROFILE_FORMAT_UNSPECIFIED",
                                           "PROFILE_FORMAT_FLAMEGRAPH", "PROFILE_FORMAT_TREE",
                                           "PROFILE_FORMAT_DOT", "PROFILE_FORMAT_PPROF" };
    int64_t format = 0;

    if (msg_enum(m, "format", NULL, formats, ARRAY_LEN(formats), &format, e))
        return e->code;
    if (format > 1)
        return err_set(e, ERR_UNIMPLEMENTED,
                       "format %s is not supported by this version: use "
                       "PROFILE_FORMAT_FLAMEGRAPH",
                       formats[format]);
    return 0;
}

static int reply_stacktraces(struct query *q, struct err *e)
{
    const struct stacktraces *s = q->state;
    struct merged m;
    struct layout l;
    struct flame f;
    struct json j;

    merged_init(&m, q);
    int code = merged_read(&m, q, ASK_MERGE, e);
    if (!code)
        code = merged_layout(&m, q, s->max_nodes, &l, e);
    if (!code) {
        flame_init(&f, &l, &m.tree);
        query_json(q, &j);
        json_obj(&j);
        json_key(&j, "flamegraph");
        flame_connect(&f, &j);
        json_obj_end(&j);
        code = query_out_end(q, e);
        flame_deinit(&f);
        layout_deinit(&l);
    }
    merged_deinit(&m);
    return code;
}

static int stacktraces(struct query *q, bool spans, struct err *e)
{
    struct stacktraces *s = ARENA_NEW(q->arena, struct stacktraces);
    const struct json_val *m;
    int code = 0;

    CHECK(s);
    q->state = s;
    if (msg_begin(q, &m, e) || msg_selection(q, m, &s->spec, e) ||
        msg_times(q, m, false, &s->times, e) || read_max_nodes(q, m, &s->max_nodes, e) ||
        read_format(m, e) || read_call_site(q, m, &s->call_site, &s->call_site_len, e) ||
        exm_of_spec(&s->spec, q->arena, &s->ids, e) || exm_of_msg(q, m, spans, &s->ids, e) ||
        msg_not_yet(m, "async", NULL, e))
        return e->code;
    struct wire_query wq = { .profile_type = s->spec.profile_type,
                             .selectors = s->spec.selectors,
                             .selectors_len = s->spec.len,
                             .range = s->times.range };
    q->step = reply_stacktraces;
    for (size_t i = 0; i < q->tenants_len && !wq.range.empty && !code; i++) {
        wq.tenant = q->tenants[i];
        code = s->ids.kinds
                   ? exm_ask_merge(q, ASK_MERGE, &wq, &s->ids, s->call_site, s->call_site_len, e)
                   : query_ask_merge(q, ASK_MERGE, &wq, s->call_site, s->call_site_len, e);
    }
    return code;
}

int api_select_merge_stacktraces(struct query *q, struct err *e)
{
    return stacktraces(q, false, e);
}

int api_select_merge_span_profile(struct query *q, struct err *e)
{
    return stacktraces(q, true, e);
}

/* ---- SelectSeries -----------------------------------------------------------------------------*/

struct select_series {
    struct spec spec;
    struct msg_times times;
    struct plan_grid grid;
    const struct str *group_by;
    size_t group_by_len;
    int64_t average; /* TimeSeriesAggregationType */
    int64_t limit;
    struct exm_ids ids;
    int64_t exemplars; /* ExemplarType */
};

/* The largest exemplar of each point. */
struct top {
    const struct wire_exemplar *x;
    const struct labels *series;
};
struct tops {
    VEC(struct top) at;
    struct map_u64 points;  /* group << 32 | k -> index into at */
    struct map_str *groups; /* canonical labels -> index + 1 */
};

static void add_top(struct tops *tops, uint32_t group, uint32_t k, struct top top)
{
    uint32_t at = map_u64_put(&tops->points, (uint64_t)group << 32 | k, (uint32_t)tops->at.len);

    if (at == MAP_U64_EMPTY)
        vec_push(&tops->at, top);
    else if (top.x->total > tops->at.ptr[at].x->total)
        tops->at.ptr[at] = top;
}

static int read_tops(struct query *q, const struct select_series *s, const struct timeline *t,
                     struct tops *tops, struct err *e)
{
    struct wire_exm_list l;
    struct labels mine;
    struct str key;
    size_t pos = 0;
    uint32_t k;
    int n;

    vec_for (i, &t->groups)
        map_str_put(tops->groups, t->groups.ptr[i].key, (void *)(uintptr_t)(i + 1));
    while ((n = query_next_exemplars(q, ASK_EXEMPLARS, &pos, &l, e)) > 0) {
        uintptr_t *groups = ARENA_ARRAY(q->data, uintptr_t, l.series_len + 1);
        if (!groups || query_take(q, l.len * 64, e))
            return groups ? e->code : err_set(e, ERR_LIMIT, "too many series in one answer");
        for (size_t i = 0; i < l.series_len; i++) {
            if (exm_group(&l.series[i], s->group_by, s->group_by_len, q->arena, &mine, &key, e))
                return e->code;
            groups[i] = (uintptr_t)map_str_get(tops->groups, key);
        }
        for (size_t i = 0; i < l.len; i++) {
            const struct wire_exemplar *x = &l.items[i];
            if (groups[x->series] && exm_point(&s->grid, x->start_ms, &k))
                add_top(tops, (uint32_t)groups[x->series] - 1, k,
                        (struct top){ x, &l.series[x->series] });
        }
        q->truncated |= l.truncated;
    }
    return n < 0 ? e->code : 0;
}

static void put_top(const struct select_series *s, const struct tops *tops, uint32_t group,
                    uint32_t k, struct json *j)
{
    uint32_t at = map_u64_get(&tops->points, (uint64_t)group << 32 | k);

    if (at == MAP_U64_EMPTY)
        return;
    json_key(j, "exemplars");
    json_arr(j);
    exm_put(tops->at.ptr[at].x, tops->at.ptr[at].series, s->group_by, s->group_by_len, j);
    json_arr_end(j);
}

static void put_series(const struct select_series *s, const struct timeline *t, uint32_t group,
                       const struct tops *tops, struct json *j)
{
    const struct timeline_group *g = &t->groups.ptr[group];

    json_obj(j);
    if (g->labels.len) {
        json_key(j, "labels");
        msg_put_labels(&g->labels, j);
    }
    json_key(j, "points");
    json_arr(j);
    vec_for (i, &g->points) {
        double value = timeline_value(t, &g->points.ptr[i], s->average != 0);
        json_obj(j);
        if (value != 0) {
            json_key(j, "value");
            json_double(j, value);
        }
        json_key(j, "timestamp");
        json_i64_str(j, s->grid.origin_ms + (int64_t)g->points.ptr[i].k * s->grid.step_ms);
        put_top(s, tops, group, g->points.ptr[i].k, j);
        json_obj_end(j);
    }
    json_arr_end(j);
    json_obj_end(j);
}

static int reply_select_series(struct query *q, struct err *e)
{
    const struct select_series *s = q->state;
    struct tops tops = { 0 };
    struct timeline t;
    struct json j;

    timeline_init(&t, q->arena);
    map_u64_init(&tops.points);
    tops.groups = map_str_new();
    int code = merged_timeline(q, ASK_SERIES, s->grid.points, s->average != 0, &t, e);
    if (!code)
        code = read_tops(q, s, &t, &tops, e);
    q->bounds_start_ms = t.start_ms;
    q->bounds_end_ms = t.end_ms;
    size_t n = s->limit > 0 && (uint64_t)s->limit < t.groups.len ? (size_t)s->limit : t.groups.len;
    query_json(q, &j);
    json_obj(&j);
    if (n) {
        json_key(&j, "series");
        json_arr(&j);
    }
    for (size_t i = 0; !code && i < n; i++)
        put_series(s, &t, (uint32_t)i, &tops, &j);
    if (n)
        json_arr_end(&j);
    json_obj_end(&j);
    timeline_deinit(&t);
    map_u64_deinit(&tops.points);
    map_str_free(tops.groups);
    vec_free(&tops.at);
    return code ? code : query_out_end(q, e);
}

static int read_select_series(struct query *q, struct select_series *s, struct err *e)
{
    static const char *const aggregations[] = { "TIME_SERIES_AGGREGATION_TYPE_SUM",
                                                "TIME_SERIES_AGGREGATION_TYPE_AVERAGE" };
    static const char *const exemplars[] = { "EXEMPLAR_TYPE_UNSPECIFIED", "EXEMPLAR_TYPE_NONE",
                                             "EXEMPLAR_TYPE_INDIVIDUAL", "EXEMPLAR_TYPE_SPAN" };
    const struct json_val *m;
    const struct str *call_site;
    size_t call_site_len = 0;
    double step = 0;

    if (msg_begin(q, &m, e) || msg_selection(q, m, &s->spec, e) ||
        msg_times(q, m, false, &s->times, e) ||
        json_take_double(json_get(m, "step", NULL), "step", &step, e) ||
        plan_series_grid(s->times.start_ms, s->times.end_ms, step, q->qr->conf->points_max,
                         &s->grid, e) ||
        msg_strings(q, m, "groupBy", "group_by", &s->group_by, &s->group_by_len, e) ||
        msg_enum(m, "aggregation", NULL, aggregations, ARRAY_LEN(aggregations), &s->average, e) ||
        json_take_i64(json_get(m, "limit", NULL), "limit", &s->limit, e) ||
        msg_enum(m, "exemplarType", "exemplar_type", exemplars, ARRAY_LEN(exemplars), &s->exemplars,
                 e) ||
        read_call_site(q, m, &call_site, &call_site_len, e) ||
        exm_of_spec(&s->spec, q->arena, &s->ids, e))
        return e->code;
    if (s->ids.kinds && s->group_by_len)
        return err_set(e, ERR_UNIMPLEMENTED,
                       "groupBy together with an id of a span or trace is not supported by this "
                       "version");
    if (s->exemplars > EXEMPLARS_INDIVIDUAL)
        return err_set(e, ERR_UNIMPLEMENTED, "%s is not supported here: SelectHeatmap has spans",
                       exemplars[s->exemplars]);
    if (call_site_len)
        return err_set(e, ERR_UNIMPLEMENTED,
                       "stackTraceSelector on SelectSeries is not supported by this version");
    return 0;
}

int api_select_series(struct query *q, struct err *e)
{
    struct select_series *s = ARENA_NEW(q->arena, struct select_series);

    CHECK(s);
    q->state = s;
    if (read_select_series(q, s, e))
        return e->code;
    struct wire_query wq = { .profile_type = s->spec.profile_type,
                             .selectors = s->spec.selectors,
                             .selectors_len = s->spec.len };
    struct wire_timeline tl = { plan_grid_asked(s->grid), s->group_by, s->group_by_len };
    /* The first point reaches one step back. */
    bool empty = plan_range(s->grid.origin_ms - s->grid.step_ms, s->times.end_ms + 1).empty;
    q->step = reply_select_series;
    int code = 0;
    for (size_t i = 0; i < q->tenants_len && !empty && !code; i++) {
        wq.tenant = q->tenants[i];
        code = s->ids.kinds ? exm_ask_timeline(q, ASK_SERIES, &wq, &s->ids, s->grid, e)
                            : query_ask_timeline(q, ASK_SERIES, &wq, &tl, e);
        /* The pushes that came with an id of their own. */
        wq.range = plan_range(s->grid.origin_ms - s->grid.step_ms, s->times.end_ms + 1);
        if (!code && s->exemplars == EXEMPLARS_INDIVIDUAL)
            code = exm_ask_list(q, ASK_EXEMPLARS, &wq, 1u << EXID_PROFILE, e);
    }
    return code;
}

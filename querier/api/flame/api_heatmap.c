/* SPDX-License-Identifier: Apache-2.0
 *
 * api_heatmap.c: SelectHeatmap (proto/WIRE.md, "SelectHeatmap"): how many spans, or single
 * profiles, cost how much, over time.
 *
 *   summary: least and largest value ──> cells by group, point and bucket ──> counts
 *
 * The edges of the buckets are the same in all slots of an answer: from the least to the largest
 * value in equal steps. So these are asked first; then ingesters count, and send for each cell its
 * largest exemplar, which stands for it where exemplars are asked for. What comes in between counts
 * in the first or the last bucket. A single profile is a push with an id of its own, or a leaf of a
 * series (common/model/leafid.h).
 */
#include <stdlib.h>

#include "common/base/map.h"
#include "querier/api/api.h"
#include "querier/select/connect_msg.h"
#include "querier/select/exemplars.h"

#define BUCKETS 20

enum { ASK_SUMMARY, ASK_CELLS };

struct item {
    const struct wire_exemplar *x;
    const struct labels *series;
    uint32_t group, slot; /* slot k of the grid */
};
struct group {
    struct labels labels;
    double sum;
    size_t from, to; /* of the items */
};
struct heatmap {
    struct v1_series asked;
    struct query_spec spec;
    struct msg_times times;
    struct plan_grid grid;

    VEC(struct item) items;
    VEC(struct group) groups;
    struct map_str *by_labels;
    uint64_t least, most;
    double step;
};

/* ---- request ---- */

static int read_request(struct query *q, struct heatmap *h, struct err *e)
{
    struct v1_series *m = &h->asked;

    if (msg_read(q, &v1_heatmap_desc, m, e) ||
        msg_selection(q, m->profile_type, m->label_selector, &h->spec, e) ||
        msg_times(q, m->start, m->end, false, &h->times, e) ||
        plan_series_grid(h->times.start_ms, h->times.end_ms, m->step, q->qr->conf->points_max,
                         &h->grid, e))
        return e->code;
    if (m->query_type == V1_HEAT_UNSPECIFIED)
        m->query_type = V1_HEAT_INDIVIDUAL;
    if (m->exemplars > V1_EXM_NONE &&
        (m->exemplars == V1_EXM_SPAN) != (m->query_type == V1_HEAT_SPAN))
        return err_set(e, ERR_INPUT, "exemplarType %s does not go with queryType %s",
                       v1_exemplar_types.names[m->exemplars],
                       v1_heatmap_types.names[m->query_type]);
    return 0;
}

/* ---- reply ---- */

static int find_group(struct query *q, struct heatmap *h, const struct labels *series,
                      uint32_t *ret, struct err *e)
{
    struct exm_group mine;

    if (exm_group(series, msg_strs(&h->asked.group_by), h->asked.group_by.len, q->arena, &mine, e))
        return e->code;
    *ret = (uint32_t)map_str_index(h->by_labels, mine.key, h->groups.len);
    if (*ret == h->groups.len)
        vec_push(&h->groups, ((struct group){ .labels = mine.labels }));
    return 0;
}

static int add_list(struct query *q, struct heatmap *h, const struct wire_exm_list *l,
                    struct err *e)
{
    uint32_t *group_of = ARENA_ARRAY(q->data, uint32_t, l->series_len + 1);

    if (!group_of || query_take(q, l->len * 2 * sizeof(struct item), e))
        return group_of ? e->code : err_set(e, ERR_LIMIT, "too many series in one answer");
    for (size_t i = 0; i < l->series_len; i++)
        if (find_group(q, h, &l->series[i], &group_of[i], e))
            return e->code;
    for (size_t i = 0; i < l->len; i++) {
        const struct wire_exemplar *x = &l->items[i];
        uint32_t k;
        if (!exm_point(&h->grid, x->start_ms, &k))
            continue;
        struct item item = { x, &l->series[x->series], group_of[x->series], k };
        vec_push(&h->items, item);
        h->groups.ptr[item.group].sum += (double)x->sum;
    }
    q->truncated |= l->truncated;
    return 0;
}

static int by_place(const void *a, const void *b)
{
    const struct item *x = a, *y = b;

    if (x->group != y->group)
        return x->group < y->group ? -1 : 1;
    if (x->slot != y->slot)
        return x->slot < y->slot ? -1 : 1;
    if (x->x->total != y->x->total)
        return x->x->total > y->x->total ? -1 : 1;
    return str_cmp(x->x->id, y->x->id);
}

static int by_sum(const void *a, const void *b)
{
    const struct group *x = a, *y = b;

    return x->sum > y->sum ? -1 : x->sum < y->sum;
}

static void arrange(struct heatmap *h)
{
    if (h->items.len)
        qsort(h->items.ptr, h->items.len, sizeof(*h->items.ptr), by_place);
    vec_for (i, &h->items) {
        struct group *g = &h->groups.ptr[h->items.ptr[i].group];
        g->from = g->to ? g->from : i;
        g->to = i + 1;
    }
    if (h->groups.len)
        qsort(h->groups.ptr, h->groups.len, sizeof(*h->groups.ptr), by_sum);
}

/* As ingesters do it: store_exm_bucket. */
static size_t bucket_of(const struct heatmap *h, const struct item *item)
{
    uint64_t total = item->x->total;
    double at = h->step > 0 && total > h->least ? (double)(total - h->least) / h->step : 0;

    return at >= BUCKETS ? BUCKETS - 1 : (size_t)at;
}

/* Items [from, to) of one group and slot, largest first. */
static void put_slot(const struct heatmap *h, size_t from, size_t to, struct msg_out *o)
{
    const struct item *items = h->items.ptr, *first[BUCKETS] = { 0 };
    uint32_t counts[BUCKETS] = { 0 };
    double edges[BUCKETS];

    for (size_t i = from; i < to; i++) {
        size_t b = bucket_of(h, &items[i]);
        first[b] = first[b] ? first[b] : &items[i];
        counts[b] = (uint32_t)MIN(counts[b] + items[i].x->count, INT32_MAX);
    }
    for (size_t b = 0; b < BUCKETS; b++)
        edges[b] = (double)h->least + h->step * (double)b;
    msg_out_obj(o, MSG_ITEM);
    msg_out_i64(o, 1, "timestamp", h->grid.origin_ms + (int64_t)items[from].slot * h->grid.step_ms);
    msg_out_doubles(o, 2, "yMin", edges, BUCKETS);
    msg_out_i32s(o, 3, "counts", counts, BUCKETS);
    msg_out_list(o, 4, "exemplars");
    for (size_t b = 0; b < BUCKETS && h->asked.exemplars > V1_EXM_NONE; b++)
        if (first[b])
            exm_put(first[b]->x, first[b]->series, msg_strs(&h->asked.group_by),
                    h->asked.group_by.len, o);
    msg_out_list_end(o);
    msg_out_obj_end(o);
}

static void put_group(const struct heatmap *h, const struct group *g, struct msg_out *o)
{
    msg_out_obj(o, MSG_ITEM);
    msg_out_labels(o, 1, "labels", &g->labels);
    msg_out_list(o, 2, "slots");
    for (size_t from = g->from, to; from < g->to; from = to) {
        for (to = from; to < g->to && h->items.ptr[to].slot == h->items.ptr[from].slot;)
            to++;
        put_slot(h, from, to, o);
    }
    msg_out_list_end(o);
    msg_out_obj_end(o);
}

static int put_reply(struct query *q, struct heatmap *h, struct err *e)
{
    size_t n = h->groups.len;
    struct msg_out o;

    while (n && h->groups.ptr[n - 1].to == 0) /* nothing in the range of the grid */
        n--;
    if (h->asked.limit > 0)
        n = MIN(n, (size_t)h->asked.limit);
    query_msg(q, &o);
    msg_out_list(&o, 1, "series");
    for (size_t i = 0; i < n; i++)
        put_group(h, &h->groups.ptr[i], &o);
    msg_out_list_end(&o);
    msg_out_end(&o);
    return query_out_end(q, e);
}

static int reply(struct query *q, struct err *e)
{
    struct heatmap *h = q->state;
    struct wire_exm_list l;
    size_t pos = 0;
    int n, code = 0;

    h->by_labels = map_str_new();
    while (!code && (n = query_next_exemplars(q, ASK_CELLS, &pos, &l, e)) != 0)
        code = n < 0 ? e->code : add_list(q, h, &l, e);
    if (!code) {
        arrange(h);
        code = put_reply(q, h, e);
    }
    map_str_free(h->by_labels);
    vec_free(&h->items);
    vec_free(&h->groups);
    return code;
}

/* ---- questions ---- */

static int ask(struct query *q, const struct heatmap *h, size_t number, struct wire_exemplars x,
               struct err *e)
{
    struct wire_query wq = { .profile_type = h->spec.profile_type,
                             .selectors = h->spec.selectors,
                             .selectors_len = h->spec.len,
                             .range = plan_range(h->grid.origin_ms - h->grid.step_ms,
                                                 h->times.end_ms + 1) };

    x.kinds = h->asked.query_type == V1_HEAT_SPAN ? 1u << EXID_SPAN : 1u << EXID_PROFILE;
    x.leaves = h->asked.query_type != V1_HEAT_SPAN;
    x.grid = h->grid;
    for (size_t i = 0; i < q->tenants_len && !wq.range.empty; i++) {
        wq.tenant = q->tenants[i];
        if (exm_ask_list(q, number, &wq, x, (struct exm_site){ 0 }, e))
            return e->code;
    }
    return 0;
}

static void add_value(struct heatmap *h, bool *any, uint64_t least, uint64_t most)
{
    h->least = *any ? MIN(h->least, least) : least;
    h->most = MAX(h->most, most);
    *any = true;
}

static int ask_cells(struct query *q, struct err *e)
{
    struct heatmap *h = q->state;
    struct wire_exm_list l;
    int64_t from = 0;
    bool any = false;
    size_t pos = 0;
    uint32_t k;
    int n;

    while ((n = query_next_exemplars(q, ASK_SUMMARY, &pos, &l, e)) > 0) {
        if (l.count)
            add_value(h, &any, l.least, l.most);
        for (size_t i = 0; i < l.len; i++) /* of an ingester that knows no summaries */
            if (exm_point(&h->grid, l.items[i].start_ms, &k))
                add_value(h, &any, l.items[i].total, l.items[i].total);
        from = MAX(from, l.leaves_from_ms);
    }
    if (n < 0)
        return e->code;
    query_calls_reset(q);
    query_data_reset(q);
    if (from) {
        q->bounds_start_ms = from;
        q->bounds_end_ms = MAX(h->times.end_ms + 1, from);
    }
    h->step = (double)(h->most - h->least) / BUCKETS;
    q->step = reply;
    struct wire_exemplars x = { .group_by = msg_strs(&h->asked.group_by),
                                .group_by_len = h->asked.group_by.len,
                                .buckets = BUCKETS,
                                .least = h->least,
                                .most = h->most };
    return any ? ask(q, h, ASK_CELLS, x, e) : 0;
}

int api_select_heatmap(struct query *q, struct err *e)
{
    struct heatmap *h = ARENA_NEW(q->arena, struct heatmap);

    CHECK(h);
    q->state = h;
    if (read_request(q, h, e))
        return e->code;
    q->step = ask_cells;
    return ask(q, h, ASK_SUMMARY, (struct wire_exemplars){ .summary = true }, e);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * api_heatmap.c: SelectHeatmap (wire facts 4.4): how many spans, or single profiles, cost how much,
 * over time.
 *
 *   list of exemplars ──> groups by labels ──> slots by time, 20 buckets by value ──> counts
 *
 * The edges of the buckets are the same in all slots of an answer: from the least to the largest
 * value in equal steps. Where exemplars are asked for, the largest of a bucket stands for it.
 */
#include <stdlib.h>

#include "common/base/map.h"
#include "querier/api_connect.h"
#include "querier/connect_msg.h"
#include "querier/exemplars.h"

#define BUCKETS 20

enum { ASK_LIST };
enum query_type { TYPE_UNSPECIFIED, TYPE_INDIVIDUAL, TYPE_SPAN };

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
    struct spec spec;
    struct msg_times times;
    struct plan_grid grid;
    const struct str *group_by;
    size_t group_by_len;
    int64_t type, exemplars; /* enum query_type, ExemplarType */
    int64_t limit;

    VEC(struct item) items;
    VEC(struct group) groups;
    struct map_str *by_labels;
    double least, step;
};

/* ---- request ---- */

static int read_request(struct query *q, struct heatmap *h, struct err *e)
{
    static const char *const types[] = { "HEATMAP_QUERY_TYPE_UNSPECIFIED",
                                         "HEATMAP_QUERY_TYPE_INDIVIDUAL",
                                         "HEATMAP_QUERY_TYPE_SPAN" };
    static const char *const exemplars[] = { "EXEMPLAR_TYPE_UNSPECIFIED", "EXEMPLAR_TYPE_NONE",
                                             "EXEMPLAR_TYPE_INDIVIDUAL", "EXEMPLAR_TYPE_SPAN" };
    const struct json_val *m;
    double step = 0;

    if (msg_begin(q, &m, e) || msg_selection(q, m, &h->spec, e) ||
        msg_times(q, m, false, &h->times, e) ||
        json_take_double(json_get(m, "step", NULL), "step", &step, e) ||
        plan_series_grid(h->times.start_ms, h->times.end_ms, step, q->qr->conf->points_max,
                         &h->grid, e) ||
        msg_strings(q, m, "groupBy", "group_by", &h->group_by, &h->group_by_len, e) ||
        msg_enum(m, "queryType", "query_type", types, ARRAY_LEN(types), &h->type, e) ||
        msg_enum(m, "exemplarType", "exemplar_type", exemplars, ARRAY_LEN(exemplars), &h->exemplars,
                 e) ||
        json_take_i64(json_get(m, "limit", NULL), "limit", &h->limit, e))
        return e->code;
    if (h->type == TYPE_UNSPECIFIED)
        h->type = TYPE_INDIVIDUAL;
    if (h->exemplars > 1 && (h->exemplars == 3) != (h->type == TYPE_SPAN))
        return err_set(e, ERR_INPUT, "exemplarType %s does not go with queryType %s",
                       exemplars[h->exemplars], types[h->type]);
    return 0;
}

/* ---- reply ---- */

static int find_group(struct query *q, struct heatmap *h, const struct labels *series,
                      uint32_t *ret, struct err *e)
{
    struct labels mine;
    struct str key;

    if (exm_group(series, h->group_by, h->group_by_len, q->arena, &mine, &key, e))
        return e->code;
    uintptr_t known = (uintptr_t)map_str_get(h->by_labels, key);
    if (!known) {
        struct group g = { .labels = mine };
        vec_push(&h->groups, g);
        known = h->groups.len;
        map_str_put(h->by_labels, key, (void *)known);
    }
    *ret = (uint32_t)known - 1;
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
        h->groups.ptr[item.group].sum += (double)x->total;
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
    double most = 0;

    if (h->items.len)
        qsort(h->items.ptr, h->items.len, sizeof(*h->items.ptr), by_place);
    vec_for (i, &h->items) {
        struct group *g = &h->groups.ptr[h->items.ptr[i].group];
        double value = (double)h->items.ptr[i].x->total;
        g->from = g->to ? g->from : i;
        g->to = i + 1;
        h->least = i ? MIN(h->least, value) : value;
        most = MAX(most, value);
    }
    h->step = (most - h->least) / BUCKETS;
    if (h->groups.len)
        qsort(h->groups.ptr, h->groups.len, sizeof(*h->groups.ptr), by_sum);
}

static size_t bucket_of(const struct heatmap *h, const struct item *item)
{
    double at = h->step > 0 ? ((double)item->x->total - h->least) / h->step : 0;

    return at >= BUCKETS ? BUCKETS - 1 : (size_t)at;
}

static void put_numbers(const struct heatmap *h, const uint32_t *counts, struct json *j)
{
    json_key(j, "yMin");
    json_arr(j);
    for (size_t i = 0; i < BUCKETS; i++)
        json_double(j, h->least + h->step * (double)i);
    json_arr_end(j);
    json_key(j, "counts");
    json_arr(j);
    for (size_t i = 0; i < BUCKETS; i++)
        json_u64(j, counts[i]);
    json_arr_end(j);
}

/* Items [from, to) of one group and slot, largest first. */
static void put_slot(const struct heatmap *h, size_t from, size_t to, struct json *j)
{
    const struct item *items = h->items.ptr, *first[BUCKETS] = { 0 };
    uint32_t counts[BUCKETS] = { 0 };

    for (size_t i = from; i < to; i++) {
        size_t b = bucket_of(h, &items[i]);
        first[b] = first[b] ? first[b] : &items[i];
        counts[b]++;
    }
    json_obj(j);
    json_key(j, "timestamp");
    json_i64_str(j, h->grid.origin_ms + (int64_t)items[from].slot * h->grid.step_ms);
    put_numbers(h, counts, j);
    if (h->exemplars > 1) {
        json_key(j, "exemplars");
        json_arr(j);
        for (size_t b = 0; b < BUCKETS; b++)
            if (first[b])
                exm_put(first[b]->x, first[b]->series, h->group_by, h->group_by_len, j);
        json_arr_end(j);
    }
    json_obj_end(j);
}

static void put_group(const struct heatmap *h, const struct group *g, struct json *j)
{
    json_obj(j);
    if (g->labels.len) {
        json_key(j, "labels");
        msg_put_labels(&g->labels, j);
    }
    json_key(j, "slots");
    json_arr(j);
    for (size_t from = g->from, to; from < g->to; from = to) {
        for (to = from; to < g->to && h->items.ptr[to].slot == h->items.ptr[from].slot;)
            to++;
        put_slot(h, from, to, j);
    }
    json_arr_end(j);
    json_obj_end(j);
}

static int put_reply(struct query *q, struct heatmap *h, struct err *e)
{
    size_t n = h->groups.len;
    struct json j;

    while (n && h->groups.ptr[n - 1].to == 0) /* nothing in the range of the grid */
        n--;
    if (h->limit > 0)
        n = MIN(n, (size_t)h->limit);
    query_json(q, &j);
    json_obj(&j);
    if (n) {
        json_key(&j, "series");
        json_arr(&j);
    }
    for (size_t i = 0; i < n; i++)
        put_group(h, &h->groups.ptr[i], &j);
    if (n)
        json_arr_end(&j);
    json_obj_end(&j);
    return query_out_end(q, e);
}

static int reply(struct query *q, struct err *e)
{
    struct heatmap *h = q->state;
    struct wire_exm_list l;
    size_t pos = 0;
    int n, code = 0;

    h->by_labels = map_str_new();
    while (!code && (n = query_next_exemplars(q, ASK_LIST, &pos, &l, e)) != 0)
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

int api_select_heatmap(struct query *q, struct err *e)
{
    struct heatmap *h = ARENA_NEW(q->arena, struct heatmap);

    CHECK(h);
    q->state = h;
    if (read_request(q, h, e))
        return e->code;
    struct wire_query wq = { .profile_type = h->spec.profile_type,
                             .selectors = h->spec.selectors,
                             .selectors_len = h->spec.len,
                             .range = plan_range(h->grid.origin_ms - h->grid.step_ms,
                                                 h->times.end_ms + 1) };
    unsigned kinds = h->type == TYPE_SPAN ? 1u << EXID_SPAN : 1u << EXID_PROFILE;
    q->step = reply;
    for (size_t i = 0; i < q->tenants_len && !wq.range.empty; i++) {
        wq.tenant = q->tenants[i];
        if (exm_ask_list(q, ASK_LIST, &wq, kinds, e))
            return e->code;
    }
    return 0;
}

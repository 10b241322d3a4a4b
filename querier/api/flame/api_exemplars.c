/* SPDX-License-Identifier: Apache-2.0
 *
 * api_exemplars.c: GET /api/exemplars:query (proto/WIRE.md, "Legacy routes"): how much single spans
 * cost over time, as a heat map, and the flame graph of those between minValue and maxValue.
 *
 *   [types] ─> list of exemplars ─> heat map of all; ids of the chosen ─> merge of those
 *
 * Counts spans, or whole pushes if there is no span: a push may have an id of its own and consist
 * of spans, and its samples must not count twice. A push without an id counts as its leaf.
 */
#include <stdlib.h>

#include "common/base/mem.h"
#include "querier/api/flame/api_render.h"
#include "querier/output/render_json.h"

#define BUCKETS_MAX   1024
#define TIME_BUCKETS  128
#define VALUE_BUCKETS 32

struct picked {
    struct render render;
    uint64_t min_value, max_value;        /* asked for; 0, 0: any */
    uint64_t time_buckets, value_buckets; /* of the heat map */
    struct wire_exm_list *lists;          /* one per reply, in the arena */
    size_t lists_len, items;
    bool leaves;          /* asked for, since there are no spans */
    uint32_t kind;        /* of the items that count */
    uint64_t least, most; /* of their values */
};

/* ---- parameters -------------------------------------------------------------------------------*/

static int read_number(struct query *q, const char *name, uint64_t most, uint64_t *io,
                       struct err *e)
{
    struct str text;

    if (!http_param(q->http, name, &text) || !str_trim(text).len)
        return 0;
    if (!str_u64(str_trim(text), io) || *io > most)
        return err_set(e, ERR_INPUT, "%s is \"%.*s\": want a number up to %" PRIu64, name,
                       (int)MIN(text.len, 40), text.ptr, most);
    return 0;
}

static int read_params(struct query *q, struct picked *p, struct err *e)
{
    struct render *r = &p->render;

    p->time_buckets = TIME_BUCKETS;
    p->value_buckets = VALUE_BUCKETS;
    if (render_out_read(q, true, &r->out, e) || side_read(q, "", true, &r->side, e) ||
        read_number(q, "minValue", UINT64_MAX, &p->min_value, e) ||
        read_number(q, "maxValue", UINT64_MAX, &p->max_value, e) ||
        read_number(q, "heatmapTimeBuckets", BUCKETS_MAX, &p->time_buckets, e) ||
        read_number(q, "heatmapValueBuckets", BUCKETS_MAX, &p->value_buckets, e))
        return e->code;
    if (p->max_value == 0)
        p->max_value = UINT64_MAX;
    if (p->min_value > p->max_value)
        return err_set(e, ERR_INPUT, "minValue is over maxValue");
    r->timeline = plan_timeline(r->side.from_ms, r->side.until_ms);
    return 0;
}

/* ---- the heat map -----------------------------------------------------------------------------*/

/* Bucket of v among n equal ones over [least, most]. */
static size_t bucket(double v, double least, double most, uint64_t n)
{
    double k = most > least ? (v - least) / (most - least) * (double)n : 0;

    return k < 0 ? 0 : MIN((size_t)k, (size_t)n - 1);
}

static void put_bounds(const struct picked *p, const uint32_t *counts, struct json *j)
{
    const struct flame_request *s = &p->render.side;
    uint32_t least = UINT32_MAX, most = 0;

    for (size_t i = 0; i < p->time_buckets * p->value_buckets; i++)
        if (counts[i]) {
            least = MIN(least, counts[i]);
            most = MAX(most, counts[i]);
        }
    json_put_u64(j, "timeBuckets", p->time_buckets);
    json_put_u64(j, "valueBuckets", p->value_buckets);
    json_put_i64(j, "startTime", MIN(s->from_ms, INT64_MAX / 1000000) * 1000000);
    json_put_i64(j, "endTime", MIN(s->until_ms, INT64_MAX / 1000000) * 1000000);
    json_put_u64(j, "minValue", p->least);
    json_put_u64(j, "maxValue", p->most);
    json_put_u64(j, "minDepth", most ? least : 0);
    json_put_u64(j, "maxDepth", most);
}

static void put_heatmap(struct query *q, const struct render *r, struct json *j)
{
    const struct picked *p = container_of((uintptr_t)r, struct picked, render);
    size_t columns = (size_t)p->time_buckets, rows = (size_t)p->value_buckets;

    (void)q;
    if (!p->items || !columns || !rows) {
        json_null(j);
        return;
    }
    CLEANUP(xfreep) uint32_t *counts = XNEW_ARRAY(uint32_t, columns * rows);
    for (size_t i = 0; i < p->lists_len; i++)
        for (size_t k = 0; k < p->lists[i].len; k++) {
            const struct wire_exemplar *x = &p->lists[i].items[k];
            if (x->kind != p->kind)
                continue;
            size_t column = bucket((double)x->start_ms, (double)r->side.from_ms,
                                   (double)r->side.until_ms, columns);
            size_t row = bucket((double)x->total, (double)p->least, (double)p->most, rows);
            counts[column * rows + row]++;
        }
    json_obj(j);
    json_key(j, "values");
    json_arr(j);
    for (size_t x = 0; x < columns; x++) {
        json_arr(j);
        for (size_t y = 0; y < rows; y++)
            json_u64(j, counts[x * rows + y]);
        json_arr_end(j);
    }
    json_arr_end(j);
    put_bounds(p, counts, j);
    json_obj_end(j);
}

/* ---- steps ------------------------------------------------------------------------------------*/

static int reply(struct query *q, struct err *e)
{
    const struct picked *p = q->state;

    return render_reply(q, &p->render, e);
}

static int by_id(const void *a, const void *b)
{
    return str_cmp(*(const struct str *)a, *(const struct str *)b);
}

/* The ids of those between minValue and maxValue, ascending, each once. */
static int choose(struct query *q, struct picked *p, struct err *e)
{
    struct str *ids = p->items ? ARENA_ARRAY(q->data, struct str, p->items) : NULL;
    size_t n = 0, kept = 0;

    if (p->items && (!ids || query_take(q, p->items * sizeof(*ids), e)))
        return ids ? e->code
                   : err_set(e, ERR_LIMIT,
                             "too many exemplars in one answer: ask for a shorter range");
    for (size_t i = 0; i < p->lists_len; i++)
        for (size_t k = 0; k < p->lists[i].len; k++) {
            const struct wire_exemplar *x = &p->lists[i].items[k];
            if (x->kind == p->kind && x->total >= p->min_value && x->total <= p->max_value)
                ids[n++] = x->id;
        }
    if (n)
        qsort(ids, n, sizeof(*ids), by_id);
    for (size_t i = 0; i < n; i++)
        if (kept == 0 || !str_eq(ids[kept - 1], ids[i]))
            ids[kept++] = ids[i];
    p->render.side.ids = (struct exm_ids){ 1u << p->kind, ids, kept };
    return 0;
}

static void count_item(struct picked *p, const struct wire_exemplar *x)
{
    if (x->kind != p->kind)
        return;
    p->least = p->items ? MIN(p->least, x->total) : x->total;
    p->most = MAX(p->most, x->total);
    p->items++;
}

static int read_list(struct query *q, struct picked *p, struct err *e)
{
    struct wire_exm_list l;
    size_t pos = 0;
    int n;

    p->lists = ARENA_ARRAY(q->arena, struct wire_exm_list, q->calls.len + 1);
    if (!p->lists)
        return err_set(e, ERR_LIMIT, "the request needs over %zu bytes", arena_limit(q->arena));
    p->kind = EXID_PROFILE;
    while ((n = query_next_exemplars(q, RENDER_ASK_LIST, &pos, &l, e)) > 0) {
        for (size_t i = 0; i < l.len; i++)
            if (l.items[i].kind == EXID_SPAN)
                p->kind = EXID_SPAN;
        p->lists[p->lists_len++] = l;
        q->truncated |= l.truncated;
    }
    for (size_t i = 0; i < p->lists_len; i++)
        for (size_t k = 0; k < p->lists[i].len; k++)
            count_item(p, &p->lists[i].items[k]);
    return n < 0 ? e->code : 0;
}

static int ask_list(struct query *q, struct err *e);

static int listed(struct query *q, struct err *e)
{
    struct picked *p = q->state;

    if (read_list(q, p, e))
        return e->code;
    if (p->kind == EXID_PROFILE && !p->leaves) {
        query_calls_reset(q);
        p->leaves = true;
        p->lists_len = p->items = 0;
        p->most = 0;
        return ask_list(q, e);
    }
    if (choose(q, p, e))
        return e->code;
    query_calls_reset(q);
    q->step = reply;
    return render_ask(q, &p->render, e);
}

static int ask_list(struct query *q, struct err *e)
{
    const struct picked *p = q->state;
    const struct flame_request *s = &p->render.side;
    struct wire_exemplars x = { .kinds = 1u << EXID_PROFILE | (p->leaves ? 0 : 1u << EXID_SPAN),
                                .leaves = p->leaves };

    q->step = listed;
    for (size_t i = 0; i < q->tenants_len && !s->range.empty; i++)
        for (size_t k = 0; k < s->types_len; k++) {
            struct wire_query wq = side_wire(s, q->tenants[i], s->types[k]);
            if (exm_ask_list(q, RENDER_ASK_LIST, &wq, x, (struct exm_site){ 0 }, e))
                return e->code;
        }
    return 0;
}

static int chosen(struct query *q, struct err *e)
{
    struct picked *p = q->state;

    if (side_types(q, RENDER_ASK_TYPES, &p->render.side, e))
        return e->code;
    query_calls_reset(q);
    return ask_list(q, e);
}

int api_exemplars_query(struct query *q, struct err *e)
{
    struct picked *p = ARENA_NEW(q->arena, struct picked);
    bool asked = false;

    CHECK(p);
    p->render.old = true;
    p->render.heatmap = put_heatmap;
    q->state = p;
    if (read_params(q, p, e) || side_begin(q, RENDER_ASK_TYPES, &p->render.side, &asked, e))
        return e->code;
    if (!asked)
        return ask_list(q, e);
    q->step = chosen;
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * select_site: SelectSeries of the stacks below a call site.
 *
 * Timelines are kept of whole profiles only, so each point of each group is a merge of its own with
 * the call site, of which nothing but the sum is used:
 *
 *   (groupBy: ask which label sets there are) ──> ask BATCH cells ──> add sums ──┐
 *                                                      ^───(cells are left)──────┘──> reply
 *
 * A cell is a group and a point. Merges begin and end at leaves, so the edges of points move behind
 * the leaf they lie in; points still partition the range. Replies of a batch are dropped before the
 * next is asked: memory does not grow with the number of points.
 */
#include "common/model/slot.h"
#include "querier/label_lists.h"
#include "querier/select.h"

#define CELLS_MAX 4096
#define BATCH     32

enum { ASK_SETS = BATCH };

struct site {
    struct select_series *s;
    struct str *call_site;
    size_t call_site_len;
    struct labels *groups; /* one without labels where nothing is grouped by */
    struct spec *specs;    /* of the groups */
    size_t groups_len;
    size_t next; /* cell: group * points + point */
    uint64_t *sum;
    uint32_t *leaves;
    bool gauge;
};

static int no_room(struct err *e)
{
    return err_set(e, ERR_LIMIT, "groupBy has too many values for a stackTraceSelector");
}

/* The first leaf of what lies behind point k - 1: of point k. */
static int64_t edge(const struct plan_grid *g, int64_t k)
{
    int64_t at = g->origin_ms + (k - 1) * g->step_ms;
    /* As plan_grid_asked: below a minute (T - step, T], from there on [T - step, T). */
    int64_t from = g->step_ms < 60000 ? at + 1 : at;
    int64_t behind = from - SLOT_EPOCH_MS;

    return from + (LEAF_MS - behind % LEAF_MS) % LEAF_MS;
}

/* ---- cells ------------------------------------------------------------------------------------*/

static int read_batch(struct query *q, struct err *e);

static int ask_cell(struct query *q, struct site *x, size_t cell, size_t ask, struct err *e)
{
    const struct plan_grid *g = &x->s->grid;
    const struct spec *spec = &x->specs[cell / g->points];
    int64_t k = (int64_t)(cell % g->points), from = edge(g, k), to = edge(g, k + 1);
    struct wire_query wq = { .profile_type = spec->profile_type,
                             .selectors = spec->selectors,
                             .selectors_len = spec->len };

    if (to <= from || to <= SLOT_EPOCH_MS)
        return 0;
    wq.range = plan_range(from, to);
    for (size_t i = 0; i < q->tenants_len && !wq.range.empty; i++) {
        wq.tenant = q->tenants[i];
        if (query_ask_merge(q, ask, &wq, x->call_site, x->call_site_len, e))
            return e->code;
    }
    return 0;
}

static int ask_batch(struct query *q, struct site *x, struct err *e)
{
    size_t cells = x->groups_len * x->s->grid.points;

    for (size_t i = 0; i < BATCH && x->next + i < cells; i++)
        if (ask_cell(q, x, x->next + i, i, e))
            return e->code;
    q->step = read_batch;
    return 0;
}

static int reply_cells(struct query *q, const struct site *x, struct err *e)
{
    uint32_t points = x->s->grid.points;
    struct wire_timelines all = { .gauge = x->gauge };
    uint64_t *ones = ARENA_ARRAY(q->arena, uint64_t, points);
    uint32_t *at = ARENA_ARRAY(q->arena, uint32_t, points);
    struct timeline t;
    int code = 0;

    if (!ones || !at)
        return no_room(e);
    for (uint32_t k = 0; k < points; k++)
        ones[k] = 1;
    timeline_init(&t, q->arena);
    for (size_t g = 0; g < x->groups_len && !code; g++) {
        struct wire_points p = { .labels = x->groups[g], .point = at, .writes = ones };
        uint64_t *value = &x->sum[g * points];
        uint32_t *leaves = &x->leaves[g * points];
        for (uint32_t k = 0; k < points; k++) {
            if (!value[k])
                continue;
            at[p.len] = k;
            value[p.len] = value[k];
            leaves[p.len++] = leaves[k];
        }
        p.value = value;
        p.leaves = leaves;
        all.series = &p;
        all.len = p.len > 0;
        if (query_take(q, timeline_cost(&all), e) || timeline_add(&t, &all, e))
            code = e->code;
    }
    timeline_finish(&t, false);
    t.start_ms = MAX(edge(&x->s->grid, 0), 0);
    t.end_ms = edge(&x->s->grid, points);
    if (!code)
        code = select_reply(q, x->s, &t, e);
    timeline_deinit(&t);
    return code;
}

/* One cell of all ingesters and tenants. Parts of a gauge's leaves may be the same ones; a service
 * lives on one shard, so the largest count is taken, as timeline.c does. */
static int read_cell(struct query *q, struct site *x, size_t cell, size_t ask, struct err *e)
{
    struct wire_merged w;
    size_t pos = 0;
    int n;

    while ((n = query_next_merged(q, ask, &pos, &w, e)) > 0) {
        uint64_t sum = x->sum[cell] + w.total;
        x->sum[cell] = sum < w.total || sum > INT64_MAX ? INT64_MAX : sum;
        x->leaves[cell] = MAX(x->leaves[cell], (uint32_t)w.leaves_len);
        x->gauge |= w.gauge;
        q->saturated += w.saturated + (sum != x->sum[cell]);
    }
    return n < 0 ? e->code : 0;
}

static int read_batch(struct query *q, struct err *e)
{
    struct site *x = q->state;
    size_t cells = x->groups_len * x->s->grid.points;

    for (size_t i = 0; i < BATCH && x->next < cells; i++, x->next++)
        if (read_cell(q, x, x->next, i, e))
            return e->code;
    query_calls_reset(q);
    query_data_reset(q);
    return x->next < cells ? ask_batch(q, x, e) : reply_cells(q, x, e);
}

/* ---- groups -----------------------------------------------------------------------------------*/

static int make_cells(struct query *q, struct site *x, struct err *e)
{
    size_t cells = x->groups_len * x->s->grid.points;

    if (cells > CELLS_MAX)
        return err_set(e, ERR_LIMIT,
                       "%zu groups with %" PRIu32
                       " points each: with a stackTraceSelector their product is at most %d; ask "
                       "for a larger step",
                       x->groups_len, x->s->grid.points, CELLS_MAX);
    x->sum = ARENA_ARRAY(q->arena, uint64_t, cells + 1);
    x->leaves = ARENA_ARRAY(q->arena, uint32_t, cells + 1);
    return x->sum && x->leaves ? ask_batch(q, x, e) : no_room(e);
}

/* One more selector: the labels that this group has, and the ones it lacks as empty. */
static int add_group(struct query *q, struct site *x, const struct labels *set, struct err *e)
{
    const struct select_series *s = x->s;
    struct matcher *m = ARENA_ARRAY(q->arena, struct matcher, s->group_by_len + 1);
    struct spec *spec = &x->specs[x->groups_len];
    struct labels kept = { 0 };

    *spec = s->spec;
    if (!m || spec->len == SPEC_SELECTORS_MAX)
        return no_room(e);
    for (size_t i = 0; i < s->group_by_len; i++) {
        struct str value = arena_strdup(q->arena, labels_get(set, s->group_by[i]));
        if (!value.ptr)
            return no_room(e);
        m[i] = (struct matcher){ .op = MATCH_EQ, .name = s->group_by[i], .value = value };
        if (value.len && labels_set(&kept, q->arena, s->group_by[i], value, e))
            return e->code;
    }
    spec->selectors[spec->len++] = (struct selector){ .matchers = m, .len = s->group_by_len };
    x->groups[x->groups_len++] = kept;
    return 0;
}

static int make_room_for(struct query *q, struct site *x, size_t groups, struct err *e)
{
    x->groups = ARENA_ARRAY(q->arena, struct labels, groups + 1);
    x->specs = ARENA_ARRAY(q->arena, struct spec, groups + 1);
    return x->groups && x->specs ? 0 : no_room(e);
}

static int read_sets(struct query *q, struct err *e)
{
    struct site *x = q->state;
    struct label_lists l;

    if (label_lists_read(q, ASK_SETS, false, &l, e))
        return e->code;
    int code = make_room_for(q, x, l.sets.len, e);
    for (size_t i = 0; i < l.sets.len && !code; i++)
        code = add_group(q, x, &l.sets.ptr[i], e);
    label_lists_deinit(&l);
    query_calls_reset(q);
    query_data_reset(q);
    return code ? code : make_cells(q, x, e);
}

static int ask_sets(struct query *q, const struct site *x, struct err *e)
{
    const struct select_series *s = x->s;
    const struct plan_grid *g = &s->grid;
    struct spec *spec = ARENA_NEW(q->arena, struct spec);
    struct matcher *type = ARENA_NEW(q->arena, struct matcher);
    struct wire_labels wl = { .kind = WIRE_SETS,
                              .names = s->group_by,
                              .names_len = s->group_by_len };

    if (!spec || !type || s->spec.len == SPEC_SELECTORS_MAX)
        return no_room(e);
    *spec = s->spec;
    *type = (struct matcher){ .op = MATCH_EQ,
                              .name = STR("__profile_type__"),
                              .value = s->spec.profile_type };
    spec->selectors[spec->len++] = (struct selector){ .matchers = type, .len = 1 };
    struct wire_query wq = { .selectors = spec->selectors,
                             .selectors_len = spec->len,
                             .range = plan_range(edge(g, 0), edge(g, g->points)) };
    q->step = read_sets;
    for (size_t i = 0; i < q->tenants_len && !wq.range.empty; i++) {
        wq.tenant = q->tenants[i];
        if (query_ask_labels(q, ASK_SETS, &wq, wl, e))
            return e->code;
    }
    return 0;
}

NODISCARD int select_site_ask(struct query *q, struct err *e)
{
    struct site *x = ARENA_NEW(q->arena, struct site);
    struct select_series *s = q->state;
    const struct msg_list *sites = &s->asked.stack_trace_selector->call_site;
    const struct v1_location *locations = sites->ptr;

    if (!x)
        return no_room(e);
    if (s->ids.kinds || s->asked.average || s->asked.exemplars > V1_EXM_NONE)
        return err_set(e, ERR_UNIMPLEMENTED,
                       "stackTraceSelector together with ids, averages or exemplars is not "
                       "supported by this version");
    x->s = s;
    x->call_site = ARENA_ARRAY(q->arena, struct str, sites->len + 1);
    if (!x->call_site)
        return no_room(e);
    for (size_t i = 0; i < sites->len; i++)
        x->call_site[i] = locations[i].name;
    x->call_site_len = sites->len;
    q->state = x;
    if (s->group_by_len)
        return ask_sets(q, x, e);
    if (make_room_for(q, x, 1, e))
        return e->code;
    x->specs[0] = s->spec;
    x->groups_len = 1;
    return make_cells(q, x, e);
}

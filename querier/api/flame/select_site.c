/* SPDX-License-Identifier: Apache-2.0
 *
 * select_site: SelectSeries of the stacks below a call site.
 *
 * Timelines are kept of whole profiles only, so each point of each group is a merge of its own with
 * the call site, of which nothing but the sum is used:
 *
 *   (groupBy: ask which label sets there are) ──> ask some cells ──> add sums ──┐
 *                                                      ^───(cells are left)─────┘──> (ask for
 *                                                                      exemplars) ──> reply
 *
 * A cell is a group and a point; or, where points are of seconds, a group and a leaf, of which
 * select_site_points.c makes points. Merges begin and end at leaves, so the edges of points move
 * behind the leaf they lie in; points still partition the range. Where retention has left only
 * coarser nodes, a merge takes whole ones: an edge inside one would count it in two points. Its
 * reply says so, and when all cells are read, the edges up to the last such one move on to where
 * the next coarser nodes end (the first edge back), and all is asked again: a node counts in the
 * point its beginning lies in, as in timelines. Nodes of all levels lie on multiples of their
 * length, so that this ends, with the same edges for all ingesters. Replies of a batch are dropped
 * before the next is asked: memory does not grow with the number of points.
 *
 * An average is over pushes, and sums do not say which of them had a stack below the site. So the
 * divisor is what it is without a site: all pushes of the group in the point, by a timeline of a
 * single point. A push without such a stack counts as zero, so that averages of sites that do not
 * overlap add up to that of their sum.
 */
#include <stdlib.h>

#include "common/base/size.h"
#include "common/base/vec.h"
#include "common/model/slot.h"
#include "querier/api/flame/select_flat.h"
#include "querier/api/flame/select_site.h"
#include "querier/merge/collectors.h"
#include "querier/merge/label_lists.h"

#define CELLS_MAX 4096

/* Lengths of nodes, in seconds: LEVELS of common/store/codec/keys.h. */
static const int64_t node_s[] = { 10, 60, 600, 3600, 21600, 86400, 8 * 86400, 64 * 86400 };
#define NODES SELECT_SITE_NODES
static_assert(ARRAY_LEN(node_s) == NODES, "one for each level");

struct cell_leaves { /* gauges: of the replies to one ask */
    uint32_t *ptr;
    size_t len, cap;
    size_t taken; /* of the query's memory */
};

/* The first leaf of what lies behind point k - 1: of point k. */
static int64_t edge(const struct plan_grid *g, int64_t k)
{
    int64_t at = g->origin_ms + (k - 1) * g->step_ms;
    /* As plan_grid_asked: below a minute (T - step, T], from there on [T - step, T). */
    int64_t from = g->step_ms < 60000 ? at + 1 : at;
    int64_t behind = from - SLOT_EPOCH_MS;

    return from + (LEAF_MS - behind % LEAF_MS) % LEAF_MS;
}

/* The longest node that edges at this time keep clear of. */
static int64_t node_at(const struct site *x, int64_t edge_ms)
{
    int i = NODES - 1;

    while (i > 0 && edge_ms > x->until[i])
        i--;
    return node_s[i] * 1000;
}

static void make_edges(struct site *x)
{
    const struct plan_grid *g = &x->cells;

    for (int64_t k = 0; k <= g->points; k++) {
        int64_t at = edge(g, k), node = node_at(x, at), behind = at - SLOT_EPOCH_MS;

        if (behind > 0 && behind % node)
            at += k ? node - behind % node : -(behind % node);
        x->edges[k] = k ? MAX(at, x->edges[k - 1]) : at;
    }
}

/* Edges move on. False: they were at the longest nodes already. */
static bool move_edges(struct site *x)
{
    int i = 1;

    while (i < NODES && x->until[i] >= x->crossed)
        i++;
    if (i == NODES)
        return false;
    x->until[i] = x->crossed;
    x->crossed = 0;
    make_edges(x);
    return true;
}

/* ---- cells ------------------------------------------------------------------------------------*/

static int read_batch(struct query *q, struct err *e);

static int ask_writes(struct query *q, const struct wire_query *wq, size_t ask, struct err *e)
{
    /* Its one point is (origin - step, origin]. */
    struct wire_timeline tl = { .grid = { .origin_ms = wq->range.end_ms - 1,
                                          .step_ms = wq->range.end_ms - wq->range.start_ms,
                                          .points = 1 } };

    return query_ask_timeline(q, ask, wq, &tl, e);
}

static int ask_cell(struct query *q, struct site *x, size_t cell, size_t ask, struct err *e)
{
    const struct plan_grid *g = &x->cells;
    const struct query_spec *spec = &x->specs[cell / g->points];
    int64_t from = x->edges[cell % g->points], to = x->edges[cell % g->points + 1];
    struct wire_query wq = { .profile_type = spec->profile_type,
                             .selectors = spec->selectors,
                             .selectors_len = spec->len };

    if (to <= from || to <= SLOT_EPOCH_MS)
        return 0;
    wq.range = plan_range(from, to);
    for (size_t i = 0; i < q->tenants_len && !wq.range.empty; i++) {
        wq.tenant = q->tenants[i];
        if (query_ask_merge(q, ask, &wq, x->s->site.names, x->s->site.len, e) ||
            (x->s->asked.average && ask_writes(q, &wq, ASK_WRITES + ask, e)))
            return e->code;
    }
    return 0;
}

static int ask_batch(struct query *q, struct site *x, struct err *e)
{
    size_t cells = x->groups_len * x->cells.points;

    for (size_t i = 0; i < x->batch && x->next + i < cells; i++)
        if (ask_cell(q, x, x->next + i, i, e))
            return e->code;
    q->step = read_batch;
    return 0;
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

/* Appends a reply's leaves. */
static int add_leaves(struct query *q, struct cell_leaves *l, const struct wire_merged *w,
                      struct err *e)
{
    size_t bytes = 2 * w->leaves_len * sizeof(*l->ptr); /* while it grows */

    if (!w->leaves_len)
        return 0;
    if (query_take(q, bytes, e))
        return e->code;
    l->taken += bytes;
    vec_reserve(l, l->len + w->leaves_len);
    memcpy(l->ptr + l->len, w->leaves, w->leaves_len * sizeof(*l->ptr));
    l->len += w->leaves_len;
    return 0;
}

/* How many there are, those of several replies once; frees them. */
static uint32_t count_leaves(struct query *q, struct cell_leaves *l)
{
    uint32_t n = 0;

    if (l->len)
        qsort(l->ptr, l->len, sizeof(*l->ptr), by_number);
    for (size_t i = 0; i < l->len; i++)
        n += i == 0 || l->ptr[i] != l->ptr[i - 1];
    query_give(q, l->taken);
    vec_free(l);
    return n;
}

/* One cell of all ingesters and tenants. */
static int read_cell(struct query *q, struct site *x, size_t cell, size_t ask, struct err *e)
{
    size_t k = cell % x->cells.points;
    int64_t from = x->edges[k];
    struct wire_merged w;
    struct cell_leaves leaves = { 0 };
    size_t pos = 0;
    int n;

    while ((n = query_next_merged(q, ask, &pos, &w, e)) > 0) {
        if (k > 0 && w.total && w.start_ms < from)
            x->crossed = MAX(x->crossed, edge(&x->cells, (int64_t)k));
        uint64_t sum = x->sum[cell] + w.total;
        x->sum[cell] = sum < w.total || sum > INT64_MAX ? INT64_MAX : sum;
        x->gauge |= w.gauge;
        q->saturated += w.saturated + (sum != x->sum[cell]);
        if (add_leaves(q, &leaves, &w, e)) {
            n = -1;
            break;
        }
    }
    x->leaves[cell] = count_leaves(q, &leaves);
    return n < 0 ? e->code : 0;
}

static int read_writes(struct query *q, struct site *x, size_t cell, size_t ask, struct err *e)
{
    struct wire_timelines w;
    size_t pos = 0;
    int n;

    while ((n = query_next_timelines(q, ask, &pos, 1, &w, e)) > 0)
        for (size_t i = 0; i < w.len; i++)
            for (size_t k = 0; k < w.series[i].len; k++)
                x->writes[cell] = u64_add_sat(x->writes[cell], w.series[i].writes[k]);
    return n < 0 ? e->code : 0;
}

/* From the first cell again, behind edges that were moved. */
static int again(struct query *q, struct site *x, struct err *e)
{
    size_t cells = x->groups_len * x->cells.points;
    int64_t crossed = x->crossed;

    if (!move_edges(x))
        return err_set(e, ERR_INPUT,
                       "a point begins at %" PRId64 " ms, inside a node that retention has not "
                       "kept in parts; ask for longer points",
                       crossed);
    memset(x->sum, 0, cells * sizeof(*x->sum));
    memset(x->writes, 0, cells * sizeof(*x->writes));
    memset(x->leaves, 0, cells * sizeof(*x->leaves));
    x->next = 0;
    q->saturated = 0;
    return ask_batch(q, x, e);
}

static int read_batch(struct query *q, struct err *e)
{
    struct site *x = q->state;
    size_t cells = x->groups_len * x->cells.points;

    for (size_t i = 0; i < x->batch && x->next < cells; i++, x->next++)
        if (read_cell(q, x, x->next, i, e) || read_writes(q, x, x->next, ASK_WRITES + i, e))
            return e->code;
    query_calls_reset(q);
    query_data_reset(q);
    if (x->next < cells)
        return ask_batch(q, x, e);
    return x->crossed ? again(q, x, e) : select_site_reply(q, x, e);
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
    if (x->groups_len * x->cells.points > CELLS_MAX) {
        x->flat = false;
        x->cells = x->s->grid;
    }
    cells = x->groups_len * x->cells.points;
    x->edges = ARENA_ARRAY(q->arena, int64_t, x->cells.points + 1);
    if (!x->edges)
        return select_site_no_room(e);
    make_edges(x);
    x->sum = ARENA_ARRAY(q->arena, uint64_t, cells + 1);
    x->writes = ARENA_ARRAY(q->arena, uint64_t, cells + 1);
    x->leaves = ARENA_ARRAY(q->arena, uint32_t, cells + 1);
    return x->sum && x->writes && x->leaves ? ask_batch(q, x, e) : select_site_no_room(e);
}

/* One more selector: the labels that this group has, and the ones it lacks as empty. */
static int add_group(struct query *q, struct site *x, const struct labels *set, struct err *e)
{
    const struct select_series *s = x->s;
    struct matcher *m = ARENA_ARRAY(q->arena, struct matcher, s->group_by_len + 1);
    struct query_spec *spec = &x->specs[x->groups_len];
    struct labels kept = { 0 };

    *spec = s->spec;
    if (!m || spec->len == QUERY_SPEC_SELECTORS_MAX)
        return select_site_no_room(e);
    for (size_t i = 0; i < s->group_by_len; i++) {
        struct str value = arena_strdup(q->arena, labels_get(set, s->group_by[i]));
        if (!value.ptr)
            return select_site_no_room(e);
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
    x->specs = ARENA_ARRAY(q->arena, struct query_spec, groups + 1);
    return x->groups && x->specs ? 0 : select_site_no_room(e);
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
    const struct plan_grid *g = &x->cells;
    struct query_spec *spec = ARENA_NEW(q->arena, struct query_spec);
    struct matcher *type = ARENA_NEW(q->arena, struct matcher);
    struct wire_labels wl = { .kind = WIRE_SETS,
                              .names = s->group_by,
                              .names_len = s->group_by_len };

    if (!spec || !type || s->spec.len == QUERY_SPEC_SELECTORS_MAX)
        return select_site_no_room(e);
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

static int ask_collectors(struct query *q, const struct select_series *s, struct err *e)
{
    const struct plan_grid *g = &s->grid;
    struct wire_query wq = { .profile_type = s->spec.profile_type,
                             .selectors = s->spec.selectors,
                             .selectors_len = s->spec.len,
                             .range = plan_range(edge(g, 0), edge(g, g->points)) };

    for (size_t i = 0; i < q->tenants_len; i++) {
        wq.tenant = q->tenants[i];
        if (collectors_ask(q, 0, i, &wq, e))
            return e->code;
    }
    return 0;
}

NODISCARD int select_site_ask(struct query *q, struct err *e)
{
    struct site *x = ARENA_NEW(q->arena, struct site);
    struct select_series *s = q->state;
    size_t calls = q->tenants_len * q->targets.len * (s->asked.average ? 2 : 1);

    if (!x)
        return select_site_no_room(e);
    x->s = s;
    /* A mean is over pushes, each of them whole. */
    x->flat = s->grid.step_ms < 60000 && !s->asked.average && flat_leaves(&s->grid, &x->cells);
    if (!x->flat)
        x->cells = s->grid;
    x->batch =
        MIN(MAX(q->calls_max / MAX(calls, 1), 2) - 1, SELECT_SITE_BATCH); /* and the collectors */
    q->state = x;
    if (ask_collectors(q, s, e))
        return e->code;
    if (s->group_by_len)
        return ask_sets(q, x, e);
    if (make_room_for(q, x, 1, e))
        return e->code;
    x->specs[0] = s->spec;
    x->groups_len = 1;
    return make_cells(q, x, e);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * select_site_points: the sums of cells as points of the answer.
 *
 *   cells ──> (flat: ask whole profiles by slot, by start and spread) ──┐
 *         ──> (ask for exemplars) ──────────────────────────────────────┴──> points ──> reply
 *
 * Where cells are points they are the answer. Where they are leaves, select_flat.h divides each
 * between the points that its pushes reach into. A gauge is no sum of pushes: a leaf counts where
 * it begins, and so do the longer nodes that retention has left.
 */
#include "querier/api/flame/select_site.h"

#include "common/base/size.h"
#include "common/base/vec.h"
#include "querier/api/flame/select_flat.h"

int select_site_no_room(struct err *e)
{
    return err_set(e, ERR_LIMIT, "groupBy has too many values for a stackTraceSelector");
}

/* ---- points of leaves ---- */

/* Sums of whole profiles by slot, of one group; zero for a slot without a profile. */
static void read_slots(const struct timeline *t, const struct labels *group, uint64_t *ret,
                       size_t slots)
{
    memset(ret, 0, slots * sizeof(*ret));
    vec_for (i, &t->groups) {
        const struct timeline_group *g = &t->groups.ptr[i];
        if (!labels_eq(&g->labels, group))
            continue;
        vec_for (k, &g->points)
            if (g->points.ptr[k].k < slots)
                ret[g->points.ptr[k].k] = g->points.ptr[k].value;
        return;
    }
}

/* Is cell i a node that retention has left, and the time inside of it? */
static bool is_long(const struct site *x, uint32_t i)
{
    return x->edges[i + 1] - x->edges[i] > LEAF_MS;
}

static bool crosses(const struct site *x, uint32_t i, int64_t ms)
{
    return is_long(x, i) && x->edges[i] < ms && x->edges[i + 1] > ms;
}

static size_t leaf_of(const struct site *x, int64_t ms)
{
    int64_t leaf = (ms - flat_first_leaf(&x->cells)) / LEAF_MS;

    CHECK(leaf >= 0 && leaf < x->cells.points);
    return (size_t)leaf;
}

/* Where the points begin and end: as asked, but whole nodes. */
static void flat_range(const struct site *x, int64_t *ret_from, int64_t *ret_to)
{
    int64_t from, to;

    flat_bounds(&x->s->grid, &from, &to);
    if (x->gauge) { /* leaves that begin in the points */
        from += (LEAF_MS - (from - SLOT_EPOCH_MS) % LEAF_MS) % LEAF_MS;
        to += (LEAF_MS - (to - SLOT_EPOCH_MS) % LEAF_MS) % LEAF_MS;
    }
    *ret_from = from;
    *ret_to = to;
    for (uint32_t i = 0; i < x->cells.points; i++) {
        if (crosses(x, i, from))
            *ret_from = MAX(x->edges[i], 0);
        if (crosses(x, i, to))
            *ret_to = x->edges[i + 1];
    }
}

/* The leaves of group g into the points of f; of a gauge also how many leaves each point has. */
static void fold_flat(const struct site *x, size_t g, const uint64_t *starts, struct flat *f,
                      uint32_t *leaves)
{
    const uint64_t *sum = &x->sum[g * x->cells.points];
    int64_t from, to;
    uint32_t k;

    flat_bounds(f->grid, &from, &to);
    for (uint32_t i = 0; i < x->cells.points; i++) {
        int64_t begin = crosses(x, i, from) ? from : x->edges[i];
        if (!sum[i])
            continue;
        if (x->gauge && exm_point(f->grid, begin, &k))
            leaves[k] += x->leaves[g * x->cells.points + i];
        if (x->gauge || is_long(x, i))
            flat_add_whole(f, begin, sum[i]);
        else
            flat_add(f, begin, sum[i], &starts[leaf_of(x, begin) * LEAF_SLOTS]);
    }
    flat_end(f);
}

struct flat_room { /* for one group after the other */
    uint64_t *starts, *spread, *value, *sixths, *writes;
    uint32_t *leaves, *at;
};

static bool flat_room(struct query *q, const struct site *x, struct flat_room *ret)
{
    size_t slots = (size_t)x->cells.points * LEAF_SLOTS, points = x->s->grid.points;

    *ret = (struct flat_room){ .starts = ARENA_ARRAY(q->arena, uint64_t, slots),
                               .spread = ARENA_ARRAY(q->arena, uint64_t, slots),
                               .value = ARENA_ARRAY(q->arena, uint64_t, points),
                               .sixths = ARENA_ARRAY(q->arena, uint64_t, points),
                               .writes = ARENA_ARRAY(q->arena, uint64_t, points),
                               .leaves = ARENA_ARRAY(q->arena, uint32_t, points),
                               .at = ARENA_ARRAY(q->arena, uint32_t, points) };
    return ret->starts && ret->spread && ret->value && ret->sixths && ret->writes && ret->leaves &&
           ret->at;
}

/* One group of points that are made already. */
static int add_points(struct query *q, const struct site *x, size_t g, const struct flat_room *r,
                      struct timeline *t, struct err *e)
{
    struct wire_points p = { .labels = x->groups[g],
                             .point = r->at,
                             .value = r->value,
                             .writes = r->writes,
                             .leaves = r->leaves };
    struct wire_timelines all = { .series = &p, .len = 1, .gauge = x->gauge };

    for (uint32_t k = 0; k < x->s->grid.points; k++) {
        if (!r->value[k])
            continue;
        r->at[p.len] = k;
        r->value[p.len] = r->value[k];
        r->leaves[p.len++] = r->leaves[k];
    }
    if (!p.len)
        return 0;
    return query_take(q, timeline_cost(&all), e) || timeline_add(t, &all, e) ? e->code : 0;
}

static int add_flat_groups(struct query *q, const struct site *x, const struct timeline *starts,
                           const struct timeline *spread, struct timeline *t, struct err *e)
{
    size_t slots = (size_t)x->cells.points * LEAF_SLOTS, points = x->s->grid.points;
    struct flat_room r;

    if (!flat_room(q, x, &r))
        return select_site_no_room(e);
    for (size_t g = 0; g < x->groups_len; g++) {
        read_slots(starts, &x->groups[g], r.starts, slots);
        read_slots(spread, &x->groups[g], r.spread, slots);
        struct flat f = { .grid = &x->s->grid,
                          .value = r.value,
                          .sixths = r.sixths,
                          .window = flat_window(r.starts, r.spread, slots) };
        memset(r.value, 0, points * sizeof(*r.value));
        memset(r.sixths, 0, points * sizeof(*r.sixths));
        memset(r.writes, 0, points * sizeof(*r.writes));
        memset(r.leaves, 0, points * sizeof(*r.leaves));
        fold_flat(x, g, r.starts, &f, r.leaves);
        if (add_points(q, x, g, &r, t, e))
            return e->code;
    }
    return 0;
}

static int add_flat(struct query *q, const struct site *x, struct timeline *t, struct err *e)
{
    uint32_t slots = x->cells.points * LEAF_SLOTS;
    struct timeline starts, spread;

    timeline_init(&starts, q->arena);
    timeline_init(&spread, q->arena);
    int code = merged_timeline(q, ASK_STARTS, slots, false, &starts, e);
    if (!code)
        code = merged_timeline(q, ASK_SPREAD, slots, false, &spread, e);
    if (!code)
        code = add_flat_groups(q, x, &starts, &spread, t, e);
    timeline_deinit(&starts);
    timeline_deinit(&spread);
    return code;
}

static int ask_slots(struct query *q, const struct site *x, struct wire_query *wq, struct err *e)
{
    const struct select_series *s = x->s;
    struct wire_timeline tl = { .grid = flat_slots(&x->cells),
                                .group_by = s->group_by,
                                .group_by_len = s->group_by_len };

    if (query_ask_timeline(q, ASK_STARTS, wq, &tl, e))
        return e->code;
    tl.spread = true;
    return query_ask_timeline(q, ASK_SPREAD, wq, &tl, e);
}

/* ---- the reply ---- */

/* One group's points into t. `at` has room for all of them. */
static int add_cells(struct query *q, const struct site *x, size_t g, uint32_t *at,
                     struct timeline *t, struct err *e)
{
    uint32_t points = x->s->grid.points;
    uint64_t *value = &x->sum[g * points], *writes = &x->writes[g * points];
    uint32_t *leaves = &x->leaves[g * points];
    struct wire_points p = {
        .labels = x->groups[g], .point = at, .value = value, .writes = writes, .leaves = leaves
    };
    struct wire_timelines all = { .series = &p, .len = 1, .gauge = x->gauge };

    for (uint32_t k = 0; k < points; k++) {
        if (!value[k])
            continue;
        at[p.len] = k;
        value[p.len] = value[k];
        writes[p.len] = writes[k];
        leaves[p.len++] = leaves[k];
    }
    if (!p.len)
        return 0;
    return query_take(q, timeline_cost(&all), e) || timeline_add(t, &all, e) ? e->code : 0;
}

static int reply_cells(struct query *q, struct err *e)
{
    const struct site *x = q->state;
    const struct plan_grid *grid = &x->s->grid;
    struct select_list list;
    uint32_t *at = ARENA_ARRAY(q->arena, uint32_t, grid->points);
    struct timeline t;

    if (!at)
        return select_site_no_room(e);
    int code = select_read_list(q, ASK_EXEMPLARS, &list, e);
    list.grid = plan_grid_asked(*grid);
    list.leaves = true;
    timeline_init(&t, q->arena);
    if (x->flat && !code)
        code = add_flat(q, x, &t, e);
    for (size_t g = 0; g < x->groups_len && !code && !x->flat; g++)
        code = add_cells(q, x, g, at, &t, e);
    timeline_finish(&t, x->s->asked.average != 0);
    t.start_ms = MAX(x->edges[0], 0);
    t.end_ms = x->edges[x->cells.points];
    if (x->flat) /* its first and last leaves reach beyond the points */
        flat_range(x, &t.start_ms, &t.end_ms);
    if (!code)
        code = select_reply(q, x->s, &t, &list, e);
    timeline_deinit(&t);
    return code;
}

NODISCARD int select_site_reply(struct query *q, const struct site *x, struct err *e)
{
    const struct select_series *s = x->s;
    int64_t from = x->edges[0], to = x->edges[x->cells.points];
    struct wire_query wq = { .profile_type = s->spec.profile_type,
                             .selectors = s->spec.selectors,
                             .selectors_len = s->spec.len,
                             .range = plan_range(from, to) };

    q->step = reply_cells;
    for (size_t i = 0; i < q->tenants_len && !wq.range.empty; i++) {
        wq.tenant = q->tenants[i];
        if (select_ask_list(q, s, ASK_EXEMPLARS, &wq, e) ||
            (x->flat && !x->gauge && ask_slots(q, x, &wq, e)))
            return e->code;
    }
    return 0;
}

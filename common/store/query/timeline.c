/* SPDX-License-Identifier: Apache-2.0
 *
 * timeline: store_timeline: totals and write counts over time, from `tl` and the heads of unsealed
 * rows. Never decodes a vector.
 *
 *   targets, their floors ─> grid: where edges of points can be (tl_targets)
 *           ─> per part: marks ─> cover: runs of each level ─> rows of tl, presence; raw rows
 *
 * Each group of the answer has one dense array of points, made when its first point comes; so the
 * cost is one addition per stored point. Gauges also remember in which leaves a group has data: the
 * caller divides by the number of leaves with data, and a leaf of several series counts once.
 *
 * Stored points hold pushes by the slot of their start, as vectors do, so that both add up alike.
 * Where points of the answer are of seconds, a push is spread over the slots it covers, here.
 */
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/store/codec/timeline_row.h"
#include "common/store/codec/vec.h"
#include "common/store/query/rollup_read.h"
#include "common/store/query/tl_targets.h"
#include "common/store/state/presence.h"
#include "common/store/state/view.h"
#include "common/store/store.h"
#include "common/sys/pool.h"

#define POINTS_MAX  (1u << 20)
#define MS_MAX      (INT64_C(1) << 50) /* the year 37,000; sums of these never overflow */
#define CELLS_BYTES (64 * MIB)

struct cell {
    uint64_t value, writes;
    uint64_t sixths; /* of a unit: remainders of pushes spread over 2 or 3 slots */
};
struct line {                /* one group of the answer */
    struct cell *cells;      /* by point; NULL until there is data */
    roaring_bitmap_t *slots; /* gauges: with data; of coarser levels all of each leaf */
};
struct timeline {
    const struct store_query *q;
    struct store_view *v;
    struct tl_targets t;
    VEC(struct line) lines; /* by group of the answer */
    size_t cells_left;      /* bytes */
    uint64_t rows, targets;
    bool *seen; /* by target: it has data */
    struct tl row;
    /* Of the part at hand: series or groups of a service. */
    struct tl_part part;
    struct dirty_set dirty;
    struct tl_cover cover;
    const uint32_t *index; /* of the series being read among the part's; NULL: the same */
    uint32_t level;        /* of the rows being read */
};

/* ---- adding ---- */

static size_t target_of(const struct timeline *x, size_t series)
{
    return x->part.p.base + (x->index ? x->index[series] : series);
}

static void see(struct timeline *x, size_t series)
{
    bool *seen = &x->seen[target_of(x, series)];

    x->targets += !*seen;
    *seen = true;
}

static int get_line(struct timeline *x, size_t series, struct line **ret, struct err *e)
{
    size_t target = target_of(x, series);
    struct line *l = &x->lines.ptr[x->t.t.at.ptr[target].group];
    size_t bytes = x->t.grid.points * sizeof(*l->cells);

    *ret = l;
    if (l->cells)
        return 0;
    if (bytes > x->cells_left)
        return err_set(e, ERR_LIMIT,
                       "%zu groups of %u points do not fit: ask for fewer groups or points",
                       x->lines.len, x->t.grid.points);
    x->cells_left -= bytes;
    l->cells = xcalloc(x->t.grid.points, sizeof(*l->cells));
    if (x->t.t.type.gauge)
        l->slots = roaring_bitmap_create();
    return 0;
}

static void add_point(struct line *l, uint32_t k, uint64_t total, uint64_t writes)
{
    l->cells[k].value = u64_add_sat(l->cells[k].value, total);
    l->cells[k].writes = u64_add_sat(l->cells[k].writes, writes);
}

/* A push counts in the slots it covers, in each of them with the same part of it. The parts of what
 * is outside the range belong to other ranges. Exact, whatever rows hold the pushes: what division
 * leaves is kept in sixths, and becomes units in give(). */
static void add_spread(struct timeline *x, struct line *l, uint32_t t, uint64_t total,
                       uint64_t writes)
{
    const struct tl_grid *g = &x->t.grid;
    uint32_t slots = spread_at(x->part.spread, t);

    static_assert(SPREAD_SLOTS_MAX == 3, "2 and 3 divide 6");
    if (t >= g->from && t < g->to)
        add_point(l, tl_grid_point(g, t), 0, writes);
    if (total == UINT64_MAX) /* not exact any more: it stays whole */
        slots = 1;
    for (uint32_t s = t; s < t + slots; s++) {
        if (s < g->from || s >= g->to)
            continue;
        uint32_t k = tl_grid_point(g, s);
        add_point(l, k, total / slots, 0);
        l->cells[k].sixths += total % slots * (6 / slots);
    }
}

/* Points of a minute and more, and data that are stored without slots, count where they begin. */
static void add_total(struct timeline *x, struct line *l, uint32_t t, uint64_t total,
                      uint64_t writes)
{
    if (x->part.spread && t >= x->part.floors->at[0])
        add_spread(x, l, t, total, writes);
    else
        add_point(l, tl_grid_point(&x->t.grid, t), total, writes);
}

static int count_row(struct timeline *x, struct err *e)
{
    if (x->q->rows_max && x->rows == x->q->rows_max)
        return err_set(e, ERR_LIMIT,
                       "the query reads more than %" PRIu64
                       " rows: ask for a shorter range or fewer series",
                       x->q->rows_max);
    x->rows++;
    return 0;
}

/* Index of the first run that ends behind t. */
static size_t find_run(const struct timeline *x, uint32_t t)
{
    size_t low = 0, high = x->cover.at[x->level].len;

    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (x->cover.at[x->level].ptr[mid].to <= t)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static int on_sealed(void *cookie, size_t series, uint32_t chunk, struct str value, struct err *e)
{
    struct timeline *x = cookie;
    uint32_t width = LEVELS[x->level].tl_point;
    const struct cover_run *run = x->cover.at[x->level].ptr + find_run(x, chunk);
    const struct cover_run *end = x->cover.at[x->level].ptr + x->cover.at[x->level].len;
    struct line *l;

    if (count_row(x, e) || get_line(x, series, &l, e) ||
        timeline_row_decode(value, LEVELS[x->level].tl_chunk / width, &x->row, e))
        return e->code;
    vec_for (i, &x->row.points) {
        const struct tl_point *p = &x->row.points.ptr[i];
        uint32_t t = chunk + p->point * width;
        while (run < end && run->to <= t)
            run++;
        if (run == end)
            break;
        if (t < run->from)
            continue;
        see(x, series);
        add_total(x, l, t, p->total, p->writes);
        if (l->slots && !x->level)
            roaring_bitmap_add(l->slots, t);
    }
    return 0;
}

static int add_unsealed(struct timeline *x, size_t series, uint32_t t, uint64_t total,
                        uint64_t writes, struct err *e)
{
    struct line *l;

    if (get_line(x, series, &l, e))
        return e->code;
    see(x, series);
    add_total(x, l, t, total, writes);
    if (l->slots)
        roaring_bitmap_add(l->slots, t);
    return 0;
}

static int on_raw(void *cookie, size_t series, uint32_t t, struct str value, struct err *e)
{
    struct timeline *x = cookie;
    struct vec_reader r;

    if (t < x->part.from || t >= x->part.to)
        return 0; /* half of a leaf */
    if (count_row(x, e) || vec_peek(value, &r, e))
        return e->code;
    return add_unsealed(x, series, t, r.meta.total, r.meta.writes, e);
}

/* The sum of the unsealed rows of a group in a leaf. */
static int on_hot(void *cookie, size_t series, const struct hot_leaf *leaf, struct err *e)
{
    struct timeline *x = cookie;
    int rc = count_row(x, e);

    for (uint32_t i = 0; !rc && i < LEAF_SLOTS; i++) {
        uint32_t t = leaf->t + i;
        if (leaf->writes[i] && t >= x->part.from && t < x->part.to)
            rc = add_unsealed(x, series, t, leaf->total[i], leaf->writes[i], e);
    }
    return rc;
}

/* Leaves with data of levels above 0, as all their slots. */
static int on_presence(void *cookie, size_t series, uint32_t first, uint32_t end, struct err *e)
{
    struct timeline *x = cookie;
    struct line *l;

    if (get_line(x, series, &l, e))
        return e->code;
    /* Whole runs take no memory; no point of these levels ends inside a leaf. */
    roaring_bitmap_add_range(l->slots, first, end);
    return 0;
}

/* ---- the query ---- */

/* The rows of the runs of one level; runs whose rows are neighbours are one scan. */
static int read_level(struct timeline *x, struct timeline_row_scan *c, uint32_t level,
                      struct err *e)
{
    const struct cover_run *r = x->cover.at[level].ptr;
    uint32_t chunk = tl_chunk(c->flags, level);
    size_t n = x->cover.at[level].len;
    int rc = 0;

    x->level = c->level = level;
    for (size_t i = 0, next; !rc && i < n; i = next) {
        uint32_t end = r[i].to;
        for (next = i + 1; next < n && r[next].from / chunk <= (end - 1) / chunk + 1; next++)
            end = r[next].to;
        c->from = r[i].from;
        c->to = end;
        rc = timeline_row_scan(c, e);
    }
    return rc;
}

static int by_from(const void *a, const void *b)
{
    const struct cover_run *x = a, *y = b;

    return x->from < y->from ? -1 : x->from > y->from;
}

/* Leaves with data in the runs of all levels above 0. */
static int read_presence(struct timeline *x, struct timeline_row_scan *c, struct err *e)
{
    VEC(struct cover_run) all = { 0 };
    int rc = 0;

    for (uint32_t l = 1; l < KEY_LEVELS; l++)
        vec_for (i, &x->cover.at[l])
            vec_push(&all, x->cover.at[l].ptr[i]);
    if (all.len)
        qsort(all.ptr, all.len, sizeof(*all.ptr), by_from);
    for (size_t i = 0, next; !rc && i < all.len; i = next) {
        uint32_t end = all.ptr[i].to;
        for (next = i + 1; next < all.len && all.ptr[next].from == end; next++)
            end = all.ptr[next].to;
        c->from = all.ptr[i].from;
        c->to = end;
        rc = presence_each(c, on_presence, x, e);
    }
    vec_free(&all);
    return rc;
}

/* Some series, or all groups, of the part in [from, to) of it. */
static int read_piece(struct timeline *x, const struct mask_part *piece, struct err *e)
{
    const struct tl_part *p = &x->part;
    struct tl_cover_in in = { .grid = &x->t.grid,
                              .from = piece->from,
                              .to = piece->to,
                              .group = p->p.group,
                              .floors = p->floors,
                              .dirty = &x->dirty };
    struct timeline_row_scan c = { .v = x->v,
                                   .tenant = p->m.tenant,
                                   .scope = p->m.scope,
                                   .ptype = p->m.ptype,
                                   .flags = p->p.group ? KEY_TL_GROUP : 0,
                                   .ids = piece->series,
                                   .len = piece->len,
                                   .fn = on_sealed,
                                   .cookie = x,
                                   .cancel = x->q->cancel };
    int rc = 0;

    x->index = piece->index;
    tl_cover_make(&in, &x->cover);
    for (uint32_t l = 0; !rc && l < KEY_LEVELS; l++)
        rc = read_level(x, &c, l, e);
    if (!rc && x->t.t.type.gauge)
        rc = read_presence(x, &c, e);
    x->index = NULL;
    return rc;
}

static int read_sealed(struct timeline *x, struct err *e)
{
    const struct tl_part *p = &x->part;
    mask_parts pieces = { 0 };
    int rc =
        dirty_load(&x->dirty, &(struct kv_view){ x->v->kv, x->v->snap }, &p->m, p->from, p->to, e);

    if (!rc)
        rc = tl_targets_pieces(&x->t, p, &pieces, e);
    for (size_t i = 0; !rc && i < pieces.len; i++)
        rc = read_piece(x, &pieces.ptr[i], e);
    vec_free(&pieces);
    return rc;
}

/* True if all targets of the part belong to one group of the answer. Then the series of a row need
 * not be looked up. */
static bool one_line(const struct timeline *x)
{
    const struct target *t = x->t.t.at.ptr + x->part.p.base;

    for (size_t i = 1; i < x->part.p.scan.len; i++)
        if (t[i].group != t[0].group)
            return false;
    return true;
}

static int read_raw(struct timeline *x, uint32_t raw_low, struct err *e)
{
    struct scan c = x->part.p.scan;

    c.from = x->part.from;
    c.to = x->part.to;
    c.fn = on_raw;
    c.cookie = x;
    if (!x->part.p.group)
        return scan_raw(&c, raw_low, e);
    struct rollup_read r = targets_groups(&c, on_raw, on_hot, x);
    c.from = slot_leaf(c.from);
    c.to = slot_leaf(c.to + LEAF_SLOTS - 1);
    return rollup_raw(&r, x->part.p.all && one_line(x), raw_low, c.from, c.to, e);
}

static int read_all(struct timeline *x, struct err *e)
{
    uint32_t raw_low;
    int rc = scan_raw_low(x->v, &raw_low, e);

    x->seen = xcalloc(x->t.t.at.len + 1, sizeof(*x->seen));
    vec_reserve(&x->lines, x->t.t.groups.len);
    x->lines.len = x->t.t.groups.len;
    if (x->lines.len)
        memset(x->lines.ptr, 0, x->lines.len * sizeof(*x->lines.ptr));
    for (size_t i = 0; !rc && tl_targets_part(&x->t, x->q, i, &x->part); i++) {
        if (x->part.from >= x->part.to || !x->part.p.scan.len)
            continue;
        rc = read_sealed(x, e);
        if (!rc)
            rc = read_raw(x, raw_low, e);
    }
    return rc;
}

/* Distinct leaves in each point; a leaf whose slots fall into two points counts in both. */
static void count_leaves(const struct timeline *x, const struct line *l, struct store_points *p)
{
    struct leaf_writer w = { .to = &p->items };
    roaring_uint32_iterator_t it;
    uint32_t leaf = UINT32_MAX, at = UINT32_MAX;
    size_t i = 0;

    roaring_init_iterator(l->slots, &it);
    for (; it.has_value; roaring_advance_uint32_iterator(&it)) {
        uint32_t k = tl_grid_point(&x->t.grid, it.current_value);
        if (k == at && it.current_value / LEAF_SLOTS == leaf)
            continue;
        at = k;
        leaf = it.current_value / LEAF_SLOTS;
        while (i < p->point.len && p->point.ptr[i] < k)
            i++;
        if (i == p->point.len || p->point.ptr[i] != k)
            continue;
        p->leaves.ptr[i]++;
        if (x->q->leaf_items)
            leaf_put(&w, leaf, 1);
    }
    leaf_put_end(&w);
}

static int take_items(struct timeline *x, const struct leaf_items *items, struct err *e)
{
    size_t bytes = items->len * sizeof(*items->ptr);

    if (bytes > x->cells_left)
        return err_set(e, ERR_LIMIT,
                       "when %zu groups had data does not fit %zu MiB: ask for one service, fewer "
                       "groups or a shorter time",
                       x->lines.len, (size_t)(CELLS_BYTES / MIB));
    x->cells_left -= bytes;
    return 0;
}

static int give(struct timeline *x, size_t group, struct store_timeline *ret, struct err *e)
{
    const struct line *l = &x->lines.ptr[group];
    pool_slice_step(group);
    struct store_points p = { .labels = x->t.t.groups.ptr[group] };
    uint64_t sixths = 0;

    for (uint32_t k = 0; l->cells && k < x->t.grid.points; k++) {
        sixths += l->cells[k].sixths;
        uint64_t value = u64_add_sat(l->cells[k].value, sixths / 6);
        sixths %= 6;
        if (!l->cells[k].writes && !value)
            continue;
        vec_push(&p.point, k);
        vec_push(&p.value, value);
        vec_push(&p.writes, l->cells[k].writes);
        if (l->slots)
            vec_push(&p.leaves, 0);
    }
    if (!p.point.len)
        return 0;
    if (l->slots)
        count_leaves(x, l, &p);
    vec_push(&ret->series, p);
    return take_items(x, &p.items, e);
}

void store_timeline_deinit(struct store_timeline *t)
{
    vec_for (i, &t->series) {
        struct store_points *p = &t->series.ptr[i];
        vec_free(&p->point);
        vec_free(&p->value);
        vec_free(&p->writes);
        vec_free(&p->leaves);
        vec_free(&p->items);
    }
    vec_free(&t->series);
}

static void close_timeline(struct timeline *x)
{
    vec_for (i, &x->lines) {
        xfree(x->lines.ptr[i].cells);
        if (x->lines.ptr[i].slots)
            roaring_bitmap_free(x->lines.ptr[i].slots);
    }
    vec_free(&x->lines);
    xfree(x->seen);
    vec_free(&x->row.points);
    dirty_deinit(&x->dirty);
    tl_cover_deinit(&x->cover);
    tl_targets_close(&x->t);
}

int store_timeline(struct store_view *v, const struct store_timeline_query *q, struct arena *a,
                   struct store_timeline *ret, struct err *e)
{
    struct timeline x = { .q = &q->q, .v = v, .cells_left = CELLS_BYTES };

    *ret = (struct store_timeline){ 0 };
    if (q->points < 1 || q->points > POINTS_MAX || q->step_ms < 1 ||
        q->step_ms > MS_MAX / q->points || q->origin_ms > MS_MAX || q->origin_ms < -MS_MAX)
        return err_set(e, ERR_INPUT,
                       "a timeline of %u points of %" PRId64 " ms from %" PRId64
                       ": want 1 to %u points of at least 1 ms",
                       q->points, q->step_ms, q->origin_ms, POINTS_MAX);
    tl_grid_init(&x.t.grid, q->origin_ms, q->step_ms, q->points);
    struct targets_query ask = {
        .q = &q->q, .group_by = q->group_by, .group_by_len = q->group_by_len, .arena = a
    };
    int rc = tl_targets_open(&x.t, v, &ask, e);
    ret->gauge = x.t.t.type.gauge;
    if (!rc)
        rc = read_all(&x, e);
    for (size_t i = 0; !rc && i < x.lines.len; i++)
        rc = give(&x, i, ret, e);
    ret->start_ms = slot_to_ms(x.t.grid.from);
    ret->end_ms = slot_to_ms(x.t.grid.to);
    ret->rows = x.rows;
    ret->targets = x.targets;
    close_timeline(&x);
    return rc;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * timeline: store_timeline: totals and write counts over time, from `tl` and the heads of unsealed
 * rows. Never decodes a vector.
 *
 * Each group has one dense array of points, made when its first point comes; so the cost is one
 * addition per stored point. Gauges also remember in which slots a group has data: the caller
 * divides by the number of leaves with data, and a leaf of several series counts once.
 */
#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/store/store_impl.h"
#include "common/store/targets.h"
#include "common/store/tl.h"
#include "common/store/vec.h"

#define POINTS_MAX  (1u << 20)
#define MS_MAX      (INT64_C(1) << 50) /* the year 37,000; sums of these never overflow */
#define CELLS_BYTES (64 * MIB)

struct cell {
    uint64_t value, writes;
};
struct line {                /* one group */
    struct cell *cells;      /* by point; NULL until there is data */
    roaring_bitmap_t *slots; /* gauges: with data */
};
struct timeline {
    const struct store_query *q;
    struct targets t;
    struct scan scan;
    size_t base; /* target of scan.series[0] */
    int64_t origin_ms, step_ms;
    uint32_t points;
    VEC(struct line) lines; /* by group */
    size_t cells_left;      /* bytes */
    uint64_t rows;
    struct tl row;
};

/* ---- adding ---- */

static int get_line(struct timeline *x, size_t series, struct line **ret, struct err *e)
{
    struct line *l = &x->lines.ptr[x->t.at.ptr[x->base + series].group];
    size_t bytes = x->points * sizeof(*l->cells);

    *ret = l;
    if (l->cells)
        return 0;
    if (bytes > x->cells_left)
        return err_set(e, ERR_LIMIT,
                       "%zu groups of %u points do not fit: ask for fewer groups or points",
                       x->lines.len, x->points);
    x->cells_left -= bytes;
    l->cells = xcalloc(x->points, sizeof(*l->cells));
    if (x->t.type.gauge)
        l->slots = roaring_bitmap_create();
    return 0;
}

/* The slot is in the range. */
static void add_slot(struct timeline *x, struct line *l, uint32_t slot, uint64_t total,
                     uint64_t writes)
{
    int64_t behind = slot_to_ms(slot) - x->origin_ms;
    int64_t k = behind <= 0 ? 0 : (behind + x->step_ms - 1) / x->step_ms;

    DCHECK(k < x->points);
    l->cells[k].value = u64_add_sat(l->cells[k].value, total);
    l->cells[k].writes = u64_add_sat(l->cells[k].writes, writes);
    if (l->slots)
        roaring_bitmap_add(l->slots, slot);
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

static int on_sealed(void *cookie, size_t series, uint32_t chunk, struct str value, struct err *e)
{
    struct timeline *x = cookie;
    struct line *l;

    if (count_row(x, e) || get_line(x, series, &l, e) ||
        tl_decode(value, LEVELS[0].tl_chunk, &x->row, e))
        return e->code;
    vec_for (i, &x->row.points) {
        const struct tl_point *p = &x->row.points.ptr[i];
        uint32_t slot = chunk + p->point;
        if (slot >= x->scan.from && slot < x->scan.to)
            add_slot(x, l, slot, p->total, p->writes);
    }
    return 0;
}

static int on_raw(void *cookie, size_t series, uint32_t t, struct str value, struct err *e)
{
    struct timeline *x = cookie;
    struct vec_reader r;
    struct line *l;

    if (count_row(x, e) || get_line(x, series, &l, e) || vec_peek(value, &r, e))
        return e->code;
    add_slot(x, l, t, r.meta.total, r.meta.writes);
    return 0;
}

/* ---- the query ---- */

static int64_t floor_slot(int64_t ms)
{
    int64_t d = ms - SLOT_EPOCH_MS;
    return d >= 0 ? d / SLOT_MS : -((-d + SLOT_MS - 1) / SLOT_MS);
}

static uint32_t clamp_slot(int64_t slot)
{
    return slot < 0 ? 0 : (uint32_t)MIN(slot, (int64_t)KEY_SLOT_MAX);
}

static int read_scope(struct timeline *x, uint32_t from, uint32_t to, uint32_t raw_low,
                      struct err *e)
{
    struct scan chunks = x->scan;

    x->scan.from = from;
    x->scan.to = to;
    chunks.from = from - from % LEVELS[0].tl_chunk;
    chunks.to = to;
    chunks.fn = on_sealed;
    chunks.cookie = x;
    int rc = scan_level(&chunks, KV_TL, 0, e);
    x->scan.fn = on_raw;
    x->scan.cookie = x;
    return rc ? rc : scan_raw(&x->scan, raw_low, e);
}

static int read_all(struct timeline *x, struct store_view *v, uint32_t from, uint32_t to,
                    struct err *e)
{
    uint32_t raw_low;
    size_t at = 0;
    int rc = scan_raw_low(v, &raw_low, e);

    vec_reserve(&x->lines, x->t.groups.len);
    x->lines.len = x->t.groups.len;
    if (x->lines.len)
        memset(x->lines.ptr, 0, x->lines.len * sizeof(*x->lines.ptr));
    while (!rc && targets_next(&x->t, x->q, &at, &x->scan)) {
        x->base = at - x->scan.len;
        rc = read_scope(x, from, to, raw_low, e);
    }
    return rc;
}

/* Distinct leaves in each point; a leaf whose slots fall into two points counts in both. */
static void count_leaves(const struct timeline *x, const struct line *l, struct store_points *p)
{
    roaring_uint32_iterator_t it;
    uint32_t leaf = UINT32_MAX;
    size_t i = 0;
    int64_t at = -1;

    roaring_init_iterator(l->slots, &it);
    for (; it.has_value; roaring_advance_uint32_iterator(&it)) {
        int64_t behind = slot_to_ms(it.current_value) - x->origin_ms;
        int64_t k = behind <= 0 ? 0 : (behind + x->step_ms - 1) / x->step_ms;
        if (k == at && it.current_value / LEAF_SLOTS == leaf)
            continue;
        at = k;
        leaf = it.current_value / LEAF_SLOTS;
        while (p->point.ptr[i] != k)
            i++;
        p->leaves.ptr[i]++;
    }
}

static void give(struct timeline *x, size_t group, struct store_timeline *ret)
{
    const struct line *l = &x->lines.ptr[group];
    struct store_points p = { .labels = x->t.groups.ptr[group] };

    for (uint32_t k = 0; l->cells && k < x->points; k++) {
        if (!l->cells[k].writes)
            continue;
        vec_push(&p.point, k);
        vec_push(&p.value, l->cells[k].value);
        vec_push(&p.writes, l->cells[k].writes);
        if (l->slots)
            vec_push(&p.leaves, 0);
    }
    if (!p.point.len)
        return;
    if (l->slots)
        count_leaves(x, l, &p);
    vec_push(&ret->series, p);
}

void store_timeline_deinit(struct store_timeline *t)
{
    vec_for (i, &t->series) {
        struct store_points *p = &t->series.ptr[i];
        vec_free(&p->point);
        vec_free(&p->value);
        vec_free(&p->writes);
        vec_free(&p->leaves);
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
    vec_free(&x->row.points);
    targets_close(&x->t);
}

int store_timeline(struct store_view *v, const struct store_query *q, int64_t origin_ms,
                   int64_t step_ms, uint32_t points, const struct str *group_by,
                   size_t group_by_len, struct arena *a, struct store_timeline *ret, struct err *e)
{
    struct timeline x = {
        .q = q,
        .origin_ms = origin_ms,
        .step_ms = step_ms,
        .points = points,
        .cells_left = CELLS_BYTES,
    };

    *ret = (struct store_timeline){ 0 };
    if (points < 1 || points > POINTS_MAX || step_ms < 1 || step_ms > MS_MAX / points ||
        origin_ms > MS_MAX || origin_ms < -MS_MAX)
        return err_set(e, ERR_INPUT,
                       "a timeline of %u points of %" PRId64 " ms from %" PRId64
                       ": want 1 to %u points of at least 1 ms",
                       points, step_ms, origin_ms, POINTS_MAX);
    uint32_t from = clamp_slot(floor_slot(origin_ms - step_ms) + 1);
    uint32_t to = clamp_slot(floor_slot(origin_ms + (points - 1) * step_ms) + 1);
    int rc =
        targets_open(&x.t, v, q, slot_to_ms(from), slot_to_ms(to), group_by, group_by_len, a, e);
    ret->gauge = x.t.type.gauge;
    if (!rc && from < to)
        rc = read_all(&x, v, from, to, e);
    for (size_t i = 0; !rc && i < x.lines.len; i++)
        give(&x, i, ret);
    close_timeline(&x);
    return rc;
}

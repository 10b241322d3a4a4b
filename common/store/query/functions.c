/* SPDX-License-Identifier: Apache-2.0
 *
 * functions: store_functions: what functions cost, over time.
 *
 *   per service, per point of the grid: cover (as for a flame graph)
 *       groups, level >= 2   rows of fn: one addition per function
 *       everything else      vectors ─> their sum ─> function_cost_calc: once per point
 *   and unsealed rows the same way
 *
 * So a year of a service costs some hundred rows of fn; a selector that no group answers costs its
 * flame graphs. Functions are united by name over epochs, services, groups.
 */
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/store/dict/dict_cache.h"
#include "common/store/query/rollup_read.h"
#include "common/store/query/tl_targets.h"
#include "common/store/state/function_cost_calc.h"
#include "common/store/state/presence.h"
#include "common/store/state/view.h"
#include "common/store/store.h"

#define POINTS_MAX  (1u << 20)
#define MS_MAX      (INT64_C(1) << 50)
#define CELLS_BYTES (16 * MIB)

struct cell {
    uint64_t self, total;
};
struct function {
    struct str name;    /* in the arena */
    struct cell *cells; /* by point; NULL until there is a value */
};
struct functions {
    const struct store_functions_query *q;
    struct store_view *v;
    struct arena *arena;
    struct tl_targets t;
    struct tl_part part; /* series or groups of a service: at hand */
    struct function_cost_calc *calc;
    VEC(struct function) at;
    struct map_str *by_name; /* -> index + 1 */
    struct map_u64 by_ptr;   /* address of a name in a dictionary of the service -> index */
    bool all_names;
    uint64_t *all;            /* by point */
    roaring_bitmap_t *leaves; /* gauges */
    uint32_t k;               /* point at hand */
    size_t cells_left;
    uint64_t rows, vectors, saturated;
    struct dirty_set dirty;
    struct cover cover;
};

#define UNWANTED (UINT32_MAX - 1)

/* ---- adding ---- */

static int full(const struct functions *x, struct err *e)
{
    return err_set(e, ERR_LIMIT,
                   "%zu functions of %u points do not fit: ask for fewer functions (by name) or "
                   "points",
                   x->at.len, x->t.grid.points);
}

static int new_function(struct functions *x, struct str name, uint32_t *ret, struct err *e)
{
    struct function f = { .name = arena_strdup(x->arena, name) };

    if (!f.name.ptr || x->at.len >= UNWANTED)
        return full(x, e);
    vec_push(&x->at, f);
    map_str_put(x->by_name, f.name, (void *)(uintptr_t)x->at.len);
    *ret = (uint32_t)x->at.len - 1;
    return 0;
}

/* Names of a dictionary do not move while function_cost_calc holds it, so their address is a key.
 */
static int find(struct functions *x, struct str name, uint32_t *ret, struct err *e)
{
    uint64_t key = (uint64_t)(uintptr_t)name.ptr << 1 | !name.len;
    uint32_t known = map_u64_get(&x->by_ptr, key);
    uintptr_t at;
    int rc = 0;

    if (known == MAP_U64_EMPTY) {
        at = (uintptr_t)map_str_get(x->by_name, name);
        known = at ? (uint32_t)at - 1 : UNWANTED;
        if (!at && x->all_names)
            rc = new_function(x, name, &known, e);
        if (!rc)
            (void)map_u64_put(&x->by_ptr, key, known);
    }
    *ret = known;
    return rc;
}

static void add_sat(struct functions *x, uint64_t *to, uint64_t v)
{
    if (!u64_add(*to, v, to)) {
        *to = UINT64_MAX;
        x->saturated++;
    }
}

static int on_value(void *cookie, struct str name, uint64_t self, uint64_t total, struct err *e)
{
    struct functions *x = cookie;
    size_t bytes = x->t.grid.points * sizeof(struct cell);
    uint32_t at;

    add_sat(x, &x->all[x->k], self);
    if (find(x, name, &at, e))
        return e->code;
    if (at == UNWANTED)
        return 0;
    struct function *f = &x->at.ptr[at];
    if (!f->cells && bytes > x->cells_left)
        return full(x, e);
    if (!f->cells) {
        x->cells_left -= bytes;
        f->cells = xcalloc(x->t.grid.points, sizeof(*f->cells));
    }
    add_sat(x, &f->cells[x->k].self, self);
    add_sat(x, &f->cells[x->k].total, total);
    return 0;
}

static int count_row(struct functions *x, struct err *e)
{
    uint64_t max = x->q->q.rows_max;

    if (max && x->rows == max)
        return err_set(e, ERR_LIMIT,
                       "the query reads more than %" PRIu64
                       " rows: ask for a shorter range or fewer series",
                       max);
    x->rows++;
    return 0;
}

static int on_fn(void *cookie, size_t group, uint32_t t, struct str value, struct err *e)
{
    struct functions *x = cookie;

    (void)group;
    if (count_row(x, e) || fn_row_each(x->calc, value, on_value, x, e))
        return err_wrap(e, "functions at slot %u", t);
    return 0;
}

static int on_vector(void *cookie, size_t series, uint32_t t, struct str value, struct err *e)
{
    struct functions *x = cookie;

    (void)series;
    x->vectors++;
    if (count_row(x, e) || fn_calc_add(x->calc, value, e))
        return err_wrap(e, "vector at slot %u", t);
    return 0;
}

static int on_leaf(void *cookie, size_t series, uint32_t t, struct str value, struct err *e)
{
    struct functions *x = cookie;

    if (x->leaves)
        roaring_bitmap_add(x->leaves, t / LEAF_SLOTS);
    return on_vector(x, series, t, value, e);
}

/* ---- sealed rows of a part ---- */

static int read_run(struct functions *x, const struct cover_run *r, struct err *e)
{
    struct scan c = x->part.p.scan;
    bool group = x->part.p.group;

    if (group && r->level < 2) {
        struct rollup_read ru =
            targets_groups(&x->part.p.scan, r->level ? on_vector : on_leaf, NULL, x);
        return rollup_read(&ru, r->level, r->from, r->to, e);
    }
    c.from = r->from;
    c.to = r->to;
    c.cookie = x;
    c.fn = group ? on_fn : r->level ? on_vector : on_leaf;
    return scan_level(&c, group ? KV_FN : r->level ? KV_COARSE : KV_FINE, r->level, e);
}

static int read_point(struct functions *x, uint32_t from, uint32_t to, struct err *e)
{
    struct cover_in in = { .from = MAX(from, x->part.from),
                           .to = MIN(to, x->part.to),
                           .group = x->part.p.group,
                           .since = x->part.p.group ? x->part.p.since : 0,
                           .floors = x->part.floors,
                           .dirty = &x->dirty };
    int rc = 0;

    if (in.from >= in.to)
        return 0;
    cover_make(&in, &x->cover);
    for (size_t i = 0; !rc && i < x->cover.runs.len; i++)
        rc = read_run(x, &x->cover.runs.ptr[i], e);
    return rc ? rc : fn_calc_each(x->calc, on_value, x, e);
}

static int read_presence(struct functions *x, struct err *e)
{
    const struct tl_part *p = &x->part;
    struct timeline_row_scan c = { .v = x->v,
                                   .tenant = p->m.tenant,
                                   .scope = p->m.scope,
                                   .ptype = p->m.ptype,
                                   .flags = p->p.group ? KEY_TL_GROUP : 0,
                                   .ids = p->p.scan.series,
                                   .len = p->p.scan.len,
                                   .from = p->from,
                                   .to = p->to,
                                   .cancel = p->p.scan.cancel };

    return x->leaves ? presence_read(&c, x->leaves, e) : 0;
}

static int read_piece(struct functions *x, uint32_t from, uint32_t to, struct err *e)
{
    int rc = 0;

    for (uint32_t t = from, end; !rc && t < to; t = end) {
        end = tl_grid_edge(&x->t.grid, t);
        x->k = tl_grid_point(&x->t.grid, t);
        rc = read_point(x, t, end, e);
    }
    return rc ? rc : read_presence(x, e);
}

static int read_sealed(struct functions *x, struct err *e)
{
    struct tl_part whole = x->part;
    mask_parts pieces = { 0 };
    int rc = dirty_load(&x->dirty, &(struct kv_view){ x->v->kv, x->v->snap }, &whole.m, whole.from,
                        whole.to, e);

    if (!rc)
        rc = tl_targets_pieces(&x->t, &whole, &pieces, e);
    for (size_t i = 0; !rc && i < pieces.len; i++) {
        x->part.p.scan.series = pieces.ptr[i].series;
        x->part.p.scan.len = pieces.ptr[i].len;
        x->part.from = pieces.ptr[i].from;
        x->part.to = pieces.ptr[i].to;
        rc = read_piece(x, x->part.from, x->part.to, e);
    }
    x->part = whole;
    vec_free(&pieces);
    return rc;
}

/* ---- unsealed rows: they come in order of time ---- */

static int on_raw(void *cookie, size_t series, uint32_t t, struct str value, struct err *e)
{
    struct functions *x = cookie;
    uint32_t k = tl_grid_point(&x->t.grid, t);

    if (k != x->k && fn_calc_each(x->calc, on_value, x, e))
        return e->code;
    x->k = k;
    return on_leaf(x, series, t, value, e);
}

/* The sum of the unsealed rows of a group in a leaf. */
static int on_hot(void *cookie, size_t group, const struct hot_leaf *leaf, struct err *e)
{
    struct functions *x = cookie;
    uint32_t k = tl_grid_point(&x->t.grid, leaf->t);
    int rc = count_row(x, e);

    (void)group;
    if (!rc && k != x->k)
        rc = fn_calc_each(x->calc, on_value, x, e);
    x->k = k;
    if (x->leaves)
        roaring_bitmap_add(x->leaves, leaf->t / LEAF_SLOTS);
    for (size_t i = 0; !rc && i < leaf->len; i++) {
        const struct hot_section *s = &leaf->sections[i];
        rc = fn_calc_add_pairs(x->calc, s->epoch, s->ids, s->values, s->len, e);
    }
    return rc;
}

static int read_raw(struct functions *x, uint32_t raw_low, struct err *e)
{
    struct scan c = x->part.p.scan;
    int rc;

    c.from = x->part.from;
    c.to = x->part.to;
    c.fn = on_raw;
    c.cookie = x;
    x->k = 0;
    if (x->part.p.group) {
        struct rollup_read ru = targets_groups(&x->part.p.scan, on_raw, NULL, x);
        ru.hot = on_hot;
        rc = rollup_raw(&ru, x->part.p.all, raw_low, c.from, c.to, e);
    } else {
        rc = scan_raw(&c, raw_low, e);
    }
    return rc ? rc : fn_calc_each(x->calc, on_value, x, e);
}

/* ---- the query ---- */

static int read_all(struct functions *x, struct err *e)
{
    uint32_t raw_low;
    int rc = scan_raw_low(x->v, &raw_low, e);

    for (size_t i = 0; !rc && tl_targets_part(&x->t, &x->q->q, i, &x->part); i++) {
        if (x->part.from >= x->part.to || !x->part.p.scan.len)
            continue;
        map_u64_reset(&x->by_ptr);
        fn_calc_begin(x->calc, x->v->snap, x->part.m.tenant, x->part.m.scope);
        rc = read_sealed(x, e);
        if (!rc)
            rc = read_raw(x, raw_low, e);
    }
    return rc;
}

/* ---- giving out ---- */

static void give(struct functions *x, const struct function *f, struct store_functions *ret)
{
    struct store_function out = { .name = f->name };

    for (uint32_t k = 0; f->cells && k < x->t.grid.points; k++) {
        if (!f->cells[k].self && !f->cells[k].total)
            continue;
        vec_push(&out.point, k);
        vec_push(&out.self, f->cells[k].self);
        vec_push(&out.total, f->cells[k].total);
    }
    if (out.point.len)
        vec_push(&ret->at, out);
}

static int by_name(const void *a, const void *b)
{
    const struct store_function *x = a, *y = b;

    return str_cmp(x->name, y->name);
}

static void give_leaves(const struct functions *x, struct store_functions *ret)
{
    struct leaf_writer w = { .to = &ret->items };
    roaring_uint32_iterator_t it;

    vec_reserve(&ret->leaves, x->t.grid.points);
    memset(ret->leaves.ptr, 0, x->t.grid.points * sizeof(*ret->leaves.ptr));
    ret->leaves.len = x->t.grid.points;
    roaring_init_iterator(x->leaves, &it);
    for (; it.has_value; roaring_advance_uint32_iterator(&it)) {
        ret->leaves.ptr[tl_grid_point(&x->t.grid, it.current_value * LEAF_SLOTS)]++;
        if (x->q->q.leaf_items)
            leaf_put(&w, it.current_value, 1);
    }
    leaf_put_end(&w);
}

static void finish(struct functions *x, struct store_functions *ret)
{
    vec_for (i, &x->at)
        give(x, &x->at.ptr[i], ret);
    if (ret->at.len)
        qsort(ret->at.ptr, ret->at.len, sizeof(*ret->at.ptr), by_name);
    vec_reserve(&ret->all, x->t.grid.points);
    memcpy(ret->all.ptr, x->all, x->t.grid.points * sizeof(*x->all));
    ret->all.len = x->t.grid.points;
    if (x->leaves)
        give_leaves(x, ret);
    ret->gauge = x->leaves != NULL;
    ret->start_ms = slot_to_ms(x->t.grid.from);
    ret->end_ms = slot_to_ms(x->t.grid.to);
    ret->rows = x->rows;
    ret->vectors = x->vectors;
    ret->saturated = x->saturated;
}

void store_functions_deinit(struct store_functions *f)
{
    vec_for (i, &f->at) {
        vec_free(&f->at.ptr[i].point);
        vec_free(&f->at.ptr[i].self);
        vec_free(&f->at.ptr[i].total);
    }
    vec_free(&f->at);
    vec_free(&f->all);
    vec_free(&f->leaves);
    vec_free(&f->items);
}

static void close_functions(struct functions *x)
{
    vec_for (i, &x->at)
        xfree(x->at.ptr[i].cells);
    vec_free(&x->at);
    map_str_free(x->by_name);
    map_u64_deinit(&x->by_ptr);
    xfree(x->all);
    if (x->leaves)
        roaring_bitmap_free(x->leaves);
    dirty_deinit(&x->dirty);
    cover_deinit(&x->cover);
    fn_calc_free(x->calc);
    tl_targets_close(&x->t);
}

static int check_query(const struct store_functions_query *q, struct err *e)
{
    if (q->points < 1 || q->points > POINTS_MAX || q->step_ms < 1 ||
        q->step_ms > MS_MAX / q->points || q->origin_ms > MS_MAX || q->origin_ms < -MS_MAX)
        return err_set(e, ERR_INPUT,
                       "functions at %u points of %" PRId64 " ms from %" PRId64
                       ": want 1 to %u points of at least 1 ms",
                       q->points, q->step_ms, q->origin_ms, POINTS_MAX);
    return 0;
}

int store_functions(struct store_view *v, const struct store_functions_query *q, struct arena *a,
                    struct store_functions *ret, struct err *e)
{
    struct functions x = { .q = q, .v = v, .arena = a, .cells_left = CELLS_BYTES };

    *ret = (struct store_functions){ 0 };
    if (check_query(q, e))
        return e->code;
    tl_grid_init(&x.t.grid, q->origin_ms, q->step_ms, q->points);
    x.t.grid.vectors = x.t.grid.members = true;
    x.calc = fn_calc_new(v->dicts);
    x.by_name = map_str_new();
    map_u64_init(&x.by_ptr);
    x.all = xcalloc(q->points, sizeof(*x.all));
    x.all_names = !q->names_len;
    int rc = tl_targets_open(&x.t, v, &(struct targets_query){ .q = &q->q, .arena = a }, e);
    if (x.t.t.type.gauge)
        x.leaves = roaring_bitmap_create();
    for (size_t i = 0; !rc && i < q->names_len; i++) {
        uint32_t at;
        if (!map_str_get(x.by_name, q->names[i]))
            rc = new_function(&x, q->names[i], &at, e);
    }
    if (!rc)
        rc = read_all(&x, e);
    if (!rc)
        finish(&x, ret);
    if (!rc && ret->items.len * sizeof(*ret->items.ptr) > x.cells_left)
        rc = err_set(e, ERR_LIMIT,
                     "when there was data does not fit %zu MiB: ask for one service or a shorter "
                     "time",
                     (size_t)(CELLS_BYTES / MIB));
    close_functions(&x);
    return rc;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * exm_list: which exemplars come into a list.
 *
 *   plain       the `limit` largest
 *   by points   the largest of each point of each group, and of each bucket of values: a cell says
 *               how many it stands for and what they add up to, so that a heat map of millions of
 *               leaves is an answer of some thousand cells
 *   summary     how many there are, the least and the largest: where a heat map's buckets begin
 *
 * Below a call site, values are known only when vectors are read. No value there is larger than the
 * whole, so vectors are read from the largest whole one on, and in a cell that has a value already
 * only those that could beat it. At most EXM_SITE_READS: then the list says that it is truncated.
 */
#include <stdlib.h>

#include "common/base/size.h"
#include "common/model/leafid.h"
#include "common/store/exemplar/exm_impl.h"
#include "common/store/store.h"

#define GROUPS_MAX (1u << 24)

static int by_total(const void *a, const void *b)
{
    const struct store_exm_item *x = a, *y = b;

    if (x->total != y->total)
        return x->total > y->total ? -1 : 1;
    if (x->start_ms != y->start_ms)
        return x->start_ms < y->start_ms ? -1 : 1;
    if (x->kind != y->kind)
        return x->kind < y->kind ? -1 : 1;
    int c = str_cmp(x->id, y->id);
    return c ? c : x->series < y->series ? -1 : x->series > y->series;
}

static int by_start(const void *a, const void *b)
{
    const struct store_exm_item *x = a, *y = b;

    if (x->start_ms != y->start_ms)
        return x->start_ms < y->start_ms ? -1 : 1;
    return by_total(a, b);
}

/* ---- groups and cells ---- */

int exm_group_of(struct exm_walk *w, struct str labels, uint32_t *ret, struct err *e)
{
    struct arena_mark mark = arena_mark(w->arena);
    struct labels all, mine = { 0 };
    struct buf key;

    *ret = 0;
    if (!w->q->group_by_len)
        return 0;
    if (!w->groups)
        w->groups = map_str_new();
    if (labels_decode(labels, w->arena, &all, e))
        return e->code;
    for (size_t i = 0; i < w->q->group_by_len; i++) {
        struct str value = labels_get(&all, w->q->group_by[i]);
        if (value.len && labels_set(&mine, w->arena, w->q->group_by[i], value, e))
            return e->code;
    }
    buf_init(&key, MIB);
    labels_encode(&mine, &key);
    arena_rewind(w->arena, mark);
    uintptr_t known = (uintptr_t)map_str_get(w->groups, buf_str(&key));
    struct str kept = known || !buf_ok(&key) ? STR_NULL : arena_strdup(w->arena, buf_str(&key));
    buf_deinit(&key);
    if (!known && (!kept.ptr || map_str_len(w->groups) == GROUPS_MAX))
        return err_set(e, ERR_LIMIT, "the groups of exemplars do not fit the request's memory");
    if (!known) {
        known = map_str_len(w->groups) + 1;
        map_str_put(w->groups, kept, (void *)known);
    }
    *ret = (uint32_t)known - 1;
    return 0;
}

/* The cell's key; false: in no point. */
static bool cell_of(const struct exm_walk *w, const struct store_exm_item *x, uint64_t *ret)
{
    const struct store_exm_query *q = w->q;
    uint32_t k, bucket = 0;

    if (!store_exm_point(&q->grid, x->start_ms, &k))
        return false;
    if (q->buckets)
        bucket = store_exm_bucket(q->least, q->most, q->buckets, x->total);
    *ret = (uint64_t)w->at.ptr[x->series].group << 40 | (uint64_t)k << 8 | bucket;
    return true;
}

/* ---- taking ---- */

static int keep_id(struct exm_walk *w, struct store_exm_item *x, struct err *e)
{
    if (!x->id.ptr) /* a leaf's is made at the end */
        return 0;
    x->id = arena_strdup(w->arena, x->id);
    return x->id.ptr ? 0
                     : err_set(e, ERR_LIMIT,
                               "the exemplars do not fit the request's memory: ask for a shorter "
                               "range or fewer series");
}

static int too_many(const struct exm_walk *w, struct err *e)
{
    return err_set(e, ERR_LIMIT,
                   "a heat map of over %zu cells (exemplars.list_max): ask for a larger step or "
                   "fewer groups",
                   w->limit);
}

/* Over twice the limit: the largest of them stay. */
static int prune(struct exm_walk *w, struct err *e)
{
    uint64_t key;

    if (w->q->buckets && w->cands.len > w->limit)
        return too_many(w, e);
    if (w->cands.len < 2 * w->limit)
        return 0;
    qsort(w->cands.ptr, w->cands.len, sizeof(*w->cands.ptr), by_total);
    w->cands.len = w->limit;
    w->list->truncated = true;
    map_u64_reset(&w->cells);
    for (size_t i = 0; w->q->grid.points && i < w->cands.len; i++)
        if (cell_of(w, &w->cands.ptr[i].item, &key))
            map_u64_put(&w->cells, key, (uint32_t)i);
    return 0;
}

/* Adds an item to its cell, which keeps the sums of all its items, and the id of one. */
static int take_cell(struct exm_walk *w, struct exm_cand *c, uint64_t key, struct err *e)
{
    uint32_t at = map_u64_get(&w->cells, key);

    if (at == MAP_U64_EMPTY) {
        if (keep_id(w, &c->item, e))
            return e->code;
        map_u64_put(&w->cells, key, (uint32_t)w->cands.len);
        vec_push(&w->cands, *c);
        return prune(w, e);
    }
    struct exm_cand *there = &w->cands.ptr[at];
    uint64_t count = there->item.count + c->item.count;
    uint64_t sum = u64_add_sat(there->item.sum, c->item.sum);
    if (by_total(&c->item, &there->item) < 0) {
        if (keep_id(w, &c->item, e))
            return e->code;
        *there = *c;
    }
    there->item.count = count;
    there->item.sum = sum;
    return 0;
}

static void count_item(struct store_exm_list *l, uint64_t total)
{
    l->least = l->count ? MIN(l->least, total) : total;
    l->most = MAX(l->most, total);
    l->count++;
}

/* Its value is known. */
static int take_known(struct exm_walk *w, const struct exm_cand *in, struct err *e)
{
    struct exm_cand c = *in;
    uint64_t key = 0;

    if (w->q->grid.points && !cell_of(w, &c.item, &key))
        return 0;
    count_item(w->list, c.item.total);
    if (w->q->summary)
        return 0;
    c.item.count = 1;
    c.item.sum = c.item.total;
    if (w->q->grid.points)
        return take_cell(w, &c, key, e);
    if (keep_id(w, &c.item, e))
        return e->code;
    vec_push(&w->cands, c);
    return prune(w, e);
}

static bool reads_later(const struct exm_walk *w)
{
    return w->q->call_site_len && !w->q->ids_len;
}

int exm_list_take(struct exm_walk *w, const struct exm_cand *in, struct err *e)
{
    struct exm_cand c = *in;
    uint64_t key;

    if (!reads_later(w))
        return take_known(w, in, e);
    if (w->q->grid.points && !cell_of(w, &c.item, &key))
        return 0;
    if (keep_id(w, &c.item, e))
        return e->code;
    vec_push(&w->cands, c);
    size_t most = MAX(w->limit, EXM_SITE_READS);
    if (w->cands.len < 2 * most)
        return 0;
    qsort(w->cands.ptr, w->cands.len, sizeof(*w->cands.ptr), by_total);
    w->cands.len = most;
    w->list->truncated = true;
    return 0;
}

/* ---- the end ---- */

static int below_site(struct exm_walk *w, const struct exm_cand *c, uint64_t *ret, struct err *e)
{
    const struct exm_at *at = &w->at.ptr[c->item.series];
    struct exm_ref x = { .m = { w->match.tenant, at->scope, w->type.number, at->id },
                         .t = c->slot,
                         .kind = c->item.kind,
                         .id = c->item.id,
                         .wid = c->wid };
    struct str vector;

    if (c->leaf)
        return exm_leaf_below(w, at, c->slot, ret, e);
    return exm_vector_of(w, &x, &vector, e) || exm_sum_below(&w->below, &x, vector, ret, e)
               ? e->code
               : 0;
}

/* Its cell has something at least as large already. */
static bool beaten(const struct exm_walk *w, const struct exm_cand *c)
{
    uint64_t key;
    uint32_t at = MAP_U64_EMPTY;

    if (w->q->grid.points && cell_of(w, &c->item, &key))
        at = map_u64_get(&w->cells, key);
    return at != MAP_U64_EMPTY && w->cands.ptr[at].item.total >= c->item.total;
}

/* Candidates, by what they have in all, become those that have something below the site. */
static int read_below(struct exm_walk *w, struct err *e)
{
    VEC(struct exm_cand) all = { w->cands.ptr, w->cands.len, w->cands.cap };
    size_t reads = 0;
    uint32_t scope = 0;
    int rc = 0;

    w->cands.ptr = NULL;
    w->cands.len = w->cands.cap = 0;
    if (all.len > 1)
        qsort(all.ptr, all.len, sizeof(*all.ptr), by_total);
    for (size_t i = 0; !rc && i < all.len; i++) {
        struct exm_cand c = all.ptr[i];
        uint32_t here = w->at.ptr[c.item.series].scope;
        if (beaten(w, &c))
            continue;
        if (reads++ == EXM_SITE_READS) {
            w->list->truncated = true;
            break;
        }
        if (here != scope)
            exm_sum_forget(&w->below);
        scope = here;
        rc = exm_count_row(w, e);
        if (!rc)
            rc = below_site(w, &c, &c.item.total, e);
        if (!rc && c.item.total)
            rc = take_known(w, &c, e);
    }
    vec_free(&all);
    return rc;
}

static int on_labels(void *cookie, const struct match_series *s, struct err *e)
{
    struct exm_walk *w = cookie;

    for (size_t low = 0, high = w->at.len; low < high;) {
        size_t mid = low + (high - low) / 2;
        struct exm_at *at = &w->at.ptr[mid];
        if (at->scope == s->scope && at->id == s->id) {
            struct str kept = at->shown ? arena_strdup(w->arena, s->labels) : STR_NULL;
            if (!at->shown)
                return 0;
            if (!kept.ptr)
                return err_set(e, ERR_LIMIT, "labels of exemplars do not fit the request's memory");
            return labels_decode(kept, w->arena, &w->list->series.ptr[at->shown - 1], e);
        }
        if (at->scope < s->scope || (at->scope == s->scope && at->id < s->id))
            low = mid + 1;
        else
            high = mid;
    }
    return 0;
}

static int name_leaves(struct exm_walk *w, struct err *e)
{
    struct exid id;

    vec_for (i, &w->cands) {
        struct exm_cand *c = &w->cands.ptr[i];
        if (c->item.id.ptr)
            continue;
        leafid_make(w->at.ptr[c->item.series].hash, c->slot, &id);
        c->item.id = exid_str(&id);
        if (keep_id(w, &c->item, e))
            return e->code;
    }
    return 0;
}

int exm_list_finish(struct exm_walk *w, struct err *e)
{
    struct store_exm_list *l = w->list;

    if (reads_later(w) && read_below(w, e))
        return e->code;
    if (w->cands.len > 1)
        qsort(w->cands.ptr, w->cands.len, sizeof(*w->cands.ptr), by_total);
    l->truncated |= w->cands.len > w->limit;
    w->cands.len = MIN(w->cands.len, w->limit);
    if (name_leaves(w, e))
        return e->code;
    vec_for (i, &w->cands) {
        struct store_exm_item x = w->cands.ptr[i].item;
        struct exm_at *at = &w->at.ptr[x.series];
        if (!at->shown) {
            vec_push(&l->series, ((struct labels){ 0 }));
            at->shown = (uint32_t)l->series.len;
        }
        x.series = at->shown - 1;
        vec_push(&l->items, x);
    }
    if (l->items.len > 1)
        qsort(l->items.ptr, l->items.len, sizeof(*l->items.ptr), by_start);
    return l->series.len ? match_each(&w->match, w->q->q.cancel, on_labels, w, e) : 0;
}

void exm_list_close(struct exm_walk *w)
{
    vec_free(&w->cands);
    map_u64_deinit(&w->cells);
    map_str_free(w->groups);
}

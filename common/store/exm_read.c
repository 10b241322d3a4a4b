/* SPDX-License-Identifier: Apache-2.0
 *
 * exm_read: exemplars by id and by series.
 *
 *   by id      per bucket, service, kind, id: one seek, the rows behind it ──> sum of few stacks
 *   by series  per bucket, series: one seek, its index rows ──> items
 *
 * A sample has at most one span and one trace id (the distributor sees to it), so rows of one kind
 * never hold a sample twice; rows of a profile hold all of a push. Therefore spans may be asked for
 * together with profiles, then a push that is in the answer as a profile is left out as a span;
 * traces may only be asked for alone.
 */
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/store/exm.h"
#include "common/store/exm_sum.h"
#include "common/store/match.h"
#include "common/store/store_impl.h"
#include "common/store/vec.h"

#define ARENA_MAX (64 * MIB)
#define TAIL_LEN  30 /* of a row's key: slot, type, series, write id */
#define IDS_MAX   65536

struct at { /* a series of the answer */
    uint32_t scope;
    uint32_t shown; /* index + 1 in a list, 0 = not in it */
    uint64_t id;
};
struct walk {
    struct store_view *v;
    const struct store_exm_query *q;
    struct arena *arena;
    struct match match;
    struct match_type type;
    bool found;
    uint32_t first_day, last_day;
    VEC(struct at) at; /* by scope, id */
    uint32_t from, to;
    VEC(uint32_t) buckets;
    struct kv_iter *it;
    struct map_str *profiles; /* tails of the rows of profiles; NULL: nothing can be there twice */
    uint64_t rows;

    /* What is done with a row: one of the two. */
    struct exm_sum *sum;
    struct store_exm_list *list;
    size_t limit;
    struct exm_sum below; /* of a list below a call site */
    struct buf row;       /* of that: the vector that an index row stands for */
    VEC(size_t) list_at;  /* by item: index into at */
    VEC(bool) seen;       /* by at */
};

/* ---- which series ---- */

static int on_series(void *cookie, const struct match_series *s, struct err *e)
{
    struct walk *w = cookie;
    struct at at = { .scope = s->scope, .id = s->id };

    (void)e;
    for (size_t i = 0; i < s->len; i++)
        if (s->types[i].ptype == w->type.number &&
            match_active(s->types[i].days, w->first_day, w->last_day))
            vec_push(&w->at, at);
    return 0;
}

static int by_series(const void *a, const void *b)
{
    const struct at *x = a, *y = b;

    if (x->scope != y->scope)
        return x->scope < y->scope ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static struct at *find_series(struct walk *w, uint32_t scope, uint64_t id)
{
    struct at key = { .scope = scope, .id = id };

    return w->at.len ? bsearch(&key, w->at.ptr, w->at.len, sizeof(key), by_series) : NULL;
}

static int find_type(struct walk *w, struct str id, struct err *e)
{
    char text[1024];
    struct buf five = { .ptr = text, .cap = sizeof(text), .max = sizeof(text) };
    struct ptype parts;

    if (ptype_parse(id, &parts, e))
        return e->code;
    ptype_format(&parts, &five);
    const struct match_type *t = buf_ok(&five) ? match_type_by_id(&w->match, buf_str(&five)) : NULL;
    w->found = t != NULL;
    w->type.gauge = ptype_is_gauge(&parts);
    if (t)
        w->type = *t;
    return 0;
}

/* Those of the range, or all, that are kept. */
static int find_buckets(struct walk *w, struct err *e)
{
    const struct store *s = w->v->s;
    uint32_t low = exm_low(s, atomic_load_explicit(&s->engine_ms, memory_order_relaxed));
    uint32_t bucket = MAX(exm_bucket(w->from), low);

    while (w->from < w->to && exm_seek_bucket(w->it, &bucket) && bucket <= exm_bucket(w->to - 1)) {
        vec_push(&w->buckets, bucket);
        bucket++;
    }
    return kv_iter_status(w->it, e);
}

static int check_query(const struct store_exm_query *q, struct err *e)
{
    const unsigned once = 1u << EXID_SPAN | 1u << EXID_PROFILE;

    if (!q->kinds || q->kinds >= 1u << EXID_KINDS || q->kinds & 1)
        return err_set(e, ERR_INPUT, "kinds of ids: %#x", q->kinds);
    if (q->ids_len > IDS_MAX)
        return err_set(e, ERR_LIMIT, "%zu ids, at most %d", q->ids_len, IDS_MAX);
    if ((q->kinds & ~once) && (q->kinds & once))
        return err_set(e, ERR_INPUT, "traces cannot be asked for together with spans");
    for (size_t i = 0; i < q->ids_len; i++)
        if (!exid_valid(q->ids[i]) || (i && str_cmp(q->ids[i - 1], q->ids[i]) >= 0))
            return err_set(e, ERR_INPUT, "ids are not sorted, or one stands there twice");
    return 0;
}

static int walk_open(struct walk *w, struct store_view *v, const struct store_exm_query *q,
                     struct arena *a, struct err *e)
{
    bool all = q->q.start_ms == 0 && q->q.end_ms == 0;

    w->v = v;
    w->q = q;
    w->arena = a;
    w->it = kv_iter_new(v->s->kv, v->snap, KV_EXM, STR_NULL, STR_NULL);
    w->profiles = map_str_new();
    w->to = KEY_SLOT_MAX;
    if (!all) {
        w->from = MIN(slot_leaf(slot_of_ms(q->q.start_ms)), KEY_SLOT_MAX);
        w->to = w->from;
        if (q->q.end_ms > MAX(q->q.start_ms, SLOT_EPOCH_MS))
            w->to =
                MIN(slot_leaf(slot_of_ms(q->q.end_ms - 1)), KEY_SLOT_MAX - LEAF_SLOTS) + LEAF_SLOTS;
    }
    if (match_open(&w->match, v, q->q.tenant, q->q.selector, a, e) || check_query(q, e) ||
        find_type(w, q->q.profile_type, e) || find_buckets(w, e))
        return e->code;
    if (!w->found || !w->buckets.len ||
        !match_days(all ? 0 : slot_to_ms(w->from), all ? 0 : slot_to_ms(w->to), &w->first_day,
                    &w->last_day))
        return 0;
    int rc = match_each(&w->match, q->q.cancel, on_series, w, e);
    if (!rc && w->at.len)
        qsort(w->at.ptr, w->at.len, sizeof(*w->at.ptr), by_series);
    vec_for (i, &w->at)
        vec_push(&w->seen, false);
    return rc;
}

static void walk_close(struct walk *w)
{
    match_close(&w->match);
    map_str_free(w->profiles);
    kv_iter_free(w->it);
    vec_free(&w->at);
    vec_free(&w->buckets);
    vec_free(&w->list_at);
    vec_free(&w->seen);
}

/* ---- lists ---- */

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

/* Meanwhile item.series is an index into w->at. */
static int add_item(struct walk *w, const struct exm_ref *x, const struct at *at,
                    const struct exm_mark *m, struct err *e)
{
    struct store_exm_list *l = w->list;
    struct store_exm_item item = { .kind = x->kind,
                                   .id = arena_strdup(w->arena, x->id),
                                   .start_ms = slot_to_ms(x->t),
                                   .duration_ms = m->duration_ms,
                                   .total = m->total,
                                   .series = (uint32_t)(at - w->at.ptr) };

    if (!item.id.ptr)
        return err_set(e, ERR_LIMIT,
                       "the exemplars do not fit the request's memory: ask for a "
                       "shorter range or fewer series");
    vec_push(&l->items, item);
    if (l->items.len < 2 * w->limit)
        return 0;
    qsort(l->items.ptr, l->items.len, sizeof(*l->items.ptr), by_total);
    l->items.len = w->limit;
    l->truncated = true;
    return 0;
}

/* ---- rows ---- */

static int canceled(const struct walk *w, struct err *e)
{
    if (w->q->q.rows_max && w->rows == w->q->q.rows_max)
        return err_set(e, ERR_LIMIT,
                       "the query reads more than %" PRIu64
                       " rows: ask for a shorter range or fewer series",
                       w->q->q.rows_max);
    return match_canceled(w->q->q.cancel, e);
}

static int read_key(struct str key, bool want_index, struct exm_ref *x, struct err *e)
{
    bool index;

    if (!exm_key_read(key, &index, x) || index != want_index)
        return err_set(e, ERR_CORRUPT, "a key of %zu bytes among exemplars", key.len);
    return 0;
}

/* An item of the list, or what it has below the call site. */
static int take_item(struct walk *w, const struct exm_ref *x, const struct at *at,
                     struct exm_mark *mark, struct str vector, struct err *e)
{
    const struct store_exm_query *q = w->q;

    if (q->call_site_len &&
        exm_sum_below(&w->below, x, vector, q->call_site, q->call_site_len, &mark->total, e))
        return e->code;
    return q->call_site_len && !q->ids_len && !mark->total ? 0 : add_item(w, x, at, mark, e);
}

/* Deleted, and not purged yet. */
static bool hidden(const struct walk *w, const struct exm_ref *x)
{
    return masks_hide(&w->match.masks, x->m.scope, x->m.ptype, x->m.series, x->t);
}

/* Is the push of this row in the answer already? */
static int known_push(struct walk *w, const struct exm_ref *x, struct str key, bool *ret,
                      struct err *e)
{
    struct str tail = str_sub(key, key.len - TAIL_LEN, key.len);
    struct arena_mark mark = arena_mark(w->arena);

    *ret = map_str_get(w->profiles, tail) != NULL;
    if (*ret || x->kind != EXID_PROFILE)
        return 0;
    tail = arena_strdup(w->arena, tail);
    if (!tail.ptr) {
        arena_rewind(w->arena, mark);
        return err_set(e, ERR_LIMIT, "too many profiles in one request");
    }
    map_str_put(w->profiles, tail, w);
    return 0;
}

static int take_row(struct walk *w, struct str key, struct str value, struct err *e)
{
    struct exm_mark mark;
    struct vec_reader r;
    struct exm_row row;
    struct exm_ref x;
    struct at *at;
    bool again;

    if (read_key(key, false, &x, e) || canceled(w, e))
        return e->code;
    w->rows++;
    if (x.m.ptype != w->type.number || x.t < w->from || x.t >= w->to ||
        !(at = find_series(w, x.m.scope, x.m.series)) || hidden(w, &x))
        return 0;
    if (known_push(w, &x, key, &again, e) || exm_row_read(value, &row, e))
        return e->code;
    if (again)
        return 0;
    w->seen.ptr[at - w->at.ptr] = true;
    if (w->sum)
        return exm_sum_add(w->sum, &x, row.vector, e);
    if (vec_peek(row.vector, &r, e))
        return e->code;
    mark = (struct exm_mark){ row.duration_ms, r.meta.total };
    return take_item(w, &x, at, &mark, row.vector, e);
}

/* All rows that begin with the prefix. */
static int take_rows(struct walk *w, const struct exm_key *prefix, struct err *e)
{
    kv_iter_seek(w->it, exm_key_str(prefix));
    for (; kv_iter_valid(w->it); kv_iter_next(w->it)) {
        struct str key = kv_iter_key(w->it);
        if (!str_starts(key, exm_key_str(prefix)))
            break;
        if (take_row(w, key, kv_iter_value(w->it), e))
            return e->code;
    }
    return kv_iter_status(w->it, e);
}

static int walk_kind(struct walk *w, uint32_t scope, enum exid_kind kind, struct err *e)
{
    struct member m = { .tenant = w->match.tenant, .scope = scope };
    size_t ids = MAX(w->q->ids_len, 1);
    struct exm_key prefix;

    if (!(w->q->kinds & 1u << kind))
        return 0;
    vec_for (b, &w->buckets) {
        for (size_t i = 0; i < ids; i++) {
            exm_id_prefix(&prefix, w->buckets.ptr[b], &m, kind,
                          w->q->ids_len ? w->q->ids[i] : STR_NULL);
            if (take_rows(w, &prefix, e) || match_canceled(w->q->q.cancel, e))
                return e->code;
        }
    }
    return 0;
}

/* By id: each service with a series of the answer once; profiles first, for known_push. */
static int walk_ids(struct walk *w, struct err *e)
{
    for (size_t i = 0; i < w->at.len; i++) {
        uint32_t scope = w->at.ptr[i].scope;
        if (i && w->at.ptr[i - 1].scope == scope)
            continue;
        if (walk_kind(w, scope, EXID_PROFILE, e) || walk_kind(w, scope, EXID_SPAN, e) ||
            walk_kind(w, scope, EXID_TRACE, e))
            return e->code;
        exm_sum_forget(w->sum ? w->sum : &w->below);
    }
    return 0;
}

/* Both rows of an exemplar come and go together. */
static int vector_of(struct walk *w, const struct exm_ref *x, struct str *ret, struct err *e)
{
    struct exm_key key;
    struct exm_row row;

    exm_row_key(&key, x);
    int rc = kv_get(w->v->s->kv, w->v->snap, KV_EXM, exm_key_str(&key), &w->row, e);
    if (rc == ERR_NOT_FOUND)
        return err_set(e, ERR_CORRUPT, "an exemplar at slot %u is in the index alone", x->t);
    if (rc || exm_row_read(buf_str(&w->row), &row, e))
        return e->code;
    *ret = row.vector;
    return 0;
}

static int walk_index(struct walk *w, struct at *at, uint32_t bucket, struct err *e)
{
    struct member m = { w->match.tenant, at->scope, w->type.number, at->id };
    struct exm_key prefix;
    struct str vector = STR_NULL;
    struct exm_mark mark;
    struct exm_ref x;

    exm_series_prefix(&prefix, bucket, &m);
    kv_iter_seek(w->it, exm_key_str(&prefix));
    for (; kv_iter_valid(w->it); kv_iter_next(w->it)) {
        struct str key = kv_iter_key(w->it);
        if (!str_starts(key, exm_key_str(&prefix)))
            break;
        if (read_key(key, true, &x, e) || canceled(w, e))
            return e->code;
        w->rows++;
        if (x.t < w->from || x.t >= w->to || !(w->q->kinds & 1u << x.kind) || hidden(w, &x))
            continue;
        if (exm_mark_read(kv_iter_value(w->it), &mark, e) ||
            (w->q->call_site_len && vector_of(w, &x, &vector, e)) ||
            take_item(w, &x, at, &mark, vector, e))
            return e->code;
    }
    return kv_iter_status(w->it, e);
}

/* ---- the queries ---- */

int store_exemplar_merge(struct store_view *v, const struct store_exm_query *q,
                         struct store_merge *ret, struct err *e)
{
    struct arena *arena = arena_new(ARENA_MAX);
    struct exm_sum sum = { .v = v, .to = ret };
    struct walk w = { .sum = &sum };

    *ret = (struct store_merge){ .stacks = ret->stacks };
    int rc = walk_open(&w, v, q, arena, e);
    sum.tenant = w.match.tenant;
    ret->gauge = w.type.gauge;
    if (q->q.start_ms || q->q.end_ms) {
        ret->start_ms = slot_to_ms(w.from);
        ret->end_ms = slot_to_ms(w.to);
    }
    if (!rc)
        rc = walk_ids(&w, e);
    ret->rows = w.rows;
    for (size_t i = 0; !rc && i < w.at.len; i++)
        ret->series += w.seen.ptr[i];
    if (!rc)
        exm_sum_end(&sum);
    else
        store_merge_deinit(ret);
    exm_sum_deinit(&sum);
    walk_close(&w);
    arena_free(arena);
    return rc;
}

static int on_labels(void *cookie, const struct match_series *s, struct err *e)
{
    struct walk *w = cookie;
    struct at *at = find_series(w, s->scope, s->id);

    if (!at || !at->shown)
        return 0;
    struct str kept = arena_strdup(w->arena, s->labels);
    if (!kept.ptr)
        return err_set(e, ERR_LIMIT, "labels of exemplars do not fit the request's memory");
    return labels_decode(kept, w->arena, &w->list->series.ptr[at->shown - 1], e);
}

/* Items in their order, with the labels of the series that have one. */
static int finish_list(struct walk *w, struct err *e)
{
    struct store_exm_list *l = w->list;

    if (l->items.len > 1)
        qsort(l->items.ptr, l->items.len, sizeof(*l->items.ptr), by_total);
    l->truncated |= l->items.len > w->limit;
    l->items.len = MIN(l->items.len, w->limit);
    if (l->items.len > 1)
        qsort(l->items.ptr, l->items.len, sizeof(*l->items.ptr), by_start);
    vec_for (i, &l->items) {
        struct at *at = &w->at.ptr[l->items.ptr[i].series];
        if (!at->shown) {
            vec_push(&l->series, ((struct labels){ 0 }));
            at->shown = (uint32_t)l->series.len;
        }
        l->items.ptr[i].series = at->shown - 1;
    }
    return l->series.len ? match_each(&w->match, w->q->q.cancel, on_labels, w, e) : 0;
}

int store_exemplars(struct store_view *v, const struct store_exm_query *q, size_t limit,
                    struct arena *a, struct store_exm_list *ret, struct err *e)
{
    struct walk w = { .list = ret, .limit = MAX(limit, 1), .below = { .v = v } };

    *ret = (struct store_exm_list){ 0 };
    buf_init(&w.row, ARENA_MAX);
    int rc = walk_open(&w, v, q, a, e);
    w.below.tenant = w.match.tenant;
    ret->gauge = w.type.gauge;
    if (!rc && q->ids_len)
        rc = walk_ids(&w, e);
    for (size_t i = 0; !rc && !q->ids_len && i < w.at.len; i++) {
        if (i && w.at.ptr[i - 1].scope != w.at.ptr[i].scope)
            exm_sum_forget(&w.below);
        for (size_t b = 0; !rc && b < w.buckets.len; b++)
            rc = walk_index(&w, &w.at.ptr[i], w.buckets.ptr[b], e);
    }
    if (!rc)
        rc = finish_list(&w, e);
    if (rc)
        store_exm_list_deinit(ret);
    exm_sum_deinit(&w.below);
    buf_deinit(&w.row);
    walk_close(&w);
    return rc;
}

void store_exm_list_deinit(struct store_exm_list *l)
{
    vec_free(&l->items);
    vec_free(&l->series);
}

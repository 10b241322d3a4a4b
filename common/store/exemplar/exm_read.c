/* SPDX-License-Identifier: Apache-2.0
 *
 * exm_read: exemplars by id and by series.
 *
 *   by id      per bucket, service, kind, id: one seek, the rows behind it ──> sum of few stacks
 *   by series  per bucket, series: one seek, its index rows ──> items; and its leaves: exm_leaf.c
 *
 * A sample has at most one span and one trace id (the distributor sees to it), so rows of one kind
 * never hold a sample twice; rows of a profile hold all of a push. Therefore spans may be asked for
 * together with profiles, then a push that is in the answer as a profile is left out as a span;
 * traces may only be asked for alone.
 */
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/store/codec/vec.h"
#include "common/store/exemplar/exm_impl.h"
#include "common/store/state/store_impl.h"
#include "common/store/state/view.h"
#include "common/store/store.h"

#define ARENA_MAX  (64 * MIB)
#define TAIL_LEN   30 /* of a row's key: slot, type, series, write id */
#define IDS_MAX    65536
#define BACK_SLOTS 720 /* an hour: how far a push with an id is looked for before a leaf */

/* ---- which series ---- */

static int on_series(void *cookie, const struct match_series *s, struct err *e)
{
    struct exm_walk *w = cookie;
    struct exm_at at = { .scope = s->scope, .id = s->id };
    bool active = false;

    for (size_t i = 0; i < s->len; i++)
        active |= s->types[i].ptype == w->type.number &&
                  match_active(s->types[i].days, w->first_day, w->last_day);
    if (!active)
        return 0;
    if (((w->q->leaves || w->wants.len) && exm_leaf_hash(w, s->scope, s->labels, &at.hash, e)) ||
        exm_group_of(w, s->labels, &at.group, e))
        return e->code;
    vec_push(&w->at, at);
    return 0;
}

static int by_series(const void *a, const void *b)
{
    const struct exm_at *x = a, *y = b;

    if (x->scope != y->scope)
        return x->scope < y->scope ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static struct exm_at *find_series(struct exm_walk *w, uint32_t scope, uint64_t id)
{
    struct exm_at key = { .scope = scope, .id = id };

    return w->at.len ? bsearch(&key, w->at.ptr, w->at.len, sizeof(key), by_series) : NULL;
}

static int find_type(struct exm_walk *w, struct str id, struct err *e)
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
static int find_buckets(struct exm_walk *w, struct err *e)
{
    const struct store *s = w->v->s;
    uint32_t low = exm_low(s, atomic_load_explicit(&s->engine_ms, memory_order_relaxed));
    /* A push that began before may reach into the range. */
    uint32_t back = w->q->leaves ? MIN(w->from, BACK_SLOTS) : 0;
    uint32_t bucket = MAX(exm_bucket(w->from - back), low);

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
    if (q->leaves && (!(q->kinds & 1u << EXID_PROFILE) || q->ids_len))
        return err_set(e, ERR_INPUT, "leaves are asked for with profiles, and without ids");
    if (q->buckets > STORE_EXM_BUCKETS_MAX || (q->buckets && !q->grid.points) ||
        (q->grid.points && q->grid.step_ms < 1))
        return err_set(e, ERR_INPUT, "%u buckets in %u points of %" PRId64 " ms", q->buckets,
                       q->grid.points, q->grid.step_ms);
    for (size_t i = 0; i < q->ids_len; i++)
        if (!exid_valid(q->ids[i]) || (i && str_cmp(q->ids[i - 1], q->ids[i]) >= 0))
            return err_set(e, ERR_INPUT, "ids are not sorted, or an id is given twice");
    return 0;
}

static int walk_open(struct exm_walk *w, struct store_view *v, const struct store_exm_query *q,
                     struct arena *a, struct err *e)
{
    bool all = q->q.start_ms == 0 && q->q.end_ms == 0;

    w->v = v;
    w->q = q;
    w->below.site = q->call_site;
    w->below.site_len = q->call_site_len;
    w->arena = a;
    w->it = kv_iter_new(v->kv, v->snap, KV_EXM, STR_NULL, STR_NULL);
    w->profiles = map_str_new();
    map_u64_init(&w->services);
    map_u64_init(&w->cells);
    w->to = KEY_SLOT_MAX;
    if (!all) {
        w->from = MIN(slot_leaf(slot_of_ms(q->q.start_ms)), KEY_SLOT_MAX);
        w->to = w->from;
        if (q->q.end_ms > MAX(q->q.start_ms, SLOT_EPOCH_MS))
            w->to =
                MIN(slot_leaf(slot_of_ms(q->q.end_ms - 1)), KEY_SLOT_MAX - LEAF_SLOTS) + LEAF_SLOTS;
    }
    if (match_open(&w->match, v, q->q.tenant, q->q.selector, a, e) || check_query(q, e) ||
        find_type(w, q->q.profile_type, e) || find_buckets(w, e) || exm_leaf_wants(w, e))
        return e->code;
    if (!w->found || (!w->buckets.len && !q->leaves && !w->wants.len) ||
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

static void walk_close(struct exm_walk *w)
{
    match_close(&w->match);
    map_str_free(w->profiles);
    kv_iter_free(w->it);
    vec_for (i, &w->at)
        if (w->at.ptr[i].own)
            roaring_bitmap_free(w->at.ptr[i].own);
    vec_free(&w->at);
    vec_free(&w->buckets);
    vec_free(&w->seen);
    vec_free(&w->wants);
    vec_free(&w->service_hash);
    map_u64_deinit(&w->services);
    exm_list_close(w);
}

/* ---- rows ---- */

int exm_count_row(struct exm_walk *w, struct err *e)
{
    if (w->q->q.rows_max && w->rows == w->q->q.rows_max)
        return err_set(e, ERR_LIMIT,
                       "the query reads more than %" PRIu64
                       " rows: ask for a shorter range or fewer series",
                       w->q->q.rows_max);
    w->rows++;
    return store_check_canceled(w->q->q.cancel, e);
}

static int read_key(struct str key, bool want_index, struct exm_ref *x, struct err *e)
{
    bool index;

    if (!exm_key_read(key, &index, x) || index != want_index)
        return err_set(e, ERR_CORRUPT, "a key of %zu bytes among exemplars", key.len);
    return 0;
}

/* An item of the list; by id its total is what it has below the call site. */
static int take_item(struct exm_walk *w, const struct exm_ref *x, const struct exm_at *at,
                     const struct exm_mark *mark, struct err *e)
{
    struct exm_cand c = { .item = { .kind = x->kind,
                                    .id = x->id,
                                    .start_ms = slot_to_ms(x->t),
                                    .duration_ms = mark->duration_ms,
                                    .total = mark->total,
                                    .series = (uint32_t)(at - w->at.ptr) },
                          .slot = x->t };

    memcpy(c.wid, x->wid, sizeof(c.wid));
    return exm_list_take(w, &c, e);
}

/* Deleted, and not purged yet. */
static bool hidden(const struct exm_walk *w, const struct exm_ref *x)
{
    return masks_hide(&w->match.masks, x->m.scope, x->m.ptype, x->m.series, x->t);
}

/* Is the push of this row in the answer already? */
static int known_push(struct exm_walk *w, const struct exm_ref *x, struct str key, bool *ret,
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

static int take_row(struct exm_walk *w, struct str key, struct str value, struct err *e)
{
    struct exm_mark mark;
    struct vec_reader r;
    struct exm_row row;
    struct exm_ref x;
    struct exm_at *at;
    bool again;

    if (read_key(key, false, &x, e) || exm_count_row(w, e))
        return e->code;
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
    if (w->q->call_site_len && exm_sum_below(&w->below, &x, row.vector, &mark.total, e))
        return e->code;
    return take_item(w, &x, at, &mark, e);
}

/* All rows that begin with the prefix. */
static int take_rows(struct exm_walk *w, const struct exm_key *prefix, struct err *e)
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

static int walk_kind(struct exm_walk *w, uint32_t scope, enum exid_kind kind, struct err *e)
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
            if (take_rows(w, &prefix, e) || store_check_canceled(w->q->q.cancel, e))
                return e->code;
        }
    }
    return 0;
}

/* Behind the series of the service that number i is of. */
static size_t service_end(const struct exm_walk *w, size_t i)
{
    uint32_t scope = w->at.ptr[i].scope;

    while (i < w->at.len && w->at.ptr[i].scope == scope)
        i++;
    return i;
}

/* By id: each service with a series of the answer once; profiles first, for known_push. */
static int walk_ids(struct exm_walk *w, struct err *e)
{
    for (size_t i = 0, end; i < w->at.len; i = end) {
        uint32_t scope = w->at.ptr[i].scope;
        end = service_end(w, i);
        if (walk_kind(w, scope, EXID_PROFILE, e) || walk_kind(w, scope, EXID_SPAN, e) ||
            walk_kind(w, scope, EXID_TRACE, e) || exm_leaf_ids(w, i, end, e))
            return e->code;
        exm_sum_forget(w->sum ? w->sum : &w->below);
    }
    return 0;
}

/* Both rows of an exemplar come and go together. */
int exm_vector_of(struct exm_walk *w, const struct exm_ref *x, struct str *ret, struct err *e)
{
    struct exm_key key;
    struct exm_row row;

    exm_row_key(&key, x);
    int rc = kv_get(w->v->kv, w->v->snap, KV_EXM, exm_key_str(&key), &w->row, e);
    if (rc == ERR_NOT_FOUND)
        return err_set(e, ERR_CORRUPT, "an exemplar at slot %u is in the index alone", x->t);
    if (rc || exm_row_read(buf_str(&w->row), &row, e))
        return e->code;
    *ret = row.vector;
    return 0;
}

static int walk_index(struct exm_walk *w, struct exm_at *at, uint32_t bucket, struct err *e)
{
    struct member m = { w->match.tenant, at->scope, w->type.number, at->id };
    unsigned kinds = w->q->kinds;
    struct exm_key prefix;
    struct exm_mark mark;
    struct exm_ref x;

    exm_series_prefix(&prefix, bucket, &m);
    kv_iter_seek(w->it, exm_key_str(&prefix));
    for (; kv_iter_valid(w->it); kv_iter_next(w->it)) {
        struct str key = kv_iter_key(w->it);
        if (!str_starts(key, exm_key_str(&prefix)))
            break;
        if (read_key(key, true, &x, e) || exm_count_row(w, e))
            return e->code;
        if (!(kinds & 1u << x.kind) || x.t >= w->to || hidden(w, &x))
            continue;
        if (exm_mark_read(kv_iter_value(w->it), &mark, e))
            return e->code;
        if (w->q->leaves && x.kind == EXID_PROFILE)
            exm_leaf_own(w, at, x.t, mark.duration_ms);
        if (x.t >= w->from && take_item(w, &x, at, &mark, e))
            return e->code;
    }
    return kv_iter_status(w->it, e);
}

static int walk_all(struct exm_walk *w, struct err *e)
{
    for (size_t i = 0, end; i < w->at.len; i = end) {
        end = service_end(w, i);
        for (size_t k = i; k < end; k++)
            for (size_t b = 0; b < w->buckets.len; b++)
                if (walk_index(w, &w->at.ptr[k], w->buckets.ptr[b], e))
                    return e->code;
        if (w->q->leaves && exm_leaf_list(w, i, end, e))
            return e->code;
    }
    return 0;
}

/* ---- the queries ---- */

int store_exemplar_merge(struct store_view *v, const struct store_exm_query *q,
                         struct store_merge *ret, struct err *e)
{
    struct arena *arena = arena_new(ARENA_MAX);
    struct exm_sum sum = { .v = v, .to = ret };
    struct exm_walk w = { .sum = &sum };

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

int store_exemplars(struct store_view *v, const struct store_exm_query *q, size_t limit,
                    struct arena *a, struct store_exm_list *ret, struct err *e)
{
    struct exm_walk w = { .list = ret, .limit = MAX(limit, 1), .below = { .v = v } };

    *ret = (struct store_exm_list){ 0 };
    buf_init(&w.row, ARENA_MAX);
    int rc = walk_open(&w, v, q, a, e);
    w.below.tenant = w.match.tenant;
    ret->gauge = w.type.gauge;
    if (!rc)
        rc = q->ids_len ? walk_ids(&w, e) : walk_all(&w, e);
    if (!rc)
        rc = exm_list_finish(&w, e);
    ret->leaves_from_ms = w.leaves_from > w.from ? slot_to_ms(w.leaves_from) : 0;
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

/* SPDX-License-Identifier: Apache-2.0
 *
 * exm_leaf: leaves that stand for pushes without an id of their own (model/leafid.h).
 *
 *   lists    rows of tl at level 0, and heads of unsealed rows ──> a value per series and leaf,
 *            without those that a push with an id of its own is in; no vector is read
 *   by id    the leaf's vector: its row of level 0, and its unsealed rows
 *
 * Costs no byte at rest and nothing at ingest. Several pushes of a series in one leaf are one: the
 * store adds them up when it seals them. Level 0 is the truth of its time (TREE.md section 3), so
 * what is above its floor is exact; below it no single leaf is known any more, lists begin there
 * and ids say so.
 *
 * A push of over 15 s is spread over the leaves it covers, and its row among exemplars says its
 * start and length. Its start is known to 5 s, so the last leaf may be a leaf that the push does
 * not reach. Then other data of the series in that leaf are in no list; otherwise the push would be
 * listed twice.
 */
#include "common/model/leafid.h"

#include <stdlib.h>

#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/store/codec/timeline_row.h"
#include "common/store/codec/vec.h"
#include "common/store/exemplar/exm_impl.h"
#include "common/store/query/scan.h"
#include "common/store/state/floors.h"
#include "common/store/state/timeline_row_scan.h"
#include "common/store/state/view.h"
#include "common/store/store.h"

#define WHOLE_MS 15000 /* a push of up to this is in one leaf: distributor/base/window.h */
#define RAW_MAX  (UINT32_C(1) << 22) /* leaves with unsealed rows that are held */

struct hot {
    uint32_t series; /* index into the part */
    uint32_t first;  /* slot with data */
    uint64_t total;
    bool given;
};
struct leaves {
    struct exm_walk *w;
    size_t base, len; /* of w->at */
    uint32_t from, to;
    struct tl row;
    struct map_u64 at; /* series, leaf -> index into hot */
    VEC(struct hot) hot;
};

/* ---- ids ---- */

int exm_leaf_wants(struct exm_walk *w, struct err *e)
{
    struct exm_want x;

    (void)e;
    for (size_t i = 0; i < w->q->ids_len && w->q->kinds & 1u << EXID_PROFILE; i++) {
        x.id = w->q->ids[i];
        if (leafid_read(x.id, &x.hash, &x.slot))
            vec_push(&w->wants, x); /* ids are sorted, and begin with the hash */
    }
    return 0;
}

static int service_hash(struct exm_walk *w, uint32_t scope, uint64_t *ret, struct err *e)
{
    struct key k;
    struct buf row;
    struct str name;
    uint32_t epoch, at = map_u64_get(&w->services, scope);

    if (at != MAP_U64_EMPTY) {
        *ret = w->service_hash.ptr[at];
        return 0;
    }
    key_scope(&k, w->match.tenant, scope);
    buf_init(&row, MIB);
    int rc = kv_get(w->v->kv, w->v->snap, KV_META, key_str(&k), &row, e);
    if (rc == ERR_NOT_FOUND)
        rc = err_set(e, ERR_CORRUPT, "series of service %u, which has no name", scope);
    if (!rc)
        rc = scope_row_read(buf_str(&row), &epoch, &name, e);
    if (!rc) {
        *ret = leafid_service(w->q->q.tenant, name);
        map_u64_put(&w->services, scope, (uint32_t)w->service_hash.len);
        vec_push(&w->service_hash, *ret);
    }
    buf_deinit(&row);
    return rc;
}

int exm_leaf_hash(struct exm_walk *w, uint32_t scope, struct str labels, uint64_t *ret,
                  struct err *e)
{
    uint64_t service;

    if (service_hash(w, scope, &service, e))
        return e->code;
    *ret = leafid_series(service, labels);
    return 0;
}

/* ---- leaves of pushes with an id of their own ---- */

void exm_leaf_own(const struct exm_walk *w, struct exm_at *at, uint32_t t, uint32_t duration_ms)
{
    uint32_t leaf = t / LEAF_SLOTS, last = leaf;

    if (!w->type.gauge && duration_ms > WHOLE_MS) {
        uint64_t end = (uint64_t)t * SLOT_MS + SLOT_MS - 1 + duration_ms;
        last = (uint32_t)MIN((end - 1) / LEAF_MS, KEY_SLOT_MAX);
    }
    if (!at->own)
        at->own = roaring_bitmap_create();
    roaring_bitmap_add_range_closed(at->own, leaf, MAX(leaf, last));
}

/* ---- lists ---- */

static int give(struct leaves *x, size_t series, uint32_t first, uint64_t total, struct err *e)
{
    struct exm_at *at = &x->w->at.ptr[x->base + series];
    struct exm_cand c = { .item = { .kind = EXID_PROFILE,
                                    .start_ms = slot_to_ms(first),
                                    .duration_ms = LEAF_MS,
                                    .total = total,
                                    .series = (uint32_t)(x->base + series) },
                          .slot = slot_leaf(first),
                          .leaf = true };

    if (!total || (at->own && roaring_bitmap_contains(at->own, first / LEAF_SLOTS)))
        return 0;
    return exm_list_take(x->w, &c, e);
}

static uint64_t hot_key(size_t series, uint32_t t)
{
    return (uint64_t)series << 32 | t / LEAF_SLOTS;
}

static int on_raw(void *cookie, size_t series, uint32_t t, struct str value, struct err *e)
{
    struct leaves *x = cookie;
    struct vec_reader r;

    if (exm_count_row(x->w, e) || vec_peek(value, &r, e))
        return e->code;
    uint32_t i = map_u64_put(&x->at, hot_key(series, t), (uint32_t)x->hot.len);
    if (i == MAP_U64_EMPTY && x->hot.len == RAW_MAX)
        return err_set(e, ERR_LIMIT, "over %u leaves that are not sealed yet: ask for fewer series",
                       RAW_MAX);
    if (i == MAP_U64_EMPTY) {
        i = (uint32_t)x->hot.len;
        vec_push(&x->hot, ((struct hot){ .series = (uint32_t)series, .first = t }));
    }
    struct hot *h = &x->hot.ptr[i];
    h->first = MIN(h->first, t);
    h->total = u64_add_sat(h->total, r.meta.total);
    return 0;
}

/* With what is not sealed of the leaf. */
static int give_sealed(struct leaves *x, size_t series, uint32_t first, uint64_t total,
                       struct err *e)
{
    uint32_t i = x->hot.len ? map_u64_get(&x->at, hot_key(series, first)) : MAP_U64_EMPTY;

    if (i != MAP_U64_EMPTY) {
        struct hot *h = &x->hot.ptr[i];
        first = MIN(first, h->first);
        total = u64_add_sat(total, h->total);
        h->given = true;
    }
    return give(x, series, first, total, e);
}

static int on_points(void *cookie, size_t series, uint32_t chunk, struct str value, struct err *e)
{
    struct leaves *x = cookie;
    struct exm_walk *w = x->w;
    const struct exm_at *at = &w->at.ptr[x->base + series];

    if (exm_count_row(w, e) || timeline_row_decode(value, LEVELS[0].tl_chunk, &x->row, e))
        return e->code;
    for (size_t i = 0, next; i < x->row.points.len; i = next) {
        uint32_t t = chunk + x->row.points.ptr[i].point;
        uint64_t total = x->row.points.ptr[i].total;

        for (next = i + 1; next < x->row.points.len; next++) {
            uint32_t also = chunk + x->row.points.ptr[next].point;
            if (also / LEAF_SLOTS != t / LEAF_SLOTS)
                break;
            total = u64_add_sat(total, x->row.points.ptr[next].total);
        }
        if (t < x->from || t >= x->to ||
            masks_hide(&w->match.masks, at->scope, w->type.number, at->id, t))
            continue;
        if (give_sealed(x, series, t, total, e))
            return e->code;
    }
    return 0;
}

static struct member part_of(const struct exm_walk *w, size_t first)
{
    return (struct member){ w->match.tenant, w->at.ptr[first].scope, w->type.number, 0 };
}

/* The first slot of level 0 that is kept. */
static int find_floor(struct exm_walk *w, size_t first, uint32_t *ret, struct err *e)
{
    struct member m = part_of(w, first);
    struct floors floors;

    if (floors_load_read(w->v->kv, w->v->snap, &m, &floors, e) ||
        scan_raw_low(w->v, &w->raw_low, e))
        return e->code;
    *ret = MAX(floors.at[0], floors.end);
    return 0;
}

static int list_part(struct leaves *x, const uint64_t *ids, struct err *e)
{
    struct exm_walk *w = x->w;
    struct member m = part_of(w, x->base);
    struct scan raw = { .v = w->v,
                        .tenant = m.tenant,
                        .scope = m.scope,
                        .ptype = m.ptype,
                        .series = ids,
                        .len = x->len,
                        .from = x->from,
                        .to = x->to,
                        .fn = on_raw,
                        .cookie = x,
                        .cancel = w->q->q.cancel };
    struct timeline_row_scan sealed = { .v = w->v,
                                        .tenant = m.tenant,
                                        .scope = m.scope,
                                        .ptype = m.ptype,
                                        .ids = ids,
                                        .len = x->len,
                                        .from = x->from,
                                        .to = x->to,
                                        .fn = on_points,
                                        .cookie = x,
                                        .cancel = w->q->q.cancel };

    if (scan_raw(&raw, w->raw_low, e) || timeline_row_scan(&sealed, e))
        return e->code;
    vec_for (i, &x->hot) {
        const struct hot *h = &x->hot.ptr[i];
        if (!h->given && give(x, h->series, h->first, h->total, e))
            return e->code;
    }
    return 0;
}

int exm_leaf_list(struct exm_walk *w, size_t first, size_t end, struct err *e)
{
    struct leaves x = { .w = w, .base = first, .len = end - first, .from = w->from, .to = w->to };
    uint32_t floor;

    if (find_floor(w, first, &floor, e))
        return e->code;
    if (floor > x.from)
        x.from = floor;
    w->leaves_from = MAX(w->leaves_from, x.from);
    if (x.from >= x.to)
        return 0;
    CLEANUP(xfreep) uint64_t *ids = XNEW_ARRAY(uint64_t, x.len);
    for (size_t i = 0; i < x.len; i++)
        ids[i] = w->at.ptr[first + i].id;
    map_u64_init(&x.at);
    int rc = list_part(&x, ids, e);
    map_u64_deinit(&x.at);
    vec_free(&x.hot);
    vec_free(&x.row.points);
    return rc;
}

/* ---- by id ---- */

struct one { /* a leaf of a series */
    struct exm_walk *w;
    struct exm_ref ref;
    struct exm_sum *sum;
    bool below; /* only what is below the call site */
    bool any;
    uint32_t first;
    uint64_t total;
};

static int on_vector(void *cookie, size_t series, uint32_t t, struct str value, struct err *e)
{
    struct one *x = cookie;
    struct vec_reader r;
    uint64_t n;

    (void)series;
    if (exm_count_row(x->w, e))
        return e->code;
    x->first = x->any ? MIN(x->first, t) : t;
    x->any = true;
    if (x->sum)
        return exm_sum_add(x->sum, &x->ref, value, e);
    if (vec_peek(value, &r, e))
        return e->code;
    n = r.meta.total;
    if (x->below && exm_sum_below(&x->w->below, &x->ref, value, &n, e))
        return e->code;
    x->total = u64_add_sat(x->total, n);
    return 0;
}

static int read_one(struct one *x, uint32_t slot, struct err *e)
{
    struct exm_walk *w = x->w;
    const struct member *m = &x->ref.m;
    struct scan c = { .v = w->v,
                      .tenant = m->tenant,
                      .scope = m->scope,
                      .ptype = m->ptype,
                      .series = &m->series,
                      .len = 1,
                      .from = slot,
                      .to = slot + LEAF_SLOTS,
                      .fn = on_vector,
                      .cookie = x,
                      .cancel = w->q->q.cancel };

    if (!masks_hide(&w->match.masks, m->scope, m->ptype, m->series, slot) &&
        scan_level(&c, KV_FINE, 0, e))
        return e->code;
    return scan_raw(&c, w->raw_low, e);
}

static struct one one_of(struct exm_walk *w, const struct exm_at *at, uint32_t slot)
{
    return (struct one){ .w = w,
                         .ref = { .m = { w->match.tenant, at->scope, w->type.number, at->id },
                                  .t = slot,
                                  .kind = EXID_PROFILE } };
}

int exm_leaf_below(struct exm_walk *w, const struct exm_at *at, uint32_t slot, uint64_t *ret,
                   struct err *e)
{
    struct one x = one_of(w, at, slot);

    x.below = true;
    if (read_one(&x, slot, e))
        return e->code;
    *ret = x.total;
    return 0;
}

static int gone(const struct exm_want *want, struct err *e)
{
    char text[EXID_BYTES_MAX];
    size_t n = exid_text(want->id, text);

    return err_set(e, ERR_NOT_FOUND,
                   "profile %.*s stands for 10 s from %" PRId64
                   " ms on; of that time only sums over more than 10 s are kept",
                   (int)n, text, slot_to_ms(want->slot));
}

static int read_want(struct exm_walk *w, size_t series, const struct exm_want *want, uint32_t floor,
                     struct err *e)
{
    struct exm_at *at = &w->at.ptr[series];
    struct one x = one_of(w, at, want->slot);

    if (want->slot < w->from || want->slot >= w->to)
        return 0;
    if (want->slot < floor)
        return gone(want, e);
    x.sum = w->sum;
    x.below = w->q->call_site_len > 0;
    if (read_one(&x, want->slot, e))
        return e->code;
    if (!x.any)
        return 0;
    w->seen.ptr[series] = true;
    struct exm_cand c = { .item = { .kind = EXID_PROFILE,
                                    .id = want->id,
                                    .start_ms = slot_to_ms(x.first),
                                    .duration_ms = LEAF_MS,
                                    .total = x.total,
                                    .series = (uint32_t)series },
                          .slot = want->slot,
                          .leaf = true };
    return w->sum ? 0 : exm_list_take(w, &c, e);
}

/* Index of the first want of the hash. */
static size_t find_want(const struct exm_walk *w, uint64_t hash)
{
    size_t low = 0, high = w->wants.len;

    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (w->wants.ptr[mid].hash < hash)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

int exm_leaf_ids(struct exm_walk *w, size_t first, size_t end, struct err *e)
{
    uint32_t floor;

    if (!w->wants.len)
        return 0;
    if (find_floor(w, first, &floor, e))
        return e->code;
    for (size_t i = first; i < end; i++) {
        uint64_t hash = w->at.ptr[i].hash;
        for (size_t k = find_want(w, hash); k < w->wants.len && w->wants.ptr[k].hash == hash; k++)
            if (read_want(w, i, &w->wants.ptr[k], floor, e) ||
                store_check_canceled(w->q->q.cancel, e))
                return e->code;
    }
    return 0;
}

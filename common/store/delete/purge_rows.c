/* SPDX-License-Identifier: Apache-2.0
 *
 * purge_rows: deletes sealed rows one by one, where a delete names some series, some types or a
 * range of time. It uses one iterator for each (mask, column family), which seeks over rows that
 * the mask does not cover:
 *
 *   lead | bucket | tenant scope | ptype | series | t        wanted: runs of (bucket, type, series)
 *
 * Rows that the range covers in part. At the base level there is no such row: the range was widened
 * to whole nodes of that level. A node above the base over an edge of the range is first marked
 * dirty (phase `marks`). Then its rows are deleted like all others: a dirty node is not read, and
 * it will be built from its remaining children. Rows of timelines and presence hold several points
 * or leaves; those in the range are cut out of the row.
 *
 * Rows of groups are deleted here only if the mask covers all series of the service. purge_groups.c
 * corrects them otherwise. Rows of members are always deleted here.
 *
 * Exemplars have another key order. They are found through their index, bucket by bucket.
 */
#include "common/base/mem.h"
#include "common/base/wr.h"
#include "common/store/codec/timeline_row.h"
#include "common/store/delete/purge.h"
#include "common/store/exemplar/exm.h"
#include "common/store/ledger/ledger_counts.h"
#include "common/store/state/commit.h"
#include "common/store/state/dirty.h"
#include "common/store/state/presence.h"
#include "common/store/state/store_impl.h"
#include "common/store/store.h"

struct walk {
    struct purge_step *x;
    const struct mask *m;
    enum kv_cf cf;
    struct buf row;
};
struct at { /* where a row stands */
    uint32_t lead, bucket, tenant, scope;
    uint16_t ptype;
    uint64_t series;
    uint32_t t;
};
static const enum kv_cf CFS[] = { KV_COARSE, KV_FINE, KV_TL, KV_RU, KV_FN, KV_EXM };

static bool whole(const struct mask *m)
{
    return !m->series_len;
}

/* ---- keys ---- */

static bool read_at(struct str key, struct at *a)
{
    if (key.len < KEY_MEMBER_LEN)
        return false;
    a->lead = (uint8_t)key.ptr[0];
    a->bucket = get_u32be(key.ptr + 1);
    a->tenant = get_u32be(key.ptr + 5);
    a->scope = get_u32be(key.ptr + 9);
    a->ptype = get_u16be(key.ptr + 13);
    a->series = get_u64be(key.ptr + 15);
    a->t = get_u32be(key.ptr + 23);
    return true;
}

static void put_at(const struct at *a, struct key *k)
{
    k->b[0] = (char)a->lead;
    put_u32be(k->b + 1, a->bucket);
    put_u32be(k->b + 5, a->tenant);
    put_u32be(k->b + 9, a->scope);
    put_u16be(k->b + 13, a->ptype);
    put_u64be(k->b + 15, a->series);
    put_u32be(k->b + 23, a->t);
    k->len = KEY_MEMBER_LEN;
}

static uint32_t level_of(const struct at *a)
{
    return a->lead & 0x3f;
}

static uint32_t bucket_width(const struct walk *w, const struct at *a)
{
    if (w->cf == KV_TL && a->lead & KEY_TL_PRESENCE)
        return KEY_PRESENCE_BUCKET;
    return LEVELS[level_of(a)].bucket;
}

/* Slots a row covers. */
static uint32_t row_width(const struct walk *w, const struct at *a)
{
    if (w->cf != KV_TL)
        return LEVELS[level_of(a)].node;
    return a->lead & KEY_TL_PRESENCE ? DAY_SLOTS : LEVELS[level_of(a)].tl_chunk;
}

/* ---- the next wanted row ---- */

static void to_bucket(const struct walk *w, struct at *a, uint32_t bucket)
{
    a->bucket = bucket;
    a->tenant = w->x->t->tenant;
    a->scope = w->m->scope;
    a->ptype = w->m->types_len ? w->m->types[0] : 0;
    a->series = whole(w->m) ? 0 : w->m->series[0];
    a->t = 0;
}

static bool next_lead(struct at *a)
{
    *a = (struct at){ .lead = a->lead + 1 };
    return a->lead <= UINT8_MAX;
}

static bool next_bucket(const struct walk *w, struct at *a)
{
    if (a->bucket == UINT32_MAX)
        return next_lead(a);
    to_bucket(w, a, a->bucket + 1);
    return true;
}

/* The first type of the mask behind `from`, or the next bucket. */
static bool next_type(const struct walk *w, struct at *a, uint32_t from)
{
    uint32_t type = from;

    if (w->m->types_len) {
        size_t i = 0;
        while (i < w->m->types_len && w->m->types[i] < from)
            i++;
        type = i < w->m->types_len ? w->m->types[i] : UINT32_MAX;
    }
    if (type > UINT16_MAX)
        return next_bucket(w, a);
    a->ptype = (uint16_t)type;
    a->series = whole(w->m) ? 0 : w->m->series[0];
    a->t = 0;
    return true;
}

/* The first series of the mask from `from` on, or the next type. */
static bool next_series(const struct walk *w, struct at *a, uint64_t from)
{
    a->series = from;
    a->t = 0;
    if (whole(w->m))
        return true;
    size_t at = vec_lower_u64(w->m->series, w->m->series_len, from);
    if (at == w->m->series_len)
        return next_type(w, a, a->ptype + 1u);
    a->series = w->m->series[at];
    return true;
}

enum wanted { ROW, SEEK, END };

static enum wanted seek_if(bool found)
{
    return found ? SEEK : END;
}

/* ROW: *a is wanted. SEEK: *a is the next place where one may be. */
static enum wanted classify(const struct walk *w, struct at *a)
{
    bool group = w->cf == KV_TL && a->lead & KEY_TL_GROUP;

    if (level_of(a) >= KEY_LEVELS || (group && !whole(w->m)))
        return seek_if(next_lead(a));
    uint64_t width = bucket_width(w, a), begin = a->bucket * width;
    if (begin + width <= w->m->from) {
        to_bucket(w, a, w->m->from / (uint32_t)width);
        return SEEK;
    }
    if (begin >= w->m->to)
        return seek_if(next_lead(a));
    uint64_t here = (uint64_t)a->tenant << 32 | a->scope;
    uint64_t ours = (uint64_t)w->x->t->tenant << 32 | w->m->scope;
    if (here < ours) {
        to_bucket(w, a, a->bucket);
        return SEEK;
    }
    if (here > ours)
        return seek_if(next_bucket(w, a));
    if (!mask_has_type(w->m, a->ptype))
        return seek_if(next_type(w, a, a->ptype + 1u));
    struct at same = *a;
    if (!next_series(w, &same, a->series) || same.ptype != a->ptype || same.series != a->series ||
        same.bucket != a->bucket) {
        *a = same;
        return seek_if(a->lead <= UINT8_MAX);
    }
    uint32_t span = row_width(w, a);
    if (a->t + (uint64_t)span <= w->m->from) {
        a->t = w->m->from - w->m->from % span;
        return SEEK;
    }
    if (a->t >= w->m->to)
        return seek_if(a->series == UINT64_MAX ? next_type(w, a, a->ptype + 1u)
                                               : next_series(w, a, a->series + 1));
    return ROW;
}

/* ---- one row ---- */

static int cut_points(struct walk *w, const struct at *a, struct str key, struct str value,
                      struct err *e)
{
    uint32_t level = level_of(a), width = LEVELS[level].tl_point;
    struct tl row = { 0 };
    size_t n = 0;

    int rc = timeline_row_decode(value, LEVELS[level].tl_chunk / width, &row, e);
    vec_for (i, &row.points) {
        uint64_t t = a->t + (uint64_t)row.points.ptr[i].point * width;
        if (t + width <= w->m->from || t >= w->m->to)
            row.points.ptr[n++] = row.points.ptr[i];
    }
    if (!rc && n && n < row.points.len) {
        tl_encode(row.points.ptr, n, &w->row);
        kv_batch_put(w->x->b, KV_TL, key, buf_str(&w->row));
    } else if (!rc && !n) {
        kv_batch_del(w->x->b, KV_TL, key);
    }
    vec_free(&row.points);
    return rc;
}

static int cut_presence(struct walk *w, const struct at *a, struct str key, struct str value,
                        struct err *e)
{
    struct presence p;
    bool any = false;
    int rc = presence_decode(value, &p, e);

    for (uint32_t leaf = 0; !rc && leaf < PRESENCE_LEAVES; leaf++) {
        uint64_t t = a->t + (uint64_t)leaf * LEAF_SLOTS;
        if (t >= w->m->from && t < w->m->to)
            p.bits[leaf / 64] &= ~(UINT64_C(1) << (leaf % 64));
        any = any || presence_has(&p, leaf);
    }
    if (!rc && any) {
        presence_encode(&p, &w->row);
        kv_batch_put(w->x->b, KV_TL, key, buf_str(&w->row));
    } else if (!rc) {
        kv_batch_del(w->x->b, KV_TL, key);
    }
    return rc;
}

static int on_row(struct walk *w, const struct at *a, struct str key, struct str value,
                  struct err *e)
{
    bool inside = a->t >= w->m->from && a->t + (uint64_t)row_width(w, a) <= w->m->to;
    int rc = 0;

    purge_count(w->x, 1, key.len + value.len);
    if ((w->cf == KV_FINE || w->cf == KV_COARSE) &&
        ledger_purged(w->x->s, &w->x->outs, key, value, e))
        return e->code;
    if (w->cf != KV_TL || inside)
        kv_batch_del(w->x->b, w->cf, key);
    else if (a->lead & KEY_TL_PRESENCE)
        rc = cut_presence(w, a, key, value, e);
    else
        rc = cut_points(w, a, key, value, e);
    purge_touch(w->x, w->cf, a->lead, a->bucket);
    return rc;
}

/* All the service has in a bucket inside the range goes at once, however many rows there are. */
static bool whole_bucket(const struct walk *w, const struct at *a)
{
    uint64_t width = bucket_width(w, a), begin = a->bucket * width;

    return whole(w->m) && !w->m->types_len && begin >= w->m->from && begin + width <= w->m->to;
}

static int drop_bucket(struct walk *w, const struct at *a, struct err *e)
{
    struct purge_span span = { .cf = w->cf, .head = 1, .lead = a->lead, .bucket = a->bucket };

    return purge_drop_span(w->x, w->m->scope, &span, e);
}

/* The same where the ledger wants to know what is in it: as many rows as the step may look at, from
 * where `it` stands. */
static int drop_run(struct walk *w, const struct at *a, struct kv_iter *it, struct err *e)
{
    uint64_t rows = 0, bytes = 0, max = MAX(w->x->rows_left, 1u);
    struct key from, to, prefix;
    int rc = 0;

    put_at(a, &from);
    prefix = from;
    prefix.len = 13; /* up to the service */
    to = prefix;
    key_end(&to);
    for (; !rc && kv_iter_valid(it) && rows < max; kv_iter_next(it)) {
        struct str key = kv_iter_key(it);
        if (!str_starts(key, key_str(&prefix)))
            break;
        rc = ledger_purged(w->x->s, &w->x->outs, key, kv_iter_value(it), e);
        rows++;
        bytes += key.len + kv_iter_value(it).len;
    }
    if (rc)
        return rc;
    bool left = kv_iter_valid(it) && str_starts(kv_iter_key(it), key_str(&prefix));
    kv_batch_del_range(w->x->b, w->cf, key_str(&from), left ? kv_iter_key(it) : key_str(&to));
    purge_touch(w->x, w->cf, a->lead, a->bucket);
    purge_count(w->x, rows, bytes);
    return 0;
}

/* ---- one column family ---- */

static int walk_rows(struct walk *w, bool *ret_end, struct err *e)
{
    struct buf *cursor = &w->x->t->cursor;
    struct at a = { 0 };
    struct key k;
    int rc = 0;

    put_at(&a, &k);
    struct str from = cursor->len > 5 ? str_sub(buf_str(cursor), 5, cursor->len) : key_str(&k);
    struct kv_iter *it = kv_iter_new(w->x->s->kv, NULL, w->cf, from, STR_NULL);
    while (!rc && !w->x->full && kv_iter_valid(it)) {
        if (!read_at(kv_iter_key(it), &a)) {
            rc = err_set(e, ERR_CORRUPT, "key of %zu bytes", kv_iter_key(it).len);
            break;
        }
        enum wanted what = classify(w, &a);
        if (what == END) {
            *ret_end = true;
            break;
        }
        bool counted = w->cf == KV_FINE || w->cf == KV_COARSE;
        if (what == ROW && counted && whole_bucket(w, &a)) {
            rc = drop_run(w, &a, it, e);
        } else if (what == ROW && whole_bucket(w, &a)) {
            rc = drop_bucket(w, &a, e);
            if (!next_bucket(w, &a)) {
                *ret_end = true;
                break;
            }
            put_at(&a, &k);
            kv_iter_seek(it, key_str(&k));
        } else if (what == ROW) {
            rc = on_row(w, &a, kv_iter_key(it), kv_iter_value(it), e);
            kv_iter_next(it);
        } else {
            put_at(&a, &k);
            kv_iter_seek(it, key_str(&k));
        }
    }
    if (!rc)
        rc = kv_iter_status(it, e);
    *ret_end = *ret_end || (!rc && !kv_iter_valid(it));
    cursor->len = MIN(cursor->len, (size_t)5);
    if (!*ret_end && !rc)
        buf_add_str(cursor, kv_iter_key(it));
    kv_iter_free(it);
    return rc;
}

/* Sets where the next step continues: at an index row, or in a bucket. */
static void set_exemplar(struct buf *cursor, struct str at)
{
    cursor->len = MIN(cursor->len, (size_t)5);
    buf_add_str(cursor, at);
}

/* Both rows of exemplars of a bucket, found by the index; from the cursor on, if it is in there. */
static int walk_index(struct walk *w, uint32_t bucket, struct err *e)
{
    struct purge_step *x = w->x;
    struct buf *cursor = &x->t->cursor;
    struct exm_key from, to, other;
    struct exm_ref ref;
    bool index = true;
    int rc = 0;

    exm_scope_prefix(&from, bucket, x->t->tenant, w->m->scope);
    to = from;
    exm_key_end(&to);
    struct str last = str_sub(buf_str(cursor), 5, cursor->len);
    last = str_starts(last, exm_key_str(&from)) ? last : exm_key_str(&from);
    struct kv_iter *it = kv_iter_new(x->s->kv, NULL, KV_EXM, last, exm_key_str(&to));
    for (; !x->full && kv_iter_valid(it); kv_iter_next(it)) {
        struct str key = kv_iter_key(it);
        if (!exm_key_read(key, &index, &ref)) {
            rc = err_set(e, ERR_CORRUPT, "key of an exemplar has %zu bytes", key.len);
            break;
        }
        if (!index)
            break; /* index rows come first */
        if (!mask_covers(w->m, ref.m.scope, ref.m.ptype, ref.m.series, ref.t)) {
            purge_count(x, 0, 0);
            continue;
        }
        exm_row_key(&other, &ref);
        kv_batch_del(x->b, KV_EXM, key);
        kv_batch_del(x->b, KV_EXM, exm_key_str(&other));
        purge_count(x, 2, 2 * key.len + kv_iter_value(it).len);
        purge_touch(x, KV_EXM, 0, bucket);
    }
    if (!rc)
        rc = kv_iter_status(it, e);
    if (index && kv_iter_valid(it)) {
        set_exemplar(cursor, kv_iter_key(it));
    } else {
        exm_bucket_prefix(&to, bucket + 1);
        set_exemplar(cursor, exm_key_str(&to));
    }
    kv_iter_free(it);
    return rc;
}

static int walk_exemplars(struct walk *w, bool *ret_end, struct err *e)
{
    const struct buf *cursor = &w->x->t->cursor;
    struct purge_span span = { .cf = KV_EXM };
    int more = 0, rc = 0;

    if (cursor->len >= 9)
        span.bucket = get_u32be(cursor->ptr + 5);
    while (!rc && !w->x->full &&
           (more = purge_next_span(w->x->s->kv, NULL, w->x->t->tenant, w->m->scope, &span, e)) >
               0) {
        rc = walk_index(w, span.bucket, e);
        purge_span_step(&span);
    }
    *ret_end = !rc && !w->x->full && more == 0;
    return rc ? rc : more < 0 ? e->code : 0;
}

/* ---- the phases ---- */

static void set_place(struct tomb *t, size_t mask, size_t cf)
{
    char head[5];

    put_u32be(head, (uint32_t)mask);
    head[4] = (char)cf;
    buf_reset(&t->cursor);
    buf_add(&t->cursor, head, sizeof(head));
}

int purge_rows(struct purge_step *x, bool *ret_done, struct err *e)
{
    struct tomb *t = x->t;
    size_t mask = t->cursor.len >= 5 ? get_u32be(t->cursor.ptr) : 0;
    size_t cf = t->cursor.len >= 5 ? (uint8_t)t->cursor.ptr[4] : 0;
    int rc = 0;

    if (t->cursor.len < 5)
        set_place(t, 0, 0);
    while (!rc && !x->full && mask < t->masks.at.len) {
        struct walk w = { .x = x, .m = &t->masks.at.ptr[mask], .cf = CFS[cf] };
        bool end = false, skip = !whole(w.m) && (w.cf == KV_RU || w.cf == KV_FN);
        buf_init(&w.row, MIB);
        if (skip)
            end = true;
        else if (w.cf == KV_EXM)
            rc = walk_exemplars(&w, &end, e);
        else
            rc = walk_rows(&w, &end, e);
        buf_deinit(&w.row);
        if (rc || !end)
            break;
        cf = cf + 1 < ARRAY_LEN(CFS) ? cf + 1 : 0;
        mask += cf == 0;
        set_place(t, mask, cf);
    }
    *ret_done = !rc && mask >= t->masks.at.len;
    x->permille =
        (uint32_t)((mask * ARRAY_LEN(CFS) + cf) * 1000 / MAX(t->masks.at.len * ARRAY_LEN(CFS), 1u));
    return rc;
}

/* ---- marks ---- */

static int mark_edge(struct purge_step *x, const struct member *m, uint32_t t, struct err *e)
{
    struct floors f;

    if (floors_get(x->s, m, &f, e))
        return e->code;
    uint32_t base = floors_base(&f, true, t);
    if (base == FLOORS_GONE)
        return 0;
    struct dirty_change c = {
        .m = *m, .t = t, .base = base, .engine_ms = store_now(x->s), .entry = dirty_entry(x->s)
    };
    return dirty_mark(x->s, x->b, &c, e);
}

static int mark_scope(struct purge_step *x, const struct mask *mask, struct err *e)
{
    struct member m = { .tenant = x->t->tenant, .scope = mask->scope };
    struct key from, to;
    int rc = 0;

    key_active(&from, m.tenant, m.scope, 0);
    from.len -= 2;
    to = from;
    key_end(&to);
    struct kv_iter *it = kv_iter_new(x->s->kv, NULL, KV_META, key_str(&from), key_str(&to));
    for (; !rc && kv_iter_valid(it); kv_iter_next(it)) {
        if (kv_iter_key(it).len != KEY_ACTIVE_LEN)
            continue;
        m.ptype = get_u16be(kv_iter_key(it).ptr + 9);
        if (!mask_has_type(mask, m.ptype))
            continue;
        if (mask->from)
            rc = mark_edge(x, &m, mask->from, e);
        if (!rc && mask->to != UINT32_MAX)
            rc = mark_edge(x, &m, mask->to - 1, e);
    }
    if (!rc)
        rc = kv_iter_status(it, e);
    kv_iter_free(it);
    return rc;
}

int purge_marks(struct purge_step *x, bool *ret_done, struct err *e)
{
    const struct masks *m = &x->t->masks;
    size_t i = purge_mask_at(x->t);
    int rc = 0;

    for (; !rc && !x->full && i < m->at.len; i++) {
        if (!i || m->at.ptr[i].scope != m->at.ptr[i - 1].scope)
            rc = mark_scope(x, &m->at.ptr[i], e);
        purge_look_full(x);
    }
    purge_set_mask(x->t, i);
    *ret_done = !rc && i == m->at.len;
    return rc;
}

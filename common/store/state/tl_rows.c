/* SPDX-License-Identifier: Apache-2.0
 *
 * tl_rows: a list of small changes, sorted by row when the batch is made. Changes of one point are
 * applied in the order they came in.
 *
 * Rows are read as earlier batches left them: one tl_rows_put per batch, and one batch after the
 * other, as all of the shard thread's.
 */
#include "common/store/state/tl_rows.h"

#include <stdlib.h>

#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/base/vec.h"
#include "common/store/catalog/names.h"
#include "common/store/codec/timeline_row.h"
#include "common/store/state/presence.h"

#define ROW_MAX   MIB
#define TYPES_MAX 65536 /* remembered */

enum change_kind { CHANGE_ADD, CHANGE_SET, CHANGE_LEAF, CHANGE_TAKE };

struct change {
    char key[KEY_MEMBER_LEN];
    uint8_t kind;
    uint32_t point; /* of the row; CHANGE_LEAF: the leaf of the day */
    uint32_t seq;
    uint64_t total, writes; /* CHANGE_SET without writes: the point goes */
};
struct tl_rows {
    struct kv *kv;
    VEC(struct change) at;
    struct map_u64 gauges; /* tenant << 16 | profile type -> 1 if a gauge, else 0 */
    struct err err;        /* the first; returned by tl_rows_put */
    struct tl tl;
    struct presence presence;
    struct buf row;
    tl_rows_watch_fn watch; /* NULL: none */
    void *watch_cookie;
};

struct tl_rows *tl_rows_new(struct kv *kv)
{
    struct tl_rows *x = XNEW(struct tl_rows);

    x->kv = kv;
    map_u64_init(&x->gauges);
    buf_init(&x->row, ROW_MAX);
    return x;
}

void tl_rows_free(struct tl_rows *x)
{
    if (!x)
        return;
    vec_free(&x->at);
    map_u64_deinit(&x->gauges);
    vec_free(&x->tl.points);
    buf_deinit(&x->row);
    xfree(x);
}

void tl_rows_reset(struct tl_rows *x)
{
    x->at.len = 0;
    err_clear(&x->err);
}

/* ---- gathering ---- */

static void push(struct tl_rows *x, uint32_t flags, uint32_t level, const struct member *m,
                 uint32_t t, struct change c)
{
    uint32_t chunk = tl_chunk(flags, level);
    uint32_t width = flags & KEY_TL_PRESENCE ? LEAF_SLOTS : LEVELS[level].tl_point;
    struct key k;

    key_tl(&k, flags, level, m, t - t % chunk);
    CHECK(k.len == sizeof(c.key) && x->at.len < UINT32_MAX);
    memcpy(c.key, k.b, sizeof(c.key));
    c.point = t % chunk / width;
    c.seq = (uint32_t)x->at.len;
    vec_push(&x->at, c);
}

static void add(struct tl_rows *x, uint32_t level, const struct tl_rows_point *p)
{
    if (p->writes)
        push(x, p->group ? KEY_TL_GROUP : 0, level, p->m, p->t,
             (struct change){ .kind = CHANGE_ADD, .total = p->total, .writes = p->writes });
}

static bool is_gauge(struct tl_rows *x, const struct member *m)
{
    uint64_t id = (uint64_t)m->tenant << 16 | m->ptype;
    uint32_t known = map_u64_get(&x->gauges, id);
    bool gauge = false;
    struct str name;
    struct key k;

    if (known != MAP_U64_EMPTY)
        return known;
    key_ptype(&k, m->tenant, m->ptype);
    if (kv_get(x->kv, NULL, KV_META, key_str(&k), &x->row, &x->err) ||
        ptype_row_read(buf_str(&x->row), &gauge, &name, &x->err))
        return false;
    if (x->gauges.len >= TYPES_MAX)
        map_u64_reset(&x->gauges);
    (void)map_u64_put(&x->gauges, id, gauge);
    return gauge;
}

void tl_rows_present(struct tl_rows *x, bool group, const struct member *m, uint32_t t)
{
    if (!x->err.code && is_gauge(x, m))
        push(x, KEY_TL_PRESENCE | (group ? KEY_TL_GROUP : 0), 0, m, t,
             (struct change){ .kind = CHANGE_LEAF });
}

void tl_rows_sealed_above(struct tl_rows *x, const uint32_t floor[KEY_LEVELS],
                          const struct tl_rows_point *p)
{
    if (p->t >= floor[1] && (p->group || p->t < floor[0]))
        add(x, 1, p);
    tl_rows_present(x, p->group, p->m, p->t);
}

void tl_rows_sealed(struct tl_rows *x, const uint32_t floor[KEY_LEVELS],
                    const struct tl_rows_point *p)
{
    if (p->t >= floor[0])
        add(x, 0, p);
    tl_rows_sealed_above(x, floor, p);
}

void tl_rows_taken(struct tl_rows *x, const struct member *m, const uint32_t floor[KEY_LEVELS],
                   uint32_t t, uint64_t total, uint64_t writes)
{
    for (uint32_t level = 0; level < 2; level++)
        if (t >= floor[level])
            push(x, KEY_TL_GROUP, level, m, t,
                 (struct change){ .kind = CHANGE_TAKE, .total = total, .writes = writes });
}

void tl_rows_built(struct tl_rows *x, const struct tl_rows_point *p)
{
    CHECK(p->level >= 2 && p->t % LEVELS[p->level].node == 0);
    push(x, p->group ? KEY_TL_GROUP : 0, p->level, p->m, p->t,
         (struct change){ .kind = CHANGE_SET, .total = p->total, .writes = p->writes });
}

void tl_rows_gone(struct tl_rows *x, bool group, uint32_t level, const struct member *m, uint32_t t)
{
    tl_rows_built(x, &(struct tl_rows_point){ .m = m, .group = group, .level = level, .t = t });
}

/* ---- level 1 of members ---- */

int tl_rows_minutes(struct tl_rows *x, const struct member *m, uint32_t t, struct err *e)
{
    uint64_t total[10] = { 0 }, writes[10] = { 0 };
    uint32_t minute = LEVELS[1].tl_point;
    struct key k;

    static_assert(ARRAY_LEN(total) == 10, "minutes of a node of level 2");
    CHECK(LEVELS[0].tl_chunk == LEVELS[2].node && LEVELS[2].node / minute == ARRAY_LEN(total) &&
          t % LEVELS[2].node == 0);
    key_tl(&k, 0, 0, m, t);
    int rc = kv_get(x->kv, NULL, KV_TL, key_str(&k), &x->row, e);
    x->tl.points.len = 0;
    if (!rc)
        rc = timeline_row_decode(buf_str(&x->row), LEVELS[0].tl_chunk, &x->tl, e);
    if (rc && rc != ERR_NOT_FOUND)
        return err_wrap(e, "timeline at slot %u of series %016" PRIx64, t, m->series);
    vec_for (i, &x->tl.points) {
        const struct tl_point *p = &x->tl.points.ptr[i];
        total[p->point / minute] = u64_add_sat(total[p->point / minute], p->total);
        writes[p->point / minute] = u64_add_sat(writes[p->point / minute], p->writes);
    }
    for (uint32_t i = 0; i < ARRAY_LEN(total); i++)
        push(x, 0, 1, m, t + i * minute,
             (struct change){ .kind = CHANGE_SET, .total = total[i], .writes = writes[i] });
    return 0;
}

/* ---- into the batch ---- */

static int by_row(const void *a, const void *b)
{
    const struct change *x = a, *y = b;
    int d = memcmp(x->key, y->key, sizeof(x->key));

    return d ? d : x->seq < y->seq ? -1 : x->seq > y->seq;
}

static void set_point(struct tl *tl, uint32_t point, uint64_t total, uint64_t writes)
{
    size_t at = 0;

    while (at < tl->points.len && tl->points.ptr[at].point < point)
        at++;
    bool there = at < tl->points.len && tl->points.ptr[at].point == point;
    if (there && !writes) {
        memmove(tl->points.ptr + at, tl->points.ptr + at + 1,
                (tl->points.len - at - 1) * sizeof(*tl->points.ptr));
        tl->points.len--;
    } else if (there) {
        tl->points.ptr[at].total = total;
        tl->points.ptr[at].writes = writes;
    } else if (writes) {
        tl_add(tl, point, total, writes);
    }
}

static int take_point(struct tl *tl, const struct change *c, struct err *e)
{
    size_t at = 0;

    while (at < tl->points.len && tl->points.ptr[at].point < c->point)
        at++;
    if (at == tl->points.len || tl->points.ptr[at].point != c->point)
        return err_set(e, ERR_CORRUPT, "a timeline has no point %u to take from", c->point);
    const struct tl_point *p = &tl->points.ptr[at];
    uint64_t writes = p->writes - c->writes;
    if (p->total == UINT64_MAX || c->total > p->total || c->writes > p->writes ||
        (!writes && p->total != c->total))
        return err_set(e, ERR_CORRUPT,
                       "%" PRIu64 " in %" PRIu64 " writes cannot be taken out of %" PRIu64
                       " in %" PRIu64,
                       c->total, c->writes, p->total, p->writes);
    set_point(tl, c->point, p->total - c->total, writes);
    return 0;
}

struct tl_row { /* the row that is changed; its old bytes are in tl_rows.row */
    const struct change *changes;
    size_t len;
    bool found;
    uint32_t level, t;
    const struct member *series; /* NULL: the row is of a group */
};

static int put_points(struct tl_rows *x, const struct tl_row *r, struct kv_batch *b, struct err *e)
{
    const struct change *c = r->changes;
    struct str key = str_n(c->key, sizeof(c->key));
    uint32_t limit = LEVELS[r->level].tl_chunk / LEVELS[r->level].tl_point;

    x->tl.points.len = 0;
    if (r->found && timeline_row_decode(buf_str(&x->row), limit, &x->tl, e))
        return e->code;
    for (size_t i = 0; i < r->len; i++) {
        if (c[i].kind == CHANGE_ADD)
            tl_add(&x->tl, c[i].point, c[i].total, c[i].writes);
        else if (c[i].kind == CHANGE_TAKE && take_point(&x->tl, &c[i], e))
            return e->code;
        else if (c[i].kind == CHANGE_SET)
            set_point(&x->tl, c[i].point, c[i].total, c[i].writes);
    }
    if (x->tl.points.len) {
        tl_encode(x->tl.points.ptr, x->tl.points.len, &x->row);
        kv_batch_put(b, KV_TL, key, buf_str(&x->row));
    } else if (r->found) {
        kv_batch_del(b, KV_TL, key);
    }
    return 0;
}

void tl_rows_watch(struct tl_rows *x, tl_rows_watch_fn fn, void *cookie)
{
    x->watch = fn;
    x->watch_cookie = cookie;
}

static int put_leaves(struct tl_rows *x, const struct tl_row *r, struct kv_batch *b, struct err *e)
{
    const struct change *c = r->changes;
    bool news = !r->found;

    if (!r->found)
        memset(&x->presence, 0, sizeof(x->presence));
    else if (presence_decode(buf_str(&x->row), &x->presence, e))
        return e->code;
    for (size_t i = 0; i < r->len; i++) {
        if (presence_has(&x->presence, c[i].point))
            continue;
        news = true;
        presence_set(&x->presence, c[i].point);
        if (r->series && x->watch)
            x->watch(x->watch_cookie, r->series, r->t + c[i].point * LEAF_SLOTS);
    }
    if (!news)
        return 0;
    presence_encode(&x->presence, &x->row);
    kv_batch_put(b, KV_TL, str_n(c->key, sizeof(c->key)), buf_str(&x->row));
    return 0;
}

/* All changes of one row. */
static int put_row(struct tl_rows *x, const struct change *c, size_t n, uint32_t fresh,
                   struct kv_batch *b, struct err *e)
{
    struct str key = str_n(c->key, sizeof(c->key));
    struct tl_row r = { .changes = c, .len = n };
    uint32_t flags;
    struct member m;
    int rc = ERR_NOT_FOUND;

    CHECK(key_tl_read(key, &flags, &r.level, &m, &r.t));
    r.series = flags & KEY_TL_GROUP ? NULL : &m;
    if (r.level > 1 || r.t < fresh)
        rc = kv_get(x->kv, NULL, KV_TL, key, &x->row, e);
    r.found = !rc;
    if (!rc || rc == ERR_NOT_FOUND)
        rc = flags & KEY_TL_PRESENCE ? put_leaves(x, &r, b, e) : put_points(x, &r, b, e);
    return rc ? err_wrap(e, "timeline of level %u at slot %u of %016" PRIx64, r.level, r.t,
                         m.series)
              : 0;
}

int tl_rows_put(struct tl_rows *x, uint32_t fresh, struct kv_batch *b, struct err *e)
{
    int rc = 0;

    if (x->err.code) {
        *e = x->err;
        return e->code;
    }
    if (x->at.len)
        qsort(x->at.ptr, x->at.len, sizeof(*x->at.ptr), by_row);
    for (size_t i = 0, end; !rc && i < x->at.len; i = end) {
        const struct change *c = &x->at.ptr[i];
        for (end = i + 1; end < x->at.len && !memcmp(c->key, x->at.ptr[end].key, sizeof(c->key));)
            end++;
        rc = put_row(x, c, end - i, fresh, b, e);
    }
    tl_rows_reset(x);
    return rc;
}

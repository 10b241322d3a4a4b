/* SPDX-License-Identifier: Apache-2.0
 *
 * check_rows: the rules of vectors, timelines and write ids.
 *
 *   vectors     sound; ids exist in their epoch's dictionary; F is that of the contents; the series
 *               exists and says that it has data of the type on that day
 *   timelines   for each leaf the points add up to the vector's total and writes
 *   write ids   rows - folded raw rows are left of each; none stands below the low-water mark
 */
#include "common/store/check_impl.h"
#include "common/store/fp.h"
#include "common/store/tl.h"
#include "common/store/vec.h"

static int check_section(struct check *c, const struct member *m, const struct vec_section *s,
                         uint64_t *fp, struct err *e)
{
    struct dict_id id = { m->tenant, m->scope, s->epoch };
    struct dict **d = check_find(c, CHECK_DICTS, str_n(&id, sizeof(id)));
    uint32_t ids[VEC_CHUNK];
    uint64_t values[VEC_CHUNK];
    struct vec_iter it;
    size_t n;

    if (!d || s->last >= dict_counts(*d).nodes)
        return err_set(e, ERR_CORRUPT, "node %u of epoch %u is not there", s->last, s->epoch);
    vec_iter_init(&it, s);
    while ((n = vec_iter_next(&it, ids, values)) > 0)
        for (size_t i = 0; i < n; i++)
            *fp = fp_add_value(*fp, dict_node_hash(*d, ids[i]), values[i]);
    return 0;
}

static int check_vector(struct check *c, const struct member *m, uint32_t t, struct str row,
                        struct vec_reader *r, struct err *e)
{
    struct {
        uint32_t tenant, scope, ptype, pad;
        uint64_t series;
    } id = { m->tenant, m->scope, m->ptype, 0, m->series };
    const struct days *days = check_find(c, CHECK_SERIES, str_n(&id, sizeof(id)));
    struct vec_section s;
    uint64_t fp = 0;

    if (!days || t / DAY_SLOTS < days->first || t / DAY_SLOTS > days->last)
        return err_set(e, ERR_CORRUPT, "series %016" PRIx64 " does not say that it has this",
                       m->series);
    if (vec_open(row, r, e))
        return e->code;
    while (vec_next(r, &s))
        if (check_section(c, m, &s, &fp, e))
            return e->code;
    if (!r->meta.saturated && fp != r->meta.fp)
        return err_set(e, ERR_CORRUPT, "fingerprint is %016" PRIx64 ", contents have %016" PRIx64,
                       r->meta.fp, fp);
    return 0;
}

static int on_fine(struct check *c, struct str key, struct str value, struct err *e)
{
    struct vec_reader r;
    struct member m;
    uint32_t level, t;

    if (!key_member_read(key, &level, &m, &t) || level || t % LEAF_SLOTS)
        return err_set(e, ERR_CORRUPT, "key of %zu bytes in fine", key.len);
    if (check_vector(c, &m, t, value, &r, e))
        return err_wrap(e, "leaf at slot %u of series %016" PRIx64, t, m.series);
    struct check_leaf *l = check_entry(c, CHECK_LEAVES, key, sizeof(*l));
    l->total = r.meta.total;
    l->writes = r.meta.writes;
    l->saturated = r.meta.saturated;
    c->report->leaves++;
    return 0;
}

static int on_tl(struct check *c, struct str key, struct str value, struct err *e)
{
    struct tl row = { 0 };
    struct member m;
    uint32_t level, t;
    struct key k;

    if (!key_member_read(key, &level, &m, &t) || level || t % LEVELS[0].tl_chunk)
        return err_set(e, ERR_CORRUPT, "key of %zu bytes in tl", key.len);
    int rc = tl_decode(value, LEVELS[0].tl_chunk, &row, e);
    vec_for (i, &row.points) {
        const struct tl_point *p = &row.points.ptr[i];
        key_member(&k, 0, &m, slot_leaf(t + p->point));
        struct check_leaf *l = check_entry(c, CHECK_LEAVES, key_str(&k), sizeof(*l));
        l->tl_total += p->total;
        l->tl_writes += p->writes;
    }
    vec_free(&row.points);
    c->report->timelines++;
    return rc;
}

static int check_leaves(struct check *c, struct err *e)
{
    size_t pos = 0;
    struct str key;
    void *p;

    while (map_str_next(c->maps[CHECK_LEAVES], &pos, &key, &p)) {
        const struct check_leaf *l = p;
        if (l->saturated)
            continue;
        if (l->total != l->tl_total || l->writes != l->tl_writes)
            return err_set(e, ERR_CORRUPT,
                           "leaf at slot %u: vector has %" PRIu64 " in %" PRIu64
                           " writes, timeline %" PRIu64 " in %" PRIu64,
                           get_u32be(key.ptr + KEY_MEMBER_HEAD), l->total, l->writes, l->tl_total,
                           l->tl_writes);
    }
    return 0;
}

/* ---- raw and wid ---- */

static int control_u32(struct check *c, enum key_control id, uint32_t none, uint32_t *ret,
                       struct err *e)
{
    struct key k;

    key_control(&k, id);
    int rc = kv_get(c->v->s->kv, c->v->snap, KV_META, key_str(&k), &c->row, e);
    *ret = none;
    if (rc == ERR_NOT_FOUND)
        return 0;
    if (!rc && !key_u32_read(buf_str(&c->row), ret))
        rc = err_set(e, ERR_CORRUPT, "control value %d has %zu bytes", (int)id, c->row.len);
    return rc;
}

static int on_raw(struct check *c, struct str key, struct str value, struct err *e)
{
    struct raw_row head;
    struct vec_reader r;
    struct member m;
    const uint8_t *wid;
    uint32_t t, low = 0;
    struct key k;

    if (!key_raw_read(key, &m, &t, &wid))
        return err_set(e, ERR_CORRUPT, "key of %zu bytes in raw", key.len);
    if (control_u32(c, CONTROL_RAW_LOW, UINT32_MAX, &low, e))
        return e->code;
    if (raw_bucket(t) < low)
        return err_set(e, ERR_CORRUPT, "raw row in minute %u, none should be below %u",
                       raw_bucket(t), low);
    if (raw_row_read(value, &head, e) || check_vector(c, &m, t, head.vector, &r, e))
        return err_wrap(e, "raw row at slot %u of series %016" PRIx64, t, m.series);
    if (r.sections > 1 || (!r.meta.saturated && r.meta.writes != 1))
        return err_set(e, ERR_CORRUPT, "raw row of %u epochs and %" PRIu64 " writes", r.sections,
                       r.meta.writes);
    key_wid(&k, head.wid_bucket, m.tenant, wid);
    ++*(uint64_t *)check_entry(c, CHECK_WIDS, key_str(&k), sizeof(uint64_t));
    c->report->raw_rows++;
    return 0;
}

static int on_wid(struct check *c, struct str key, struct str value, struct err *e)
{
    const uint64_t *raw = check_find(c, CHECK_WIDS, key);
    struct wid_row w;
    uint32_t low = 0;

    if (key.len != KEY_WID_LEN || wid_row_read(value, &w, e) ||
        control_u32(c, CONTROL_WID_LOW, 0, &low, e))
        return err_set(e, ERR_CORRUPT, "write id row is wrong");
    if (get_u32be(key.ptr) < low || w.rows - w.folded != (raw ? *raw : 0))
        return err_set(e, ERR_CORRUPT,
                       "write id in hour %u (lowest %u) has %u rows, %u of them sealed, %" PRIu64
                       " raw ones are there",
                       get_u32be(key.ptr), low, w.rows, w.folded, raw ? *raw : 0);
    c->report->wids++;
    return 0;
}

/* Each raw row within the horizon has its write id. */
static int check_wids(struct check *c, struct err *e)
{
    size_t pos = 0;
    struct str key;
    uint32_t low;
    void *p;

    if (control_u32(c, CONTROL_WID_LOW, 0, &low, e))
        return e->code;
    while (map_str_next(c->maps[CHECK_WIDS], &pos, &key, &p))
        if (get_u32be(key.ptr) >= low && check_get(c, KV_WID, key, "write id of a raw row", e))
            return e->code;
    return 0;
}

int check_rows(struct check *c, struct err *e)
{
    if (check_each(c, KV_FINE, 0, on_fine, e) || check_each(c, KV_TL, 0, on_tl, e) ||
        check_leaves(c, e) || check_each(c, KV_RAW, 0, on_raw, e) ||
        check_each(c, KV_WID, 0, on_wid, e) || check_wids(c, e))
        return e->code;
    return 0;
}

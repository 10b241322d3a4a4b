/* SPDX-License-Identifier: Apache-2.0
 *
 * check_rows: the rules of vectors, timelines and write ids.
 *
 *   vectors     sound; ids exist in their epoch's dictionary; F is that of the contents; the series
 *               exists and says that it has data of the type on that day
 *   timelines   for each leaf the points add up to the vector's total and writes
 *   write ids   rows - folded raw rows are left of each; none stands below the low-water mark
 */
#include "common/store/check/check_impl.h"
#include "common/store/codec/fp.h"
#include "common/store/codec/raw.h"
#include "common/store/codec/vec.h"
#include "common/store/state/floors.h"
#include "common/store/state/view.h"

/* ---- vectors ---- */

static int check_section(struct check *c, struct dict_id id, const struct vec_section *s,
                         uint64_t *fp, struct err *e)
{
    struct dict **d = check_find(c, CHECK_MAP_DICTS, str_n(&id, sizeof(id)));
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

int check_vector(struct check *c, uint32_t tenant, uint32_t scope, struct str row,
                 struct vec_reader *r, struct err *e)
{
    struct vec_section s;
    uint64_t fp = 0;

    if (vec_open(row, r, e))
        return e->code;
    while (vec_next(r, &s))
        if (check_section(c, (struct dict_id){ tenant, scope, s.epoch }, &s, &fp, e))
            return e->code;
    if (!r->meta.saturated && fp != r->meta.fp)
        return err_set(e, ERR_CORRUPT, "fingerprint is %016" PRIx64 ", contents have %016" PRIx64,
                       r->meta.fp, fp);
    return 0;
}

int check_member(struct check *c, const struct member *m, uint32_t t, uint32_t node, struct err *e)
{
    struct {
        uint32_t tenant, scope, ptype, pad;
        uint64_t series;
    } id = { m->tenant, m->scope, m->ptype, 0, m->series };
    const struct days *days = check_find(c, CHECK_MAP_SERIES, str_n(&id, sizeof(id)));

    if (!days || (t + node - 1) / DAY_SLOTS < days->first || t / DAY_SLOTS > days->last)
        return err_set(e, ERR_CORRUPT, "series %016" PRIx64 " does not say that it has this",
                       m->series);
    return 0;
}

static int on_fine(struct check *c, struct str key, struct str value, struct err *e)
{
    struct vec_reader r;
    struct member m;
    uint32_t level, t;

    if (!key_member_read(key, &level, &m, &t) || level > 1 || t % LEVELS[level].node)
        return err_set(e, ERR_CORRUPT, "key of %zu bytes in fine", key.len);
    c->report->leaves++;
    if (purging_has(&c->purging, m.tenant, m.scope))
        return 0;
    if (check_member(c, &m, t, LEVELS[level].node, e) ||
        check_vector(c, m.tenant, m.scope, value, &r, e))
        return err_wrap(e, "leaf at slot %u of series %016" PRIx64, t, m.series);
    return 0;
}

/* ---- raw and wid ---- */

static int control_u32(struct check *c, enum key_control id, uint32_t none, uint32_t *ret,
                       struct err *e)
{
    struct key k;

    key_control(&k, id);
    int rc = kv_get(c->v->kv, c->v->snap, KV_META, key_str(&k), &c->row, e);
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
    struct floors f;
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
    if (raw_row_read(value, &head, e) || check_member(c, &m, t, 1, e) ||
        check_vector(c, m.tenant, m.scope, head.vector, &r, e))
        return err_wrap(e, "raw row at slot %u of series %016" PRIx64, t, m.series);
    if (floors_load(c->v->kv, c->v->snap, &m, &f, e))
        return e->code;
    /* Where leaves are not kept, one row stands for several vectors (stage_fold.h). */
    if (r.sections > 1 || (!r.meta.saturated && r.meta.writes != 1 && t >= f.at[0]))
        return err_set(e, ERR_CORRUPT, "raw row of %u epochs and %" PRIu64 " writes", r.sections,
                       r.meta.writes);
    key_wid(&k, head.wid_bucket, m.tenant, wid);
    ++*(uint64_t *)check_entry(c, CHECK_MAP_WIDS, key_str(&k), sizeof(uint64_t));
    c->report->raw_rows++;
    return 0;
}

static int on_wid(struct check *c, struct str key, struct str value, struct err *e)
{
    const uint64_t *raw = check_find(c, CHECK_MAP_WIDS, key);
    struct wid_row w;
    uint32_t low = 0;

    if (key.len != KEY_WID_LEN || wid_row_read(value, &w, e) ||
        control_u32(c, CONTROL_WID_LOW, 0, &low, e))
        return err_set(e, ERR_CORRUPT, "write id row is wrong");
    if (purging_has(&c->purging, get_u32be(key.ptr + 4), 0))
        return 0;
    if (get_u32be(key.ptr) < low || w.rows - w.folded != (raw ? *raw : 0))
        return err_set(e, ERR_CORRUPT,
                       "write id in hour %u (lowest %u) has %u rows, %u of them sealed, %" PRIu64
                       " raw ones are there",
                       get_u32be(key.ptr), low, w.rows, w.folded, raw ? *raw : 0);
    c->report->wids++;
    return 0;
}

static int on_print(struct check *c, struct str key, struct str value, struct err *e)
{
    uint64_t print;

    (void)c;
    if (key.len != KEY_WID_PRINT_LEN)
        return err_set(e, ERR_CORRUPT, "key of %zu bytes among fingerprints of pushes", key.len);
    return wid_print_read(value, &print, e);
}

/* Each raw row within the horizon has its write id. */
static int check_wids(struct check *c, struct err *e)
{
    size_t pos = 0;
    struct str key;
    uint32_t low;
    void *p;

    if (control_u32(c, CONTROL_WID_LOW, 0, &low, e))
        return check_found(c, e->code, e);
    while (map_str_next(c->maps[CHECK_MAP_WIDS], &pos, &key, &p)) {
        int rc =
            get_u32be(key.ptr) < low ? 0 : check_get(c, KV_WID, key, "write id of a raw row", e);
        if (check_found(c, rc, e))
            return e->code;
    }
    return 0;
}

int check_rows(struct check *c, struct err *e)
{
    check_begin(c, CHECK_FINE);
    if (check_each(c, KV_FINE, 0, KEY_MEMBER_LEN, on_fine, e))
        return e->code;
    check_begin(c, CHECK_TL);
    if (check_points(c, KV_FINE, 0, e))
        return e->code;
    check_begin(c, CHECK_RAW);
    if (check_each(c, KV_RAW, 0, KEY_RAW_LEN, on_raw, e))
        return e->code;
    check_begin(c, CHECK_WIDS);
    if (check_each(c, KV_WID, 0, KEY_WID_LEN, on_wid, e) ||
        check_each(c, KV_META, KEY_WID_PRINT, KEY_WID_PRINT_LEN, on_print, e))
        return e->code;
    return check_wids(c, e);
}

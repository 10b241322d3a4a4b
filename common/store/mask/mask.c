/* SPDX-License-Identifier: Apache-2.0
 *
 * mask: reads rows of table 62 and applies them to scans.
 *
 * A scan is cut at every edge of a mask over it. In each piece only the series that no mask hides
 * remain. Masks are few (TOMB_PENDING_MAX) and exist for minutes, so the pieces are computed for
 * each query, and neighbours with the same series are not joined.
 *
 * Thread: any; a struct masks belongs to one thread.
 */
#include "common/store/mask/mask.h"

#include <stdlib.h>

#include "common/base/rd.h"
#include "common/base/size.h"
#include "common/base/wr.h"
#include "common/store/mask/tomb_list.h"

#define VERSION   1
#define ARENA_MAX (256 * MIB)

/* ---- rows ---- */

void mask_row_put(const struct mask *m, struct buf *out)
{
    buf_reset(out);
    wr_u8(out, VERSION);
    wr_u8(out, (uint8_t)m->kind);
    wr_u32be(out, m->from);
    wr_u32be(out, m->to);
    wr_varint(out, m->types_len);
    for (size_t i = 0; i < m->types_len; i++)
        wr_u16be(out, m->types[i]);
    wr_varint(out, m->series_len);
    for (size_t i = 0; i < m->series_len; i++)
        wr_u64be(out, m->series[i]);
}

static int bad_row(struct str row, struct err *e)
{
    return err_set(e, ERR_CORRUPT, "mask of a delete of %zu bytes is not one of version %d",
                   row.len, VERSION);
}

static bool read_lists(struct rd *r, struct mask *m, struct arena *a)
{
    uint64_t n;

    if (!rd_varint(r, &n) || n > rd_left(r) / 2)
        return false;
    uint16_t *types = ARENA_ARRAY(a, uint16_t, n + 1);
    for (size_t i = 0; types && i < n; i++)
        (void)rd_u16be(r, &types[i]);
    m->types = types;
    m->types_len = n;
    if (!rd_varint(r, &n) || n != rd_left(r) / 8)
        return false;
    uint64_t *series = ARENA_ARRAY(a, uint64_t, n + 1);
    for (size_t i = 0; series && i < n; i++)
        (void)rd_u64be(r, &series[i]);
    m->series = series;
    m->series_len = n;
    return types && series;
}

int mask_row_read(struct str key, struct str row, struct arena *a, struct mask *ret, struct err *e)
{
    struct rd r = rd_of(row);
    uint8_t version = 0, kind = 0;

    if (key.len != KEY_TOMB_MASK_LEN)
        return err_set(e, ERR_CORRUPT, "key of a mask has %zu bytes", key.len);
    ret->entry = get_u64be(key.ptr + 5);
    ret->scope = get_u32be(key.ptr + 13);
    if (!rd_u8(&r, &version) || version != VERSION || !rd_u8(&r, &kind) || kind < TOMB_SERVICES ||
        kind > TOMB_RANGE || !rd_u32be(&r, &ret->from) || !rd_u32be(&r, &ret->to) ||
        !read_lists(&r, ret, a) || rd_left(&r))
        return bad_row(row, e);
    ret->kind = (enum tomb_kind)kind;
    return 0;
}

/* ---- loading ---- */

static int by_scope(const void *a, const void *b)
{
    const struct mask *x = a, *y = b;

    if (x->scope != y->scope)
        return x->scope < y->scope ? -1 : 1;
    return x->entry < y->entry ? -1 : x->entry > y->entry;
}

int masks_load(struct masks *m, struct kv *kv, const struct kv_snap *snap, uint32_t tenant,
               struct err *e)
{
    struct key from, to;
    struct mask one;
    int rc = 0;

    m->at.len = 0;
    key_table(&from, KEY_TOMB_MASK, tenant);
    to = from;
    key_end(&to);
    struct kv_iter *it = kv_iter_new(kv, snap, KV_META, key_str(&from), key_str(&to));
    for (; !rc && kv_iter_valid(it); kv_iter_next(it)) {
        if (!m->arena)
            m->arena = arena_new(ARENA_MAX);
        rc = mask_row_read(kv_iter_key(it), kv_iter_value(it), m->arena, &one, e);
        if (!rc)
            vec_push(&m->at, one);
    }
    if (!rc)
        rc = kv_iter_status(it, e);
    kv_iter_free(it);
    if (m->at.len)
        qsort(m->at.ptr, m->at.len, sizeof(*m->at.ptr), by_scope);
    return rc;
}

void masks_deinit(struct masks *m)
{
    vec_free(&m->at);
    arena_free(m->arena);
    m->arena = NULL;
}

/* ---- questions ---- */

bool masks_dead(const struct masks *m, uint32_t scope)
{
    vec_for (i, &m->at)
        if (m->at.ptr[i].scope == scope && m->at.ptr[i].kind == TOMB_SERVICES)
            return true;
    return false;
}

bool masks_members(const struct masks *m, uint32_t scope)
{
    vec_for (i, &m->at)
        if (m->at.ptr[i].scope == scope)
            return true;
    return false;
}

static bool has_series(const struct mask *m, uint64_t series)
{
    size_t at = vec_lower_u64(m->series, m->series_len, series);

    return !m->series_len || (at < m->series_len && m->series[at] == series);
}

bool mask_has_series(const struct mask *m, uint32_t scope, uint64_t series)
{
    return m->scope == scope && has_series(m, series);
}

bool mask_has_type(const struct mask *m, uint16_t ptype)
{
    for (size_t i = 0; i < m->types_len; i++)
        if (m->types[i] == ptype)
            return true;
    return !m->types_len;
}

bool mask_covers(const struct mask *m, uint32_t scope, uint16_t ptype, uint64_t series, uint32_t t)
{
    return m->scope == scope && t >= m->from && t < m->to && mask_has_type(m, ptype) &&
           has_series(m, series);
}

bool masks_hide(const struct masks *m, uint32_t scope, uint16_t ptype, uint64_t series, uint32_t t)
{
    vec_for (i, &m->at)
        if (mask_covers(&m->at.ptr[i], scope, ptype, series, t))
            return true;
    return false;
}

/* ---- splitting ---- */

static bool touches(const struct mask *m, uint32_t scope, uint16_t ptype, uint32_t from,
                    uint32_t to)
{
    return m->scope == scope && m->from < to && m->to > from && mask_has_type(m, ptype);
}

/* The next edge of a mask behind `from`, at most `to`. */
static uint32_t next_edge(const struct masks *m, uint32_t scope, uint16_t ptype, uint32_t from,
                          uint32_t to)
{
    vec_for (i, &m->at) {
        const struct mask *x = &m->at.ptr[i];
        if (!touches(x, scope, ptype, from, to))
            continue;
        if (x->from > from)
            to = x->from;
        else if (x->to < to)
            to = x->to;
    }
    return to;
}

static bool hidden(const struct masks *m, const struct mask_part *p, uint32_t scope, uint16_t ptype,
                   uint64_t series)
{
    vec_for (i, &m->at) {
        const struct mask *x = &m->at.ptr[i];
        if (touches(x, scope, ptype, p->from, p->to) && has_series(x, series))
            return true;
    }
    return false;
}

/* Leaves in p the series that are not hidden; false: none. */
static bool keep_series(struct masks *m, uint32_t scope, uint16_t ptype, struct mask_part *p,
                        struct err *e)
{
    size_t n = 0;

    uint64_t *kept = ARENA_ARRAY(m->arena, uint64_t, p->len);
    uint32_t *index = ARENA_ARRAY(m->arena, uint32_t, p->len);
    if (!kept || !index) {
        (void)err_set(e, ERR_LIMIT, "deletes hide too many series: ask again when they are purged");
        return false;
    }
    for (size_t i = 0; i < p->len; i++) {
        if (hidden(m, p, scope, ptype, p->series[i]))
            continue;
        index[n] = (uint32_t)i;
        kept[n++] = p->series[i];
    }
    if (n < p->len) {
        p->series = kept;
        p->index = index;
        p->len = n;
    }
    return n > 0;
}

static bool any_touches(const struct masks *m, uint32_t scope, uint16_t ptype, uint32_t from,
                        uint32_t to)
{
    vec_for (i, &m->at)
        if (touches(&m->at.ptr[i], scope, ptype, from, to))
            return true;
    return false;
}

int masks_split(struct masks *m, uint32_t scope, uint16_t ptype, const struct mask_part *whole,
                mask_parts *ret, struct err *e)
{
    uint32_t from = whole->from, to = whole->to;

    ret->len = 0;
    err_clear(e);
    while (from < to) {
        struct mask_part p = { .from = from, .series = whole->series, .len = whole->len };
        p.to = next_edge(m, scope, ptype, from, to);
        if (!any_touches(m, scope, ptype, p.from, p.to) || keep_series(m, scope, ptype, &p, e))
            vec_push(ret, p);
        if (e->code)
            return e->code;
        from = p.to;
    }
    return 0;
}

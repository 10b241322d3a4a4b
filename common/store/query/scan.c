/* SPDX-License-Identifier: Apache-2.0
 *
 * scan: one iterator over many short runs.
 *
 * The wanted keys are runs between unwanted ones. At each row one of three things is true: it is
 * wanted (give it, step), or the next wanted key is known from it (seek there), or nothing wanted
 * follows (end). Every seek goes forward, so a scan ends; it costs a seek per run, and steps where
 * runs touch: all series of a type in whole buckets are read without any.
 *
 *   level   bucket | tenant scope ptype | series | t      runs: (bucket, series)
 *   raw     bucket | tenant scope | t | ptype | series    runs: (slot, series)
 */
#include "common/store/query/scan.h"

#include "common/store/codec/raw.h"
#include "common/store/query/match.h"
#include "common/store/state/view.h"
#include "common/store/store.h"
#include "common/sys/pool.h"

/* Index of the first series >= id. */
static size_t find(const struct scan *c, uint64_t id)
{
    return vec_lower_u64(c->series, c->len, id);
}

static struct member member_of(const struct scan *c, uint64_t series)
{
    return (struct member){ c->tenant, c->scope, c->ptype, series };
}

static int cmp3(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

/* Order of what stands between bucket and series. */
static int cmp_member(const struct member *m, const struct scan *c)
{
    int d = cmp3(m->tenant, c->tenant);

    d = d ? d : cmp3(m->scope, c->scope);
    return d ? d : cmp3(m->ptype, c->ptype);
}

/* ---- levels ---- */

/* Where the next wanted row may be, or false: nowhere. */
static bool next_level(const struct scan *c, uint32_t level, const struct member *m, uint32_t t,
                       struct key *ret)
{
    uint32_t width = LEVELS[level].bucket, begin = t - t % width;
    int order = cmp_member(m, c);
    size_t i = order > 0 ? c->len : order < 0 ? 0 : find(c, m->series);

    if (order == 0 && i < c->len && c->series[i] == m->series) {
        if (t < c->from) {
            struct member at = member_of(c, m->series);
            key_member(ret, level, &at, c->from);
            return true;
        }
        i++; /* behind the range in this bucket */
    }
    if (i == c->len) {
        i = 0;
        begin += width;
    }
    if (begin >= c->to)
        return false;
    struct member at = member_of(c, c->series[i]);
    key_member(ret, level, &at, MAX(begin, c->from));
    return true;
}

int scan_level(const struct scan *c, enum kv_cf cf, uint32_t level, struct err *e)
{
    struct member first = member_of(c, c->series[0]), last = member_of(c, c->series[c->len - 1]);
    struct member m;
    struct key k, end;
    uint32_t row_level, t;
    int rc = 0;

    key_member(&k, level, &first, c->from);
    key_member(&end, level, &last, c->to - 1);
    key_end(&end);
    struct kv_iter *it = kv_iter_new(c->v->kv, c->v->snap, cf, key_str(&k), key_str(&end));
    while (!rc && kv_iter_valid(it)) {
        pool_slice(); /* rows of others are passed over, too */
        if (!key_member_read(kv_iter_key(it), &row_level, &m, &t)) {
            rc = err_set(e, ERR_CORRUPT, "key of a vector has %zu bytes", kv_iter_key(it).len);
            break;
        }
        size_t i = cmp_member(&m, c) ? c->len : find(c, m.series);
        if (i < c->len && c->series[i] == m.series && t >= c->from && t < c->to) {
            rc = store_check_canceled(c->cancel, e);
            if (!rc)
                rc = c->fn(c->cookie, i, t, kv_iter_value(it), e);
            kv_iter_next(it);
        } else if (next_level(c, level, &m, t, &k)) {
            kv_iter_seek(it, key_str(&k));
        } else {
            break;
        }
    }
    if (!rc)
        rc = kv_iter_status(it, e);
    kv_iter_free(it);
    return rc;
}

/* ---- raw ---- */

static void raw_key(const struct scan *c, uint32_t t, uint64_t series, struct key *ret)
{
    static const uint8_t zero[16];
    struct member at = member_of(c, series);

    key_raw(ret, &at, t, zero);
}

static bool next_raw(const struct scan *c, const struct member *m, uint32_t t, struct key *ret)
{
    int order = cmp3(m->tenant, c->tenant);
    uint32_t begin = t - t % RAW_BUCKET_SLOTS;

    order = order ? order : cmp3(m->scope, c->scope);
    if (order < 0) {
        t = MAX(begin, c->from);
    } else if (order > 0) {
        t = begin + RAW_BUCKET_SLOTS;
    } else if (t < c->from) {
        t = c->from;
    } else if (t >= c->to) {
        return false; /* slots of a service only go up */
    } else if (m->ptype == c->ptype) {
        size_t i = find(c, m->series);
        if (i < c->len) {
            raw_key(c, t, c->series[i], ret);
            return true;
        }
        t++;
    } else if (m->ptype > c->ptype) {
        t++;
    }
    if (t >= c->to)
        return false;
    raw_key(c, t, c->series[0], ret);
    return true;
}

static int give_raw(const struct scan *c, size_t i, uint32_t t, struct str value, struct err *e)
{
    struct raw_row row;
    int rc = store_check_canceled(c->cancel, e);

    if (!rc)
        rc = raw_row_read(value, &row, e);
    return rc ? rc : c->fn(c->cookie, i, t, row.vector, e);
}

int scan_raw(const struct scan *c, uint32_t low, struct err *e)
{
    uint32_t from = MAX(raw_bucket(c->from), low), last = raw_bucket(c->to - 1);
    struct member m;
    const uint8_t *wid;
    struct key k, end;
    uint32_t t;
    int rc = 0;

    if (from > last)
        return 0;
    key_raw_scope(&k, from, c->tenant, c->scope);
    key_raw_scope(&end, last, c->tenant, c->scope);
    key_end(&end);
    struct kv_iter *it = kv_iter_new(c->v->kv, c->v->snap, KV_RAW, key_str(&k), key_str(&end));
    while (!rc && kv_iter_valid(it)) {
        pool_slice(); /* rows of others are passed over, too */
        if (!key_raw_read(kv_iter_key(it), &m, &t, &wid)) {
            rc = err_set(e, ERR_CORRUPT, "raw key of %zu bytes", kv_iter_key(it).len);
            break;
        }
        size_t i = cmp_member(&m, c) ? c->len : find(c, m.series);
        if (i < c->len && c->series[i] == m.series && t >= c->from && t < c->to) {
            rc = give_raw(c, i, t, kv_iter_value(it), e);
            kv_iter_next(it);
        } else if (next_raw(c, &m, t, &k)) {
            kv_iter_seek(it, key_str(&k));
        } else {
            break;
        }
    }
    if (!rc)
        rc = kv_iter_status(it, e);
    kv_iter_free(it);
    return rc;
}

int scan_raw_low(struct store_view *v, uint32_t *ret, struct err *e)
{
    struct buf row;
    struct key k;

    buf_init(&row, KIB);
    key_control(&k, CONTROL_RAW_LOW);
    int rc = kv_get(v->kv, v->snap, KV_META, key_str(&k), &row, e);
    if (rc == ERR_NOT_FOUND) {
        *ret = UINT32_MAX;
        rc = 0;
    } else if (!rc && !key_u32_read(buf_str(&row), ret)) {
        rc = err_set(e, ERR_CORRUPT, "lowest raw bucket has %zu bytes", row.len);
    }
    buf_deinit(&row);
    return rc;
}

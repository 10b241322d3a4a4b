/* SPDX-License-Identifier: Apache-2.0
 *
 * rollup_unsealed: unsealed rows of groups. It reads sums in memory (hot.h); where memory has no
 * sums, it reads all unsealed rows of the service and type, and finds the group of each row's
 * series. If all groups are wanted and count as one, their groups are not looked up; else the
 * groups of all series of the service are read once.
 *
 * Rows of a series may be in one group by one rule and in another by the next; both have the same
 * values of all labels the query looks at (targets_plan.c), so either tells.
 */
#include "common/base/map.h"
#include "common/base/wr.h"
#include "common/store/catalog/group.h"
#include "common/store/codec/raw.h"
#include "common/store/query/match.h"
#include "common/store/query/rollup_read.h"
#include "common/store/state/store_impl.h"
#include "common/store/state/view.h"
#include "common/store/store.h"

struct rollup_unsealed {
    const struct rollup_read *r;
    bool all;
    bool known;            /* `of` is filled */
    struct map_u64 of;     /* series -> index of its group */
    struct map_u64 gid_at; /* gid -> index */
};

/* ---- groups of series ---- */

static int add_series(struct rollup_unsealed *x, struct str key, struct str value, struct err *e)
{
    struct group_of at[GROUP_RULES_MAX];
    size_t n;

    if (group_of_read(value, at, &n, e))
        return e->code;
    for (size_t i = 0; i < n; i++) {
        uint32_t index = map_u64_get(&x->gid_at, GID(GROUP_BASE, at[i].ordinal));
        if (index != MAP_U64_EMPTY) {
            (void)map_u64_put(&x->of, get_u64be(key.ptr + key.len - 8), index);
            return 0;
        }
    }
    return 0;
}

static int load(struct rollup_unsealed *x, struct err *e)
{
    const struct rollup_read *r = x->r;
    struct key from, to;
    int rc = 0;

    for (size_t i = 0; i < r->len; i++)
        (void)map_u64_put(&x->gid_at, r->gids[i], (uint32_t)i);
    key_group_of(&from, r->tenant, r->scope, 0);
    key_group_of(&to, r->tenant, r->scope, UINT64_MAX);
    key_end(&to);
    struct kv_iter *it = kv_iter_new(r->v->kv, r->v->snap, KV_META, key_str(&from), key_str(&to));
    for (; !rc && kv_iter_valid(it); kv_iter_next(it))
        rc = add_series(x, kv_iter_key(it), kv_iter_value(it), e);
    if (!rc)
        rc = kv_iter_status(it, e);
    kv_iter_free(it);
    x->known = !rc;
    return rc;
}

/* ---- rows ---- */

static int give(struct rollup_unsealed *x, uint64_t series, uint32_t t, struct str value,
                struct err *e)
{
    const struct rollup_read *r = x->r;
    struct raw_row row;
    uint32_t group = 0;

    if (!x->all) {
        if (!x->known && load(x, e))
            return e->code;
        group = map_u64_get(&x->of, series);
        if (group == MAP_U64_EMPTY)
            return 0;
    }
    if (store_check_canceled(r->cancel, e) || raw_row_read(value, &row, e))
        return e->code;
    return r->fn(r->cookie, group, t, row.vector, e);
}

/* The next row of the service and type from slot t on, which moves; false: seek to *k. */
static bool wanted(const struct rollup_read *r, const struct member *m, uint32_t *t, struct key *k)
{
    static const uint8_t zero[16];
    struct member at = { r->tenant, r->scope, r->ptype, 0 };

    if (m->tenant == r->tenant && m->scope == r->scope && m->ptype == r->ptype)
        return true;
    if (m->tenant == r->tenant && m->scope == r->scope)
        *t += m->ptype > r->ptype; /* the slot it stands in, or the next one */
    else
        *t = m->tenant > r->tenant || (m->tenant == r->tenant && m->scope > r->scope)
                 ? *t - *t % RAW_BUCKET_SLOTS + RAW_BUCKET_SLOTS
                 : *t - *t % RAW_BUCKET_SLOTS;
    key_raw(k, &at, *t, zero);
    return false;
}

static int scan(struct rollup_unsealed *x, struct kv_iter *it, uint32_t from, uint32_t to,
                struct err *e)
{
    const struct rollup_read *r = x->r;
    struct member m;
    const uint8_t *wid;
    struct key k;
    uint32_t t;
    int rc = 0;

    while (!rc && kv_iter_valid(it)) {
        if (!key_raw_read(kv_iter_key(it), &m, &t, &wid))
            return err_set(e, ERR_CORRUPT, "raw key of %zu bytes", kv_iter_key(it).len);
        if (!wanted(r, &m, &t, &k)) {
            if (t >= to)
                break;
            kv_iter_seek(it, key_str(&k));
            continue;
        }
        if (t >= to)
            break;
        if (t >= from)
            rc = give(x, m.series, t, kv_iter_value(it), e);
        kv_iter_next(it);
    }
    return rc ? rc : kv_iter_status(it, e);
}

static int scan_range(struct rollup_unsealed *x, uint32_t from, uint32_t to, struct err *e)
{
    static const uint8_t zero[16];
    const struct rollup_read *r = x->r;
    struct member at = { r->tenant, r->scope, r->ptype, 0 };
    struct key k, end;

    key_raw(&k, &at, from, zero);
    key_raw_scope(&end, raw_bucket(to - 1), r->tenant, r->scope);
    key_end(&end);
    struct kv_iter *it = kv_iter_new(r->v->kv, r->v->snap, KV_RAW, key_str(&k), key_str(&end));
    int rc = scan(x, it, from, to, e);
    kv_iter_free(it);
    return rc;
}

/* Sums where there are some that may be used, rows elsewhere. */
static int read_range(struct rollup_unsealed *x, uint32_t from, uint32_t to, struct err *e)
{
    const struct rollup_read *r = x->r;
    struct hot_query q = {
        .m = { r->tenant, r->scope, r->ptype, 0 },
        .gids = r->gids,
        .len = r->len,
        .from = from,
        .to = to,
        .fn = r->hot,
        .cookie = r->cookie,
    };
    hot_ranges rest = { 0 };
    int rc = hot_read(r->v->s->hot, &r->v->hot, &q, &rest, e);

    for (size_t i = 0; !rc && i < rest.len; i++)
        rc = scan_range(x, rest.ptr[i].from, rest.ptr[i].to, e);
    vec_free(&rest);
    return rc;
}

int rollup_raw(const struct rollup_read *r, bool all, uint32_t low, uint32_t from, uint32_t to,
               struct err *e)
{
    struct rollup_unsealed x = { .r = r, .all = all };

    if (low == UINT32_MAX || !r->len)
        return 0;
    from = MAX(from, low * RAW_BUCKET_SLOTS);
    if (from >= to)
        return 0;
    map_u64_init(&x.of);
    map_u64_init(&x.gid_at);
    int rc = r->hot ? read_range(&x, from, to, e) : scan_range(&x, from, to, e);
    map_u64_deinit(&x.of);
    map_u64_deinit(&x.gid_at);
    return rc;
}

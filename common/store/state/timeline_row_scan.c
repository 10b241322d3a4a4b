/* SPDX-License-Identifier: Apache-2.0
 *
 * timeline_row_scan: as scan.c, over the keys of CF tl.
 *
 *   flags level | bucket | tenant scope ptype | id | t        runs: (bucket, id)
 *
 * At each row one of three is true: it is wanted, or the next wanted key is known from it (seek
 * there), or nothing wanted follows. Every seek goes forward.
 */
#include "common/store/state/timeline_row_scan.h"

#include "common/store/state/store_impl.h"
#include "common/store/state/view.h"
#include "common/store/store.h"
#include "common/sys/pool.h"

struct walk {
    const struct timeline_row_scan *c;
    uint32_t from; /* first chunk */
    uint32_t bucket;
};

uint32_t tl_chunk(uint32_t flags, uint32_t level)
{
    return flags & KEY_TL_PRESENCE ? DAY_SLOTS : LEVELS[level].tl_chunk;
}

/* Index of the first id >= want. */
static size_t find(const struct timeline_row_scan *c, uint64_t want)
{
    return vec_lower_u64(c->ids, c->len, want);
}

/* Order of what stands between bucket and id. */
static int cmp_scope(const struct member *m, const struct timeline_row_scan *c)
{
    if (m->tenant != c->tenant)
        return m->tenant < c->tenant ? -1 : 1;
    if (m->scope != c->scope)
        return m->scope < c->scope ? -1 : 1;
    return m->ptype < c->ptype ? -1 : m->ptype > c->ptype;
}

static void key_at(const struct walk *w, size_t i, uint32_t t, struct key *ret)
{
    const struct timeline_row_scan *c = w->c;
    struct member m = { c->tenant, c->scope, c->ptype, c->ids[i] };

    key_tl(ret, c->flags, c->level, &m, t);
}

/* From the unwanted row (m, t), i = first id >= its: where the next wanted one may be, or false. */
static bool next(const struct walk *w, const struct member *m, uint32_t t, size_t i,
                 struct key *ret)
{
    const struct timeline_row_scan *c = w->c;
    uint32_t begin = t - t % w->bucket;

    if (i < c->len && c->ids[i] == m->series && !cmp_scope(m, c)) {
        if (t < w->from) {
            key_at(w, i, w->from, ret);
            return true;
        }
        i++; /* behind the range in this bucket */
    }
    if (i == c->len) {
        i = 0;
        begin += w->bucket;
    }
    if (begin >= c->to)
        return false;
    key_at(w, i, MAX(begin, w->from), ret);
    return true;
}

static int walk(struct walk *w, struct kv_iter *it, struct err *e)
{
    const struct timeline_row_scan *c = w->c;
    uint32_t flags, level, t;
    struct member m;
    struct key k;
    size_t i = 0;
    int rc = 0;

    while (!rc && kv_iter_valid(it)) {
        pool_slice(); /* rows of others are passed over, too */
        if (!key_tl_read(kv_iter_key(it), &flags, &level, &m, &t))
            return err_set(e, ERR_CORRUPT, "key of a timeline has %zu bytes", kv_iter_key(it).len);
        int order = cmp_scope(&m, c);
        /* Rows of one id follow each other; a new bucket begins again with the first. */
        if (order || i == c->len || c->ids[i] != m.series)
            i = order > 0 ? c->len : order < 0 ? 0 : find(c, m.series);
        if (!order && i < c->len && c->ids[i] == m.series && t >= w->from && t < c->to) {
            rc = store_check_canceled(c->cancel, e);
            if (!rc)
                rc = c->fn(c->cookie, i, t, kv_iter_value(it), e);
            kv_iter_next(it);
        } else if (next(w, &m, t, i, &k)) {
            kv_iter_seek(it, key_str(&k));
        } else {
            break;
        }
    }
    return rc ? rc : kv_iter_status(it, e);
}

int timeline_row_scan(const struct timeline_row_scan *c, struct err *e)
{
    uint32_t chunk = tl_chunk(c->flags, c->level);
    struct walk w = { .c = c,
                      .from = c->from - c->from % chunk,
                      .bucket = c->flags & KEY_TL_PRESENCE ? KEY_PRESENCE_BUCKET
                                                           : LEVELS[c->level].bucket };
    struct key k, end;

    CHECK(c->len);
    if (c->from >= c->to)
        return 0;
    key_at(&w, 0, w.from, &k);
    key_at(&w, c->len - 1, c->to - 1, &end);
    key_end(&end);
    struct kv_iter *it = kv_iter_new(c->v->kv, c->v->snap, KV_TL, key_str(&k), key_str(&end));
    int rc = walk(&w, it, e);
    kv_iter_free(it);
    return rc;
}

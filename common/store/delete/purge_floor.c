/* SPDX-License-Identifier: Apache-2.0
 *
 * purge_floor: minutes of groups that are kept longer than the leaves of their members.
 *
 *   ------- floor[1] ======== floor[0] -------> time
 *             members: 10 m      members: 10 s
 *             groups: 1 m        groups: 1 m
 *
 * Between the two floors, members have one row for ten minutes and groups one for each minute. What
 * a deleted series had in a single minute is unknown there, so the minutes of its groups cannot be
 * corrected. Instead the minutes of all groups of the service and type are deleted, up to the end
 * of the last node of 10 m in which the deleted series has a row: floor[1] rises to that slot, as
 * retention would raise it. From then on 10 m is the base level of groups there, too, and their
 * rows are corrected like any others. Dirty nodes of 10 m are built from the minutes first, with
 * the deleted series in them, since only the minutes have the sums of the groups.
 *
 * Rows of groups below a floor, which retention has not deleted yet, hold sums of the deleted
 * series, too. No reader sees them. This stage deletes them.
 */
#include "common/base/mem.h"
#include "common/store/catalog/names.h"
#include "common/store/delete/purge.h"
#include "common/store/retain/retain_state.h"
#include "common/store/state/store_impl.h"
#include "common/store/store.h"

#define BUCKETS_MAX 64 /* of a step */
#define NODE        LEVELS[2].node

/* ---- how far ---- */

struct found_node {
    bool any;
    uint32_t t; /* its first slot, if there is any */
};

/* The last node of 10 m in [low, high) in which a series of the mask has a row. */
static int last_in_bucket(const struct fix *f, struct member m, uint32_t low, uint32_t high,
                          struct found_node *ret, struct err *e)
{
    struct member last = m;
    struct key from, to;
    int rc;

    last.series = UINT64_MAX;
    key_member(&from, 2, &m, low);
    key_member(&to, 2, &last, high - 1);
    key_end(&to);
    struct kv_iter *it = kv_iter_new(f->x->s->kv, NULL, KV_COARSE, key_str(&from), key_str(&to));
    for (size_t i = 0; low < high && i < f->m->series_len; i++) {
        m.series = f->m->series[i];
        key_member(&from, 2, &m, low);
        kv_iter_seek(it, key_str(&from));
        for (; kv_iter_valid(it); kv_iter_next(it)) {
            struct str key = kv_iter_key(it);
            if (memcmp(key.ptr, from.b, KEY_MEMBER_HEAD) != 0)
                break;
            uint32_t t = get_u32be(key.ptr + KEY_MEMBER_HEAD);
            if (t >= high)
                break;
            *ret = (struct found_node){ true, t };
            low = t + NODE; /* only later nodes are of interest */
        }
    }
    rc = kv_iter_status(it, e);
    kv_iter_free(it);
    return rc;
}

/* The same, over any number of buckets: from the last one down. */
static int find_last(const struct fix *f, const struct member *m, uint32_t low, uint32_t high,
                     struct found_node *ret, struct err *e)
{
    uint32_t width = LEVELS[2].bucket;
    int rc = 0;

    *ret = (struct found_node){ 0 };
    for (uint32_t end = high; !rc && !ret->any && end > low;) {
        uint32_t begin = MAX(low, (end - 1) - (end - 1) % width);
        rc = last_in_bucket(f, *m, begin, end, ret, e);
        end = begin;
    }
    return rc;
}

/* ---- until it is there ---- */

static int first_dirty(const struct fix *f, const struct member *m, uint32_t from, uint32_t to,
                       struct found_node *ret, struct err *e)
{
    struct member at;
    struct key a, z;
    uint32_t level;
    int rc;

    key_dirty(&a, m, 2, from);
    key_dirty(&z, m, 2, to);
    struct kv_iter *it = kv_iter_new(f->x->s->kv, NULL, KV_META, key_str(&a), key_str(&z));
    ret->any = kv_iter_valid(it);
    rc = kv_iter_status(it, e);
    if (!rc && ret->any && !key_dirty_read(kv_iter_key(it), &at, &level, &ret->t))
        rc = err_set(e, ERR_CORRUPT, "mark key of %zu bytes", kv_iter_key(it).len);
    kv_iter_free(it);
    return rc;
}

/* The first slot of the first day with data. */
static int first_slot(struct fix *f, const struct member *m, uint32_t *ret, struct err *e)
{
    struct days d;
    struct key k;

    *ret = 0;
    key_active(&k, m->tenant, m->scope, m->ptype);
    int rc = kv_get(f->x->s->kv, NULL, KV_META, key_str(&k), &f->row, e);
    if (!rc)
        rc = days_read(buf_str(&f->row), &d, e);
    if (!rc)
        *ret = (uint32_t)d.first * DAY_SLOTS;
    return rc == ERR_NOT_FOUND ? 0 : rc;
}

static int raise_to(struct fix *f, const struct member *m, const struct floors *now, uint32_t to,
                    struct err *e)
{
    struct floor_move x = { .m = *m, .cur = *now, .to = *now };
    uint32_t width = LEVELS[1].bucket;

    if (first_slot(f, m, &x.first, e))
        return e->code;
    uint32_t from = MAX(now->at[1], MIN(x.first, to));
    if ((to - from) / width > BUCKETS_MAX)
        to = from - from % width + BUCKETS_MAX * width;
    x.to.at[1] = to;
    purge_count(f->x, (to - from) / width + 1, 0);
    return retain_raise(f->x->s, &x, e);
}

/* ---- rows below floors ---- */

/* Deletes the points below the floor from the row that the floor is inside. */
static int cut_row(struct fix *f, const struct retain_run *run, uint32_t level, uint32_t floor,
                   const struct member *m, struct err *e)
{
    uint32_t t = floor - floor % run->chunk, width = LEVELS[level].tl_point;
    size_t n = 0;
    struct key k;

    retain_key(&k, run, floor / run->bucket, m, t);
    int rc = kv_get(f->x->s->kv, NULL, KV_TL, key_str(&k), &f->row, e);
    if (!rc)
        rc = timeline_row_decode(buf_str(&f->row), run->chunk / width, &f->tl, e);
    if (rc)
        return rc == ERR_NOT_FOUND ? 0 : rc;
    vec_for (i, &f->tl.points)
        if (t + f->tl.points.ptr[i].point * width >= floor)
            f->tl.points.ptr[n++] = f->tl.points.ptr[i];
    if (n == f->tl.points.len)
        return 0;
    if (n) {
        tl_encode(f->tl.points.ptr, n, &f->row);
        kv_batch_put(f->x->b, KV_TL, key_str(&k), buf_str(&f->row));
    } else {
        kv_batch_del(f->x->b, KV_TL, key_str(&k));
    }
    purge_count(f->x, 1, k.len);
    return 0;
}

/* Deletes the rows below the floor in the bucket that the floor is inside. */
static int drop_run(struct fix *f, const struct retain_run *run, uint32_t level, uint32_t floor,
                    struct member m, struct err *e)
{
    uint32_t bucket = floor / run->bucket, end = floor - floor % run->chunk;
    struct key from, to;
    int rc = 0;

    retain_prefix(&from, run, bucket, &m);
    to = from;
    key_end(&to);
    struct kv_iter *it = kv_iter_new(f->x->s->kv, NULL, run->cf, key_str(&from), key_str(&to));
    while (!rc && kv_iter_valid(it) && kv_iter_key(it).len >= KEY_MEMBER_LEN) {
        struct str key = kv_iter_key(it);
        m.series = get_u64be(key.ptr + 15);
        bool below = get_u32be(key.ptr + KEY_MEMBER_HEAD) < end;
        if (below) {
            retain_key(&from, run, bucket, &m, 0);
            retain_key(&to, run, bucket, &m, end);
            kv_batch_del_range(f->x->b, run->cf, key_str(&from), key_str(&to));
            purge_count(f->x, 1, key.len + kv_iter_value(it).len);
            purge_touch(f->x, run->cf, run->first, bucket);
        }
        if (run->cf == KV_TL)
            rc = cut_row(f, run, level, floor, &m, e);
        if (++m.series == 0)
            break;
        retain_key(&from, run, bucket, &m, 0);
        kv_iter_seek(it, key_str(&from));
    }
    if (!rc)
        rc = kv_iter_status(it, e);
    kv_iter_free(it);
    return rc;
}

static int drop_below(struct fix *f, const struct member *m, const struct floors *fl, struct err *e)
{
    struct retain_run runs[RETAIN_RUNS];

    for (uint32_t level = 0; level < KEY_LEVELS; level++) {
        size_t n = retain_runs(level, runs);
        for (size_t i = 0; fl->at[level] && i < n; i++) {
            bool group = runs[i].cf == KV_RU || runs[i].cf == KV_FN ||
                         (runs[i].cf == KV_TL && runs[i].first == (level | KEY_TL_GROUP));
            if (group && drop_run(f, &runs[i], level, fl->at[level], *m, e))
                return e->code;
        }
    }
    return 0;
}

/* ---- the stage ---- */

/* Does one step for a service and type; *ret_done: nothing is left to do for it. */
static int do_type(struct fix *f, const struct member *m, bool *ret_done, struct err *e)
{
    uint32_t since = MIN(f->g.since[GROUP_WHOLE], f->g.since[GROUP_BASE]);
    struct found_node last = { 0 }, dirty;
    struct floors now;

    *ret_done = false;
    if (floors_get(f->x->s, m, &now, e))
        return e->code;
    uint32_t low = MAX(MAX(now.at[1], f->m->from), since), high = MIN(now.at[0], f->m->to);
    if (f->g.rules && low < high && find_last(f, m, low, high, &last, e))
        return e->code;
    if (!last.any) {
        *ret_done = true;
        return drop_below(f, m, &now, e);
    }
    f->x->full = true;
    if (first_dirty(f, m, now.at[1], last.t + NODE, &dirty, e))
        return e->code;
    if (!dirty.any)
        return raise_to(f, m, &now, last.t + NODE, e);
    purge_count(f->x, 1, 0);
    dirty_clean(f->x->s, f->x->b, m, 2, dirty.t);
    return rollup_build2(f->x->s, m, dirty.t, true, f->x->b, e);
}

/* Moves p->ptype to the next type with floors, itself included; above 65,535: not found. */
static int next_type(const struct fix *f, struct fix_place *p, struct err *e)
{
    struct key from, to;
    int rc;

    key_floors(&from, f->x->t->tenant, f->m->scope, (uint16_t)p->ptype);
    to = from;
    to.len -= 2;
    key_end(&to);
    struct kv_iter *it = kv_iter_new(f->x->s->kv, NULL, KV_META, key_str(&from), key_str(&to));
    p->ptype = UINT16_MAX + 1u;
    if (kv_iter_valid(it) && kv_iter_key(it).len == from.len)
        p->ptype = get_u16be(kv_iter_key(it).ptr + from.len - 2);
    rc = kv_iter_status(it, e);
    kv_iter_free(it);
    return rc;
}

int fix_floors(struct fix *f, struct fix_place *p, bool *ret_done, struct err *e)
{
    int rc = 0;

    while (!rc && !f->x->full) {
        bool done = true;
        if (p->ptype <= UINT16_MAX && next_type(f, p, e))
            return e->code;
        if (p->ptype > UINT16_MAX) {
            *ret_done = true;
            return 0;
        }
        struct member m = { f->x->t->tenant, f->m->scope, (uint16_t)p->ptype, 0 };
        if (mask_has_type(f->m, m.ptype))
            rc = do_type(f, &m, &done, e);
        p->ptype += !rc && done;
    }
    return rc;
}

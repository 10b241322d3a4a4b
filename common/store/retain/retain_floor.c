/* SPDX-License-Identifier: Apache-2.0
 *
 * retain_floor: how far the floors of one service and type may rise, and the batch that does it.
 */
#include "common/model/slot.h"
#include "common/store/ledger/ledger_counts.h"
#include "common/store/mask/tomb_list.h"
#include "common/store/retain/retain_state.h"
#include "common/store/state/commit.h"
#include "common/store/state/store_impl.h"

#define PARTS_MAX   64 /* looked at in a step */
#define BUCKETS_MAX 64 /* deleted of a level in a batch */

/* ---- rows by kind and level ---- */

size_t retain_runs(uint32_t level, struct retain_run ret[RETAIN_RUNS])
{
    const struct key_level *l = &LEVELS[level];
    const struct key_level presence = { .bucket = 256 * DAY_SLOTS, .tl_chunk = DAY_SLOTS };
    uint8_t b = (uint8_t)level;
    size_t n = 0;

    ret[n++] = (struct retain_run){ level < 2 ? KV_FINE : KV_COARSE, b, l->bucket, l->node };
    ret[n++] = (struct retain_run){ KV_RU, b, l->bucket, l->node };
    if (level >= 2)
        ret[n++] = (struct retain_run){ KV_FN, b, l->bucket, l->node };
    ret[n++] = (struct retain_run){ KV_TL, b, l->bucket, l->tl_chunk };
    ret[n++] = (struct retain_run){ KV_TL, b | KEY_TL_GROUP, l->bucket, l->tl_chunk };
    if (level < KEY_LEVELS - 1)
        return n;
    /* Where gauges had data is of no level, and kept as long as any. */
    ret[n++] = (struct retain_run){ KV_TL, KEY_TL_PRESENCE, presence.bucket, presence.tl_chunk };
    ret[n++] = (struct retain_run){ KV_TL, KEY_TL_PRESENCE | KEY_TL_GROUP, presence.bucket,
                                    presence.tl_chunk };
    return n;
}

void retain_prefix(struct key *k, const struct retain_run *run, uint32_t bucket,
                   const struct member *m)
{
    k->b[0] = (char)run->first;
    put_u32be(k->b + 1, bucket);
    put_u32be(k->b + 5, m->tenant);
    put_u32be(k->b + 9, m->scope);
    put_u16be(k->b + 13, m->ptype);
    k->len = RETAIN_PREFIX;
}

void retain_key(struct key *k, const struct retain_run *run, uint32_t bucket,
                const struct member *m, uint32_t t)
{
    retain_prefix(k, run, bucket, m);
    put_u64be(k->b + RETAIN_PREFIX, m->series);
    put_u32be(k->b + RETAIN_PREFIX + 8, t);
    k->len = RETAIN_PREFIX + 12;
}

/* ---- services and types ---- */

int retain_next_part(struct store *s, struct member *m, uint32_t *ret_first_slot, bool *ret_found,
                     struct err *e)
{
    struct key from = s->retain->cursor, to = { .len = 1, .b = { KEY_ACTIVE } };
    struct days days;
    int rc;

    if (!from.len)
        from = to;
    key_end(&to);
    struct kv_iter *it = kv_iter_new(s->kv, NULL, KV_META, key_str(&from), key_str(&to));
    *ret_found = kv_iter_valid(it);
    rc = kv_iter_status(it, e);
    if (!rc && *ret_found) {
        struct str key = kv_iter_key(it);

        if (key.len != KEY_ACTIVE_LEN)
            rc = err_set(e, ERR_CORRUPT, "activity key of %zu bytes", key.len);
        else
            rc = days_read(kv_iter_value(it), &days, e);
        if (!rc) {
            *m = (struct member){ .tenant = get_u32be(key.ptr + 1),
                                  .scope = get_u32be(key.ptr + 5),
                                  .ptype = (uint16_t)get_u16be(key.ptr + 9) };
            *ret_first_slot = days.first * (uint32_t)DAY_SLOTS;
            memcpy(from.b, key.ptr, key.len);
            from.b[key.len] = 0; /* the least key behind it */
            from.len = key.len + 1;
            s->retain->cursor = from;
        }
    }
    kv_iter_free(it);
    return rc;
}

void retain_purged_key(struct key *k, const struct member *m)
{
    key_floors(k, m->tenant, m->scope, m->ptype);
    k->b[0] = KEY_PURGED;
}

/* How long the policy keeps a service and type, by their names. */
static int keep_of(struct store *s, const struct member *m, struct retain_keep *ret, struct err *e)
{
    struct str tenant = STR_NULL, service = STR_NULL, type = STR_NULL;
    struct buf texts[3];
    struct tenant_row row;
    uint32_t epoch;
    bool gauge;
    struct key k;
    int rc = 0;

    if (!retain_policy_rules(s->retain->policy)) {
        *ret = retain_policy_keep(s->retain->policy, tenant, service, type);
        return 0;
    }
    for (size_t i = 0; i < 3; i++)
        buf_init(&texts[i], MIB);
    key_tenant(&k, m->tenant);
    rc = kv_get(s->kv, NULL, KV_META, key_str(&k), &texts[0], e);
    if (!rc)
        rc = tenant_row_read(buf_str(&texts[0]), &row, e);
    if (!rc) {
        tenant = row.name;
        key_scope(&k, m->tenant, m->scope);
        rc = kv_get(s->kv, NULL, KV_META, key_str(&k), &texts[1], e);
    }
    if (!rc)
        rc = scope_row_read(buf_str(&texts[1]), &epoch, &service, e);
    if (!rc) {
        key_ptype(&k, m->tenant, m->ptype);
        rc = kv_get(s->kv, NULL, KV_META, key_str(&k), &texts[2], e);
    }
    if (!rc)
        rc = ptype_row_read(buf_str(&texts[2]), &gauge, &type, e);
    if (rc == ERR_NOT_FOUND) { /* deleted, but for its activity */
        *ret = retain_policy_default(s->retain->policy);
        rc = 0;
    } else if (!rc) {
        *ret = retain_policy_keep(s->retain->policy, tenant, service, type);
    }
    for (size_t i = 0; i < 3; i++)
        buf_deinit(&texts[i]);
    return rc;
}

/* ---- how far ---- */

/* Lowers *to to the begin of the first dirty node of `level` that begins before it and ends behind
 * `from`. */
static int lower_to_mark(struct store *s, const struct member *m, uint32_t level, uint32_t from,
                         uint32_t *to, struct err *e)
{
    struct key a, z;
    struct member got;
    uint32_t l, t;
    int rc;

    key_dirty(&a, m, level, node_of(level, from));
    key_dirty(&z, m, level, *to);
    struct kv_iter *it = kv_iter_new(s->kv, NULL, KV_META, key_str(&a), key_str(&z));
    rc = kv_iter_status(it, e);
    if (!rc && kv_iter_valid(it)) {
        if (key_dirty_read(kv_iter_key(it), &got, &l, &t))
            *to = t;
        else
            rc = err_set(e, ERR_CORRUPT, "mark key of %zu bytes", kv_iter_key(it).len);
    }
    kv_iter_free(it);
    return rc;
}

/* Sets x->to. Below the wanted floor of the coarsest level no row is kept, whether its parents are
 * built or not. Above that floor the next level must be clean up to the new floor. One batch
 * deletes at most BUCKETS_MAX buckets of a level. */
static int advance(struct store *s, struct floor_move *x, struct err *e)
{
    const struct floors *cur = &x->cur;
    struct floors new = *cur;
    uint32_t gone = x->want.at[KEY_LEVELS - 1];

    for (uint32_t l = 0; l < KEY_LEVELS; l++) {
        const struct key_level *level = &LEVELS[l];
        uint32_t next = l == 0 ? 2 : l + 1, to = x->want.at[l];

        if (l)
            to = MIN(to, new.at[l - 1]);
        if (to <= cur->at[l])
            continue;
        uint32_t from = MAX(cur->at[l], MIN(x->first - x->first % level->bucket, to));
        if ((to - from) / level->bucket > BUCKETS_MAX)
            to = from - from % level->bucket + BUCKETS_MAX * level->bucket;
        if (next < KEY_LEVELS && to > gone) {
            uint32_t clean = to;
            if (lower_to_mark(s, &x->m, next, MAX(cur->at[l], gone), &clean, e))
                return e->code;
            if (clean < to)
                s->retain->stats.held_back++;
            to = MAX(MIN(clean, to), MIN(gone, to));
        }
        new.at[l] = MAX(cur->at[l], to);
    }
    floors_align(&new);
    for (uint32_t l = 0; l < KEY_LEVELS; l++)
        CHECK(new.at[l] >= cur->at[l]);
    x->to = new;
    return 0;
}

/* ---- the batch ---- */

static int delete_bucket(struct store *s, const struct retain_run *run, uint32_t bucket,
                         const struct member *m, struct kv_batch *b, struct err *e)
{
    struct key from, to;
    int rc;

    retain_prefix(&from, run, bucket, m);
    to = from;
    key_end(&to);
    /* Only if rows exist: a range delete over no rows would still slow down every reader. */
    struct kv_iter *it = kv_iter_new(s->kv, NULL, run->cf, key_str(&from), key_str(&to));
    bool any = kv_iter_valid(it);
    rc = kv_iter_status(it, e);
    kv_iter_free(it);
    if (rc || !any)
        return rc;
    kv_batch_del_range(b, run->cf, key_str(&from), key_str(&to));
    s->retain->stats.ranges_deleted++;
    return 0;
}

/* Deletes the rows that the floor of the level passes, by whole buckets. */
static int delete_buckets(struct store *s, const struct floor_move *x, uint32_t level,
                          struct kv_batch *b, struct err *e)
{
    uint32_t from = x->cur.at[level], to = x->to.at[level];
    struct retain_run runs[RETAIN_RUNS];
    size_t n = retain_runs(level, runs);

    for (size_t i = 0; i < n; i++) {
        uint32_t begin = MAX(from, MIN(x->first, to)) / runs[i].bucket;

        for (uint32_t k = begin; k < to / runs[i].bucket; k++)
            if (delete_bucket(s, &runs[i], k, &x->m, b, e))
                return e->code;
        /* Rows of the bucket that the floor is inside: retain_trim.c deletes those wholly below. */
        if (to % runs[i].bucket >= runs[i].chunk)
            s->retain->purge = true;
    }
    return 0;
}

int retain_raise(struct store *s, const struct floor_move *x, struct err *e)
{
    const struct floors *cur = &x->cur, *to = &x->to;
    const struct member *m = &x->m;
    struct kv_batch *b = kv_batch_new();
    struct key from, end;
    int rc = 0;

    floors_put(b, m, to);
    for (uint32_t l = 0; !rc && l < KEY_LEVELS; l++)
        if (to->at[l] > cur->at[l])
            rc = delete_buckets(s, x, l, b, e);
    /* Nothing is built any more below the coarsest floor. */
    for (uint32_t l = DIRTY_FIRST; !rc && l < KEY_LEVELS; l++) {
        key_dirty(&from, m, l, 0);
        key_dirty(&end, m, l, to->at[KEY_LEVELS - 1]);
        if (to->at[KEY_LEVELS - 1] > cur->at[KEY_LEVELS - 1])
            kv_batch_del_range(b, KV_META, key_str(&from), key_str(&end));
    }
    if (!rc)
        rc = ledger_expire(s, m, to, x->want.at[KEY_LEVELS - 1], b, e);
    if (!rc)
        rc = store_write_batch(s, b, false, e);
    floors_forget(s, m);
    if (!rc)
        s->retain->stats.floors_moved++;
    kv_batch_free(b);
    return rc;
}

/* Moves the slot before which queries get no data. Only reads use it, so it waits for no build.
 * While deletes are purged it stays, as floors do. */
static int raise_end(struct store *s, const struct member *m, uint32_t to, struct err *e)
{
    uint32_t now;

    if (tombs_pending_on(s, m->tenant, m->scope))
        return 0;
    int rc = floors_end_load(s->kv, NULL, m, &now, e);
    if (rc || to <= now)
        return rc;
    struct kv_batch *b = kv_batch_new();
    floors_end_put(b, m, to);
    rc = store_write_batch(s, b, false, e);
    kv_batch_free(b);
    return rc;
}

int retain_floor_step(struct store *s, size_t rows_max, bool *ret_done, struct err *e)
{
    struct retain *r = s->retain;
    size_t max = MIN(rows_max, (size_t)PARTS_MAX);

    *ret_done = false;
    for (size_t i = 0; i < max; i++) {
        struct key before = r->cursor;
        struct floor_move x;
        struct retain_keep keep;
        bool found;

        if (retain_next_part(s, &x.m, &x.first, &found, e))
            return e->code;
        if (!found) {
            *ret_done = true;
            return 0;
        }
        if (floors_load(s->kv, NULL, &x.m, &x.cur, e) || keep_of(s, &x.m, &keep, e) ||
            raise_end(s, &x.m, retain_end(&keep, r->engine_ms), e))
            return e->code;
        retain_floors(&keep, r->engine_ms, &x.want);
        if (tombs_pending_on(s, x.m.tenant, x.m.scope))
            x.want = x.cur; /* masks end where nodes of today's floors do */
        if (advance(s, &x, e))
            return e->code;
        r->walk_first = MIN(r->walk_first, x.first);
        bool moved = memcmp(&x.to, &x.cur, sizeof(x.to)) != 0;
        if (moved && retain_raise(s, &x, e))
            return e->code;
        if (moved) { /* the floors may rise further: the next step continues with this one */
            r->cursor = before;
            return 0;
        }
        for (uint32_t l = 0; l < KEY_LEVELS; l++)
            r->walk_low[l] = MIN(r->walk_low[l], x.to.at[l]);
    }
    return 0;
}

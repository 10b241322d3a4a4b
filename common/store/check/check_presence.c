/* SPDX-License-Identifier: Apache-2.0
 *
 * check_presence: when gauges had data (presence.h), which answers are divided by.
 *
 *   rows      sound; each belongs to a series that exists
 *   leaves    where leaves of series are kept, a series has vectors in exactly the leaves of its
 *             row
 *   groups    the groups of a dimension have data in exactly the leaves in which series have, from
 *             where the dimension begins
 *
 * Rows stand by (bucket of 256 days, service, type), series or group, day. The last rule adds them
 * up by day: three sums of 1 KB for each day of the bucket.
 */
#include "common/base/mem.h"
#include "common/base/wr.h"
#include "common/store/catalog/group.h"
#include "common/store/check/check_impl.h"
#include "common/store/query/cover.h"
#include "common/store/state/floors.h"
#include "common/store/state/presence.h"
#include "common/store/state/store_impl.h"
#include "common/store/state/view.h"

#define DAYS (KEY_PRESENCE_BUCKET / DAY_SLOTS)

struct gauge { /* of one service and type, in one bucket */
    struct member m;
    uint32_t bucket;
    struct floors floors;
    struct group_service groups;
    struct presence members[DAYS], dims[GROUP_DIMS][DAYS];
    bool away; /* some rows of the part are remote and were skipped */
};

static int wrong(struct err *e, const struct member *m, uint32_t t, const char *what)
{
    return err_set(e, ERR_CORRUPT, "slot %u, service %u, type %u, %016" PRIx64 ": %s", t, m->scope,
                   m->ptype, m->series, what);
}

/* ---- a row of a series against its leaves ---- */

static int read_leaves(struct check *c, const struct member *m, uint32_t day, struct presence *ret,
                       struct err *e)
{
    int rc = 0;

    for (uint32_t t = day; !rc && t < day + DAY_SLOTS;) {
        uint32_t end = MIN(day + DAY_SLOTS, t - t % LEVELS[0].bucket + LEVELS[0].bucket);
        struct key from, to;
        key_member(&from, 0, m, t);
        key_member(&to, 0, m, end - 1);
        key_end(&to);
        struct kv_iter *it =
            kv_iter_new(c->v->kv, c->v->snap, KV_FINE, key_str(&from), key_str(&to));
        for (; kv_iter_valid(it); kv_iter_next(it)) {
            uint32_t leaf = get_u32be(kv_iter_key(it).ptr + KEY_MEMBER_HEAD);
            presence_set(ret, (leaf - day) / LEAF_SLOTS);
        }
        rc = kv_iter_status(it, e);
        kv_iter_free(it);
        t = end;
    }
    return rc;
}

static int check_leaves(struct check *c, const struct gauge *x, const struct member *m,
                        uint32_t day, const struct presence *p, struct err *e)
{
    struct presence have = { { 0 } };

    if (day + DAY_SLOTS <= x->floors.at[0])
        return 0;
    int rc = read_leaves(c, m, day, &have, e);
    for (uint32_t leaf = 0; !rc && leaf < PRESENCE_LEAVES; leaf++) {
        uint32_t t = day + leaf * LEAF_SLOTS;
        if (t < x->floors.at[0] || presence_has(&have, leaf) == presence_has(p, leaf))
            continue;
        rc = wrong(e, m, t,
                   presence_has(p, leaf) ? "it has no leaf where it had data"
                                         : "its leaf is not noted as data");
    }
    return rc;
}

/* ---- all rows of a part ---- */

static void add(struct presence *to, const struct presence *p)
{
    for (size_t i = 0; i < PRESENCE_WORDS; i++)
        to->bits[i] |= p->bits[i];
}

static int on_row(struct check *c, struct gauge *x, bool group, struct str key, struct str value,
                  struct err *e)
{
    uint32_t flags, level, t;
    struct presence p;
    struct member m;

    if (!key_tl_read(key, &flags, &level, &m, &t) || t % DAY_SLOTS ||
        (group && GID_DIM(m.series) >= GROUP_DIMS))
        return err_set(e, ERR_CORRUPT, "key of %zu bytes", key.len);
    if (presence_decode(value, &p, e))
        return err_wrap(e, "slot %u, service %u, %016" PRIx64, t, m.scope, m.series);
    uint32_t day = t % KEY_PRESENCE_BUCKET / DAY_SLOTS;
    if (group) {
        add(&x->dims[GID_DIM(m.series)][day], &p);
        return 0;
    }
    add(&x->members[day], &p);
    int rc = check_member(c, &m, t, DAY_SLOTS, e);
    return rc ? rc : check_leaves(c, x, &m, t, &p, e);
}

static void part_keys(const struct gauge *x, bool group, struct key *from, struct key *to)
{
    struct member low = x->m, high = x->m;
    uint32_t flags = KEY_TL_PRESENCE | (group ? KEY_TL_GROUP : 0);
    uint32_t first = x->bucket * KEY_PRESENCE_BUCKET;

    low.series = 0;
    high.series = UINT64_MAX;
    key_tl(from, flags, 0, &low, first);
    key_tl(to, flags, 0, &high, first + (KEY_PRESENCE_BUCKET - DAY_SLOTS));
    key_end(to);
}

static int read_part(struct check *c, struct gauge *x, bool group, bool *ret_any, struct err *e)
{
    struct key from, to;
    int rc = 0;

    part_keys(x, group, &from, &to);
    check_here();
    struct kv_iter *it = kv_iter_new(c->v->kv, c->v->snap, KV_TL, key_str(&from), key_str(&to));
    x->away |= check_is_away();
    *ret_any = kv_iter_valid(it);
    for (; !rc && kv_iter_valid(it); kv_iter_next(it)) {
        rc = check_row(c, e);
        if (!rc)
            rc = check_found(c, on_row(c, x, group, kv_iter_key(it), kv_iter_value(it), e), e);
    }
    if (!rc)
        rc = kv_iter_status(it, e);
    kv_iter_free(it);
    return rc;
}

/* ---- groups against series ---- */

/* Do groups of the dimension hold all data of this leaf? As the seal decides it (rollup_seal.c): by
 * the node that is the base there. */
static bool held(const struct gauge *x, uint32_t dim, uint32_t t)
{
    uint32_t base = floors_base(&x->floors, true, t);

    return x->groups.rules && base != FLOORS_GONE && x->groups.since[dim] != GROUP_NEVER &&
           node_of(MAX(base, 1u), t) >= x->groups.since[dim];
}

static int compare_day(struct check *c, const struct gauge *x, uint32_t dim, uint32_t i,
                       struct err *e)
{
    const struct presence *m = &x->members[i], *g = &x->dims[dim][i];
    uint32_t day = x->bucket * KEY_PRESENCE_BUCKET + i * DAY_SLOTS;

    if (!memcmp(m, g, sizeof(*m)))
        return 0;
    for (uint32_t leaf = 0; leaf < PRESENCE_LEAVES; leaf++) {
        uint32_t t = day + leaf * LEAF_SLOTS;
        if (presence_has(m, leaf) == presence_has(g, leaf) || !held(x, dim, t))
            continue;
        return check_found(c,
                           err_set(e, ERR_CORRUPT,
                                   "slot %u, service %u, type %u: %s of dimension %u", t,
                                   x->m.scope, x->m.ptype,
                                   presence_has(m, leaf) ? "series had data there, not the groups"
                                                         : "no series had data there, but groups",
                                   dim),
                           e);
    }
    return 0;
}

static int check_part(struct check *c, struct gauge *x, struct err *e)
{
    bool members, groups;

    x->away = false;

    memset(x->members, 0, sizeof(x->members));
    memset(x->dims, 0, sizeof(x->dims));
    if (purging_has(&c->purging, x->m.tenant, x->m.scope))
        return 0;
    if (floors_load(c->v->kv, c->v->snap, &x->m, &x->floors, e) ||
        group_service_get(c->v->kv, c->v->snap, x->m.tenant, x->m.scope, &x->groups, e))
        return check_found(c, e->code, e);
    int rc = read_part(c, x, false, &members, e);
    if (!rc)
        rc = read_part(c, x, true, &groups, e);
    check_here();
    c->report->left_out += x->away;
    for (uint32_t dim = 0; !rc && !x->away && dim < GROUP_DIMS; dim++)
        for (uint32_t i = 0; !rc && i < DAYS; i++)
            rc = compare_day(c, x, dim, i, e);
    return rc;
}

/* ---- the whole ---- */

/* Parts with rows of series; or those with rows of groups alone. */
static int check_parts(struct check *c, struct gauge *x, bool group, struct err *e)
{
    uint32_t lead = KEY_TL_PRESENCE | (group ? KEY_TL_GROUP : 0), flags, level, t;
    struct key k = { .len = 1, .b = { (char)lead } }, end = k, from, to;
    int rc = 0;

    key_end(&end);
    struct kv_iter *it = kv_iter_new(c->v->kv, c->v->snap, KV_TL, key_str(&k), key_str(&end));
    while (!rc && kv_iter_valid(it)) {
        if (!key_tl_read(kv_iter_key(it), &flags, &level, &x->m, &t)) {
            rc =
                check_found(c, err_set(e, ERR_CORRUPT, "key of %zu bytes", kv_iter_key(it).len), e);
            kv_iter_next(it);
            continue;
        }
        x->bucket = t / KEY_PRESENCE_BUCKET;
        bool both = false;
        if (group) {
            part_keys(x, false, &from, &to);
            struct kv_iter *other =
                kv_iter_new(c->v->kv, c->v->snap, KV_TL, key_str(&from), key_str(&to));
            both = kv_iter_valid(other);
            rc = kv_iter_status(other, e);
            kv_iter_free(other);
        }
        if (!rc && !both)
            rc = check_part(c, x, e);
        part_keys(x, group, &from, &to);
        kv_iter_seek(it, key_str(&to));
    }
    check_here();
    if (!rc)
        rc = check_found(c, kv_iter_status(it, e), e);
    kv_iter_free(it);
    return rc;
}

int check_presence(struct check *c, struct err *e)
{
    if (c->v->s->format < 2)
        return 0;
    struct gauge *x = XNEW(struct gauge);
    check_begin(c, CHECK_PRESENCE);
    int rc = check_parts(c, x, false, e);
    if (!rc)
        rc = check_parts(c, x, true, e);
    xfree(x);
    return rc;
}

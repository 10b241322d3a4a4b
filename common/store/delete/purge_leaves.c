/* SPDX-License-Identifier: Apache-2.0
 *
 * purge_leaves: corrects the leaves in which gauges of a group had data, when members are deleted.
 *
 * Bits cannot be subtracted like sums: a leaf stays if a remaining member had data in it. So the
 * leaves of all remaining members are read, for one day at a time, and are kept in memory until the
 * day is finished. A large service has many members, so reading takes several steps. Seals between
 * these steps are not lost: a seal reports which leaves it marks (tl_rows_watch), and these are
 * added at the end of reading. The leaves that are then cleared are those of deleted series without
 * those of remaining members. Clearing them twice changes nothing.
 *
 * The rows of the deleted series stay until a later phase deletes them. A delete of a range may
 * cover only part of a day, and then only those leaves are cut out of the row (cut_presence in
 * purge_rows.c).
 *
 * The last stage is here, too: it forgets to which groups the deleted series belonged.
 */
#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/store/catalog/series.h"
#include "common/store/delete/purge.h"
#include "common/store/state/presence.h"
#include "common/store/state/store_impl.h"
#include "common/store/store.h"

#define NEWS_MAX 1000000

struct news { /* became marked since it may have been read */
    uint64_t series;
    uint32_t t;
};
struct fix_left { /* of a day, by group: leaves in which a member has data */
    struct member part;
    uint32_t mask, t;
    uint64_t next; /* series to read on from */
    bool read;     /* all of them */
    bool spoiled;  /* too many news: once more from the start */
    VEC(struct news) news;
    struct map_u64 at; /* gid -> index */
    VEC(struct presence) leaves;
};

static struct fix_left *left_new(void)
{
    struct fix_left *l = XNEW(struct fix_left);

    map_u64_init(&l->at);
    return l;
}

static void left_free(struct fix_left *l)
{
    map_u64_deinit(&l->at);
    vec_free(&l->leaves);
    vec_free(&l->news);
    xfree(l);
}

void fix_left_drop(struct fix *f)
{
    if (!f->survivors)
        return;
    tl_rows_watch(f->tl_rows, NULL, NULL);
    left_free(f->survivors);
    f->survivors = NULL;
}

static struct presence *leaves_of(struct fix_left *l, uint64_t gid)
{
    uint32_t at = map_u64_get(&l->at, gid);

    if (at == MAP_U64_EMPTY) {
        at = (uint32_t)l->leaves.len;
        vec_push(&l->leaves, ((struct presence){ { 0 } }));
        (void)map_u64_put(&l->at, gid, at);
    }
    return &l->leaves.ptr[at];
}

/* Adds leaves [from, to) of *more, as slots. */
static void add_leaves(struct presence *to_row, const struct presence *more, uint32_t day,
                       uint32_t from, uint32_t to)
{
    for (uint32_t leaf = 0; leaf < PRESENCE_LEAVES; leaf++) {
        uint32_t t = day + leaf * LEAF_SLOTS;
        if (t >= from && t < to && presence_has(more, leaf))
            presence_set(to_row, leaf);
    }
}

/* Adds a row of a series to those of its groups. */
static void add_row(const struct fix *f, struct fix_left *l, const struct presence *p,
                    const struct group_of *of, size_t n)
{
    uint32_t from, to;

    add_leaves(leaves_of(l, GID(GROUP_WHOLE, 0)), p, f->t, f->m->from, f->m->to);
    for (size_t i = 0; i < f->begins.len; i++) {
        fix_rule(f, i, &from, &to);
        uint64_t gid = fix_group_by(of, n, (uint32_t)i + 1);
        if (!gid || from >= to || from >= f->t + DAY_SLOTS || to <= f->t)
            continue;
        add_leaves(leaves_of(l, gid), p, f->t, MAX(from, f->m->from), MIN(to, f->m->to));
    }
}

/* ---- those who are left ---- */

/* Does the delete mean this series? Its masks say the same of time and types. */
static bool is_deleted(const struct fix *f, uint64_t series)
{
    uint32_t t = MAX(f->t, f->m->from);

    return masks_hide(&f->x->t->masks, f->part.scope, f->part.ptype, series, t);
}

static int add_survivor(struct fix *f, struct fix_left *l, uint64_t series,
                        const struct presence *p, struct err *e)
{
    struct group_of of[GROUP_RULES_MAX];
    size_t n = 0;
    struct key k;

    key_group_of(&k, f->part.tenant, f->part.scope, series);
    int rc = kv_get(f->x->s->kv, NULL, KV_META, key_str(&k), &f->row, e);
    if (!rc)
        rc = group_of_read(buf_str(&f->row), of, &n, e);
    if (rc && rc != ERR_NOT_FOUND)
        return rc;
    add_row(f, l, p, of, n);
    return 0;
}

/* Series from l->next on, as far as the step goes. */
static int read_survivors(struct fix *f, struct fix_left *l, struct err *e)
{
    struct member m = f->part, last = f->part;
    struct presence p;
    struct key k, end;
    int rc = 0;

    m.series = l->next;
    last.series = UINT64_MAX;
    key_tl(&k, KEY_TL_PRESENCE, 0, &m, f->t);
    key_tl(&end, KEY_TL_PRESENCE, 0, &last, f->t);
    key_end(&end);
    struct kv_iter *it = kv_iter_new(f->x->s->kv, NULL, KV_TL, key_str(&k), key_str(&end));
    while (!rc && !f->x->full && kv_iter_valid(it)) {
        m.series = get_u64be(kv_iter_key(it).ptr + 15);
        uint32_t t = get_u32be(kv_iter_key(it).ptr + KEY_MEMBER_HEAD);
        if (t == f->t && !is_deleted(f, m.series)) {
            rc = presence_decode(kv_iter_value(it), &p, e);
            if (!rc)
                rc = add_survivor(f, l, m.series, &p, e);
        }
        purge_count(f->x, 0, 0);
        l->read = t >= f->t && m.series == UINT64_MAX;
        if (l->read)
            break;
        m.series += t >= f->t;
        l->next = m.series;
        key_tl(&k, KEY_TL_PRESENCE, 0, &m, f->t);
        kv_iter_seek(it, key_str(&k));
    }
    if (!rc)
        rc = kv_iter_status(it, e);
    l->read = l->read || !kv_iter_valid(it);
    kv_iter_free(it);
    return rc;
}

/* Between the steps: a seal. */
static void on_news(void *cookie, const struct member *m, uint32_t t)
{
    struct fix_left *l = cookie;

    if (m->tenant != l->part.tenant || m->scope != l->part.scope || m->ptype != l->part.ptype ||
        t < l->t || t >= l->t + DAY_SLOTS)
        return;
    l->spoiled = l->spoiled || l->news.len == NEWS_MAX;
    if (!l->spoiled)
        vec_push(&l->news, ((struct news){ m->series, t }));
}

static int add_news(struct fix *f, struct fix_left *l, struct err *e)
{
    int rc = 0;

    for (size_t i = 0; !rc && i < l->news.len; i++) {
        const struct news *n = &l->news.ptr[i];
        struct presence p = { { 0 } };
        presence_set(&p, (n->t - f->t) / LEAF_SLOTS);
        if (!is_deleted(f, n->series))
            rc = add_survivor(f, l, n->series, &p, e);
    }
    l->news.len = 0;
    return rc;
}

int fix_survivors(struct fix *f, bool *ret_cut, struct err *e)
{
    struct fix_left *l = f->survivors;

    if (l && (l->spoiled || l->t != f->t || l->mask != f->mask || l->part.ptype != f->part.ptype)) {
        fix_left_drop(f);
        l = NULL;
    }
    if (!l) {
        l = f->survivors = left_new();
        l->part = f->part;
        l->mask = f->mask;
        l->t = f->t;
        tl_rows_watch(f->tl_rows, on_news, l);
    }
    int rc = l->read ? 0 : read_survivors(f, l, e);
    if (!rc && l->read)
        rc = add_news(f, l, e);
    if (rc)
        fix_left_drop(f);
    *ret_cut = !rc && !l->read;
    return rc;
}

/* ---- groups ---- */

/* Clears the leaves of the group that are in *gone and not in *left. NULL: no remaining member has
 * data. */
static int clear_group(struct fix *f, uint64_t gid, const struct presence *gone,
                       const struct presence *left, struct err *e)
{
    struct member m = f->part;
    struct presence p;
    bool any = false;
    struct key k;

    m.series = gid;
    key_tl(&k, KEY_TL_PRESENCE | KEY_TL_GROUP, 0, &m, f->t);
    int rc = kv_get(f->x->s->kv, NULL, KV_TL, key_str(&k), &f->row, e);
    if (!rc)
        rc = presence_decode(buf_str(&f->row), &p, e);
    if (rc)
        return rc == ERR_NOT_FOUND ? 0 : rc;
    for (size_t i = 0; i < PRESENCE_WORDS; i++) {
        p.bits[i] &= ~(gone->bits[i] & ~(left ? left->bits[i] : 0));
        any = any || p.bits[i];
    }
    if (any) {
        presence_encode(&p, &f->row);
        kv_batch_put(f->x->b, KV_TL, key_str(&k), buf_str(&f->row));
    } else {
        kv_batch_del(f->x->b, KV_TL, key_str(&k));
    }
    purge_touch(f->x, KV_TL, KEY_TL_PRESENCE | KEY_TL_GROUP, f->run.bucket);
    return 0;
}

static int clear_groups(struct fix *f, struct fix_left *gone, struct err *e)
{
    struct fix_gids gids;
    struct presence p;
    struct map_u64 done;
    int rc = 0;

    vec_for (i, &f->rows) {
        const struct fix_row *r = &f->rows.ptr[i];
        if (presence_decode(r->bytes, &p, e) ||
            fix_groups(f, r->index, f->t, f->t + DAY_SLOTS, &gids, e))
            return e->code;
        const struct fix_of *of = &f->of.ptr[r->index];
        add_row(f, gone, &p, f->groups.ptr + of->first, of->len);
    }
    map_u64_init(&done);
    vec_for (i, &f->rows) {
        rc = fix_groups(f, f->rows.ptr[i].index, f->t, f->t + DAY_SLOTS, &gids, e);
        for (size_t j = 0; !rc && j <= gids.len; j++) { /* the group of all series comes last */
            uint64_t gid = j < gids.len ? gids.at[j] : GID(GROUP_WHOLE, 0);
            uint32_t at = map_u64_get(&f->survivors->at, gid);
            if (map_u64_get(&done, gid) != MAP_U64_EMPTY)
                continue;
            (void)map_u64_put(&done, gid, 1);
            rc = clear_group(f, gid, leaves_of(gone, gid),
                             at == MAP_U64_EMPTY ? NULL : &f->survivors->leaves.ptr[at], e);
        }
        if (rc)
            break;
    }
    map_u64_deinit(&done);
    return rc;
}

int fix_presence(struct fix *f, struct err *e)
{
    if (!f->rows.len)
        return 0;
    struct fix_left *gone = left_new();
    int rc = clear_groups(f, gone, e);

    left_free(gone);
    return rc;
}

/* ---- groups of series that are gone ---- */

/* Does a mask that comes later name the series? Then it has to correct its groups, too. */
static bool needed_later(const struct fix *f, uint64_t series)
{
    const struct tombs *all = f->x->s->tombs;

    vec_for (i, &all->at) {
        const struct tomb *t = all->at.ptr[i];
        if (t->state != TOMB_PURGING || t->tenant != f->x->t->tenant)
            continue;
        for (size_t j = t == f->x->t ? f->mask + 1 : 0; j < t->masks.at.len; j++)
            if (t->masks.at.ptr[j].series_len &&
                mask_has_series(&t->masks.at.ptr[j], f->m->scope, series))
                return true;
    }
    return false;
}

static int forget(struct fix *f, struct str key, struct err *e)
{
    uint64_t series = get_u64be(key.ptr + key.len - 8);
    uint32_t ordinal;
    struct key k;

    purge_count(f->x, 1, 0);
    key_series(&k, f->x->t->tenant, f->m->scope, series);
    int rc = kv_get(f->x->s->kv, NULL, KV_META, key_str(&k), &f->row, e);
    if (rc && rc != ERR_NOT_FOUND)
        return rc;
    bool gone = rc || (key_u32_read(buf_str(&f->row), &ordinal) && ordinal == SERIES_RETIRED);
    if (gone && !needed_later(f, series))
        kv_batch_del(f->x->b, KV_META, key);
    return 0;
}

/* All of the service, since a delete of a range may mean all series and end some. */
int fix_forget(struct fix *f, struct fix_place *p, bool *ret_done, struct err *e)
{
    uint32_t tenant = f->x->t->tenant;
    struct key from, to;
    int rc = 0;

    key_group_of(&from, tenant, f->m->scope, (uint64_t)p->bucket << 32 | p->t);
    key_group_of(&to, tenant, f->m->scope, UINT64_MAX);
    key_end(&to);
    struct kv_iter *it = kv_iter_new(f->x->s->kv, NULL, KV_META, key_str(&from), key_str(&to));
    for (; !rc && !f->x->full && kv_iter_valid(it); kv_iter_next(it))
        rc = forget(f, kv_iter_key(it), e);
    if (!rc)
        rc = kv_iter_status(it, e);
    *ret_done = !rc && !kv_iter_valid(it);
    if (!rc && !*ret_done) {
        uint64_t next = get_u64be(kv_iter_key(it).ptr + kv_iter_key(it).len - 8);
        p->bucket = (uint32_t)(next >> 32);
        p->t = (uint32_t)next;
    }
    kv_iter_free(it);
    return rc;
}

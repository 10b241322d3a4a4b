/* SPDX-License-Identifier: Apache-2.0
 *
 * rollup_read: vectors of groups in a run of nodes, whatever rows hold them.
 *
 *   level 2..7   the row's vector; a list leads to the members' rows of that level
 *   level 1      the vectors of the row and of what came late
 *   level 0      per minute: ROLLED0: rows of level 0; else a list: the members' leaves
 *
 * One iterator per level goes forward over all groups. What lists lead to is read behind it, row by
 * row: a list has few members.
 */
#include "common/store/query/rollup_read.h"
#include "common/store/catalog/group.h"
#include "common/store/codec/raw.h"
#include "common/store/query/match.h"
#include "common/store/state/rollup_row.h"
#include "common/store/state/view.h"
#include "common/store/store.h"

#define ROW_MAX GIB

struct listed { /* a member whose row stands for a group's */
    size_t group;
    uint64_t series;
    uint32_t t; /* node, or minute */
};
struct reader {
    const struct rollup_read *r;
    uint32_t from, to;
    VEC(struct listed) members;
    VEC(struct listed) rolled; /* minutes that are ROLLED0; series unused */
    struct buf row;
};

/* ---- rows of ru ---- */

typedef int (*row_fn)(struct reader *x, size_t group, uint32_t t, struct str row, struct err *e);

struct piece { /* rows of a level with t in [from, to), all in one bucket */
    uint32_t level, from, to;
    row_fn fn; /* is called with each */
};

static int scan_group(struct reader *x, struct kv_iter *it, const struct piece *p, size_t group,
                      struct err *e)
{
    const struct rollup_read *r = x->r;
    struct member m = { r->tenant, r->scope, r->ptype, r->gids[group] }, row;
    uint32_t row_level, t, entry;
    struct key k;
    int rc = 0;

    key_ru(&k, p->level, &m, p->from);
    if (!kv_iter_valid(it) || str_cmp(kv_iter_key(it), key_str(&k)) < 0)
        kv_iter_seek(it, key_str(&k));
    for (; !rc && kv_iter_valid(it); kv_iter_next(it)) {
        if (!key_ru_read(kv_iter_key(it), &row_level, &row, &t, &entry))
            return err_set(e, ERR_CORRUPT, "key of a roll-up has %zu bytes", kv_iter_key(it).len);
        if (memcmp(kv_iter_key(it).ptr, k.b, KEY_MEMBER_HEAD) != 0 || t >= p->to)
            return 0;
        rc = store_check_canceled(r->cancel, e);
        if (!rc)
            rc = p->fn(x, group, t, kv_iter_value(it), e);
    }
    return rc ? rc : kv_iter_status(it, e);
}

static int scan_rows(struct reader *x, uint32_t level, uint32_t from, uint32_t to, row_fn fn,
                     struct err *e)
{
    const struct rollup_read *r = x->r;
    struct member first = { r->tenant, r->scope, r->ptype, r->gids[0] };
    struct member last = { r->tenant, r->scope, r->ptype, r->gids[r->len - 1] };
    uint32_t width = LEVELS[level].bucket;
    struct key k, end;
    int rc = 0;

    key_ru(&k, level, &first, from);
    key_ru(&end, level, &last, to - 1);
    key_end(&end);
    struct kv_iter *it = kv_iter_new(r->v->kv, r->v->snap, KV_RU, key_str(&k), key_str(&end));
    for (uint32_t at = from; !rc && at < to;) {
        uint32_t behind = MIN(to, at - at % width + width);
        struct piece p = { level, at, behind, fn };
        for (size_t i = 0; !rc && i < r->len; i++)
            rc = scan_group(x, it, &p, i, e);
        at = behind;
    }
    kv_iter_free(it);
    return rc;
}

/* ---- rows of members ---- */

static int give_member(struct reader *x, uint32_t level, const struct listed *l, uint32_t t,
                       bool must, struct err *e)
{
    const struct rollup_read *r = x->r;
    struct member m = { r->tenant, r->scope, r->ptype, l->series };
    struct key k;

    key_member(&k, level, &m, t);
    int rc = kv_get(r->v->kv, r->v->snap, level ? KV_COARSE : KV_FINE, key_str(&k), &x->row, e);
    if (rc == ERR_NOT_FOUND && !must)
        return 0;
    if (rc == ERR_NOT_FOUND)
        return err_set(e, ERR_CORRUPT,
                       "roll-up %016" PRIx64 " at slot %u of level %u lists series %016" PRIx64
                       ", which has no row",
                       r->gids[l->group], t, level, l->series);
    if (!rc)
        rc = store_check_canceled(r->cancel, e);
    return rc ? rc : r->fn(r->cookie, l->group, t, buf_str(&x->row), e);
}

static int by_listed(const void *a, const void *b)
{
    const struct listed *x = a, *y = b;

    if (x->t != y->t)
        return x->t < y->t ? -1 : 1;
    if (x->group != y->group)
        return x->group < y->group ? -1 : 1;
    return x->series < y->series ? -1 : x->series > y->series;
}

/* ---- level 1 and up ---- */

static int on_node(struct reader *x, size_t group, uint32_t t, struct str row, struct err *e)
{
    struct rollup_row u;

    if (rollup_row_read(row, &u, e))
        return e->code;
    if (u.vector.ptr)
        return x->r->fn(x->r->cookie, group, t, u.vector, e);
    for (size_t i = 0; i < u.len; i++)
        vec_push(&x->members, ((struct listed){ group, rollup_row_id(&u, i), t }));
    return 0;
}

static int read_nodes(struct reader *x, uint32_t level, struct err *e)
{
    int rc = scan_rows(x, level, x->from, x->to, on_node, e);

    for (size_t i = 0; !rc && i < x->members.len; i++)
        rc = give_member(x, level, &x->members.ptr[i], x->members.ptr[i].t, true, e);
    return rc;
}

/* ---- level 0 ---- */

static int on_minute(struct reader *x, size_t group, uint32_t t, struct str row, struct err *e)
{
    struct rollup_row u;

    if (rollup_row_read(row, &u, e))
        return e->code;
    if (u.rolled0) {
        vec_push(&x->rolled, ((struct listed){ group, 0, t }));
        return 0;
    }
    for (size_t i = 0; i < u.len; i++)
        vec_push(&x->members, ((struct listed){ group, rollup_row_id(&u, i), t }));
    return 0;
}

static bool is_rolled(const struct reader *x, size_t group, uint32_t t)
{
    struct listed want = { group, 0, t };

    return x->rolled.len &&
           bsearch(&want, x->rolled.ptr, x->rolled.len, sizeof(want), by_listed) != NULL;
}

static int on_leaf(struct reader *x, size_t group, uint32_t t, struct str row, struct err *e)
{
    struct rollup_row u;

    if (rollup_row_read(row, &u, e))
        return e->code;
    if (!u.vector.ptr)
        return err_set(e, ERR_CORRUPT, "a roll-up of level 0 at slot %u has no vector", t);
    return x->r->fn(x->r->cookie, group, t, u.vector, e);
}

static int read_leaves(struct reader *x, struct err *e)
{
    uint32_t minute = LEVELS[1].node;
    int rc = scan_rows(x, 1, x->from - x->from % minute, (x->to + minute - 1) / minute * minute,
                       on_minute, e);

    if (!rc && x->rolled.len) {
        qsort(x->rolled.ptr, x->rolled.len, sizeof(*x->rolled.ptr), by_listed);
        rc = scan_rows(x, 0, x->from, x->to, on_leaf, e);
    }
    if (x->members.len)
        qsort(x->members.ptr, x->members.len, sizeof(*x->members.ptr), by_listed);
    for (size_t i = 0; !rc && i < x->members.len; i++) {
        const struct listed *l = &x->members.ptr[i];
        if (is_rolled(x, l->group, l->t) || (i && !by_listed(l - 1, l)))
            continue;
        uint32_t end = MIN(x->to, l->t + minute);
        for (uint32_t t = MAX(x->from, l->t); !rc && t < end; t += LEAF_SLOTS)
            rc = give_member(x, 0, l, t, false, e);
    }
    return rc;
}

int rollup_read(const struct rollup_read *r, uint32_t level, uint32_t from, uint32_t to,
                struct err *e)
{
    struct reader x = { .r = r, .from = from, .to = to };
    int rc = 0;

    if (from >= to || !r->len)
        return 0;
    buf_init(&x.row, ROW_MAX);
    rc = level ? read_nodes(&x, level, e) : read_leaves(&x, e);
    vec_free(&x.members);
    vec_free(&x.rolled);
    buf_deinit(&x.row);
    return rc;
}

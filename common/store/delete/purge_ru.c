/* SPDX-License-Identifier: Apache-2.0
 *
 * purge_ru: subtracts the rows of deleted series in one unit from the groups they belong to.
 *
 *   MINUTE   the row of level 1 and its late rows become one row without the deleted series; if the
 *            minute is ROLLED0, those of level 0, too; points of both levels lose the points of the
 *            deleted series
 *   BASE     a list loses ids and sums; a vector loses vectors; functions are computed again
 *   DROP     rows of the groups are deleted
 *   REBUILD  rows of the groups are built from their children
 *
 * A grouping rule may begin inside a base node from 1 h up. Then one row of a member belongs in
 * part to the group of one rule and in part to the group of the next, and the parts are unknown.
 * But no query can tell those two groups apart: a query reads groups only if, under every rule of
 * the service, they keep all labels it selects by (targets_plan.c). So the base groups of such a
 * node are built again from the remaining members, each of which belongs to its last group there.
 */
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/store/delete/purge.h"
#include "common/store/state/function_cost_calc.h"
#include "common/store/state/store_impl.h"
#include "common/store/store.h"

static const struct fix_row *row_of(const struct fix *f, const struct fix_item *i)
{
    return &f->rows.ptr[i->row];
}

static bool dim_there(const struct fix *f, uint32_t dim)
{
    return f->t >= f->g.since[dim];
}

static int not_there(const struct fix *f, uint64_t gid, const char *what, struct err *e)
{
    return err_set(e, ERR_CORRUPT, "roll-up %016" PRIx64 " at slot %u of level %u: %s", gid, f->t,
                   f->run.lead, what);
}

/* ---- rows of a node ---- */

/* All rows of the group's node into f->old; late ones are deleted in the batch. */
static int read_old(struct fix *f, uint32_t level, const struct member *m, uint32_t t,
                    struct err *e)
{
    uint32_t l, at, entry;
    struct key from, to;
    struct member row;
    int rc = 0;

    f->old.len = 0;
    key_ru(&from, level, m, t);
    to = from;
    key_end(&to);
    struct kv_iter *it = kv_iter_new(f->x->s->kv, NULL, KV_RU, key_str(&from), key_str(&to));
    for (; !rc && kv_iter_valid(it); kv_iter_next(it)) {
        struct str copy = arena_strdup(f->arena, kv_iter_value(it));
        if (!copy.ptr)
            rc = err_set(e, ERR_LIMIT, "rows of a roll-up have more than %zu bytes",
                         arena_limit(f->arena));
        else if (!key_ru_read(kv_iter_key(it), &l, &row, &at, &entry))
            rc = err_set(e, ERR_CORRUPT, "key of a roll-up has %zu bytes", kv_iter_key(it).len);
        if (rc)
            break;
        if (entry)
            kv_batch_del(f->x->b, KV_RU, kv_iter_key(it));
        vec_push(&f->old, copy);
    }
    if (!rc)
        rc = kv_iter_status(it, e);
    kv_iter_free(it);
    if (!rc && !f->old.len)
        rc = not_there(f, m->series, "it has no row", e);
    return rc;
}

/* The node's members into f->ids; the sum of its vectors into f->all. */
static int sum_old(struct fix *f, bool *ret_rolled, struct err *e)
{
    rollup_row_sum_begin(&f->sum);
    vec_for (i, &f->old)
        if (rollup_row_sum_add(&f->sum, f->old.ptr[i], e))
            return e->code;
    (void)rollup_row_sum_ids(&f->sum);
    f->ids.len = 0;
    vec_for (i, &f->sum.ids)
        vec_push(&f->ids, f->sum.ids.ptr[i]);
    *ret_rolled = f->sum.rolled0;
    return f->sum.lists ? 0 : rollup_row_sum_end(&f->sum, ROLLUP_ROW_VECTOR, &f->all, e);
}

/* Takes the series of the items out of f->ids. */
static int take_ids(struct fix *f, uint64_t gid, const struct fix_item *items, size_t n,
                    struct err *e)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t id = f->m->series[row_of(f, &items[i])->index];
        size_t at = 0;
        if (i && row_of(f, &items[i - 1])->index == row_of(f, &items[i])->index)
            continue;
        while (at < f->ids.len && f->ids.ptr[at] != id)
            at++;
        if (at == f->ids.len)
            return not_there(f, gid, "it does not list a member", e);
        memmove(f->ids.ptr + at, f->ids.ptr + at + 1, (f->ids.len - at - 1) * sizeof(*f->ids.ptr));
        f->ids.len--;
    }
    return 0;
}

/* f->all less the items in [from, to) is in f->left, with f->left_meta. */
static int take_vectors(struct fix *f, const struct fix_item *items, size_t n, uint32_t from,
                        uint32_t to, struct err *e)
{
    struct rollup_row r;
    int rc = rollup_row_read(buf_str(&f->all), &r, e);

    vecsum_begin(&f->less);
    for (size_t i = 0; !rc && i < n; i++)
        if (row_of(f, &items[i])->t >= from && row_of(f, &items[i])->t < to)
            rc = vecsum_add(&f->less, row_of(f, &items[i])->bytes, e);
    if (!rc)
        rc = vecsum_end(&f->less, &f->taken, e);
    return rc ? rc
              : vecdiff_make(&f->diff, r.vector, buf_str(&f->taken), &f->left, &f->left_meta, e);
}

/* f->left, with f->ids if the form is a list's, becomes the row. */
static int put_left(struct fix *f, uint32_t level, const struct member *m, uint32_t t,
                    enum rollup_row_form form, struct err *e)
{
    struct key k;
    int rc;

    key_ru(&k, level, m, t);
    purge_touch(f->x, KV_RU, level, t / LEVELS[level].bucket);
    if (!f->left_meta.writes) {
        kv_batch_del(f->x->b, KV_RU, key_str(&k));
        return 0;
    }
    rollup_row_sum_begin(&f->sum);
    rc = rollup_row_sum_vector(&f->sum, buf_str(&f->left), e);
    for (size_t i = 0; form == ROLLUP_ROW_LIST_VECTOR && i < f->ids.len; i++)
        rollup_row_sum_member(&f->sum, f->ids.ptr[i]);
    if (!rc)
        rc = rollup_row_sum_end(&f->sum, form, &f->row, e);
    if (!rc)
        kv_batch_put(f->x->b, KV_RU, key_str(&k), buf_str(&f->row));
    return rc;
}

/* ---- a minute ---- */

static int take_leaves(struct fix *f, const struct member *m, const struct fix_item *items,
                       size_t n, struct err *e)
{
    bool rolled, any;

    for (uint32_t t = f->t; t < f->t + f->width; t += LEAF_SLOTS) {
        any = false;
        for (size_t i = 0; i < n; i++)
            any = any || row_of(f, &items[i])->t == t;
        if (any && (read_old(f, 0, m, t, e) || sum_old(f, &rolled, e) ||
                    take_vectors(f, items, n, t, t + LEAF_SLOTS, e) ||
                    put_left(f, 0, m, t, ROLLUP_ROW_VECTOR, e)))
            return e->code;
    }
    return 0;
}

/* Points of one series leave those of its groups. */
static int take_points(struct fix *f, const struct member *group, uint32_t index, struct err *e)
{
    uint32_t chunk = f->t - f->t % LEVELS[0].tl_chunk;
    struct key k;

    f->part.series = f->m->series[index];
    key_tl(&k, 0, 0, &f->part, chunk);
    int rc = kv_get(f->x->s->kv, NULL, KV_TL, key_str(&k), &f->row, e);
    if (rc == ERR_NOT_FOUND)
        return not_there(f, f->part.series, "a series has leaves and no timeline", e);
    if (!rc)
        rc = timeline_row_decode(buf_str(&f->row), LEVELS[0].tl_chunk, &f->tl, e);
    vec_for (i, &f->tl.points) {
        const struct tl_point *p = &f->tl.points.ptr[i];
        if (!rc && chunk + p->point >= f->t && chunk + p->point < f->t + f->width)
            tl_rows_taken(f->x->s->tl_rows, group, f->floors.at, chunk + p->point, p->total,
                          p->writes);
    }
    for (uint32_t level = 0; level < 2; level++)
        purge_touch(f->x, KV_TL, level | KEY_TL_GROUP, f->t / LEVELS[level].bucket);
    return rc;
}

static int fix_minute(struct fix *f, const struct member *m, const struct fix_item *items, size_t n,
                      struct err *e)
{
    bool rolled;

    if (read_old(f, 1, m, f->t, e) || sum_old(f, &rolled, e) ||
        (!rolled && take_ids(f, m->series, items, n, e)) ||
        take_vectors(f, items, n, f->t, f->t + f->width, e))
        return e->code;
    if (!rolled && f->left_meta.writes && !f->ids.len)
        return not_there(f, m->series, "it has values and no members", e);
    if (put_left(f, 1, m, f->t, rolled ? ROLLUP_ROW_ROLLED_VECTOR : ROLLUP_ROW_LIST_VECTOR, e) ||
        (rolled && take_leaves(f, m, items, n, e)))
        return e->code;
    for (size_t i = 0; i < n; i++)
        if (!i || row_of(f, &items[i - 1])->index != row_of(f, &items[i])->index)
            if (take_points(f, m, row_of(f, &items[i])->index, e))
                return e->code;
    return 0;
}

/* ---- a node at its base ---- */

static void touch_node(struct fix *f)
{
    uint32_t level = f->run.lead;

    purge_touch(f->x, KV_RU, level, f->run.bucket);
    purge_touch(f->x, KV_FN, level, f->run.bucket);
    purge_touch(f->x, KV_TL, level | KEY_TL_GROUP, f->run.bucket);
}

/* Writes the row of functions of the node from f->calc, which holds the remaining members. */
static int put_functions(struct fix *f, const struct member *m, struct err *e)
{
    struct key k;
    int rc = fn_calc_row(f->calc, &f->fn, e);

    key_ru(&k, f->run.lead, m, f->t);
    if (!rc && f->fn.len)
        kv_batch_put(f->x->b, KV_FN, key_str(&k), buf_str(&f->fn));
    else if (!rc)
        kv_batch_del(f->x->b, KV_FN, key_str(&k));
    return rc;
}

static int add_member(struct fix *f, uint64_t id, struct err *e)
{
    struct key k;

    f->part.series = id;
    key_member(&k, f->run.lead, &f->part, f->t);
    int rc = kv_get(f->x->s->kv, NULL, KV_COARSE, key_str(&k), &f->row, e);
    if (rc == ERR_NOT_FOUND)
        return not_there(f, id, "a listed member has no row", e);
    return rc ? rc : fn_calc_add(f->calc, buf_str(&f->row), e);
}

/* Takes the items out of a list: their ids, and their sums, which leaves f->left_meta. */
static int take_from_list(struct fix *f, const struct member *m, const struct fix_item *items,
                          size_t n, struct err *e)
{
    struct vec_meta *left = &f->left_meta;
    struct vec_reader v;
    struct key k;
    int rc = take_ids(f, m->series, items, n, e);

    *left = f->sum.meta;
    for (size_t i = 0; !rc && i < n; i++) {
        rc = vec_peek(row_of(f, &items[i])->bytes, &v, e);
        if (!rc)
            rc = vecdiff_meta(left, &v.meta, left, e);
    }
    if (!rc && !left->writes != !f->ids.len)
        rc = not_there(f, m->series, "members and sums do not fit", e);
    if (rc || !left->writes)
        return rc;
    for (size_t i = 0; !rc && i < f->ids.len; i++)
        rc = add_member(f, f->ids.ptr[i], e);
    rollup_row_sum_begin(&f->sum);
    f->sum.meta = *left;
    f->sum.rows = 1;
    vec_for (i, &f->ids)
        rollup_row_sum_member(&f->sum, f->ids.ptr[i]);
    if (!rc)
        rc = rollup_row_sum_end(&f->sum, ROLLUP_ROW_LIST, &f->row, e);
    key_ru(&k, f->run.lead, m, f->t);
    if (!rc)
        kv_batch_put(f->x->b, KV_RU, key_str(&k), buf_str(&f->row));
    return rc;
}

static int fix_base(struct fix *f, const struct member *m, const struct fix_item *items, size_t n,
                    struct err *e)
{
    uint32_t level = f->run.lead;
    struct vec_meta *left = &f->left_meta;
    bool rolled;
    int rc;

    touch_node(f);
    if (read_old(f, level, m, f->t, e) || sum_old(f, &rolled, e))
        return e->code;
    fn_calc_begin(f->calc, NULL, m->tenant, m->scope);
    if (f->sum.lists) {
        rc = take_from_list(f, m, items, n, e);
    } else {
        rc = take_vectors(f, items, n, 0, UINT32_MAX, e);
        if (!rc)
            rc = put_left(f, level, m, f->t, ROLLUP_ROW_VECTOR, e);
        if (!rc && left->writes)
            rc = fn_calc_add(f->calc, buf_str(&f->left), e);
    }
    if (rc)
        return rc;
    if (!left->writes) {
        rollup_drop(f->x->s, level, m, f->t, f->x->b);
        return 0;
    }
    struct tl_rows_point point = { .m = m,
                                   .group = true,
                                   .level = level,
                                   .t = f->t,
                                   .total = left->total,
                                   .writes = left->writes };
    tl_rows_built(f->x->s->tl_rows, &point);
    return put_functions(f, m, e);
}

/* ---- a base node in which a rule begins ---- */

struct mixed { /* a row of a remaining member */
    uint64_t gid;
    struct str bytes;
};
typedef VEC(struct mixed) mixed_rows;

static bool rule_begins(const struct fix *f)
{
    for (size_t i = 1; i < f->begins.len; i++)
        if (f->begins.ptr[i] > f->t && f->begins.ptr[i] < f->t + f->width)
            return true;
    return false;
}

static bool in_unit(const struct fix *f, uint64_t series)
{
    vec_for (i, &f->rows)
        if (f->m->series[f->rows.ptr[i].index] == series)
            return true;
    return false;
}

/* The last group that a series has in the node. */
static int last_group(struct fix *f, uint64_t series, uint64_t *ret, struct err *e)
{
    struct group_of of[GROUP_RULES_MAX];
    size_t n = 0;
    struct key k;

    *ret = 0;
    key_group_of(&k, f->part.tenant, f->part.scope, series);
    int rc = kv_get(f->x->s->kv, NULL, KV_META, key_str(&k), &f->row, e);
    if (!rc)
        rc = group_of_read(buf_str(&f->row), of, &n, e);
    for (size_t i = 0; !rc && i < f->begins.len && f->begins.ptr[i] < f->t + f->width; i++) {
        uint64_t gid = fix_group_by(of, n, (uint32_t)i + 1);
        *ret = gid ? gid : *ret;
    }
    if (rc == ERR_NOT_FOUND || (!rc && !*ret))
        return not_there(f, series, "a series has no group", e);
    return rc;
}

/* Rows of the node in a column family: those of remaining members, with their vectors (KV_COARSE);
 * or the ids of base groups with a row, without vectors (KV_RU). */
static int read_node(struct fix *f, enum kv_cf cf, mixed_rows *ret, struct err *e)
{
    struct member m = f->part, last = f->part;
    struct key from, to;
    int rc = 0;

    m.series = cf == KV_RU ? GID(GROUP_BASE, 0) : 0;
    last.series = UINT64_MAX;
    key_member(&from, f->run.lead, &m, f->t);
    key_member(&to, f->run.lead, &last, f->t);
    key_end(&to);
    struct kv_iter *it = kv_iter_new(f->x->s->kv, NULL, cf, key_str(&from), key_str(&to));
    while (!rc && kv_iter_valid(it)) {
        struct mixed x = { 0 };
        m.series = get_u64be(kv_iter_key(it).ptr + 15);
        uint32_t t = get_u32be(kv_iter_key(it).ptr + KEY_MEMBER_HEAD);
        if (t == f->t && cf == KV_RU) {
            x.gid = m.series;
        } else if (t == f->t && !in_unit(f, m.series)) {
            rc = last_group(f, m.series, &x.gid, e);
            x.bytes = arena_strdup(f->arena, kv_iter_value(it));
            if (!rc && !x.bytes.ptr)
                rc = err_set(e, ERR_LIMIT, "a node has more than %zu bytes", arena_limit(f->arena));
        }
        if (!rc && x.gid)
            vec_push(ret, x);
        if (t >= f->t && ++m.series == 0)
            break;
        key_member(&from, f->run.lead, &m, f->t);
        kv_iter_seek(it, key_str(&from));
    }
    if (!rc)
        rc = kv_iter_status(it, e);
    kv_iter_free(it);
    return rc;
}

static int by_gid(const void *a, const void *b)
{
    const struct mixed *x = a, *y = b;

    return x->gid < y->gid ? -1 : x->gid > y->gid;
}

static int put_mixed(struct fix *f, const struct mixed *at, size_t n, struct err *e)
{
    struct member m = f->part;
    struct vec_meta meta;
    int rc = 0;

    m.series = at->gid;
    rollup_row_sum_begin(&f->sum);
    fn_calc_begin(f->calc, NULL, m.tenant, m.scope);
    for (size_t i = 0; !rc && i < n; i++) {
        if (!at[i].bytes.ptr)
            continue;
        rc = rollup_row_sum_vector(&f->sum, at[i].bytes, e);
        if (!rc)
            rc = fn_calc_add(f->calc, at[i].bytes, e);
    }
    if (rc || !f->sum.rows) {
        rollup_drop(f->x->s, f->run.lead, &m, f->t, f->x->b);
        return rc;
    }
    meta = f->sum.meta;
    rc = rollup_row_sum_end(&f->sum, ROLLUP_ROW_VECTOR, &f->row, e);
    if (rc)
        return rc;
    struct key k;
    key_ru(&k, f->run.lead, &m, f->t);
    kv_batch_put(f->x->b, KV_RU, key_str(&k), buf_str(&f->row));
    struct tl_rows_point point = { .m = &m,
                                   .group = true,
                                   .level = f->run.lead,
                                   .t = f->t,
                                   .total = meta.total,
                                   .writes = meta.writes };
    tl_rows_built(f->x->s->tl_rows, &point);
    return put_functions(f, &m, e);
}

static int fix_mixed(struct fix *f, struct err *e)
{
    mixed_rows rows = { 0 };
    int rc = read_node(f, KV_RU, &rows, e);

    touch_node(f);
    if (!rc)
        rc = read_node(f, KV_COARSE, &rows, e);
    if (rows.len)
        qsort(rows.ptr, rows.len, sizeof(*rows.ptr), by_gid);
    for (size_t i = 0, end; !rc && i < rows.len; i = end) {
        for (end = i + 1; end < rows.len && rows.ptr[end].gid == rows.ptr[i].gid;)
            end++;
        rc = put_mixed(f, rows.ptr + i, end - i, e);
    }
    vec_free(&rows);
    return rc;
}

/* ---- all groups of a unit ---- */

static int by_group(const void *a, const void *b)
{
    const struct fix_item *x = a, *y = b;

    if (x->gid != y->gid)
        return x->gid < y->gid ? -1 : 1;
    return x->row < y->row ? -1 : x->row > y->row;
}

static int find_items(struct fix *f, struct err *e)
{
    struct fix_gids gids;

    f->items.len = 0;
    vec_for (i, &f->rows) {
        const struct fix_row *r = &f->rows.ptr[i];
        if (fix_groups(f, r->index, f->t, f->t + f->width, &gids, e))
            return e->code;
        if (!gids.len)
            return not_there(f, f->m->series[r->index], "a deleted series has no group", e);
        for (size_t k = 0; dim_there(f, GROUP_BASE) && k < gids.len; k++)
            vec_push(&f->items, ((struct fix_item){ gids.at[k], (uint32_t)i }));
        if (dim_there(f, GROUP_WHOLE))
            vec_push(&f->items, ((struct fix_item){ GID(GROUP_WHOLE, 0), (uint32_t)i }));
    }
    if (f->items.len)
        qsort(f->items.ptr, f->items.len, sizeof(*f->items.ptr), by_group);
    return 0;
}

static int fix_group(struct fix *f, const struct fix_item *items, size_t n, struct err *e)
{
    uint32_t level = f->run.lead;
    struct member m = f->part;

    m.series = items->gid;
    switch (f->what) {
    case FIX_SKIP:
        return 0;
    case FIX_MINUTE:
        return fix_minute(f, &m, items, n, e);
    case FIX_BASE:
        return fix_base(f, &m, items, n, e);
    case FIX_DROP:
        touch_node(f);
        rollup_drop(f->x->s, level, &m, f->t, f->x->b);
        return 0;
    case FIX_REBUILD:
        touch_node(f);
        return rollup_rebuild(f->rebuild, level, &m, f->t, f->x->b, e);
    }
    return 0;
}

int fix_rollups(struct fix *f, struct err *e)
{
    bool mixed = f->what == FIX_BASE && rule_begins(f);
    int rc = find_items(f, e);

    if (!rc && mixed && dim_there(f, GROUP_BASE))
        rc = fix_mixed(f, e);
    for (size_t i = 0, end; !rc && i < f->items.len; i = end) {
        const struct fix_item *at = f->items.ptr + i;
        for (end = i + 1; end < f->items.len && f->items.ptr[end].gid == at->gid;)
            end++;
        if (!mixed || GID_DIM(at->gid) == GROUP_WHOLE)
            rc = fix_group(f, at, end - i, e);
    }
    return rc ? err_wrap(e, "service %u, type %u", f->part.scope, f->part.ptype) : 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * rollup_build: rows of groups for nodes of level 2 and up, from those one level below.
 *
 * Level 2 is made here whole, group by group: its children are minutes, which have their vectors,
 * so no row of a member is needed. Levels above are built like those of members (build.h); here is
 * only what differs, their children: a list of members stands for rows of the members.
 *
 * A list may become part of a list if the members named in it have no data of another group in the
 * parent. Where a rule begins inside the parent they may: then it gets a vector, however few they
 * are.
 */
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/store/build/rollup_build.h"
#include "common/store/catalog/group.h"
#include "common/store/codec/function_cost.h"
#include "common/store/state/floors.h"
#include "common/store/state/function_cost_calc.h"
#include "common/store/state/rollup_row.h"
#include "common/store/state/store_impl.h"
#include "common/store/state/tl_rows.h"
#include "common/store/store.h"

#define ROW_MAX   GIB
#define ARENA_MAX GIB

/* ---- which groups ---- */

struct slots { /* rows of a level with t in [from, to) */
    uint32_t level, from, to;
};

/* Moves `it` to the first of the rows that belongs to a group >= m->series. */
static int seek_group(struct kv_iter *it, const struct slots *of, struct member *m, bool *ret_found,
                      struct err *e)
{
    uint32_t row_level, t, entry;
    struct member row;
    struct key k;

    *ret_found = false;
    key_ru(&k, of->level, m, of->from);
    for (kv_iter_seek(it, key_str(&k)); kv_iter_valid(it); kv_iter_seek(it, key_str(&k))) {
        if (!key_ru_read(kv_iter_key(it), &row_level, &row, &t, &entry))
            return err_set(e, ERR_CORRUPT, "key of a roll-up has %zu bytes", kv_iter_key(it).len);
        *ret_found = t >= of->from && t < of->to;
        m->series = row.series;
        if (*ret_found)
            return 0;
        if (t >= of->to && ++m->series == 0)
            break;
        key_ru(&k, of->level, m, of->from);
    }
    return kv_iter_status(it, e);
}

/* All rows of a service and type in the bucket of t, at one level. */
static struct kv_iter *iter_part(struct kv *kv, const struct kv_snap *snap, enum kv_cf cf,
                                 uint32_t level, const struct member *m, uint32_t t)
{
    struct member last = *m;
    struct key from, to;

    last.series = UINT64_MAX;
    key_ru(&from, level, m, t);
    key_ru(&to, level, &last, t - t % LEVELS[level].bucket + LEVELS[level].bucket - 1);
    key_end(&to);
    return kv_iter_new(kv, snap, cf, key_str(&from), key_str(&to));
}

int rollup_next_group(const struct kv_view *v, uint32_t level, struct member *m, uint32_t t,
                      bool *ret_found, struct err *e)
{
    struct slots node = { level - 1, t, t + LEVELS[level].node };
    struct group_service g;

    *ret_found = false;
    if (group_service_get(v->kv, v->snap, m->tenant, m->scope, &g, e))
        return e->code;
    for (;;) {
        uint32_t dim = GID_DIM(m->series);
        if (dim >= GROUP_DIMS)
            return 0;
        if (t < g.since[dim]) {
            m->series = GID(dim + 1, 0);
            continue;
        }
        struct kv_iter *it = iter_part(v->kv, v->snap, KV_RU, level - 1, m, t);
        int rc = seek_group(it, &node, m, ret_found, e);
        kv_iter_free(it);
        if (rc || !*ret_found || GID_DIM(m->series) == dim)
            return rc;
    }
}

/* ---- children ---- */

static int keep(struct arena *a, struct str bytes, struct str *ret, struct err *e)
{
    *ret = arena_strdup(a, bytes);
    return ret->ptr ? 0
                    : err_set(e, ERR_LIMIT, "the children of a roll-up have more than %zu bytes",
                              arena_limit(a));
}

static int read_rows(const struct rollup_node *n, struct rollup_children *ret, struct err *e)
{
    struct rollup_child c;
    struct key from, to;
    struct member row;
    uint32_t l, entry;
    int rc = 0;

    key_ru(&from, n->level - 1, &n->m, n->t);
    key_ru(&to, n->level - 1, &n->m, n->t + LEVELS[n->level].node - 1);
    key_end(&to);
    struct kv_iter *it = kv_iter_new(n->kv, n->snap, KV_RU, key_str(&from), key_str(&to));
    for (; !rc && kv_iter_valid(it); kv_iter_next(it)) {
        if (!key_ru_read(kv_iter_key(it), &l, &row, &c.t, &entry))
            rc = err_set(e, ERR_CORRUPT, "key of a roll-up has %zu bytes", kv_iter_key(it).len);
        if (!rc)
            rc = keep(n->arena, kv_iter_value(it), &c.row, e);
        if (!rc)
            vec_push(&ret->at, c);
    }
    if (!rc)
        rc = kv_iter_status(it, e);
    kv_iter_free(it);
    return rc;
}

/* Does a rule begin inside the node? */
static int rule_begins(const struct rollup_node *n, bool *ret, struct err *e)
{
    const struct member *m = &n->m;
    uint32_t end = n->t + LEVELS[n->level].node;
    struct group_rule *r = XNEW(struct group_rule);
    struct group_service g;
    struct buf row;
    struct key k;
    int rc = group_service_get(n->kv, n->snap, m->tenant, m->scope, &g, e);

    *ret = false;
    buf_init(&row, MIB);
    for (uint32_t i = 2; !rc && !*ret && i <= g.rules; i++) {
        key_rule_number(&k, m->tenant, m->scope, i);
        rc = kv_get(n->kv, n->snap, KV_META, key_str(&k), &row, e);
        if (!rc)
            rc = group_rule_read(buf_str(&row), r, e);
        *ret = !rc && r->since > n->t && r->since < end;
    }
    buf_deinit(&row);
    xfree(r);
    return rc == ERR_NOT_FOUND
               ? err_set(e, ERR_CORRUPT, "a grouping rule of service %u is missing", m->scope)
               : rc;
}

/* A list without vector becomes a vector (`alone`) or both: the sum of its members' rows. */
static int fill_list(const struct rollup_node *n, struct rollup_row_sum *sum, bool alone,
                     struct rollup_child *c, struct err *e)
{
    struct member member = n->m;
    struct buf row;
    struct rollup_row r;
    struct str v;
    struct key k;
    int rc = rollup_row_read(c->row, &r, e);

    if (rc || r.vector.ptr)
        return rc;
    buf_init(&row, ROW_MAX);
    rollup_row_sum_begin(sum);
    rc = rollup_row_sum_head(sum, c->row, e);
    for (size_t i = 0; !rc && i < r.len; i++) {
        member.series = rollup_row_id(&r, i);
        key_member(&k, n->level - 1, &member, c->t);
        rc = kv_get(n->kv, n->snap, KV_COARSE, key_str(&k), &row, e);
        if (rc == ERR_NOT_FOUND)
            rc = err_set(e, ERR_CORRUPT, "member %016" PRIx64 " has no row at slot %u",
                         member.series, c->t);
        if (!rc)
            rc = keep(n->arena, buf_str(&row), &v, e);
        if (!rc)
            rc = rollup_row_sum_listed(sum, v, e);
    }
    if (!rc)
        rc = rollup_row_sum_end(sum, alone ? ROLLUP_ROW_VECTOR : ROLLUP_ROW_LIST_VECTOR, &row, e);
    if (!rc)
        rc = keep(n->arena, buf_str(&row), &c->row, e);
    buf_deinit(&row);
    return rc;
}

int rollup_children(const struct rollup_node *n, struct rollup_children *ret, struct err *e)
{
    VEC(struct str) rows = { 0 };
    size_t first = ret->at.len;
    bool begins = false, list = true;
    struct rollup_row_sum sum;

    rollup_row_sum_init(&sum);
    int rc = read_rows(n, ret, e);
    if (!rc && n->level > 2)
        rc = rule_begins(n, &begins, e);
    for (size_t i = first; i < ret->at.len; i++)
        vec_push(&rows, ret->at.ptr[i].row);
    if (!rc && n->level > 2)
        rc = rollup_row_merge_is_list(&sum, rows.ptr, rows.len, &list, e);
    for (size_t i = first; !rc && (begins || !list) && i < ret->at.len; i++)
        rc = fill_list(n, &sum, begins, &ret->at.ptr[i], e);
    if (rc)
        rc = err_wrap(e, "roll-up %016" PRIx64 " at slot %u", n->m.series, n->t);
    rollup_row_sum_deinit(&sum);
    vec_free(&rows);
    return rc;
}

/* ---- level 2 ---- */

struct rollup_rebuild { /* of level 2, or of one group of any */
    struct store *s;
    struct kv_batch *b;
    uint32_t t;
    struct arena *arena;
    struct rollup_children children;
    VEC(struct str) rows;
    VEC(uint64_t) done; /* groups */
    struct rollup_row_sum sum;
    struct function_cost_calc *calc;
    struct buf out, fn;
};

static int read_children(struct rollup_rebuild *x, uint32_t level, const struct member *m,
                         struct err *e)
{
    struct rollup_node n = {
        .kv = x->s->kv, .level = level, .t = x->t, .m = *m, .arena = x->arena
    };

    arena_reset(x->arena);
    x->children.at.len = x->rows.len = 0;
    int rc = rollup_children(&n, &x->children, e);
    vec_for (i, &x->children.at)
        vec_push(&x->rows, x->children.at.ptr[i].row);
    return rc;
}

static int sum_group(struct rollup_rebuild *x, const struct member *m, struct vec_meta *ret,
                     struct err *e)
{
    int rc = read_children(x, 2, m, e);

    return rc ? rc : rollup_row_merge(&x->sum, x->rows.ptr, x->rows.len, &x->out, ret, e);
}

/* Of the vector, or of all minutes where the group has a list. */
static int sum_functions(struct rollup_rebuild *x, const struct member *m, struct err *e)
{
    struct rollup_row r;
    int rc = rollup_row_read(buf_str(&x->out), &r, e);

    fn_calc_begin(x->calc, NULL, m->tenant, m->scope);
    if (!rc && r.vector.ptr)
        rc = fn_calc_add(x->calc, r.vector, e);
    for (size_t i = 0; !rc && !r.vector.ptr && i < x->rows.len; i++) {
        struct rollup_row minute;
        rc = rollup_row_read(x->rows.ptr[i], &minute, e);
        if (!rc)
            rc = fn_calc_add(x->calc, minute.vector, e);
    }
    return rc ? rc : fn_calc_row(x->calc, &x->fn, e);
}

static int build_group(struct rollup_rebuild *x, const struct member *m, struct err *e)
{
    struct vec_meta meta;
    struct key k;

    if (sum_group(x, m, &meta, e) || sum_functions(x, m, e))
        return err_wrap(e, "roll-up %016" PRIx64 " at slot %u", m->series, x->t);
    key_ru(&k, 2, m, x->t);
    kv_batch_put(x->b, KV_RU, key_str(&k), buf_str(&x->out));
    if (x->fn.len)
        kv_batch_put(x->b, KV_FN, key_str(&k), buf_str(&x->fn));
    struct tl_rows_point point = {
        .m = m, .group = true, .level = 2, .t = x->t, .total = meta.total, .writes = meta.writes
    };
    tl_rows_built(x->s->tl_rows, &point);
    vec_push(&x->done, m->series);
    return 0;
}

/* Rows of the node whose minutes are gone. */
static int drop_gone(struct rollup_rebuild *x, struct member m, struct err *e)
{
    struct slots node = { 2, x->t, x->t + 1 };
    struct kv_iter *it;
    struct key k;
    bool found = true;
    int rc = 0;

    m.series = 0;
    it = iter_part(x->s->kv, NULL, KV_RU, 2, &m, x->t);
    for (size_t at = 0; !rc; m.series++) {
        rc = seek_group(it, &node, &m, &found, e);
        if (rc || !found)
            break;
        while (at < x->done.len && x->done.ptr[at] < m.series)
            at++;
        if (at < x->done.len && x->done.ptr[at] == m.series)
            continue;
        key_ru(&k, 2, &m, x->t);
        kv_batch_del(x->b, KV_RU, key_str(&k));
        kv_batch_del(x->b, KV_FN, key_str(&k));
        tl_rows_gone(x->s->tl_rows, true, 2, &m, x->t);
    }
    kv_iter_free(it);
    return rc;
}

static int build_all(struct rollup_rebuild *x, const struct member *part, bool again, struct err *e)
{
    struct kv_view v = { .kv = x->s->kv };
    struct member m = *part;
    bool found;
    int rc = 0;

    for (m.series = 0; !rc; m.series++) {
        rc = rollup_next_group(&v, 2, &m, x->t, &found, e);
        if (rc || !found)
            break;
        rc = build_group(x, &m, e);
    }
    return rc || !again ? rc : drop_gone(x, *part, e);
}

struct rollup_rebuild *rollup_rebuild_new(struct store *s)
{
    struct rollup_rebuild *x = XNEW(struct rollup_rebuild);

    x->s = s;
    x->arena = arena_new(ARENA_MAX);
    x->calc = fn_calc_new(s->dicts);
    rollup_row_sum_init(&x->sum);
    buf_init(&x->out, ROW_MAX);
    buf_init(&x->fn, ROW_MAX);
    return x;
}

void rollup_rebuild_free(struct rollup_rebuild *x)
{
    if (!x)
        return;
    arena_free(x->arena);
    fn_calc_free(x->calc);
    rollup_row_sum_deinit(&x->sum);
    buf_deinit(&x->out);
    buf_deinit(&x->fn);
    vec_free(&x->children.at);
    vec_free(&x->rows);
    vec_free(&x->done);
    xfree(x);
}

int rollup_build2(struct store *s, const struct member *m, uint32_t t, bool again,
                  struct kv_batch *b, struct err *e)
{
    struct floors f;
    int rc = floors_get(s, m, &f, e);

    if (rc || floors_base(&f, true, t) >= 2)
        return rc;
    struct rollup_rebuild *x = rollup_rebuild_new(s);
    x->b = b;
    x->t = t;
    rc = build_all(x, m, again, e);
    rollup_rebuild_free(x);
    return rc;
}

/* ---- one group again: any level ---- */

static int merge_functions(struct rollup_rebuild *x, uint32_t level, const struct member *m,
                           struct err *e)
{
    struct key from, to;
    struct str row;
    int rc = 0;

    x->rows.len = 0;
    key_ru(&from, level - 1, m, x->t);
    key_ru(&to, level - 1, m, x->t + LEVELS[level].node - 1);
    key_end(&to);
    struct kv_iter *it = kv_iter_new(x->s->kv, NULL, KV_FN, key_str(&from), key_str(&to));
    for (; !rc && kv_iter_valid(it); kv_iter_next(it)) {
        rc = keep(x->arena, kv_iter_value(it), &row, e);
        if (!rc)
            vec_push(&x->rows, row);
    }
    if (!rc)
        rc = kv_iter_status(it, e);
    kv_iter_free(it);
    buf_reset(&x->fn);
    return rc || !x->rows.len ? rc : function_cost_merge(x->rows.ptr, x->rows.len, &x->fn, e);
}

static int rebuild(struct rollup_rebuild *x, uint32_t level, const struct member *m, struct err *e)
{
    struct vec_meta meta;
    struct key k;
    int rc = read_children(x, level, m, e);

    if (rc)
        return rc;
    if (!x->rows.len) {
        rollup_drop(x->s, level, m, x->t, x->b);
        return 0;
    }
    rc = rollup_row_merge(&x->sum, x->rows.ptr, x->rows.len, &x->out, &meta, e);
    if (!rc)
        rc = level == 2 ? sum_functions(x, m, e) : merge_functions(x, level, m, e);
    if (rc)
        return rc;
    key_ru(&k, level, m, x->t);
    kv_batch_put(x->b, KV_RU, key_str(&k), buf_str(&x->out));
    if (x->fn.len)
        kv_batch_put(x->b, KV_FN, key_str(&k), buf_str(&x->fn));
    else
        kv_batch_del(x->b, KV_FN, key_str(&k));
    struct tl_rows_point point = {
        .m = m, .group = true, .level = level, .t = x->t, .total = meta.total, .writes = meta.writes
    };
    tl_rows_built(x->s->tl_rows, &point);
    return 0;
}

int rollup_rebuild(struct rollup_rebuild *x, uint32_t level, const struct member *m, uint32_t t,
                   struct kv_batch *b, struct err *e)
{
    x->b = b;
    x->t = t;
    int rc = rebuild(x, level, m, e);
    return rc ? err_wrap(e, "roll-up %016" PRIx64 " at slot %u of level %u", m->series, t, level)
              : 0;
}

void rollup_drop(struct store *s, uint32_t level, const struct member *m, uint32_t t,
                 struct kv_batch *b)
{
    struct key k;

    key_ru(&k, level, m, t);
    kv_batch_del(b, KV_RU, key_str(&k));
    kv_batch_del(b, KV_FN, key_str(&k));
    tl_rows_gone(s->tl_rows, true, level, m, t);
}

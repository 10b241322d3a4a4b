/* SPDX-License-Identifier: Apache-2.0
 *
 * check_levels: floors, marks, and the tree of members.
 *
 *   floors   sorted and aligned (rows below them wait to be deleted and are not read)
 *   marks    on nodes of level 2 and up; the parent of a marked child is marked, too
 *   levels   a node above the base of its time that has no mark is, series by series, the sum of
 *            its children, byte for byte: vector, total, writes, F; a node whose children have rows
 *            has a row, too
 */
#include "common/store/check/check_impl.h"

#include "common/base/mem.h"
#include "common/store/codec/vecsum.h"
#include "common/store/query/cover.h"
#include "common/store/state/spread.h"
#include "common/store/state/store_impl.h"
#include "common/store/state/view.h"

#define ROW_MAX GIB

static int wrong(struct err *e, uint32_t level, const struct member *m, uint32_t t,
                 const char *what)
{
    return err_set(e, ERR_CORRUPT, "level %u, slot %u, service %u, %016" PRIx64 ": %s", level, t,
                   m->scope, m->series, what);
}

/* ---- floors and marks ---- */

static int on_floors(struct check *c, struct str key, struct str value, struct err *e)
{
    struct floors f;

    (void)c;
    if (key.len != 11)
        return err_set(e, ERR_CORRUPT, "key of floors has %zu bytes", key.len);
    return floors_read(value, &f, e);
}

static int on_floors_end(struct check *c, struct str key, struct str value, struct err *e)
{
    uint32_t end;

    (void)c;
    if (key.len != 11 || !key_u32_read(value, &end))
        return err_set(e, ERR_CORRUPT, "end of retention: a key of %zu bytes, a value of %zu",
                       key.len, value.len);
    return 0;
}

static int on_spread(struct check *c, struct str key, struct str value, struct err *e)
{
    struct spread s;

    (void)c;
    if (key.len != 11)
        return err_set(e, ERR_CORRUPT, "key of lengths of pushes has %zu bytes", key.len);
    return spread_read(value, &s, e);
}

static int on_mark(struct check *c, struct str key, struct str value, struct err *e)
{
    struct dirty_mark mark, above;
    struct floors f;
    struct member m;
    uint32_t level, t;

    if (!key_dirty_read(key, &m, &level, &t) || level < DIRTY_FIRST || t % LEVELS[level].node)
        return err_set(e, ERR_CORRUPT, "key of a mark has %zu bytes, or is of no node", key.len);
    if (dirty_row_read(value, &mark, e) || floors_load(c->v->kv, c->v->snap, &m, &f, e))
        return e->code;
    if (level + 1 == KEY_LEVELS || level < floors_base(&f, true, t))
        return 0;
    int rc = dirty_get(&(struct kv_view){ c->v->kv, c->v->snap }, &m, level + 1,
                       node_of(level + 1, t), &above, e);
    return rc == ERR_NOT_FOUND ? wrong(e, level, &m, t, "is marked, what stands above is not") : rc;
}

/* ---- nodes ---- */

/* What the last part needed. */
struct part_known {
    bool known;
    struct member m;
    struct floors floors;
    struct dirty_set dirty;
};
struct levels {
    struct check *c;
    struct part_known part;
    struct vecsum fold;
    struct buf want;
    VEC(struct buf) rows;
    struct member last; /* series and parent seen to be there */
    uint32_t last_level, last_t;
};

static int know_part(struct levels *x, const struct member *m, struct err *e)
{
    struct part_known *p = &x->part;
    struct check *c = x->c;

    if (p->known && p->m.tenant == m->tenant && p->m.scope == m->scope && p->m.ptype == m->ptype)
        return 0;
    dirty_deinit(&p->dirty);
    p->known = false;
    if (floors_load(c->v->kv, c->v->snap, m, &p->floors, e) ||
        dirty_load(&p->dirty, &(struct kv_view){ c->v->kv, c->v->snap }, m, 0, UINT32_MAX, e))
        return e->code;
    p->m = *m;
    p->known = true;
    return 0;
}

/* Must the node be the sum of its children? */
static bool is_sum(const struct levels *x, uint32_t level, uint32_t t)
{
    return level > floors_base(&x->part.floors, false, t) && !dirty_has(&x->part.dirty, level, t);
}

static int sum_children(struct levels *x, uint32_t level, const struct member *m, uint32_t t,
                        size_t *ret_n, struct err *e)
{
    uint32_t below = level_below(false, level);
    struct check *c = x->c;
    struct key from, to;
    size_t n = 0;
    int rc = 0;

    key_member(&from, below, m, t);
    key_member(&to, below, m, t + LEVELS[level].node - 1);
    key_end(&to);
    struct kv_iter *it = kv_iter_new(c->v->kv, c->v->snap, below ? KV_COARSE : KV_FINE,
                                     key_str(&from), key_str(&to));
    vecsum_begin(&x->fold);
    for (; !rc && kv_iter_valid(it); kv_iter_next(it), n++) {
        if (n == x->rows.len) {
            struct buf b;
            buf_init(&b, ROW_MAX);
            vec_push(&x->rows, b);
        }
        buf_reset(&x->rows.ptr[n]);
        buf_add_str(&x->rows.ptr[n], kv_iter_value(it));
    }
    rc = kv_iter_status(it, e);
    kv_iter_free(it);
    for (size_t i = 0; !rc && i < n; i++)
        rc = vecsum_add(&x->fold, buf_str(&x->rows.ptr[i]), e);
    if (!rc)
        rc = vecsum_end(&x->fold, &x->want, e);
    *ret_n = n;
    return rc;
}

static int check_sum(struct levels *x, uint32_t level, const struct member *m, uint32_t t,
                     struct str row, struct err *e)
{
    size_t n;

    if (!is_sum(x, level, t))
        return 0;
    if (sum_children(x, level, m, t, &n, e))
        return err_wrap(e, "children of level %u at slot %u", level, t);
    if (!n)
        return wrong(e, level, m, t, "has no children");
    if (!str_eq(buf_str(&x->want), row))
        return wrong(e, level, m, t, "is not the sum of its children");
    return 0;
}

/* The row of the parent of a row must be there. */
static int check_parent(struct levels *x, uint32_t level, const struct member *m, uint32_t t,
                        struct err *e)
{
    uint32_t above = level_above(false, level);
    struct key k;

    if (above == KEY_LEVELS)
        return 0;
    t = node_of(above, t);
    if (!is_sum(x, above, t) ||
        (x->last_level == above && x->last_t == t && x->last.series == m->series &&
         x->last.scope == m->scope && x->last.tenant == m->tenant && x->last.ptype == m->ptype))
        return 0;
    x->last = *m;
    x->last_level = above;
    x->last_t = t;
    key_member(&k, above, m, t);
    int rc = kv_get(x->c->v->kv, x->c->v->snap, KV_COARSE, key_str(&k), &x->c->row, e);
    return rc == ERR_NOT_FOUND ? wrong(e, above, m, t, "is missing, its children are there") : rc;
}

static int check_node(struct levels *x, enum kv_cf cf, struct str key, struct str value,
                      struct err *e)
{
    struct check *c = x->c;
    struct vec_reader r;
    struct member m;
    uint32_t level, t;

    if (!key_member_read(key, &level, &m, &t) || (cf == KV_FINE ? level != 0 : level < 2) ||
        t % LEVELS[level].node) /* leaves were looked at before */
        return cf == KV_FINE ? 0 : err_set(e, ERR_CORRUPT, "key of %zu bytes", key.len);
    if (purging_has(&c->purging, m.tenant, m.scope))
        return 0;
    if (know_part(x, &m, e))
        return e->code;
    if (cf == KV_COARSE &&
        (check_member(c, &m, t, LEVELS[level].node, e) ||
         check_vector(c, m.tenant, m.scope, value, &r, e) || check_sum(x, level, &m, t, value, e)))
        return err_wrap(e, "node of level %u at slot %u", level, t);
    return check_parent(x, level, &m, t, e);
}

static int check_nodes(struct levels *x, enum kv_cf cf, struct err *e)
{
    struct check *c = x->c;
    int rc = 0;
    struct kv_iter *it = kv_iter_new(c->v->kv, c->v->snap, cf, STR(""), STR_NULL);

    for (; !rc && kv_iter_valid(it); kv_iter_next(it)) {
        rc = check_row(c, e);
        if (!rc)
            rc = check_found(c, check_node(x, cf, kv_iter_key(it), kv_iter_value(it), e), e);
    }
    check_here();
    if (!rc)
        rc = check_found(c, kv_iter_status(it, e), e);
    kv_iter_free(it);
    return rc;
}

int check_levels(struct check *c, struct err *e)
{
    struct levels x = { .c = c };
    int rc;

    if (c->v->s->format < 2) /* leaves alone; the rest comes when it is opened to be written */
        return 0;
    check_begin(c, CHECK_MARKS);
    rc = check_each(c, KV_META, KEY_FLOORS, 1, on_floors, e);
    if (!rc)
        rc = check_each(c, KV_META, KEY_FLOORS_END, 1, on_floors_end, e);
    if (!rc)
        rc = check_each(c, KV_META, KEY_SPREAD, 1, on_spread, e);
    if (!rc)
        rc = check_each(c, KV_META, KEY_DIRTY, 1, on_mark, e);
    vecsum_init(&x.fold);
    buf_init(&x.want, ROW_MAX);
    check_begin(c, CHECK_COARSE);
    if (!rc)
        rc = check_nodes(&x, KV_FINE, e);
    if (!rc)
        rc = check_nodes(&x, KV_COARSE, e);
    for (uint32_t l = 2; !rc && l < KEY_LEVELS; l++)
        rc = check_points(c, KV_COARSE, l, e);
    vecsum_deinit(&x.fold);
    buf_deinit(&x.want);
    dirty_deinit(&x.part.dirty);
    vec_for (i, &x.rows)
        buf_deinit(&x.rows.ptr[i]);
    vec_free(&x.rows);
    return rc;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * rollup_seal: what the rows of an entry add to their groups.
 *
 *   rows of a (service, type) ──> (group, minute) ──> level 1: + the rows
 *                                      │              level 0: + the rows of each leaf, if ROLLED0
 *                                      └─ below floor[1]: (group, base node) + the rows
 *
 * The row of a minute lists its members (rollup_row.h). When their number reaches
 * ROLLUP_ROW_ROLLED, the minute gets rows of level 0: sums of the members' stored leaves and of the
 * new rows. From then on it is ROLLED0. So a query for a part of a minute reads one row per leaf,
 * or the leaves of fewer than 32 members.
 *
 * The first seal of a minute reads nothing. A later one adds to the row that is there; a large row
 * is not written again for every dribble: what came late stands behind it in rows of its own, which
 * are folded into it when they are DELTAS_MAX or as many bytes as itself.
 *
 * Everything is a function of what is stored and of the entry; sums are the same in any order, and
 * vecsum gives the same bytes for the same sum. Leaves of the same entry are not written yet when
 * we read: what a member's stored leaf holds and what its rows add never overlap.
 *
 * Thread: the shard's.
 */
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/store/catalog/group.h"
#include "common/store/codec/function_cost.h"
#include "common/store/dict/dict_cache.h"
#include "common/store/seal/rollup_seal.h"
#include "common/store/seal/seal_steps.h"
#include "common/store/state/floors.h"
#include "common/store/state/function_cost_calc.h"
#include "common/store/state/rollup_row.h"
#include "common/store/state/store_impl.h"
#include "common/store/state/tl_rows.h"
#include "common/store/store.h"

#define DELTAS_MAX  8
#define DELTA_BYTES (16 * KIB) /* rows below this are written again */
#define LEAVES      (RAW_BUCKET_SLOTS / LEAF_SLOTS)
#define ROW_MAX     GIB
#define OLD_MAX     GIB

struct item { /* a row that belongs to a node of a group */
    uint64_t gid;
    uint32_t node, row;
};
struct old {        /* a row that stands for the node */
    uint32_t entry; /* 0: the base row */
    struct str bytes;
};
struct rollup {
    VEC(struct item) items;
    VEC(struct old) old;
    VEC(uint64_t) ids; /* members before this entry */
    struct rollup_row_sum sum, all;
    struct buf row, fn, out;
    struct buf leaf[LEAVES];
    struct arena *arena; /* of what was read for one node */
    struct function_cost_calc *calc;
};

struct rollup *rollup_new(struct dict_cache *dicts)
{
    struct rollup *x = XNEW(struct rollup);

    rollup_row_sum_init(&x->sum);
    rollup_row_sum_init(&x->all);
    buf_init(&x->row, ROW_MAX);
    buf_init(&x->fn, ROW_MAX);
    buf_init(&x->out, ROW_MAX);
    for (size_t i = 0; i < LEAVES; i++)
        buf_init(&x->leaf[i], ROW_MAX);
    x->arena = arena_new(OLD_MAX);
    x->calc = fn_calc_new(dicts);
    return x;
}

void rollup_free(struct rollup *x)
{
    if (!x)
        return;
    vec_free(&x->items);
    vec_free(&x->old);
    vec_free(&x->ids);
    rollup_row_sum_deinit(&x->sum);
    rollup_row_sum_deinit(&x->all);
    buf_deinit(&x->row);
    buf_deinit(&x->fn);
    buf_deinit(&x->out);
    for (size_t i = 0; i < LEAVES; i++)
        buf_deinit(&x->leaf[i]);
    arena_free(x->arena);
    fn_calc_free(x->calc);
    xfree(x);
}

/* One call of rollup_seal. */
struct seal {
    struct store *s;
    struct rollup *x;
    const struct seal_row *rows;
    uint32_t entry;
    const struct floors *f;
    struct kv_batch *b;
    struct group_scope *scope;
    /* The node being folded. */
    struct member m; /* of the group */
    const struct item *items;
    size_t n;
};

static const struct seal_row *row_at(const struct seal *a, size_t i)
{
    return &a->rows[a->items[i].row];
}

/* ---- what is stored ---- */

static int keep(struct rollup *x, struct str bytes, struct str *ret, struct err *e)
{
    *ret = arena_strdup(x->arena, bytes);
    return ret->ptr ? 0 : err_set(e, ERR_LIMIT, "rows of a roll-up are over %zu bytes", OLD_MAX);
}

/* Rows of a node, base row first, into x->old. */
static int read_old(struct seal *a, uint32_t level, uint32_t t, struct err *e)
{
    struct rollup *x = a->x;
    struct key from, to;
    struct member m;
    struct old o;
    uint32_t l, at;
    int rc = 0;

    x->old.len = 0;
    if (raw_bucket(t) >= a->s->sealed_high)
        return 0;
    key_ru(&from, level, &a->m, t);
    to = from;
    key_end(&to);
    struct kv_iter *it = kv_iter_new(a->s->kv, NULL, KV_RU, key_str(&from), key_str(&to));
    for (; !rc && kv_iter_valid(it); kv_iter_next(it)) {
        if (!key_ru_read(kv_iter_key(it), &l, &m, &at, &o.entry))
            rc = err_set(e, ERR_CORRUPT, "key of a roll-up has %zu bytes", kv_iter_key(it).len);
        if (!rc)
            rc = keep(x, kv_iter_value(it), &o.bytes, e);
        if (!rc)
            vec_push(&x->old, o);
    }
    if (!rc)
        rc = kv_iter_status(it, e);
    kv_iter_free(it);
    return rc;
}

/* Reads the stored row of a member into the arena; v->ptr is NULL if the member has none. */
static int read_member(struct seal *a, uint32_t level, uint64_t series, uint32_t t, struct str *v,
                       struct err *e)
{
    struct member m = a->m;
    struct key k;

    *v = STR_NULL;
    m.series = series;
    key_member(&k, level, &m, t);
    int rc = kv_get(a->s->kv, NULL, level ? KV_COARSE : KV_FINE, key_str(&k), &a->x->row, e);
    if (rc)
        return rc == ERR_NOT_FOUND ? 0 : rc;
    return keep(a->x, buf_str(&a->x->row), v, e);
}

/* ---- writing ---- */

static void put(struct seal *a, enum kv_cf cf, uint32_t level, uint32_t t, struct str row)
{
    struct key k;

    key_ru(&k, level, &a->m, t);
    kv_batch_put(a->b, cf, key_str(&k), row);
}

static bool as_delta(const struct seal *a, size_t bytes)
{
    const struct rollup *x = a->x;
    size_t deltas = bytes, low = a->s->o.test.delta_bytes ? a->s->o.test.delta_bytes : DELTA_BYTES;

    if (x->old.len < 1 || x->old.ptr[0].entry || x->old.len > DELTAS_MAX)
        return false;
    for (size_t i = 1; i < x->old.len; i++)
        deltas += x->old.ptr[i].bytes.len;
    return x->old.ptr[0].bytes.len >= low && deltas <= x->old.ptr[0].bytes.len;
}

/* The node at t becomes x->old + sum. */
static int put_sum(struct seal *a, uint32_t level, uint32_t t, struct rollup_row_sum *sum,
                   enum rollup_row_form form, struct err *e)
{
    struct rollup *x = a->x;
    struct key k;
    int rc = rollup_row_sum_end(sum, form, &x->out, e);

    if (rc || !x->old.len) {
        if (!rc)
            put(a, KV_RU, level, t, buf_str(&x->out));
        return rc;
    }
    if (as_delta(a, x->out.len)) {
        key_ru_delta(&k, level, &a->m, t, a->entry);
        kv_batch_put(a->b, KV_RU, key_str(&k), buf_str(&x->out));
        return 0;
    }
    rollup_row_sum_begin(&x->all);
    rc = rollup_row_sum_add(&x->all, buf_str(&x->out), e);
    for (size_t i = 0; !rc && i < x->old.len; i++) {
        const struct old *o = &x->old.ptr[i];
        rc = rollup_row_sum_add(&x->all, o->bytes, e);
        key_ru_delta(&k, level, &a->m, t, o->entry);
        if (o->entry)
            kv_batch_del(a->b, KV_RU, key_str(&k));
    }
    if (!rc)
        rc = rollup_row_sum_end(&x->all, form, &x->row, e);
    if (!rc)
        put(a, KV_RU, level, t, buf_str(&x->row));
    return rc;
}

/* ---- a minute ---- */

/* Reads the state of the minute before this entry: its members into x->ids, sorted, and whether it
 * is ROLLED0. */
static int read_members(struct seal *a, bool *ret_rolled, struct err *e)
{
    struct rollup *x = a->x;

    rollup_row_sum_begin(&x->all);
    vec_for (i, &x->old) {
        if (rollup_row_sum_head(&x->all, x->old.ptr[i].bytes, e))
            return e->code;
    }
    (void)rollup_row_sum_ids(&x->all);
    x->ids.len = 0;
    vec_for (i, &x->all.ids)
        vec_push(&x->ids, x->all.ids.ptr[i]);
    *ret_rolled = x->all.rolled0;
    return 0;
}

/* Members before and after: of old lists and rows. Both ascend. */
static size_t count_members(const struct seal *a)
{
    const struct rollup *x = a->x;
    size_t n = x->ids.len, at = 0;

    for (size_t i = 0; i < a->n; i++) {
        uint64_t id = row_at(a, i)->m.series;
        if (i && row_at(a, i - 1)->m.series == id)
            continue;
        while (at < x->ids.len && x->ids.ptr[at] < id)
            at++;
        n += at == x->ids.len || x->ids.ptr[at] != id;
    }
    return n;
}

/* Rows of leaf number i of the minute; with `crossing` the stored leaves of its members, too. */
static int sum_leaf(struct seal *a, uint32_t minute, uint32_t i, bool crossing, struct err *e)
{
    struct rollup *x = a->x;
    uint32_t leaf = minute + i * LEAF_SLOTS;
    struct str v;
    int rc = 0;

    rollup_row_sum_begin(&x->sum);
    for (size_t j = 0; !rc && j < a->n; j++)
        if (slot_leaf(row_at(a, j)->t) == leaf)
            rc = rollup_row_sum_vector(&x->sum, row_at(a, j)->vector, e);
    for (size_t j = 0; !rc && crossing && j < x->ids.len; j++) {
        rc = read_member(a, 0, x->ids.ptr[j], leaf, &v, e);
        if (!rc && v.ptr)
            rc = rollup_row_sum_vector(&x->sum, v, e);
    }
    return rc;
}

/* Level 0 of the minute. The vectors of its leaves are in x->leaf; empty: nothing was added. */
static int fold_leaves(struct seal *a, uint32_t minute, bool crossing, struct err *e)
{
    struct rollup *x = a->x;
    struct rollup_row r;
    int rc = 0;

    for (uint32_t i = 0; !rc && i < LEAVES; i++) {
        uint32_t leaf = minute + i * LEAF_SLOTS;
        buf_reset(&x->leaf[i]);
        rc = sum_leaf(a, minute, i, crossing, e);
        if (rc || !x->sum.rows)
            continue;
        x->old.len = 0;
        if (!crossing)
            rc = read_old(a, 0, leaf, e);
        if (!rc)
            rc = put_sum(a, 0, leaf, &x->sum, ROLLUP_ROW_VECTOR, e);
        if (!rc)
            rc = rollup_row_read(buf_str(&x->out), &r, e);
        if (!rc)
            buf_add_str(&x->leaf[i], r.vector);
    }
    return rc;
}

/* The sum of level 1: of its leaves where they were made, else of the rows. */
static int sum_minute(struct seal *a, bool leaves, struct err *e)
{
    struct rollup *x = a->x;
    int rc = 0;

    rollup_row_sum_begin(&x->sum);
    for (uint32_t i = 0; leaves && !rc && i < LEAVES; i++)
        if (x->leaf[i].len)
            rc = rollup_row_sum_vector(&x->sum, buf_str(&x->leaf[i]), e);
    for (size_t i = 0; !leaves && !rc && i < a->n; i++)
        rc = rollup_row_sum_vector(&x->sum, row_at(a, i)->vector, e);
    return rc;
}

static int fold_minute(struct seal *a, uint32_t minute, bool leaves_kept, struct err *e)
{
    uint32_t from = a->s->o.test.rolled_members ? a->s->o.test.rolled_members : ROLLUP_ROW_ROLLED;
    struct rollup *x = a->x;
    bool rolled = false, crossing;

    if (read_old(a, 1, minute, e) || read_members(a, &rolled, e))
        return e->code;
    crossing = !rolled && count_members(a) >= from;
    if ((rolled || crossing) && leaves_kept) {
        if (fold_leaves(a, minute, crossing, e) || read_old(a, 1, minute, e))
            return e->code;
    }
    if (sum_minute(a, (rolled || crossing) && leaves_kept, e))
        return e->code;
    if (rolled || (crossing && !leaves_kept))
        return put_sum(a, 1, minute, &x->sum, ROLLUP_ROW_ROLLED_VECTOR, e);
    if (crossing) { /* its leaves hold all there is */
        for (size_t i = 0; i < x->old.len; i++) {
            struct key k;
            key_ru_delta(&k, 1, &a->m, minute, x->old.ptr[i].entry);
            if (x->old.ptr[i].entry)
                kv_batch_del(a->b, KV_RU, key_str(&k));
        }
        x->old.len = 0;
        return put_sum(a, 1, minute, &x->sum, ROLLUP_ROW_ROLLED_VECTOR, e);
    }
    for (size_t i = 0; i < a->n; i++)
        rollup_row_sum_member(&x->sum, row_at(a, i)->m.series);
    return put_sum(a, 1, minute, &x->sum, ROLLUP_ROW_LIST_VECTOR, e);
}

/* ---- a node below floor[1] ---- */

/* The row of functions beside it becomes itself + the rows. */
static int put_functions(struct seal *a, uint32_t level, uint32_t t, struct err *e)
{
    struct rollup *x = a->x;
    struct key k;
    int rc = ERR_NOT_FOUND;

    key_ru(&k, level, &a->m, t);
    if (x->old.len)
        rc = kv_get(a->s->kv, NULL, KV_FN, key_str(&k), &x->row, e);
    if (rc && rc != ERR_NOT_FOUND)
        return rc;
    bool add = !rc;
    fn_calc_begin(x->calc, NULL, a->m.tenant, a->m.scope);
    rc = 0;
    for (size_t i = 0; !rc && i < a->n; i++)
        rc = fn_calc_add(x->calc, row_at(a, i)->vector, e);
    if (!rc)
        rc = fn_calc_row(x->calc, &x->fn, e);
    if (!rc && add && x->fn.len) {
        const struct str both[] = { buf_str(&x->row), buf_str(&x->fn) };
        rc = function_cost_merge(both, 2, &x->leaf[0], e);
        if (!rc)
            put(a, KV_FN, level, t, buf_str(&x->leaf[0]));
    } else if (!rc && x->fn.len) {
        put(a, KV_FN, level, t, buf_str(&x->fn));
    }
    return rc;
}

/* A node at its base level: the row becomes itself + the rows. */
static int fold_base(struct seal *a, uint32_t level, uint32_t t, struct err *e)
{
    struct rollup *x = a->x;
    struct rollup_row_sum *sum = &x->sum;
    struct rollup_row r = { 0 };
    int rc = read_old(a, level, t, e);

    rollup_row_sum_begin(sum);
    if (!rc && x->old.len)
        rc = rollup_row_read(x->old.ptr[0].bytes, &r, e);
    if (!rc && x->old.len)
        rc = rollup_row_sum_add(sum, x->old.ptr[0].bytes, e);
    for (size_t i = 0; !rc && i < a->n; i++) {
        rc = rollup_row_sum_vector(sum, row_at(a, i)->vector, e);
        rollup_row_sum_member(sum, row_at(a, i)->m.series);
    }
    if (rc)
        return rc;
    bool list = !sum->many && rollup_row_sum_ids(sum) < ROLLUP_ROW_VECTOR_FROM &&
                !groups_change(a->scope, t, t + LEVELS[level].node);
    for (size_t i = 0; !rc && !list && sum->lists && i < r.len; i++) {
        struct str v;
        rc = read_member(a, level, rollup_row_id(&r, i), t, &v, e);
        if (!rc && v.ptr)
            rc = rollup_row_sum_listed(sum, v, e);
    }
    if (!rc)
        rc = rollup_row_sum_end(sum, list ? ROLLUP_ROW_LIST : ROLLUP_ROW_VECTOR, &x->out, e);
    if (rc)
        return rc;
    put(a, KV_RU, level, t, buf_str(&x->out));
    struct tl_rows_point point = { .m = &a->m,
                                   .group = true,
                                   .level = level,
                                   .t = t,
                                   .total = sum->meta.total,
                                   .writes = sum->meta.writes };
    tl_rows_built(a->s->tl_rows, &point);
    return put_functions(a, level, t, e);
}

/* ---- all nodes ---- */

static int add_points(struct seal *a, struct err *e)
{
    struct vec_reader v;

    for (size_t i = 0; i < a->n; i++) {
        if (vec_peek(row_at(a, i)->vector, &v, e))
            return e->code;
        struct tl_rows_point point = { .m = &a->m,
                                       .group = true,
                                       .t = row_at(a, i)->t,
                                       .total = v.meta.total,
                                       .writes = v.meta.writes };
        tl_rows_sealed(a->s->tl_rows, a->f->at, &point);
    }
    return 0;
}

static int fold_node(struct seal *a, struct err *e)
{
    uint32_t t = a->items[0].node, base = floors_base(a->f, true, t);

    a->m = a->rows[0].m;
    a->m.series = a->items[0].gid;
    arena_reset(a->x->arena);
    int rc = base < 2 ? fold_minute(a, t, base == 0, e) : fold_base(a, base, t, e);
    if (!rc)
        rc = add_points(a, e);
    return rc ? err_wrap(e, "roll-up %016" PRIx64 " at slot %u", a->m.series, t) : 0;
}

static int by_node(const void *a, const void *b)
{
    const struct item *x = a, *y = b;

    if (x->gid != y->gid)
        return x->gid < y->gid ? -1 : 1;
    if (x->node != y->node)
        return x->node < y->node ? -1 : 1;
    return x->row < y->row ? -1 : x->row > y->row;
}

static void push(struct seal *a, uint64_t gid, uint32_t row)
{
    uint32_t t = a->rows[row].t, base = floors_base(a->f, true, t);

    if (base == FLOORS_GONE)
        return;
    t = node_of(MAX(base, 1), t);
    if (t >= groups_since(a->scope, GID_DIM(gid)))
        vec_push(&a->x->items, ((struct item){ gid, t, row }));
}

/* Finds the nodes that each row belongs to. A row belongs to none if its time is older than the
 * groups of its service. */
static int find_nodes(struct seal *a, size_t n, struct err *e)
{
    const struct member *m = &a->rows[0].m;
    const struct series *cached = NULL;
    bool sorted = true, whole;
    uint64_t gid;

    if (groups_known(a->s->groups, m->tenant, m->scope, &a->scope, e))
        return e->code;
    whole = groups_since(a->scope, GROUP_WHOLE) != GROUP_NEVER;
    a->x->items.len = 0;
    for (size_t i = 0; i < n; i++) {
        const struct seal_row *r = &a->rows[i];
        if (!i || r->m.series != r[-1].m.series)
            cached = series_peek(a->s->series, m->tenant, m->scope, r->m.series);
        if (groups_of(a->s->groups, a->scope, &(struct group_data){ cached, r->m.series, r->t },
                      &gid, e))
            return e->code;
        if (gid)
            push(a, gid, (uint32_t)i);
        if (gid && whole)
            push(a, GID(GROUP_WHOLE, 0), (uint32_t)i);
    }
    for (size_t i = 1; sorted && i < a->x->items.len; i++)
        sorted = by_node(&a->x->items.ptr[i - 1], &a->x->items.ptr[i]) < 0;
    if (!sorted)
        qsort(a->x->items.ptr, a->x->items.len, sizeof(*a->x->items.ptr), by_node);
    return 0;
}

int rollup_seal(const struct apply *of, const struct seal_row *rows, size_t n,
                const struct floors *f, struct err *e)
{
    struct store *s = of->s;
    struct seal a = {
        .s = s, .x = s->rollup, .rows = rows, .entry = (uint32_t)of->n->n, .f = f, .b = of->b
    };

    CHECK(n && n < UINT32_MAX);
    if (find_nodes(&a, n, e))
        return e->code;
    const struct item *items = s->rollup->items.ptr;
    for (size_t i = 0, end; i < s->rollup->items.len; i = end) {
        for (end = i + 1; end < s->rollup->items.len && items[end].gid == items[i].gid &&
                          items[end].node == items[i].node;)
            end++;
        a.items = items + i;
        a.n = end - i;
        int rc = fold_node(&a, e);
        if (rc)
            return rc;
    }
    return 0;
}

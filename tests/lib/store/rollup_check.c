/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/store/rollup_check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/base/map.h"
#include "common/base/size.h"
#include "common/store/catalog/group.h"
#include "common/store/state/dirty.h"
#include "common/store/state/floors.h"
#include "common/store/state/rollup_row.h"
#include "common/store/state/store_impl.h"
#include "common/store/state/view.h"

struct node { /* of a group */
    uint32_t level;
    struct member m; /* series: the group */
    uint32_t t;
    VEC(struct str) leaves; /* of all its members; in the arena */
    VEC(uint64_t) ids;      /* whose they are */
    VEC(struct str) rows;   /* of ru */
    char key[KEY_MEMBER_LEN];
};
struct check {
    struct store_view *v;
    struct rollup_counts *c;
    struct arena *a;
    struct map_str *nodes; /* key -> struct node */
    struct rollup_row_sum want, have;
    struct buf want_row, have_row;
    struct group_rule rule;
};

static struct err e;

static void must(int rc)
{
    if (rc)
        fail_msg("%s", e.text);
}

static struct str keep(struct check *x, struct str s)
{
    struct str copy = arena_strdup(x->a, s);

    assert_non_null(copy.ptr);
    return copy;
}

static struct node *node_at(struct check *x, uint32_t level, const struct member *m, uint32_t t)
{
    struct node *n;
    struct key k;

    key_ru(&k, level, m, t);
    n = map_str_get(x->nodes, key_str(&k));
    if (n)
        return n;
    n = XNEW(struct node);
    n->level = level;
    n->m = *m;
    n->t = t;
    memcpy(n->key, k.b, sizeof(n->key));
    map_str_put(x->nodes, str_n(n->key, sizeof(n->key)), n);
    return n;
}

/* ---- groups of series ---- */

static uint32_t rule_at(struct check *x, const struct member *m, uint32_t rules, uint32_t t)
{
    struct buf row;
    struct key k;
    uint32_t best = 0;

    buf_init(&row, MIB);
    for (uint32_t i = 1; i <= rules; i++) {
        key_rule_number(&k, m->tenant, m->scope, i);
        must(kv_get(x->v->kv, x->v->snap, KV_META, key_str(&k), &row, &e));
        must(group_rule_read(buf_str(&row), &x->rule, &e));
        if (x->rule.since <= t)
            best = i;
    }
    buf_deinit(&row);
    assert_true(best);
    return best;
}

static uint64_t group_at(struct check *x, const struct member *m, uint32_t rules, uint32_t t)
{
    struct group_of of[GROUP_RULES_MAX];
    uint32_t rule = rule_at(x, m, rules, t);
    uint64_t gid = 0;
    struct buf row;
    struct key k;
    size_t n;

    buf_init(&row, MIB);
    key_group_of(&k, m->tenant, m->scope, m->series);
    must(kv_get(x->v->kv, x->v->snap, KV_META, key_str(&k), &row, &e));
    must(group_of_read(buf_str(&row), of, &n, &e));
    for (size_t i = 0; i < n; i++)
        if (of[i].rule == rule)
            gid = GID(GROUP_BASE, of[i].ordinal);
    buf_deinit(&row);
    assert_true(gid); /* sealed data without a group */
    return gid;
}

/* ---- leaves ---- */

static void add_leaf(struct check *x, uint64_t gid, const struct member *series, uint32_t t,
                     struct str vector, uint32_t since)
{
    struct member m = *series;

    m.series = gid;
    for (uint32_t l = 0; l < KEY_LEVELS; l++) {
        uint32_t first = node_of(l, t);
        if (node_of(MAX(l, 1), t) < since)
            continue;
        struct node *n = node_at(x, l, &m, first);
        vec_push(&n->leaves, vector);
        vec_push(&n->ids, series->series);
    }
}

static void read_leaves(struct check *x)
{
    struct group_service g;
    struct member m;
    struct key k;
    uint32_t level, t;

    k = (struct key){ .len = 1, .b = { 0 } };
    struct kv_iter *it = kv_iter_new(x->v->kv, x->v->snap, KV_FINE, key_str(&k), STR_NULL);
    for (; kv_iter_valid(it); kv_iter_next(it)) {
        assert_true(key_member_read(kv_iter_key(it), &level, &m, &t));
        assert_int_equal(level, 0);
        struct str v = keep(x, kv_iter_value(it));
        must(group_service_get(x->v->kv, x->v->snap, m.tenant, m.scope, &g, &e));
        assert_true(g.rules);
        x->c->rules = MAX(x->c->rules, g.rules);
        x->c->groups = MAX(x->c->groups, g.next);
        add_leaf(x, group_at(x, &m, g.rules, t), &m, t, v, g.since[GROUP_BASE]);
        if (g.since[GROUP_WHOLE] != GROUP_NEVER)
            add_leaf(x, GID(GROUP_WHOLE, 0), &m, t, v, g.since[GROUP_WHOLE]);
    }
    must(kv_iter_status(it, &e));
    kv_iter_free(it);
}

static void read_rollups(struct check *x)
{
    struct key k = { .len = 1, .b = { 0 } };
    uint32_t level, t, entry;
    struct member m;

    struct kv_iter *it = kv_iter_new(x->v->kv, x->v->snap, KV_RU, key_str(&k), STR_NULL);
    for (; kv_iter_valid(it); kv_iter_next(it)) {
        assert_true(key_ru_read(kv_iter_key(it), &level, &m, &t, &entry));
        struct node *n = node_at(x, level, &m, t);
        assert_true(!entry || (level < 2 && n->rows.len)); /* behind a base row */
        x->c->deltas += entry != 0;
        vec_push(&n->rows, keep(x, kv_iter_value(it)));
    }
    must(kv_iter_status(it, &e));
    kv_iter_free(it);
}

/* ---- comparing ---- */

static void sum_up(struct check *x, const struct node *n)
{
    rollup_row_sum_begin(&x->want);
    vec_for (i, &n->leaves)
        must(rollup_row_sum_vector(&x->want, n->leaves.ptr[i], &e));
    vec_for (i, &n->ids)
        vec_push(&x->want.ids, n->ids.ptr[i]);
    (void)rollup_row_sum_ids(&x->want);
    rollup_row_sum_begin(&x->have);
    vec_for (i, &n->rows)
        must(rollup_row_sum_add(&x->have, n->rows.ptr[i], &e));
    (void)rollup_row_sum_ids(&x->have);
}

static void differ(const struct node *n, const char *what)
{
    fail_msg("group %016" PRIx64 " of service %u, level %u at %u: %s", n->m.series, n->m.scope,
             n->level, n->t, what);
}

static void same_vector(struct check *x, const struct node *n)
{
    must(rollup_row_sum_end(&x->want, ROLLUP_ROW_VECTOR, &x->want_row, &e));
    must(rollup_row_sum_end(&x->have, ROLLUP_ROW_VECTOR, &x->have_row, &e));
    if (!str_eq(buf_str(&x->want_row), buf_str(&x->have_row)))
        differ(n, "its vector is not the sum of the leaves");
}

static void same_list(const struct check *x, const struct node *n)
{
    bool same = x->want.ids.len == x->have.ids.len;

    for (size_t i = 0; same && i < x->want.ids.len; i++)
        same = x->want.ids.ptr[i] == x->have.ids.ptr[i];
    if (!same)
        differ(n, "it lists other members");
    if (x->want.meta.total != x->have.meta.total || x->want.meta.writes != x->have.meta.writes ||
        (!x->want.meta.saturated && x->want.meta.fp != x->have.meta.fp))
        differ(n, "its list has other sums");
}

static bool minute_rolled(struct check *x, const struct node *leaf)
{
    struct node *n = node_at(x, 1, &leaf->m, node_of(1, leaf->t));
    bool rolled = false;
    struct rollup_row r;

    vec_for (i, &n->rows) {
        must(rollup_row_read(n->rows.ptr[i], &r, &e));
        rolled |= r.rolled0;
    }
    return rolled;
}

static bool is_dirty(struct check *x, const struct node *n)
{
    struct dirty_mark mark;
    int rc = dirty_get(&(struct kv_view){ x->v->kv, x->v->snap }, &n->m, n->level, n->t, &mark, &e);

    return rc != ERR_NOT_FOUND;
}

static void check_node(struct check *x, const struct node *n)
{
    if (n->level > 1 && is_dirty(x, n))
        return;
    if (n->level == 0 && !minute_rolled(x, n)) {
        if (n->rows.len)
            differ(n, "its minute is not ROLLED0");
        return;
    }
    if (!n->leaves.len || !n->rows.len)
        differ(n, n->rows.len ? "there are no such data" : "it has no row");
    sum_up(x, n);
    x->c->whole += GID_DIM(n->m.series) == GROUP_WHOLE;
    if (n->level == 1 && !x->have.rolled0) {
        same_list(x, n);
        x->c->listed++;
    }
    x->c->rolled += n->level == 1 && x->have.rolled0;
    if (x->have.lists) {
        if (n->level < 2 || x->have.ids.len >= ROLLUP_ROW_VECTOR_FROM)
            differ(n, "a list where a vector must be");
        same_list(x, n);
        x->c->lists++;
        return;
    }
    x->c->vectors += n->level > 1;
    same_vector(x, n);
}

void rollup_check(struct store_view *v, struct rollup_counts *c)
{
    struct check x = { .v = v, .c = c, .a = arena_new(GIB), .nodes = map_str_new() };
    VEC(struct node *) all = { 0 };
    size_t pos = 0;
    struct str key;
    void *p;

    rollup_row_sum_init(&x.want);
    rollup_row_sum_init(&x.have);
    buf_init(&x.want_row, GIB);
    buf_init(&x.have_row, GIB);
    read_leaves(&x);
    read_rollups(&x);
    while (map_str_next(x.nodes, &pos, &key, &p))
        vec_push(&all, p);
    vec_for (i, &all)
        check_node(&x, all.ptr[i]);
    pos = 0;
    while (map_str_next(x.nodes, &pos, &key, &p)) {
        struct node *n = p;
        vec_free(&n->leaves);
        vec_free(&n->ids);
        vec_free(&n->rows);
        xfree(n);
    }
    vec_free(&all);
    map_str_free(x.nodes);
    rollup_row_sum_deinit(&x.want);
    rollup_row_sum_deinit(&x.have);
    buf_deinit(&x.want_row);
    buf_deinit(&x.have_row);
    arena_free(x.a);
}

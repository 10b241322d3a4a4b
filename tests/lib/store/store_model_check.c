/* SPDX-License-Identifier: Apache-2.0
 *
 * The model's answers beside the store's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/model/slot.h"
#include "tests/lib/store/store_model.h"

/* Does the push belong to the question? */
static bool selected(const struct model *m, const struct model_push *p, struct str tenant,
                     const struct selector *s, struct arena *a)
{
    struct labels l = model_labels(m->w, p->series, p->type, a);
    struct err e;

    if (!str_eqc(tenant, m->w->series.ptr[p->series].tenant))
        return false;
    int yes = selector_match(s, &l, &e);
    assert_true(yes >= 0);
    return yes > 0;
}

static uint64_t add_sat(uint64_t a, uint64_t b)
{
    return a + b < a ? UINT64_MAX : a + b;
}

struct sum {
    uint64_t value;
    bool seen;
};

static void sum_text(struct map_str *sums, struct str text, uint64_t value)
{
    struct sum *s = map_str_get(sums, text);

    if (!s) {
        s = XNEW(struct sum);
        map_str_put(sums, text, s);
    }
    s->value = add_sat(s->value, value);
}

static void sums_free(struct map_str *sums)
{
    size_t pos = 0;
    struct str key;
    void *val;

    while (map_str_next(sums, &pos, &key, &val))
        xfree(val);
    map_str_free(sums);
}

/* ---- merge ---- */

/* Text of a node of the answer, as in the model. */
static struct str node_text(const struct stacks *st, uint32_t node, struct arena *a)
{
    struct buf b, path;
    uint32_t up[64];
    size_t n = 0;

    buf_init(&b, MIB);
    buf_init(&path, MIB);
    for (; node; node = st->node_parent.ptr[node - 1]) {
        assert_true(n < ARRAY_LEN(up));
        up[n++] = st->node_frame.ptr[node - 1];
    }
    while (n) {
        uint32_t f = up[--n];
        if (path.len)
            buf_add_c(&path, ';');
        buf_addf(&path, "%.*s|%.*s|%.*s|%u|%" PRIu64,
                 STR_ARG(stacks_string_at(st, st->frame_func.ptr[f])),
                 STR_ARG(stacks_string_at(st, st->frame_file.ptr[f])),
                 STR_ARG(stacks_string_at(st, st->frame_module.ptr[f])), st->frame_line.ptr[f],
                 st->frame_addr.ptr[f]);
    }
    struct str kept = arena_strdup(a, buf_str(&path));
    assert_non_null(kept.ptr);
    buf_deinit(&b);
    buf_deinit(&path);
    return kept;
}

static void check_sums(const struct store_merge *got, struct map_str *want, uint64_t total,
                       struct arena *a)
{
    size_t pos = 0, seen = 0;
    struct str key;
    void *val;

    for (size_t i = 0; i < got->nodes.len; i++) {
        struct str t = node_text(got->stacks, got->nodes.ptr[i], a);
        struct sum *s = map_str_get(want, t);
        if (!s || s->value != got->values.ptr[i] || s->seen)
            fail_msg("stack [%.*s]: store says %" PRIu64 ", model %" PRIu64, STR_ARG(t),
                     got->values.ptr[i], s ? s->value : 0);
        s->seen = true;
        assert_true(!i || got->nodes.ptr[i] > got->nodes.ptr[i - 1]);
        seen++;
    }
    while (map_str_next(want, &pos, &key, &val))
        if (!((struct sum *)val)->seen)
            fail_msg("stack [%.*s] is missing, model says %" PRIu64, STR_ARG(key),
                     ((struct sum *)val)->value);
    assert_int_equal(seen, map_str_len(want));
    assert_int_equal(got->total, total);
}

static void check_leaves(const struct store_merge *got, const bool *leaves, uint32_t first,
                         uint32_t n)
{
    size_t at = 0;

    for (uint32_t i = 0; i < n; i++) {
        if (!leaves[i])
            continue;
        assert_true(at < got->leaves.len);
        assert_int_equal(got->leaves.ptr[at], first + i);
        at++;
    }
    assert_int_equal(at, got->leaves.len);
}

/* The store's answer; its real bounds, in leaves, hold the range asked for. */
static void ask_merge(const struct model *m, struct store_view *v, const struct store_query *q,
                      struct store_merge *got, uint32_t *from, uint32_t *to)
{
    struct err e;

    *from = slot_of_ms(q->start_ms) / 2;
    *to = slot_of_ms(q->end_ms - 1) / 2 + 1;
    if (store_merge(v, q, got, &e))
        fail_msg("merge: %s", e.text);
    assert_true(got->start_ms <= slot_to_ms(*from * 2) && got->end_ms >= slot_to_ms(*to * 2));
    assert_true(m->floors ||
                (got->start_ms == slot_to_ms(*from * 2) && got->end_ms == slot_to_ms(*to * 2)));
    *from = slot_of_ms(got->start_ms) / 2;
    *to = slot_of_ms(got->end_ms) / 2;
}

void model_check_merge(const struct model *m, size_t n, struct store_view *v,
                       const struct store_query *q)
{
    struct map_str *want = map_str_new();
    struct arena *a = arena_new(GIB);
    struct store_merge got = { 0 };
    struct stacks st;
    uint64_t total = 0;
    bool gauge = false;
    uint32_t from, to;

    stacks_init(&st, GIB, 1);
    got.stacks = &st;
    ask_merge(m, v, q, &got, &from, &to);
    bool *leaves = XNEW_ARRAY(bool, to - from + 1);
    for (size_t i = 0; i < n; i++) {
        const struct model_push *p = &m->pushes.ptr[i];
        struct arena_mark mark = arena_mark(a);
        bool yes = str_eqc(q->profile_type, model_types[p->type].id) &&
                   selected(m, p, q->tenant, q->selector, a);
        arena_rewind(a, mark);
        for (size_t j = 0; yes && j < p->vectors.len; j++) {
            const struct model_vector *x = &p->vectors.ptr[j];
            if (x->slot / 2 < from || x->slot / 2 >= to)
                continue;
            gauge = model_types[p->type].gauge;
            leaves[x->slot / 2 - from] = true;
            vec_for (k, &x->samples) {
                struct str t = m->w->stacks.ptr[x->samples.ptr[k].stack].text;
                sum_text(want, t, x->samples.ptr[k].value);
                total = add_sat(total, x->samples.ptr[k].value);
            }
        }
    }
    check_sums(&got, want, total, a);
    if (gauge)
        check_leaves(&got, leaves, from, to - from);
    store_merge_deinit(&got);
    stacks_deinit(&st);
    sums_free(want);
    xfree(leaves);
    arena_free(a);
}

/* ---- timeline ---- */

struct cell {
    uint64_t value, writes;
    bool *leaves; /* of the whole range */
};
struct line {
    struct cell *cells;
};

static struct str group_key(const struct labels *l, const struct str *by, size_t n, struct arena *a)
{
    struct labels g = { 0 };
    struct buf b;
    struct err e;

    for (size_t i = 0; i < n; i++)
        if (labels_get(l, by[i]).len)
            assert_int_equal(labels_set(&g, a, by[i], labels_get(l, by[i]), &e), 0);
    buf_init(&b, MIB);
    labels_encode(&g, &b);
    struct str s = arena_strdup(a, buf_str(&b));
    buf_deinit(&b);
    return s;
}

struct span {
    int64_t origin_ms, step_ms;
    uint32_t points, leaf0, leaves;
};

static void check_line(const struct store_points *p, const struct line *l, uint32_t points,
                       const struct span *s, bool gauge)
{
    struct leaf_items items = { 0 };
    struct leaf_writer w = { .to = &items };
    size_t at = 0;

    for (uint32_t k = 0; k < points; k++) {
        if (!l->cells[k].writes)
            continue;
        assert_true(at < p->point.len);
        assert_int_equal(p->point.ptr[at], k);
        assert_int_equal(p->value.ptr[at], l->cells[k].value);
        assert_int_equal(p->writes.ptr[at], l->cells[k].writes);
        uint32_t have = 0;
        for (uint32_t i = 0; i < s->leaves; i++) {
            if (!l->cells[k].leaves[i])
                continue;
            leaf_put(&w, s->leaf0 + i, 1);
            have++;
        }
        if (gauge)
            assert_int_equal(p->leaves.ptr[at], have);
        at++;
    }
    assert_int_equal(at, p->point.len);
    leaf_put_end(&w);
    assert_int_equal(p->items.len, gauge ? items.len : 0);
    if (gauge)
        assert_memory_equal(p->items.ptr, items.ptr, items.len * sizeof(*items.ptr));
    vec_free(&items);
}

static void model_point(struct map_str *lines, struct str key, const struct span *s, uint32_t slot,
                        uint64_t total)
{
    int64_t t = slot_to_ms(slot), k;
    struct line *l;

    for (k = 0; k < s->points; k++) /* (origin + (k-1) step, origin + k step] */
        if (t > s->origin_ms + (k - 1) * s->step_ms && t <= s->origin_ms + k * s->step_ms)
            break;
    if (k == s->points)
        return;
    l = map_str_get(lines, key);
    if (!l) {
        l = XNEW(struct line);
        l->cells = XNEW_ARRAY(struct cell, s->points);
        for (uint32_t i = 0; i < s->points; i++)
            l->cells[i].leaves = XNEW_ARRAY(bool, s->leaves);
        map_str_put(lines, key, l);
    }
    l->cells[k].value = add_sat(l->cells[k].value, total);
    l->cells[k].writes++;
    assert_true(slot / 2 - s->leaf0 < s->leaves);
    l->cells[k].leaves[slot / 2 - s->leaf0] = true;
}

void model_check_timeline(const struct model *m, size_t n, struct store_view *v,
                          const struct store_query *q, int64_t origin_ms, int64_t step_ms,
                          uint32_t points, const struct str *group_by, size_t group_by_len)
{
    struct map_str *lines = map_str_new();
    struct arena *a = arena_new(GIB), *answer = arena_new(64 * MIB);
    struct span s = { origin_ms, step_ms, points, slot_of_ms(origin_ms - step_ms) / 2, 0 };
    struct store_timeline got;
    struct err e;
    struct buf key;
    size_t pos = 0;
    struct str text;
    void *val;

    s.leaves = slot_of_ms(origin_ms + points * step_ms) / 2 - s.leaf0 + 2;
    for (size_t i = 0; i < n; i++) {
        const struct model_push *p = &m->pushes.ptr[i];
        if (!str_eqc(q->profile_type, model_types[p->type].id) ||
            !selected(m, p, q->tenant, q->selector, a))
            continue;
        struct labels l = model_labels(m->w, p->series, p->type, a);
        struct str g = group_key(&l, group_by, group_by_len, a);
        vec_for (j, &p->vectors) {
            uint64_t total = 0;
            vec_for (k, &p->vectors.ptr[j].samples)
                total = add_sat(total, p->vectors.ptr[j].samples.ptr[k].value);
            model_point(lines, g, &s, p->vectors.ptr[j].slot, total);
        }
    }
    struct store_query asked = *q;
    asked.leaf_items = true;
    if (store_timeline(v,
                       &(struct store_timeline_query){ .q = asked,
                                                       .origin_ms = origin_ms,
                                                       .step_ms = step_ms,
                                                       .points = points,
                                                       .group_by = group_by,
                                                       .group_by_len = group_by_len },
                       answer, &got, &e))
        fail_msg("timeline: %s", e.text);
    assert_int_equal(got.series.len, map_str_len(lines));
    buf_init(&key, MIB);
    vec_for (i, &got.series) {
        buf_reset(&key);
        labels_encode(&got.series.ptr[i].labels, &key);
        struct line *l = map_str_get(lines, buf_str(&key));
        assert_non_null(l);
        check_line(&got.series.ptr[i], l, points, &s, got.gauge);
    }
    buf_deinit(&key);
    while (map_str_next(lines, &pos, &text, &val)) {
        struct line *l = val;
        for (uint32_t i = 0; i < points; i++)
            xfree(l->cells[i].leaves);
        xfree(l->cells);
        xfree(l);
    }
    map_str_free(lines);
    store_timeline_deinit(&got);
    arena_free(answer);
    arena_free(a);
}

/* ---- labels ---- */

static void want_text(struct map_str *set, struct str s, struct arena *a)
{
    static char there;
    struct str kept = arena_strdup(a, s);

    if (!map_str_get(set, s))
        map_str_put(set, kept, &there);
}

static void want_of(struct map_str *want, const struct store_labels_query *q,
                    const struct labels *l, struct arena *a)
{
    switch (q->kind) {
    case STORE_NAMES:
        for (size_t i = 0; i < l->len; i++)
            want_text(want, l->ptr[i].name, a);
        break;
    case STORE_VALUES:
        if (labels_get(l, q->name).len)
            want_text(want, labels_get(l, q->name), a);
        break;
    case STORE_TYPES:
        want_text(want, labels_get(l, STR("__profile_type__")), a);
        break;
    case STORE_SETS:
        if (q->names_len) {
            want_text(want, group_key(l, q->names, q->names_len, a), a);
        } else {
            struct buf b;
            buf_init(&b, MIB);
            labels_encode(l, &b);
            want_text(want, buf_str(&b), a);
            buf_deinit(&b);
        }
        break;
    }
}

/* Between the first and the last day the (series, type), or the (service, type), had data. */
static bool active(const struct model *m, size_t n, const struct model_push *p,
                   const struct store_labels_query *q, bool service)
{
    const struct model_series *s = m->w->series.ptr;
    uint32_t first = UINT32_MAX, last = 0;

    if (!q->start_ms && !q->end_ms)
        return true;
    for (size_t i = 0; i < n; i++) {
        const struct model_push *o = &m->pushes.ptr[i];
        bool same = service ? !strcmp(s[o->series].tenant, s[p->series].tenant) &&
                                  !strcmp(s[o->series].service, s[p->series].service)
                            : o->series == p->series;
        if (!same || o->type != p->type)
            continue;
        vec_for (j, &o->vectors) {
            first = MIN(first, o->vectors.ptr[j].slot / 17280);
            last = MAX(last, o->vectors.ptr[j].slot / 17280);
        }
    }
    return slot_of_ms(q->start_ms) / 17280 <= last && slot_of_ms(q->end_ms - 1) / 17280 >= first;
}

/* May the answer come from days of services instead of series? If no other label is asked for. */
static bool by_services(const struct store_labels_query *q)
{
    struct str l = STR("service_name");
    bool yes = q->kind == STORE_TYPES || (q->kind == STORE_SETS && q->names_len);

    if (q->kind == STORE_VALUES)
        yes = str_eq(q->name, l) || str_starts(q->name, STR("__"));
    for (size_t i = 0; q->kind == STORE_SETS && i < q->names_len; i++)
        yes = yes && (str_eq(q->names[i], l) || str_starts(q->names[i], STR("__")));
    return yes;
}

static void check_text(struct str s, const struct map_str *want, const struct map_str *may,
                       size_t *have)
{
    bool there = map_str_get(want, s) != NULL;

    *have += there;
    assert_true(there || (may && map_str_get(may, s)));
}

void model_check_labels(const struct model *m, size_t n, struct store_view *v,
                        const struct store_labels_query *q)
{
    struct map_str *want = map_str_new(), *may = map_str_new();
    struct arena *a = arena_new(GIB), *answer = arena_new(64 * MIB);
    struct store_labels got;
    struct err e;
    struct buf b;

    for (size_t i = 0; i < n; i++) {
        const struct model_push *p = &m->pushes.ptr[i];
        if (!selected(m, p, q->tenant, q->selector, a) || !active(m, n, p, q, true))
            continue;
        struct labels l = model_labels(m->w, p->series, p->type, a);
        want_of(may, q, &l, a); /* types may be answered by their services */
        if (active(m, n, p, q, false))
            want_of(want, q, &l, a);
    }
    if (store_labels(v, q, answer, &got, &e))
        fail_msg("labels: %s", e.text);
    size_t have = 0, answers = q->kind == STORE_SETS ? got.sets.len : got.values.len;
    const struct map_str *also = by_services(q) ? may : NULL;
    buf_init(&b, MIB);
    vec_for (i, &got.sets) {
        buf_reset(&b);
        labels_encode(&got.sets.ptr[i], &b);
        check_text(buf_str(&b), want, also, &have);
    }
    vec_for (i, &got.values) {
        assert_true(!i || str_cmp(got.values.ptr[i - 1], got.values.ptr[i]) < 0);
        check_text(got.values.ptr[i], want, also, &have);
    }
    assert_int_equal(have, map_str_len(want));
    assert_true(also || answers == have);
    buf_deinit(&b);
    store_labels_deinit(&got);
    map_str_free(want);
    map_str_free(may);
    arena_free(answer);
    arena_free(a);
}

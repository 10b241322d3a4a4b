/* SPDX-License-Identifier: Apache-2.0
 *
 * merged.c: adds replies to one call tree; gauges are divided at the end, by the leaves of all.
 *
 * Memory of a reply's part of the tree is reserved before it is added. Ingesters have disjoint
 * data, so sums add up; leaves may be shared between them, so they are collected, sorted and
 * counted once. The division comes last, over the whole tree, so that the parts still add up after
 * rounding.
 */
#include "querier/merge/merged.h"

#include <stdlib.h>

#include "common/base/size.h"

void merged_init(struct merged *m, struct query *q)
{
    *m = (struct merged){ 0 };
    calltree_init(&m->tree, q->qr->seed);
}

void merged_deinit(struct merged *m)
{
    calltree_deinit(&m->tree);
    vec_free(&m->facts.leaves);
}

static int ascending(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* Services, tenants and types may share leaves: each counts once. */
uint64_t merged_facts_end(struct merged_facts *f)
{
    size_t n = 0;

    if (!f->leaves.len)
        return 1;
    qsort(f->leaves.ptr, f->leaves.len, sizeof(uint32_t), ascending);
    vec_for (i, &f->leaves)
        if (n == 0 || f->leaves.ptr[n - 1] != f->leaves.ptr[i])
            f->leaves.ptr[n++] = f->leaves.ptr[i];
    f->leaves.len = n;
    return f->gauge ? n : 1;
}

void merged_facts_add(struct merged_facts *f, struct query *q, const struct wire_merged *w)
{
    for (size_t i = 0; i < w->leaves_len; i++)
        vec_push(&f->leaves, w->leaves[i]);
    f->series += w->series;
    f->rows += w->rows;
    f->gauge |= w->gauge;
    q->saturated += w->saturated;
    if (w->end_ms > w->start_ms) {
        bool first = q->bounds_end_ms == 0;
        q->bounds_start_ms = first ? w->start_ms : MIN(q->bounds_start_ms, w->start_ms);
        q->bounds_end_ms = MAX(q->bounds_end_ms, w->end_ms);
    }
}

static int add_reply(struct merged *m, struct query *q, const struct wire_merged *w, struct err *e)
{
    size_t cost = calltree_cost(&w->part.stacks) + w->leaves_len * 2 * sizeof(uint32_t);

    if (query_take(q, cost, e) || calltree_add(&m->tree, &w->part, &q->cancel, e))
        return e->code;
    merged_facts_add(&m->facts, q, w);
    return 0;
}

/* What a dictionary or a push had no room for ends in this frame (common/store/dict/dict_cap.h). */
static uint64_t overflow_of(const struct calltree *t)
{
    uint64_t sum = 0;
    size_t name = 0;

    while (name < t->names.len && !str_eqc(t->names.ptr[name], "[overflow]"))
        name++;
    for (size_t i = 0; name < t->names.len && i < t->name.len; i++)
        sum = t->name.ptr[i] == name ? u64_add_sat(sum, t->self.ptr[i]) : sum;
    return sum;
}

NODISCARD int merged_read(struct merged *m, struct query *q, size_t ask, struct err *e)
{
    struct wire_merged w;
    size_t pos = 0;
    int n;

    while ((n = query_next_merged(q, ask, &pos, &w, e)) > 0)
        if (add_reply(m, q, &w, e))
            return e->code;
    if (n < 0)
        return e->code;
    calltree_divide(&m->tree, merged_facts_end(&m->facts));
    q->saturated += m->tree.saturated;
    q->overflow = u64_add_sat(q->overflow, overflow_of(&m->tree));
    return 0;
}

NODISCARD int merged_layout(const struct merged *m, struct query *q, size_t max_nodes,
                            struct layout *ret, struct err *e)
{
    layout_init(ret, &m->tree, max_nodes);
    if (query_take(q, flame_cost(ret), e)) {
        layout_deinit(ret);
        return e->code;
    }
    return 0;
}

NODISCARD int merged_timeline(struct query *q, size_t ask, uint32_t points, bool average,
                              struct timeline *t, struct err *e)
{
    struct wire_timelines w;
    size_t pos = 0;
    int n;

    while ((n = query_next_timelines(q, ask, &pos, points, &w, e)) > 0)
        if (query_take(q, timeline_cost(&w), e) || timeline_add(t, &w, e))
            return e->code;
    if (n < 0)
        return e->code;
    timeline_finish(t, average);
    return 0;
}

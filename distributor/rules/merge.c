/* SPDX-License-Identifier: Apache-2.0
 *
 * merge: series whose labels became equal. Two of them in one push would have one write id, and the
 * second would be taken for a repeat of the first; so their values are added up here.
 *
 * All samples of such series are put in one array, sorted by node and folded: the cost is that of
 * one sort, however many series fall together. Exemplars with one id are folded in the same way.
 */
#include <stdlib.h>

#include "common/base/mem.h"
#include "distributor/rules/apply.h"

struct sample {
    uint32_t node;
    uint64_t value;
};
struct column {
    const uint32_t *nodes;
    const uint64_t *values;
    size_t len;
};

static int by_node(const void *a, const void *b)
{
    uint32_t x = ((const struct sample *)a)->node, y = ((const struct sample *)b)->node;

    return (x > y) - (x < y);
}

static int cmp_labels(const struct labels *a, const struct labels *b)
{
    for (size_t i = 0; i < MIN(a->len, b->len); i++) {
        int c = str_cmp(a->ptr[i].name, b->ptr[i].name);
        if (!c)
            c = str_cmp(a->ptr[i].value, b->ptr[i].value);
        if (c)
            return c;
    }
    return (a->len > b->len) - (a->len < b->len);
}

static int by_service(const void *a, const void *b)
{
    const struct push_series *x = a, *y = b;
    int c = str_cmp(rules_service(x), rules_service(y));

    return c ? c : cmp_labels(&x->labels, &y->labels);
}

static int by_id(const void *a, const void *b)
{
    const struct push_exemplar *x = a, *y = b;

    return x->kind != y->kind ? (x->kind > y->kind) - (x->kind < y->kind) : str_cmp(x->id, y->id);
}

/* n columns into one, which is in the arena. */
static bool fold(struct push *p, const struct column *in, size_t n, struct column *ret)
{
    size_t total = 0, len = 0;

    for (size_t i = 0; i < n; i++)
        total += in[i].len;
    struct sample *all = XNEW_ARRAY(struct sample, total + 1);
    for (size_t i = 0, at = 0; i < n; i++)
        for (size_t k = 0; k < in[i].len; k++)
            all[at++] = (struct sample){ in[i].nodes[k], in[i].values[k] };
    qsort(all, total, sizeof(*all), by_node);
    for (size_t i = 0; i < total; i++) {
        if (len && all[len - 1].node == all[i].node)
            all[len - 1].value = push_sum(p, all[len - 1].value, all[i].value);
        else
            all[len++] = all[i];
    }
    uint32_t *nodes = arena_alloc(p->arena, (len + 1) * sizeof(*nodes));
    uint64_t *values = arena_alloc(p->arena, (len + 1) * sizeof(*values));
    for (size_t i = 0; nodes && values && i < len; i++) {
        nodes[i] = all[i].node;
        values[i] = all[i].value;
    }
    xfree(all);
    *ret = (struct column){ nodes, values, len };
    return nodes && values;
}

static bool fold_exemplars(struct push *p, struct push_exemplar *all, size_t n, size_t *ret_len)
{
    size_t len = 0, to;
    bool ok = true;

    qsort(all, n, sizeof(*all), by_id);
    for (size_t from = 0; ok && from < n; from = to) {
        for (to = from + 1; to < n && by_id(&all[from], &all[to]) == 0; to++)
            ;
        struct push_exemplar x = all[from];
        if (to - from > 1) {
            struct column *in = XNEW_ARRAY(struct column, to - from), out;
            for (size_t i = from; i < to; i++)
                in[i - from] = (struct column){ all[i].nodes, all[i].values, all[i].len };
            ok = fold(p, in, to - from, &out);
            xfree(in);
            x.nodes = out.nodes;
            x.values = out.values;
            x.len = out.len;
        }
        all[len++] = x;
    }
    *ret_len = len;
    return ok;
}

/* Series [from, to) have the same labels: they become *ret. */
static bool merge_run(struct push *p, const struct push_series *from, size_t n,
                      struct push_series *ret)
{
    struct column *in = XNEW_ARRAY(struct column, n), out;
    struct push_series s = from[0];
    size_t exemplars = 0;

    s.total = 0;
    for (size_t i = 0; i < n; i++) {
        in[i] = (struct column){ from[i].nodes, from[i].values, from[i].len };
        exemplars += from[i].exemplars_len;
        if (from[i].unit != s.unit)
            s.unit = 1;
    }
    bool ok = fold(p, in, n, &out);
    xfree(in);
    if (!ok)
        return false;
    s.nodes = out.nodes;
    s.values = out.values;
    s.len = out.len;
    for (size_t i = 0; i < s.len; i++)
        s.total = push_sum(p, s.total, s.values[i]);
    if (exemplars) {
        s.exemplars = ARENA_ARRAY(p->arena, struct push_exemplar, exemplars);
        if (!s.exemplars)
            return false;
        s.exemplars_len = 0;
        s.exemplars_cap = exemplars;
        for (size_t i = 0; i < n; i++)
            for (size_t k = 0; k < from[i].exemplars_len; k++)
                s.exemplars[s.exemplars_len++] = from[i].exemplars[k];
        if (!fold_exemplars(p, s.exemplars, exemplars, &s.exemplars_len))
            return false;
        p->exemplars -= exemplars - s.exemplars_len;
    }
    *ret = s;
    return true;
}

bool rules_merge(struct push *p)
{
    size_t len = 0, to;

    if (p->series_len)
        qsort(p->series, p->series_len, sizeof(*p->series), by_service);
    for (size_t from = 0; from < p->series_len; from = to) {
        struct push_series s = p->series[from];
        for (to = from + 1;
             to < p->series_len && labels_eq(&p->series[from].labels, &p->series[to].labels); to++)
            ;
        if (to - from > 1 && !merge_run(p, &p->series[from], to - from, &s))
            return false;
        p->series[len++] = s;
    }
    p->series_len = len;
    return true;
}

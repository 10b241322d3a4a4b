/* SPDX-License-Identifier: Apache-2.0 */
#include "querier/merge/label_lists.h"
#include "common/sys/pool.h"

#include <stdlib.h>

static int by_value(const void *a, const void *b)
{
    return str_cmp(*(const struct str *)a, *(const struct str *)b);
}

static int by_labels(const void *a, const void *b)
{
    const struct labels *x = a, *y = b;

    for (size_t i = 0; i < x->len && i < y->len; i++) {
        int c = str_cmp(x->ptr[i].name, y->ptr[i].name);
        c = c ? c : str_cmp(x->ptr[i].value, y->ptr[i].value);
        if (c)
            return c;
    }
    return x->len < y->len ? -1 : x->len > y->len;
}

static void unite(struct query *q, struct label_lists *l)
{
    size_t n = 0, max = q->qr->conf->labels_max;

    if (l->values.len)
        qsort(l->values.ptr, l->values.len, sizeof(*l->values.ptr), by_value);
    vec_for (i, &l->values)
        if (n == 0 || !str_eq(l->values.ptr[n - 1], l->values.ptr[i]))
            l->values.ptr[n++] = l->values.ptr[i];
    q->truncated |= n > max;
    l->values.len = MIN(n, max);
    n = 0;
    if (l->sets.len)
        qsort(l->sets.ptr, l->sets.len, sizeof(*l->sets.ptr), by_labels);
    vec_for (i, &l->sets)
        if (n == 0 || by_labels(&l->sets.ptr[n - 1], &l->sets.ptr[i]))
            l->sets.ptr[n++] = l->sets.ptr[i];
    q->truncated |= n > max;
    l->sets.len = MIN(n, max);
}

static void drop_odd_names(struct labels *l)
{
    size_t n = 0;

    pool_slice();
    for (size_t i = 0; i < l->len; i++)
        if (label_name_plain(l->ptr[i].name))
            l->ptr[n++] = l->ptr[i];
    l->len = n;
}

NODISCARD int label_lists_read(struct query *q, size_t ask, bool plain_only,
                               struct label_lists *ret, struct err *e)
{
    struct label_lists l = { 0 };
    struct wire_label_lists w;
    size_t pos = 0;
    int n;

    while ((n = query_next_labels(q, ask, &pos, &w, e)) > 0) {
        if (query_take(q, 2 * (w.values_len + w.sets_len) * sizeof(struct str), e)) {
            n = -1;
            break;
        }
        for (size_t i = 0; i < w.values_len; i++)
            vec_push(&l.values, w.values[i]);
        for (size_t i = 0; i < w.sets_len; i++) {
            if (plain_only)
                drop_odd_names(&w.sets[i]);
            vec_push(&l.sets, w.sets[i]);
        }
        q->truncated |= w.truncated;
    }
    if (n < 0) {
        label_lists_deinit(&l);
        return e->code;
    }
    unite(q, &l);
    *ret = l;
    return 0;
}

void label_lists_deinit(struct label_lists *l)
{
    vec_free(&l->values);
    vec_free(&l->sets);
}

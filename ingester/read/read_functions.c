/* SPDX-License-Identifier: Apache-2.0
 *
 * read_functions: shards answer one after the other; functions of one name add up. Leaves in which
 * several shards have data of a gauge count once, as for timelines.
 */
#include "ingester/read/read_functions.h"

#include <stdlib.h>

#include "common/base/size.h"

static void function_free(struct store_function *f)
{
    vec_free(&f->point);
    vec_free(&f->self);
    vec_free(&f->total);
}

/* Points are ascending in both. */
static void unite_function(struct store_function *to, const struct store_function *from)
{
    struct store_function sum = { .name = to->name };
    size_t i = 0, k = 0;

    while (i < to->point.len || k < from->point.len) {
        uint32_t a = i < to->point.len ? to->point.ptr[i] : UINT32_MAX;
        uint32_t b = k < from->point.len ? from->point.ptr[k] : UINT32_MAX;
        bool left = a <= b, right = b <= a;

        vec_push(&sum.point, MIN(a, b));
        vec_push(&sum.self, u64_add_sat(left ? to->self.ptr[i] : 0, right ? from->self.ptr[k] : 0));
        vec_push(&sum.total,
                 u64_add_sat(left ? to->total.ptr[i] : 0, right ? from->total.ptr[k] : 0));
        i += left;
        k += right;
    }
    function_free(to);
    *to = sum;
}

static int by_name(const void *a, const void *b)
{
    const struct store_function *x = a, *y = b;

    return str_cmp(x->name, y->name);
}

/* Makes one function of those of a name. */
static void unite_names(struct store_functions *f)
{
    size_t kept = 0;

    if (f->at.len)
        qsort(f->at.ptr, f->at.len, sizeof(*f->at.ptr), by_name);
    vec_for (i, &f->at) {
        struct store_function one = f->at.ptr[i];

        f->at.ptr[i] = (struct store_function){ 0 };
        if (kept > 0 && str_eq(f->at.ptr[kept - 1].name, one.name)) {
            unite_function(&f->at.ptr[kept - 1], &one);
            function_free(&one);
        } else {
            f->at.ptr[kept++] = one;
        }
    }
    f->at.len = kept;
}

/* Leaves of a gauge; either may have none. */
static void unite_leaves(struct store_functions *to, const struct store_functions *from)
{
    size_t points = from->leaves.len;
    struct leaf_items items = { 0 };

    if (!points)
        return;
    if (!to->leaves.len) {
        vec_reserve(&to->leaves, points);
        memset(to->leaves.ptr, 0, points * sizeof(*to->leaves.ptr));
        to->leaves.len = points;
    }
    struct leaf_part parts[] = {
        { NULL, to->leaves.ptr, points, to->items.ptr, to->items.len },
        { NULL, from->leaves.ptr, points, from->items.ptr, from->items.len },
    };
    uint32_t *count = XNEW_ARRAY(uint32_t, points);

    leaf_unite(parts, 2, NULL, points, count, &items);
    memcpy(to->leaves.ptr, count, points * sizeof(*count));
    xfree(count);
    vec_free(&to->items);
    to->items = items;
}

/* Moves the functions of *from to *to. */
static void append(struct store_functions *to, struct store_functions *from)
{
    vec_for (i, &from->at) {
        vec_push(&to->at, from->at.ptr[i]);
        from->at.ptr[i] = (struct store_function){ 0 };
    }
    vec_for (k, &from->all)
        to->all.ptr[k] = u64_add_sat(to->all.ptr[k], from->all.ptr[k]);
    unite_leaves(to, from);
    to->gauge |= from->gauge;
    to->rows += from->rows;
    to->vectors += from->vectors;
    to->saturated += from->saturated;
    to->start_ms = MIN(to->start_ms, from->start_ms);
    to->end_ms = MAX(to->end_ms, from->end_ms);
}

int read_functions_run(const struct read_msg *m, const struct read_source *src, struct arena *a,
                       struct buf *out, uint64_t *ret_rows, struct err *e)
{
    struct store_functions sum = { 0 };
    struct store_functions_query q = {
        .q = m->query,
        .origin_ms = m->origin_ms,
        .step_ms = m->step_ms,
        .points = m->points,
        .names = m->names,
        .names_len = m->names_len,
    };
    int code = 0;

    q.q.cancel = src->cancel;
    q.q.leaf_items = m->leaf_items || src->len > 1;
    for (size_t i = 0; i < src->len && !code; i++) {
        struct store_functions part = { 0 };
        struct store_view *view = store_view_get(src->stores[i]);

        code = store_functions(view, &q, a, i == 0 ? &sum : &part, e);
        store_view_put(view);
        if (!code && i > 0)
            append(&sum, &part);
        store_functions_deinit(&part);
    }
    if (src->len > 1)
        unite_names(&sum);
    *ret_rows = sum.rows;
    if (!code)
        code = functions_reply_pack(&sum, m->leaf_items, a, out, e);
    store_functions_deinit(&sum);
    return code;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * timeline.c: append, sort once, fold.
 *
 * Most services live on one shard, so one reply brings a group and nothing folds. Where several do,
 * sums add up. The mean of a gauge needs the number of leaves in which any series had data:
 * where several are asked, each says which ones (common/model/leaves.h), and those of all count
 * once. An ingester of a version that sends counts alone has its count taken if it is the largest.
 */
#include "querier/merge/timeline.h"

#include <math.h>
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/sys/pool.h"

void timeline_init(struct timeline *t, struct arena *a)
{
    *t = (struct timeline){ .by_key = map_str_new(), .arena = a };
}

void timeline_deinit(struct timeline *t)
{
    vec_for (i, &t->groups) {
        vec_free(&t->groups.ptr[i].points);
        vec_free(&t->groups.ptr[i].parts);
    }
    vec_free(&t->groups);
    map_str_free(t->by_key);
    *t = (struct timeline){ 0 };
}

size_t timeline_cost(const struct wire_timelines *w)
{
    size_t cost = w->len * 512 + 4 * KIB;

    for (size_t i = 0; i < w->len; i++)
        cost += w->series[i].len * 2 * (sizeof(struct timeline_point) + sizeof(uint32_t));
    return cost;
}

static struct timeline_group *group_of(struct timeline *t, const struct labels *l, struct err *e)
{
    struct buf key;

    buf_init(&key, MIB);
    labels_encode(l, &key);
    size_t at = (size_t)(uintptr_t)map_str_get(t->by_key, buf_str(&key));
    if (!at && buf_ok(&key)) {
        struct timeline_group g = { .labels = *l, .key = arena_strdup(t->arena, buf_str(&key)) };
        if (g.key.ptr) {
            vec_push(&t->groups, g);
            at = t->groups.len;
            (void)map_str_put(t->by_key, g.key, (void *)(uintptr_t)at);
        }
    }
    buf_deinit(&key);
    if (!at)
        err_set(e, ERR_LIMIT, "too many or too large groups in a timeline");
    return at ? &t->groups.ptr[at - 1] : NULL;
}

NODISCARD int timeline_add(struct timeline *t, const struct wire_timelines *w, struct err *e)
{
    t->gauge |= w->gauge;
    if (w->end_ms > w->start_ms) {
        t->start_ms = t->end_ms ? MIN(t->start_ms, w->start_ms) : w->start_ms;
        t->end_ms = MAX(t->end_ms, w->end_ms);
    }
    for (size_t i = 0; i < w->len; i++) {
        const struct wire_points *p = &w->series[i];
        pool_slice();
        struct timeline_group *g = group_of(t, &p->labels, e);
        if (!g)
            return e->code;
        vec_reserve(&g->points, g->points.len + p->len);
        for (size_t k = 0; k < p->len; k++)
            vec_push(&g->points,
                     ((struct timeline_point){ p->point[k], p->leaves ? p->leaves[k] : 0,
                                               p->value[k], p->writes[k] }));
        if (p->items.items_len)
            vec_push(&g->parts, p->items);
    }
    return 0;
}

static int by_k(const void *a, const void *b)
{
    uint32_t x = ((const struct timeline_point *)a)->k, y = ((const struct timeline_point *)b)->k;
    return x < y ? -1 : x > y;
}

static void fold_points(struct timeline_group *g)
{
    size_t n = 0;

    qsort(g->points.ptr, g->points.len, sizeof(*g->points.ptr), by_k);
    for (size_t i = 0; i < g->points.len; i++) {
        struct timeline_point p = g->points.ptr[i];
        if (n && g->points.ptr[n - 1].k == p.k) {
            struct timeline_point *to = &g->points.ptr[n - 1];
            to->value = u64_add_sat(to->value, p.value);
            to->writes = u64_add_sat(to->writes, p.writes);
            to->leaves = MAX(to->leaves, p.leaves);
        } else {
            g->points.ptr[n++] = p;
        }
    }
    g->points.len = n;
}

/* Of parts that say which leaves they have, each leaf counts once. */
static void unite_leaves(struct timeline_group *g)
{
    uint32_t *k = XNEW_ARRAY(uint32_t, g->points.len + 1);
    uint32_t *count = XNEW_ARRAY(uint32_t, g->points.len + 1);

    vec_for (i, &g->points)
        k[i] = g->points.ptr[i].k;
    leaf_unite(g->parts.ptr, g->parts.len, k, g->points.len, count, NULL);
    vec_for (i, &g->points)
        g->points.ptr[i].leaves = MAX(g->points.ptr[i].leaves, count[i]);
    xfree(k);
    xfree(count);
}

static int by_sum(const void *a, const void *b)
{
    const struct timeline_group *x = a, *y = b;

    if (x->sum != y->sum)
        return x->sum > y->sum ? -1 : 1;
    return str_cmp(x->key, y->key);
}

void timeline_finish(struct timeline *t, bool average)
{
    vec_for (i, &t->groups) {
        struct timeline_group *g = &t->groups.ptr[i];
        pool_slice();
        if (g->points.len)
            fold_points(g);
        if (g->parts.len > 1)
            unite_leaves(g);
        for (size_t k = 0; k < g->points.len; k++)
            g->sum += timeline_value(t, &g->points.ptr[k], average);
    }
    if (t->groups.len)
        qsort(t->groups.ptr, t->groups.len, sizeof(*t->groups.ptr), by_sum);
    map_str_free(t->by_key); /* its indexes are old now */
    t->by_key = NULL;
}

double timeline_value(const struct timeline *t, const struct timeline_point *p, bool average)
{
    if (average)
        return p->writes ? (double)p->value / (double)p->writes : 0;
    if (t->gauge && p->leaves)
        return (double)p->value / p->leaves;
    return (double)p->value;
}

void timeline_json(const struct timeline *t, const struct timeline_group *g,
                   const struct plan_timeline *plan, bool average, struct json *j)
{
    size_t next = 0, len = g ? g->points.len : 0;

    json_obj(j);
    json_put_i64(j, "startTime", plan->start_s);
    json_key(j, "samples");
    json_arr(j);
    for (uint32_t k = 0; k < plan->samples; k++) {
        uint64_t v = 0;
        pool_slice_step(k);
        if (next < len && g->points.ptr[next].k == k) {
            const struct timeline_point *p = &g->points.ptr[next++];
            bool mean = average || (t->gauge && p->leaves);
            v = mean ? (uint64_t)llround(timeline_value(t, p, average)) : p->value;
        }
        json_u64(j, v);
    }
    json_arr_end(j);
    json_put_i64(j, "durationDelta", plan->step_s);
    json_key(j, "watermarks");
    json_null(j);
    json_obj_end(j);
}

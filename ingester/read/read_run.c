/* SPDX-License-Identifier: Apache-2.0
 *
 * read_run: shards answer one after the other into one builder; sums add up, sets unite.
 *
 * A service lives in one shard, so most queries see one non-empty part, and uniting costs nothing
 * then. Labels and types may come from all.
 */
#include "ingester/read/read_run.h"

#include <stdlib.h>

#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/sys/pool.h"
#include "ingester/read/ledger_run.h"
#include "ingester/read/read_functions.h"
#include "ingester/read/rpc_estimate.h"
#include "ingester/read/rpc_exemplars.h"
#include "ingester/read/rpc_space.h"

#define STACKS_SEED 0x656d626572u

/* ---- merge ---------------------------------------------------------------------------------- */

/* values of equal nodes add up; both lists are ascending. */
static void unite_values(struct store_merge *to, const struct store_merge *from)
{
    struct store_merge sum = { 0 };
    size_t i = 0, k = 0;

    vec_reserve(&sum.nodes, to->nodes.len + from->nodes.len);
    vec_reserve(&sum.values, to->nodes.len + from->nodes.len);
    while (i < to->nodes.len || k < from->nodes.len) {
        bool left =
            k == from->nodes.len || (i < to->nodes.len && to->nodes.ptr[i] <= from->nodes.ptr[k]);
        bool right =
            i == to->nodes.len || (k < from->nodes.len && from->nodes.ptr[k] <= to->nodes.ptr[i]);
        uint64_t a = left ? to->values.ptr[i] : 0;
        uint64_t b = right ? from->values.ptr[k] : 0;

        vec_push(&sum.nodes, left ? to->nodes.ptr[i] : from->nodes.ptr[k]);
        vec_push(&sum.values, u64_add_sat(a, b));
        sum.saturated += a > UINT64_MAX - b;
        i += left;
        k += right;
    }
    vec_free(&to->nodes);
    vec_free(&to->values);
    to->nodes.ptr = sum.nodes.ptr;
    to->nodes.len = sum.nodes.len;
    to->nodes.cap = sum.nodes.cap;
    to->values.ptr = sum.values.ptr;
    to->values.len = sum.values.len;
    to->values.cap = sum.values.cap;
    to->saturated += sum.saturated;
}

static void unite_leaves(struct store_merge *to, const struct store_merge *from)
{
    VEC(uint32_t) all = { 0 };
    size_t i = 0, k = 0;

    vec_reserve(&all, to->leaves.len + from->leaves.len);
    while (i < to->leaves.len || k < from->leaves.len) {
        uint32_t a = i < to->leaves.len ? to->leaves.ptr[i] : UINT32_MAX;
        uint32_t b = k < from->leaves.len ? from->leaves.ptr[k] : UINT32_MAX;

        vec_push(&all, MIN(a, b));
        i += a <= b;
        k += b <= a;
    }
    vec_free(&to->leaves);
    to->leaves.ptr = all.ptr;
    to->leaves.len = all.len;
    to->leaves.cap = all.cap;
}

/* Adds an answer over the same builder of stacks. */
static void merge_unite(struct store_merge *to, const struct store_merge *from)
{
    unite_values(to, from);
    unite_leaves(to, from);
    to->saturated += from->saturated + (to->total > UINT64_MAX - from->total);
    to->total = u64_add_sat(to->total, from->total);
    to->start_ms = MIN(to->start_ms, from->start_ms);
    to->end_ms = MAX(to->end_ms, from->end_ms);
    to->series += from->series;
    to->rows += from->rows;
    to->gauge |= from->gauge;
}

/* used[i] for every node on the path of a kept one. */
static void mark_used(const struct store_merge *m, bool *used)
{
    vec_for (i, &m->nodes)
        used[m->nodes.ptr[i]] = true;
    for (size_t i = m->stacks->node_parent.len; i-- > 0;) {
        if (used[i + 1])
            used[m->stacks->node_parent.ptr[i]] = true;
    }
}

static uint32_t copy_frame(const struct stacks *from, uint32_t f, struct stacks *out)
{
    struct frame frame = {
        .func = stacks_string(out, stacks_string_at(from, from->frame_func.ptr[f])),
        .file = stacks_string(out, stacks_string_at(from, from->frame_file.ptr[f])),
        .module = stacks_string(out, stacks_string_at(from, from->frame_module.ptr[f])),
        .line = from->frame_line.ptr[f],
        .addr = from->frame_addr.ptr[f],
    };

    return stacks_frame(out, &frame);
}

/* Copies the used nodes to `out` and renames the nodes of *m. Order of sight keeps them ascending.
 */
static int compact(struct store_merge *m, struct stacks *out, struct err *e)
{
    const struct stacks *from = m->stacks;
    size_t nodes = from->node_parent.len;
    CLEANUP(xfreep) bool *used = XNEW_ARRAY(bool, nodes + 1);
    CLEANUP(xfreep) uint32_t *map = XNEW_ARRAY(uint32_t, nodes + 1);
    CLEANUP(xfreep) uint32_t *frames = XNEW_ARRAY(uint32_t, from->frame_func.len + 1);

    mark_used(m, used);
    memset(frames, 0xff, from->frame_func.len * sizeof(*frames));
    for (size_t i = 1; i <= nodes; i++) {
        uint32_t f = from->node_frame.ptr[i - 1];

        pool_slice_step(i);
        if (!used[i])
            continue;
        if (frames[f] == UINT32_MAX)
            frames[f] = copy_frame(from, f, out);
        map[i] = stacks_node(out, map[from->node_parent.ptr[i - 1]], frames[f]);
        if (map[i] == STACKS_FULL)
            return err_set(e, ERR_LIMIT, "the answer needs over %zu bytes", out->bytes_max);
    }
    vec_for (i, &m->nodes)
        m->nodes.ptr[i] = map[m->nodes.ptr[i]];
    m->stacks = out;
    return 0;
}

/* Keeps the stacks that start with the functions `site`, root first: *from becomes the smaller
 * answer; its builder is replaced by `out`, which holds only what is needed. ERR_LIMIT. */
static int merge_cut(struct store_merge *from, const struct str *site, size_t site_len,
                     struct stacks *out, struct err *e)
{
    const struct stacks *s = from->stacks;
    size_t nodes = s->node_parent.len, kept = 0;
    /* How many functions of the site the path to the node has matched; MISS once one differed. */
    const uint32_t MISS = UINT32_MAX;
    CLEANUP(xfreep) uint32_t *match = XNEW_ARRAY(uint32_t, nodes + 1);

    for (size_t i = 1; i <= nodes; i++) {
        uint32_t above = match[s->node_parent.ptr[i - 1]];
        uint32_t f = s->node_frame.ptr[i - 1];

        pool_slice_step(i);
        if (above == MISS || above == site_len)
            match[i] = above;
        else if (str_eq(stacks_string_at(s, s->frame_func.ptr[f]), site[above]))
            match[i] = above + 1;
        else
            match[i] = MISS;
    }
    from->total = 0;
    vec_for (i, &from->nodes) {
        if (match[from->nodes.ptr[i]] != site_len)
            continue;
        from->nodes.ptr[kept] = from->nodes.ptr[i];
        from->values.ptr[kept] = from->values.ptr[i];
        from->total = u64_add_sat(from->total, from->values.ptr[i]);
        kept++;
    }
    from->nodes.len = from->values.len = kept;
    return compact(from, out, e);
}

int read_run_merge(const struct read_merge *how, const struct read_msg *m,
                   const struct read_source *src, struct buf *out, uint64_t *ret_rows,
                   struct err *e)
{
    struct stacks stacks, small;
    struct store_merge sum = { .stacks = &stacks };
    int code = 0;

    stacks_init(&stacks, src->stacks_bytes_max, STACKS_SEED);
    stacks_init(&small, src->stacks_bytes_max, STACKS_SEED);
    for (size_t i = 0; i < src->len && !code; i++) {
        struct store_merge part = { .stacks = &stacks };

        code = how->fn(how->cookie, src->stores[i], i == 0 ? &sum : &part, e);
        if (!code && i > 0)
            merge_unite(&sum, &part);
        store_merge_deinit(&part);
    }
    if (!code && m->call_site_len > 0)
        code = merge_cut(&sum, m->call_site, m->call_site_len, &small, e);
    if (!code)
        code = merge_reply_pack(&sum, out, e);
    *ret_rows = sum.rows;
    store_merge_deinit(&sum);
    stacks_deinit(&stacks);
    stacks_deinit(&small);
    return code;
}

static int merge_store(const void *cookie, struct store *s, struct store_merge *ret, struct err *e)
{
    const struct store_query *q = cookie;
    struct store_view *view = store_view_get_live(s);
    int code = store_merge(view, q, ret, e);

    store_view_put(view);
    return code;
}

static int run_merge(const struct read_msg *m, const struct read_source *src, struct buf *out,
                     uint64_t *ret_rows, struct err *e)
{
    struct store_query q = m->query;

    q.cancel = src->cancel;
    return read_run_merge(&(struct read_merge){ merge_store, &q }, m, src, out, ret_rows, e);
}

/* ---- timeline ------------------------------------------------------------------------------- */

static void points_free(struct store_points *p)
{
    vec_free(&p->point);
    vec_free(&p->value);
    vec_free(&p->writes);
    vec_free(&p->leaves);
    vec_free(&p->items);
}

static struct leaf_part leaves_of(const struct store_points *p)
{
    return (struct leaf_part){ p->point.ptr, p->leaves.ptr, p->leaves.len, p->items.ptr,
                               p->items.len };
}

/* Adds one series into another of the same group; points are ascending in both. A leaf in which
 * both have data of a gauge counts once. */
static void unite_points(struct store_points *to, const struct store_points *from)
{
    struct store_points sum = { .labels = to->labels };
    size_t i = 0, k = 0;

    while (i < to->point.len || k < from->point.len) {
        uint32_t a = i < to->point.len ? to->point.ptr[i] : UINT32_MAX;
        uint32_t b = k < from->point.len ? from->point.ptr[k] : UINT32_MAX;
        bool left = a <= b, right = b <= a;

        vec_push(&sum.point, MIN(a, b));
        vec_push(&sum.value,
                 u64_add_sat(left ? to->value.ptr[i] : 0, right ? from->value.ptr[k] : 0));
        vec_push(&sum.writes,
                 u64_add_sat(left ? to->writes.ptr[i] : 0, right ? from->writes.ptr[k] : 0));
        i += left;
        k += right;
    }
    if (to->leaves.len + from->leaves.len > 0) {
        struct leaf_part parts[] = { leaves_of(to), leaves_of(from) };

        vec_reserve(&sum.leaves, sum.point.len);
        sum.leaves.len = sum.point.len;
        leaf_unite(parts, 2, sum.point.ptr, sum.point.len, sum.leaves.ptr, &sum.items);
    }
    points_free(to);
    *to = sum;
}

static int by_labels(const void *a, const void *b)
{
    const struct labels *x = a, *y = b;

    for (size_t i = 0; i < x->len && i < y->len; i++) {
        int c = str_cmp(x->ptr[i].name, y->ptr[i].name);

        if (c == 0)
            c = str_cmp(x->ptr[i].value, y->ptr[i].value);
        if (c)
            return c;
    }
    return x->len < y->len ? -1 : x->len > y->len;
}

static int by_points_labels(const void *a, const void *b)
{
    const struct store_points *x = a, *y = b;

    return by_labels(&x->labels, &y->labels);
}

/* Moves the series of *from to *to. */
static void append_timeline(struct store_timeline *to, struct store_timeline *from)
{
    vec_for (i, &from->series) {
        vec_push(&to->series, from->series.ptr[i]);
        from->series.ptr[i] = (struct store_points){ 0 };
    }
    to->gauge |= from->gauge;
    to->rows += from->rows;
    to->start_ms = MIN(to->start_ms, from->start_ms);
    to->end_ms = MAX(to->end_ms, from->end_ms);
}

/* Makes one series of those with equal labels. */
static void unite_series(struct store_timeline *t)
{
    size_t kept = 0;

    if (t->series.len > 1)
        qsort(t->series.ptr, t->series.len, sizeof(*t->series.ptr), by_points_labels);
    vec_for (i, &t->series) {
        struct store_points p = t->series.ptr[i];

        t->series.ptr[i] = (struct store_points){ 0 };
        if (kept > 0 && by_points_labels(&t->series.ptr[kept - 1], &p) == 0) {
            unite_points(&t->series.ptr[kept - 1], &p);
            points_free(&p);
        } else {
            t->series.ptr[kept++] = p;
        }
    }
    t->series.len = kept;
}

static int run_timeline(const struct read_msg *m, const struct read_source *src, struct arena *a,
                        struct buf *out, struct err *e)
{
    struct store_timeline sum = { 0 };
    struct store_timeline_query q = { .q = m->query,
                                      .origin_ms = m->origin_ms,
                                      .step_ms = m->step_ms,
                                      .points = m->points,
                                      .group_by = m->group_by,
                                      .group_by_len = m->group_by_len };
    int code = 0;

    q.q.cancel = src->cancel;
    q.q.leaf_items = m->leaf_items || src->len > 1;
    for (size_t i = 0; i < src->len && !code; i++) {
        struct store_timeline part = { 0 };
        struct store_view *view = store_view_get(src->stores[i]);

        code = store_timeline(view, &q, a, i == 0 ? &sum : &part, e);
        store_view_put(view);
        if (!code && i > 0)
            append_timeline(&sum, &part);
        store_timeline_deinit(&part);
    }
    if (src->len > 1)
        unite_series(&sum);
    if (!code)
        code = timeline_reply_pack(&sum, m->leaf_items, a, out, e);
    store_timeline_deinit(&sum);
    return code;
}

/* ---- labels --------------------------------------------------------------------------------- */

static int by_str(const void *a, const void *b)
{
    return str_cmp(*(const struct str *)a, *(const struct str *)b);
}

static size_t distinct(void *list, size_t n, size_t size, int (*cmp)(const void *, const void *))
{
    char *p = list;
    size_t kept = 0;

    if (n > 1)
        qsort(p, n, size, cmp);
    for (size_t i = 0; i < n; i++) {
        if (kept == 0 || cmp(p + (kept - 1) * size, p + i * size) != 0) {
            memmove(p + kept * size, p + i * size, size);
            kept++;
        }
    }
    return kept;
}

static int run_labels(const struct read_msg *m, const struct read_source *src, struct arena *a,
                      struct buf *out, struct err *e)
{
    struct store_labels all = { 0 };
    size_t limit = m->labels.limit ? m->labels.limit : SIZE_MAX;
    int code = 0;

    for (size_t i = 0; i < src->len && !code; i++) {
        struct store_labels part = { 0 };
        struct store_view *view = store_view_get(src->stores[i]);

        code = store_labels(view, &m->labels, a, &part, e);
        store_view_put(view);
        vec_for (k, &part.values)
            vec_push(&all.values, part.values.ptr[k]);
        vec_for (k, &part.sets)
            vec_push(&all.sets, part.sets.ptr[k]);
        all.truncated |= part.truncated;
        store_labels_deinit(&part);
    }
    all.values.len = distinct(all.values.ptr, all.values.len, sizeof(*all.values.ptr), by_str);
    all.sets.len = distinct(all.sets.ptr, all.sets.len, sizeof(*all.sets.ptr), by_labels);
    all.truncated |= all.values.len > limit || all.sets.len > limit;
    all.values.len = MIN(all.values.len, limit);
    all.sets.len = MIN(all.sets.len, limit);
    if (!code)
        code = labels_reply_pack(&all, a, out, e);
    vec_free(&all.values);
    vec_free(&all.sets);
    return code;
}

int read_run(const struct read_msg *m, const struct read_source *src, struct arena *a,
             struct buf *out, uint64_t *ret_rows, struct err *e)
{
    size_t max = src->reply_bytes_max;

    if (m->bytes_max > 0)
        max = MIN(max, m->bytes_max);
    *ret_rows = 0;
    buf_init(out, max);
    if (estimate_check(m, src, e))
        return e->code;
    if (m->method == RPC_MERGE)
        return run_merge(m, src, out, ret_rows, e);
    if (m->method == RPC_TIMELINE)
        return run_timeline(m, src, a, out, e);
    if (m->method == RPC_FUNCTIONS)
        return read_functions_run(m, src, a, out, ret_rows, e);
    if (m->method == RPC_EXEMPLARS)
        return exemplars_run(m, src, a, out, ret_rows, e);
    if (m->method == RPC_ESTIMATE)
        return estimate_run(m, src, out, ret_rows, e);
    if (m->method == RPC_SPACE)
        return space_run(m, src, a, out, e);
    if (m->method == RPC_LEDGER)
        return ledger_run(m, src, a, out, e);
    return run_labels(m, src, a, out, e);
}

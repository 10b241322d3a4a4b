/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_exemplars: decode, ask the shards one after the other, pack one of three replies.
 *
 * A sum has the form of any other sum (MergeReply), a timeline that of any timeline, so that the
 * querier draws them with what it has.
 */
#include "ingester/read/rpc_exemplars.h"

#include <stdlib.h>

#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/model/slot.h"
#include "ingester/base/unpack.h"
#include "proto/exemplar.pb-c.h"

#define IDS_MAX 65536

/* ---- request -------------------------------------------------------------------------------- */

static int take_list(const Embertree__ExemplarRequest *in, struct arena *a, struct read_msg *m,
                     struct err *e)
{
    struct store_exm_query *x = &m->exm;

    x->leaves = in->leaves;
    x->summary = in->summary;
    x->buckets = in->buckets;
    x->least = in->least;
    x->most = in->most;
    if (in->points) {
        if (read_take_grid(in->origin_ms, in->step_ms, in->points, m, e))
            return e->code;
        x->grid = (struct store_exm_grid){ m->origin_ms, m->step_ms, m->points, in->whole_leaves };
        m->query.start_ms = in->start_ms;
        m->query.end_ms = in->end_ms;
    }
    return read_take_strs(in->group_by, in->n_group_by, a, &x->group_by, &x->group_by_len, e);
}

static int take(const Embertree__ExemplarRequest *in, struct arena *a, struct read_msg *m,
                struct err *e)
{
    m->query.profile_type = unpack_str(in->profile_type);
    m->query.start_ms = in->start_ms;
    m->query.end_ms = in->end_ms;
    m->bytes_max = in->bytes_max;
    m->limit = in->limit;
    if (in->what > READ_EXM_TIMELINE)
        return err_set(e, ERR_INPUT, "unknown kind of answer %" PRIu32, in->what);
    m->what = (enum read_exm)in->what;
    if (in->n_ids > IDS_MAX)
        return err_set(e, ERR_LIMIT, "%zu ids, at most %d", in->n_ids, IDS_MAX);
    if (read_take_head(READ_HEAD(in), m, e) || read_check_times(in->start_ms, in->end_ms, e) ||
        (m->what == READ_EXM_TIMELINE &&
         read_take_grid(in->origin_ms, in->step_ms, in->points, m, e)) ||
        read_take_strs(in->call_site, in->n_call_site, a, &m->call_site, &m->call_site_len, e) ||
        read_take_strs(in->ids, in->n_ids, a, &m->exm.ids, &m->exm.ids_len, e) ||
        read_take_matchers(in->matchers, in->n_matchers, a, &m->selector, e))
        return e->code;
    m->exm.kinds = in->kinds;
    m->exm.call_site = m->call_site;
    m->exm.call_site_len = m->call_site_len;
    m->leaf_items = in->leaf_items;
    return m->what == READ_EXM_LIST ? take_list(in, a, m, e) : 0;
}

int exemplars_decode(struct str payload, struct arena *a, struct read_msg *ret, struct err *e)
{
    ProtobufCAllocator allocator = unpack_allocator(a);
    const Embertree__ExemplarRequest *in = embertree__exemplar_request__unpack(
        &allocator, payload.len, (const uint8_t *)(const void *)payload.ptr);

    return in ? take(in, a, ret, e) : unpack_failed("ExemplarRequest", payload, a, e);
}

/* ---- sums ----------------------------------------------------------------------------------- */

static int merge_store(const void *cookie, struct store *s, struct store_merge *ret, struct err *e)
{
    const struct store_exm_query *q = cookie;
    struct store_view *view = store_view_get(s);
    int code = store_exemplar_merge(view, q, ret, e);

    store_view_put(view);
    return code;
}

/* ---- lists ---------------------------------------------------------------------------------- */

static int by_start(const void *a, const void *b)
{
    const struct store_exm_item *x = a, *y = b;

    if (x->start_ms != y->start_ms)
        return x->start_ms < y->start_ms ? -1 : 1;
    return x->total > y->total ? -1 : x->total < y->total;
}

static int by_total(const void *a, const void *b)
{
    const struct store_exm_item *x = a, *y = b;

    return x->total > y->total ? -1 : x->total < y->total;
}

static void unite_lists(struct store_exm_list *to, const struct store_exm_list *from)
{
    uint32_t first = u32_from(to->series.len);

    vec_for (i, &from->series)
        vec_push(&to->series, from->series.ptr[i]);
    vec_for (i, &from->items) {
        struct store_exm_item item = from->items.ptr[i];
        item.series += first;
        vec_push(&to->items, item);
    }
    if (from->count) {
        to->least = to->count ? MIN(to->least, from->least) : from->least;
        to->most = MAX(to->most, from->most);
        to->count += from->count;
    }
    to->leaves_from_ms = MAX(to->leaves_from_ms, from->leaves_from_ms);
    to->truncated |= from->truncated;
    to->gauge |= from->gauge;
}

static int read_lists(const struct store_exm_query *q, size_t limit, const struct read_source *src,
                      struct arena *a, struct store_exm_list *ret, struct err *e)
{
    int code = 0;

    *ret = (struct store_exm_list){ 0 };
    for (size_t i = 0; i < src->len && !code; i++) {
        struct store_exm_list part;
        struct store_view *view = store_view_get(src->stores[i]);

        code = store_exemplars(view, q, limit, a, &part, e);
        store_view_put(view);
        if (!code)
            unite_lists(ret, &part);
        store_exm_list_deinit(&part);
    }
    if (!code && q->buckets && ret->items.len > limit)
        code = err_set(e, ERR_LIMIT,
                       "a heat map of over %zu cells (exemplars.list_max): ask for a larger step "
                       "or fewer groups",
                       limit);
    if (src->len > 1 && ret->items.len > limit) {
        qsort(ret->items.ptr, ret->items.len, sizeof(*ret->items.ptr), by_total);
        ret->items.len = limit;
        ret->truncated = true;
    }
    if (src->len > 1 && ret->items.len > 1)
        qsort(ret->items.ptr, ret->items.len, sizeof(*ret->items.ptr), by_start);
    return code;
}

static bool fill(const struct store_exm_list *l, struct arena *a, Embertree__ExemplarReply *r)
{
    Embertree__Exemplar *items = ARENA_ARRAY(a, Embertree__Exemplar, l->items.len);
    Embertree__LabelSet *sets = ARENA_ARRAY(a, Embertree__LabelSet, l->series.len);

    r->exemplars = ARENA_ARRAY(a, Embertree__Exemplar *, l->items.len);
    r->series = ARENA_ARRAY(a, Embertree__LabelSet *, l->series.len);
    if (!items || !sets || !r->exemplars || !r->series)
        return false;
    vec_for (i, &l->items) {
        const struct store_exm_item *x = &l->items.ptr[i];

        embertree__exemplar__init(&items[i]);
        items[i].kind = (uint32_t)x->kind;
        items[i].id = pack_str(x->id);
        items[i].start_ms = x->start_ms;
        items[i].duration_ms = x->duration_ms;
        items[i].total = x->total;
        items[i].series = x->series;
        items[i].count = x->count;
        items[i].sum = x->sum;
        r->exemplars[r->n_exemplars++] = &items[i];
    }
    vec_for (i, &l->series) {
        embertree__label_set__init(&sets[i]);
        sets[i].n_labels = l->series.ptr[i].len;
        sets[i].labels = pack_labels(&l->series.ptr[i], a);
        if (!sets[i].labels)
            return false;
        r->series[r->n_series++] = &sets[i];
    }
    r->truncated = l->truncated;
    r->gauge = l->gauge;
    r->count = l->count;
    r->least = l->least;
    r->most = l->most;
    r->leaves_from_ms = l->leaves_from_ms;
    return true;
}

static int pack_list(const struct store_exm_list *l, struct arena *a, struct buf *out,
                     struct err *e)
{
    Embertree__ExemplarReply reply = EMBERTREE__EXEMPLAR_REPLY__INIT;
    uint8_t *p;

    if (!fill(l, a, &reply))
        return err_set(e, ERR_LIMIT, "the query needs over %zu bytes", arena_limit(a));
    p = reply_room(out, embertree__exemplar_reply__get_packed_size(&reply), e);
    if (!p)
        return e->code;
    out->len += embertree__exemplar_reply__pack(&reply, p);
    return 0;
}

/* ---- timelines ------------------------------------------------------------------------------ */

/* Items by start into points; an item stands in its first slot. */
static void add_points(const struct store_exm_list *l, const struct read_msg *m,
                       struct store_points *to)
{
    struct store_exm_grid grid = { m->origin_ms, m->step_ms, m->points, false };
    struct leaf_writer w = { .to = &to->items };
    int64_t leaf = -1;

    vec_for (i, &l->items) {
        const struct store_exm_item *x = &l->items.ptr[i];
        uint32_t k;

        if (!store_exm_point(&grid, x->start_ms, &k))
            continue;
        if (!to->point.len || to->point.ptr[to->point.len - 1] != k) {
            vec_push(&to->point, k);
            vec_push(&to->value, 0);
            vec_push(&to->writes, 0);
            vec_push(&to->leaves, 0);
            leaf = -1;
        }
        size_t at = to->point.len - 1;
        to->value.ptr[at] = u64_add_sat(to->value.ptr[at], x->total);
        to->writes.ptr[at]++;
        if (slot_of_ms(x->start_ms) / LEAF_SLOTS == leaf)
            continue;
        leaf = slot_of_ms(x->start_ms) / LEAF_SLOTS;
        to->leaves.ptr[at]++;
        leaf_put(&w, (uint32_t)leaf, 1);
    }
    leaf_put_end(&w);
}

static int run_timeline(const struct store_exm_list *l, const struct read_msg *m, struct arena *a,
                        struct buf *out, struct err *e)
{
    struct store_timeline t = { .gauge = l->gauge };
    struct store_points points = { 0 };

    if (l->truncated)
        return err_set(e, ERR_LIMIT,
                       "there are over %zu exemplars in the range (exemplars."
                       "list_max): ask for a shorter one",
                       l->items.len);
    add_points(l, m, &points);
    if (!l->gauge)
        points.leaves.len = points.items.len = 0;
    vec_push(&t.series, points);
    int code = timeline_reply_pack(&t, m->leaf_items, a, out, e);
    store_timeline_deinit(&t);
    return code;
}

int exemplars_run(const struct read_msg *m, const struct read_source *src, struct arena *a,
                  struct buf *out, uint64_t *ret_rows, struct err *e)
{
    struct store_exm_query q = m->exm;
    struct store_exm_list l;
    size_t limit = src->exemplars_max;

    q.q = m->query;
    q.q.cancel = src->cancel;
    if (m->what == READ_EXM_MERGE)
        return read_run_merge(&(struct read_merge){ merge_store, &q }, m, src, out, ret_rows, e);
    if (m->what == READ_EXM_LIST && m->limit)
        limit = MIN(limit, m->limit);
    int code = read_lists(&q, limit, src, a, &l, e);
    *ret_rows = l.items.len;
    if (!code)
        code = m->what == READ_EXM_LIST ? pack_list(&l, a, out, e) : run_timeline(&l, m, a, out, e);
    store_exm_list_deinit(&l);
    return code;
}

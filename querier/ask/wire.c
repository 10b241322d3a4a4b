/* SPDX-License-Identifier: Apache-2.0
 *
 * wire.c: protobuf-c with an arena.
 *
 * protobuf-c allocates through a callback, so decoding happens inside the query's memory and is
 * freed with it. Its messages here are not recursive. What comes back is from our own ingesters,
 * yet is checked like anything that crossed a wire: a version skew must end in an error, not in a
 * crash.
 */
#include "querier/ask/wire.h"

#include "common/base/size.h"
#include "common/model/exid.h"
#include "common/sys/pool.h"
#include "proto/exemplar.pb-c.h"
#include "proto/query.pb-c.h"

/* ---- requests out -----------------------------------------------------------------------------*/

/* protobuf-c's structs hold pointers to non-const bytes that it only reads when it packs. */
static void *out_ptr(const void *p)
{
    return (void *)(uintptr_t)p;
}

static ProtobufCBinaryData out_str(struct str s)
{
    return (ProtobufCBinaryData){ s.len, out_ptr(s.ptr) };
}

static ProtobufCBinaryData *out_strs(const struct str *s, size_t n, struct arena *a)
{
    ProtobufCBinaryData *out = ARENA_ARRAY(a, ProtobufCBinaryData, n + 1);

    for (size_t i = 0; out && i < n; i++)
        out[i] = out_str(s[i]);
    return out;
}

static int no_room(const struct arena *a, struct err *e)
{
    return err_set(e, ERR_LIMIT, "the request has more matchers than %zu bytes hold",
                   arena_limit(a));
}

static int pack(const ProtobufCMessage *m, struct buf *out, struct err *e)
{
    size_t n = protobuf_c_message_get_packed_size(m);
    char *room = buf_room(out, n);

    if (!room)
        return err_set(e, ERR_LIMIT, "a request of %zu bytes to an ingester", n);
    CHECK(protobuf_c_message_pack(m, (uint8_t *)room) == n);
    out->len += n;
    return 0;
}

/* Sets the fields of all requests: tenant, shards, map, matchers. Each message is a type of its own
 * to protobuf-c. */
#define PUT_HEAD(r, q, to, a)                                                  \
    do {                                                                       \
        (r)->tenant = out_str(scoped_matchers_tenant((to)->of));               \
        (r)->shards = out_ptr((to)->target->shards);                           \
        (r)->n_shards = (to)->target->shards_len;                              \
        (r)->map_version = (q)->map_version;                                   \
        (r)->matchers = scoped_matchers_pack((to)->of, (a), &(r)->n_matchers); \
    } while (0)

NODISCARD int wire_put_merge(const struct wire_query *q, const struct wire_merge *m,
                             const struct wire_to *to, struct arena *a, struct buf *out,
                             struct err *e)
{
    Embertree__MergeRequest r = EMBERTREE__MERGE_REQUEST__INIT;

    PUT_HEAD(&r, q, to, a);
    r.profile_type = out_str(q->profile_type);
    r.start_ms = q->range.start_ms;
    r.end_ms = q->range.end_ms;
    r.call_site = out_strs(m->call_site, m->call_site_len, a);
    r.n_call_site = m->call_site_len;
    r.bytes_max = m->bytes_max;
    r.cost_max = m->cost_max;
    return r.matchers && r.call_site ? pack(&r.base, out, e) : no_room(a, e);
}

NODISCARD int wire_put_timeline(const struct wire_query *q, const struct wire_timeline *tl,
                                const struct wire_to *to, struct arena *a, struct buf *out,
                                struct err *e)
{
    Embertree__TimelineRequest r = EMBERTREE__TIMELINE_REQUEST__INIT;

    PUT_HEAD(&r, q, to, a);
    r.profile_type = out_str(q->profile_type);
    r.origin_ms = tl->grid.origin_ms;
    r.step_ms = tl->grid.step_ms;
    r.points = tl->grid.points;
    r.group_by = out_strs(tl->group_by, tl->group_by_len, a);
    r.n_group_by = tl->group_by_len;
    r.leaf_items = q->leaf_items;
    r.spread = tl->spread;
    return r.matchers && r.group_by ? pack(&r.base, out, e) : no_room(a, e);
}

NODISCARD int wire_put_functions(const struct wire_query *q, const struct wire_functions *f,
                                 const struct wire_to *to, struct arena *a, struct buf *out,
                                 struct err *e)
{
    Embertree__FunctionsRequest r = EMBERTREE__FUNCTIONS_REQUEST__INIT;

    PUT_HEAD(&r, q, to, a);
    r.profile_type = out_str(q->profile_type);
    r.origin_ms = f->grid.origin_ms;
    r.step_ms = f->grid.step_ms;
    r.points = f->grid.points;
    r.names = out_strs(f->names, f->names_len, a);
    r.n_names = f->names_len;
    r.bytes_max = f->bytes_max;
    r.cost_max = f->cost_max;
    r.leaf_items = q->leaf_items;
    return r.matchers && r.names ? pack(&r.base, out, e) : no_room(a, e);
}

NODISCARD int wire_put_labels(const struct wire_query *q, const struct wire_labels *l,
                              const struct wire_to *to, struct arena *a, struct buf *out,
                              struct err *e)
{
    Embertree__LabelsRequest r = EMBERTREE__LABELS_REQUEST__INIT;

    PUT_HEAD(&r, q, to, a);
    r.kind = (uint32_t)l->kind;
    r.name = out_str(l->name);
    r.names = out_strs(l->names, l->names_len, a);
    r.n_names = l->names_len;
    r.start_ms = q->range.start_ms;
    r.end_ms = q->range.end_ms;
    r.limit = l->limit;
    return r.matchers && r.names ? pack(&r.base, out, e) : no_room(a, e);
}

NODISCARD int wire_put_exemplars(const struct wire_query *q, const struct wire_exemplars *x,
                                 const struct wire_to *to, struct arena *a, struct buf *out,
                                 struct err *e)
{
    Embertree__ExemplarRequest r = EMBERTREE__EXEMPLAR_REQUEST__INIT;

    PUT_HEAD(&r, q, to, a);
    r.profile_type = out_str(q->profile_type);
    r.start_ms = q->range.start_ms;
    r.end_ms = q->range.end_ms;
    r.what = (uint32_t)x->what;
    r.kinds = x->kinds;
    r.ids = out_strs(x->ids, x->ids_len, a);
    r.n_ids = x->ids_len;
    r.call_site = out_strs(x->call_site, x->call_site_len, a);
    r.n_call_site = x->call_site_len;
    r.bytes_max = x->bytes_max;
    r.limit = x->limit;
    r.origin_ms = x->grid.origin_ms;
    r.step_ms = x->grid.step_ms;
    r.points = x->grid.points;
    r.leaf_items = q->leaf_items;
    r.leaves = x->leaves;
    r.whole_leaves = x->whole_leaves;
    r.summary = x->summary;
    r.group_by = out_strs(x->group_by, x->group_by_len, a);
    r.n_group_by = x->group_by_len;
    r.buckets = x->buckets;
    r.least = x->least;
    r.most = x->most;
    return r.matchers && r.ids && r.call_site && r.group_by ? pack(&r.base, out, e) : no_room(a, e);
}

NODISCARD int wire_put_estimate(const struct wire_query *q, bool detail, const struct wire_to *to,
                                struct arena *a, struct buf *out, struct err *e)
{
    Embertree__EstimateRequest r = EMBERTREE__ESTIMATE_REQUEST__INIT;

    PUT_HEAD(&r, q, to, a);
    r.profile_type = out_str(q->profile_type);
    r.start_ms = q->range.start_ms;
    r.end_ms = q->range.end_ms;
    r.detail = detail;
    return r.matchers ? pack(&r.base, out, e) : no_room(a, e);
}

/* ---- replies in -------------------------------------------------------------------------------*/

static void *arena_alloc_cb(void *a, size_t size)
{
    pool_slice(); /* for each message and column */
    return arena_alloc(a, size);
}

static void arena_free_cb(void *a, void *p)
{
    (void)a;
    (void)p;
}

size_t wire_cost_merged(size_t n)
{
    return 5 * n + 64 * KIB; /* columns keep their size, but a leaf's byte becomes four */
}

size_t wire_cost_lists(size_t n)
{
    return 40 * n + 64 * KIB; /* a label of a few bytes becomes structs and slices of 150 */
}

static void *unpack(const ProtobufCMessageDescriptor *d, struct str in, struct arena *a,
                    struct err *e)
{
    ProtobufCAllocator allocator = { arena_alloc_cb, arena_free_cb, a };
    void *m = protobuf_c_message_unpack(d, &allocator, in.len, (const uint8_t *)in.ptr);

    if (m)
        return m;
    if (arena_used(a) + in.len > arena_limit(a))
        (void)err_set(e, ERR_LIMIT, "a reply of %zu bytes needs over %zu to decode", in.len,
                      arena_limit(a));
    else
        (void)err_set(e, ERR_CORRUPT, "%zu bytes are no %s", in.len, d->name);
    return NULL;
}

static struct str in_str(ProtobufCBinaryData b)
{
    return str_n(b.data, b.len);
}

static int in_stacks(const Embertree__Stacks *in, struct stacks_view *ret, struct err *e)
{
    static const uint32_t no_string = 0;

    *ret = (struct stacks_view){ .string_len = &no_string, .strings = 1 };
    if (!in)
        return 0;
    if (in->n_frame_file != in->n_frame_func || in->n_frame_line != in->n_frame_func ||
        in->n_frame_module != in->n_frame_func || in->n_frame_addr != in->n_frame_func ||
        in->n_node_parent != in->n_node_frame)
        return err_set(e, ERR_CORRUPT, "reply: columns of stacks differ in length");
    *ret = (struct stacks_view){ .string_data = in_str(in->string_data),
                                 .string_len = in->n_string_len ? in->string_len : &no_string,
                                 .strings = MAX(in->n_string_len, 1),
                                 .frame_func = in->frame_func,
                                 .frame_file = in->frame_file,
                                 .frame_line = in->frame_line,
                                 .frame_module = in->frame_module,
                                 .frame_addr = in->frame_addr,
                                 .frames = in->n_frame_func,
                                 .node_parent = in->node_parent,
                                 .node_frame = in->node_frame,
                                 .nodes = in->n_node_parent };
    if (stacks_view_check(ret, e)) {
        e->code = ERR_CORRUPT; /* not the client's input */
        return err_wrap(e, "reply");
    }
    return 0;
}

NODISCARD int wire_get_merged(struct str in, struct arena *a, struct wire_merged *ret,
                              struct err *e)
{
    const Embertree__MergeReply *m = unpack(&embertree__merge_reply__descriptor, in, a, e);
    struct wire_merged r = { 0 };

    if (!m || in_stacks(m->stacks, &r.part.stacks, e))
        return e->code;
    if (m->n_node != m->n_value)
        return err_set(e, ERR_CORRUPT, "reply: %zu nodes, %zu values", m->n_node, m->n_value);
    for (size_t i = 0; i < m->n_node; i++)
        if (m->node[i] > r.part.stacks.nodes)
            return err_set(e, ERR_CORRUPT, "reply: node %" PRIu32 " of %zu", m->node[i],
                           r.part.stacks.nodes);
    for (size_t i = 1; i < m->n_leaf; i++)
        if (m->leaf[i] <= m->leaf[i - 1])
            return err_set(e, ERR_CORRUPT, "reply: leaves are not ascending");
    r.part.nodes = m->node;
    r.part.values = m->value;
    r.part.len = m->n_node;
    r.total = m->total;
    r.start_ms = m->start_ms;
    r.end_ms = m->end_ms;
    r.series = m->series;
    r.rows = m->rows;
    r.saturated = m->saturated;
    r.gauge = m->gauge;
    r.leaves = m->leaf;
    r.leaves_len = m->n_leaf;
    *ret = r;
    return 0;
}

static int in_labels(Embertree__LabelPair *const *in, size_t n, struct arena *a, struct labels *ret,
                     struct err *e)
{
    struct labels l = { ARENA_ARRAY(a, struct label, n + 1), n };

    if (!l.ptr)
        return err_set(e, ERR_LIMIT, "a reply's labels do not fit %zu bytes", arena_limit(a));
    pool_slice();
    for (size_t i = 0; i < n; i++)
        l.ptr[i] = (struct label){ in_str(in[i]->name), in_str(in[i]->value) };
    if (labels_sort(&l, e)) {
        e->code = ERR_CORRUPT;
        return err_wrap(e, "reply");
    }
    *ret = l;
    return 0;
}

/* Which leaves the counts are of. */
static int in_leaves(struct leaf_part p, struct leaf_part *ret, struct err *e)
{
    *ret = p;
    if (p.items_len && leaf_part_check(&p, e))
        return err_wrap(e, "reply");
    return 0;
}

static int in_points(const Embertree__TimelineSeries *s, bool gauge, uint32_t points,
                     struct wire_points *ret, struct err *e)
{
    if (s->n_value != s->n_point || s->n_writes != s->n_point ||
        (gauge && s->n_leaves != s->n_point))
        return err_set(e, ERR_CORRUPT, "reply: columns of points differ in length");
    for (size_t i = 0; i < s->n_point; i++)
        if (s->point[i] >= points || (i && s->point[i] <= s->point[i - 1]))
            return err_set(e, ERR_CORRUPT, "reply: point %" PRIu32 " of %" PRIu32 ", not ascending",
                           s->point[i], points);
    ret->point = s->point;
    ret->value = s->value;
    ret->writes = s->writes;
    ret->leaves = gauge ? s->leaves : NULL;
    ret->len = s->n_point;
    struct leaf_part items = { s->point, s->leaves, s->n_point, s->leaf_items, s->n_leaf_items };
    return gauge ? in_leaves(items, &ret->items, e) : 0;
}

NODISCARD int wire_get_timelines(struct str in, uint32_t points, struct arena *a,
                                 struct wire_timelines *ret, struct err *e)
{
    const Embertree__TimelineReply *m = unpack(&embertree__timeline_reply__descriptor, in, a, e);

    if (!m)
        return e->code;
    struct wire_timelines r = { ARENA_ARRAY(a, struct wire_points, m->n_series + 1), m->n_series,
                                m->gauge, m->start_ms, m->end_ms };
    if (!r.series)
        return err_set(e, ERR_LIMIT, "a reply's series do not fit %zu bytes", arena_limit(a));
    for (size_t i = 0; i < m->n_series; i++)
        if (in_points(m->series[i], m->gauge, points, &r.series[i], e) ||
            in_labels(m->series[i]->labels, m->series[i]->n_labels, a, &r.series[i].labels, e))
            return e->code;
    *ret = r;
    return 0;
}

static int in_function(const Embertree__FunctionSeries *f, uint32_t points,
                       struct wire_function *ret, struct err *e)
{
    if (f->n_self != f->n_point || f->n_total != f->n_point)
        return err_set(e, ERR_CORRUPT, "reply: columns of functions differ in length");
    for (size_t i = 0; i < f->n_point; i++)
        if (f->point[i] >= points || (i && f->point[i] <= f->point[i - 1]))
            return err_set(e, ERR_CORRUPT, "reply: point %" PRIu32 " of %" PRIu32 ", not ascending",
                           f->point[i], points);
    *ret = (struct wire_function){ in_str(f->name), f->point, f->self, f->total, f->n_point };
    return 0;
}

NODISCARD int wire_get_functions(struct str in, uint32_t points, struct arena *a,
                                 struct wire_function_list *ret, struct err *e)
{
    const Embertree__FunctionsReply *m = unpack(&embertree__functions_reply__descriptor, in, a, e);

    if (!m)
        return e->code;
    struct wire_function_list r = { .at = ARENA_ARRAY(a, struct wire_function, m->n_functions + 1),
                                    .len = m->n_functions,
                                    .all = m->all,
                                    .leaves = m->gauge ? m->leaves : NULL,
                                    .gauge = m->gauge,
                                    .start_ms = m->start_ms,
                                    .end_ms = m->end_ms,
                                    .saturated = m->saturated };
    if (!r.at)
        return err_set(e, ERR_LIMIT, "a reply's functions do not fit %zu bytes", arena_limit(a));
    if (m->n_all != points || (m->gauge && m->n_leaves != points))
        return err_set(e, ERR_CORRUPT, "reply: sums of %zu points, asked for %" PRIu32, m->n_all,
                       points);
    struct leaf_part items = { NULL, m->leaves, points, m->leaf_items, m->n_leaf_items };
    if (m->gauge && in_leaves(items, &r.items, e))
        return e->code;
    for (size_t i = 0; i < m->n_functions; i++)
        if (in_function(m->functions[i], points, &r.at[i], e))
            return e->code;
    *ret = r;
    return 0;
}

NODISCARD int wire_get_labels(struct str in, struct arena *a, struct wire_label_lists *ret,
                              struct err *e)
{
    const Embertree__LabelsReply *m = unpack(&embertree__labels_reply__descriptor, in, a, e);

    if (!m)
        return e->code;
    struct wire_label_lists r = { ARENA_ARRAY(a, struct str, m->n_values + 1), m->n_values,
                                  ARENA_ARRAY(a, struct labels, m->n_sets + 1), m->n_sets,
                                  m->truncated };
    if (!r.values || !r.sets)
        return err_set(e, ERR_LIMIT, "a reply's labels do not fit %zu bytes", arena_limit(a));
    for (size_t i = 0; i < m->n_values; i++)
        r.values[i] = in_str(m->values[i]);
    for (size_t i = 0; i < m->n_sets; i++)
        if (in_labels(m->sets[i]->labels, m->sets[i]->n_labels, a, &r.sets[i], e))
            return e->code;
    *ret = r;
    return 0;
}

static int in_exemplar(const Embertree__Exemplar *in, size_t series, struct wire_exemplar *ret,
                       struct err *e)
{
    if (in->kind < EXID_SPAN || in->kind >= EXID_KINDS || !exid_valid(in_str(in->id)))
        return err_set(e, ERR_CORRUPT, "reply: an exemplar without an id of a known kind");
    if (in->series >= series)
        return err_set(e, ERR_CORRUPT, "reply: series %" PRIu32 " of %zu", in->series, series);
    *ret = (struct wire_exemplar){ .kind = in->kind,
                                   .id = in_str(in->id),
                                   .start_ms = in->start_ms,
                                   .duration_ms = in->duration_ms,
                                   .total = in->total,
                                   .series = in->series,
                                   .count = in->count ? in->count : 1,
                                   .sum = in->count ? in->sum : in->total };
    return 0;
}

NODISCARD int wire_get_exemplars(struct str in, struct arena *a, struct wire_exm_list *ret,
                                 struct err *e)
{
    const Embertree__ExemplarReply *m = unpack(&embertree__exemplar_reply__descriptor, in, a, e);

    if (!m)
        return e->code;
    struct wire_exm_list r = { .items = ARENA_ARRAY(a, struct wire_exemplar, m->n_exemplars + 1),
                               .len = m->n_exemplars,
                               .series = ARENA_ARRAY(a, struct labels, m->n_series + 1),
                               .series_len = m->n_series,
                               .truncated = m->truncated,
                               .gauge = m->gauge,
                               .count = m->count,
                               .least = m->least,
                               .most = m->most,
                               .leaves_from_ms = m->leaves_from_ms };
    if (!r.items || !r.series)
        return err_set(e, ERR_LIMIT, "a reply's exemplars do not fit %zu bytes", arena_limit(a));
    for (size_t i = 0; i < m->n_series; i++)
        if (in_labels(m->series[i]->labels, m->series[i]->n_labels, a, &r.series[i], e))
            return e->code;
    for (size_t i = 0; i < m->n_exemplars; i++)
        if (in_exemplar(m->exemplars[i], m->n_series, &r.items[i], e))
            return e->code;
    *ret = r;
    return 0;
}

NODISCARD int wire_get_estimate(struct str in, struct arena *a, struct wire_estimate *ret,
                                struct err *e)
{
    const Embertree__EstimateReply *m = unpack(&embertree__estimate_reply__descriptor, in, a, e);

    if (!m)
        return e->code;
    *ret = (struct wire_estimate){ .services = m->services,
                                   .units = m->units,
                                   .nodes = m->nodes,
                                   .rows = m->rows,
                                   .bytes = m->bytes,
                                   .sampled = m->sampled,
                                   .more = m->more,
                                   .series = m->series,
                                   .writes = m->writes,
                                   .samples = m->samples,
                                   .index_bytes = m->index_bytes,
                                   .dictionary_bytes = m->dictionary_bytes,
                                   .shards = m->shards };
    return 0;
}

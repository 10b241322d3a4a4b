/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/roles/querier_fake.h"

#include <stdlib.h>

#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/model/leaves.h"
#include "common/model/selector.h"
#include "common/model/shard.h"
#include "common/model/slot.h"
#include "common/model/stacks.h"
#include "proto/query.pb-c.h"
#include "tests/lib/roles/querier_fake_impl.h"

static struct str in_str(ProtobufCBinaryData b)
{
    return str_n(b.data, b.len);
}

static ProtobufCBinaryData out_str(struct str s)
{
    return (ProtobufCBinaryData){ s.len, (uint8_t *)(uintptr_t)s.ptr };
}

struct labels fake_labels(const struct qbed_push *p, struct arena *a)
{
    struct labels l = { 0 };
    struct str rest = str_c(p->labels), pair;
    bool more = rest.len > 0;
    struct err e;

    CHECK(labels_set(&l, a, STR("service_name"), str_c(p->service), &e) == 0);
    CHECK(labels_set(&l, a, STR("__profile_type__"), str_c(p->type), &e) == 0);
    while (more && str_next(&rest, ',', &more, &pair)) {
        size_t eq = (size_t)str_find(pair, '=');
        CHECK(labels_set(&l, a, str_sub(pair, 0, eq), str_sub(pair, eq + 1, pair.len), &e) == 0);
    }
    return l;
}

int fake_matches(const struct qbed_push *p, struct str tenant, Embertree__Matcher **matchers,
                 size_t n, struct arena *a, struct err *e)
{
    struct labels l = fake_labels(p, a);

    if (!str_eqc(tenant, p->tenant ? p->tenant : "anonymous"))
        return 0;
    for (size_t i = 0; i < n; i++) {
        struct matcher m = { .op = (enum match_op)matchers[i]->op,
                             .name = in_str(matchers[i]->name),
                             .value = in_str(matchers[i]->value),
                             .unanchored = matchers[i]->unanchored };
        struct selector s = { .matchers = &m, .len = 1 };
        if (selector_compile(&s, e))
            return -1;
        int hit = matcher_match(&m, labels_get(&l, m.name), e);
        selector_deinit(&s);
        if (hit <= 0)
            return hit;
    }
    return 1;
}

bool fake_lives_here(const struct fake *f, const struct qbed_push *p, const uint32_t *shards,
                     size_t n)
{
    size_t shard = p->ingester;

    if (p->ingester == QBED_BY_SERVICE)
        shard = shard_of(str_c(p->tenant ? p->tenant : "anonymous"), str_c(p->service),
                         (uint32_t)(2 * f->ingesters));
    bool named = n == 0;
    for (size_t i = 0; i < n; i++)
        named |= shards[i] == shard;
    return named && shard % f->ingesters == f->ingester;
}

static uint32_t add_folded(struct stacks *s, const char *folded)
{
    struct str rest = str_c(folded), part;
    bool more = rest.len > 0;
    uint32_t node = 0;

    while (more && str_next(&rest, ';', &more, &part)) {
        struct frame f = { .func = stacks_string(s, part), .line = (uint32_t)part.len };
        node = stacks_node(s, node, stacks_frame(s, &f));
    }
    return node;
}

bool fake_has_prefix(struct str folded, const ProtobufCBinaryData *site, size_t n)
{
    struct str rest = folded, part;
    bool more = rest.len > 0;

    for (size_t i = 0; i < n; i++)
        if (!more || !str_next(&rest, ';', &more, &part) || !str_eq(part, in_str(site[i])))
            return false;
    return true;
}

void fake_pack(const ProtobufCMessage *m, struct buf *out)
{
    size_t n = protobuf_c_message_get_packed_size(m);
    char *room = buf_room(out, n);

    CHECK(room);
    out->len += protobuf_c_message_pack(m, (uint8_t *)room);
}

static int ascending(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* Edges of merges inside a node that is kept as one snap outward to it. */
static int64_t snapped(const struct fake *f, int64_t ms, int64_t on)
{
    int64_t behind = f->coarse_ms ? (ms - SLOT_EPOCH_MS) % f->coarse_ms : 0;

    return behind && ms - behind < f->coarse_until_ms ? ms - behind + on : ms;
}

static int answer_merge(const struct fake *f, struct str payload, struct arena *a, struct buf *out,
                        struct err *e)
{
    Embertree__MergeRequest *q =
        embertree__merge_request__unpack(NULL, payload.len, (const uint8_t *)payload.ptr);
    Embertree__MergeReply r = EMBERTREE__MERGE_REPLY__INIT;
    Embertree__Stacks st = EMBERTREE__STACKS__INIT;
    VEC(uint32_t) nodes = { 0 };
    VEC(uint64_t) values = { 0 };
    VEC(uint32_t) leaves = { 0 };
    struct stacks s;

    CHECK(q);
    stacks_init(&s, GIB, 5);
    q->start_ms = snapped(f, q->start_ms, 0);
    q->end_ms = snapped(f, q->end_ms, f->coarse_ms);
    for (size_t i = 0; i < f->n && e->code == 0; i++) {
        const struct qbed_push *p = &f->pushes[i];
        uint32_t leaf = slot_of_ms(p->ms) / LEAF_SLOTS;
        if (!fake_lives_here(f, p, q->shards, q->n_shards) ||
            !str_eqc(in_str(q->profile_type), p->type) ||
            fake_matches(p, in_str(q->tenant), q->matchers, q->n_matchers, a, e) <= 0 ||
            p->ms < q->start_ms || p->ms >= q->end_ms ||
            !fake_has_prefix(str_c(p->folded), q->call_site, q->n_call_site))
            continue;
        vec_push(&nodes, add_folded(&s, p->folded));
        vec_push(&values, p->value);
        r.total += p->value;
        r.gauge |= p->gauge;
        vec_push(&leaves, leaf);
    }
    size_t kept = 0;
    if (leaves.len)
        qsort(leaves.ptr, leaves.len, sizeof(uint32_t), ascending);
    vec_for (i, &leaves)
        if (!kept || leaves.ptr[kept - 1] != leaves.ptr[i])
            leaves.ptr[kept++] = leaves.ptr[i];
    struct stacks_view v = stacks_view(&s);
    st.string_data = out_str(v.string_data);
    st.string_len = (uint32_t *)(uintptr_t)v.string_len;
    st.n_string_len = v.strings;
    st.frame_func = (uint32_t *)(uintptr_t)v.frame_func;
    st.frame_file = (uint32_t *)(uintptr_t)v.frame_file;
    st.frame_line = (uint32_t *)(uintptr_t)v.frame_line;
    st.frame_module = (uint32_t *)(uintptr_t)v.frame_module;
    st.frame_addr = (uint64_t *)(uintptr_t)v.frame_addr;
    st.n_frame_func = st.n_frame_file = st.n_frame_line = v.frames;
    st.n_frame_module = st.n_frame_addr = v.frames;
    st.node_parent = (uint32_t *)(uintptr_t)v.node_parent;
    st.node_frame = (uint32_t *)(uintptr_t)v.node_frame;
    st.n_node_parent = st.n_node_frame = v.nodes;
    r.stacks = &st;
    r.node = nodes.ptr;
    r.value = values.ptr;
    r.n_node = r.n_value = nodes.len;
    r.leaf = leaves.ptr;
    r.n_leaf = r.gauge ? kept : 0;
    r.start_ms = q->start_ms;
    r.end_ms = q->end_ms;
    if (!e->code)
        fake_pack(&r.base, out);
    stacks_deinit(&s);
    vec_free(&nodes);
    vec_free(&values);
    vec_free(&leaves);
    embertree__merge_request__free_unpacked(q, NULL);
    return e->code;
}

/* ---- timeline ---------------------------------------------------------------------------------*/

struct point {
    uint64_t value, writes;
    uint32_t leaves, last_leaf; /* pushes come in order of time per group */
};
struct group {
    struct labels labels;
    struct point *points;
    struct leaf_items items;
    struct leaf_writer writer;
};

static struct group *group_of(struct group *groups, size_t *len, struct labels l, uint32_t points)
{
    for (size_t i = 0; i < *len; i++)
        if (labels_eq(&groups[i].labels, &l))
            return &groups[i];
    groups[*len] = (struct group){ .labels = l, .points = XNEW_ARRAY(struct point, points) };
    return &groups[(*len)++];
}

Embertree__LabelPair **fake_pairs(const struct labels *l, struct arena *a)
{
    Embertree__LabelPair **out = ARENA_ARRAY(a, Embertree__LabelPair *, l->len + 1);

    for (size_t i = 0; i < l->len; i++) {
        out[i] = ARENA_NEW(a, Embertree__LabelPair);
        embertree__label_pair__init(out[i]);
        out[i]->name = out_str(l->ptr[i].name);
        out[i]->value = out_str(l->ptr[i].value);
    }
    return out;
}

static Embertree__TimelineSeries *series_of(const struct group *g, uint32_t points, struct arena *a)
{
    Embertree__TimelineSeries *s = ARENA_NEW(a, Embertree__TimelineSeries);

    embertree__timeline_series__init(s);
    s->labels = fake_pairs(&g->labels, a);
    s->n_labels = g->labels.len;
    s->point = ARENA_ARRAY(a, uint32_t, points);
    s->value = ARENA_ARRAY(a, uint64_t, points);
    s->writes = ARENA_ARRAY(a, uint64_t, points);
    s->leaves = ARENA_ARRAY(a, uint32_t, points);
    for (uint32_t k = 0; k < points; k++) {
        if (!g->points[k].writes)
            continue;
        s->point[s->n_point++] = k;
        s->value[s->n_value++] = g->points[k].value;
        s->writes[s->n_writes++] = g->points[k].writes;
        s->leaves[s->n_leaves++] = g->points[k].leaves;
    }
    return s;
}

static struct labels project(const struct labels *l, ProtobufCBinaryData *names, size_t n,
                             struct arena *a)
{
    struct labels out = { 0 };
    struct err e;

    for (size_t i = 0; i < l->len; i++)
        for (size_t k = 0; k < n; k++)
            if (str_eq(l->ptr[i].name, in_str(names[k])))
                CHECK(labels_set(&out, a, l->ptr[i].name, l->ptr[i].value, &e) == 0);
    return out;
}

static int answer_timeline(const struct fake *f, struct str payload, struct arena *a,
                           struct buf *out, struct err *e)
{
    Embertree__TimelineRequest *q =
        embertree__timeline_request__unpack(NULL, payload.len, (const uint8_t *)payload.ptr);
    Embertree__TimelineReply r = EMBERTREE__TIMELINE_REPLY__INIT;
    const size_t groups_max = 4096;
    struct group *groups = ARENA_ARRAY(a, struct group, groups_max);
    size_t len = 0;

    CHECK(q && groups);
    for (size_t i = 0; i < f->n && e->code == 0; i++) {
        const struct qbed_push *p = &f->pushes[i];
        int64_t slot = slot_to_ms(slot_of_ms(p->ms));
        int64_t from = slot - q->origin_ms; /* point k: (k - 1) step < from <= k step */
        int64_t k =
            from <= 0 ? (from > -q->step_ms ? 0 : -1) : (from + q->step_ms - 1) / q->step_ms;
        if (!fake_lives_here(f, p, q->shards, q->n_shards) || k < 0 || k >= q->points ||
            !str_eqc(in_str(q->profile_type), p->type) ||
            fake_matches(p, in_str(q->tenant), q->matchers, q->n_matchers, a, e) <= 0)
            continue;
        struct labels all = fake_labels(p, a);
        CHECK(len < groups_max);
        struct group *g =
            group_of(groups, &len, project(&all, q->group_by, q->n_group_by, a), q->points);
        struct point *to = &g->points[k];
        uint32_t leaf = slot_of_ms(p->ms) / LEAF_SLOTS + 1;
        to->value += p->value;
        to->writes++;
        if (to->last_leaf != leaf) {
            to->leaves++;
            g->writer.to = &g->items;
            leaf_put(&g->writer, leaf - 1, 1);
        }
        to->last_leaf = leaf;
        r.gauge |= p->gauge;
    }
    r.series = ARENA_ARRAY(a, Embertree__TimelineSeries *, len + 1);
    for (size_t i = 0; i < len; i++) {
        r.series[r.n_series++] = series_of(&groups[i], q->points, a);
        leaf_put_end(&groups[i].writer);
        r.series[i]->leaf_items = groups[i].items.ptr;
        r.series[i]->n_leaf_items = q->leaf_items && r.gauge ? groups[i].items.len : 0;
        if (!r.gauge)
            r.series[i]->n_leaves = 0;
        xfree(groups[i].points);
    }
    if (!e->code)
        fake_pack(&r.base, out);
    for (size_t i = 0; i < len; i++)
        vec_free(&groups[i].items);
    embertree__timeline_request__free_unpacked(q, NULL);
    return e->code;
}

/* ---- labels -----------------------------------------------------------------------------------*/

static void add_value(Embertree__LabelsReply *r, struct str v)
{
    for (size_t i = 0; i < r->n_values; i++)
        if (str_eq(in_str(r->values[i]), v))
            return;
    r->values[r->n_values++] = out_str(v);
}

static void add_set(Embertree__LabelsReply *r, const struct labels *l, struct arena *a)
{
    Embertree__LabelSet *set = ARENA_NEW(a, Embertree__LabelSet);

    embertree__label_set__init(set);
    set->labels = fake_pairs(l, a);
    set->n_labels = l->len;
    r->sets[r->n_sets++] = set;
}

static int answer_labels(const struct fake *f, struct str payload, struct arena *a, struct buf *out,
                         struct err *e)
{
    Embertree__LabelsRequest *q =
        embertree__labels_request__unpack(NULL, payload.len, (const uint8_t *)payload.ptr);
    Embertree__LabelsReply r = EMBERTREE__LABELS_REPLY__INIT;

    CHECK(q);
    r.values = ARENA_ARRAY(a, ProtobufCBinaryData, 32 * f->n + 1);
    r.sets = ARENA_ARRAY(a, Embertree__LabelSet *, f->n + 1);
    for (size_t i = 0; i < f->n && e->code == 0; i++) {
        const struct qbed_push *p = &f->pushes[i];
        struct labels l = fake_labels(p, a);
        bool any_time = q->start_ms == 0 && q->end_ms == 0;
        if (!fake_lives_here(f, p, NULL, 0) ||
            (!any_time && (p->ms < q->start_ms || p->ms >= q->end_ms)) ||
            fake_matches(p, in_str(q->tenant), q->matchers, q->n_matchers, a, e) <= 0)
            continue;
        if (q->kind == 3)
            add_value(&r, str_c(p->type));
        for (size_t k = 0; q->kind == 0 && k < l.len; k++)
            add_value(&r, l.ptr[k].name);
        if (q->kind == 1 && labels_get(&l, in_str(q->name)).ptr)
            add_value(&r, labels_get(&l, in_str(q->name)));
        if (q->kind == 2) {
            struct labels cut = q->n_names ? project(&l, q->names, q->n_names, a) : l;
            add_set(&r, &cut, a);
        }
    }
    if (q->limit && r.n_values > q->limit) {
        r.n_values = q->limit;
        r.truncated = true;
    }
    if (!e->code)
        fake_pack(&r.base, out);
    embertree__labels_request__free_unpacked(q, NULL);
    return e->code;
}

/* ---- estimate ---------------------------------------------------------------------------------*/

/* A push is a series, a row and 100 bytes. */
static int answer_estimate(const struct fake *f, struct str payload, struct arena *a,
                           struct buf *out, struct err *e)
{
    Embertree__EstimateRequest *q =
        embertree__estimate_request__unpack(NULL, payload.len, (const uint8_t *)payload.ptr);
    Embertree__EstimateReply r = EMBERTREE__ESTIMATE_REPLY__INIT;

    CHECK(q);
    for (size_t i = 0; i < f->n && e->code == 0; i++) {
        const struct qbed_push *p = &f->pushes[i];
        if (!fake_lives_here(f, p, q->shards, q->n_shards) || p->ms < q->start_ms ||
            p->ms >= q->end_ms ||
            (q->profile_type.len && !str_eqc(in_str(q->profile_type), p->type)) ||
            fake_matches(p, in_str(q->tenant), q->matchers, q->n_matchers, a, e) <= 0)
            continue;
        r.rows++;
        r.bytes += 100;
        r.series += q->detail;
        r.writes += q->detail;
        r.index_bytes += q->detail ? 7 : 0;
        r.dictionary_bytes += q->detail ? 9 : 0;
    }
    r.shards = (uint32_t)q->n_shards;
    if (!e->code)
        fake_pack(&r.base, out);
    embertree__estimate_request__free_unpacked(q, NULL);
    return e->code;
}

int fake_answer(const struct fake *f, enum rpc_method method, struct str payload, struct buf *out,
                struct err *e)
{
    struct arena *a = arena_new(256 * MIB);
    int code = ERR_UNIMPLEMENTED;

    e->code = 0;
    if (method == RPC_MERGE)
        code = answer_merge(f, payload, a, out, e);
    else if (method == RPC_TIMELINE)
        code = answer_timeline(f, payload, a, out, e);
    else if (method == RPC_LABELS)
        code = answer_labels(f, payload, a, out, e);
    else if (method == RPC_ESTIMATE)
        code = answer_estimate(f, payload, a, out, e);
    else if (method == RPC_FUNCTIONS)
        code = fake_functions(f, payload, a, out, e);
    else if (method == RPC_EXEMPLARS)
        code = fake_exemplars(f, payload, a, out, e);
    arena_free(a);
    return code;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * import_msg: what another Embertree, or `embertree import`, has decoded before us.
 *
 * Distributors send the same message to ingesters, so nothing is converted; but it comes
 * from outside, so everything a decoder of formats/ guarantees is checked here: references, order,
 * labels, depth, times, sums. What the sender says about tenant, shard, receipt and who will ask
 * for it is not believed but replaced.
 *
 * Labels that the identity of the request sets are replaced before anything is made of labels.
 * Series that become equal by that stay two, with two ids: their sums are right.
 *
 * Write ids: H(tenant secret; the sender's id of the series, or the bytes of the message; labels,
 * type). The same data sent again is thereby the same write, as long as ids are remembered. A
 * series that is in one message twice, without an id of its sender's, counts twice.
 *
 * A level (say 1m) puts each vector of a sum at the start of its node and adds up those that meet
 * there: old data whose finer levels are gone need not be split finer than that. Gauges are
 * averages over the leaves that have data, so they stay where they are.
 */
#include "distributor/api/import_msg.h"

#include <stdlib.h>

#include "common/base/rd.h"
#include "common/base/wr.h"
#include "common/model/shard.h"
#include "common/model/slot.h"
#include "distributor/send/shard_routing.h"
#include "proto/ingest.pb-c.h"

#define MESSAGES_MAX 65536
#define VECTORS_MAX  1000000

struct made {
    uint8_t *id;
    size_t at; /* which series */
};
struct import {
    const struct import_opts *o;
    struct arena *a;
    struct stacks_view stacks;
    Embertree__WriteRequest *m;
    struct write_base base; /* of series without an id of their own */
    struct made *made;      /* the ids of these */
    size_t made_len;
    uint64_t vectors, samples;
};

/* ---- frames ---- */

int import_frames(struct str body, struct arena *a, struct import_frames *ret, struct err *e)
{
    struct rd r = rd_of(body);
    struct str one;
    uint64_t len;
    size_t n = 0;

    *ret = (struct import_frames){ 0 };
    while (rd_left(&r)) {
        size_t at = body.len - rd_left(&r);
        if (!rd_varint(&r, &len) || len > rd_left(&r) || !rd_skip(&r, (size_t)len))
            return err_set(e, ERR_INPUT,
                           "at byte %zu of %zu: want the length of a WriteRequest as a varint and "
                           "that many bytes behind it",
                           at, body.len);
        if (++n > MESSAGES_MAX)
            return err_set(e, ERR_LIMIT, "over %d messages in one body", MESSAGES_MAX);
    }
    ret->at = ARENA_ARRAY(a, struct str, n);
    if (!ret->at)
        return err_set(e, ERR_LIMIT, "no memory for %zu messages", n);
    for (r = rd_of(body); ret->len < n; ret->len++) {
        CHECK(rd_varint(&r, &len) && rd_bytes(&r, (size_t)len, &one));
        ret->at[ret->len] = one;
        ret->largest = MAX(ret->largest, one.len);
    }
    return 0;
}

int import_level(struct str text, uint32_t *ret_slots, struct err *e)
{
    static const struct {
        const char *name;
        uint32_t slots;
    } levels[] = { { "", LEAF_SLOTS }, { "10s", 2 },     { "1m", 12 },
                   { "10m", 120 },     { "1h", 720 },    { "6h", 4320 },
                   { "1d", 17280 },    { "8d", 138240 }, { "64d", 1105920 } };

    for (size_t i = 0; i < ARRAY_LEN(levels); i++)
        if (str_eqc(text, levels[i].name) || (!text.len && !i)) {
            *ret_slots = levels[i].slots;
            return 0;
        }
    return err_set(e, ERR_INPUT, "level=%.*s: want 10s, 1m, 10m, 1h, 6h, 1d, 8d or 64d",
                   (int)MIN(text.len, 32), text.ptr);
}

/* ---- unpacking ---- */

size_t import_arena_bytes(size_t len)
{
    return 64 * KIB + 48 * len;
}

static void *alloc_cb(void *a, size_t size)
{
    return arena_alloc(a, size);
}

static void free_cb(void *a, void *p)
{
    (void)a;
    (void)p;
}

static struct str bytes_str(ProtobufCBinaryData b)
{
    return str_n(b.data, b.len);
}

static ProtobufCBinaryData str_bytes_of(struct str s)
{
    return (ProtobufCBinaryData){ s.len, (uint8_t *)(uintptr_t)s.ptr };
}

static int full(const struct import *x, struct err *e)
{
    return err_set(e, ERR_LIMIT, "the message needs over %zu bytes to decode", arena_limit(x->a));
}

/* ---- stacks ---- */

static int check_columns(const Embertree__Stacks *s, struct err *e)
{
    if (s->n_frame_file != s->n_frame_func || s->n_frame_line != s->n_frame_func ||
        s->n_frame_module != s->n_frame_func || s->n_frame_addr != s->n_frame_func)
        return err_set(e, ERR_INPUT, "columns of frames differ: %zu %zu %zu %zu %zu",
                       s->n_frame_func, s->n_frame_file, s->n_frame_line, s->n_frame_module,
                       s->n_frame_addr);
    if (s->n_node_parent != s->n_node_frame)
        return err_set(e, ERR_INPUT, "columns of nodes differ: %zu %zu", s->n_node_parent,
                       s->n_node_frame);
    return 0;
}

/* Symbols are bytes, as in every format; only labels are text. */
static int check_strings(const struct import *x, struct err *e)
{
    const struct stacks_view *v = &x->stacks;

    for (size_t i = 0; i < v->strings; i++)
        if (v->string_len[i] > x->o->limits->symbol_bytes)
            return err_set(e, ERR_LIMIT,
                           "string %zu has %" PRIu32 " bytes, at most %" PRIu64
                           " (distributor.symbol_bytes)",
                           i, v->string_len[i], x->o->limits->symbol_bytes);
    return 0;
}

static int check_depth(const struct import *x, struct err *e)
{
    const struct stacks_view *v = &x->stacks;
    uint32_t *depth = arena_alloc(x->a, (v->nodes + 1) * sizeof(*depth));

    if (!depth)
        return full(x, e);
    depth[0] = 0;
    for (size_t i = 1; i <= v->nodes; i++) {
        depth[i] = depth[v->node_parent[i - 1]] + 1;
        if (depth[i] > x->o->limits->frames)
            return err_set(e, ERR_LIMIT, "a stack has over %" PRIu64 " frames (distributor.frames)",
                           x->o->limits->frames);
    }
    return 0;
}

static int take_stacks(struct import *x, struct err *e)
{
    static const uint32_t no_string = 0;
    const Embertree__Stacks *s = x->m->stacks;

    if (!s) {
        x->stacks = (struct stacks_view){ .string_len = &no_string, .strings = 1 };
        return 0;
    }
    if (check_columns(s, e))
        return e->code;
    x->stacks = (struct stacks_view){
        .string_data = bytes_str(s->string_data),
        .string_len = s->string_len,
        .strings = s->n_string_len,
        .frame_func = s->frame_func,
        .frame_file = s->frame_file,
        .frame_line = s->frame_line,
        .frame_module = s->frame_module,
        .frame_addr = s->frame_addr,
        .frames = s->n_frame_func,
        .node_parent = s->node_parent,
        .node_frame = s->node_frame,
        .nodes = s->n_node_parent,
    };
    if (stacks_view_check(&x->stacks, e) || check_strings(x, e) || check_depth(x, e))
        return e->code;
    return 0;
}

/* ---- series ---- */

static int check_text(struct str s, uint64_t most, const char *what, struct err *e)
{
    if (s.len > most)
        return err_set(e, ERR_LIMIT, "%s of %zu bytes, at most %" PRIu64, what, s.len, most);
    if (!str_utf8_valid(s))
        return err_set(e, ERR_INPUT, "%s is no UTF-8", what);
    return 0;
}

/* As `l` is: what the identity sets has replaced what the sender said. */
static int put_labels(const struct import *x, Embertree__WriteSeries *s, const struct labels *l,
                      struct err *e)
{
    Embertree__LabelPair *pairs = ARENA_ARRAY(x->a, Embertree__LabelPair, l->len + 1);
    Embertree__LabelPair **all = ARENA_ARRAY(x->a, Embertree__LabelPair *, l->len + 1);

    if (!pairs || !all)
        return full(x, e);
    for (size_t i = 0; i < l->len; i++) {
        embertree__label_pair__init(&pairs[i]);
        pairs[i].name = str_bytes_of(l->ptr[i].name);
        pairs[i].value = str_bytes_of(l->ptr[i].value);
        all[i] = &pairs[i];
    }
    s->labels = all;
    s->n_labels = l->len;
    return 0;
}

static int set_labels(const struct import *x, Embertree__WriteSeries *s, struct labels *l,
                      struct err *e)
{
    const struct labels *set = x->o->set;

    for (size_t i = 0; set && i < set->len; i++) {
        if (push_label_hidden(set->ptr[i].name))
            return err_set(e, ERR_INPUT,
                           "the key sets the label %.*s, which no series may have; its owner must "
                           "change the key's grant",
                           STR_ARG(set->ptr[i].name));
        if (labels_set(l, x->a, set->ptr[i].name, set->ptr[i].value, e))
            return full(x, e);
        if (str_eqc(set->ptr[i].name, "service_name"))
            labels_del(l, STR("__service_name__"));
    }
    return set && set->len ? put_labels(x, s, l, e) : 0;
}

/* Those that follow from the type and the service are set by us; they count for nothing. */
static int take_labels(const struct import *x, Embertree__WriteSeries *s, struct labels *ret,
                       struct err *e)
{
    const struct limits *l = x->o->limits;
    struct label *at = ARENA_ARRAY(x->a, struct label, s->n_labels + 1);
    size_t own = 0;

    if (!at)
        return full(x, e);
    for (size_t i = 0; i < s->n_labels; i++) {
        at[i] = (struct label){ bytes_str(s->labels[i]->name), bytes_str(s->labels[i]->value) };
        if (!at[i].name.len || (i && str_cmp(at[i - 1].name, at[i].name) >= 0))
            return err_set(e, ERR_INPUT, "labels are not sorted by name, or a name is empty");
    }
    *ret = (struct labels){ at, s->n_labels };
    if (set_labels(x, s, ret, e))
        return e->code;
    for (size_t i = 0; i < ret->len; i++) {
        own += !str_starts(ret->ptr[i].name, STR("__"));
        if (check_text(ret->ptr[i].name, l->label_name_bytes, "name of a label", e) ||
            check_text(ret->ptr[i].value, l->label_value_bytes, "value of a label", e))
            return e->code;
    }
    if (own > l->label_names)
        return err_set(e, ERR_LIMIT, "%zu labels, at most %" PRIu64 " (distributor.label_names)",
                       own, l->label_names);
    return 0;
}

static int check_vector(const struct import *x, const Embertree__WriteVector *v, struct err *e)
{
    const struct window_accept *w = &x->o->accept;
    int64_t ms = slot_to_ms(v->slot);

    if (v->n_node != v->n_value)
        return err_set(e, ERR_INPUT, "%zu nodes and %zu values", v->n_node, v->n_value);
    if (ms < w->now_ms - (int64_t)w->past_ms)
        return err_set(e, ERR_INPUT,
                       "not_in_ingestion_window: %" PRId64
                       " s old, more than is kept (distributor.past: %" PRIu64 " s)",
                       (w->now_ms - ms) / 1000, w->past_ms / 1000);
    if (ms > w->now_ms + (int64_t)w->future_ms)
        return err_set(e, ERR_INPUT,
                       "not_in_ingestion_window: %" PRId64
                       " s ahead of this server's clock (distributor.future: %" PRIu64 " s)",
                       (ms - w->now_ms) / 1000, w->future_ms / 1000);
    for (size_t i = 0; i < v->n_node; i++) {
        if (v->node[i] > x->stacks.nodes)
            return err_set(e, ERR_INPUT, "node %" PRIu32 " of %zu", v->node[i], x->stacks.nodes);
        if (i && v->node[i] <= v->node[i - 1])
            return err_set(e, ERR_INPUT, "nodes do not ascend at %zu", i);
        if (v->value[i] - 1 >= INT64_MAX)
            return err_set(e, ERR_INPUT, "value of node %" PRIu32 " is 0 or over 2^63 - 1",
                           v->node[i]);
    }
    return 0;
}

/* a + b into a, whose columns are replaced; sums stay at 2^63 - 1. */
static int add_vector(struct import *x, Embertree__WriteVector *a, const Embertree__WriteVector *b,
                      struct err *e)
{
    size_t n = a->n_node + b->n_node, i = 0, j = 0, k = 0;
    uint32_t *node = arena_alloc(x->a, (n + 1) * sizeof(*node));
    uint64_t *value = arena_alloc(x->a, (n + 1) * sizeof(*value));

    if (!node || !value)
        return full(x, e);
    while (i < a->n_node || j < b->n_node) {
        bool first = j == b->n_node || (i < a->n_node && a->node[i] <= b->node[j]);
        bool second = i == a->n_node || (j < b->n_node && b->node[j] <= a->node[i]);
        node[k] = first ? a->node[i] : b->node[j];
        value[k] = MIN((first ? a->value[i] : 0) + (second ? b->value[j] : 0), (uint64_t)INT64_MAX);
        i += first;
        j += second;
        k++;
    }
    a->node = node;
    a->value = value;
    a->n_node = a->n_value = k;
    return 0;
}

static int take_vectors(struct import *x, Embertree__WriteSeries *s, struct err *e)
{
    uint32_t width = s->gauge ? LEAF_SLOTS : x->o->node_slots;
    uint32_t before = 0;
    size_t kept = 0;

    if (!s->n_vectors)
        return err_set(e, ERR_INPUT, "no vectors");
    x->vectors += s->n_vectors;
    if (x->vectors > VECTORS_MAX)
        return err_set(e, ERR_LIMIT, "over %d vectors in one message", VECTORS_MAX);
    for (size_t i = 0; i < s->n_vectors; i++) {
        Embertree__WriteVector *v = s->vectors[i];
        if (i && v->slot <= before)
            return err_set(e, ERR_INPUT, "slot %" PRIu32 " after slot %" PRIu32, v->slot, before);
        if (check_vector(x, v, e))
            return err_wrap(e, "slot %" PRIu32, v->slot);
        before = v->slot;
        x->samples += v->n_node;
        if (width > LEAF_SLOTS)
            v->slot -= v->slot % width;
        if (!kept || s->vectors[kept - 1]->slot != v->slot)
            s->vectors[kept++] = v;
        else if (add_vector(x, s->vectors[kept - 1], v, e))
            return e->code;
    }
    s->n_vectors = kept;
    if (x->samples > x->o->limits->samples)
        return err_set(e, ERR_LIMIT,
                       "over %" PRIu64
                       " samples in one message (distributor.samples); send smaller "
                       "ones",
                       x->o->limits->samples);
    return 0;
}

static int set_id(struct import *x, Embertree__WriteSeries *s, const struct labels *labels,
                  struct err *e)
{
    struct push_series of = { .labels = *labels, .profile_type = bytes_str(s->profile_type) };
    struct write_base base = x->base;
    uint8_t *id = arena_alloc(x->a, WRITE_ID_BYTES);

    if (!id)
        return full(x, e);
    if (s->write_id.len && s->write_id.len != WRITE_ID_BYTES)
        return err_set(e, ERR_INPUT, "write id of %zu bytes, want none or %d", s->write_id.len,
                       WRITE_ID_BYTES);
    if (s->write_id.len)
        base = write_base_import(x->o->secret, bytes_str(s->write_id));
    write_id(x->o->secret, &base, &of, id);
    if (!s->write_id.len)
        x->made[x->made_len] = (struct made){ id, x->made_len };
    x->made_len += !s->write_id.len;
    s->write_id = str_bytes_of(str_n(id, WRITE_ID_BYTES));
    return 0;
}

static int by_id(const void *a, const void *b)
{
    const struct made *x = a, *y = b;
    int d = memcmp(x->id, y->id, WRITE_ID_BYTES);

    return d ? d : x->at < y->at ? -1 : x->at > y->at;
}

/* Series of the same labels and type have one id: the n-th gets n into it, or the ingester would
 * take it for the first one. */
static void number_twins(const struct import *x)
{
    struct {
        uint8_t id[WRITE_ID_BYTES];
        uint64_t n;
    } first;

    if (x->made_len)
        qsort(x->made, x->made_len, sizeof(*x->made), by_id);
    for (size_t i = 0, end; i < x->made_len; i = end) {
        memcpy(first.id, x->made[i].id, WRITE_ID_BYTES);
        for (end = i + 1; end < x->made_len && !memcmp(x->made[end].id, first.id, WRITE_ID_BYTES);
             end++) {
            first.n = end - i;
            struct hash128 h = siphash128(x->o->secret, &first, sizeof(first));
            put_u64le(x->made[end].id, h.lo);
            put_u64le(x->made[end].id + 8, h.hi);
        }
    }
}

/* The ingester wants the service among the labels. */
static int add_service(struct import *x, Embertree__WriteSeries *s, struct labels *l, struct err *e)
{
    struct str service = labels_get(l, STR("service_name")), mine = bytes_str(x->m->service);

    if (service.ptr && !str_eq(service, mine))
        return err_set(e, ERR_INPUT, "label service_name is %.*s, the service %.*s",
                       STR_ARG(service), STR_ARG(mine));
    if (service.ptr)
        return 0;
    Embertree__LabelPair *pair = arena_alloc(x->a, sizeof(*pair));
    Embertree__LabelPair **all = ARENA_ARRAY(x->a, Embertree__LabelPair *, s->n_labels + 1);
    if (!pair || !all || labels_set(l, x->a, STR("service_name"), mine, e))
        return full(x, e);
    embertree__label_pair__init(pair);
    pair->name = str_bytes_of(STR("service_name"));
    pair->value = x->m->service;
    for (size_t i = 0, k = 0; i < l->len; i++)
        all[i] = str_eqc(l->ptr[i].name, "service_name") ? pair : s->labels[k++];
    s->labels = all;
    s->n_labels = l->len;
    return 0;
}

static int take_series(struct import *x, Embertree__WriteSeries *s, struct err *e)
{
    struct ptype type;
    struct labels labels;

    if (ptype_parse(bytes_str(s->profile_type), &type, e) || take_labels(x, s, &labels, e) ||
        take_vectors(x, s, e) || add_service(x, s, &labels, e) || set_id(x, s, &labels, e))
        return e->code;
    return 0;
}

/* ---- the whole ---- */

static int take_all(struct import *x, struct str msg, struct err *e)
{
    Embertree__WriteRequest *m = x->m;
    const struct limits *l = x->o->limits;

    if (m->tenant.len && !str_eq(bytes_str(m->tenant), x->o->tenant))
        return err_set(e, ERR_INPUT, "it is for another tenant than the request (%.*s)",
                       (int)MIN(m->tenant.len, 64), (const char *)m->tenant.data);
    struct str set_service = x->o->set ? labels_get(x->o->set, STR("service_name")) : STR_NULL;
    if (set_service.len)
        m->service = str_bytes_of(set_service);
    if (!m->service.len)
        return err_set(e, ERR_INPUT, "no service");
    if (check_text(bytes_str(m->service), l->label_value_bytes, "name of the service", e))
        return e->code;
    if (!m->n_series || m->n_series > l->series)
        return err_set(e, m->n_series ? ERR_LIMIT : ERR_INPUT,
                       "%zu series, 1 to %" PRIu64 " are allowed (distributor.series)", m->n_series,
                       l->series);
    if (take_stacks(x, e))
        return err_wrap(e, "stacks");
    x->base = write_base_import(x->o->secret, msg);
    x->made = ARENA_ARRAY(x->a, struct made, m->n_series);
    if (!x->made)
        return full(x, e);
    for (size_t i = 0; i < m->n_series; i++)
        if (take_series(x, m->series[i], e))
            return err_wrap(e, "series %zu", i);
    number_twins(x);
    return 0;
}

static int by_shard(const void *a, const void *b)
{
    const struct import_part *x = a, *y = b;

    return x->shard != y->shard ? (x->shard < y->shard ? -1 : 1)
                                : (x->from > y->from) - (x->from < y->from);
}

static uint32_t place_of(const struct import *x, const Embertree__WriteSeries *s,
                         struct label *room)
{
    struct labels labels = { room, s->n_labels };
    int64_t when = s->n_vectors ? slot_to_ms(slot_leaf(s->vectors[0]->slot)) : MAP_WHEN_FIRST;

    for (size_t i = 0; i < s->n_labels; i++)
        room[i] = (struct label){ bytes_str(s->labels[i]->name), bytes_str(s->labels[i]->value) };
    return map_shard(x->o->map, x->o->tenant, bytes_str(x->m->service),
                     shard_routing_hash(&labels, NULL), when);
}

/* Which series go where; in x->m they stay in their order. */
static int take_places(struct import *x, struct import_opened *to, struct err *e)
{
    const Embertree__WriteRequest *m = x->m;
    struct str service = bytes_str(m->service);
    struct import_part *all = ARENA_ARRAY(x->a, struct import_part, m->n_series);
    size_t labels = 0;

    to->parts = all;
    to->parts_len = 1;
    to->by_place = m->series;
    if (!all)
        return full(x, e);
    all[0] = (struct import_part){ shard_of(x->o->tenant, service, x->o->shards), 0, m->n_series };
    if (!x->o->map || !map_is_placed(x->o->map, x->o->tenant, service))
        return 0;
    for (size_t i = 0; i < m->n_series; i++)
        labels = MAX(labels, m->series[i]->n_labels);
    struct label *room = ARENA_ARRAY(x->a, struct label, labels + 1);
    to->by_place = ARENA_ARRAY(x->a, Embertree__WriteSeries *, m->n_series);
    if (!room || !to->by_place)
        return full(x, e);
    for (size_t i = 0; i < m->n_series; i++)
        all[i] = (struct import_part){ place_of(x, m->series[i], room), i, 1 };
    qsort(all, m->n_series, sizeof(*all), by_shard);
    to->parts_len = 0;
    for (size_t i = 0; i < m->n_series; i++) {
        to->by_place[i] = m->series[all[i].from];
        if (i && all[to->parts_len - 1].shard == all[i].shard)
            all[to->parts_len - 1].len++;
        else
            all[to->parts_len++] = (struct import_part){ all[i].shard, i, 1 };
    }
    return 0;
}

int import_open(struct str msg, const struct import_opts *o, struct arena *a,
                struct import_opened *ret, struct err *e)
{
    ProtobufCAllocator allocator = { alloc_cb, free_cb, a };
    struct import x = { .o = o, .a = a };

    x.m = embertree__write_request__unpack(&allocator, msg.len,
                                           (const uint8_t *)(const void *)msg.ptr);
    if (!x.m)
        return arena_used(a) + msg.len > arena_limit(a)
                   ? full(&x, e)
                   : err_set(e, ERR_INPUT, "%zu bytes are no WriteRequest", msg.len);
    if (take_all(&x, msg, e))
        return e->code;
    x.m->tenant = str_bytes_of(o->tenant);
    x.m->map_version = o->map ? o->map->version : 0;
    x.m->received_ms = o->accept.now_ms;
    x.m->distributor = o->distributor;
    x.m->epoch = o->epoch;
    x.m->print = 0;
    *ret = (struct import_opened){ .m = x.m,
                                   .bytes = msg,
                                   .stacks = x.stacks,
                                   .count = { x.m->n_series, x.vectors, x.samples, 0 } };
    if (take_places(&x, ret, e))
        return e->code;
    ret->count.shard = ret->parts[0].shard;
    return 0;
}

int import_pack(const struct import_opened *m, size_t part, struct buf *out, struct err *e)
{
    Embertree__WriteRequest one = *m->m;

    CHECK(part < m->parts_len);
    one.shard = m->parts[part].shard;
    one.series = m->by_place + m->parts[part].from;
    one.n_series = m->parts[part].len;
    size_t n = embertree__write_request__get_packed_size(&one);
    char *to = buf_room(out, n);

    if (!to)
        return err_set(e, ERR_LIMIT,
                       "the message takes %zu bytes inside the cluster, at most %zu "
                       "(cluster.rpc_message_bytes_max)",
                       n, out->max);
    CHECK(embertree__write_request__pack(&one, (uint8_t *)(void *)to) == n);
    out->len += n;
    return 0;
}

const uint8_t *import_write_id(const struct import_opened *m, size_t part, size_t i)
{
    CHECK(part < m->parts_len && i < m->parts[part].len);
    return m->by_place[m->parts[part].from + i]->write_id.data;
}

int import_msg(struct str msg, const struct import_opts *o, struct arena *a, struct buf *out,
               struct import_count *ret, struct err *e)
{
    struct import_opened opened;

    if (import_open(msg, o, a, &opened, e) || import_pack(&opened, 0, out, e))
        return e->code;
    *ret = opened.count;
    return 0;
}

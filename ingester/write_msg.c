/* SPDX-License-Identifier: Apache-2.0
 *
 * write_msg: unpacks with protobuf-c into the request's arena and uses the unpacked columns in
 * place: no second copy of nodes and values.
 *
 * The distributor has checked all this before. It is checked again because what is stored wrong
 * stays wrong: two versions, a bug there or a broken message must not become bad rows here.
 */
#include "ingester/write_msg.h"

#include "common/base/size.h"
#include "common/model/ptype.h"
#include "ingester/unpack.h"
#include "proto/ingest.pb-c.h"

#define WRITE_ID_BYTES 16
#define SERIES_MAX     65536

size_t write_msg_arena_bytes(size_t payload_len)
{
    return 64 * KIB + 24 * payload_len;
}

static int check_vector(const Embertree__WriteVector *v, uint32_t nodes, struct err *e)
{
    if (v->n_node != v->n_value)
        return err_set(e, ERR_INPUT, "slot %" PRIu32 " has %zu nodes and %zu values", v->slot,
                       v->n_node, v->n_value);
    for (size_t i = 0; i < v->n_node; i++) {
        if (v->node[i] > nodes)
            return err_set(e, ERR_INPUT, "node %" PRIu32 " of %" PRIu32, v->node[i], nodes);
        if (i > 0 && v->node[i] <= v->node[i - 1])
            return err_set(e, ERR_INPUT, "node %" PRIu32 " after node %" PRIu32, v->node[i],
                           v->node[i - 1]);
        if (v->value[i] == 0)
            return err_set(e, ERR_INPUT, "node %" PRIu32 " has the value 0", v->node[i]);
    }
    return 0;
}

static int take_vectors(const Embertree__WriteSeries *in, uint32_t nodes, struct arena *a,
                        struct store_series *out, struct err *e)
{
    struct store_vector *vectors = ARENA_ARRAY(a, struct store_vector, in->n_vectors);

    if (!vectors)
        return err_set(e, ERR_LIMIT, "the write needs over %zu bytes", arena_limit(a));
    for (size_t i = 0; i < in->n_vectors; i++) {
        const Embertree__WriteVector *v = in->vectors[i];
        int code;

        if (i > 0 && v->slot <= in->vectors[i - 1]->slot)
            return err_set(e, ERR_INPUT, "slot %" PRIu32 " after slot %" PRIu32, v->slot,
                           in->vectors[i - 1]->slot);
        code = check_vector(v, nodes, e);
        if (code)
            return code;
        vectors[i] = (struct store_vector){ v->slot, v->node, v->value, v->n_node };
    }
    out->vectors = vectors;
    out->len = in->n_vectors;
    return 0;
}

/* What an exemplar says is checked where it is staged (common/store/exm.h); here its columns. */
static int take_exemplars(const Embertree__WriteSeries *in, struct arena *a,
                          struct store_series *out, struct err *e)
{
    struct store_exemplar *list = ARENA_ARRAY(a, struct store_exemplar, in->n_exemplars);

    if (!list)
        return err_set(e, ERR_LIMIT, "the write needs over %zu bytes", arena_limit(a));
    for (size_t i = 0; i < in->n_exemplars; i++) {
        const Embertree__WriteExemplar *x = in->exemplars[i];

        if (x->n_node != x->n_value)
            return err_set(e, ERR_INPUT, "exemplar %zu has %zu nodes and %zu values", i, x->n_node,
                           x->n_value);
        if (x->kind >= EXID_KINDS)
            return err_set(e, ERR_INPUT, "exemplar %zu is of the kind %" PRIu32, i, x->kind);
        list[i] = (struct store_exemplar){ .kind = (enum exid_kind)x->kind,
                                           .id = unpack_str(x->id),
                                           .duration_ms = x->duration_ms,
                                           .nodes = x->node,
                                           .values = x->value,
                                           .len = x->n_node };
    }
    out->exemplars = list;
    out->exemplars_len = in->n_exemplars;
    return 0;
}

static int take_labels(const Embertree__WriteSeries *in, struct arena *a, struct labels *out,
                       struct err *e)
{
    struct label *labels = ARENA_ARRAY(a, struct label, in->n_labels);

    if (!labels)
        return err_set(e, ERR_LIMIT, "the write needs over %zu bytes", arena_limit(a));
    for (size_t i = 0; i < in->n_labels; i++) {
        labels[i].name = unpack_str(in->labels[i]->name);
        labels[i].value = unpack_str(in->labels[i]->value);
        if (labels[i].name.len == 0)
            return err_set(e, ERR_INPUT, "label %zu has no name", i);
        if (i > 0 && str_cmp(labels[i - 1].name, labels[i].name) >= 0)
            return err_set(e, ERR_INPUT, "label %.*s after label %.*s", STR_ARG(labels[i].name),
                           STR_ARG(labels[i - 1].name));
    }
    *out = (struct labels){ labels, in->n_labels };
    return 0;
}

static int take_series(const Embertree__WriteSeries *in, uint32_t nodes, struct arena *a,
                       struct store_series *out, struct err *e)
{
    struct ptype ptype;
    int code;

    if (in->write_id.len != WRITE_ID_BYTES)
        return err_set(e, ERR_INPUT, "write id of %zu bytes, not %d", in->write_id.len,
                       WRITE_ID_BYTES);
    if (in->n_labels == 0)
        return err_set(e, ERR_INPUT, "no labels");
    if (in->n_vectors == 0)
        return err_set(e, ERR_INPUT, "no vectors");
    memcpy(out->wid, in->write_id.data, WRITE_ID_BYTES);
    out->gauge = in->gauge;
    out->profile_type = unpack_str(in->profile_type);
    code = ptype_parse(out->profile_type, &ptype, e);
    if (!code)
        code = take_labels(in, a, &out->labels, e);
    if (!code)
        code = take_vectors(in, nodes, a, out, e);
    if (!code)
        code = take_exemplars(in, a, out, e);
    return code;
}

/* Only the columns; what they refer to is checked where it is staged (dict_told_check). */
static int take_told(const Embertree__Told *in, struct write_msg *ret, struct err *e)
{
    if (!in || in->session.len != DICT_SESSION_BYTES)
        return err_set(e, ERR_INPUT, "no session of %d bytes", DICT_SESSION_BYTES);
    memcpy(ret->told.session, in->session.data, DICT_SESSION_BYTES);
    ret->told.from = (struct dict_counts){ in->strings, in->frames, in->nodes };
    ret->told.node = in->node;
    ret->told.nodes = in->n_node;
    ret->stacks = (struct stacks_view){ .nodes = in->n_node };
    ret->write.told = &ret->told;
    if (in->n_node >= UINT32_MAX)
        return err_set(e, ERR_INPUT, "%zu nodes", in->n_node);
    return in->more ? unpack_columns(in->more, &ret->told.more, e) : 0;
}

static int take_all(const Embertree__WriteRequest *in, bool told, struct arena *a,
                    struct write_msg *ret, struct err *e)
{
    struct store_series *series;
    int code;

    if (in->tenant.len == 0 || in->service.len == 0)
        return err_set(e, ERR_INPUT, "no %s", in->tenant.len ? "service" : "tenant");
    if (in->n_series == 0 || in->n_series > SERIES_MAX)
        return err_set(e, ERR_INPUT, "%zu series, 1 to %d are allowed", in->n_series, SERIES_MAX);
    *ret = (struct write_msg){ .shard = in->shard, .map_version = in->map_version };
    code = told ? take_told(in->told, ret, e) : unpack_stacks(in->stacks, &ret->stacks, e);
    if (code)
        return code;
    series = ARENA_ARRAY(a, struct store_series, in->n_series);
    if (!series)
        return err_set(e, ERR_LIMIT, "the write needs over %zu bytes", arena_limit(a));
    for (size_t i = 0; i < in->n_series; i++) {
        code = take_series(in->series[i], u32_from(ret->stacks.nodes), a, &series[i], e);
        if (code)
            return err_wrap(e, "series %zu", i);
    }
    ret->write.tenant = unpack_str(in->tenant);
    ret->write.service = unpack_str(in->service);
    ret->write.stacks = &ret->stacks;
    ret->write.series = series;
    ret->write.len = in->n_series;
    return 0;
}

int write_msg_decode(struct str payload, bool told, struct arena *a, struct write_msg *ret,
                     struct err *e)
{
    ProtobufCAllocator allocator = unpack_allocator(a);
    const Embertree__WriteRequest *in = embertree__write_request__unpack(
        &allocator, payload.len, (const uint8_t *)(const void *)payload.ptr);
    int code;

    if (!in)
        return unpack_failed("WriteRequest", payload, a, e);
    code = take_all(in, told, a, ret, e);
    return code ? err_wrap(e, "WriteRequest") : 0;
}

void write_reply_pack(const struct store_result *r, struct buf *out)
{
    Embertree__WriteReply reply = EMBERTREE__WRITE_REPLY__INIT;
    char *p;

    reply.stored = r->stored;
    reply.duplicates = r->duplicates;
    reply.exemplars = r->exemplars;
    reply.exemplars_left_out = r->exemplars_left_out;
    reply.learnt = r->learnt;
    p = buf_room(out, embertree__write_reply__get_packed_size(&reply));
    if (p)
        out->len += embertree__write_reply__pack(&reply, (uint8_t *)(void *)p);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * pack: straight into the message's bytes, in two looks: how long each part is, since its length
 * stands before it, then the parts. Columns of the push are copied once.
 *
 *   WriteRequest ─> WriteSeries ─> LabelPair, WriteVector, WriteExemplar
 *        └─> Stacks, or Told ─> Stacks
 *
 * The bytes are those that protobuf-c makes of the same message (test_pack.c says so): fields in
 * order of their numbers, which are all below 16; what is 0 or empty is left out, but not a part.
 * Scratch comes from the request's arena and is rewound afterwards.
 */
#include "distributor/send/pack.h"

#include <stdlib.h>

#include "common/base/rd.h"
#include "common/base/wr.h"
#include "common/sys/pool.h"
#include "distributor/formats/pprof/symbol_session.h"

#define PIECE_BYTES ((size_t)256 * KIB) /* copied between two turns of other tenants */

enum { WIRE_VARINT = 0, WIRE_BYTES = 2 };

/* Numbers of fields: proto/ingest.proto, proto/common.proto. */
enum { REQ_TENANT = 1, REQ_SERVICE, REQ_SHARD, REQ_STACKS, REQ_SERIES, REQ_RECEIVED, REQ_TOLD };
enum { REQ_MAP_VERSION = 8, REQ_DISTRIBUTOR, REQ_EPOCH, REQ_PRINT };
enum { TOLD_SESSION = 1, TOLD_STRINGS, TOLD_FRAMES, TOLD_NODES, TOLD_MORE, TOLD_NODE };
enum { SERIES_LABELS = 1, SERIES_TYPE, SERIES_GAUGE, SERIES_ID, SERIES_VECTORS, SERIES_EXEMPLARS };
enum { SERIES_SPREAD = 7 };
enum { LABEL_NAME = 1, LABEL_VALUE };
enum { VECTOR_SLOT = 1, VECTOR_NODE, VECTOR_VALUE };
enum { EXEMPLAR_KIND = 1, EXEMPLAR_ID, EXEMPLAR_DURATION, EXEMPLAR_NODE, EXEMPLAR_VALUE };
enum { STACKS_DATA = 1, STACKS_LEN, STACKS_FUNC, STACKS_FILE, STACKS_LINE, STACKS_MODULE };
enum { STACKS_ADDR = 7, STACKS_PARENT, STACKS_FRAME };
enum { REPLY_STORED = 1, REPLY_DUPLICATES = 2, REPLY_LEARNT = 5 };

/* ---- fields: how long, and their bytes ------------------------------------------------------- */

static size_t uint_len(uint64_t v)
{
    return v ? 1 + varint_len(v) : 0;
}

static size_t part_len(size_t len)
{
    return 1 + varint_len(len) + len;
}

static size_t bytes_len(size_t len)
{
    return len ? part_len(len) : 0;
}

static uint8_t *put_varint(uint8_t *at, uint64_t v)
{
    if (LIKELY(v < 0x80)) {
        *at = (uint8_t)v;
        return at + 1;
    }
    return at + varint_put(at, v);
}

static uint8_t *put_uint(uint8_t *at, unsigned number, uint64_t v)
{
    if (!v)
        return at;
    *at = (uint8_t)(number << 3 | WIRE_VARINT);
    return put_varint(at + 1, v);
}

/* What stands before a part of that length. */
static uint8_t *put_part(uint8_t *at, unsigned number, size_t len)
{
    *at = (uint8_t)(number << 3 | WIRE_BYTES);
    return put_varint(at + 1, len);
}

static uint8_t *put_bytes(uint8_t *at, unsigned number, const void *p, size_t len)
{
    if (!len)
        return at;
    at = put_part(at, number, len);
    const uint8_t *from = p;
    for (size_t n; len > 0; at += n, from += n, len -= n) {
        n = MIN(len, PIECE_BYTES);
        memcpy(at, from, n);
        if (n == PIECE_BYTES)
            pool_slice();
    }
    return at;
}

static uint8_t *put_str(uint8_t *at, unsigned number, struct str s)
{
    return put_bytes(at, number, s.ptr, s.len);
}

static uint8_t *put_u32s(uint8_t *at, unsigned number, const uint32_t *p, size_t n)
{
    return put_bytes(at, number, p, n * sizeof(*p));
}

static uint8_t *put_u64s(uint8_t *at, unsigned number, const uint64_t *p, size_t n)
{
    return put_bytes(at, number, p, n * sizeof(*p));
}

/* ---- stacks ---------------------------------------------------------------------------------- */

static size_t stacks_len(const struct stacks_view *v)
{
    return bytes_len(v->string_data.len) + bytes_len(4 * v->strings) +
           4 * bytes_len(4 * v->frames) + bytes_len(8 * v->frames) + 2 * bytes_len(4 * v->nodes);
}

static uint8_t *put_stacks(uint8_t *at, const struct stacks_view *v)
{
    at = put_str(at, STACKS_DATA, v->string_data);
    at = put_u32s(at, STACKS_LEN, v->string_len, v->strings);
    at = put_u32s(at, STACKS_FUNC, v->frame_func, v->frames);
    at = put_u32s(at, STACKS_FILE, v->frame_file, v->frames);
    at = put_u32s(at, STACKS_LINE, v->frame_line, v->frames);
    at = put_u32s(at, STACKS_MODULE, v->frame_module, v->frames);
    at = put_u64s(at, STACKS_ADDR, v->frame_addr, v->frames);
    at = put_u32s(at, STACKS_PARENT, v->node_parent, v->nodes);
    return put_u32s(at, STACKS_FRAME, v->node_frame, v->nodes);
}

/* Stacks by number, and the part of the symbol session that the shard does not have yet. */
struct told {
    struct symbol_session_counts from;
    struct stacks_view more; /* if any */
    bool any;
    size_t more_len, len;
};

static void plan_more(const struct push *p, struct told *t)
{
    const struct symbol_session *k = p->known;
    const struct symbol_session_counts *upto = &p->known_upto;
    struct stacks_view v = stacks_view(&k->stacks);

    t->from.strings = MIN(t->from.strings, upto->strings);
    t->from.frames = MIN(t->from.frames, upto->frames);
    t->from.nodes = MIN(t->from.nodes, upto->nodes);
    uint32_t s = t->from.strings, f = t->from.frames, n = t->from.nodes - 1;
    t->any = true;
    t->more = (struct stacks_view){ .string_len = v.string_len + s,
                                    .strings = upto->strings - s,
                                    .frame_func = v.frame_func + f,
                                    .frame_file = v.frame_file + f,
                                    .frame_line = v.frame_line + f,
                                    .frame_module = v.frame_module + f,
                                    .frame_addr = v.frame_addr + f,
                                    .frames = upto->frames - f,
                                    .node_parent = v.node_parent + n,
                                    .node_frame = v.node_frame + n,
                                    .nodes = upto->nodes - 1 - n };
    if (s < upto->strings)
        t->more.string_data =
            str_sub(v.string_data, k->stacks.string_off.ptr[s], v.string_data.len);
    t->more_len = stacks_len(&t->more);
}

static void plan_told(const struct push *p, struct told *t)
{
    const struct symbol_session_counts *upto = &p->known_upto;
    struct symbol_session *k = p->known;

    mutex_lock(&k->lock);
    t->from = k->told;
    mutex_unlock(&k->lock);
    if (t->from.strings < upto->strings || t->from.frames < upto->frames ||
        t->from.nodes < upto->nodes)
        plan_more(p, t);
    t->len = bytes_len(sizeof(k->session)) + uint_len(t->from.strings) + uint_len(t->from.frames) +
             uint_len(t->from.nodes) + (t->any ? part_len(t->more_len) : 0) +
             bytes_len(4 * p->known_len);
}

static uint8_t *put_told(uint8_t *at, const struct push *p, const struct told *t)
{
    at = put_bytes(at, TOLD_SESSION, p->known->session, sizeof(p->known->session));
    at = put_uint(at, TOLD_STRINGS, t->from.strings);
    at = put_uint(at, TOLD_FRAMES, t->from.frames);
    at = put_uint(at, TOLD_NODES, t->from.nodes);
    if (t->any)
        at = put_stacks(put_part(at, TOLD_MORE, t->more_len), &t->more);
    return put_u32s(at, TOLD_NODE, p->known_nodes, p->known_len);
}

/* ---- series ---------------------------------------------------------------------------------- */

struct series_plan {
    const struct push_series *s;
    struct piece *pieces;
    size_t pieces_len;
    const struct push_exemplar **exemplars; /* in their order; NULL: they stand in it */
    uint8_t id[WRITE_ID_BYTES];
    uint32_t spread;
    size_t len;
};

static size_t label_len(const struct label *l)
{
    return bytes_len(l->name.len) + bytes_len(l->value.len);
}

static size_t vector_len(const struct piece *v)
{
    return uint_len(v->slot) + bytes_len(4 * v->len) + bytes_len(8 * v->len);
}

static size_t exemplar_len(const struct push_exemplar *x, uint32_t duration_ms)
{
    return uint_len((uint32_t)x->kind) + bytes_len(x->id.len) + uint_len(duration_ms) +
           bytes_len(4 * x->len) + bytes_len(8 * x->len);
}

static int by_id(const void *a, const void *b)
{
    const struct push_exemplar *x = *(const struct push_exemplar *const *)a;
    const struct push_exemplar *y = *(const struct push_exemplar *const *)b;

    if (x->kind != y->kind)
        return x->kind < y->kind ? -1 : 1;
    return str_cmp(x->id, y->id);
}

/* As pprof has them they are in order. */
static bool plan_exemplars(const struct push_series *s, struct arena *a, struct series_plan *ret)
{
    bool sorted = true;

    for (size_t i = 1; sorted && i < s->exemplars_len; i++) {
        const struct push_exemplar *x = &s->exemplars[i - 1], *y = &s->exemplars[i];
        sorted = by_id(&x, &y) < 0;
    }
    if (sorted)
        return true;
    ret->exemplars = arena_alloc(a, s->exemplars_len * sizeof(struct push_exemplar *));
    if (!ret->exemplars)
        return false;
    for (size_t i = 0; i < s->exemplars_len; i++)
        ret->exemplars[i] = &s->exemplars[i];
    qsort(ret->exemplars, s->exemplars_len, sizeof(struct push_exemplar *), by_id);
    return true;
}

static bool plan_series(const struct packing *in, const struct push_series *s,
                        struct series_plan *ret)
{
    struct arena *a = in->push->arena;

    *ret = (struct series_plan){ .s = s };
    write_id(in->secret, in->write_base, s, ret->id);
    if (in->acks)
        acks_add(in->acks, ret->id);
    if (!split_series(s, in->leaves, a, &ret->pieces, &ret->pieces_len) ||
        !plan_exemplars(s, a, ret))
        return false;
    for (size_t i = 0; i < s->labels.len; i++)
        ret->len += part_len(label_len(&s->labels.ptr[i]));
    ret->len += bytes_len(s->profile_type.len) + uint_len(s->gauge) + bytes_len(WRITE_ID_BYTES);
    for (size_t i = 0; i < ret->pieces_len; i++)
        ret->len += part_len(vector_len(&ret->pieces[i]));
    for (size_t i = 0; i < s->exemplars_len; i++)
        ret->len += part_len(exemplar_len(&s->exemplars[i], in->leaves->duration_ms));
    ret->spread = s->gauge ? 0 : in->leaves->spread;
    ret->len += uint_len(ret->spread);
    return true;
}

static uint8_t *put_exemplar(uint8_t *at, const struct push_exemplar *x, uint32_t duration_ms)
{
    at = put_part(at, SERIES_EXEMPLARS, exemplar_len(x, duration_ms));
    at = put_uint(at, EXEMPLAR_KIND, (uint32_t)x->kind);
    at = put_str(at, EXEMPLAR_ID, x->id);
    at = put_uint(at, EXEMPLAR_DURATION, duration_ms);
    at = put_u32s(at, EXEMPLAR_NODE, x->nodes, x->len);
    return put_u64s(at, EXEMPLAR_VALUE, x->values, x->len);
}

static uint8_t *put_series(uint8_t *at, const struct series_plan *p, uint32_t duration_ms)
{
    const struct push_series *s = p->s;

    at = put_part(at, REQ_SERIES, p->len);
    for (size_t i = 0; i < s->labels.len; i++) {
        const struct label *l = &s->labels.ptr[i];
        at = put_part(at, SERIES_LABELS, label_len(l));
        at = put_str(at, LABEL_NAME, l->name);
        at = put_str(at, LABEL_VALUE, l->value);
    }
    at = put_str(at, SERIES_TYPE, s->profile_type);
    at = put_uint(at, SERIES_GAUGE, s->gauge);
    at = put_bytes(at, SERIES_ID, p->id, WRITE_ID_BYTES);
    for (size_t i = 0; i < p->pieces_len; i++) {
        const struct piece *v = &p->pieces[i];
        at = put_part(at, SERIES_VECTORS, vector_len(v));
        at = put_uint(at, VECTOR_SLOT, v->slot);
        at = put_u32s(at, VECTOR_NODE, v->nodes, v->len);
        at = put_u64s(at, VECTOR_VALUE, v->values, v->len);
    }
    for (size_t i = 0; i < s->exemplars_len; i++)
        at = put_exemplar(at, p->exemplars ? p->exemplars[i] : &s->exemplars[i], duration_ms);
    return put_uint(at, SERIES_SPREAD, p->spread);
}

/* ---- the whole ------------------------------------------------------------------------------- */

struct plan {
    struct series_plan *series;
    struct stacks_view stacks; /* or told */
    struct told told;
    size_t stacks_len, len;
};

static bool plan_all(const struct packing *in, struct plan *ret)
{
    const struct push *p = in->push;

    ret->series = arena_alloc(p->arena, p->series_len * sizeof(*ret->series));
    if (!ret->series)
        return false;
    if (p->known) {
        plan_told(p, &ret->told);
        ret->len = part_len(ret->told.len);
    } else {
        ret->stacks = stacks_view(&p->stacks);
        ret->stacks_len = stacks_len(&ret->stacks);
        ret->len = part_len(ret->stacks_len);
    }
    ret->len += bytes_len(in->tenant.len) + bytes_len(p->service.len) + uint_len(in->shard) +
                uint_len((uint64_t)in->received_ms) + uint_len(in->map_version) +
                uint_len(in->distributor) + uint_len(in->epoch) + uint_len(in->write_base->print);
    for (size_t i = 0; i < p->series_len; i++) {
        if (!plan_series(in, &p->series[i], &ret->series[i]))
            return false;
        ret->len += part_len(ret->series[i].len);
    }
    return true;
}

static uint8_t *put_all(uint8_t *at, const struct packing *in, const struct plan *plan)
{
    const struct push *p = in->push;

    at = put_str(at, REQ_TENANT, in->tenant);
    at = put_str(at, REQ_SERVICE, p->service);
    at = put_uint(at, REQ_SHARD, in->shard);
    if (!p->known)
        at = put_stacks(put_part(at, REQ_STACKS, plan->stacks_len), &plan->stacks);
    for (size_t i = 0; i < p->series_len; i++)
        at = put_series(at, &plan->series[i], in->leaves->duration_ms);
    at = put_uint(at, REQ_RECEIVED, (uint64_t)in->received_ms);
    if (p->known)
        at = put_told(put_part(at, REQ_TOLD, plan->told.len), p, &plan->told);
    at = put_uint(at, REQ_MAP_VERSION, in->map_version);
    at = put_uint(at, REQ_DISTRIBUTOR, in->distributor);
    at = put_uint(at, REQ_EPOCH, in->epoch);
    return put_uint(at, REQ_PRINT, in->write_base->print);
}

static int pack_message(const struct packing *in, const struct plan *plan, struct buf *out,
                        struct err *e)
{
    char *to = buf_room(out, plan->len);

    if (!to)
        return err_set(e, ERR_LIMIT,
                       "the push takes %zu bytes inside the cluster, at most %zu "
                       "(cluster.rpc_message_bytes_max)",
                       plan->len, out->max);
    uint8_t *at = (uint8_t *)(void *)to;
    CHECK(put_all(at, in, plan) == at + plan->len);
    out->len += plan->len;
    return 0;
}

int pack_write(const struct packing *in, struct buf *out, struct err *e)
{
    struct arena *a = in->push->arena;
    struct arena_mark mark = arena_mark(a);
    struct plan plan = { 0 };
    int rc;

    if (in->acks)
        *in->acks = (struct acks){ 0 };
    rc = plan_all(in, &plan) ? pack_message(in, &plan, out, e) : push_full(in->push, e);
    arena_rewind(a, mark);
    return rc;
}

/* ---- the reply ------------------------------------------------------------------------------- */

int pack_reply_read(struct str bytes, struct write_reply *ret, struct err *e)
{
    struct rd r = rd_of(bytes);
    struct pb_field f;
    int more;

    *ret = (struct write_reply){ 0 };
    while ((more = rd_pb(&r, &f)) > 0) {
        bool ours =
            f.number == REPLY_STORED || f.number == REPLY_DUPLICATES || f.number == REPLY_LEARNT;
        if (ours && (f.wire != 0 || f.u64 > UINT32_MAX)) {
            more = -1;
            break;
        }
        if (f.number == REPLY_STORED)
            ret->stored = (uint32_t)f.u64;
        else if (f.number == REPLY_DUPLICATES)
            ret->duplicates = (uint32_t)f.u64;
        else if (f.number == REPLY_LEARNT)
            ret->learnt = f.u64 != 0;
    }
    return more ? err_set(e, ERR_INTERNAL, "the ingester's answer cannot be decoded") : 0;
}

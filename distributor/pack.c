/* SPDX-License-Identifier: Apache-2.0
 *
 * pack: the message structs of protobuf-c point straight at the columns of the push, so that
 * packing
 * is one copy of each column. Structs come from the request's arena and are rewound afterwards.
 */
#include "distributor/pack.h"

#include <stdlib.h>

#include "distributor/formats/known.h"
#include "proto/ingest.pb-c.h"

/* protobuf-c has no const: packing only reads. */
static ProtobufCBinaryData bytes_of(struct str s)
{
    return (ProtobufCBinaryData){ s.len, (uint8_t *)(uintptr_t)s.ptr };
}

static uint32_t *u32s(const uint32_t *p)
{
    return (uint32_t *)(uintptr_t)p;
}

static uint64_t *u64s(const uint64_t *p)
{
    return (uint64_t *)(uintptr_t)p;
}

static void fill_stacks(const struct stacks *s, Embertree__Stacks *m)
{
    struct stacks_view v = stacks_view(s);

    embertree__stacks__init(m);
    m->string_data = bytes_of(v.string_data);
    m->n_string_len = v.strings;
    m->string_len = u32s(v.string_len);
    m->n_frame_func = m->n_frame_file = m->n_frame_line = v.frames;
    m->n_frame_module = m->n_frame_addr = v.frames;
    m->frame_func = u32s(v.frame_func);
    m->frame_file = u32s(v.frame_file);
    m->frame_line = u32s(v.frame_line);
    m->frame_module = u32s(v.frame_module);
    m->frame_addr = u64s(v.frame_addr);
    m->n_node_parent = m->n_node_frame = v.nodes;
    m->node_parent = u32s(v.node_parent);
    m->node_frame = u32s(v.node_frame);
}

/* What was not told yet, of what is known now. */
static void fill_told(const struct push *p, const struct known_counts *told, Embertree__Told *m,
                      Embertree__Stacks *more)
{
    const struct known *k = p->known;
    struct stacks_view v = stacks_view(&k->stacks);
    const struct known_counts *upto = &p->known_upto;
    uint32_t f = told->frames, n = told->nodes - 1;

    embertree__told__init(m);
    m->session = bytes_of(str_n(k->session, sizeof(k->session)));
    m->strings = told->strings;
    m->frames = told->frames;
    m->nodes = told->nodes;
    m->node = u32s(p->known_nodes);
    m->n_node = p->known_len;
    if (told->strings >= upto->strings && told->frames >= upto->frames &&
        told->nodes >= upto->nodes)
        return;
    embertree__stacks__init(more);
    m->more = more;
    m->strings = MIN(told->strings, upto->strings);
    m->frames = f = MIN(f, upto->frames);
    m->nodes = MIN(told->nodes, upto->nodes);
    n = m->nodes - 1;
    if (m->strings < upto->strings)
        more->string_data = bytes_of(
            str_sub(v.string_data, k->stacks.string_off.ptr[m->strings], v.string_data.len));
    more->n_string_len = upto->strings - m->strings;
    more->string_len = u32s(v.string_len + m->strings);
    more->n_frame_func = more->n_frame_file = more->n_frame_line = upto->frames - f;
    more->n_frame_module = more->n_frame_addr = upto->frames - f;
    more->frame_func = u32s(v.frame_func + f);
    more->frame_file = u32s(v.frame_file + f);
    more->frame_line = u32s(v.frame_line + f);
    more->frame_module = u32s(v.frame_module + f);
    more->frame_addr = u64s(v.frame_addr + f);
    more->n_node_parent = more->n_node_frame = upto->nodes - 1 - n;
    more->node_parent = u32s(v.node_parent + n);
    more->node_frame = u32s(v.node_frame + n);
}

static bool fill_labels(const struct labels *l, struct arena *a, Embertree__WriteSeries *m)
{
    Embertree__LabelPair *pairs = ARENA_ARRAY(a, Embertree__LabelPair, l->len);

    m->labels = ARENA_ARRAY(a, Embertree__LabelPair *, l->len);
    if (!pairs || !m->labels)
        return false;
    for (size_t i = 0; i < l->len; i++) {
        embertree__label_pair__init(&pairs[i]);
        pairs[i].name = bytes_of(l->ptr[i].name);
        pairs[i].value = bytes_of(l->ptr[i].value);
        m->labels[i] = &pairs[i];
    }
    m->n_labels = l->len;
    return true;
}

static bool fill_vectors(const struct push_series *s, const struct leaves *leaves, struct arena *a,
                         Embertree__WriteSeries *m)
{
    struct piece *pieces;
    size_t n;

    if (!split_series(s, leaves, a, &pieces, &n))
        return false;
    Embertree__WriteVector *vectors = ARENA_ARRAY(a, Embertree__WriteVector, n);
    m->vectors = ARENA_ARRAY(a, Embertree__WriteVector *, n);
    if (!vectors || !m->vectors)
        return false;
    for (size_t i = 0; i < n; i++) {
        embertree__write_vector__init(&vectors[i]);
        vectors[i].slot = pieces[i].slot;
        vectors[i].n_node = vectors[i].n_value = pieces[i].len;
        vectors[i].node = u32s(pieces[i].nodes);
        vectors[i].value = u64s(pieces[i].values);
        m->vectors[i] = &vectors[i];
    }
    m->n_vectors = n;
    return true;
}

static int by_id(const void *a, const void *b)
{
    const Embertree__WriteExemplar *x = *(Embertree__WriteExemplar *const *)a;
    const Embertree__WriteExemplar *y = *(Embertree__WriteExemplar *const *)b;

    if (x->kind != y->kind)
        return x->kind < y->kind ? -1 : 1;
    return str_cmp(str_n(x->id.data, x->id.len), str_n(y->id.data, y->id.len));
}

static bool fill_exemplars(const struct push_series *s, uint32_t duration_ms, struct arena *a,
                           Embertree__WriteSeries *m)
{
    Embertree__WriteExemplar *all = ARENA_ARRAY(a, Embertree__WriteExemplar, s->exemplars_len);

    m->exemplars = ARENA_ARRAY(a, Embertree__WriteExemplar *, s->exemplars_len);
    if (!all || !m->exemplars)
        return false;
    for (size_t i = 0; i < s->exemplars_len; i++) {
        const struct push_exemplar *x = &s->exemplars[i];
        embertree__write_exemplar__init(&all[i]);
        all[i].kind = (uint32_t)x->kind;
        all[i].id = bytes_of(x->id);
        all[i].duration_ms = duration_ms;
        all[i].n_node = all[i].n_value = x->len;
        all[i].node = u32s(x->nodes);
        all[i].value = u64s(x->values);
        m->exemplars[i] = &all[i];
    }
    m->n_exemplars = s->exemplars_len;
    bool sorted = true; /* as pprof has them */
    for (size_t i = 1; sorted && i < m->n_exemplars; i++)
        sorted = by_id(&m->exemplars[i - 1], &m->exemplars[i]) < 0;
    if (!sorted)
        qsort(m->exemplars, m->n_exemplars, sizeof(*m->exemplars), by_id);
    return true;
}

static bool fill_series(const struct packing *in, struct arena *a, Embertree__WriteRequest *m)
{
    const struct push *p = in->push;
    Embertree__WriteSeries *series = ARENA_ARRAY(a, Embertree__WriteSeries, p->series_len);
    uint8_t *ids = arena_alloc(a, p->series_len * WRITE_ID_BYTES);

    m->series = ARENA_ARRAY(a, Embertree__WriteSeries *, p->series_len);
    if (!series || !ids || !m->series)
        return false;
    for (size_t i = 0; i < p->series_len; i++) {
        uint8_t *id = ids + i * WRITE_ID_BYTES;
        Embertree__WriteSeries *s = &series[i];
        embertree__write_series__init(s);
        write_id(in->secret, in->write_base, &p->series[i], id);
        s->write_id = bytes_of(str_n(id, WRITE_ID_BYTES));
        if (in->acks)
            acks_add(in->acks, id);
        s->profile_type = bytes_of(p->series[i].profile_type);
        s->gauge = p->series[i].gauge;
        if (!fill_labels(&p->series[i].labels, a, s) ||
            !fill_vectors(&p->series[i], in->leaves, a, s) ||
            !fill_exemplars(&p->series[i], in->leaves->duration_ms, a, s))
            return false;
        m->series[i] = s;
    }
    m->n_series = p->series_len;
    return true;
}

static int pack_message(const Embertree__WriteRequest *m, struct buf *out, struct err *e)
{
    size_t n = embertree__write_request__get_packed_size(m);
    char *to = buf_room(out, n);

    if (!to)
        return err_set(e, ERR_LIMIT,
                       "the push takes %zu bytes inside the cluster, at most %zu "
                       "(cluster.rpc_message_bytes_max)",
                       n, out->max);
    CHECK(embertree__write_request__pack(m, (uint8_t *)(void *)to) == n);
    out->len += n;
    return 0;
}

int pack_write(const struct packing *in, struct buf *out, struct err *e)
{
    struct arena *a = in->push->arena;
    struct arena_mark mark = arena_mark(a);
    Embertree__WriteRequest m = EMBERTREE__WRITE_REQUEST__INIT;
    Embertree__Stacks stacks;
    Embertree__Told told;
    int rc;

    m.tenant = bytes_of(in->tenant);
    m.service = bytes_of(in->push->service);
    m.shard = in->shard;
    m.received_ms = in->received_ms;
    m.map_version = in->map_version;
    m.distributor = in->distributor;
    m.epoch = in->epoch;
    if (in->acks)
        *in->acks = (struct acks){ 0 };
    if (in->push->known) {
        struct known *k = in->push->known;
        mutex_lock(&k->lock);
        struct known_counts before = k->told;
        mutex_unlock(&k->lock);
        fill_told(in->push, &before, &told, &stacks);
        m.told = &told;
    } else {
        m.stacks = &stacks;
        fill_stacks(&in->push->stacks, &stacks);
    }
    rc = fill_series(in, a, &m) ? pack_message(&m, out, e) : push_full(in->push, e);
    arena_rewind(a, mark);
    return rc;
}

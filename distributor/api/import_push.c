/* SPDX-License-Identifier: Apache-2.0
 *
 * import_push: messages are many slots of a service, pushes have one; so a message is walked slot
 * by slot, each with the nodes it needs.
 *
 *   series 0   slot 10  slot 12           slot 20
 *   series 1            slot 12  slot 14             ─> pushes of slots 10, 12, 14, 20
 *
 * Slots come in order, so every series has a cursor, which only moves on. Of the stacks those
 * nodes are interned that have values here, and what stands above them: they are marked from below,
 * then interned in order of their numbers, since a parent's is smaller.
 *
 * The id of a push is made of the write ids of the series in it (import_msg.c: the sender's own, or
 * from the bytes of the message) and its slot: the same message again makes the same pushes.
 * Exemplars say nothing of slots: they stay with a series that has only one, else they are left out
 * and counted.
 */
#include "distributor/api/import_push.h"

#include <stdlib.h>

#include "common/base/hash.h"
#include "common/model/slot.h"

#define ID_SEED UINT64_C(0x696d706f7274)

struct sample {
    uint32_t node;
    uint64_t value;
};
struct import_pushes {
    const struct import_opened *m;
    struct arena *a;
    size_t share; /* bytes of the message a push counts for */
    uint32_t *slots;
    size_t slots_len, at; /* at: of the next push */
    size_t *cursors;      /* by series */
    uint32_t *string_at;  /* where each string begins */
    /* Of the push at work. */
    uint32_t *map;    /* old node to new, where marked */
    uint32_t *marked; /* old nodes that are needed */
    size_t marked_len;
    uint8_t *mark;
};

static int by_u32(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

static int by_node(const void *a, const void *b)
{
    return by_u32(&((const struct sample *)a)->node, &((const struct sample *)b)->node);
}

/* ---- the message ---------------------------------------------------------------------------- */

static void find_slots(struct import_pushes *p)
{
    const Embertree__WriteRequest *m = p->m->m;
    size_t n = 0, kept = 0;

    for (size_t i = 0; i < m->n_series; i++)
        for (size_t k = 0; k < m->series[i]->n_vectors; k++)
            p->slots[n++] = m->series[i]->vectors[k]->slot;
    qsort(p->slots, n, sizeof(*p->slots), by_u32);
    for (size_t i = 0; i < n; i++)
        if (!kept || p->slots[kept - 1] != p->slots[i])
            p->slots[kept++] = p->slots[i];
    p->slots_len = kept;
}

int import_pushes_new(const struct import_opened *m, struct arena *a, struct import_pushes **ret,
                      struct err *e)
{
    struct import_pushes *p = ARENA_NEW(a, struct import_pushes);
    size_t vectors = 0, nodes = m->stacks.nodes + 1;

    for (size_t i = 0; i < m->m->n_series; i++)
        vectors += m->m->series[i]->n_vectors;
    if (p) {
        *p = (struct import_pushes){ .m = m, .a = a };
        p->slots = arena_alloc(a, (vectors + 1) * sizeof(*p->slots));
        p->cursors = ARENA_ARRAY(a, size_t, m->m->n_series + 1);
        p->string_at = arena_alloc(a, (m->stacks.strings + 1) * sizeof(*p->string_at));
        p->map = arena_alloc(a, nodes * sizeof(*p->map));
        p->marked = arena_alloc(a, nodes * sizeof(*p->marked));
        p->mark = ARENA_ARRAY(a, uint8_t, nodes);
    }
    if (!p || !p->slots || !p->cursors || !p->string_at || !p->map || !p->marked || !p->mark)
        return err_set(e, ERR_LIMIT, "the message needs over %zu bytes to decode", arena_limit(a));
    for (size_t i = 0, at = 0; i < m->stacks.strings; at += m->stacks.string_len[i++])
        p->string_at[i] = (uint32_t)at;
    find_slots(p);
    p->share = m->bytes.len / MAX(p->slots_len, (size_t)1);
    *ret = p;
    return 0;
}

size_t import_pushes_len(const struct import_pushes *p)
{
    return p->slots_len;
}

/* ---- one push ------------------------------------------------------------------------------- */

static const Embertree__WriteVector *vector_at(const struct import_pushes *p, size_t series,
                                               uint32_t slot)
{
    const Embertree__WriteSeries *s = p->m->m->series[series];
    size_t at = p->cursors[series];

    return at < s->n_vectors && s->vectors[at]->slot == slot ? s->vectors[at] : NULL;
}

static void mark_vector(struct import_pushes *p, const Embertree__WriteVector *v)
{
    for (size_t i = 0; i < v->n_node; i++) {
        for (uint32_t n = v->node[i]; n && !p->mark[n]; n = p->m->stacks.node_parent[n - 1]) {
            p->mark[n] = 1;
            p->marked[p->marked_len++] = n;
        }
    }
}

static uint32_t intern_string(const struct import_pushes *p, struct stacks *to, uint32_t id)
{
    const struct stacks_view *v = &p->m->stacks;

    return stacks_string(
        to, str_sub(v->string_data, p->string_at[id], p->string_at[id] + v->string_len[id]));
}

static bool intern_node(struct import_pushes *p, struct stacks *to, uint32_t n)
{
    const struct stacks_view *v = &p->m->stacks;
    uint32_t f = v->node_frame[n - 1];
    const struct frame frame = { .func = intern_string(p, to, v->frame_func[f]),
                                 .file = intern_string(p, to, v->frame_file[f]),
                                 .module = intern_string(p, to, v->frame_module[f]),
                                 .line = v->frame_line[f],
                                 .addr = v->frame_addr[f] };

    if (frame.func == STACKS_FULL || frame.file == STACKS_FULL || frame.module == STACKS_FULL)
        return false;
    uint32_t id = stacks_frame(to, &frame);
    if (id == STACKS_FULL)
        return false;
    p->map[n] = stacks_node(to, p->map[v->node_parent[n - 1]], id);
    return p->map[n] != STACKS_FULL;
}

/* The nodes of this slot into the push. */
static bool take_nodes(struct import_pushes *p, uint32_t slot, struct stacks *to)
{
    bool ok = true;

    p->marked_len = 0;
    p->map[0] = 0;
    for (size_t i = 0; i < p->m->m->n_series; i++) {
        const Embertree__WriteVector *v = vector_at(p, i, slot);
        if (v)
            mark_vector(p, v);
    }
    qsort(p->marked, p->marked_len, sizeof(*p->marked), by_u32);
    for (size_t i = 0; i < p->marked_len; i++) {
        ok = ok && intern_node(p, to, p->marked[i]);
        p->mark[p->marked[i]] = 0;
    }
    return ok;
}

/* Nodes that are one stack here may have been several in the message: they are added up. */
static bool fill_values(const struct import_pushes *p, const Embertree__WriteVector *v,
                        struct push *push, struct push_series *ret)
{
    struct sample *all = arena_alloc(push->arena, (v->n_node + 1) * sizeof(*all));
    uint32_t *nodes = arena_alloc(push->arena, (v->n_node + 1) * sizeof(*nodes));
    uint64_t *values = arena_alloc(push->arena, (v->n_node + 1) * sizeof(*values));
    size_t n = 0;

    if (!all || !nodes || !values)
        return false;
    for (size_t i = 0; i < v->n_node; i++)
        all[i] = (struct sample){ p->map[v->node[i]], v->value[i] };
    qsort(all, v->n_node, sizeof(*all), by_node);
    for (size_t i = 0; i < v->n_node; i++) {
        if (n && nodes[n - 1] == all[i].node) {
            values[n - 1] = push_sum(push, values[n - 1], all[i].value);
            continue;
        }
        nodes[n] = all[i].node;
        values[n++] = all[i].value;
    }
    *ret = (struct push_series){ .nodes = nodes, .values = values, .len = n, .unit = 1 };
    return true;
}

static struct str bytes_str(ProtobufCBinaryData b)
{
    return str_n(b.data, b.len);
}

/* Is it one of the series that was just added, as decoders make them? Takes it off *left, then. */
static bool exemplar_fits(const Embertree__WriteSeries *s, size_t i, const struct push_series *of,
                          const struct push_series *x, uint64_t *left)
{
    const Embertree__WriteExemplar *now = s->exemplars[i], *before = i ? s->exemplars[i - 1] : NULL;
    size_t at = 0;

    if (!x->len || now->kind <= EXID_NONE || now->kind >= EXID_KINDS ||
        !exid_valid(bytes_str(now->id)))
        return false;
    if (before &&
        (before->kind > now->kind ||
         (before->kind == now->kind && str_cmp(bytes_str(before->id), bytes_str(now->id)) >= 0)))
        return false;
    if (!before || before->kind != now->kind)
        memcpy(left, of->values, of->len * sizeof(*left));
    for (size_t k = 0; k < x->len; k++) {
        while (at < of->len && of->nodes[at] < x->nodes[k])
            at++;
        if (at == of->len || of->nodes[at] != x->nodes[k] || left[at] < x->values[k])
            return false;
    }
    for (size_t k = 0, to = 0; k < x->len; k++) {
        while (of->nodes[to] < x->nodes[k])
            to++;
        left[to] -= x->values[k];
    }
    return true;
}

static int add_exemplars(const struct import_pushes *p, const Embertree__WriteSeries *s,
                         const struct push_series *of, struct push *push, struct err *e)
{
    uint64_t *left = arena_alloc(push->arena, (of->len + 1) * sizeof(*left));

    if (!left)
        return push_full(push, e);
    for (size_t i = 0; i < s->n_exemplars; i++) {
        const Embertree__WriteExemplar *x = s->exemplars[i];
        const Embertree__WriteVector v = {
            .node = x->node, .value = x->value, .n_node = x->n_node, .n_value = x->n_value
        };
        struct push_series one;
        bool known = s->n_vectors == 1 && x->n_node == x->n_value;
        for (size_t k = 0; known && k < x->n_node; k++)
            known = x->value[k] - 1 < INT64_MAX &&
                    bsearch(&x->node[k], s->vectors[0]->node, s->vectors[0]->n_node,
                            sizeof(uint32_t), by_u32) != NULL;
        if (known && !fill_values(p, &v, push, &one))
            return push_full(push, e);
        if (!known || !exemplar_fits(s, i, of, &one, left))
            push->drops[CHANGE_EXEMPLAR]++;
        else if (!push_exemplar(push, push->series_len - 1,
                                &(struct push_exemplar){ .kind = (enum exid_kind)x->kind,
                                                         .id = bytes_str(x->id),
                                                         .nodes = one.nodes,
                                                         .values = one.values,
                                                         .len = one.len }))
            return push_full(push, e);
    }
    return 0;
}

static int add_series(const struct import_pushes *p, const Embertree__WriteSeries *s,
                      const Embertree__WriteVector *v, struct push *push, struct err *e)
{
    struct label *own = ARENA_ARRAY(push->arena, struct label, s->n_labels + 1);
    struct labels extra = { own, 0 };
    struct push_series values;
    struct ptype type;

    if (!own || !fill_values(p, v, push, &values))
        return push_full(push, e);
    for (size_t i = 0; i < s->n_labels; i++) {
        struct str name = bytes_str(s->labels[i]->name);
        if (!push_label_hidden(name) && !str_eqc(name, "service_name"))
            own[extra.len++] = (struct label){ name, bytes_str(s->labels[i]->value) };
    }
    if (ptype_parse(bytes_str(s->profile_type), &type, e) ||
        push_add(push, &type, &extra, &values, e))
        return e->code;
    push->samples += v->n_node;
    return s->n_exemplars ? add_exemplars(p, s, &values, push, e) : 0;
}

static int fill_push(struct import_pushes *p, uint32_t slot, const struct ingest *in,
                     const struct limits *limits, struct push *push, struct err *e)
{
    const Embertree__WriteRequest *m = p->m->m;

    if (push_base(push, in, in->name.app, limits, e))
        return e->code;
    if (!take_nodes(p, slot, &push->stacks))
        return push_full(push, e);
    for (size_t i = 0; i < m->n_series; i++) {
        const Embertree__WriteVector *v = vector_at(p, i, slot);
        if (v && v->n_node && add_series(p, m->series[i], v, push, e))
            return e->code;
    }
    return 0;
}

static struct str id_of(const struct import_pushes *p, uint32_t slot)
{
    const Embertree__WriteRequest *m = p->m->m;
    struct hash128 h = { slot, 0 };

    for (size_t i = 0; i < m->n_series; i++) {
        uint64_t words[4] = { h.lo, h.hi };
        if (!vector_at(p, i, slot))
            continue;
        CHECK(m->series[i]->write_id.len == sizeof(uint64_t[2]));
        memcpy(&words[2], m->series[i]->write_id.data, sizeof(uint64_t[2]));
        h = hash128(words, sizeof(words), ID_SEED);
    }
    return arena_strdup(p->a, str_n(&h, sizeof(h)));
}

static int one_push(struct import_pushes *p, uint32_t slot, const struct batch_sink *sink,
                    struct err *e)
{
    struct arena_mark mark = arena_mark(p->a);
    const struct ingest in = { .name = { .app = bytes_str(p->m->m->service) },
                               .has_from = true,
                               .has_until = true,
                               .from_ms = slot_to_ms(slot),
                               .until_ms = slot_to_ms(slot + 1) };
    struct push *push = sink->begin(sink->cookie, &in, e);
    struct err why;
    int rc = 0;

    if (!push)
        return e->code;
    if (fill_push(p, slot, &in, sink->limits, push, &why)) {
        sink->reject(sink->cookie, push, 1, &why);
    } else {
        struct str id = id_of(p, slot);
        rc = id.ptr ? sink->end(sink->cookie, push, str_sub(p->m->bytes, 0, p->share), id, e)
                    : push_full(push, e);
    }
    arena_rewind(p->a, mark);
    return rc;
}

int import_pushes_run(struct import_pushes *p, size_t from, size_t n, const struct batch_sink *sink,
                      struct err *e)
{
    const Embertree__WriteRequest *m = p->m->m;

    CHECK(from == p->at && from + n <= p->slots_len);
    for (; p->at < from + n; p->at++) {
        uint32_t slot = p->slots[p->at];
        if (one_push(p, slot, sink, e))
            return e->code;
        for (size_t i = 0; i < m->n_series; i++)
            p->cursors[i] += vector_at(p, i, slot) != NULL;
    }
    return 0;
}

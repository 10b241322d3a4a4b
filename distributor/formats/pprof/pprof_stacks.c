/* SPDX-License-Identifier: Apache-2.0
 *
 * pprof_stacks: from (node, label group, values) of each sample to one vector per group and type.
 *
 *   samples ── by group (counting sort) ── per group: node -> slot, values[slot][type] += ...
 *                                           then, nodes ascending, one vector per sample type
 *
 * Samples with the same stack and labels are added (Go heap profiles have one per object size).
 * The slot table has one entry per node and is cleared by walking the nodes that were touched, so
 * a thousand small groups cost what their samples cost. All memory is in the request's arena.
 */
#include "distributor/formats/pprof/pprof_stacks.h"

#include <stdlib.h>

#include "distributor/formats/kinds.h"
#include "distributor/formats/pprof/pprof_graft.h"
#include "distributor/formats/pprof/pprof_groups.h"
#include "distributor/formats/pprof/pprof_spans.h"

#define FEW 8 /* nodes that are sorted by hand: those of a span */

struct adder {
    const struct pprof *p;
    const struct limits *l;
    struct push *push;
    struct pprof_spans spans;
    uint64_t *tagged; /* id << 32 | sample, of one group and kind */
    uint64_t *room;   /* of the same size */
    uint32_t *counts; /* by id; 0 between uses */
    const struct pprof_walked *w;
    size_t types;
    bool added;        /* the samples need no adding up: the rest of the struct is not used */
    uint32_t *slots;   /* by node, PPROF_NONE = not touched */
    uint32_t *touched; /* nodes in order of slots */
    uint64_t *sums;    /* [slot][type] */
    size_t touched_len;
};

static size_t push_nodes(const struct push *p)
{
    return (p->known ? p->known_len : p->stacks.node_parent.len) + 1;
}

static bool adder_init(struct adder *a, size_t samples_most)
{
    size_t nodes = push_nodes(a->push);

    a->slots = arena_alloc(a->push->arena, nodes * sizeof(*a->slots));
    size_t most = MIN(samples_most, nodes) + 1;
    a->touched = arena_alloc(a->push->arena, most * sizeof(*a->touched));
    a->sums = arena_alloc(a->push->arena, most * a->types * sizeof(*a->sums));
    if (!a->slots || !a->touched || !a->sums)
        return false;
    memset(a->slots, 0xff, nodes * sizeof(*a->slots));
    return true;
}

static void adder_sample(struct adder *a, size_t i)
{
    const uint64_t *v = a->w->values + i * a->types;
    uint32_t node = a->w->nodes[i], slot = a->slots[node];

    if (slot == PPROF_NONE) {
        slot = (uint32_t)a->touched_len++;
        a->slots[node] = slot;
        a->touched[slot] = node;
        memset(a->sums + slot * a->types, 0, a->types * sizeof(*a->sums));
    }
    uint64_t *sum = a->sums + slot * a->types;
    for (size_t t = 0; t < a->types; t++)
        sum[t] = push_sum(a->push, sum[t], v[t]);
}

static int u32_cmp(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

static int u64_cmp(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/* Nodes ascending. Reading the slot table in order beats sorting once a group is not tiny. */
static void adder_order(struct adder *a)
{
    size_t nodes = push_nodes(a->push), n = 0;

    if (a->touched_len <= FEW) {
        for (size_t i = 1; i < a->touched_len; i++) {
            uint32_t node = a->touched[i];
            size_t at = i;
            for (; at && a->touched[at - 1] > node; at--)
                a->touched[at] = a->touched[at - 1];
            a->touched[at] = node;
        }
        return;
    }
    if (a->touched_len < nodes / 16) {
        qsort(a->touched, a->touched_len, sizeof(*a->touched), u32_cmp);
        return;
    }
    for (size_t node = 0; node < nodes; node++)
        if (a->slots[node] != PPROF_NONE)
            a->touched[n++] = (uint32_t)node;
}

/* Sample types are mostly zero or mostly not, and which cannot be guessed: all are written, and
 * stay where they count. */
static bool adder_vector(struct adder *a, size_t type, struct push_series *ret)
{
    const uint64_t *sums = (a->added ? a->w->values : a->sums) + type;
    size_t len = a->added ? a->w->len : a->touched_len, n = 0, at = 0;

    for (size_t slot = 0; slot < len; slot++)
        n += sums[slot * a->types] > 0;
    uint32_t *nodes = arena_alloc(a->push->arena, (n + 1) * sizeof(*nodes));
    uint64_t *values = arena_alloc(a->push->arena, (n + 1) * sizeof(*values));
    if (!nodes || !values)
        return false;
    for (size_t i = 0; i < len; i++) {
        uint32_t node = a->added ? a->w->nodes[i] : a->touched[i];
        values[at] = sums[(a->added ? i : a->slots[node]) * a->types];
        nodes[at] = node;
        at += values[at] > 0;
    }
    ret->nodes = nodes;
    ret->values = values;
    ret->len = n;
    return true;
}

static void adder_clear(struct adder *a)
{
    for (size_t i = 0; i < a->touched_len; i++)
        a->slots[a->touched[i]] = PPROF_NONE;
    a->touched_len = 0;
}

/* ---- names of the series ----------------------------------------------------------------------
 */

/* Equal once push_add has made them words: "lock-time" and "lock_time" are one type. */
static bool same_word(struct str a, struct str b)
{
    bool same = a.len == b.len;

    for (size_t i = 0; same && i < a.len; i++) {
        bool plain = (a.ptr[i] >= '0' && a.ptr[i] <= '9') || (a.ptr[i] >= 'A' && a.ptr[i] <= 'Z') ||
                     (a.ptr[i] >= 'a' && a.ptr[i] <= 'z');
        bool plain_too = (b.ptr[i] >= '0' && b.ptr[i] <= '9') ||
                         (b.ptr[i] >= 'A' && b.ptr[i] <= 'Z') ||
                         (b.ptr[i] >= 'a' && b.ptr[i] <= 'z');
        same = a.ptr[i] == b.ptr[i] || (!plain && !plain_too);
    }
    return same;
}

/* A sample type that was there already gets a number, or two vectors would be one series. */
static bool number_twins(struct pprof_names *n, size_t len, struct arena *a)
{
    for (size_t i = 1; i < len; i++) {
        unsigned twins = 1;
        for (size_t k = 0; k < i; k++)
            twins += same_word(n->types[k], n->types[i]) && same_word(n->units[k], n->units[i]);
        if (twins == 1)
            continue;
        struct buf b;
        buf_init(&b, n->types[i].len + 16);
        buf_add_str(&b, n->types[i]);
        buf_addf(&b, "_%u", twins);
        n->types[i] = arena_strdup(a, buf_str(&b));
        buf_deinit(&b);
        if (!n->types[i].ptr)
            return false;
    }
    return true;
}

static void name_series(const struct pprof *p, const struct sample_config *config,
                        struct pprof_names *ret)
{
    struct str display[PPROF_TYPES_MAX];

    for (size_t i = 0; i < p->types_len; i++) {
        ret->types[i] = pprof_str(p, p->types[i].type);
        ret->units[i] = pprof_str(p, p->types[i].unit);
        const struct sample_config_row *row = sample_config_find(config, ret->types[i]);
        display[i] =
            row && row->display_name.len ? row->display_name : kind_display_name(ret->types[i]);
    }
    ret->name = config->series_name.len ? config->series_name
                                        : kind_series_name(ret->types, display, p->types_len);
    if (p->has_period_type) {
        ret->period_type = pprof_str(p, p->period_type.type);
        ret->period_unit = pprof_str(p, p->period_type.unit);
    }
}

/* ---- all of it --------------------------------------------------------------------------------
 */

/* The samples in a->tagged[from, to), all of one id: an exemplar of each series that has some. */
static bool add_exemplar(struct adder *a, enum exid_kind kind, size_t from, size_t to,
                         const size_t *series)
{
    struct push_exemplar x = { .kind = kind, .id = a->spans.ids[a->tagged[from] >> 32] };
    struct push_series v = { 0 };
    bool ok = true;

    for (size_t i = from; i < to; i++)
        adder_sample(a, (uint32_t)a->tagged[i]);
    adder_order(a);
    for (size_t t = 0; ok && t < a->types; t++) {
        ok = adder_vector(a, t, &v);
        if (!ok || v.len == 0)
            continue;
        x.nodes = v.nodes;
        x.values = v.values;
        x.len = v.len;
        if (a->push->exemplars < a->l->exemplars)
            ok = push_exemplar(a->push, series[t], &x);
        else
            a->push->drops[CHANGE_EXEMPLAR]++;
    }
    adder_clear(a);
    return ok;
}

/* By id; samples come in their order. Counting beats comparing unless the group is a small one. */
static void sort_tagged(struct adder *a, size_t n)
{
    size_t ids = a->spans.len, at = 0;

    if (n < ids / 8) {
        qsort(a->tagged, n, sizeof(*a->tagged), u64_cmp);
        return;
    }
    for (size_t i = 0; i < n; i++)
        a->counts[a->tagged[i] >> 32]++;
    for (size_t id = 0; id < ids; id++) {
        uint32_t here = a->counts[id];
        a->counts[id] = (uint32_t)at;
        at += here;
    }
    for (size_t i = 0; i < n; i++)
        a->room[a->counts[a->tagged[i] >> 32]++] = a->tagged[i];
    memcpy(a->tagged, a->room, n * sizeof(*a->room));
    memset(a->counts, 0, ids * sizeof(*a->counts));
}

/* Of the n samples of one group, whose series by type are `series`. */
static bool add_exemplars(struct adder *a, const uint32_t *samples, size_t n, const size_t *series)
{
    for (int kind = EXID_SPAN; kind <= EXID_TRACE; kind++) {
        const uint32_t *ids = a->spans.of_sample[kind];
        size_t len = 0, from = 0;
        for (size_t i = 0; ids && i < n; i++) {
            uint32_t s = samples ? samples[i] : (uint32_t)i;
            if (ids[s] != PPROF_NONE)
                a->tagged[len++] = (uint64_t)ids[s] << 32 | s;
        }
        if (len > 1)
            sort_tagged(a, len);
        for (size_t to = 0; to < len; from = to) {
            while (to < len && a->tagged[to] >> 32 == a->tagged[from] >> 32)
                to++;
            if (!add_exemplar(a, (enum exid_kind)kind, from, to, series))
                return false;
        }
    }
    return true;
}

/* The samples counted in the adder become a series per type; their list is an argument because
 * exemplars need it. */
static int add_group(struct adder *a, const struct pprof_names *names, const struct labels *labels,
                     const uint32_t *samples, size_t n, struct err *e)
{
    size_t series[PPROF_TYPES_MAX];

    if (!a->added)
        adder_order(a);
    for (size_t t = 0; t < a->types; t++) {
        struct push_series s = { .unit = 1 };
        struct ptype type = { names->name, names->types[t], names->units[t], names->period_type,
                              names->period_unit };
        if (!adder_vector(a, t, &s))
            return push_full(a->push, e);
        if (s.len == 0)
            continue;
        if (a->p->period > 0 && str_eq(type.sample_type, type.period_type) &&
            str_eq(type.sample_unit, type.period_unit))
            s.unit = (uint64_t)a->p->period;
        if (push_add(a->push, &type, labels, &s, e))
            return e->code;
        series[t] = a->push->series_len - 1;
    }
    adder_clear(a);
    return a->tagged && !add_exemplars(a, samples, n, series) ? push_full(a->push, e) : 0;
}

/* Samples in order of their group: *ret_order, and where each group starts. */
static bool order_by_group(const struct adder *a, const struct pprof_groups *g,
                           uint32_t **ret_order, size_t **ret_starts)
{
    size_t n = a->w->len;
    uint32_t *order = ARENA_ARRAY(a->push->arena, uint32_t, n + 1);
    size_t *starts = ARENA_ARRAY(a->push->arena, size_t, g->len + 2);

    if (!order || !starts)
        return false;
    for (size_t i = 0; i < n; i++)
        starts[g->of_sample[i] + 2]++;
    for (size_t k = 2; k < g->len + 2; k++)
        starts[k] += starts[k - 1];
    for (size_t i = 0; i < n; i++)
        order[starts[g->of_sample[i] + 1]++] = (uint32_t)i;
    *ret_order = order;
    *ret_starts = starts;
    return true;
}

static int add_groups(struct adder *a, const struct pprof_names *names,
                      const struct pprof_groups *g, struct err *e)
{
    uint32_t *order;
    size_t *starts;

    if (!g->of_sample) {
        for (size_t i = 0; !a->added && i < a->w->len; i++)
            adder_sample(a, i);
        return add_group(a, names, &g->sets[0], NULL, a->w->len, e);
    }
    if (!order_by_group(a, g, &order, &starts))
        return push_full(a->push, e);
    for (size_t k = 0; k < g->len; k++) {
        for (size_t i = starts[k]; i < starts[k + 1]; i++)
            adder_sample(a, order[i]);
        if (add_group(a, names, &g->sets[k], order + starts[k], starts[k + 1] - starts[k], e))
            return e->code;
    }
    return 0;
}

int pprof_add(const struct pprof *p, struct pprof_names *names, const struct limits *l,
              const struct pprof_walked *w, struct push *push, struct err *e)
{
    struct adder a = { .p = p, .l = l, .push = push, .w = w, .types = p->types_len };
    struct pprof_groups groups;

    if (!number_twins(names, p->types_len, push->arena))
        return push_full(push, e);
    const struct pprof_groups_args args = { p, w, l, (size_t)l->series / p->types_len };
    if (pprof_spans(p, w, push, &a.spans, e) || pprof_groups(&args, push, &groups, e))
        return e->code;
    a.added = w->added && !groups.of_sample && !a.spans.ids;
    if (!a.added && !adder_init(&a, w->len))
        return push_full(push, e);
    if (a.spans.ids) {
        a.tagged = arena_alloc(push->arena, (w->len + 1) * sizeof(*a.tagged));
        a.room = arena_alloc(push->arena, (w->len + 1) * sizeof(*a.room));
        a.counts = arena_calloc(push->arena, a.spans.len + 1, sizeof(*a.counts));
        if (!a.tagged || !a.room || !a.counts)
            return push_full(push, e);
    }
    return add_groups(&a, names, &groups, e);
}

int pprof_push(const struct decode_job *job, const struct pprof *p,
               const struct sample_config *config, const int64_t *values, struct err *e)
{
    struct pprof_names names = { 0 };
    struct push *push = job->push;
    struct pprof_walked w;
    struct pprof grafted;

    if (pprof_graft(p, job->l, push, &grafted))
        p = &grafted;
    push->drops[CHANGE_STRING] += p->bad_string_refs;
    push->samples += p->samples.len;
    name_series(p, config, &names);
    int rc = 0;
    if (!pprof_walk_known(job, p, values, &w))
        rc = pprof_walk(job, p, values, &w, e);
    if (!rc)
        rc = pprof_add(p, &names, job->l, &w, push, e);
    pprof_walked_deinit(&w);
    return rc;
}

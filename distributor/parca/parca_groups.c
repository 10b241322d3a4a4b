/* SPDX-License-Identifier: Apache-2.0
 *
 * parca_groups: which samples share a push, and what a push is made of.
 *
 *   rows ─ (service, leaf) ─> groups
 *   each: stacks to nodes, sorted by (labels, type, node) ─> series ─> push
 *
 * An agent sends the samples of a whole machine in one batch, each with its own time. A push has
 * one service and one time, so rows are grouped by service and by the 10 s leaf they fall into; the
 * push then is a point at its first sample. Samples that stand for longer than a point may (15 s)
 * are grouped by their very time and length, and are spread by the window like any long push.
 *
 * Samples with equal stack, labels and type are added. Label sets over limits.series share one
 * series whose labels are [overflow]. Ids of spans and traces become exemplars.
 */
#include "distributor/parca/parca_groups.h"

#include <stdlib.h>

#include "common/base/hash.h"
#include "common/base/secret.h"
#include "common/model/slot.h"
#include "distributor/base/window.h"

#define NS_PER_MS    INT64_C(1000000)
#define SET_OVERFLOW UINT32_MAX
#define SPY          "parca"

struct group {
    struct str service;
    uint32_t leaf;
    int64_t time_ns, duration_ns; /* of long samples; else the first time, 0 */
    size_t rows, first;           /* of `order` */
    struct ingest in;
};
/* A row once its stack is a node. */
struct entry {
    uint32_t set, type, node;
    uint32_t row;
    uint64_t value;
};
struct grouping {
    const struct parca_rows *rows;
    struct parca_frames *frames;
    const struct batch_sink *sink;
    struct str identity;
    struct arena *arena;
    VEC(struct group) groups;
    struct map_u64 ids;
    uint32_t *of_row;   /* group by row */
    uint32_t *order;    /* rows by group */
    struct entry *list; /* of one group */
    size_t len;
    uint32_t *stamp;   /* by set: the push that took it last */
    uint32_t overflow; /* of the group: a set that shares the overflow series */
};

static const struct parca_set *set_of(const struct grouping *g, const struct parca_row *r)
{
    return &g->rows->sets->sets.ptr[g->rows->sets->sent.ptr[r->sent].set];
}

static bool is_long(const struct parca_row *r)
{
    return r->duration_ns / NS_PER_MS > WINDOW_WHOLE_MS;
}

/* ---- rows to groups ----------------------------------------------------------------------------
 */

static bool same_group(const struct group *g, const struct group *want)
{
    return g->leaf == want->leaf && g->duration_ns == want->duration_ns &&
           (want->duration_ns == 0 || g->time_ns == want->time_ns) &&
           str_eq(g->service, want->service);
}

static uint32_t find_group(struct grouping *g, const struct parca_row *r)
{
    struct group want = { .service = set_of(g, r)->service,
                          .leaf = slot_leaf(slot_of_ms(r->time_ns / NS_PER_MS)),
                          .time_ns = r->time_ns,
                          .duration_ns = is_long(r) ? r->duration_ns : 0 };
    uint32_t next = (uint32_t)g->groups.len;
    const uint64_t key[] = { want.leaf, (uint64_t)want.duration_ns,
                             want.duration_ns ? (uint64_t)want.time_ns : 0 };
    uint64_t h =
        hash64(want.service.ptr, want.service.len, hash64(key, sizeof(key), secret_word()));

    for (;; h = hash_u64(h + 1)) {
        uint32_t at = map_u64_put(&g->ids, h, next);
        if (at == MAP_U64_EMPTY)
            break;
        if (same_group(&g->groups.ptr[at], &want))
            return at;
    }
    vec_push(&g->groups, want);
    return next;
}

static int group_rows(struct grouping *g, struct err *e)
{
    size_t n = g->rows->len, at = 0;

    g->of_row = arena_alloc(g->arena, n * sizeof(*g->of_row));
    g->order = arena_alloc(g->arena, n * sizeof(*g->order));
    g->list = arena_alloc(g->arena, n * sizeof(*g->list));
    g->stamp = ARENA_ARRAY(g->arena, uint32_t, g->rows->sets->sets.len + 1);
    if (!g->of_row || !g->order || !g->list || !g->stamp)
        return err_set(e, ERR_LIMIT, "parca: %zu samples take more than %zu bytes of memory", n,
                       arena_limit(g->arena));
    for (size_t i = 0; i < n; i++) {
        const struct parca_row *r = &g->rows->ptr[i];
        g->of_row[i] = find_group(g, r);
        struct group *to = &g->groups.ptr[g->of_row[i]];
        to->rows++;
        to->time_ns = MIN(to->time_ns, r->time_ns);
    }
    vec_for (i, &g->groups) {
        g->groups.ptr[i].first = at;
        at += g->groups.ptr[i].rows;
        g->groups.ptr[i].rows = 0;
    }
    for (size_t i = 0; i < n; i++) {
        struct group *to = &g->groups.ptr[g->of_row[i]];
        g->order[to->first + to->rows++] = (uint32_t)i;
    }
    return 0;
}

/* ---- one group to its series -------------------------------------------------------------------
 */

static int entry_cmp(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;

    if (x->set != y->set)
        return x->set < y->set ? -1 : 1;
    if (x->type != y->type)
        return x->type < y->type ? -1 : 1;
    return x->node < y->node ? -1 : x->node > y->node;
}

/* The rows of the group that count, with their nodes. */
static int take_rows(struct grouping *g, const struct group *group, struct push *push,
                     struct err *e)
{
    size_t most = (size_t)g->sink->limits->series / MAX(g->rows->types_len, (size_t)1), sets = 0;

    g->len = 0;
    g->overflow = SET_OVERFLOW;
    for (size_t i = 0; i < group->rows; i++) {
        struct entry x = { .row = g->order[group->first + i] };
        const struct parca_row *r = &g->rows->ptr[x.row];
        push->samples++;
        push->drops[DROP_NEGATIVE] += r->value < 0;
        push->drops[DROP_UNKNOWN_LOCATION] += r->value > 0 && !r->known;
        if (r->value <= 0 || !r->known)
            continue;
        if (parca_frames_node(g->frames, r->first, r->frames, &x.node, e))
            return e->code;
        x.value = (uint64_t)r->value;
        x.type = r->type;
        x.set = g->rows->sets->sent.ptr[r->sent].set;
        if (g->stamp[x.set] != g->frames->push_no && sets + 1 < most) {
            g->stamp[x.set] = g->frames->push_no;
            push->drops[DROP_LABEL] += g->rows->sets->sets.ptr[x.set].dropped;
            sets++;
        }
        if (g->stamp[x.set] != g->frames->push_no) {
            g->overflow = x.set;
            x.set = SET_OVERFLOW;
            push->drops[CHANGE_OVERFLOW]++;
        }
        g->list[g->len++] = x;
    }
    return 0;
}

/* Copies: what is in the body or in our arena may be gone before the labels are sent. */
static bool copy_labels(const struct grouping *g, uint32_t set, struct push *push,
                        struct labels *ret)
{
    bool over = set == SET_OVERFLOW;
    const struct labels *from = &g->rows->sets->sets.ptr[over ? g->overflow : set].labels;
    struct labels out = { ARENA_ARRAY(push->arena, struct label, from->len + 1), from->len };

    if (!out.ptr)
        return false;
    for (size_t i = 0; i < from->len; i++) {
        out.ptr[i].name = arena_strdup(push->arena, from->ptr[i].name);
        out.ptr[i].value =
            over ? STR(PARCA_OVERFLOW) : arena_strdup(push->arena, from->ptr[i].value);
        if (!out.ptr[i].name.ptr || !out.ptr[i].value.ptr)
            return false;
    }
    *ret = out;
    return true;
}

/* Entries of one series, sorted by node, to a vector. */
static bool sum_nodes(struct push *push, const struct entry *x, size_t n, struct push_series *ret)
{
    uint32_t *nodes = arena_alloc(push->arena, n * sizeof(*nodes));
    uint64_t *values = arena_alloc(push->arena, n * sizeof(*values));
    size_t len = 0;

    if (!nodes || !values)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (len && nodes[len - 1] == x[i].node) {
            values[len - 1] = push_sum(push, values[len - 1], x[i].value);
            continue;
        }
        nodes[len] = x[i].node;
        values[len++] = x[i].value;
    }
    ret->nodes = nodes;
    ret->values = values;
    ret->len = len;
    return true;
}

static const struct exid *id_of(const struct grouping *g, const struct entry *x, int kind)
{
    return &g->rows->sets->sent.ptr[g->rows->ptr[x->row].sent].ids[kind];
}

struct tagged {
    struct str id;
    struct entry x;
};

static int tagged_cmp(const void *a, const void *b)
{
    const struct tagged *x = a, *y = b;
    int by_id = str_cmp(x->id, y->id);

    return by_id ? by_id : x->x.node < y->x.node ? -1 : x->x.node > y->x.node;
}

/* All of one id, by node, as an exemplar of the series added last. */
static bool add_exemplar(struct push *push, enum exid_kind kind, const struct tagged *t, size_t n)
{
    struct push_exemplar mine = { .kind = kind, .id = arena_strdup(push->arena, t->id) };
    struct entry *x = arena_alloc(push->arena, n * sizeof(*x));
    struct push_series v = { 0 };

    if (!mine.id.ptr || !x)
        return false;
    for (size_t i = 0; i < n; i++)
        x[i] = t[i].x;
    if (!sum_nodes(push, x, n, &v))
        return false;
    mine.nodes = v.nodes;
    mine.values = v.values;
    mine.len = v.len;
    return push_exemplar(push, push->series_len - 1, &mine);
}

/* Entries of one series once more under each id they have. */
static bool add_exemplars(const struct grouping *g, struct push *push, const struct entry *x,
                          size_t n, int kind)
{
    struct tagged *t = arena_alloc(push->arena, n * sizeof(*t));
    size_t len = 0;

    if (!t)
        return false;
    for (size_t i = 0; i < n; i++)
        if (id_of(g, &x[i], kind)->len)
            t[len++] = (struct tagged){ exid_str(id_of(g, &x[i], kind)), x[i] };
    qsort(t, len, sizeof(*t), tagged_cmp);
    for (size_t from = 0, to; from < len; from = to) {
        for (to = from; to < len && str_eq(t[to].id, t[from].id);)
            to++;
        if (push->exemplars >= g->sink->limits->exemplars)
            push->drops[CHANGE_EXEMPLAR]++;
        else if (!add_exemplar(push, (enum exid_kind)kind, t + from, to - from))
            return false;
    }
    return true;
}

static int add_series(const struct grouping *g, struct push *push, const struct entry *x, size_t n,
                      struct err *e)
{
    const struct parca_type *t = &g->rows->types[x->type];
    struct push_series s = { .unit = 1 };
    struct labels labels;

    if (!copy_labels(g, x->set, push, &labels) || !sum_nodes(push, x, n, &s))
        return push_full(push, e);
    if (t->period > 0 && str_eq(t->ptype.sample_type, t->ptype.period_type) &&
        str_eq(t->ptype.sample_unit, t->ptype.period_unit))
        s.unit = (uint64_t)t->period;
    if (push_add(push, &t->ptype, &labels, &s, e))
        return e->code;
    for (int kind = EXID_SPAN; kind <= EXID_TRACE; kind++) {
        bool any = false;
        for (size_t i = 0; i < n && !any; i++)
            any = id_of(g, &x[i], kind)->len > 0;
        if (any && !add_exemplars(g, push, x, n, kind))
            return push_full(push, e);
    }
    return 0;
}

/* Values that were too long are [overflow] as well: such a set must not be the series of the shared
 * one a second time, since equal series of a push are taken for repeats. */
static bool is_overflow(const struct grouping *g, uint32_t set)
{
    const struct labels *mine = &g->rows->sets->sets.ptr[set].labels;
    const struct labels *over = &g->rows->sets->sets.ptr[g->overflow].labels;

    if (mine->len != over->len)
        return false;
    for (size_t i = 0; i < mine->len; i++)
        if (!str_eq(mine->ptr[i].name, over->ptr[i].name) ||
            !str_eqc(mine->ptr[i].value, PARCA_OVERFLOW))
            return false;
    return true;
}

static int fill(struct grouping *g, struct group *group, struct push *push, struct err *e)
{
    struct str service = arena_strdup(push->arena, group->service);

    if (!service.ptr)
        return push_full(push, e);
    if (push_base(push, &group->in, service, g->sink->limits, e) || take_rows(g, group, push, e))
        return e->code;
    push->has_time = push->has_identity = true;
    push->time_ns = group->time_ns;
    push->duration_ns = group->duration_ns;
    for (size_t i = 0; g->overflow != SET_OVERFLOW && i < g->len; i++)
        if (g->list[i].set != SET_OVERFLOW && is_overflow(g, g->list[i].set))
            g->list[i].set = SET_OVERFLOW;
    if (g->len > 1)
        qsort(g->list, g->len, sizeof(*g->list), entry_cmp);
    for (size_t from = 0, to; from < g->len; from = to) {
        const struct entry *x = &g->list[from];
        for (to = from; to < g->len && g->list[to].set == x->set && g->list[to].type == x->type;)
            to++;
        if (add_series(g, push, x, to - from, e))
            return e->code;
    }
    return 0;
}

static int hand_over(struct grouping *g, struct group *group, struct err *e)
{
    struct push *push;
    struct err why;

    group->in = (struct ingest){ .name.app = group->service, .spy = STR(SPY) };
    push = g->sink->begin(g->sink->cookie, &group->in, e);
    if (!push)
        return e->code;
    parca_frames_begin(g->frames, push);
    int rc = fill(g, group, push, &why);
    parca_frames_end(g->frames);
    if (!rc)
        return g->sink->end(g->sink->cookie, push, g->identity, STR_NULL, e);
    g->sink->reject(g->sink->cookie, push, 1, &why);
    if (!g->frames->arrow->fault.code)
        return 0;
    *e = g->frames->arrow->fault;
    return e->code;
}

int parca_groups(const struct parca_rows *rows, struct parca_frames *f, struct str identity,
                 const struct batch_sink *sink, struct arena *a, struct err *e)
{
    struct grouping g = {
        .rows = rows, .frames = f, .sink = sink, .identity = identity, .arena = a
    };
    int rc;

    map_u64_init(&g.ids);
    rc = group_rows(&g, e);
    for (size_t i = 0; i < g.groups.len && !rc; i++)
        rc = hand_over(&g, &g.groups.ptr[i], e);
    map_u64_deinit(&g.ids);
    vec_free(&g.groups);
    return rc;
}

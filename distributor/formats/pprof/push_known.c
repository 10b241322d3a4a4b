/* SPDX-License-Identifier: Apache-2.0
 *
 * push_known: a push whose stacks are numbers of a symbol session, and how it gets stacks of its
 * own: for an ingester that does not know the numbers, and for code that reads names.
 */
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/base/size.h"
#include "distributor/formats/pprof/symbol_session.h"
#include "distributor/formats/push.h"

struct pair {
    uint32_t node;
    uint64_t value;
};

void push_known_put(struct push *p)
{
    if (!p->known_taken)
        return;
    p->known_taken = false;
    p->memory.put(p->memory.cookie, p->known);
}

/* ---- stacks ---- */

/* A number of the session as one of the push, made on first use; 0: not yet, 0 itself is 0. */
struct renumber {
    const struct symbol_session *k;
    struct stacks *to;
    uint32_t *frames, *nodes;
};

static uint32_t frame_of(struct renumber *r, uint32_t frame)
{
    const struct stacks *s = &r->k->stacks;

    if (r->frames[frame])
        return r->frames[frame] - 1;
    struct frame f = { .func = stacks_string(r->to, stacks_string_at(s, s->frame_func.ptr[frame])),
                       .file = stacks_string(r->to, stacks_string_at(s, s->frame_file.ptr[frame])),
                       .module =
                           stacks_string(r->to, stacks_string_at(s, s->frame_module.ptr[frame])),
                       .line = s->frame_line.ptr[frame],
                       .addr = s->frame_addr.ptr[frame] };
    uint32_t id = stacks_frame(r->to, &f);
    if (id != STACKS_FULL)
        r->frames[frame] = id + 1;
    return id;
}

/* Marks what is used, parents too, then makes it in order. False: no room. */
static bool make_nodes(struct renumber *r, const struct push *p)
{
    const struct stacks *s = &r->k->stacks;
    size_t n = s->node_parent.len;

    for (size_t i = 0; i < p->known_len; i++)
        r->nodes[p->known_nodes[i]] = 1;
    for (size_t i = n; i > 0; i--)
        if (r->nodes[i])
            r->nodes[s->node_parent.ptr[i - 1]] = 1;
    r->nodes[0] = 0;
    for (size_t i = 1; i <= n; i++) {
        if (!r->nodes[i])
            continue;
        uint32_t frame = frame_of(r, s->node_frame.ptr[i - 1]);
        r->nodes[i] = stacks_node(r->to, r->nodes[s->node_parent.ptr[i - 1]], frame);
        if (r->nodes[i] == STACKS_FULL)
            return false;
    }
    return true;
}

/* map: by number in the push, from 1. */
static bool make_stacks(struct push *p, uint32_t *map)
{
    struct symbol_session *k = p->known;

    mutex_lock(&k->lock);
    struct renumber r = { .k = k, .to = &p->stacks };
    r.frames = xcalloc(k->stacks.frame_func.len + 1, sizeof(uint32_t));
    r.nodes = xcalloc(k->stacks.node_parent.len + 1, sizeof(uint32_t));
    bool ok = make_nodes(&r, p);
    map[0] = 0;
    for (size_t i = 0; ok && i < p->known_len; i++)
        map[i + 1] = r.nodes[p->known_nodes[i]];
    mutex_unlock(&k->lock);
    xfree(r.frames);
    xfree(r.nodes);
    return ok;
}

/* ---- columns ---- */

static int by_node(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;

    return x->node < y->node ? -1 : x->node > y->node;
}

static bool renumber_column(struct push *p, const uint32_t *map, const uint32_t **nodes,
                            const uint64_t **values, size_t n)
{
    struct pair *all = xmalloc((n + 1) * sizeof(*all));
    uint32_t *to = arena_alloc(p->arena, (n + 1) * sizeof(*to));
    uint64_t *v = arena_alloc(p->arena, (n + 1) * sizeof(*v));
    bool ok = to && v;

    for (size_t i = 0; ok && i < n; i++)
        all[i] = (struct pair){ map[(*nodes)[i]], (*values)[i] };
    if (ok)
        qsort(all, n, sizeof(*all), by_node);
    for (size_t i = 0; ok && i < n; i++) {
        to[i] = all[i].node;
        v[i] = all[i].value;
    }
    xfree(all);
    if (ok) {
        *nodes = to;
        *values = v;
    }
    return ok;
}

int push_known_expand(struct push *p, struct err *e)
{
    if (!p->known)
        return 0;
    uint32_t *map = arena_alloc(p->arena, (p->known_len + 1) * sizeof(*map));
    bool ok = map && make_stacks(p, map);
    for (size_t i = 0; ok && i < p->series_len; i++) {
        struct push_series *s = &p->series[i];
        ok = renumber_column(p, map, &s->nodes, &s->values, s->len);
        for (size_t j = 0; ok && j < s->exemplars_len; j++) {
            struct push_exemplar *x = &s->exemplars[j];
            ok = renumber_column(p, map, &x->nodes, &x->values, x->len);
        }
    }
    if (!ok)
        return push_full(p, e);
    push_known_put(p);
    symbol_session_unref(p->known);
    p->known = NULL;
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * exm_sum: the sum of the stacks of some exemplars.
 *
 * A span has a handful of stacks of a dictionary that may have a million nodes. So unlike read.c
 * nothing here is as large as a dictionary: each stack is walked up to the first node that is in
 * the answer already.
 */
#include "common/store/exemplar/exm_sum.h"

#include <stdlib.h>

#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/store/codec/vec.h"
#include "common/store/dict/dict_cache.h"
#include "common/store/state/view.h"
#include "common/store/store.h"

struct exm_epoch { /* a dictionary of the service being read */
    uint32_t number;
    struct dict *d; /* referenced */
    struct dict_counts n;
    struct map_u64 nodes; /* there -> of the caller's stacks; or how much of the site is above */
};

static int find_epoch(struct exm_sum *s, uint32_t scope, uint32_t number, struct exm_epoch **ret,
                      struct err *e)
{
    struct dict_id id = { s->tenant, scope, number };
    struct exm_epoch x = { .number = number };

    vec_for (i, &s->epochs) {
        if (s->epochs.ptr[i].number == number) {
            *ret = &s->epochs.ptr[i];
            return 0;
        }
    }
    int rc = dict_cache_read(s->v->dicts, s->v->snap, id, &x.d, &x.n, e);
    if (rc)
        return rc;
    map_u64_init(&x.nodes);
    map_u64_put(&x.nodes, 0, 0);
    vec_push(&s->epochs, x);
    *ret = &s->epochs.ptr[s->epochs.len - 1];
    return 0;
}

static uint32_t out_frame(const struct dict *d, uint32_t id, struct stacks *to)
{
    const struct frame *f = dict_frame(d, id);
    struct frame there = { .func = stacks_string(to, dict_string(d, f->func)),
                           .file = stacks_string(to, dict_string(d, f->file)),
                           .module = stacks_string(to, dict_string(d, f->module)),
                           .line = f->line,
                           .addr = f->addr };

    if (there.func == STACKS_FULL || there.file == STACKS_FULL || there.module == STACKS_FULL)
        return STACKS_FULL;
    return stacks_frame(to, &there);
}

/* Returns the node of the caller's stacks, or STACKS_FULL. It climbs to the first ancestor that
 * these stacks have, and adds the nodes below it on the way down. */
static uint32_t out_node(struct exm_sum *s, struct exm_epoch *x, uint32_t node)
{
    struct stacks *to = s->to->stacks;
    uint32_t at;

    s->path.len = 0;
    for (; (at = map_u64_get(&x->nodes, node)) == MAP_U64_EMPTY;
         node = dict_node(x->d, node)->parent)
        vec_push(&s->path, node);
    while (s->path.len && at != STACKS_FULL) {
        uint32_t below = s->path.ptr[--s->path.len];
        uint32_t frame = out_frame(x->d, dict_node(x->d, below)->frame, to);
        at = frame == STACKS_FULL ? frame : stacks_node(to, at, frame);
        if (at != STACKS_FULL)
            map_u64_put(&x->nodes, below, at);
    }
    return at;
}

static void add_out(struct exm_sum *s, uint32_t node, uint64_t value)
{
    while (s->out.len <= node)
        vec_push(&s->out, 0);
    if (!u64_add(s->out.ptr[node], value, &s->out.ptr[node])) {
        s->out.ptr[node] = UINT64_MAX;
        s->to->saturated++;
    }
}

static int check_nodes(const struct exm_epoch *x, const struct vec_section *sec, struct err *e)
{
    return sec->last < x->n.nodes
               ? 0
               : err_set(e, ERR_CORRUPT, "an exemplar names node %u of a dictionary of %u",
                         sec->last, x->n.nodes);
}

static int add_section(struct exm_sum *s, struct exm_epoch *x, const struct vec_section *sec,
                       struct err *e)
{
    uint32_t ids[VEC_CHUNK];
    uint64_t values[VEC_CHUNK];
    struct vec_iter it;
    size_t n;

    if (check_nodes(x, sec, e))
        return e->code;
    vec_iter_init(&it, sec);
    while ((n = vec_iter_next(&it, ids, values)) > 0) {
        for (size_t i = 0; i < n; i++) {
            uint32_t node = out_node(s, x, ids[i]);
            if (node == STACKS_FULL)
                return err_set(e, ERR_LIMIT,
                               "the stacks of the answer need more than %zu bytes: ask for fewer "
                               "ids or series",
                               s->to->stacks->bytes_max);
            add_out(s, node, values[i]);
        }
    }
    return 0;
}

int exm_sum_add(struct exm_sum *s, const struct exm_ref *x, struct str vector, struct err *e)
{
    struct vec_section sec;
    struct vec_reader r;
    struct exm_epoch *epoch;

    if (vec_open(vector, &r, e))
        return err_wrap(e, "exemplar at slot %u", x->t);
    s->to->saturated += r.meta.saturated;
    if (s->to->gauge)
        vec_push(&s->to->leaves, x->t / LEAF_SLOTS);
    while (vec_next(&r, &sec))
        if (find_epoch(s, x->m.scope, sec.epoch, &epoch, e) || add_section(s, epoch, &sec, e))
            return e->code;
    return 0;
}

/* ---- below a call site ---- */

#define MISS (UINT32_MAX - 1) /* a function was another one */

/* How many functions of the site the path to the node has, up to site_len; MISS. */
static uint32_t depth_of(struct exm_sum *s, struct exm_epoch *x, uint32_t node)
{
    uint32_t at;

    s->path.len = 0;
    for (; (at = map_u64_get(&x->nodes, node)) == MAP_U64_EMPTY;
         node = dict_node(x->d, node)->parent)
        vec_push(&s->path, node);
    while (s->path.len) {
        uint32_t below = s->path.ptr[--s->path.len];
        if (at != MISS && at < s->site_len) {
            const struct frame *f = dict_frame(x->d, dict_node(x->d, below)->frame);
            at = str_eq(dict_string(x->d, f->func), s->site[at]) ? at + 1 : MISS;
        }
        map_u64_put(&x->nodes, below, at);
    }
    return at;
}

int exm_sum_below(struct exm_sum *s, const struct exm_ref *x, struct str vector, uint64_t *ret,
                  struct err *e)
{
    uint32_t ids[VEC_CHUNK];
    uint64_t values[VEC_CHUNK];
    struct vec_section sec;
    struct vec_reader r;
    struct vec_iter it;
    struct exm_epoch *epoch;
    size_t n;

    *ret = 0;
    if (vec_open(vector, &r, e))
        return err_wrap(e, "exemplar at slot %u", x->t);
    while (vec_next(&r, &sec)) {
        if (find_epoch(s, x->m.scope, sec.epoch, &epoch, e) || check_nodes(epoch, &sec, e))
            return e->code;
        vec_iter_init(&it, &sec);
        while ((n = vec_iter_next(&it, ids, values)) > 0)
            for (size_t i = 0; i < n; i++)
                if (depth_of(s, epoch, ids[i]) == s->site_len)
                    *ret = u64_add_sat(*ret, values[i]);
    }
    return 0;
}

/* ---- the end ---- */

static int u32_cmp(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

void exm_sum_end(struct exm_sum *s)
{
    struct store_merge *m = s->to;
    size_t n = 0;

    vec_for (i, &s->out) {
        if (!s->out.ptr[i])
            continue;
        vec_push(&m->nodes, (uint32_t)i);
        vec_push(&m->values, s->out.ptr[i]);
        m->total = u64_add_sat(m->total, s->out.ptr[i]);
    }
    if (m->leaves.len > 1)
        qsort(m->leaves.ptr, m->leaves.len, sizeof(uint32_t), u32_cmp);
    vec_for (i, &m->leaves)
        if (!n || m->leaves.ptr[n - 1] != m->leaves.ptr[i])
            m->leaves.ptr[n++] = m->leaves.ptr[i];
    m->leaves.len = n;
}

void exm_sum_forget(struct exm_sum *s)
{
    if (!s)
        return;
    vec_for (i, &s->epochs) {
        dict_unref(s->epochs.ptr[i].d);
        map_u64_deinit(&s->epochs.ptr[i].nodes);
    }
    s->epochs.len = 0;
}

void exm_sum_deinit(struct exm_sum *s)
{
    exm_sum_forget(s);
    vec_free(&s->epochs);
    vec_free(&s->out);
    vec_free(&s->path);
}

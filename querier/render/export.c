/* SPDX-License-Identifier: Apache-2.0
 *
 * export: union of replies by whole frames.
 *
 *   all of every stack     needed nodes of a reply map to nodes of the union, parents first
 *   innermost N frames     each node with a value becomes a chain of its own, from its leaf up;
 *                          equal chains meet in the union
 *
 * The first is linear in the reply; the second, as pprof itself, in the sum of the stacks' depths.
 * A leaf whose line does not count is another frame (line 0) below the same parent, so that callers
 * keep their lines: that is what Go's compiler reads call sites from.
 */
#include "querier/render/export.h"

#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/sys/pool.h"

#define CANCEL_EVERY 8192
#define NONE         UINT32_MAX

void export_init(struct export_set *x, const struct export_how *how, size_t bytes_max,
                 uint64_t seed)
{
    *x = (struct export_set){ .how = how ? *how : (struct export_how){ 0 } };
    stacks_init(&x->stacks, bytes_max, seed);
    vec_push(&x->self, 0);
}

void export_deinit(struct export_set *x)
{
    stacks_deinit(&x->stacks);
    vec_free(&x->self);
}

size_t export_bytes(const struct export_set *x)
{
    return stacks_bytes(&x->stacks) + x->self.cap * sizeof(uint64_t);
}

size_t export_cost(const struct stacks_view *v)
{
    /* Contents and table slots as stacks charges them, twice for growth; values, maps. */
    return 2 * v->string_data.len + v->strings * 96 + v->frames * 128 + v->nodes * 120 + 64 * KIB;
}

static bool canceled(const atomic_bool *cancel, size_t i)
{
    pool_slice_step(i);
    return cancel && i % CANCEL_EVERY == 0 && atomic_load_explicit(cancel, memory_order_relaxed);
}

/* ---- one reply --------------------------------------------------------------------------------*/

struct adding {
    struct export_set *x;
    const struct calltree_part *p;
    const atomic_bool *cancel;
    size_t *string_off;   /* owned; where each string starts */
    uint32_t *string_at;  /* owned; string there -> here, NONE: not looked up */
    uint32_t *frame_at;   /* owned; the same for frames */
    uint32_t *node_at;    /* owned; needed nodes only */
    uint8_t *needed;      /* owned */
    VEC(uint32_t) frames; /* of the chain being made, leaf first */
};

static void adding_init(struct adding *a)
{
    const struct stacks_view *v = &a->p->stacks;
    size_t off = 0;

    a->string_off = XNEW_ARRAY(size_t, v->strings + 1);
    a->string_at = XNEW_ARRAY(uint32_t, v->strings + 1);
    a->frame_at = XNEW_ARRAY(uint32_t, v->frames + 1);
    a->node_at = XNEW_ARRAY(uint32_t, v->nodes + 1);
    a->needed = XNEW_ARRAY(uint8_t, v->nodes + 1);
    memset(a->string_at, 0xff, (v->strings + 1) * sizeof(uint32_t));
    memset(a->frame_at, 0xff, (v->frames + 1) * sizeof(uint32_t));
    for (size_t i = 0; i < v->strings; i++) {
        a->string_off[i] = off;
        off += v->string_len[i];
    }
}

static void adding_deinit(struct adding *a)
{
    xfree(a->string_off);
    xfree(a->string_at);
    xfree(a->frame_at);
    xfree(a->node_at);
    xfree(a->needed);
    vec_free(&a->frames);
}

static uint32_t string_of(struct adding *a, uint32_t id)
{
    const struct stacks_view *v = &a->p->stacks;

    if (a->string_at[id] == NONE)
        a->string_at[id] =
            stacks_string(&a->x->stacks, (struct str){ v->string_data.ptr + a->string_off[id],
                                                       v->string_len[id] });
    return a->string_at[id];
}

static uint32_t frame_made(struct adding *a, uint32_t frame, bool with_line)
{
    const struct stacks_view *v = &a->p->stacks;
    struct frame f = { .func = string_of(a, v->frame_func[frame]),
                       .file = string_of(a, v->frame_file[frame]),
                       .module = string_of(a, v->frame_module[frame]),
                       .line = with_line ? v->frame_line[frame] : 0,
                       .addr = v->frame_addr[frame] };

    return stacks_frame(&a->x->stacks, &f);
}

static uint32_t frame_of(struct adding *a, uint32_t frame)
{
    if (a->frame_at[frame] == NONE)
        a->frame_at[frame] = frame_made(a, frame, true);
    return a->frame_at[frame];
}

static uint32_t leaf_of(struct adding *a, uint32_t frame)
{
    return a->x->how.aggregate_callees ? frame_made(a, frame, false) : frame_of(a, frame);
}

static int full(const struct export_set *x, struct err *e)
{
    return err_set(
        e, ERR_LIMIT,
        "stacks of the answer take over %zu MiB: ask for a shorter range or fewer series",
        x->stacks.bytes_max / MIB);
}

static void add_value(struct export_set *x, uint32_t node, uint64_t value)
{
    while (x->self.len <= node)
        vec_push(&x->self, 0);
    uint64_t sum = u64_add_sat(x->self.ptr[node], value);
    x->saturated |= sum > INT64_MAX;
    x->self.ptr[node] = MIN(sum, (uint64_t)INT64_MAX);
}

/* Marks the nodes between the root and a value; a leaf that is made again needs its callers only.
 * */
static int mark_needed(struct adding *a, struct err *e)
{
    const struct calltree_part *p = a->p;

    for (size_t i = 0; i < p->len; i++) {
        if (p->nodes[i] > p->stacks.nodes)
            return err_set(e, ERR_CORRUPT, "reply: value %zu stands at node %u of %zu", i,
                           p->nodes[i], p->stacks.nodes);
        if (p->values[i] == 0)
            continue;
        uint32_t node = p->nodes[i];
        if (a->x->how.aggregate_callees && node)
            node = p->stacks.node_parent[node - 1];
        a->needed[node] = 1;
    }
    for (size_t i = p->stacks.nodes; i > 0; i--)
        a->needed[p->stacks.node_parent[i - 1]] |= a->needed[i];
    return 0;
}

static int add_whole(struct adding *a, struct err *e)
{
    const struct stacks_view *v = &a->p->stacks;
    struct stacks *s = &a->x->stacks;

    if (mark_needed(a, e))
        return e->code;
    for (size_t i = 1; i <= v->nodes; i++) {
        if (canceled(a->cancel, i))
            return err_set(e, ERR_CANCELED, "the client went away");
        if (a->needed[i])
            a->node_at[i] = stacks_node(s, a->node_at[v->node_parent[i - 1]],
                                        frame_of(a, v->node_frame[i - 1]));
        if (a->node_at[i] == STACKS_FULL)
            return full(a->x, e);
    }
    for (size_t i = 0; i < a->p->len; i++) {
        uint32_t node = a->p->nodes[i], to = a->node_at[node];
        if (a->p->values[i] == 0)
            continue;
        if (node && a->x->how.aggregate_callees)
            to = stacks_node(s, a->node_at[v->node_parent[node - 1]],
                             leaf_of(a, v->node_frame[node - 1]));
        if (to == STACKS_FULL)
            return full(a->x, e);
        add_value(a->x, to, a->p->values[i]);
    }
    return 0;
}

static int add_innermost(struct adding *a, struct err *e)
{
    const struct stacks_view *v = &a->p->stacks;
    uint64_t keep = a->x->how.keep_locations;

    for (size_t i = 0; i < a->p->len; i++) {
        uint32_t node = a->p->nodes[i], to = 0;
        if (node > v->nodes)
            return err_set(e, ERR_CORRUPT, "reply: value %zu stands at node %u of %zu", i, node,
                           v->nodes);
        if (canceled(a->cancel, i + 1))
            return err_set(e, ERR_CANCELED, "the client went away");
        if (a->p->values[i] == 0)
            continue;
        a->frames.len = 0;
        for (uint32_t at = node; at && a->frames.len < keep; at = v->node_parent[at - 1]) {
            uint32_t frame = v->node_frame[at - 1];
            uint32_t here = at == node ? leaf_of(a, frame) : frame_of(a, frame);
            vec_push(&a->frames, here);
        }
        for (size_t k = a->frames.len; k > 0; k--)
            to = stacks_node(&a->x->stacks, to, a->frames.ptr[k - 1]);
        if (to == STACKS_FULL)
            return full(a->x, e);
        add_value(a->x, to, a->p->values[i]);
    }
    return 0;
}

NODISCARD int export_add(struct export_set *x, const struct calltree_part *p,
                         const atomic_bool *cancel, struct err *e)
{
    struct adding a = { .x = x, .p = p, .cancel = cancel };

    adding_init(&a);
    int code = x->how.keep_locations ? add_innermost(&a, e) : add_whole(&a, e);
    adding_deinit(&a);
    return code;
}

/* ---- all of them ------------------------------------------------------------------------------*/

void export_divide(struct export_set *x, uint64_t n)
{
    calltree_divide_values(x->self.ptr, x->self.len, n);
}

uint64_t export_total(const struct export_set *x)
{
    uint64_t sum = 0;

    vec_for (i, &x->self)
        sum = MIN(u64_add_sat(sum, x->self.ptr[i]), (uint64_t)INT64_MAX);
    return sum;
}

/* The node "other" below a kept one. */
static uint32_t other_of(struct stacks *s, uint32_t parent)
{
    struct frame f = { .func = stacks_string(s, STR("other")) };

    return stacks_node(s, parent, stacks_frame(s, &f));
}

NODISCARD int export_cut(struct export_set *x, size_t max_nodes, struct err *e)
{
    struct stacks *s = &x->stacks;
    size_t nodes = s->node_parent.len + 1;

    if (max_nodes == 0 || nodes - 1 <= max_nodes)
        return 0;
    while (x->self.len < nodes)
        vec_push(&x->self, 0);
    CLEANUP(xfreep) uint64_t *total = xmemdup(x->self.ptr, nodes * sizeof(uint64_t));
    CLEANUP(xfreep) uint32_t *kept = XNEW_ARRAY(uint32_t, nodes); /* a node, or the one above */
    for (size_t i = nodes - 1; i > 0; i--) {
        uint64_t *up = &total[s->node_parent.ptr[i - 1]];
        *up = MIN(u64_add_sat(*up, total[i]), (uint64_t)INT64_MAX);
    }
    uint64_t cut = calltree_cut(total, nodes, max_nodes, s->seed);
    for (size_t i = 1; i < nodes; i++) {
        kept[i] = total[i] >= cut ? (uint32_t)i : kept[s->node_parent.ptr[i - 1]];
        if (total[i] >= cut || x->self.ptr[i] == 0)
            continue;
        uint32_t other = other_of(s, kept[i]);
        if (other == STACKS_FULL)
            return full(x, e);
        uint64_t value = x->self.ptr[i];
        x->self.ptr[i] = 0;
        add_value(x, other, value);
    }
    return 0;
}

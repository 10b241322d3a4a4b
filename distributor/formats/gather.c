/* SPDX-License-Identifier: Apache-2.0
 *
 * gather: stacks, root first, to nodes and values.
 *
 * Stacks deeper than limits.frames_keep keep both ends around one mark, as in pprof_walk.c; the
 * hard limit is higher here, since a text of 16,000 frames is an honest recursion. Once there are
 * limits.stacks stacks, a further one keeps the frames it shares with them and ends in [overflow].
 */
#include "distributor/formats/gather.h"

#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/sys/pool.h"

#define MARK        "[truncated]"
#define EMPTY_FRAME "[unknown]"

void gather_init(struct gather *g, struct push *push, const struct limits *l, uint64_t period)
{
    *g = (struct gather){ .l = l, .push = push, .period = period, .overflow = STACKS_FULL };
    buf_init(&g->tmp, (size_t)l->symbol_bytes);
    map_u64_init(&g->by_name);
}

void gather_deinit(struct gather *g)
{
    vec_free(&g->values);
    vec_free(&g->known);
    vec_free(&g->last);
    map_u64_deinit(&g->by_name);
    buf_deinit(&g->tmp);
}

uint32_t gather_frame(struct gather *g, struct str name, struct str file, uint32_t line)
{
    struct stacks *s = &g->push->stacks;
    struct frame frame = { .line = line };
    size_t keep = (size_t)g->l->symbol_keep_bytes;

    if (name.len == 0)
        name = STR(EMPTY_FRAME);
    frame.func = stacks_string(s, push_symbol(g->push, name, keep, &g->tmp));
    if (file.len)
        frame.file = stacks_string(s, push_path(g->push, file, keep, &g->tmp));
    if (frame.func == STACKS_FULL || frame.file == STACKS_FULL)
        return STACKS_FULL;
    return stacks_frame(s, &frame);
}

/* The frame of a name without file and line. Normalising it costs more than finding it again. */
static uint32_t named_frame(struct gather *g, struct str name)
{
    const uint32_t next = (uint32_t)g->known.len;
    uint64_t key = hash64(name.ptr, name.len, g->push->stacks.seed);
    uint32_t at;

    while ((at = map_u64_put(&g->by_name, key, next)) != MAP_U64_EMPTY) {
        if (str_eq(g->known.ptr[at].raw, name))
            return g->known.ptr[at].frame;
        key = hash_u64(key + 1);
    }
    struct gather_name n = { .raw = arena_strdup(g->push->arena, name),
                             .frame = gather_frame(g, name, STR_NULL, 0) };
    if (!n.raw.ptr)
        n.frame = STACKS_FULL;
    vec_push(&g->known, n);
    return n.frame;
}

int gather_check_name(const struct gather *g, struct str name, const char *what, uint64_t n,
                      struct err *e)
{
    if (name.len > g->l->symbol_bytes)
        return err_set(e, ERR_LIMIT, "%s %" PRIu64 ": a frame of %zu bytes, at most %" PRIu64, what,
                       n, name.len, g->l->symbol_bytes);
    return 0;
}

int gather_charge(struct gather *g, size_t n, struct err *e)
{
    if (n > g->l->decode_bytes - g->bytes)
        return err_set(e, ERR_LIMIT,
                       "decoding takes more than %" PRIu64 " bytes of memory: record for a shorter "
                       "time, or raise distributor.decode_bytes",
                       g->l->decode_bytes);
    g->bytes += n;
    return 0;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static uint32_t overflow(struct gather *g, uint32_t node)
{
    g->over = true;
    if (g->overflow == STACKS_FULL)
        g->overflow = gather_frame(g, STR(PUSH_OVERFLOW), STR_NULL, 0);
    return stacks_node(&g->push->stacks, node, g->overflow);
}

/* As step, after the limit of stacks: follows nodes that exist, and ends in [overflow]. */
static uint32_t step_over(struct gather *g, uint32_t node, uint32_t frame)
{
    const struct stacks *s = &g->push->stacks;

    uint32_t known = frame == STACKS_FULL ? frame : stacks_node_known(s, node, frame);
    if (known != STACKS_FULL || frame == STACKS_FULL)
        return known;
    return overflow(g, node);
}

static uint32_t step(struct gather *g, uint32_t node, uint32_t frame)
{
    return UNLIKELY(g->stacks >= g->l->stacks) ? step_over(g, node, frame)
                                               : stacks_node(&g->push->stacks, node, frame);
}

static uint32_t frame_of(struct gather *g, const struct gather_stack *s, size_t i)
{
    if (s->ids)
        return s->ids[i];
    if (!g->follows)
        return named_frame(g, s->names[i]);
    if (g->last.ptr[i].frame == STACKS_FULL)
        g->last.ptr[i].frame = named_frame(g, s->names[i]);
    return g->last.ptr[i].frame;
}

/* Frames from .. to - 1 below node. */
static uint32_t walk(struct gather *g, const struct gather_stack *s, size_t from, size_t to,
                     uint32_t node)
{
    for (size_t i = from; i < to && node != STACKS_FULL && !g->over; i++)
        node = step(g, node, frame_of(g, s, i));
    return node;
}

/* The first n frames: those of the stack before have their nodes. */
static uint32_t walk_root(struct gather *g, const struct gather_stack *s, size_t n)
{
    if (!g->follows)
        return walk(g, s, 0, n, 0);
    size_t i = MIN(g->walked, n);
    uint32_t node = i ? g->last.ptr[i - 1].node : 0;
    while (i < n && !g->over) {
        node = step(g, node, frame_of(g, s, i));
        if (node == STACKS_FULL || g->over)
            break;
        g->last.ptr[i++].node = node;
        g->walked = i;
    }
    return node;
}

void gather_cut(struct gather *g, size_t n)
{
    g->follows = true;
    g->same = MIN(g->same, n);
}

/* What is not the same any more is forgotten. */
static void follow(struct gather *g, const struct gather_stack *s)
{
    const struct gather_step none = { STACKS_FULL, STACKS_FULL };

    g->same = MIN(g->same, g->last.len);
    g->walked = MIN(g->walked, g->same);
    g->last.len = g->same;
    while (g->last.len < s->n)
        vec_push(&g->last, none);
}

static uint32_t walk_deep(struct gather *g, const struct gather_stack *s)
{
    size_t keep = (size_t)g->l->frames_keep, root = keep / 2, leaf = keep - root - 1;
    uint32_t node = walk_root(g, s, root);

    g->push->drops[CHANGE_TRUNCATED]++;
    if (node != STACKS_FULL && !g->over && g->again > GATHER_AGAIN_MAX)
        return overflow(g, node);
    if (node != STACKS_FULL && !g->over)
        node = step(g, node, gather_frame(g, STR(MARK), STR_NULL, 0));
    size_t before = g->push->stacks.node_parent.len;
    node = walk(g, s, s->n - leaf, s->n, node);
    if (g->same > s->n - leaf)
        g->again += g->same - (s->n - leaf) +
                    GATHER_AGAIN_NODE * (g->push->stacks.node_parent.len - before);
    return node;
}

/* What the stack costs, however it is cut afterwards. */
static bool work_left(struct gather *g, const struct gather_stack *s)
{
    g->work += GATHER_WORK_STEP * (uint64_t)(s->n - g->same + 1);
    for (size_t i = g->same; !s->ids && i < s->n; i++)
        g->work += s->names[i].len;
    return g->work <= GATHER_WORK_MAX;
}

int gather_node(struct gather *g, const struct gather_stack *s, const char *what, uint64_t n,
                uint32_t *ret, struct err *e)
{
    static const struct str nameless = { NULL, 0 };
    static const struct gather_stack unknown = { .names = &nameless, .n = 1 };

    pool_slice();
    if (s->n == 0) {
        s = &unknown;
        g->same = 0;
    }
    CHECK(g->same <= s->n);
    if (s->n > g->l->text_frames)
        return err_set(e, ERR_LIMIT, "%s %" PRIu64 ": a stack of %zu frames, at most %" PRIu64,
                       what, n, s->n, g->l->text_frames);
    if (!work_left(g, s))
        return err_set(e, ERR_LIMIT, "%s %" PRIu64 ": too many frames in all stacks together", what,
                       n);
    size_t before = g->push->stacks.node_parent.len;
    g->over = false;
    if (g->follows)
        follow(g, s);
    uint32_t node = s->n > g->l->frames_keep ? walk_deep(g, s) : walk_root(g, s, s->n);
    g->same = g->follows && s != &unknown ? s->n : 0;
    g->stacks += !g->over && g->push->stacks.node_parent.len > before;
    g->push->drops[CHANGE_STACKS] += g->over;
    *ret = node;
    return node == STACKS_FULL ? push_full(g->push, e) : 0;
}

void gather_put(struct gather *g, uint32_t node, uint64_t count)
{
    uint64_t value;

    while (g->values.len <= node)
        vec_push(&g->values, 0);
    if (!u64_mul(count, g->period, &value) || value > INT64_MAX) {
        value = INT64_MAX;
        g->push->drops[CHANGE_SATURATED]++;
    }
    g->values.ptr[node] = push_sum(g->push, g->values.ptr[node], value);
}

int gather_add(struct gather *g, const struct gather_stack *s, uint64_t count, const char *what,
               uint64_t n, struct err *e)
{
    uint32_t node;

    if (g->taken++ >= g->l->samples)
        return err_set(e, ERR_LIMIT,
                       "%s %" PRIu64 ": more than %" PRIu64
                       " stacks: record for a shorter time, or raise distributor.samples",
                       what, n, g->l->samples);
    if (count == 0) /* checked, but it makes no nodes */
        return s->n > g->l->text_frames
                   ? err_set(e, ERR_LIMIT,
                             "%s %" PRIu64 ": a stack of %zu frames, at most %" PRIu64, what, n,
                             s->n, g->l->text_frames)
                   : 0;
    if (gather_node(g, s, what, n, &node, e))
        return e->code;
    gather_put(g, node, count);
    return 0;
}

/* ---- the series ------------------------------------------------------------------------------ */

/* The push keeps nothing of the body: the values of the labels are copied. */
static bool keep_labels(struct gather *g, const struct labels *extra, struct labels *ret)
{
    *ret = (struct labels){ ARENA_ARRAY(g->push->arena, struct label, extra->len + 1), extra->len };
    if (!ret->ptr)
        return false;
    for (size_t i = 0; i < extra->len; i++) {
        ret->ptr[i] =
            (struct label){ extra->ptr[i].name, arena_strdup(g->push->arena, extra->ptr[i].value) };
        if (!ret->ptr[i].value.ptr)
            return false;
    }
    return true;
}

int gather_series(struct gather *g, const struct ptype *t, const struct labels *extra,
                  struct err *e)
{
    struct labels labels;
    struct push_series s = { .unit = g->period };
    size_t n = 0, at = 0;

    for (size_t i = 0; i < g->values.len; i++)
        n += g->values.ptr[i] > 0;
    if (n == 0)
        return 0;
    uint32_t *nodes = arena_alloc(g->push->arena, n * sizeof(*nodes));
    uint64_t *values = arena_alloc(g->push->arena, n * sizeof(*values));
    if (!nodes || !values || !keep_labels(g, extra, &labels))
        return push_full(g->push, e);
    for (size_t i = 0; i < g->values.len; i++) {
        if (g->values.ptr[i] == 0)
            continue;
        nodes[at] = (uint32_t)i;
        values[at++] = g->values.ptr[i];
    }
    s.nodes = nodes;
    s.values = values;
    s.len = n;
    g->values.len = 0;
    return push_add(g->push, t, &labels, &s, e);
}

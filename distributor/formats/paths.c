/* SPDX-License-Identifier: Apache-2.0
 *
 * paths: stacks to nodes through a trie.
 *
 * Too deep stacks keep both ends: the root side says what it belongs to, the leaf says where the
 * time went; between them stands one mark. Once there are limits.stacks stacks, a further one keeps
 * the frames it shares with them and ends in [overflow]; totals stay.
 */
#include "distributor/formats/paths.h"

#define MARK "[truncated]"
#define DEEP_MAX \
    (32u << 20) /* frames of all too deep stacks of a push: they are walked one by one */
#define NO_FRAME UINT32_MAX

void paths_init(struct paths *p, struct push *push, const struct limits *l)
{
    *p = (struct paths){ .push = push, .l = l, .overflow_frame = NO_FRAME };
    trie_init(&p->trie, &push->stacks);
}

void paths_reserve(struct paths *p, size_t nodes)
{
    trie_reserve(&p->trie, nodes);
}

void paths_deinit(struct paths *p)
{
    trie_deinit(&p->trie);
}

static uint32_t named_frame(struct paths *p, const char *name)
{
    struct frame f = { .func = stacks_string(&p->push->stacks, str_c(name)) };
    uint32_t frame = f.func == STACKS_FULL ? STACKS_FULL : stacks_frame(&p->push->stacks, &f);

    p->full |= frame == STACKS_FULL;
    return frame;
}

/* As walk_frames, after the limit of stacks: follows nodes that exist, and ends in [overflow]. */
static uint32_t walk_over(struct paths *p, uint32_t parent, const uint32_t *frames, size_t n)
{
    if (p->overflow_frame == NO_FRAME)
        p->overflow_frame = named_frame(p, PUSH_OVERFLOW);
    if (p->full)
        return STACKS_FULL;
    if (parent && p->push->stacks.node_frame.ptr[parent - 1] == p->overflow_frame)
        return parent; /* a deep stack that ended there already */
    uint32_t node = trie_known(&p->trie, parent, frames, &n);
    if (n == 0)
        return node;
    p->over = true;
    node = trie_walk(&p->trie, node, &p->overflow_frame, 1);
    p->full |= node == STACKS_FULL;
    return node;
}

/* n frames, leaf first, below parent. */
static uint32_t walk_frames(struct paths *p, uint32_t parent, const uint32_t *frames, size_t n)
{
    size_t before = p->trie.nodes.len;

    if (p->full)
        return STACKS_FULL;
    if (UNLIKELY(p->stacks >= p->l->stacks))
        return walk_over(p, parent, frames, n);
    uint32_t node = trie_walk(&p->trie, parent, frames, n);
    p->full |= node == STACKS_FULL;
    p->grew |= p->trie.nodes.len > before;
    return node;
}

static uint32_t walk_named(struct paths *p, uint32_t parent, const char *name)
{
    uint32_t frame = named_frame(p, name);

    return walk_frames(p, parent, &frame, 1);
}

static uint32_t walk_deep(struct paths *p, const uint32_t *frames, size_t n)
{
    size_t keep = (size_t)p->l->frames_keep, root = keep / 2, leaf = keep - root - 1;
    uint32_t node = walk_frames(p, 0, frames + n - root, root);

    node = walk_named(p, node, MARK);
    p->push->drops[CHANGE_TRUNCATED]++;
    return walk_frames(p, node, frames, leaf);
}

int paths_too_deep(const struct paths *p, struct err *e)
{
    return err_set(e, ERR_LIMIT, "a sample has a stack of more than %" PRIu64 " frames",
                   p->l->frames);
}

int paths_node(struct paths *p, const uint32_t *frames, size_t n, uint32_t *ret, struct err *e)
{
    bool deep = n > p->l->frames_keep;

    if (n > p->l->frames)
        return paths_too_deep(p, e);
    p->deep_frames += deep ? n : 0;
    if (p->deep_frames > DEEP_MAX)
        return err_set(e, ERR_LIMIT, "stacks of over %" PRIu64 " frames have %u together",
                       p->l->frames_keep, DEEP_MAX);
    p->grew = p->over = false;
    if (p->full)
        return push_full(p->push, e);
    *ret = n == 0 ? walk_named(p, 0, PATHS_NO_STACK)
           : deep ? walk_deep(p, frames, n)
                  : walk_frames(p, 0, frames, n);
    p->stacks += p->grew;
    p->push->drops[CHANGE_STACKS] += p->over;
    return p->full ? push_full(p->push, e) : 0;
}

int paths_append(struct paths *p, uint32_t parent, const uint32_t *frames, size_t n, uint32_t *ret,
                 struct err *e)
{
    CHECK(paths_open(p));
    *ret = trie_append(&p->trie, parent, frames, n);
    p->full |= *ret == STACKS_FULL;
    p->stacks += !p->full;
    return p->full ? push_full(p->push, e) : 0;
}

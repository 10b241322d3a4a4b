/* SPDX-License-Identifier: Apache-2.0
 *
 * trie.c: lists of children, and one table for the nodes that have more than LIST_MAX.
 *
 * `last` is apart from `nodes`, because a walk reads only it as long as samples take the child that
 * the previous one took. A child that was found is moved to the front of its list. The nodes are
 * those of the stacks builder, in the same order: node i of the trie is node i of the stacks.
 */
#include "distributor/formats/trie.h"

#define LIST_MAX 24 /* children; more are found by the table */

void trie_init(struct trie *t, struct stacks *empty)
{
    struct trie_node root = { 0 };
    struct trie_last none = { 0 };

    CHECK(empty->node_parent.len == 0);
    *t = (struct trie){ .stacks = empty };
    vec_push(&t->nodes, root);
    vec_push(&t->last, none);
}

void trie_reserve(struct trie *t, size_t nodes)
{
    vec_reserve(&t->nodes, t->nodes.len + nodes);
    vec_reserve(&t->last, t->last.len + nodes);
}

void trie_deinit(struct trie *t)
{
    vec_free(&t->nodes);
    vec_free(&t->last);
    map_u64_deinit(&t->many);
}

static uint64_t many_key(const struct trie *t, uint32_t parent, uint32_t frame)
{
    return ((uint64_t)parent << 32 | frame) ^ t->stacks->seed;
}

/* In front of the list it was found in: the next sample is likely to come the same way. */
static uint32_t list_find(struct trie *t, uint32_t parent, uint32_t frame)
{
    struct trie_node *n = t->nodes.ptr;
    uint32_t before = t->last.ptr[parent].child;

    for (uint32_t at = before ? n[before].sibling : 0; at; before = at, at = n[at].sibling) {
        if (n[at].frame != frame)
            continue;
        n[before].sibling = n[at].sibling;
        n[at].sibling = t->last.ptr[parent].child;
        return at;
    }
    return 0;
}

/* The list has become long: its children move to the table. */
static void list_to_table(struct trie *t, uint32_t parent)
{
    const struct trie_node *n = t->nodes.ptr;

    for (uint32_t at = t->last.ptr[parent].child; at; at = n[at].sibling)
        map_u64_put(&t->many, many_key(t, parent, n[at].frame), at);
}

uint32_t trie_find(struct trie *t, uint32_t parent, uint32_t frame)
{
    uint32_t at;

    if (t->last.ptr[parent].child == 0)
        return 0;
    at = t->nodes.ptr[parent].children > LIST_MAX
             ? map_u64_get(&t->many, many_key(t, parent, frame))
             : list_find(t, parent, frame);
    if (at == 0 || at == MAP_U64_EMPTY)
        return 0;
    t->last.ptr[parent] = (struct trie_last){ frame, at };
    return at;
}

/* `first` is the new child of parent. */
static void add_child(struct trie *t, uint32_t parent, uint32_t first, uint32_t frame)
{
    struct trie_node *up = &t->nodes.ptr[parent];

    t->nodes.ptr[first].sibling = t->last.ptr[parent].child;
    t->last.ptr[parent] = (struct trie_last){ frame, first };
    if (++up->children == LIST_MAX + 1)
        list_to_table(t, parent);
    else if (up->children > LIST_MAX)
        map_u64_put(&t->many, many_key(t, parent, frame), first);
}

uint32_t trie_append(struct trie *t, uint32_t parent, const uint32_t *frames, size_t n)
{
    uint32_t leaf = stacks_chain_new(t->stacks, parent, frames, n);
    size_t len = t->nodes.len;

    if (leaf == STACKS_FULL)
        return leaf;
    DCHECK(leaf + 1 == len + n);
    vec_reserve(&t->nodes, len + n);
    vec_reserve(&t->last, len + n);
    struct trie_node *nodes = t->nodes.ptr + len;
    struct trie_last *last = t->last.ptr + len;
    for (size_t i = 0; i < n; i++) { /* each the only child of the one before */
        nodes[i] = (struct trie_node){ frames[n - 1 - i], 0, 1 };
        last[i] = (struct trie_last){ i + 1 < n ? frames[n - 2 - i] : 0, (uint32_t)(len + i + 1) };
    }
    nodes[n - 1].children = 0;
    last[n - 1] = (struct trie_last){ 0 };
    t->nodes.len = t->last.len = len + n;
    add_child(t, parent, (uint32_t)len, frames[n - 1]);
    return leaf;
}

uint32_t trie_known(struct trie *t, uint32_t parent, const uint32_t *frames, size_t *n)
{
    while (*n > 0) {
        struct trie_last last = t->last.ptr[parent];
        uint32_t child = last.child && last.frame == frames[*n - 1]
                             ? last.child
                             : trie_find(t, parent, frames[*n - 1]);
        if (!child)
            break;
        parent = child;
        --*n;
    }
    return parent;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * trie.h: nodes of a stacks builder found by walking instead of by hashing.
 *
 * stacks_node looks every edge up in one table for the whole push: a cache miss per frame. Here
 * each node keeps its children in a list, the last one taken in front. In a profile most nodes have
 * one child, or a child that most samples take, so a step is a load and a comparison in memory that
 * was just touched. A node with many children (an event loop with thousands of handlers) gets a
 * table. Once a trie has added to a builder, stacks_node must not be used on that builder any more.
 */
#ifndef DISTRIBUTOR_FORMATS_TRIE_H
#define DISTRIBUTOR_FORMATS_TRIE_H

#include "common/model/stacks.h"

struct trie_last {
    uint32_t frame; /* of the child taken last */
    uint32_t child; /* 0 = none */
};
struct trie_node {
    uint32_t frame;
    uint32_t sibling; /* next child of the same parent; 0 = none */
    uint32_t children;
};
struct trie {
    struct stacks *stacks;       /* borrowed; its node i is node i here */
    VEC(struct trie_last) last;  /* owned; by node, 0 is the root: all that most steps touch */
    VEC(struct trie_node) nodes; /* owned; by node */
    struct map_u64 many;         /* (parent, frame) -> child, of nodes with many children */
};

void trie_init(struct trie *t, struct stacks *empty);
void trie_reserve(struct trie *t, size_t nodes);
void trie_deinit(struct trie *t);
/* The child of parent for this frame among those not taken last; 0: not found. */
uint32_t trie_find(struct trie *t, uint32_t parent, uint32_t frame);
/* A path that is not there yet: n > 0 frames, leaf first, below parent, which has no child for the
 * root-most of them. */
uint32_t trie_append(struct trie *t, uint32_t parent, const uint32_t *frames, size_t n);

/* The child of parent for this frame; 0: not found. */
static inline uint32_t trie_step(struct trie *t, uint32_t parent, uint32_t frame)
{
    struct trie_last last = t->last.ptr[parent];

    return LIKELY(last.frame == frame && last.child) ? last.child : trie_find(t, parent, frame);
}

/* The node of a path of n frames, leaf first, below parent; STACKS_FULL over the budget of the
 * builder. Once a step leads nowhere, the rest of the path is new. */
static inline uint32_t trie_walk(struct trie *t, uint32_t parent, const uint32_t *frames, size_t n)
{
    const struct trie_last *last = t->last.ptr;

    while (n > 0) {
        struct trie_last step = last[parent];
        if (LIKELY(step.frame == frames[n - 1] && step.child))
            parent = step.child;
        else if ((step.child = trie_find(t, parent, frames[n - 1])) != 0)
            parent = step.child;
        else
            return trie_append(t, parent, frames, n);
        n--;
    }
    return parent;
}

/* The deepest node on the same path that is there; *n frames are left below it. */
uint32_t trie_known(struct trie *t, uint32_t parent, const uint32_t *frames, size_t *n);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * paths.h: stacks as frames, leaf first, to nodes, under the limits all formats share: too deep
 * ones lose their middle, too many end in [overflow], an empty one is [unknown].
 */
#ifndef DISTRIBUTOR_FORMATS_PATHS_H
#define DISTRIBUTOR_FORMATS_PATHS_H

#include "distributor/formats/push.h"
#include "distributor/formats/trie.h"

#define PATHS_NO_STACK "[unknown]"
#define PATHS_NO_NAME  "<no name>" /* a function that has none */

struct paths {
    struct push *push; /* borrowed */
    const struct limits *l;
    struct trie trie; /* of push->stacks: no other code may add nodes to them */
    uint64_t stacks;  /* that brought a node */
    uint64_t deep_frames;
    bool grew, over;         /* the stack being walked: brought one; would have */
    uint32_t overflow_frame; /* UINT32_MAX before it is needed */
    bool full;               /* memory ran out, here or (set by the caller) for a frame */
};

void paths_init(struct paths *p, struct push *push, const struct limits *l);
void paths_reserve(struct paths *p, size_t nodes); /* makes room for so many */
void paths_deinit(struct paths *p);
/* The node of n frames of push->stacks. ERR_LIMIT: too deep, or no room left (p->full too). */
NODISCARD int paths_node(struct paths *p, const uint32_t *frames, size_t n, uint32_t *ret,
                         struct err *e);
/* For callers that walk the trie themselves: may it grow by one stack more? Then, what is new of a
 * stack: n > 0 frames, leaf first, below parent, which has no child for the root-most of them. */
static inline bool paths_open(const struct paths *p)
{
    return !p->full && p->stacks < p->l->stacks;
}
NODISCARD int paths_append(struct paths *p, uint32_t parent, const uint32_t *frames, size_t n,
                           uint32_t *ret, struct err *e);
/* ERR_LIMIT for a stack of more frames than may be, before they are collected. */
int paths_too_deep(const struct paths *p, struct err *e);

#endif

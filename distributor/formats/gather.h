/* SPDX-License-Identifier: Apache-2.0
 *
 * gather.h: stacks whose frames stand root first, one after the other, to one series. For every
 * format but pprof, OTLP and JFR: text, trie, tree, speedscope and what people upload by hand.
 */
#ifndef DISTRIBUTOR_FORMATS_GATHER_H
#define DISTRIBUTOR_FORMATS_GATHER_H

#include "common/model/ptype.h"
#include "distributor/formats/push.h"

/* A stack costs 16 per frame and 1 per byte of a name, but for what it has in common with the one
 * before, where that is known (gather_cut). Text cannot pass this within the limits of a body; a
 * small file of deep stacks that refer to each other could stand for hours of walking. */
#define GATHER_WORK_MAX  (UINT64_C(1) << 30)
#define GATHER_WORK_STEP 16
/* Of stacks that are too deep, the leaf's side is walked again even then: so many frames of a body,
 * of which a frame that becomes a node counts more. After that, stacks that deep end in [overflow].
 * */
#define GATHER_AGAIN_MAX  (UINT64_C(8) << 20)
#define GATHER_AGAIN_NODE 8

/* A frame of the stack before. STACKS_FULL: not asked for so far. */
struct gather_step {
    uint32_t frame, node;
};
/* A name as it came, copied; most names of a body are there hundreds of times. */
struct gather_name {
    struct str raw;
    uint32_t frame;
};
struct gather {
    const struct limits *l;
    struct push *push;             /* borrowed */
    uint64_t period;               /* a count is worth so much */
    VEC(uint64_t) values;          /* owned; by node */
    uint64_t taken;                /* stacks, good ones */
    uint64_t stacks;               /* that brought a node; not reset by gather_series */
    uint32_t overflow;             /* its frame; STACKS_FULL before it is needed */
    bool over;                     /* the stack being walked ended in it */
    uint64_t work;                 /* done so far; GATHER_WORK_MAX ends it */
    bool follows;                  /* the caller says what stacks have in common */
    VEC(struct gather_step) last;  /* owned; of the stack before, if so */
    size_t same;                   /* frames that are the same in the next one */
    size_t walked;                 /* of those have their nodes */
    uint64_t again;                /* frames walked though they are the same */
    VEC(struct gather_name) known; /* owned; names of stacks seen before */
    struct map_u64 by_name;        /* hash of a name -> known; contents are compared */
    size_t bytes;                  /* charged, see gather_charge */
    struct buf tmp;
};
/* One stack, root first: frame ids, or names where ids is NULL. */
struct gather_stack {
    const uint32_t *ids;
    const struct str *names;
    size_t n;
};

/* push is initialised and has its base. */
void gather_init(struct gather *g, struct push *push, const struct limits *l, uint64_t period);
void gather_deinit(struct gather *g);
/* For what a format keeps besides, before it grows by n bytes: ERR_LIMIT beyond
 * limits.decode_bytes. */
NODISCARD int gather_charge(struct gather *g, size_t n, struct err *e);
/* For stacks that grow and shrink at the leaf, one from the other: of the stack before only its
 * first n frames are those of the next one. From the first call on it must be said each time a
 * frame goes. */
void gather_cut(struct gather *g, size_t n);
/* A frame by name, normalised; "" is [unknown]. file may be empty, line 0. STACKS_FULL: no room,
 * which the calls below pass on. */
uint32_t gather_frame(struct gather *g, struct str name, struct str file, uint32_t line);
/* ERR_LIMIT for a name longer than any may be; what and n name the place ("line", 3). */
NODISCARD int gather_check_name(const struct gather *g, struct str name, const char *what,
                                uint64_t n, struct err *e);
/* The node of a stack; an empty one is [unknown]. Deeper ones than limits.frames_keep keep both
 * ends around one mark, deeper ones than limits.text_frames are ERR_LIMIT. */
NODISCARD int gather_node(struct gather *g, const struct gather_stack *s, const char *what,
                          uint64_t n, uint32_t *ret, struct err *e);
/* Adds count * period to a node. */
void gather_put(struct gather *g, uint32_t node, uint64_t count);
/* Both, for one sample: there are limits.samples at most. A count of 0 is checked only. */
NODISCARD int gather_add(struct gather *g, const struct gather_stack *s, uint64_t count,
                         const char *what, uint64_t n, struct err *e);
/* Adds all values gathered since the last call as a series; without values it adds none. Names of
 * labels must be static; their values are copied. */
NODISCARD int gather_series(struct gather *g, const struct ptype *t, const struct labels *extra,
                            struct err *e);

#endif

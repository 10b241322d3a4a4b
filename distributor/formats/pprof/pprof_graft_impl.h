/* SPDX-License-Identifier: Apache-2.0
 *
 * pprof_graft_impl.h: what the files of pprof_graft share. Definitions and the rule: pprof_graft.c.
 */
#ifndef DISTRIBUTOR_FORMATS_PPROF_PPROF_GRAFT_IMPL_H
#define DISTRIBUTOR_FORMATS_PPROF_PPROF_GRAFT_IMPL_H

#include "common/base/map.h"
#include "distributor/formats/pprof/pprof_graft.h"

#define GRAFT_WINDOW  16 /* locations; fewer are shared by stacks of different roots */
#define GRAFT_IDS_MAX (UINT32_C(1) << 20)
#define GRAFT_DEPTHS  2

struct graft_form {
    const char *type;
    uint32_t depths[GRAFT_DEPTHS]; /* ascending; 0: none */
    uint32_t hidden;
};

/* The location ids of a sample. */
struct graft_packed {
    uint32_t at, len; /* bytes of the body; len 0: they have another form than Go's */
    uint32_t root;    /* position of the outermost location; PPROF_NONE: no location */
    uint32_t lines;   /* frames; 0: not counted yet */
    uint32_t from, n; /* as in struct graft_stack; n 0: not kept in graft.ids */
    uint32_t want;    /* index in graft.wants; PPROF_NONE: the stack is not cut */
};

/* A stack of more than GRAFT_WINDOW locations, of one sample or several adjacent ones. */
struct graft_stack {
    uint32_t from, len;       /* positions of its locations in graft.ids, leaf first */
    uint32_t sample, samples; /* the first of them, and how many */
    uint32_t lines;
    uint32_t added; /* locations that were grafted on */
    uint32_t want;  /* as in struct graft_packed */
    bool complete;
    bool cut; /* and without a root so far */
};

/* The window of a cut stack, and the prefixes that other stacks have for it in this round; from
 * inside out, as stacks are. */
struct graft_want {
    uint32_t window;         /* index in graft.ids */
    uint32_t root, root_len; /* the prefix of complete stacks; root PPROF_NONE: none yet */
    uint32_t part, part_len; /* the longest prefix of cut stacks */
    bool ambiguous;
    bool decided; /* in a round before: its stacks have a root, or get none */
};

/* A stack has the window of a cut one. */
struct graft_place {
    uint32_t stack; /* index in graft.stacks */
    uint32_t at;    /* locations of the stack before the window */
    uint32_t want;
};

/* Marks of a location. */
#define GRAFT_KNOWN_ROOT 1
#define GRAFT_OUTERMOST  2 /* of the window of a cut stack */
#define GRAFT_INNERMOST  4
#define GRAFT_OF_GO      8
#define GRAFT_OF_ASM     16
#define GRAFT_OF_OTHERS  32

struct graft {
    const struct pprof *p;
    const struct limits *l;
    const uint8_t *body_end;
    uint64_t seed;
    const struct graft_form *form;
    uint32_t depth;              /* the limit */
    uint8_t *marks;              /* by location */
    uint8_t *lines;              /* by location: frames of it, at most UINT8_MAX */
    struct graft_packed *packed; /* by sample */
    bool too_many;               /* locations for GRAFT_IDS_MAX */
    VEC(uint32_t) ids;           /* positions of locations in p; the stacks */
    VEC(struct graft_stack) stacks;
    VEC(struct graft_place) places;
    VEC(struct graft_want) wants;
    struct map_u64 by_hash; /* of a window, to its want */
};

/* ---- pprof_graft_read.c ---- */

/* The ids of a sample as bytes, if it has the form that Go writes; empty otherwise. */
struct str graft_packed_ids(const struct pprof *p, size_t sample);
/* Finds the limit of the profile and what is cut by it: marks, wants and stacks are made. False:
 * nothing is cut, or there are too many locations, or too little memory is left in `a`. */
NODISCARD bool graft_read(struct graft *g, struct arena *a);

/* ---- pprof_graft.c ---- */

/* The want of the GRAFT_WINDOW locations at `window`; PPROF_NONE: not found, and not `add`. */
uint32_t graft_find_want(struct graft *g, uint32_t window, bool add);
/* Notes the windows of cut stacks that end in the locations `from` .. of the stack. */
void graft_find_places(struct graft *g, uint32_t stack, uint32_t from);

#endif

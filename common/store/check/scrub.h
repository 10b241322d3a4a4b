/* SPDX-License-Identifier: Apache-2.0
 *
 * scrub.h: verifies a database while it serves, a little at a time: a round looks at every sealed
 * row once, and at every built node against its children.
 *
 *   rows    can be read from the disk, their checksums hold, and a vector's total is that of its
 *           entries
 *   nodes   total, writes and F of each row are the sums of its children's; of a sample, every
 *           entry; no row is missing and none is there without children
 *
 * A wrong node above the base level is not lost: its children are there, so it is marked and built
 * again. A row nothing can be built from (a leaf, a base node) is; that is said loudly, and what is
 * above it keeps what it had.
 */
#ifndef COMMON_STORE_CHECK_SCRUB_H
#define COMMON_STORE_CHECK_SCRUB_H

#include "common/store/build/build.h"
#include "common/store/store.h"

enum scrub_kind {
    SCRUB_NODE, /* not the sum of its children: store_scrub_mark helps */
    SCRUB_ROW,  /* damaged, and the truth of its place */
};
struct scrub_finding {
    enum scrub_kind kind;
    struct build_node node; /* SCRUB_NODE */
    char text[ERR_TEXT_MAX];
};
/* Where a round stands. All zero: at the start. */
struct scrub {
    uint32_t phase; /* private, as all of them */
    size_t key_len;
    char key[64]; /* the next row, of phases that walk rows */
    struct build_node node;
    struct build_cursor cursor;
    bool in_node;
    uint64_t rows, nodes, sampled; /* looked at in this round */
    uint64_t away; /* nodes skipped because a row of them or of a child is remote (cold_read.h) */
    bool done;     /* set when a round ends; clear the struct for the next one */
};
struct scrub_found {
    VEC(struct scrub_finding) at; /* appended to; at most SCRUB_FOUND_MAX */
    uint64_t more;                /* that did not fit */
};
#define SCRUB_FOUND_MAX 64

struct scrub_opts {
    size_t rows_max;     /* about so many rows are read in a step */
    uint32_t sample;     /* of one node in so many each entry is compared; 0: of no node */
    struct arena *arena; /* borrowed; holds the rows of one job and is reset for each */
};
/* One step of a round. ERR_ codes: the step could not read; the next one continues the round. Any
 * thread; one at a time per struct scrub. */
NODISCARD int store_scrub(struct store_view *v, struct scrub *s, const struct scrub_opts *o,
                          struct scrub_found *ret, struct err *e);
/* Shard thread: marks the node and all above it, so that they are built again. */
NODISCARD int store_scrub_mark(struct store *s, const struct build_node *n, struct err *e);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * year_impl.h: what the files behind year.h share.
 */
#ifndef TESTS_LIB_GEN_YEAR_IMPL_H
#define TESTS_LIB_GEN_YEAR_IMPL_H

#include "common/base/hash.h"
#include "tests/lib/gen/year.h"

#define YEAR_MOODS 16

struct year_alias {
    uint32_t cut, stack, other;
    uint32_t rank[2]; /* of both */
};
struct year_mood {
    struct year_alias *at; /* owned */
    size_t len;
    double share, period_slots;
};
/* A vector of the request while it is made: where its columns begin in the long ones. */
struct year_part {
    uint32_t series, slot;
    size_t first, len;
};
struct year_series {
    size_t parts; /* how many */
    struct hash128 id;
    struct year_labels labels;
};
/* Columns of the stacks of a request, and what each id of all stacks is there. */
struct year_columns {
    VEC(uint32_t) node, frame, string; /* ids of all stacks, ascending: new id is the index */
    uint32_t *node_id, *frame_id, *string_id; /* owned: by old id; 0: not used */
    size_t node_cap, frame_cap, string_cap;
    struct buf string_data;
    VEC(uint32_t) string_len, func, file, line, module, parent, node_frame;
    VEC(uint64_t) addr;
};
struct year {
    struct year_opts o;
    struct year_stacks stacks;
    struct year_mood moods[YEAR_MOODS];
    /* Owned. A rank is a stack's place in the order of nodes. */
    uint32_t *counts; /* by rank, zero between profiles */
    uint64_t *hit;    /* bits by rank, the same */
    uint32_t *rank_of, *rank_node;
    bool ranked; /* as of the last deploy */
    uint32_t *nodes;
    uint64_t *values;

    /* The request. */
    uint32_t *member_of; /* owned; by pod: its last member + 1, 0: none */
    VEC(struct year_series) members;
    VEC(struct year_part) parts;
    VEC(uint32_t) all_nodes;
    VEC(uint64_t) all_values;
    struct year_columns c;
    VEC(struct store_series) series;
    VEC(struct store_vector) vectors;
    struct stacks_view view;
    struct store_write write;
};
void year_request_init(struct year *y);
void year_request_deinit(struct year *y);

#endif

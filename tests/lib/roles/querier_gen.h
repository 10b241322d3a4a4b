/* SPDX-License-Identifier: Apache-2.0
 *
 * querier_gen.h: random replies for tests of the querier, and a slow obvious model of merging.
 */
#ifndef TESTS_LIB_ROLES_QUERIER_GEN_H
#define TESTS_LIB_ROLES_QUERIER_GEN_H

#include "common/base/prng.h"
#include "common/render/calltree.h"

struct gen_opts {
    size_t nodes_max;           /* of the stacks */
    size_t functions;           /* few: the same names meet often */
    size_t frames_per_function; /* lines */
    double value_chance;        /* share of nodes with a self value */
    uint64_t value_max;
    bool chain;        /* one deep stack instead of a bush */
    bool unsymbolized; /* some frames have no function */
};
/* One reply with storage of its own. */
struct gen_part {
    struct stacks stacks;
    VEC(uint32_t) nodes;
    VEC(uint64_t) values;
    struct calltree_part part;
};
void gen_part_make(struct gen_part *g, struct prng *p, const struct gen_opts *o);
void gen_part_free(struct gen_part *g);

/* The model: every path of names with its self value, joined by '\n'. */
struct gen_path {
    char *text; /* owned */
    uint64_t self, total;
    uint32_t depth; /* of the last frame; the root has 0 */
};
struct gen_model {
    VEC(struct gen_path) paths; /* includes the root "" and every inner node; unordered */
};
void gen_model_add(struct gen_model *m, const struct gen_part *g);
void gen_model_totals(struct gen_model *m);
struct gen_path *gen_model_find(const struct gen_model *m, struct str text);
void gen_model_free(struct gen_model *m);

#endif

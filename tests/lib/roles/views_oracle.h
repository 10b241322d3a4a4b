/* SPDX-License-Identifier: Apache-2.0
 *
 * views_oracle.h: views of a profile by the most obvious code there is: full stacks as lists of
 * names with a value, and maps of text to sums. What trees are compared with.
 */
#ifndef TESTS_LIB_ROLES_VIEWS_ORACLE_H
#define TESTS_LIB_ROLES_VIEWS_ORACLE_H

#include "tests/lib/roles/querier_gen.h"

struct oracle_sum {
    char *text; /* owned */
    uint64_t self, total;
};
/* Sums by text: a name, or a path joined by '\n'. */
struct oracle {
    VEC(struct oracle_sum) sums;
    uint64_t total;
};
void oracle_free(struct oracle *o);
/* NULL: none. */
const struct oracle_sum *oracle_find(const struct oracle *o, struct str text);

/* Functions with their self and total. */
void oracle_top(struct oracle *o, const struct gen_model *m);
/* Paths from the root of the stacks that contain the function; of its callees and callers, each
 * beginning with it. Inner nodes too. */
void oracle_focus(struct oracle *o, const struct gen_model *m, struct str name);
void oracle_callees(struct oracle *o, const struct gen_model *m, struct str name);
void oracle_callers(struct oracle *o, const struct gen_model *m, struct str name);
/* The paths of a tree, as oracle sums; nodes whose total is 0 are left out. */
void oracle_of_tree(struct oracle *o, const struct calltree *t);
/* 0 if both hold the same; else prints where they differ. */
int oracle_differ(const struct oracle *a, const struct oracle *b);

#endif

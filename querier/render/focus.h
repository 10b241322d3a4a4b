/* SPDX-License-Identifier: Apache-2.0
 *
 * focus.h: the part of a call tree that concerns one function, and its sandwich: its callers and
 * its callees. Exact: of the whole tree, before anything is cut.
 *
 * Where a function calls itself, by whatever way, a stack counts once, at its outermost call: so
 * the total of both halves is the function's total (top.h), and each caller above joins to the
 * callees below as in the stack. The recursion is then seen in the callees.
 *
 * Names of what is made are borrowed from the tree, which must outlive it. Thread: one at a time.
 */
#ifndef QUERIER_RENDER_FOCUS_H
#define QUERIER_RENDER_FOCUS_H

#include <stdatomic.h>

#include "common/render/calltree.h"

/* Takes the value from every stack that does not contain the function. */
void focus_keep(struct calltree *t, uint32_t name);
/* Takes the value from every stack that does not begin with the path to the node. */
void focus_below(struct calltree *t, uint32_t node);

struct sandwich {
    struct calltree callees; /* root > function > what it calls > .. */
    struct calltree callers; /* root > function > what calls it > .. > where the stack begins */
    uint64_t self, total;    /* of the function */
    bool cut;                /* callers were left out: bars "other" */
};
/* Memory it takes at most, beside the tree; of a layout of each half too. */
size_t sandwich_cost(const struct calltree *t, uint32_t name, size_t max_nodes);
/* The callers are cut to the max_nodes largest (0: all of them) while they are made, since a tree
 * turned round may be larger than the tree by the depth of its stacks. Of equal ones at the limit
 * those nearer to the function stay, then those first by name. What is cut is a child "other".
 * ERR_LIMIT: more work than is allowed; ERR_CANCELED. sandwich_deinit in any case. */
NODISCARD int sandwich_init(struct sandwich *s, const struct calltree *t, uint32_t name,
                            size_t max_nodes, const atomic_bool *cancel, struct err *e);
void sandwich_deinit(struct sandwich *s);

#endif

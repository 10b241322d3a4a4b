/* SPDX-License-Identifier: Apache-2.0
 *
 * select_flat.h: sums below a call site, known by leaf, as points of a timeline of seconds: each
 * push counts over the slots it covers, as in timelines of whole profiles (common/store/TREE.md,
 * section 7). Pure.
 */
#ifndef QUERIER_API_FLAME_SELECT_FLAT_H
#define QUERIER_API_FLAME_SELECT_FLAT_H

#include "common/model/slot.h"
#include "querier/ask/plan.h"

#define FLAT_WINDOW_MAX 3 /* SPREAD_SLOTS_MAX of common/store/state/spread.h */

/* The leaves that have a part in the points of a grid whose steps are under a minute, as a grid of
 * 10 s. False: there is no such leaf, or the first would begin before the first slot. */
bool flat_leaves(const struct plan_grid *g, struct plan_grid *ret);
/* The time that the points cover: whole slots. */
void flat_bounds(const struct plan_grid *g, int64_t *ret_start_ms, int64_t *ret_end_ms);
int64_t flat_first_leaf(const struct plan_grid *leaves);
/* Its slots, two for each leaf: point i is the slot i. */
struct plan_grid flat_slots(const struct plan_grid *leaves);

/* How many slots a push covers: by the same sums where pushes start, and spread over their slots.
 * 1 to FLAT_WINDOW_MAX. */
uint32_t flat_window(const uint64_t *starts, const uint64_t *spread, size_t slots);

struct flat {
    const struct plan_grid *grid; /* of the points */
    uint64_t *value;              /* by point */
    uint64_t *sixths;             /* by point: parts of units, until flat_end */
    uint32_t window;
};
/* The sum of a leaf; starts: of its slots, of whole profiles. What is outside of the grid is left
 * out. */
void flat_add(struct flat *f, int64_t leaf_ms, uint64_t sum, const uint64_t starts[LEAF_SLOTS]);
/* A sum of longer than a leaf counts where it begins. */
void flat_add_whole(struct flat *f, int64_t begin_ms, uint64_t sum);
/* Sixths become units: each point is rounded down, and the remainder is carried to the next. */
void flat_end(struct flat *f);

#endif

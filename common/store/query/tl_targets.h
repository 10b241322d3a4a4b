/* SPDX-License-Identifier: Apache-2.0
 *
 * tl_targets.h: what a timeline reads: targets, the floors of their services, and the grid that
 * follows from those.
 */
#ifndef COMMON_STORE_QUERY_TL_TARGETS_H
#define COMMON_STORE_QUERY_TL_TARGETS_H

#include "common/store/query/targets.h"
#include "common/store/query/tl_cover.h"
#include "common/store/state/spread.h"

struct tl_targets {
    struct targets t;
    struct tl_grid grid;
    VEC(struct floors) floors; /* by part */
    VEC(struct spread) spread; /* the same; empty: pushes are not spread */
};
/* Plans the targets of a query, and sets the bounds of x->grid, which the caller has initialised
 * with tl_grid_init. Times of *ask are not used, since the grid has them. Call tl_targets_close
 * in any case. */
NODISCARD int tl_targets_open(struct tl_targets *x, struct store_view *v,
                              const struct targets_query *ask, struct err *e);
void tl_targets_close(struct tl_targets *x);

/* Part number i (targets_part) and the slots of the grid it answers for; from >= to: none. */
struct tl_part {
    struct targets_part p;
    struct member m; /* series unused */
    const struct floors *floors;
    const struct spread *spread; /* NULL: a push counts in the slot of its start */
    uint32_t from, to;           /* from: less grid.lead where pushes before it may reach into it */
};
bool tl_targets_part(struct tl_targets *x, const struct store_query *q, size_t i,
                     struct tl_part *ret);
/* What of the part is not deleted (mask.h), replaces *ret: as a rule one piece, all of it. */
NODISCARD int tl_targets_pieces(struct tl_targets *x, const struct tl_part *p, mask_parts *ret,
                                struct err *e);

#endif

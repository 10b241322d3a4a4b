/* SPDX-License-Identifier: Apache-2.0
 *
 * step_confirm.h: checks that all nodes that could still accept a write for an old place use the
 * map with the change. README.md, "A step in three moves". Thread: one at a time.
 */
#ifndef COMMON_CLUSTER_PLACE_STEP_CONFIRM_H
#define COMMON_CLUSTER_PLACE_STEP_CONFIRM_H

#include "common/cluster/map/map_pending.h"
#include "common/cluster/place/reports.h"

struct confirmed {
    bool all;
    int64_t newest_ms; /* all: no profile at the places is later, nor will be by earlier maps */
    char why[200];     /* else: which node has not confirmed; text for the operator */
};
/* The view's map has `version`, or is later. */
void step_confirm_check(const struct view *v, const struct reports *r, const struct map_whose *w,
                        uint64_t version, struct confirmed *ret);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * placed.h: is a write where it should be? A distributor that missed a change of the map may send a
 * push to where it does not go any more; a retry through another one would then count twice
 * (common/cluster/README.md).
 */
#ifndef INGESTER_PLACED_H
#define INGESTER_PLACED_H

#include "common/cluster/view.h"
#include "common/store/store.h"

struct placed;

struct placed *placed_new(struct view *v); /* outlives it; loop */
void placed_free(struct placed *p);        /* loop; nobody checks any more. NULL is fine */
/* ERR_UNAVAILABLE: whoever placed it knew only the map of that version, and a later one says
 * otherwise for the time of the write. Any thread. */
NODISCARD int placed_check(struct placed *p, const struct store_write *w, uint64_t map_version,
                           struct err *e);

#endif

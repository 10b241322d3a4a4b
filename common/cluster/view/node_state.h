/* SPDX-License-Identifier: Apache-2.0
 *
 * node_state.h: an operator has a node drained, or used again. The map is read, changed
 * (map_edit.h) and swapped by its revision, again if another writer was faster; the controller does
 * the rest. Thread: the loop's.
 */
#ifndef COMMON_CLUSTER_VIEW_NODE_STATE_H
#define COMMON_CLUSTER_VIEW_NODE_STATE_H

#include "common/cluster/coord/coord.h"
#include "common/cluster/map/map.h"

typedef void (*node_state_fn)(void *cookie, const struct err *e);

/* MAP_DRAINING or MAP_ACTIVE. Done as well where it is so already; a node that has left stays so
 * when it is to drain. `done` once, later, with NULL or ERR_NOT_FOUND (no such node),
 * ERR_CONFLICT (too few active nodes would be left for the copies), ERR_UNAVAILABLE, ERR_TIMEOUT
 * (it may have happened; asking again does no harm), ERR_BUSY. Not after coord_free. */
void node_state_set(struct coord *c, const char *prefix, const char *name, enum map_state state,
                    node_state_fn done, void *cookie);

/* The next map, or *ret = NULL where nothing is to be changed. Pure. */
NODISCARD int node_state_edit(const struct map *m, const char *name, enum map_state state,
                              const struct map **ret, struct err *e);

#endif

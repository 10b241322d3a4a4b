/* SPDX-License-Identifier: Apache-2.0
 *
 * map_edit.h: the next version of a map: each function makes a new one with one thing changed and
 * the version one higher. Pure. ERR_CONFLICT or ERR_NOT_FOUND where the change makes no sense.
 */
#ifndef COMMON_CLUSTER_MAP_MAP_EDIT_H
#define COMMON_CLUSTER_MAP_MAP_EDIT_H

#include "common/cluster/map/map.h"

/* Adds the node, or changes its address and zone. ERR_CONFLICT: the map has it like this
 * already. */
NODISCARD int map_edit_node(const struct map *m, const struct map_node *n, const struct map **ret,
                            struct err *e);
NODISCARD int map_edit_state(const struct map *m, const char *name, enum map_state state,
                             const struct map **ret, struct err *e);
NODISCARD int map_edit_remove(const struct map *m, const char *name, const struct map **ret,
                              struct err *e);
/* Gives the tenant so many shards (0: all), or spreads the service over so many, for profiles that
 * begin at from_ms and later, or a leaf after the previous step if that is later. The step is valid
 * at once, so this is only for maps that no process uses yet; in other maps a step goes through
 * map_pending.h, whose commit calls this. A pending change is dropped. ERR_CONFLICT: that is the
 * last step already; ERR_LIMIT: the list of steps is full. */
NODISCARD int map_edit_tenant(const struct map *m, struct str tenant, uint32_t shards,
                              int64_t from_ms, const struct map **ret, struct err *e);
/* ERR_CONFLICT: the map has this number already. */
NODISCARD int map_edit_moves(const struct map *m, uint32_t moves, const struct map **ret,
                             struct err *e);
/* For every tenant that is not named in the map; a named tenant keeps its own steps. */
NODISCARD int map_edit_tenants(const struct map *m, uint32_t shards, int64_t from_ms,
                               const struct map **ret, struct err *e);
/* w names a service of a tenant. */
NODISCARD int map_edit_spread(const struct map *m, const struct map_whose *w, uint32_t spread,
                              int64_t from_ms, const struct map **ret, struct err *e);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * map_edit.h: the next version of a map: each function makes a new one with one thing changed and
 * the version one higher. Pure. ERR_CONFLICT or ERR_NOT_FOUND where the change makes no sense.
 */
#ifndef COMMON_CLUSTER_MAP_MAP_EDIT_H
#define COMMON_CLUSTER_MAP_MAP_EDIT_H

#include "common/cluster/map/map.h"

/* Adds it, or takes its address and zone. ERR_CONFLICT: it stands there just so. */
NODISCARD int map_edit_node(const struct map *m, const struct map_node *n, const struct map **ret,
                            struct err *e);
NODISCARD int map_edit_state(const struct map *m, const char *name, enum map_state state,
                             const struct map **ret, struct err *e);
NODISCARD int map_edit_remove(const struct map *m, const char *name, const struct map **ret,
                              struct err *e);
/* The tenant gets so many shards (0: all), the service is spread over so many, for profiles that
 * begin at from_ms and later, or a leaf after the step before it if that is later. Valid at once:
 * for maps that nobody goes by yet; else by way of map_next.h, which ends here. What was to come
 * is gone. ERR_CONFLICT: that is the last step already; ERR_LIMIT: it has changed as often as it
 * can. */
NODISCARD int map_edit_tenant(const struct map *m, struct str tenant, uint32_t shards,
                              int64_t from_ms, const struct map **ret, struct err *e);
/* ERR_CONFLICT: they are so many already. */
NODISCARD int map_edit_moves(const struct map *m, uint32_t moves, const struct map **ret,
                             struct err *e);
/* Of every tenant that is not named; one that is named keeps what it has. */
NODISCARD int map_edit_tenants(const struct map *m, uint32_t shards, int64_t from_ms,
                               const struct map **ret, struct err *e);
NODISCARD int map_edit_spread(const struct map *m, struct str tenant, struct str service,
                              uint32_t spread, int64_t from_ms, const struct map **ret,
                              struct err *e);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * placement_history.h: what a map says of the shards of tenants and services, stored apart from
 * the map: with the backups of shards, and next to databases without a coordination service. A
 * reader that has the data without this file queries only part of the shards, and cannot notice.
 *
 * The file is a map without nodes, as text of map_write. Too many places do no harm: a reader then
 * asks a shard that has no data for it.
 *
 *   <data>/places.json       of a folder that was restored, or is served by a static map
 */
#ifndef COMMON_CLUSTER_MAP_PLACEMENT_HISTORY_H
#define COMMON_CLUSTER_MAP_PLACEMENT_HISTORY_H

#include "common/cluster/map/map.h"
#include "common/sys/fs.h"

#define PLACEMENT_HISTORY_FILE "places.json"

void placement_history_write(const struct map *m, struct buf *out);
/* True: every service is in one shard, and always was. */
bool placement_history_plain(const struct map *m);
/* All places of both, for readers; profiles are placed as by the one of the higher version. Pure.
 * ERR_CONFLICT: not of the same number of shards; ERR_LIMIT: there are too many. */
NODISCARD int placement_history_join(const struct map *a, const struct map *b,
                                     const struct map **ret, struct err *e);
/* Checks that readers of `m` ask all places of `of`. ERR_CONFIG names a place that is missing. */
NODISCARD int placement_history_cover(const struct map *m, const struct map *of, struct err *e);
/* Makes the first map of a cluster that takes over such data; no process uses it yet. A change that
 * was announced is only wanted in it, and its place is read. */
NODISCARD int placement_history_begin(const struct map *places, uint32_t replicas,
                                      const struct map **ret, struct err *e);

/* *ret NULL: the folder has none. */
NODISCARD int placement_history_load(const struct fs *fs, const char *dir, const struct map **ret,
                                     struct err *e);
/* Adds to the places that the folder has already. */
NODISCARD int placement_history_keep(const struct fs *fs, const char *dir, const struct map *places,
                                     struct err *e);

#endif

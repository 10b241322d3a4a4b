/* SPDX-License-Identifier: Apache-2.0
 *
 * places.h: what a map says of the shards of tenants and services, kept apart from the map: with
 * the backups of shards, and beside databases for which no coordination service keeps it. Who has
 * the data and not this reads a part of them, and cannot notice.
 *
 * It is a map without nodes, as text of map_write. More of it does no harm: readers ask a shard
 * that has nothing for them.
 *
 *   <data>/places.json       of a folder that was restored, or is served by a static map
 */
#ifndef COMMON_CLUSTER_MAP_PLACES_H
#define COMMON_CLUSTER_MAP_PLACES_H

#include "common/cluster/map/map.h"
#include "common/sys/fs.h"

#define PLACES_FILE "places.json"

void places_write(const struct map *m, struct buf *out);
/* True: every service is in one shard, and always was. */
bool places_plain(const struct map *m);
/* All places of both, for readers; profiles are placed as by the one of the higher version. Pure.
 * ERR_CONFLICT: not of the same number of shards; ERR_LIMIT: there are too many. */
NODISCARD int places_join(const struct map *a, const struct map *b, const struct map **ret,
                          struct err *e);
/* By `m` all places of `of` are read. ERR_CONFIG names one that is not. */
NODISCARD int places_cover(const struct map *m, const struct map *of, struct err *e);
/* The first map of a cluster that takes such data over: nobody goes by it yet. What was announced
 * is wanted only, and read. */
NODISCARD int places_begin(const struct map *places, uint32_t replicas, const struct map **ret,
                           struct err *e);

/* *ret NULL: the folder has none. */
NODISCARD int places_load(const struct fs *fs, const char *dir, const struct map **ret,
                          struct err *e);
/* Beside what it has already. */
NODISCARD int places_keep(const struct fs *fs, const char *dir, const struct map *places,
                          struct err *e);

#endif

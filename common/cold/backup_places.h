/* SPDX-License-Identifier: Apache-2.0
 *
 * backup_places.h: stores with each head of a backup in which shards the data of services and
 * tenants are. The map that says so is in the coordination service, which may be lost with the
 * disks; without it, queries of restored shards would miss data
 * (common/cluster/map/placement_history.h).
 *
 *   places/<shard, 8 hex>-<number of the head, 16 hex>-<XXH3-64 of its bytes, 16 hex>[-unsure]
 *
 * It is written before the head. All data of the backup were placed by these places or by fewer;
 * "unsure": or by places that the shard's leader did not know yet. Older builds do not see these
 * objects and never sweep them, since they are not in the folders of heads and parts.
 *
 * Everything blocks on the object store.
 */
#ifndef COMMON_COLD_BACKUP_PLACES_H
#define COMMON_COLD_BACKUP_PLACES_H

#include "common/base/vec.h"
#include "common/object/object.h"

#define BACKUP_PLACES_MAX (4 * MIB)

struct backup_places {
    uint32_t shard;
    uint64_t number, hash;
    bool sure;
};
struct backup_places_all {
    VEC(struct backup_places) at;
};

NODISCARD int backup_places_put(struct object_store *o, uint32_t shard, uint64_t number, bool sure,
                                struct str text, struct err *e);
/* Of all shards, by shard and number. */
NODISCARD int backup_places_list(struct object_store *o, struct backup_places_all *ret,
                                 struct err *e);
void backup_places_deinit(struct backup_places_all *all);
/* Appended. ERR_CORRUPT: its bytes are not those it is named by. */
NODISCARD int backup_places_get(struct object_store *o, const struct backup_places *p,
                                struct buf *out, struct err *e);
/* Deletes the places of the shard's heads that are older than the newest head and not in `kept`:
 * `n` numbers in ascending order, at least one; the last is that of the newest head. Adds to
 * *ret_deleted. */
NODISCARD int backup_places_sweep(struct object_store *o, uint32_t shard, const uint64_t *kept,
                                  size_t n, uint64_t *ret_deleted, struct err *e);

#endif

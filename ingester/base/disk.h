/* SPDX-License-Identifier: Apache-2.0
 *
 * disk.h: keeps part of the volume free: below the reserve writes are refused, while there is still
 * room to compact, to seal and to delete.
 */
#ifndef INGESTER_BASE_DISK_H
#define INGESTER_BASE_DISK_H

#include "common/sys/env.h"
#include "common/sys/loop.h"
#include "common/sys/pool.h"
#include "ingester/base/metrics.h"

struct disk;

struct disk_opts {
    const struct fs *fs;
    struct loop *loop;
    struct pool *pool;
    const char *dir;
    uint64_t reserve; /* bytes; 0: disk_reserve_auto of the volume */
    const struct ingester_metrics *metrics;
    bool spare; /* keeps a reserve file (reserve_file.h) */
};
/* Looks once before it returns, then every second, ten times a second near the reserve. */
NODISCARD int disk_new(const struct disk_opts *o, struct disk **ret, struct err *e);
/* ERR_NO_SPACE while the reserve is reached. It ends when a tenth more than the reserve is free. */
NODISCARD int disk_check(const struct disk *d, struct err *e);
/* Returns the free bytes of the volume as last seen, and the reserve. */
void disk_room(const struct disk *d, uint64_t *ret_free, uint64_t *ret_reserve);
/* Looks again now instead of at the next time. Not after disk_drain. */
void disk_look(struct disk *d);
/* How often it looked. Of what happened after n looks, n + 2 know: one may have been under way. */
uint64_t disk_looks(const struct disk *d);
/* Stops looking, then calls done on the loop. */
void disk_drain(struct disk *d, void (*done)(void *cookie), void *cookie);
void disk_free(struct disk *d); /* after disk_drain; NULL is fine */

/* 2 % of the volume, at least 64 MiB, at most 1 GiB. */
uint64_t disk_reserve_auto(uint64_t volume_bytes);

#endif

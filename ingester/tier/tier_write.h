/* SPDX-License-Identifier: Apache-2.0
 *
 * tier_write.h: what the cold tier writes to a shard, on the shard's thread; the cold thread waits.
 * Each of these is a write of the shard: where this node leads no more, it fails.
 */
#ifndef INGESTER_TIER_TIER_WRITE_H
#define INGESTER_TIER_TIER_WRITE_H

#include "common/cold/generation.h"
#include "common/cold/kv_cold.h"
#include "common/cold/shard_owner.h"
#include "common/sys/thread.h"
#include "ingester/shard/shard.h"

/* Where the cold thread waits for one write at a time. */
struct tier_write {
    struct mutex lock;
    struct cond landed;
    struct fiber *waiting; /* in simulation */
};
void tier_write_init(struct tier_write *l);
void tier_write_deinit(struct tier_write *l);

/* The shard that is written to. */
struct tier_write_to {
    struct tier_write *l;
    struct shard *s;
    struct kv *kv; /* of kv_cold_open: that of the shard's store */
};
/* The functions below are called on the cold thread, with a view of the shard's store held. The
 * loop must turn meanwhile. */

/* Takes a new generation, above `over`. *holder is a random owner: it is written to the database if
 * the database names no owner yet; else *holder becomes the owner that the database names. */
NODISCARD int tier_write_generation(const struct tier_write_to *to, uint64_t over,
                                    struct cold_shard_owner *holder, struct cold_generation *ret,
                                    struct err *e);
/* Writes to the database that it holds the objects at `where`. ERR_CONFLICT as below. */
NODISCARD int tier_write_claim(const struct tier_write_to *to, uint64_t generation,
                               const char *where, struct err *e);
/* Checks that this node leads and that no other node has taken a newer generation (ERR_CONFLICT).
 * *ret is the manifest after that write. */
NODISCARD int tier_write_check(const struct tier_write_to *to, uint64_t generation,
                               struct manifest **ret, struct err *e);
/* Writes the batch of an offload, unless rows have changed since kv_cold_watch (*ret_moved false)
 * or another node has taken a newer generation (ERR_CONFLICT). Takes over the batch. */
NODISCARD int tier_write_manifest(const struct tier_write_to *to, uint64_t generation,
                                  struct kv_batch *b, bool *ret_moved, struct err *e);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * tier_land.h: what the cold tier writes to a shard, on the shard's thread; the cold thread waits.
 * Each of these is a write of the shard: where this node leads no more, it fails.
 */
#ifndef INGESTER_TIER_TIER_LAND_H
#define INGESTER_TIER_TIER_LAND_H

#include "common/cold/generation.h"
#include "common/cold/holder.h"
#include "common/cold/kv_cold.h"
#include "common/sys/thread.h"
#include "ingester/shard/shard.h"

/* One landing at a time waits on it. */
struct tier_land {
    struct mutex lock;
    struct cond landed;
    struct fiber *waiting; /* in simulation */
};
void tier_land_init(struct tier_land *l);
void tier_land_deinit(struct tier_land *l);

/* Cold thread, with a view of the shard's store held, whose kv (of kv_cold_open) this is. The loop
 * must turn meanwhile. */

/* A new generation, above `over`. *holder, of chance, becomes what the database is, if it is not
 * said there yet; else what is said. */
NODISCARD int tier_land_take(struct tier_land *l, struct shard *s, struct kv *kv, uint64_t over,
                             struct cold_holder *holder, struct cold_generation *ret,
                             struct err *e);
/* The database knows from now on that it holds the objects there; ERR_CONFLICT as below. */
NODISCARD int tier_land_claim(struct tier_land *l, struct shard *s, struct kv *kv,
                              uint64_t generation, const char *where, struct err *e);
/* We lead, and no other has taken a generation since ours (ERR_CONFLICT); the manifest after that
 * write. */
NODISCARD int tier_land_prove(struct tier_land *l, struct shard *s, struct kv *kv,
                              uint64_t generation, struct manifest **ret, struct err *e);
/* The batch of an offload, if nothing has changed since (kv_cold_watch) and the generation is still
 * ours. Takes the batch. */
NODISCARD int tier_land_move(struct tier_land *l, struct shard *s, struct kv *kv,
                             uint64_t generation, struct kv_batch *b, bool *ret_moved,
                             struct err *e);

#endif

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

/* One landing at a time waits on it. */
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

/* A new generation, above `over`. *holder, of chance, becomes what the database is, if it is not
 * said there yet; else what is said. */
NODISCARD int tier_write_generation(const struct tier_write_to *to, uint64_t over,
                                    struct cold_shard_owner *holder, struct cold_generation *ret,
                                    struct err *e);
/* The database knows from now on that it holds the objects there; ERR_CONFLICT as below. */
NODISCARD int tier_write_claim(const struct tier_write_to *to, uint64_t generation,
                               const char *where, struct err *e);
/* We lead, and no other has taken a generation since ours (ERR_CONFLICT); the manifest after that
 * write. */
NODISCARD int tier_write_check(const struct tier_write_to *to, uint64_t generation,
                               struct manifest **ret, struct err *e);
/* The batch of an offload, if nothing has changed since (kv_cold_watch) and the generation is still
 * ours. Takes the batch. */
NODISCARD int tier_write_manifest(const struct tier_write_to *to, uint64_t generation,
                                  struct kv_batch *b, bool *ret_moved, struct err *e);

#endif

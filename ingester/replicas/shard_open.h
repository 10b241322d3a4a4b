/* SPDX-License-Identifier: Apache-2.0
 *
 * shard_open.h: opens the database and the store of one shard, and begins to serve it.
 */
#ifndef INGESTER_REPLICAS_SHARD_OPEN_H
#define INGESTER_REPLICAS_SHARD_OPEN_H

#include "common/store/store.h"
#include "ingester/base/state.h"

/* Opens the database of a shard with one of `shares` equal parts of the memory. The caller reads
 * shards_own on the loop. Any thread. */
NODISCARD int shard_open_kv(const struct ingester *in, uint32_t number, size_t shares,
                            struct kv **ret, struct err *e);
/* Opens the store on a database, and owns the database from then on, also on failure. Any
 * thread. */
NODISCARD int shard_open_store(const struct ingester *in, uint32_t number, size_t shares,
                               struct kv *kv, struct store **ret, struct err *e);
/* Serves the shard from now on; owns the store. Loop. */
void shard_open_serve(struct ingester *in, uint32_t number, struct store *store);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * shard_memory.h: how the shards of one ingester share its part of the memory, while they come and
 * go.
 *
 * Thread: the loop's, unless said otherwise.
 */
#ifndef INGESTER_REPLICAS_SHARD_MEMORY_H
#define INGESTER_REPLICAS_SHARD_MEMORY_H

#include "common/store/kv/kv_pool.h"
#include "ingester/base/state.h"

struct shard_memory;
/* Before the first database is opened. */
struct shard_memory *shard_memory_new(struct ingester *in);
void shard_memory_start(struct shard_memory *d); /* in->shards is there */
/* Before in->shards goes; NULL is fine. */
void shard_memory_stop(struct shard_memory *d);
void shard_memory_free(struct shard_memory *d); /* no database is open; NULL is fine */

/* For databases; NULL where they have no files. Any thread. */
struct kv_pool *shard_memory_pool(const struct shard_memory *d);
/* Call when a shard opens or closes. Recomputes the shares in a later round of the loop. */
void shard_memory_update_soon(struct shard_memory *d);

/* Divides `total` among n that want so much each. None gets less than it wants while another gets
 * more than an equal part. The part that none wants is divided equally. Pure. */
#define SHARD_MEMORY_MORE UINT64_MAX /* as much as there is */
void shard_memory_fill(uint64_t total, const uint64_t *wants, size_t n, uint64_t *ret);

#endif

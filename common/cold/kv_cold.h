/* SPDX-License-Identifier: Apache-2.0
 *
 * kv_cold.h: a kv whose old rows lie in parts of an object store: the engine reads, overwrites and
 * deletes them as if they were here. Over any other kv; threads as kv.h says.
 *
 * A read that meets a part waits for the object store (through cache.h) and may fail with its
 * errors: ERR_UNAVAILABLE, ERR_TIMEOUT, ERR_NOT_FOUND, ERR_CORRUPT.
 */
#ifndef COMMON_COLD_KV_COLD_H
#define COMMON_COLD_KV_COLD_H

#include "common/cold/cache.h"
#include "common/cold/manifest.h"

struct kv_cold_opts {
    struct kv *inner;         /* owned from kv_cold_open on, also on failure */
    struct cold_cache *cache; /* borrowed; NULL: a database with parts is refused (ERR_CONFIG) */
    uint32_t shard;
    bool local;             /* without a cache: all readers skip rows of parts (cold_read.h) */
    size_t index_bytes_max; /* of indexes of parts in memory; 0: 32 MiB */
};
NODISCARD int kv_cold_open(const struct kv_cold_opts *o, struct kv **ret, struct err *e);

/* The functions below take a kv made by kv_cold_open. */
struct kv *kv_cold_inner(struct kv *k);
/* The state of a snapshot (NULL: of now): reference, unref it. Any thread. */
struct manifest *kv_cold_manifest(struct kv *k, const struct kv_snap *snap);
/* The inner kv's snapshot. */
const struct kv_snap *kv_cold_inner_snap(const struct kv_snap *snap);
/* Tells from now on whether rows of [from, to) of cf change. One range at a time; any thread. */
void kv_cold_watch(struct kv *k, enum kv_cf cf, struct str from, struct str to);
/* Ends that. True: nothing changed. On the thread that writes sealed rows, right before the batch
 * that goes by the answer. */
bool kv_cold_unchanged(struct kv *k);

#endif

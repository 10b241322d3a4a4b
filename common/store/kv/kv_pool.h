/* SPDX-License-Identifier: Apache-2.0
 *
 * kv_pool.h: memory that several databases of a process have in common: one block cache and one
 * limit for their memtables, so that a busy database uses what the others leave, however many
 * exist.
 *
 * Thread: any.
 */
#ifndef COMMON_STORE_KV_KV_POOL_H
#define COMMON_STORE_KV_KV_POOL_H

#include "common/store/kv/kv.h"

struct kv_pool *kv_pool_new(uint64_t cache_bytes, uint64_t memtable_bytes);
void kv_pool_free(struct kv_pool *p); /* after its databases; NULL is fine */

/* The cache may hold this much from now on; what is over goes at once. */
void kv_pool_resize(struct kv_pool *p, uint64_t cache_bytes);
/* Begins to write out the largest memtables until those in use hold this much at most; waits for
 * none of it. A database that writes while all hold too much writes out its own, however small:
 * with this called often that is rare. Returns how many it began. */
size_t kv_pool_relieve(struct kv_pool *p, uint64_t memtable_bytes);

struct kv_pool_stats {
    size_t databases;
    uint64_t memtable_bytes; /* being written out, too */
    uint64_t active_bytes;   /* of them, in use */
    uint64_t cache_bytes;
};
void kv_pool_stats(struct kv_pool *p, struct kv_pool_stats *ret);

#endif

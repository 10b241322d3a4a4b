/* SPDX-License-Identifier: Apache-2.0
 *
 * dict_cache.h: the dictionaries in memory, least recently used out first, within a number of
 * bytes.
 *
 * A dictionary got here stays valid until dict_unref, also when the cache drops it meanwhile.
 */
#ifndef COMMON_STORE_DICT_DICT_CACHE_H
#define COMMON_STORE_DICT_DICT_CACHE_H

#include "common/store/dict/dict.h"

struct dict_cache;
struct dict_cache *dict_cache_new(struct kv *kv, uint64_t bytes_max, uint64_t hash_mask);
void dict_cache_free(struct dict_cache *c); /* no reference may be out */

/* Any thread. At least what the epoch row in the snapshot counts; *ret_counts is that count. */
NODISCARD int dict_cache_read(struct dict_cache *c, const struct kv_snap *snap, struct dict_id id,
                              struct dict **ret, struct dict_counts *ret_counts, struct err *e);
void dict_unref(struct dict *d); /* NULL is fine */

/* Shard thread. Open for writing, complete; stays so until dict_cache_trim may drop it. */
NODISCARD int dict_cache_write(struct dict_cache *c, struct dict_id id, uint64_t seed,
                               struct dict **ret, struct err *e);
/* The first of a new, empty epoch, open for writing. */
struct dict *dict_cache_create(struct dict_cache *c, struct dict_id id, uint64_t seed);
/* It will not be written again: frees its tables and lets readers' threads drop it. */
void dict_cache_close_epoch(struct dict_cache *c, struct dict *d);
/* Drops the least recently used over the limit; those open for writing only if all their entries
 * are in batches up to `committed`. */
void dict_cache_trim(struct dict_cache *c, uint64_t committed);

/* Another limit; what is over goes, but for those open for writing. Any thread. */
void dict_cache_resize(struct dict_cache *c, uint64_t bytes_max);
/* Drops those of a tenant, of one service or (scope 0) of all, whose numbers are never used again.
 * Shard thread; all their entries are committed. */
void dict_cache_drop(struct dict_cache *c, uint32_t tenant, uint32_t scope);

uint64_t dict_cache_bytes(const struct dict_cache *c);

#endif

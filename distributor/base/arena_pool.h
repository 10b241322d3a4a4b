/* SPDX-License-Identifier: Apache-2.0
 *
 * arena_pool.h: arenas that are used again and again, with a chunk that fitted the last time.
 *
 * One thread decodes a request and another one frees what it took. An allocator then hands each
 * chunk from one cache to another, in calls that cost more than filling it. Here the arena that was
 * given back last is taken first, while it is in the caches of the processor.
 *
 * Thread: any.
 */
#ifndef DISTRIBUTOR_BASE_ARENA_POOL_H
#define DISTRIBUTOR_BASE_ARENA_POOL_H

#include "common/base/arena.h"

struct arena_pool;
/* Keeps at most `most` arenas, of each one chunk of at most chunk_max bytes. */
struct arena_pool *arena_pool_new(size_t most, size_t chunk_max);
void arena_pool_free(struct arena_pool *as); /* NULL is fine */
/* An empty arena, as arena_new(limit); it may as well be freed by arena_free. */
struct arena *arena_pool_get(struct arena_pool *as, size_t limit);
void arena_pool_put(struct arena_pool *as, struct arena *a); /* NULL is fine */

/* Where memory is short: keeps so many percent of `most` from now on, frees the rest at once. */
void arena_pool_shrink(struct arena_pool *as, unsigned percent);
size_t arena_pool_bytes(struct arena_pool *as); /* of the arenas that are kept, at most */

#endif

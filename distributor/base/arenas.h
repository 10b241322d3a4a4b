/* SPDX-License-Identifier: Apache-2.0
 *
 * arenas.h: arenas that are used again and again, with a chunk that fitted the last time.
 *
 * One thread decodes a request and another one frees what it took. An allocator then hands each
 * chunk from one cache to another, in calls that cost more than filling it. Here the arena that was
 * given back last is taken first, while it is in the caches of the processor.
 *
 * Thread: any.
 */
#ifndef DISTRIBUTOR_BASE_ARENAS_H
#define DISTRIBUTOR_BASE_ARENAS_H

#include "common/base/arena.h"

struct arenas;
/* Keeps at most `most` arenas, of each one chunk of at most chunk_max bytes. */
struct arenas *arenas_new(size_t most, size_t chunk_max);
void arenas_free(struct arenas *as); /* NULL is fine */
/* An empty arena, as arena_new(limit); it may as well be freed by arena_free. */
struct arena *arenas_take(struct arenas *as, size_t limit);
void arenas_give(struct arenas *as, struct arena *a); /* NULL is fine */

/* Where memory is short: keeps so many percent of `most` from now on, frees the rest at once. */
void arenas_shrink(struct arenas *as, unsigned percent);
size_t arenas_bytes(struct arenas *as); /* of the arenas that are kept, at most */

#endif

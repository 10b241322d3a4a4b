/* SPDX-License-Identifier: Apache-2.0
 *
 * arena.h: memory of one request. Allocate by bumping, free all at once, and never pass a limit.
 *
 * Thread: one at a time. Pointers stay valid until arena_reset, arena_rewind past them or
 * arena_free. Under ASan freed and rewound memory is poisoned.
 */
#ifndef COMMON_BASE_ARENA_H
#define COMMON_BASE_ARENA_H

#include "common/base/base.h"
#include "common/base/str.h"

struct arena;
struct arena_mark {
    void *chunk;
    size_t used;
    size_t total;
};

/* `limit` bytes at most are handed out; beyond that arena_alloc returns NULL. */
struct arena *arena_new(size_t limit);
void arena_free(struct arena *a); /* NULL is fine */
void arena_freep(struct arena **a);
/* Zeroed? No: uninitialised, aligned to 16. NULL once the limit would be passed. */
void *arena_alloc(struct arena *a, size_t size) NODISCARD;
/* As arena_alloc for count * size, zeroed; NULL on limit or overflow. */
void *arena_calloc(struct arena *a, size_t count, size_t size) NODISCARD;
/* Copy with a NUL behind it; {NULL, 0} once the limit would be passed. */
struct str arena_strdup(struct arena *a, struct str s) NODISCARD;
size_t arena_used(const struct arena *a);
size_t arena_limit(const struct arena *a);
void arena_reset(struct arena *a); /* keeps the first chunk for reuse */
/* Resets the arena for the next owner: keeps only the largest chunk of at most keep_max bytes. */
void arena_reuse(struct arena *a, size_t keep_max, size_t limit);
struct arena_mark arena_mark(const struct arena *a);
void arena_rewind(struct arena *a, struct arena_mark m);

#define ARENA_NEW(a, type)      ((type *)arena_calloc((a), 1, sizeof(type)))
#define ARENA_ARRAY(a, type, n) ((type *)arena_calloc((a), (n), sizeof(type)))

#endif

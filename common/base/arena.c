/* SPDX-License-Identifier: Apache-2.0
 *
 * Chunks double from 4 KiB to 1 MiB, their head included, as allocators like it; a larger request
 * gets a chunk of its own size, and an arena with a smaller limit takes no more: a process may have
 * 100,000 small ones. The limit counts bytes handed out (rounded to 16), so it does not depend on
 * how chunks happened to fill.
 */
#include "common/base/arena.h"

#include "common/base/mem.h"
#include "common/base/size.h"

#if defined(__SANITIZE_ADDRESS__)
#define ARENA_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ARENA_ASAN 1
#endif
#endif
#ifdef ARENA_ASAN
#include <sanitizer/asan_interface.h>
#define POISON(p, n)   ASAN_POISON_MEMORY_REGION((p), (n))
#define UNPOISON(p, n) ASAN_UNPOISON_MEMORY_REGION((p), (n))
#else
#define POISON(p, n)   ((void)(p), (void)(n))
#define UNPOISON(p, n) ((void)(p), (void)(n))
#endif

#define CHUNK_FIRST (4 * KIB)
#define CHUNK_MOST  MIB
#define ALIGN       16

struct chunk {
    struct chunk *prev;
    size_t used;
    size_t cap;
    size_t pad_; /* keeps data aligned to 16 */
    unsigned char data[];
};
static_assert(sizeof(struct chunk) % ALIGN == 0, "chunk data must be aligned");

struct arena {
    struct chunk *top; /* owned, linked through prev */
    size_t total;      /* bytes handed out */
    size_t limit;
};

struct arena *arena_new(size_t limit)
{
    struct arena *a = XNEW(struct arena);

    a->limit = limit;
    return a;
}

static void chunk_free(struct chunk *c)
{
    UNPOISON(c->data, c->cap);
    xfree(c);
}

void arena_free(struct arena *a)
{
    if (!a)
        return;
    while (a->top) {
        struct chunk *c = a->top;
        a->top = c->prev;
        chunk_free(c);
    }
    xfree(a);
}

void arena_freep(struct arena **a)
{
    arena_free(*a);
}

static void arena_push_chunk(struct arena *a, size_t need)
{
    size_t first = a->limit < CHUNK_FIRST ? a->limit + sizeof(struct chunk) : CHUNK_FIRST;
    size_t bytes = a->top ? (a->top->cap + sizeof(struct chunk)) * 2 : first;
    size_t cap = MAX(MIN(bytes, CHUNK_MOST) - sizeof(struct chunk), need);

    struct chunk *c = xmalloc(sizeof(*c) + cap);
    c->prev = a->top;
    c->used = 0;
    c->cap = cap;
    POISON(c->data, cap);
    a->top = c;
}

void *arena_alloc(struct arena *a, size_t size)
{
    size_t need, total;

    if (!size_add(size, ALIGN - 1, &need))
        return NULL;
    need &= ~(size_t)(ALIGN - 1);
    if (need == 0)
        need = ALIGN;
    if (!size_add(a->total, need, &total) || total > a->limit)
        return NULL;
    if (!a->top || a->top->cap - a->top->used < need)
        arena_push_chunk(a, need);
    void *p = a->top->data + a->top->used;
    a->top->used += need;
    a->total = total;
    UNPOISON(p, size);
    return p;
}

void *arena_calloc(struct arena *a, size_t count, size_t size)
{
    size_t bytes;

    if (!size_mul(count, size, &bytes))
        return NULL;
    void *p = arena_alloc(a, bytes);
    if (p)
        memset(p, 0, bytes);
    return p;
}

struct str arena_strdup(struct arena *a, struct str s)
{
    size_t bytes;

    if (!size_add(s.len, 1, &bytes))
        return STR_NULL;
    char *p = arena_alloc(a, bytes);
    if (!p)
        return STR_NULL;
    if (s.len)
        memcpy(p, s.ptr, s.len);
    p[s.len] = '\0';
    return (struct str){ p, s.len };
}

size_t arena_used(const struct arena *a)
{
    return a->total;
}

size_t arena_limit(const struct arena *a)
{
    return a->limit;
}

void arena_reset(struct arena *a)
{
    while (a->top && a->top->prev) {
        struct chunk *c = a->top;
        a->top = c->prev;
        chunk_free(c);
    }
    if (a->top) {
        a->top->used = 0;
        POISON(a->top->data, a->top->cap);
    }
    a->total = 0;
}

void arena_reuse(struct arena *a, size_t keep_max, size_t limit)
{
    struct chunk *keep = NULL;

    for (struct chunk *c = a->top; c; c = c->prev)
        if (c->cap <= keep_max && (!keep || c->cap > keep->cap))
            keep = c;
    while (a->top) {
        struct chunk *c = a->top;
        a->top = c->prev;
        if (c != keep)
            chunk_free(c);
    }
    if (keep)
        keep->prev = NULL;
    a->top = keep;
    a->limit = limit;
    arena_reset(a);
}

struct arena_mark arena_mark(const struct arena *a)
{
    return (struct arena_mark){ a->top, a->top ? a->top->used : 0, a->total };
}

void arena_rewind(struct arena *a, struct arena_mark m)
{
    while (a->top != m.chunk) {
        struct chunk *c = a->top;
        CHECK(c); /* the mark is of this arena and not older than a reset */
        a->top = c->prev;
        chunk_free(c);
    }
    if (a->top) {
        CHECK(a->top->used >= m.used);
        a->top->used = m.used;
        POISON(a->top->data + m.used, a->top->cap - m.used);
    }
    a->total = m.total;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/mem.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/size.h"
#include "common/base/vec.h"

/* In builds that link jemalloc. */
extern int mallctl(const char *name, void *old, size_t *old_len, void *new_value, size_t new_len)
    __attribute__((weak));

void mem_idle(void)
{
    if (mallctl)
        (void)mallctl("thread.tcache.flush", NULL, NULL, NULL, 0);
}

static NORETURN void out_of_memory(size_t size)
{
    fprintf(stderr, "out of memory: the system refused %zu bytes\n", size);
    abort();
}

void *xmalloc(size_t size)
{
    void *p = malloc(size ? size : 1);

    if (!p)
        out_of_memory(size);
    return p;
}

void *xcalloc(size_t count, size_t size)
{
    void *p = calloc(count ? count : 1, size ? size : 1);

    if (!p)
        out_of_memory(size);
    return p;
}

void *xreallocarray(void *p, size_t count, size_t size)
{
    size_t bytes;

    if (!size_mul(count, size, &bytes))
        out_of_memory(SIZE_MAX);
    void *q = realloc(p, bytes ? bytes : 1);
    if (!q)
        out_of_memory(bytes);
    return q;
}

char *xstrdup(const char *s)
{
    return xmemdup(s, strlen(s) + 1);
}

void *xmemdup(const void *p, size_t size)
{
    void *q = xmalloc(size);

    if (size)
        memcpy(q, p, size);
    return q;
}

void xfree(void *p)
{
    free(p);
}

void xfreep(void *pp)
{
    void *p;

    memcpy(&p, pp, sizeof(p));
    free(p);
}

void vec_grow(void **ptr, size_t *cap, size_t need, size_t size)
{
    size_t n = *cap ? *cap : 8;

    while (n < need)
        CHECK(size_mul(n, 2, &n));
    *ptr = xreallocarray(*ptr, n, size);
    *cap = n;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * mem.h: allocation that crashes when the machine has no memory left. Running out of a *budget*
 * is a different thing and an ordinary error (ERR_LIMIT, ERR_BUSY). Sizes are checked products.
 */
#ifndef COMMON_BASE_MEM_H
#define COMMON_BASE_MEM_H

#include "common/base/base.h"

void *xmalloc(size_t size) __attribute__((malloc, returns_nonnull));
void *xcalloc(size_t count, size_t size) __attribute__((malloc, returns_nonnull));
/* Grows or shrinks to count * size bytes. */
void *xreallocarray(void *p, size_t count, size_t size) __attribute__((returns_nonnull));
/* This thread will wait: gives back what the allocator keeps for it alone. */
void mem_idle(void);
char *xstrdup(const char *s) __attribute__((malloc, returns_nonnull));
void *xmemdup(const void *p, size_t size) __attribute__((malloc, returns_nonnull));
void xfree(void *p);   /* NULL is fine */
void xfreep(void *pp); /* for CLEANUP(xfreep): frees *(void **)pp */

#define XNEW(type)          ((type *)xcalloc(1, sizeof(type)))
#define XNEW_ARRAY(type, n) ((type *)xcalloc((n), sizeof(type)))

#endif

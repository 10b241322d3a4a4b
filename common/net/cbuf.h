/* SPDX-License-Identifier: Apache-2.0
 *
 * cbuf.h: bytes of a client, charged to a budget before they are kept. The charge is the capacity,
 * so the budget counts exactly the bytes held.
 */
#ifndef COMMON_NET_CBUF_H
#define COMMON_NET_CBUF_H

#include "common/base/mem.h"
#include "common/base/str.h"
#include "common/sys/budget.h"

#define CBUF_LEAST ((size_t)1024)

struct cbuf {
    char *ptr; /* owned */
    size_t len;
    size_t cap; /* bytes charged */
};

static inline void cbuf_free(struct cbuf *b, struct budget *g)
{
    budget_release(g, b->cap);
    xfree(b->ptr);
    *b = (struct cbuf){ 0 };
}

/* Appends; capacity never passes max(`max`, what is needed), and is all of it once half of it is
 * there: it grows no further then. False: the budget is full. */
static inline bool cbuf_add(struct cbuf *b, struct budget *g, struct str s, size_t max)
{
    size_t need = b->len + s.len;

    if (need > b->cap) {
        size_t cap = MAX(MAX(b->cap * 2, need), CBUF_LEAST);
        if (cap > max || need > max / 2)
            cap = MAX(max, need);
        if (!budget_reserve(g, cap - b->cap)) {
            cap = need;
            if (!budget_reserve(g, cap - b->cap))
                return false;
        }
        b->ptr = xreallocarray(b->ptr, cap, 1);
        b->cap = cap;
    }
    if (s.len)
        memcpy(b->ptr + b->len, s.ptr, s.len);
    b->len = need;
    return true;
}

#endif

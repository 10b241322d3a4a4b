/* SPDX-License-Identifier: Apache-2.0
 *
 * buf: a block that doubles, with a maximum that it never exceeds.
 *
 * Writers do not check each step: when something does not fit, `failed` is set, later additions do
 * nothing, and the bytes up to `len` stay a prefix of the text. So a long writer checks once, with
 * buf_ok, at its end. Numbers have a formatter of their own, since JSON consists mostly of them.
 *
 * Invariant: len <= cap <= max.  Thread: one at a time.
 */
#include "common/base/buf.h"

#include <stdarg.h>
#include <stdio.h>

#include "common/base/mem.h"
#include "common/base/size.h"

void buf_init(struct buf *b, size_t max)
{
    *b = (struct buf){ .max = max };
}

void buf_deinit(struct buf *b)
{
    xfree(b->ptr);
    *b = (struct buf){ .max = b->max };
}

void buf_reset(struct buf *b)
{
    b->len = 0;
    b->failed = false;
}

char *buf_room(struct buf *b, size_t n)
{
    size_t need;

    if (b->failed || !size_add(b->len, n, &need) || need > b->max) {
        b->failed = true;
        return NULL;
    }
    if (need > b->cap) {
        size_t cap = b->cap ? b->cap : 64;
        while (cap < need)
            cap = cap > SIZE_MAX / 2 ? need : cap * 2;
        if (cap > b->max)
            cap = b->max;
        b->ptr = xreallocarray(b->ptr, cap, 1);
        b->cap = cap;
    }
    if (!b->ptr) { /* n = 0 on an empty buffer still returns an address */
        b->ptr = xmalloc(1);
        b->cap = 1;
    }
    return b->ptr + b->len;
}

bool buf_add(struct buf *b, const void *p, size_t n)
{
    char *to = buf_room(b, n);

    if (!to)
        return false;
    if (n)
        memcpy(to, p, n);
    b->len += n;
    return true;
}

bool buf_add_str(struct buf *b, struct str s)
{
    return buf_add(b, s.ptr, s.len);
}

bool buf_add_c(struct buf *b, char c)
{
    if (LIKELY(b->len < b->cap && !b->failed)) {
        b->ptr[b->len++] = c;
        return true;
    }
    return buf_add(b, &c, 1);
}

bool buf_addf(struct buf *b, const char *fmt, ...)
{
    va_list ap, again;
    char tmp[256];

    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(tmp, sizeof(tmp), fmt, ap);
    va_end(ap);
    bool ok = n >= 0;
    if (ok && (size_t)n < sizeof(tmp)) {
        ok = buf_add(b, tmp, (size_t)n);
    } else if (ok) {
        char *big = xmalloc((size_t)n + 1);
        (void)vsnprintf(big, (size_t)n + 1, fmt, again);
        ok = buf_add(b, big, (size_t)n);
        xfree(big);
    }
    va_end(again);
    return ok;
}

bool buf_add_u64(struct buf *b, uint64_t v)
{
    char tmp[20];
    size_t at = sizeof(tmp);

    do {
        tmp[--at] = (char)('0' + v % 10);
        v /= 10;
    } while (v);
    return buf_add(b, tmp + at, sizeof(tmp) - at);
}

bool buf_add_i64(struct buf *b, int64_t v)
{
    if (v < 0)
        return buf_add_c(b, '-') && buf_add_u64(b, (uint64_t)0 - (uint64_t)v);
    return buf_add_u64(b, (uint64_t)v);
}

struct str buf_take(struct buf *b)
{
    struct str s = { b->ptr, b->len };

    *b = (struct buf){ .max = b->max };
    return s;
}

void buf_move(struct buf *to, struct buf *from)
{
    xfree(to->ptr);
    *to = *from;
    *from = (struct buf){ .max = from->max };
}

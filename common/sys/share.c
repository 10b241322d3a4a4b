/* SPDX-License-Identifier: Apache-2.0
 *
 * share.c: the rule is the dynamic threshold of shared-buffer switches: the limit of a queue is a
 * multiple of the buffer that is still free. It needs no list of tenants and no rate, only two
 * counters. Two requests that ask at the same instant may both pass by the same free bytes; the
 * budget itself is exact.
 */
#include "common/sys/share.h"

bool share_is_over(const struct share *s, const struct budget *b, size_t own, size_t n)
{
    size_t held = atomic_load_explicit(&s->held, memory_order_relaxed);
    size_t used = atomic_load_explicit(&b->used, memory_order_relaxed);
    size_t max = atomic_load_explicit(&b->max, memory_order_relaxed);

    if (held <= own)
        return false;
    size_t left = used + n < max ? max - used - n : 0;
    return (held + n) / (own ? SHARE_GROWTH : SHARE_FACTOR) > left;
}

void share_count(struct share *s, size_t n)
{
    atomic_fetch_add_explicit(&s->held, n, memory_order_relaxed);
}

enum share_result share_take(struct share *s, struct budget *b, size_t own, size_t n)
{
    if (s && share_is_over(s, b, own, n))
        return SHARE_OVER;
    if (!budget_reserve(b, n))
        return SHARE_FULL;
    if (s)
        share_count(s, n);
    return SHARE_TAKEN;
}

void share_give(struct share *s, struct budget *b, size_t n)
{
    budget_release(b, n);
    if (s)
        CHECK(atomic_fetch_sub_explicit(&s->held, n, memory_order_relaxed) >= n);
}

size_t share_held(const struct share *s)
{
    return atomic_load_explicit(&s->held, memory_order_relaxed);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "common/sys/budget.h"

void budget_init(struct budget *b, size_t max)
{
    atomic_init(&b->used, 0);
    atomic_init(&b->peak, 0);
    b->max = max;
}

bool budget_reserve(struct budget *b, size_t n)
{
    size_t used = atomic_load_explicit(&b->used, memory_order_relaxed);
    size_t max = atomic_load_explicit(&b->max, memory_order_relaxed);
    size_t peak;

    do {
        if (n > max || used > max - n)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&b->used, &used, used + n, memory_order_relaxed,
                                                    memory_order_relaxed));
    used += n;
    peak = atomic_load_explicit(&b->peak, memory_order_relaxed);
    while (used > peak && !atomic_compare_exchange_weak_explicit(
                              &b->peak, &peak, used, memory_order_relaxed, memory_order_relaxed))
        ;
    return true;
}

void budget_release(struct budget *b, size_t n)
{
    size_t before = atomic_fetch_sub_explicit(&b->used, n, memory_order_relaxed);

    CHECK(before >= n);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * sample_ring: words in a circle; `head` and `tail` only grow.
 *
 *        tail                    head
 *   ...0 [len|w w w][len|w w][  0|. . .] 0 0 ...       0 = free, or reserved and not yet written
 *
 * A writer reserves len + 1 words by moving `head` (compare and swap, so that a full ring is left
 * alone), writes the words, and last, with release, the length. The reader waits at a zero length:
 * either nothing is there, or its writer is between the two steps. It zeroes what it took before it
 * moves `tail`, so every length word a later writer may use starts as zero.
 *
 * A handler can be descheduled between reserving and writing; the reader then sees the records
 * behind it a tick later. Nothing is lost by that.
 */
#include "common/obs/sample_ring.h"

#include <stdatomic.h>

#include "common/base/mem.h"

struct sample_ring {
    _Atomic uint64_t head, tail, dropped;
    uint64_t mask;
    _Atomic uint64_t *words; /* owned */
};

struct sample_ring *sample_ring_new(size_t words)
{
    struct sample_ring *r = XNEW(struct sample_ring);

    CHECK(words >= 2 && (words & (words - 1)) == 0);
    r->mask = words - 1;
    r->words = XNEW_ARRAY(_Atomic uint64_t, words);
    return r;
}

void sample_ring_free(struct sample_ring *r)
{
    if (!r)
        return;
    xfree((void *)(uintptr_t)r->words);
    xfree(r);
}

bool sample_ring_put(struct sample_ring *r, const uint64_t *words, size_t n)
{
    uint64_t head = atomic_load_explicit(&r->head, memory_order_acquire);

    for (;;) {
        uint64_t tail = atomic_load_explicit(&r->tail, memory_order_acquire);

        if (tail > head) { /* ours is old: others wrote and were read since */
            head = atomic_load_explicit(&r->head, memory_order_acquire);
            continue;
        }
        if (n == 0 || head + n + 1 - tail > r->mask + 1) {
            atomic_fetch_add_explicit(&r->dropped, 1, memory_order_relaxed);
            return false;
        }
        if (atomic_compare_exchange_weak_explicit(&r->head, &head, head + n + 1,
                                                  memory_order_acq_rel, memory_order_acquire))
            break;
    }
    for (size_t i = 0; i < n; i++)
        atomic_store_explicit(&r->words[(head + 1 + i) & r->mask], words[i], memory_order_relaxed);
    atomic_store_explicit(&r->words[head & r->mask], n, memory_order_release);
    return true;
}

size_t sample_ring_take(struct sample_ring *r, uint64_t *ret_words, size_t max)
{
    uint64_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
    uint64_t n = atomic_load_explicit(&r->words[tail & r->mask], memory_order_acquire);

    if (n == 0)
        return 0;
    CHECK(n <= max && n <= r->mask);
    for (uint64_t i = 0; i < n; i++) {
        _Atomic uint64_t *w = &r->words[(tail + 1 + i) & r->mask];

        ret_words[i] = atomic_load_explicit(w, memory_order_relaxed);
        atomic_store_explicit(w, 0, memory_order_relaxed);
    }
    atomic_store_explicit(&r->words[tail & r->mask], 0, memory_order_relaxed);
    atomic_store_explicit(&r->tail, tail + n + 1, memory_order_release);
    return n;
}

uint64_t sample_ring_dropped(const struct sample_ring *r)
{
    return atomic_load_explicit(&r->dropped, memory_order_relaxed);
}

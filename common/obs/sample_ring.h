/* SPDX-License-Identifier: Apache-2.0
 *
 * sample_ring.h: a lock-free queue of small records from signal handlers of all threads to one
 * reader. Full: the record is dropped and counted, never waited for.
 */
#ifndef COMMON_OBS_SAMPLE_RING_H
#define COMMON_OBS_SAMPLE_RING_H

#include "common/base/base.h"

struct sample_ring;

/* `words`: capacity in 8-byte words, a power of two. */
struct sample_ring *sample_ring_new(size_t words);
void sample_ring_free(struct sample_ring *r); /* no thread may write any more; NULL is fine */
/* Any thread, signal handlers too. False: dropped. 0 < n < capacity. */
bool sample_ring_put(struct sample_ring *r, const uint64_t *words, size_t n);
/* Returns the next record's length, or 0 if the ring is empty. Called by one thread. `max`: room
 * for the longest record. */
size_t sample_ring_take(struct sample_ring *r, uint64_t *ret_words, size_t max);
uint64_t sample_ring_dropped(const struct sample_ring *r);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * far_turn.h: how long a shard's thread may wait for the cold tier. Late data of a bucket that left
 * need remote rows when they are sealed or built; while the thread waits for these, no write of the
 * shard is staged. So it waits for a short time, and then not again for several times as long. The
 * rows that it fetched meanwhile are in the cache for the next try.
 *
 * Thread: the shard's.
 */
#ifndef INGESTER_SHARD_FAR_TURN_H
#define INGESTER_SHARD_FAR_TURN_H

#include "common/store/kv/cold_read.h"
#include "common/sys/clock.h"

struct far_turn {
    const struct clock *clock; /* NULL: reads are not bounded */
    struct cold_read reach;
    struct cold_read *before;
    uint64_t allowed_ms; /* of the next wait */
    uint64_t after_ms;   /* monotonic: no waiting before */
    uint64_t entered_ms;
};
void far_turn_init(struct far_turn *f, const struct clock *clock);
/* Reads of this thread from here to the end are bounded. */
void far_turn_begin(struct far_turn *f);
/* `code`: what the work between ended with. True: it ended so since far rows did not come in time;
 * it is no fault, and not worth another try before far_turn_wait. */
bool far_turn_end(struct far_turn *f, int code);
/* Ends a turn of work that returns no code: its caller gets the result in another way. */
void far_turn_over(struct far_turn *f);
/* True if that end began a pause, which should be logged. */
bool far_turn_told(const struct far_turn *f);
/* Milliseconds until this thread may wait again. */
uint64_t far_turn_wait(const struct far_turn *f, uint64_t now_ms);

#endif

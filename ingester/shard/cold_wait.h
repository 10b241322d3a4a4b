/* SPDX-License-Identifier: Apache-2.0
 *
 * cold_wait.h: how long a shard's thread may wait for the cold tier. Late data of a bucket that
 * left need remote rows when they are sealed or built; while the thread waits for these, no write
 * of the shard is staged. So it waits for a short time, and then not again for several times as
 * long. The rows that it fetched meanwhile are in the cache for the next try.
 *
 * Thread: the shard's.
 */
#ifndef INGESTER_SHARD_COLD_WAIT_H
#define INGESTER_SHARD_COLD_WAIT_H

#include "common/store/kv/cold_read.h"
#include "common/sys/clock.h"

struct cold_wait {
    const struct clock *clock; /* NULL: reads are not bounded */
    struct cold_read reach;
    struct cold_read *before;
    uint64_t allowed_ms; /* of the next wait */
    uint64_t after_ms;   /* monotonic: no waiting before */
    uint64_t entered_ms;
};
void cold_wait_init(struct cold_wait *f, const struct clock *clock);
/* Reads of this thread from here to the end are bounded. */
void cold_wait_begin(struct cold_wait *f);
/* `code`: what the work between ended with. True: it ended so since far rows did not come in time;
 * it is no fault, and not worth another try before cold_wait_wait. */
bool cold_wait_end(struct cold_wait *f, int code);
/* Ends a turn of work that returns no code: its caller gets the result in another way. */
void cold_wait_over(struct cold_wait *f);
/* True if that end began a pause, which should be logged. */
bool cold_wait_told(const struct cold_wait *f);
/* Milliseconds until this thread may wait again. */
uint64_t cold_wait_wait(const struct cold_wait *f, uint64_t now_ms);

#endif

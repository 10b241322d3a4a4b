/* SPDX-License-Identifier: Apache-2.0
 *
 * builder.h: builds the coarse levels of all shards: asks for children, adds them up, sends sums.
 */
#ifndef COMPACTOR_BUILDER_H
#define COMPACTOR_BUILDER_H

#include "common/base/json.h"
#include "common/conf/conf.h"
#include "common/obs/metrics.h"
#include "common/role/route/route.h"
#include "common/sys/loop.h"
#include "common/sys/pool.h"

struct builder;
struct memory; /* common/role/core/memory.h */

struct builder_opts {
    struct route *route; /* borrowed; outlives the builder */
    struct loop *loop;
    struct pool *pool;
    const struct clock *clock;
    struct metrics *metrics;
    uint64_t id;          /* random: this start of this compactor */
    uint64_t interval_ms; /* a shard with nothing due is asked again after this */
    uint64_t timeout_ms;  /* of one question */
    uint64_t lag_warn_ms;
    uint64_t share;        /* percent of the time a shard may be worked for */
    uint64_t jobs_max;     /* at once */
    uint64_t memory_bytes; /* for all of them */
    struct memory *memory; /* no job begins while it refuses; may be NULL */
    size_t message_max;
    bool claimed; /* it works only for shards that builder_own names */
};
struct builder *builder_new(const struct builder_opts *o);
/* Takes no new jobs; calls done on the loop when no merge runs any more. What is on its way to or
 * from an ingester is dropped, and given again. */
void builder_drain(struct builder *b, void (*done)(void *cookie), void *cookie);
void builder_free(struct builder *b); /* drained, or never run; NULL is fine */
/* The shard is ours; what is done for it bears this fence. False: its last turn is not over yet,
 * ask again. */
bool builder_own(struct builder *b, uint32_t shard, uint64_t fence);
/* It begins nothing more for the shard. True: nothing is under way for it either. */
bool builder_leave(struct builder *b, uint32_t shard);
/* The shard is another's: what is under way for it is dropped. */
void builder_lose(struct builder *b, uint32_t shard);
/* Adds "shards" to a JSON object. */
void builder_ring(const struct builder *b, struct json *j);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * weigh.h: how much each copy of a shard takes and stores: what the controller places by.
 * Thread: the loop's.
 */
#ifndef INGESTER_SHARD_WEIGH_H
#define INGESTER_SHARD_WEIGH_H

#include "common/cluster/map/progress.h"

struct weigh;

struct weigh *weigh_new(void);
void weigh_free(struct weigh *w); /* NULL is fine */
/* Once a period of `ms` for each copy: `appended` is how much its log has taken since it was
 * opened. Fills ret->rate, and ret->bytes with what was said of it last. */
void weigh_take(struct weigh *w, uint64_t appended, uint64_t ms, struct progress_shard *ret);
/* Asking a database what it stores costs, so one is asked at a time: true for the one whose turn it
 * is; then weigh_stored. */
bool weigh_turn(struct weigh *w, uint32_t shard);
void weigh_stored(struct weigh *w, uint32_t shard, uint64_t bytes);
/* Ends a period: copies that were not weighed in it are forgotten. */
void weigh_end(struct weigh *w);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * copy_load.h: how much each copy of a shard takes and stores: what the controller places by.
 * Thread: the loop's.
 */
#ifndef INGESTER_SHARD_COPY_LOAD_H
#define INGESTER_SHARD_COPY_LOAD_H

#include "common/cluster/map/progress.h"

struct copy_load;

struct copy_load *copy_load_new(void);
void copy_load_free(struct copy_load *w); /* NULL is fine */
/* Once a period of `ms` for each copy: `appended` is how much its log has taken since it was
 * opened. Fills ret->rate, and ret->bytes with what was said of it last. */
void copy_load_report(struct copy_load *w, uint64_t appended, uint64_t ms,
                      struct progress_shard *ret);
/* Asking a database what it stores costs, so one is asked at a time: true for the one whose turn it
 * is; then copy_load_stored. */
bool copy_load_turn(struct copy_load *w, uint32_t shard);
void copy_load_stored(struct copy_load *w, uint32_t shard, uint64_t bytes);
/* Ends a period: copies that were not weighed in it are forgotten. */
void copy_load_end(struct copy_load *w);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * shard_state.h: what operators see of a shard: its gauges, and the log when the clock is off.
 */
#ifndef INGESTER_SHARD_SHARD_STATE_H
#define INGESTER_SHARD_SHARD_STATE_H

#include "ingester/shard/shard.h"

/* The shard was in the state `was`, and is in the state `now`. Loop. */
void shard_state_show(const struct shard_metrics *m, uint32_t number, const struct shard_state *was,
                      const struct shard_state *now);

#endif

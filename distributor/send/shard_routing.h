/* SPDX-License-Identifier: Apache-2.0
 *
 * shard_routing.h: the shard of each series of a push (common/cluster/map/map.h), such that a push
 * that is sent again goes where it went. Thread: any.
 */
#ifndef DISTRIBUTOR_SEND_SHARD_ROUTING_H
#define DISTRIBUTOR_SEND_SHARD_ROUTING_H

#include "common/cluster/map/map.h"
#include "distributor/base/window.h"
#include "distributor/send/write_id.h"

/* By the labels of the series that the push as a whole has as well: what sample labels split stays
 * together. `base` NULL: by all of its labels. */
uint64_t shard_routing_hash(const struct labels *l, const struct labels *base);

/* The time that a push is placed by: the beginning of its first leaf; MAP_WHEN_FIRST where that
 * comes from the clock, and the push can be known again. */
int64_t shard_routing_when(const struct ingest *in, const struct push *p, enum write_key kind,
                           uint32_t first_slot);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * store_recovery.h: opens a shard again without a restart: after a write that failed for want of
 * disk space, as soon as there is space, and after a write that was too large.
 */
#ifndef INGESTER_REPLICAS_STORE_RECOVERY_H
#define INGESTER_REPLICAS_STORE_RECOVERY_H

#include "ingester/base/state.h"

struct store_recovery;

/* After the shards are open. */
struct store_recovery *store_recovery_new(struct ingester *in);
/* True while no try is under way; while the ingester drains none begins. */
bool store_recovery_idle(const struct store_recovery *r);
void store_recovery_free(struct store_recovery *r); /* when idle; NULL is fine */
/* ERR_NO_SPACE or ERR_UNAVAILABLE: why the shard served at this place takes no writes, and what
 * will help. */
int store_recovery_reason(const struct ingester *in, size_t place, struct err *e);

#endif

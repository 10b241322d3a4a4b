/* SPDX-License-Identifier: Apache-2.0
 *
 * recover.h: opens a shard again without a restart: after a write that failed for want of disk
 * space, as soon as there is space, and after a write that was too large.
 */
#ifndef INGESTER_REPLICAS_RECOVER_H
#define INGESTER_REPLICAS_RECOVER_H

#include "ingester/base/state.h"

struct recover;

/* After the shards are open. */
struct recover *recover_new(struct ingester *in);
/* True while no try is under way; while the ingester drains none begins. */
bool recover_idle(const struct recover *r);
void recover_free(struct recover *r); /* when idle; NULL is fine */
/* ERR_NO_SPACE or ERR_UNAVAILABLE: why the shard served at this place takes no writes, and what
 * will help. */
int recover_why(const struct ingester *in, size_t place, struct err *e);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * tier.h: the cold tier of the shards that are served here: old buckets leave, backups are written,
 * objects that no manifest names are deleted, and reads find remote rows. One thread, `cold`, moves
 * the data.
 */
#ifndef INGESTER_TIER_TIER_H
#define INGESTER_TIER_TIER_H

#include "common/base/json.h"
#include "common/store/store.h"
#include "ingester/base/state.h"

struct tier;

/* NULL in *ret where cold.url is empty. Asks the object store nothing. ERR_CONFIG, ERR_IO. */
NODISCARD int tier_open(struct ingester *in, struct tier **ret, struct err *e);
/* Puts the cold tier between a database and its store; takes `kv`, also on failure. Without one
 * (NULL) a database with remote rows is refused. Any thread. */
NODISCARD int tier_wrap(struct tier *t, uint32_t shard, struct kv *kv, struct kv **ret,
                        struct err *e);
/* "cold": can the object store be used? Loop. */
void tier_ring(struct tier *t, struct json *j);
/* True if the bucket is not that of the shards, belongs to another database, or does not answer;
 * *ret says why. False: it can be used, or there is no cold tier. */
bool tier_trouble(struct tier *t, struct err *ret);
void tier_begin(struct tier *t); /* NULL is fine; so below */
/* Buckets below this slot are old enough to leave; 0: none is. By engine time, which a wall clock
 * that jumps ahead does not carry along (it is held), and never by a wall clock that stands before
 * it: a bucket that is moved too early is correct, but stays remote permanently. */
uint32_t tier_before(const struct store_clock *c, int64_t wall_ms, uint64_t after_ms);
/* Aborts its round. It touches no shard any more when this returns. Loop. */
void tier_stop(struct tier *t);
/* False: simulated, and still at something. */
bool tier_idle(const struct tier *t);
void tier_free(struct tier *t); /* every store is closed */

#endif

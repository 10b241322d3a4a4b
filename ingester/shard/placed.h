/* SPDX-License-Identifier: Apache-2.0
 *
 * placed.h: is a write where it should be? A distributor that missed a change of the map may send a
 * push to where it does not go any more; a retry through another one would then count twice
 * (common/cluster/README.md).
 */
#ifndef INGESTER_SHARD_PLACED_H
#define INGESTER_SHARD_PLACED_H

#include "common/cluster/view/view.h"
#include "common/store/store.h"

struct placed;
/* Bits of role_ctx.mutants: tests switch off a rule, to see that they notice. */
enum placed_mutant {
    PLACED_TAKES_ALL = 1 << 28,   /* placed_check is always content */
    PLACED_ANSWERS_ALL = 1 << 29, /* placed_read is */
};

/* Both outlive it. Loop. */
struct placed *placed_new(struct view *v, const struct clock *clock, uint32_t mutants);
void placed_free(struct placed *p); /* loop; no check runs any more. NULL is fine */
/* ---- what a confirmation says (common/cluster/README.md) ---- */
/* The version of a map that checks go by, of writes and of reads. Loop. */
uint64_t placed_version(struct placed *p);
/* The controller gave up what the map of that version announced
   (common/cluster/control/controller.h): it
 * is as if it were not announced. What is confirmed from now on is no earlier than its time. Loop.
 */
void placed_give_up(struct placed *p, uint64_t version);
uint64_t placed_gave_up(const struct placed *p); /* the last one; 0: none */
/* The shard begins to be served, and holds nothing later than this. Any thread, before its first
 * write and read. */
void placed_begins(struct placed *p, uint32_t shard, int64_t newest_ms);
/* It has something of that time. Any thread. */
void placed_holds(struct placed *p, uint32_t shard, int64_t newest_ms);
/* Returns the latest time of all writes for the shard that were admitted by a map up to
 * placed_version. No write that is admitted from now on and concerns a step or an announcement of
 * that map has a later time. At least 1. Any thread, behind placed_version. */
int64_t placed_newest_ms(const struct placed *p, uint32_t shard);
/* The newest map known, to be unreffed; NULL: none yet. *ret_all: whatever the shard, which is
 * served here, had committed before this call was placed by this map or an earlier one. Any
 * thread. */
const struct map *placed_map(struct placed *p, uint32_t shard, bool *ret_all);

/* Checks a write that was placed by the map of this version. ERR_UNAVAILABLE: a later map has, or
 * may have, another shard for the time of the write; the distributor sends it again with a newer
 * map. Any thread. */
NODISCARD int placed_check(struct placed *p, uint32_t shard, const struct store_write *w,
                           uint64_t map_version, struct err *e);
/* Checks a query that was planned by the map of this version (0: it asks all shards). ERR_CONFLICT:
 * its service may have shards that this map does not name; the querier asks again with a later map.
 * Any thread. */
NODISCARD int placed_read(const struct placed *p, uint64_t map_version, struct err *e);

#endif

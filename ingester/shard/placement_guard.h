/* SPDX-License-Identifier: Apache-2.0
 *
 * placement_guard.h: is a write where it should be? A distributor that missed a change of the map
 * may send a push to where it does not go any more; a retry through another one would then count
 * twice (common/cluster/README.md).
 */
#ifndef INGESTER_SHARD_PLACEMENT_GUARD_H
#define INGESTER_SHARD_PLACEMENT_GUARD_H

#include "common/cluster/view/view.h"
#include "common/store/store.h"

struct placement_guard;
/* Bits of role_ctx.mutants: tests switch off a rule, to see that they notice. */
enum placement_guard_mutant {
    PLACEMENT_GUARD_TAKES_ALL = 1 << 28,   /* placement_guard_check is always content */
    PLACEMENT_GUARD_ANSWERS_ALL = 1 << 29, /* placement_guard_read is */
};

/* Both outlive it. Loop. */
struct placement_guard *placement_guard_new(struct view *v, const struct clock *clock,
                                            uint32_t mutants);
void placement_guard_free(
    struct placement_guard *p); /* loop; no check runs any more. NULL is fine */
/* ---- what a confirmation says (common/cluster/README.md) ---- */
/* The version of a map that checks go by, of writes and of reads. Loop. */
uint64_t placement_guard_version(struct placement_guard *p);
/* The controller gave up what the map of that version announced
 * (common/cluster/control/controller.h): it is as if it were not announced. What is confirmed from
 * now on is no earlier than its time. Loop.
 */
void placement_guard_give_up(struct placement_guard *p, uint64_t version);
uint64_t placement_guard_gave_up(const struct placement_guard *p); /* the last one; 0: none */
/* The shard begins to be served, and holds nothing later than this. Any thread, before its first
 * write and read. */
void placement_guard_begins(struct placement_guard *p, uint32_t shard, int64_t newest_ms);
/* It has something of that time. Any thread. */
void placement_guard_note_time(struct placement_guard *p, uint32_t shard, int64_t newest_ms);
/* Returns the latest time of all writes for the shard that were admitted by a map up to
 * placement_guard_version. No write that is admitted from now on and concerns a step or an
 * announcement of that map has a later time. At least 1. Any thread, behind
 * placement_guard_version. */
int64_t placement_guard_newest_ms(const struct placement_guard *p, uint32_t shard);
/* The newest map known, to be unreffed; NULL: none yet. *ret_all: whatever the shard, which is
 * served here, had committed before this call was placed by this map or an earlier one. Any
 * thread. */
const struct map *placement_guard_map(struct placement_guard *p, uint32_t shard, bool *ret_all);

/* Checks a write that was placed by the map of this version. ERR_UNAVAILABLE: a later map has, or
 * may have, another shard for the time of the write; the distributor sends it again with a newer
 * map. Any thread. */
NODISCARD int placement_guard_check(struct placement_guard *p, uint32_t shard,
                                    const struct store_write *w, uint64_t map_version,
                                    struct err *e);
/* Checks a query that was planned by the map of this version (0: it asks all shards). ERR_CONFLICT:
 * its service may have shards that this map does not name; the querier asks again with a later map.
 * Any thread. */
NODISCARD int placement_guard_read(const struct placement_guard *p, uint64_t map_version,
                                   struct err *e);

#endif

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
void placed_free(struct placed *p); /* loop; nobody checks any more. NULL is fine */
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
/* No write for the shard that was let through, by a map that is not later than placed_version, has
 * a later time, nor will one that is let through from now on and is about a step or an announcement
 * of that map. At least 1. Any thread, behind placed_version. */
int64_t placed_newest_ms(const struct placed *p, uint32_t shard);
/* The newest map known, to be unreffed; NULL: none yet. *ret_all: whatever the shard, which is
 * served here, had committed before this call was placed by this map or an earlier one. Any
 * thread. */
const struct map *placed_map(struct placed *p, uint32_t shard, bool *ret_all);

/* ERR_UNAVAILABLE: whoever placed it knew only the map of that version, and a later one says
 * otherwise for the time of the write, or may. Any thread. */
NODISCARD int placed_check(struct placed *p, uint32_t shard, const struct store_write *w,
                           uint64_t map_version, struct err *e);
/* ERR_CONFLICT: whoever asks goes by the map of that version, and there may be places of what it
 * asks for that it does not know; by a later map it may ask again. 0: it asks everybody. Any
 * thread. */
NODISCARD int placed_read(const struct placed *p, uint64_t map_version, struct err *e);

#endif

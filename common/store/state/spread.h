/* SPDX-License-Identifier: Apache-2.0
 *
 * spread.h: how many slots of 5 s a push of a service and profile type covers, so that a timeline
 * can spread a push over them. TREE.md section 7 says why that is kept per service and type.
 *
 *   key     5a tenant scope ptype        value   version u8 = 1 | 1..8 runs: since u32 | slots u8
 *
 *   Runs ascend; a push that starts in slot t covers the slots of the last run with since <= t. The
 *   first run has since 0. No row: 1, a push stands in the slot of its start.
 *
 * Steady senders cost one row in all. A new length is stored once SPREAD_STREAK pushes in a row had
 * it, so that a single push of another length, or two agents that alternate, change nothing.
 */
#ifndef COMMON_STORE_STATE_SPREAD_H
#define COMMON_STORE_STATE_SPREAD_H

#include "common/base/err.h"
#include "common/store/codec/keys.h"
#include "common/store/kv/kv.h"

#define SPREAD_SLOTS_MAX 3 /* longer windows come as one vector per leaf */
#define SPREAD_RUNS_MAX  8 /* over it the oldest goes, and the next one begins at 0 */
#define SPREAD_STREAK    8 /* pushes of another length, before it is believed */

struct known_name;
struct spread_run {
    uint32_t since, slots;
};
struct spread {
    struct spread_run at[SPREAD_RUNS_MAX];
    uint32_t len;
};
/* m->series is not used. Any thread; snap NULL = now. */
NODISCARD int spread_load(struct kv *kv, const struct kv_snap *snap, const struct member *m,
                          struct spread *ret, struct err *e);
NODISCARD int spread_read(struct str row, struct spread *ret, struct err *e);
/* 1..SPREAD_SLOTS_MAX, for a push that starts in slot t. */
uint32_t spread_at(const struct spread *s, uint32_t t);
/* From slot `since` on it is `slots`; what is older than the last run changes nothing. False: then,
 * or if it is so already. */
bool spread_add(struct spread *s, uint32_t since, uint32_t slots);

/* The shard thread, for each push of a sum; activity: of names_activity. A push is planned, then
 * noted in the batch that takes it. */
struct spread_push {
    struct member m;      /* series unused */
    uint32_t slot, slots; /* of its start; 0 slots: not known, nothing is noted */
    struct spread row;    /* out of spread_plan: what the row becomes; len 0: it stays */
};
NODISCARD int spread_plan(struct kv *kv, struct known_name *activity, struct spread_push *p,
                          struct err *e);
void spread_note(struct known_name *activity, const struct spread_push *p, uint64_t seq,
                 struct kv_batch *b);

#endif

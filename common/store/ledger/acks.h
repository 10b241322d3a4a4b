/* SPDX-License-Identifier: Apache-2.0
 *
 * acks.h: sums of the writes that were stored for each distributor, so that a distributor can check
 * whether its acks were kept. A distributor puts a random number of its own and the number of a
 * minute (the epoch) into each write.
 *
 *   80 distributor u64 epoch u32 tenant u32    version u8 = 1 | count u64 | high u64 | low u64 |
 *                                              engine time of the last one u64
 *
 * Only series that are stored for the first time count. `high` and `low` are sums of two hashes of
 * their write ids, modulo 2^64. The batch that stores the series writes them. Rows are deleted
 * ACKS_KEPT_MS after their last change.
 */
#ifndef COMMON_STORE_LEDGER_ACKS_H
#define COMMON_STORE_LEDGER_ACKS_H

#include "common/base/hash.h"
#include "common/store/store.h"

#define ACKS_KEPT_MS INT64_C(3600000)

struct acks {
    uint64_t count, high, low;
};
static inline void acks_add(struct acks *a, const uint8_t wid[16])
{
    a->count++;
    a->high += hash64(wid, 16, UINT64_C(0x6c65646765722031));
    a->low += hash64(wid, 16, UINT64_C(0x6c65646765722032));
}

/* All 0 if there is no row. Any thread. */
NODISCARD int store_acks(struct store_view *v, uint64_t distributor, uint32_t epoch,
                         struct str tenant, struct acks *ret, struct err *e);
/* Is a write id of the tenant stored, as far as the horizon remembers? */
NODISCARD int store_acks_known(struct store_view *v, struct str tenant, const uint8_t wid[16],
                               bool *ret, struct err *e);
/* Engine time of the newest delete, after which neither needs to be right; 0: none is known. */
NODISCARD int store_acks_deleted(struct store_view *v, int64_t *ret_ms, struct err *e);

/* Chore: drops old rows, some a step. Shard thread. */
NODISCARD int store_acks_drop(struct store *s, bool *ret_more, struct err *e);
uint64_t store_acks_drop_ms(struct store *s);

#endif

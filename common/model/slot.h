/* SPDX-License-Identifier: Apache-2.0
 *
 * slot.h: engine time. Slot = 5 s counted from 2020-01-01T00:00:00Z, the base step of timelines;
 * leaf = 10 s = 2 slots, the base step of vectors. u32 slots reach the year 2700.
 */
#ifndef COMMON_MODEL_SLOT_H
#define COMMON_MODEL_SLOT_H

#include "common/base/base.h"

#define SLOT_EPOCH_MS INT64_C(1577836800000) /* 2020-01-01 */
#define SLOT_MS       5000
#define LEAF_SLOTS    2
#define LEAF_MS       (SLOT_MS * LEAF_SLOTS)

/* Times before the epoch map to slot 0, times behind the last slot to the last. */
static inline uint32_t slot_of_ms(int64_t ms)
{
    int64_t slot = ms <= SLOT_EPOCH_MS ? 0 : (ms - SLOT_EPOCH_MS) / SLOT_MS;
    return slot > UINT32_MAX ? UINT32_MAX : (uint32_t)slot;
}
static inline int64_t slot_to_ms(uint32_t slot)
{
    return SLOT_EPOCH_MS + (int64_t)slot * SLOT_MS;
}
static inline uint32_t slot_leaf(uint32_t slot)
{
    return slot - slot % LEAF_SLOTS;
}

#endif

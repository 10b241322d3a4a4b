/* SPDX-License-Identifier: Apache-2.0
 *
 * adjust.h: rows of 74 (accepted differences) as the ledger adds them up, and buckets without rows.
 */
#ifndef COMMON_STORE_LEDGER_ADJUST_H
#define COMMON_STORE_LEDGER_ADJUST_H

#include "common/store/ledger/ledger_counts.h"

#define LEDGER_ACCEPTED_VERSION 1
#define LEDGER_ACCEPTED_KEY_LEN (LEDGER_KEY_LEN + 8) /* of 74 */

struct ledger_adjust { /* 74, all of a bucket */
    struct ledger_sum raw, levels, base;
    uint64_t rows; /* of 74 */
};
/* A row of 74. Texts are the value's. */
NODISCARD int ledger_accepted_read(struct str key, struct str value, struct ledger_accepted *ret,
                                   struct err *e);
/* All rows of 74 of a bucket, added up. */
NODISCARD int ledger_get_adjust(struct kv *kv, const struct kv_snap *snap, const struct member *m,
                                uint32_t bucket, struct ledger_adjust *ret, struct err *e);
/* A bucket has no other rows left: its data expired or were deleted. */
NODISCARD int ledger_is_past(struct kv *kv, const struct kv_snap *snap, const struct member *m,
                             uint32_t bucket, bool *ret, struct err *e);
/* A row of 74: adds its sums; its texts are not needed. *ret_m, *ret_bucket: whose it is. */
NODISCARD int ledger_adjust_read(struct str key, struct str value, struct ledger_adjust *to,
                                 struct member *ret_m, uint32_t *ret_bucket, struct err *e);

#endif

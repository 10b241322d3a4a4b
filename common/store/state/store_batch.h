/* SPDX-License-Identifier: Apache-2.0
 *
 * store_batch.h: a batch of staged requests, and what is remembered of it until it is committed.
 */
#ifndef COMMON_STORE_STATE_STORE_BATCH_H
#define COMMON_STORE_STATE_STORE_BATCH_H

#include "common/base/vec.h"
#include "common/store/codec/keys.h"
#include "common/store/kv/kv.h"

struct hot_row {     /* of a batch, for the sums of its group */
    struct member m; /* series: the group */
    uint32_t slot, len;
    size_t at; /* of the bytes of store_batch.kb */
};
struct ledger_row { /* of a batch: as of its end */
    struct key k;
    size_t len;
    char row[36];
};
struct store_batch {
    struct store *s;
    struct kv_batch *kb; /* owned */
    uint64_t seq;
    VEC(struct hot_row) hot;
    VEC(struct ledger_row) ledger;
};

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * tomb_delete_impl.h: one entry while its batch is made: tomb_delete.c, tomb_raw.c.
 */
#ifndef COMMON_STORE_DELETE_TOMB_DELETE_IMPL_H
#define COMMON_STORE_DELETE_TOMB_DELETE_IMPL_H

#include "common/store/ledger/ledger_counts.h"
#include "common/store/mask/tomb_list.h"
#include "common/store/seal/seal_steps.h"

struct gone_wid { /* a write id some of whose unsealed rows go */
    uint32_t bucket, t, had;
    uint8_t wid[16];
};
struct deleting {
    struct store *s;
    const struct tomb_request *r;
    struct tomb_plan *p;
    struct tomb *t;
    struct kv_batch *b;
    struct seal_entry n;
    VEC(struct mask) masks; /* of the plan, whole lists */
    VEC(struct gone_wid) wids;
    VEC(struct raw_count) raw;
    bool part;  /* only unsealed rows, as many as fit one batch; cleared if no such row matches */
    bool split; /* the batch was too large and had unsealed rows: try again with `part` */
    uint64_t gone_series;
    struct ledger_outs outs; /* unsealed rows of services that stay */
    struct buf row;
};

/* Do so many rows wait that a delete may have to go in parts? */
bool tomb_raw_many(const struct store *s);
/* Rows that match leave, all or a part of them. */
NODISCARD int tomb_take_raw(struct deleting *x, struct err *e);
NODISCARD int tomb_take_wids(struct deleting *x, struct err *e);

#endif

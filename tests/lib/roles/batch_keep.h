/* SPDX-License-Identifier: Apache-2.0
 *
 * batch_keep.h: a struct batch_sink that keeps what a decoder of several profiles hands over.
 */
#ifndef TESTS_LIB_ROLES_BATCH_KEEP_H
#define TESTS_LIB_ROLES_BATCH_KEEP_H

#include "common/base/vec.h"
#include "distributor/formats/batch.h"

struct batch_kept {
    struct arena *arena;
    struct push push;
    char *identity, *id; /* owned; NULL: none */
    size_t identity_len, id_len;
    bool ended, rejected;
    struct err why;
};
struct batch_keep {
    struct batch_sink sink; /* to be given to the decoder */
    struct limits limits;
    VEC(struct batch_kept *) pushes; /* one per begin */
    uint64_t rejected;               /* profiles, with those that were never begun */
    struct err why;                  /* of the last rejected one */
    size_t begin_max;
};
/* limits NULL: the defaults. */
void batch_keep_init(struct batch_keep *k, const struct limits *l, int64_t now_ms);
void batch_keep_free(struct batch_keep *k);
/* All invariants of all pushes that ended: CHECKed; each begin had its end. */
void batch_keep_check(const struct batch_keep *k);
/* Rows of all pushes that ended (dist_rows), each behind "service\n"; checked as above. */
void batch_keep_rows(const struct batch_keep *k, struct buf *out);
/* Sum of all series of this sample type (NULL: any) of all pushes that ended. */
uint64_t batch_keep_total(const struct batch_keep *k, const char *sample_type);

#endif

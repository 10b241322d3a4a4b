/* SPDX-License-Identifier: Apache-2.0
 *
 * querier_fake.h: an ingester's answers from a list of pushes, one loop over all of them each time.
 */
#ifndef TESTS_LIB_ROLES_QUERIER_FAKE_H
#define TESTS_LIB_ROLES_QUERIER_FAKE_H

#include "tests/lib/roles/querier_bed.h"

struct fake {
    const struct qbed_push *pushes;
    size_t n;
    const struct qbed_exemplar *exemplars; /* by time */
    size_t exemplars_len;
    int64_t coarse_ms, coarse_until_ms;
    size_t ingester;  /* this one */
    size_t ingesters; /* of all; there are twice as many shards */
};
/* Answers for pushes that live on this ingester, on shards that the request names. Returns 0 or the
 * error's code. */
int fake_answer(const struct fake *f, enum rpc_method method, struct str payload, struct buf *out,
                struct err *e);
/* All labels of a push; in the arena. */
struct labels fake_labels(const struct qbed_push *p, struct arena *a);

#endif

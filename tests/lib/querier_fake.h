/* SPDX-License-Identifier: Apache-2.0
 *
 * querier_fake.h: an ingester's answers from a list of pushes, one loop over all of them each time.
 */
#ifndef TESTS_LIB_QUERIER_FAKE_H
#define TESTS_LIB_QUERIER_FAKE_H

#include "tests/lib/querier_bed.h"

/* Answers for pushes of that ingester; only shards the request names count (a push lives on shard
 * `ingester`). Returns 0 or the error's code. */
int fake_answer(const struct qbed_push *pushes, size_t n, size_t ingester, enum rpc_method method,
                struct str payload, struct buf *out, struct err *e);
/* All labels of a push; in the arena. */
struct labels fake_labels(const struct qbed_push *p, struct arena *a);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * collectors.h: does an answer add up profiles of one service that several collectors took? An eBPF
 * profiler of the whole machine next to an SDK in the process measures the same time twice.
 */
#ifndef QUERIER_MERGE_COLLECTORS_H
#define QUERIER_MERGE_COLLECTORS_H

#include "querier/query/query.h"

/* Asks what each collector contributed to sum number `sum` of the answer, counted from 0, in tenant
 * number `tenant` of the query. What several profile types contribute to one sum is one question.
 * Asks only where the query names one service, and nothing where it selects one collector. The
 * replies are read before the next step runs (q->before); q->notice is set where a sum is of
 * several collectors. */
NODISCARD int collectors_ask(struct query *q, size_t sum, size_t tenant,
                             const struct wire_query *wq, struct err *e);
/* The answer shows groups apart, and no sum of them: collectors that these labels part do not count
 * twice. Call it before the first step ends. */
void collectors_apart(struct query *q, const struct str *group_by, size_t n);
/* Key `notice` of the open object where there is one. */
void collectors_json(const struct query *q, struct json *j);

#endif

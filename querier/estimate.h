/* SPDX-License-Identifier: Apache-2.0
 *
 * estimate.h: what a query would read, asked of the ingesters before it is read. For steps
 * (query.h): query_ask_estimate, then in the next step query_estimate.
 */
#ifndef QUERIER_ESTIMATE_H
#define QUERIER_ESTIMATE_H

#include "querier/query.h"

struct estimate {
    struct wire_estimate sum; /* over all ingesters */
    size_t ingesters;         /* that answered */
    size_t shards;
};
/* wq->profile_type empty: all types. detail: series, writes, index_bytes, dictionary_bytes, too.
 * Takes some milliseconds per service. */
NODISCARD int query_ask_estimate(struct query *q, size_t ask, const struct wire_query *wq,
                                 bool detail, struct err *e);
/* All replies to `ask`; adds to *ret, which is zeroed before the first time. */
NODISCARD int query_estimate(struct query *q, size_t ask, struct estimate *ret, struct err *e);

#endif

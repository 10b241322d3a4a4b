/* SPDX-License-Identifier: Apache-2.0
 *
 * estimate.h: what a query would read, asked of the ingesters before it is read. For steps
 * (query.h): query_ask_estimate, then in the next step query_estimate.
 */
#ifndef QUERIER_ESTIMATE_H
#define QUERIER_ESTIMATE_H

#include "querier/query.h"

struct estimate_part {
    size_t target;            /* of fanout.h */
    struct wire_estimate sum; /* over all tenants */
};
struct estimate {
    struct wire_estimate sum; /* over all that answered */
    struct estimate_part *at; /* in the request's arena */
    size_t len;
};
/* wq->profile_type empty: all types. detail: series, writes, index_bytes, dictionary_bytes, too.
 * Takes some milliseconds per service. */
NODISCARD int query_ask_estimate(struct query *q, size_t ask, const struct wire_query *wq,
                                 bool detail, struct err *e);
/* All replies to `ask`. */
NODISCARD int query_estimate(struct query *q, size_t ask, struct estimate *ret, struct err *e);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * estimate.h: what a query will read, before it is read: from the plan (which series or roll-ups,
 * which nodes of the tree of time), and from the sizes of a few of those rows. No vector is
 * decoded, and the work is bounded however long the range is and however many series there are.
 *
 * Exact where all rows were looked at (`sampled` is false), else the sampled ones stand for the
 * others of their level and service. Rows counted are those that exist, not those that could.
 */
#ifndef COMMON_STORE_QUERY_ESTIMATE_H
#define COMMON_STORE_QUERY_ESTIMATE_H

#include "common/store/store.h"

struct store_estimate_query {
    struct store_query q; /* profile_type "": all types; rows_max and members as there */
    bool detail;          /* series, writes and the three figures of bytes of services, too */
};
struct store_estimate {
    uint64_t services; /* counted once for each profile type */
    uint64_t units;    /* series, or groups of them where roll-ups answer */
    uint64_t nodes;    /* rows that could be there: nodes of the cover x units */
    uint64_t rows;     /* rows that a merge reads, unsealed ones too */
    uint64_t bytes;    /* of their vectors */
    uint64_t samples;  /* entries of those: stacks, each as often as it stands in a row */
    bool sampled;
    bool more; /* the range has more unsealed rows than were looked at: at least so much */
    /* detail */
    uint64_t series;           /* that match and have data in the range; of more than 4,096 of a
                                  type those with data in its days */
    uint64_t writes;           /* pushes in the range, once for each leaf they have data in */
    uint64_t index_bytes;      /* of the services: series and postings; in files */
    uint64_t dictionary_bytes; /* of the services; in files */
};
/* Any thread. Errors as store_merge has them. */
NODISCARD int store_estimate(struct store_view *v, const struct store_estimate_query *q,
                             struct store_estimate *ret, struct err *e);
/* Sums saturate. */
void store_estimate_add(struct store_estimate *to, const struct store_estimate *from);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * label_lists.h: label names, values, sets and profile types of all ingesters, united: sorted, each
 * once, cut at querier.labels_max (which the reply says). Pool thread.
 */
#ifndef QUERIER_MERGE_LABEL_LISTS_H
#define QUERIER_MERGE_LABEL_LISTS_H

#include "querier/query/query.h"

struct label_lists {
    VEC(struct str) values;  /* sorted, each once; in q->data */
    VEC(struct labels) sets; /* sorted by their canonical bytes, each once */
};
/* Unites all replies to `ask`; sets q->truncated. `plain_only` leaves out labels of sets whose name
 * is not [A-Za-z_][A-Za-z0-9_]*. */
NODISCARD int label_lists_read(struct query *q, size_t ask, bool plain_only,
                               struct label_lists *ret, struct err *e);
void label_lists_deinit(struct label_lists *l);

#endif

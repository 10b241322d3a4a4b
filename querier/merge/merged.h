/* SPDX-License-Identifier: Apache-2.0
 *
 * merged.h: the replies to a merge question as one call tree, gauges averaged. Pool thread.
 */
#ifndef QUERIER_MERGE_MERGED_H
#define QUERIER_MERGE_MERGED_H

#include "common/render/flame.h"
#include "querier/merge/timeline.h"
#include "querier/query/query.h"

/* What all replies say beside their stacks. */
struct merged_facts {
    VEC(uint32_t) leaves; /* gauges: of all replies, sorted, each once */
    uint64_t series, rows;
    bool gauge;
};
/* One more reply; keeps q->saturated and q->bounds_* up to date. */
void merged_facts_add(struct merged_facts *f, struct query *q, const struct wire_merged *w);
/* After the last one. What sums are to be divided by: leaves with data for gauges, else 1. */
uint64_t merged_facts_end(struct merged_facts *f);

struct merged {
    struct calltree tree;
    struct merged_facts facts;
};
void merged_init(struct merged *m, struct query *q);
void merged_deinit(struct merged *m);
/* Adds all replies to `ask`; sets q->saturated and q->bounds_*. */
NODISCARD int merged_read(struct merged *m, struct query *q, size_t ask, struct err *e);
/* Lays out and cuts, with the memory for it. */
NODISCARD int merged_layout(const struct merged *m, struct query *q, size_t max_nodes,
                            struct layout *ret, struct err *e);

/* All replies to a timeline question, united. */
NODISCARD int merged_timeline(struct query *q, size_t ask, uint32_t points, bool average,
                              struct timeline *t, struct err *e);

#endif

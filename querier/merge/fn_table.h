/* SPDX-License-Identifier: Apache-2.0
 *
 * fn_table.h: values of some functions by point of time, summed over the replies of all ingesters.
 * Lives in q->data, so that it may stay from one step to the next. Pool thread.
 */
#ifndef QUERIER_MERGE_FN_TABLE_H
#define QUERIER_MERGE_FN_TABLE_H

#include "querier/query/query.h"

struct fn_cell {
    uint64_t self, total;
};
struct fn_table {
    const struct str *names; /* borrowed; in the order of the answer, each once */
    size_t names_len;
    uint32_t *by_text; /* numbers of names in order of their text */
    uint32_t points;
    struct fn_cell *cells; /* by name, point */
    uint64_t *all;         /* by point */
    uint32_t *leaves;      /* by point; gauges */
    bool gauge;
};
NODISCARD int fn_table_init(struct fn_table *t, struct query *q, const struct str *names,
                            size_t names_len, uint32_t points, struct err *e);
/* Adds all replies to `ask`; sets q->saturated and q->bounds_*. */
NODISCARD int fn_table_read(struct fn_table *t, struct query *q, size_t ask, struct err *e);
/* Keys all, allAt and functions of the open object. */
void fn_table_json(const struct fn_table *t, struct json *j);

/* leaves: the largest counts of all replies. Raised to how many the parts have together. */
void fn_leaves(const struct leaf_part *parts, size_t parts_len, uint32_t *leaves, uint32_t points);
/* What is shown of a sum: for a gauge the mean over leaves with data. At most INT64_MAX. */
uint64_t fn_shown(bool gauge, uint64_t sum, uint64_t leaves);
/* Widens q->bounds_* by those of a reply that says any. */
void fn_bounds(struct query *q, const struct wire_function_list *w);

#endif

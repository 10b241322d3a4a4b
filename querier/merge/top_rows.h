/* SPDX-License-Identifier: Apache-2.0
 *
 * top_rows.h: the best rows among any number that are offered one by one. Pool thread.
 */
#ifndef QUERIER_MERGE_TOP_ROWS_H
#define QUERIER_MERGE_TOP_ROWS_H

#include "querier/query/query.h"
#include "querier/render/compare.h"

struct grew_row {
    char *text; /* owned once it is kept: the name, then the service */
    struct str name, service;
    uint64_t self[DIFF_SIDES], total[DIFF_SIDES];
    double factor[DIFF_SIDES];
    double weight; /* largest first; equal ones by name, then by service */
};
struct top_rows {
    VEC(struct grew_row) at; /* a heap, the worst one first, until top_rows_sort */
    size_t max;
};
void top_rows_free(struct top_rows *g);
/* Keeps a copy of the row if it is among the best `max` so far; memory is the query's. */
NODISCARD int top_rows_offer(struct top_rows *g, struct query *q, struct grew_row r, struct err *e);
/* The best one first. */
void top_rows_sort(struct top_rows *g);
/* An object for each row from `offset` on; with `service` they name it. */
void top_rows_json(const struct top_rows *g, size_t offset, bool service, struct json *j);

#endif

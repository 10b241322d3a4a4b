/* SPDX-License-Identifier: Apache-2.0
 *
 * grew_rows.h: the best rows among any number that are offered one by one. Pool thread.
 */
#ifndef QUERIER_MERGE_GREW_ROWS_H
#define QUERIER_MERGE_GREW_ROWS_H

#include "querier/query/query.h"
#include "querier/render/compare.h"

struct grew_row {
    char *text; /* owned once it is kept: the name, then the service */
    struct str name, service;
    uint64_t self[DIFF_SIDES], total[DIFF_SIDES];
    double factor[DIFF_SIDES];
    double weight; /* largest first; equal ones by name, then by service */
};
struct grew_rows {
    VEC(struct grew_row) at; /* a heap, the worst one first, until grew_rows_sort */
    size_t max;
};
void grew_rows_free(struct grew_rows *g);
/* Keeps a copy of the row if it is among the best `max` so far; memory is the query's. */
NODISCARD int grew_rows_offer(struct grew_rows *g, struct query *q, struct grew_row r,
                              struct err *e);
/* The best one first. */
void grew_rows_sort(struct grew_rows *g);
/* An object for each row from `offset` on; with `service` they name it. */
void grew_rows_json(const struct grew_rows *g, size_t offset, bool service, struct json *j);

#endif

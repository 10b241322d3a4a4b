/* SPDX-License-Identifier: Apache-2.0
 *
 * api_functions.h: GET /api/v1/functions: what functions cost, over time. Our own; described in
 * querier/README.md.
 */
#ifndef QUERIER_API_TABLE_API_FUNCTIONS_H
#define QUERIER_API_TABLE_API_FUNCTIONS_H

#include "querier/query/query.h"

/* First steps. */
int api_functions(struct query *q, struct err *e);
int api_grew(struct query *q, struct err *e); /* api_grew.c */

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * api_views.h: exact views of what a query matches, made of the whole tree before anything is cut:
 * GET /api/v1/top, /api/v1/focus, /api/v1/sandwich, /api/v1/subtree, /api/v1/diff.
 */
#ifndef QUERIER_API_TABLE_API_VIEWS_H
#define QUERIER_API_TABLE_API_VIEWS_H

#include "querier/query/query.h"

/* First steps. */
int api_top(struct query *q, struct err *e);
int api_focus(struct query *q, struct err *e);
int api_sandwich(struct query *q, struct err *e);
/* api_subtree.c */
int api_subtree(struct query *q, struct err *e);
/* api_compare.c */
int api_compare(struct query *q, struct err *e);

#endif

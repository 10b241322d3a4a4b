/* SPDX-License-Identifier: Apache-2.0
 *
 * api_delete.h: POST /api/v1/delete, GET /api/v1/deletes. querier/README.md shows both.
 */
#ifndef QUERIER_API_TENANT_API_DELETE_H
#define QUERIER_API_TENANT_API_DELETE_H

#include "querier/query/query.h"

/* First steps. */
int api_delete(struct query *q, struct err *e);
int api_deletes(struct query *q, struct err *e);

#endif

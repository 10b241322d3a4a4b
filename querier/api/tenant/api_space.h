/* SPDX-License-Identifier: Apache-2.0
 *
 * api_space.h: GET /api/v1/space: whose bytes the files of the cluster are, and for how many days
 * the volumes will do. JSON, or a table with ?format=text.
 */
#ifndef QUERIER_API_TENANT_API_SPACE_H
#define QUERIER_API_TENANT_API_SPACE_H

#include "querier/query/query.h"

/* First step of the route. */
int api_space(struct query *q, struct err *e);

#endif

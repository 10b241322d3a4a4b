/* SPDX-License-Identifier: Apache-2.0
 *
 * api_annotations.h: notes at points of time, of one or more services: what was deployed when.
 */
#ifndef QUERIER_API_TENANT_API_ANNOTATIONS_H
#define QUERIER_API_TENANT_API_ANNOTATIONS_H

#include "querier/query/query.h"

/* First steps. */
int api_annotations_create(struct query *q, struct err *e);
int api_annotations_list(struct query *q, struct err *e);
int api_annotations_delete(struct query *q, struct err *e);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * api_ledger.h: GET /api/v1/ledger compares what was accepted with what is stored
 * (common/store/LEDGER.md). POST /api/v1/ledger/accept: the operator accepts a difference. JSON.
 */
#ifndef QUERIER_API_TENANT_API_LEDGER_H
#define QUERIER_API_TENANT_API_LEDGER_H

#include "querier/query/query.h"

/* First steps of the routes. */
int api_ledger(struct query *q, struct err *e);
int api_ledger_accept(struct query *q, struct err *e);

#endif

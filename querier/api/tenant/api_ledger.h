/* SPDX-License-Identifier: Apache-2.0
 *
 * api_ledger.h: GET /api/v1/ledger: what came in, what is there, and that they agree
 * (common/store/LEDGER.md). POST /api/v1/ledger/accept: a person takes a difference as it is. JSON.
 */
#ifndef QUERIER_API_TENANT_API_LEDGER_H
#define QUERIER_API_TENANT_API_LEDGER_H

#include "querier/query/query.h"

/* First steps of the routes. */
int api_ledger(struct query *q, struct err *e);
int api_ledger_accept(struct query *q, struct err *e);

#endif

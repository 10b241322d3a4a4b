/* SPDX-License-Identifier: Apache-2.0
 *
 * api_ledger.h: GET /api/v1/ledger: what came in, what is there, and that they agree
 * (common/store/LEDGER.md). JSON.
 */
#ifndef QUERIER_API_LEDGER_H
#define QUERIER_API_LEDGER_H

#include "querier/query.h"

/* First step of the route. */
int api_ledger(struct query *q, struct err *e);

#endif

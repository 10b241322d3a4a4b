/* SPDX-License-Identifier: Apache-2.0
 *
 * collectors.h: does an answer add up profiles of one service that several collectors took? An eBPF
 * profiler of the whole machine next to an SDK in the process measures the same time twice.
 */
#ifndef QUERIER_COLLECTORS_H
#define QUERIER_COLLECTORS_H

#include "querier/query.h"

/* Asks as question `ask` what each collector contributed to wq in the range; only where the query
 * names one service, and nothing where it selects one collector. */
NODISCARD int collectors_ask(struct query *q, size_t ask, const struct wire_query *wq,
                             struct err *e);
/* From the replies: sets q->notice where there are several. */
NODISCARD int collectors_read(struct query *q, size_t ask, struct err *e);

#endif

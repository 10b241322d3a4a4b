/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_estimate.h: RPC_ESTIMATE (proto/query.proto): what a merge would read. Runs in the queue of
 * rpc_read.c.
 */
#ifndef INGESTER_READ_RPC_ESTIMATE_H
#define INGESTER_READ_RPC_ESTIMATE_H

#include "ingester/read/read_run.h"

/* As read_msg_decode and read_run. Any thread. */
NODISCARD int estimate_decode(struct str payload, struct arena *a, struct read_msg *ret,
                              struct err *e);
NODISCARD int estimate_run(const struct read_msg *m, const struct read_source *src, struct buf *out,
                           uint64_t *ret_rows, struct err *e);
/* ERR_LIMIT if a query would read over m->cost_max bytes. */
NODISCARD int estimate_check(const struct read_msg *m, const struct read_source *src,
                             struct err *e);

#endif

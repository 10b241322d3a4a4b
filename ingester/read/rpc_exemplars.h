/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_exemplars.h: RPC_EXEMPLARS (proto/exemplar.proto): what the samples of some spans, traces or
 * profiles add up to, or which of those there are. Runs in the queue of rpc_read.c.
 */
#ifndef INGESTER_READ_RPC_EXEMPLARS_H
#define INGESTER_READ_RPC_EXEMPLARS_H

#include "ingester/read/read_run.h"

/* As read_msg_decode and read_run. Any thread. */
NODISCARD int exemplars_decode(struct str payload, struct arena *a, struct read_msg *ret,
                               struct err *e);
NODISCARD int exemplars_run(const struct read_msg *m, const struct read_source *src,
                            struct arena *a, struct buf *out, uint64_t *ret_rows, struct err *e);

#endif

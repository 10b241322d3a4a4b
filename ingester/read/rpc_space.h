/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_space.h: RPC_SPACE (proto/space.proto): whose bytes the files of this ingester are. Runs in
 * the queue of rpc_read.c.
 */
#ifndef INGESTER_READ_RPC_SPACE_H
#define INGESTER_READ_RPC_SPACE_H

#include "ingester/read/read_run.h"

/* As read_msg_decode and read_run. Any thread. */
NODISCARD int space_decode(struct str payload, struct arena *a, struct read_msg *ret,
                           struct err *e);
NODISCARD int space_run(const struct read_msg *m, const struct read_source *src, struct arena *a,
                        struct buf *out, struct err *e);

#endif

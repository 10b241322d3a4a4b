/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_framed.h: messages over pipes that carry frames: queues, chunks, compression, checks.
 */
#ifndef COMMON_RPC_RPC_FRAMED_H
#define COMMON_RPC_RPC_FRAMED_H

#include "common/rpc/rpc_wire.h"

/* Opens a port on a transport of frames; the rest goes through (*ret)->ops. `zstd`: compress. */
NODISCARD int rpc_framed_open(const struct rpc_pipe_ops *pipes, bool zstd,
                              const struct rpc_wire_opts *o, struct rpc_port **ret, struct err *e);

#endif

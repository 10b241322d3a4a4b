/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_addr.h: addresses of nodes.
 *
 *   tcp://host:port   host a name, 10.0.0.7 or [::1]; to listen also * (then advertise another)
 *   ipc:///path       a unix socket
 *   inproc://name     in this process
 *   mem://name        in the simulated network
 */
#ifndef COMMON_RPC_RPC_ADDR_H
#define COMMON_RPC_RPC_ADDR_H

#include "common/base/err.h"
#include "common/base/str.h"
#include "common/rpc/rpc_frame.h"

enum rpc_scheme { RPC_SCHEME_TCP, RPC_SCHEME_IPC, RPC_SCHEME_INPROC, RPC_SCHEME_MEM };

NODISCARD int rpc_addr_parse(struct str addr, enum rpc_scheme *ret, struct err *e);
/* True for tcp with * or an all-zero address: a node can listen on it, and no peer can call it. */
bool rpc_addr_wildcard(struct str addr);
/* Host, without brackets, and port of a tcp address that was checked. */
void rpc_addr_split(struct str addr, struct str *ret_host, struct str *ret_port);
/* An address for a node that only calls, reachable from `peer`; `nonce` makes it unique. For tcp
 * the local address the kernel would use towards the peer and a free port. */
NODISCARD int rpc_addr_anonymous(struct str peer, uint64_t nonce, char ret[RPC_ADDR_MAX + 1],
                                 struct err *e);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_check.h: may a node listen and answer at these addresses? What rpc_node_new asks before it
 * opens anything.
 */
#ifndef COMMON_RPC_RPC_CHECK_H
#define COMMON_RPC_RPC_CHECK_H

#include "common/base/err.h"

/* ERR_CONFIG: not addresses, or others cannot answer to what is advertised. */
NODISCARD int rpc_listen_check(const char *listen, const char *advertise, struct err *e);

#endif

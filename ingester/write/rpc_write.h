/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_write.h: serves RPC_WRITE.
 */
#ifndef INGESTER_WRITE_RPC_WRITE_H
#define INGESTER_WRITE_RPC_WRITE_H

#include "ingester/base/state.h"

void rpc_write_serve(struct ingester *in);
/* ERR_UNAVAILABLE or ERR_NO_SPACE while this ingester takes no writes. Loop thread. */
NODISCARD int rpc_write_accepting(const struct ingester *in, struct err *e);
/* The disk hangs: answers writes that wait for it, with the reason. Loop thread. */
void rpc_write_disk_hangs(struct ingester *in);

#endif

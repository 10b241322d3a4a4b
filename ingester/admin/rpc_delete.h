/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_delete.h: serves RPC_DELETE: starts deletes on all shards, tells what they would do, lists
 * them; frees the bytes of purged ones in the background.
 */
#ifndef INGESTER_ADMIN_RPC_DELETE_H
#define INGESTER_ADMIN_RPC_DELETE_H

#include "ingester/base/state.h"

/* After the shards are open. */
void rpc_delete_serve(struct ingester *in);
/* True while nothing is at work. */
bool rpc_delete_idle(const struct ingester *in);
void rpc_delete_free(struct ingester *in);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_read.h: serves RPC_MERGE, RPC_TIMELINE, RPC_LABELS, RPC_FUNCTIONS and RPC_EXEMPLARS.
 */
#ifndef INGESTER_READ_RPC_READ_H
#define INGESTER_READ_RPC_READ_H

#include "ingester/base/state.h"

/* After the shards are open. */
void rpc_read_serve(struct ingester *in);
/* True while no query runs or waits. */
bool rpc_read_idle(const struct ingester *in);
/* The tenant that the request begins with; empty: none. */
struct str read_tenant(struct str payload);
void rpc_read_free(struct ingester *in);

#endif

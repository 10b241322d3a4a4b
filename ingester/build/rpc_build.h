/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_build.h: serves RPC_BUILD_NEXT and RPC_BUILD_APPLY: gives out the children of nodes of 1 h
 * and up, takes their sums back.
 */
#ifndef INGESTER_BUILD_RPC_BUILD_H
#define INGESTER_BUILD_RPC_BUILD_H

#include "common/base/json.h"
#include "ingester/base/state.h"

/* After the shards are open. */
void rpc_build_serve(struct ingester *in);
/* True while no request is at work. */
bool rpc_build_idle(const struct ingester *in);
void rpc_build_free(struct ingester *in);
/* Adds what one shard has to say to an object: jobs, lag. */
void rpc_build_ring(const struct ingester *in, size_t place, struct json *j);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_deferred.h: "call fn once, in the next round of the loop", that may be kicked any number of
 * times and freed at any time, its own callback included.
 */
#ifndef COMMON_RPC_RPC_DEFERRED_H
#define COMMON_RPC_RPC_DEFERRED_H

#include "common/sys/loop.h"

struct rpc_deferred;

struct rpc_deferred *rpc_deferred_new(struct loop *l, loop_fn fn, void *cookie);
void rpc_deferred_schedule(struct rpc_deferred *s);
void rpc_deferred_free(struct rpc_deferred *s); /* NULL is fine; fn is not called any more */

#endif

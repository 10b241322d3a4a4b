/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_soon.h: "call fn once, in the next round of the loop", that may be kicked any number of times
 * and freed at any time, its own callback included.
 */
#ifndef COMMON_RPC_RPC_SOON_H
#define COMMON_RPC_RPC_SOON_H

#include "common/sys/loop.h"

struct rpc_soon;

struct rpc_soon *rpc_soon_new(struct loop *l, loop_fn fn, void *cookie);
void rpc_soon_kick(struct rpc_soon *s);
void rpc_soon_free(struct rpc_soon *s); /* NULL is fine; fn is not called any more */

#endif

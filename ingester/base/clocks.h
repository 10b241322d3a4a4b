/* SPDX-License-Identifier: Apache-2.0
 *
 * clocks.h: what the clocks of other processes say, for engine time of the shards (engine_clock.h).
 */
#ifndef INGESTER_BASE_CLOCKS_H
#define INGESTER_BASE_CLOCKS_H

#include "common/rpc/rpc.h"
#include "common/store/state/engine_clock.h"
#include "common/sys/loop.h"

struct clocks;
/* own: the one the stores go by. All outlive it. Loop, as all but clocks_others. */
struct clocks *clocks_new(struct loop *loop, const struct rpc_net *rpc, const struct clock *own);
void clocks_free(struct clocks *c); /* NULL is fine; no store is open any more */
/* As long as it is there. Any thread. */
const struct engine_clock_others *clocks_others(const struct clocks *c);

#endif

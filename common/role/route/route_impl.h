/* SPDX-License-Identifier: Apache-2.0
 *
 * route_impl.h: inside a route, for route.c and hedged_call.c only.
 */
#ifndef COMMON_ROLE_ROUTE_ROUTE_IMPL_H
#define COMMON_ROLE_ROUTE_ROUTE_IMPL_H

#include <stdatomic.h>

#include "common/role/route/peer_paths.h"
#include "common/role/route/route.h"

struct route {
    struct route_opts o;
    bool moves;
    struct rpc_peer **peers; /* of a list, one per ingester */
    size_t peers_len;
    _Atomic uint32_t shards;
    uint64_t *missing_ms; /* by shard: since when it has no leader; MISSING_NEVER: it has one */
    bool *round; /* by shard: the leader of the view does not lead, and the new one is not known */
    uint32_t missing_len;
    struct peer_paths *ways;
};

/* True if an ingester can be reached through another one. In a list each ingester has shards of its
 * own only: its own answer, or its silence, is the answer. */
static inline bool route_rounds(const struct route *r)
{
    return r->moves && view_nodes_len(r->o.view) > 1;
}

/* Another ingester may know the leader of this target better than our view. */
bool route_uses_relay(const struct route *r, size_t target);

/* Returns an ingester that can relay a call of this method to the leader of this target, and its
 * way; not `but`. NULL: no such ingester at the moment. */
struct rpc_peer *route_helper(struct route *r, size_t target, enum rpc_method method,
                              const struct way *but, struct way **ret_way);

/* hedged_call.c: asks for more where calls are late. */
void hedged_call_tick(void *ways);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * route_impl.h: inside a route, for route.c and race.c only.
 */
#ifndef COMMON_ROLE_ROUTE_ROUTE_IMPL_H
#define COMMON_ROLE_ROUTE_ROUTE_IMPL_H

#include <stdatomic.h>

#include "common/role/route/route.h"
#include "common/role/route/ways.h"

struct route {
    struct route_opts o;
    bool moves;
    struct rpc_peer **peers; /* of a list, one per ingester */
    size_t peers_len;
    _Atomic uint32_t shards;
    uint64_t *missing_ms; /* by shard: since when nobody leads it; MISSING_NEVER: somebody does */
    bool *round; /* by shard: who the view says leads it does not, and nobody can say who does */
    uint32_t missing_len;
    struct ways *ways;
};

/* Is there more than one way to anybody? In a list everybody has shards of his own alone: there,
 * what he says himself, or that he says nothing, is the answer. */
static inline bool route_rounds(const struct route *r)
{
    return r->moves && view_nodes_len(r->o.view) > 1;
}

/* Another ingester may know the leader of this target better than our view. */
bool route_goes_round(const struct route *r, size_t target);

/* An ingester that can pass a call of this method on to the leader of this target, and its way; not
 * `but`. NULL: there is none at the moment. */
struct rpc_peer *route_helper(struct route *r, size_t target, enum rpc_method method,
                              const struct way *but, struct way **ret_way);

/* race.c: asks for more where calls are late. */
void race_tick(void *ways);

#endif

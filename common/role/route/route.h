/* SPDX-License-Identifier: Apache-2.0
 *
 * route.h: whom to ask about a shard. The one place where distributors, queriers and compactors
 * find ingesters.
 *
 * A target is what one call goes to. With a list of ingesters (cluster.ingesters) that is an
 * ingester with all its shards, for as long as the process lives. In a cluster whose shards move it
 * is one shard, at its present leader: a call that failed is sent again, to the leader of that
 * moment. Where shards never move, it is sent again to the same ingester while that may be back
 * within seconds (route.c).
 *
 * Thread: the loop's, but for route_moves, route_shards, route_targets and route_target (any).
 */
#ifndef COMMON_ROLE_ROUTE_ROUTE_H
#define COMMON_ROLE_ROUTE_ROUTE_H

#include "common/base/json.h"
#include "common/cluster/view/view.h"
#include "common/rpc/rpc.h"

struct route;
struct route_opts {
    struct rpc_node *node; /* calls; outlives the route */
    struct loop *loop;
    struct view *view; /* outlives it, too */
    /* A shard without a leader, or without most of its copies, for so long makes us unready; 0: at
     * once. */
    uint64_t patience_ms;
    uint64_t hedge_ms;       /* cluster.hedge_after: hedged_call.h; 0: nothing is sent twice */
    struct metrics *metrics; /* may be NULL */
};
/* With a list, each address is checked and greeted at once. ERR_CONFIG, ERR_LIMIT. */
NODISCARD int route_new(const struct route_opts *o, struct route **ret, struct err *e);
void route_free(struct route *r); /* NULL is fine */

bool route_moves(const struct route *r);
uint32_t route_shards(const struct route *r); /* of the cluster; 0: not known yet */
/* Where profiles go and are, for threads; map_unref when done. NULL: not known yet. Loop. */
const struct map *route_map(const struct route *r);
size_t route_targets(const struct route *r);
size_t route_target(const struct route *r, uint32_t shard);

/* ERR_UNAVAILABLE: no leader is known. */
struct rpc_peer *route_peer(struct route *r, size_t target, struct err *e);
/* Reports that a call to the target, direct or relayed (hedged_call_went_round), failed: the view
 * is refreshed soon. */
void route_failed(struct route *r, size_t target, bool went_round);
struct route_query {
    size_t target;
    enum rpc_method method;
    uint64_t deadline_ms; /* from now on */
    rpc_done_fn done;     /* called once, never from inside route_ask */
    void *cookie;
};
/* Sends one query. Where shards move it is sent again, until the deadline, while the shard has no
 * leader; else while its ingester may be back within seconds. So it must be harmless to ask twice.
 * Moves *payload. A call that ended must not be canceled. */
struct route_call;
struct route_call *route_ask(struct route *r, const struct route_query *q, struct buf *payload);
void route_cancel(struct route_call *c); /* done is not called any more; NULL is fine */
/* Everything can be reached; else `why` says what cannot. */
bool route_ready(struct route *r, char *why, size_t why_size);
/* Its ingesters that answer, and all of them. */
size_t route_up(const struct route *r, size_t *ret_all);
void route_json(const struct route *r, struct json *j); /* "ingesters": [...] */

#endif

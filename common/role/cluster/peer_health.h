/* SPDX-License-Identifier: Apache-2.0
 *
 * peer_health.h: the state that peers report of themselves in answers to pings: how far their
 * clocks are from this one's, and whether etcd refuses their changes. It is shown to operators;
 * nothing is decided by it. In a small cluster ingesters are asked even if no request needs them.
 */
#ifndef COMMON_ROLE_CLUSTER_PEER_HEALTH_H
#define COMMON_ROLE_CLUSTER_PEER_HEALTH_H

#include "common/base/json.h"
#include "common/cluster/view/view.h"
#include "common/obs/metrics.h"
#include "common/rpc/rpc.h"
#include "common/sys/loop.h"

struct etcd_health;
struct peer_health;

/* More than this apart is said: profiles begin to stand in the wrong place of a graph. */
#define PEER_HEALTH_SKEW_MS 5000

/* Also reports this process's state to its peers. health: NULL where there is no etcd. All outlive
 * it. Loop. */
struct peer_health *peer_health_new(struct loop *loop, struct rpc_net *rpc, const struct view *view,
                                    const struct etcd_health *health, struct metrics *metrics);
void peer_health_free(struct peer_health *h); /* NULL is fine */
/* Members of an object: "clocks", "refused", "refused_here". */
void peer_health_json(const struct peer_health *h, struct json *j);

#endif

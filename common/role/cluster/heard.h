/* SPDX-License-Identifier: Apache-2.0
 *
 * heard.h: what the processes that this one calls let it hear of themselves, in answers to pings:
 * how far their clocks are from ours, and that etcd refuses what they want changed. For people:
 * nothing is decided by it. In a small cluster ingesters are listened to even if nobody calls them.
 */
#ifndef COMMON_ROLE_CLUSTER_HEARD_H
#define COMMON_ROLE_CLUSTER_HEARD_H

#include "common/base/json.h"
#include "common/cluster/view/view.h"
#include "common/obs/metrics.h"
#include "common/rpc/rpc.h"
#include "common/sys/loop.h"

struct etcd_health;
struct heard;

/* More than this apart is said: profiles begin to stand in the wrong place of a graph. */
#define HEARD_SKEW_MS 5000

/* Also lets others hear of us. health: NULL where there is no etcd. All outlive it. Loop. */
struct heard *heard_new(struct loop *loop, struct rpc_net *rpc, const struct view *view,
                        const struct etcd_health *health, struct metrics *metrics);
void heard_free(struct heard *h); /* NULL is fine */
/* Members of an object: "clocks", "refused", "refused_here". */
void heard_json(const struct heard *h, struct json *j);

#endif

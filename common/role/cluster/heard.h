/* SPDX-License-Identifier: Apache-2.0
 *
 * heard.h: the state that peers report of themselves in answers to pings: how far their clocks are
 * from this one's, and whether etcd refuses their changes. It is shown to operators; nothing is
 * decided by it. In a small cluster ingesters are asked even if no request needs them.
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

/* Also reports this process's state to its peers. health: NULL where there is no etcd. All outlive
 * it. Loop. */
struct heard *heard_new(struct loop *loop, struct rpc_net *rpc, const struct view *view,
                        const struct etcd_health *health, struct metrics *metrics);
void heard_free(struct heard *h); /* NULL is fine */
/* Members of an object: "clocks", "refused", "refused_here". */
void heard_json(const struct heard *h, struct json *j);

#endif

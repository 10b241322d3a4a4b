/* SPDX-License-Identifier: Apache-2.0
 *
 * etcd_health.h: logs when etcd is away or refuses changes, and when it is back. Pushes and queries
 * continue then, so users notice nothing until a leader dies and no other node may take over.
 */
#ifndef COMMON_ROLE_CLUSTER_ETCD_HEALTH_H
#define COMMON_ROLE_CLUSTER_ETCD_HEALTH_H

#include "common/cluster/view/view.h"
#include "common/obs/metrics.h"
#include "common/sys/loop.h"

struct coord;
struct etcd_health;

/* `coord` is etcd's (coord_etcd.h); all of them outlive it. Loop. */
struct etcd_health *etcd_health_new(struct loop *loop, const struct coord *coord,
                                    const struct view *view, struct metrics *metrics);
/* True while etcd answers, but has refused all changes of this process for TICKS looks. */
bool etcd_health_refuses(const struct etcd_health *h);
void etcd_health_free(struct etcd_health *h); /* NULL is fine */

#endif

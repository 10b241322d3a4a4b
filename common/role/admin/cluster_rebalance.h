/* SPDX-License-Identifier: Apache-2.0
 *
 * cluster_rebalance.h: what is yet to be moved in a cluster, and that it be moved faster: GET and
 * POST /api/v1/cluster/rebalance, guarded by access.h.
 */
#ifndef COMMON_ROLE_ADMIN_CLUSTER_REBALANCE_H
#define COMMON_ROLE_ADMIN_CLUSTER_REBALANCE_H

struct process_core;

void cluster_rebalance_routes(struct process_core *p);

#endif

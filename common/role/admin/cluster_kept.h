/* SPDX-License-Identifier: Apache-2.0
 *
 * cluster_kept.h: what this process keeps of the cluster, and how a coordination service that lost
 * its data gets it back:
 *
 *   GET  /api/v1/cluster/kept                  common/cluster/rebuild/kept.h
 *   POST /api/v1/cluster/recover[?dry_run=1]   the same of all together: written where it is
 *                                              missing or older; common/cluster/rebuild/recover.h
 *
 * Guarded by access.h. `embertreectl cluster recover` asks and writes.
 */
#ifndef COMMON_ROLE_ADMIN_CLUSTER_KEPT_H
#define COMMON_ROLE_ADMIN_CLUSTER_KEPT_H

struct process_core;

void cluster_kept_routes(struct process_core *p);

#endif

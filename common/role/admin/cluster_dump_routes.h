/* SPDX-License-Identifier: Apache-2.0
 *
 * cluster_dump_routes.h: what this process keeps of the cluster, and how a coordination service
 * that lost its data gets it back:
 *
 *   GET  /api/v1/cluster/kept                  common/cluster/rebuild/cluster_dump.h
 *   POST /api/v1/cluster/recover[?dry_run=1]   the same of all together: written where it is
 *                                              missing or older;
 * common/cluster/rebuild/etcd_rebuild.h
 *
 * Guarded by access.h. `embertreectl cluster recover` asks and writes.
 */
#ifndef COMMON_ROLE_ADMIN_CLUSTER_DUMP_ROUTES_H
#define COMMON_ROLE_ADMIN_CLUSTER_DUMP_ROUTES_H

struct process_core;

void cluster_dump_routes(struct process_core *p);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * cluster_progress.h: how far the copies of all shards are, as each node last said it (every few
 * seconds), from whichever process is asked: GET /api/v1/cluster/progress, guarded by access.h.
 */
#ifndef COMMON_ROLE_ADMIN_CLUSTER_PROGRESS_H
#define COMMON_ROLE_ADMIN_CLUSTER_PROGRESS_H

struct process_core;

void cluster_progress_routes(struct process_core *p);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * cluster_page.h: POST /api/v1/cluster/nodes/NODE/drain and .../undrain, guarded by access.h.
 */
#ifndef COMMON_ROLE_ADMIN_CLUSTER_PAGE_H
#define COMMON_ROLE_ADMIN_CLUSTER_PAGE_H

struct process_core;

void cluster_page_routes(struct process_core *p);

#endif

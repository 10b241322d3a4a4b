/* SPDX-License-Identifier: Apache-2.0
 *
 * cluster_places.h: over how many shards services and tenants are spread, guarded by access.h:
 * GET /api/v1/cluster/places, POST /api/v1/cluster/services and .../tenants.
 */
#ifndef COMMON_ROLE_ADMIN_CLUSTER_PLACES_H
#define COMMON_ROLE_ADMIN_CLUSTER_PLACES_H

struct process_core;

void cluster_places_routes(struct process_core *p);

#endif

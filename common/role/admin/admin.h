/* SPDX-License-Identifier: Apache-2.0
 *
 * admin.h: the pages of every process: /healthz /readyz /ready /metrics /config /ring.
 */
#ifndef COMMON_ROLE_ADMIN_ADMIN_H
#define COMMON_ROLE_ADMIN_ADMIN_H

#include "common/base/buf.h"

struct process_core;
struct svc_health;

/* Registers the pages and grpc.health.v1.Health on the listener of the process. */
void admin_routes(struct process_core *p, struct svc_health *health);

/* Bodies, for tests. admin_ready returns true if the process is ready. */
bool admin_ready(const struct process_core *p, struct buf *out);
void admin_ring(const struct process_core *p, struct buf *out);
/* Copies a YAML text line by line; values of keys that end in secret, password, token or key are
 * replaced by eight stars. */
void admin_mask(struct str yaml, struct buf *out);

#endif

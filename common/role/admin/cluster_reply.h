/* SPDX-License-Identifier: Apache-2.0
 *
 * cluster_reply.h: the answer to a change of the cluster that a person made.
 */
#ifndef COMMON_ROLE_ADMIN_CLUSTER_REPLY_H
#define COMMON_ROLE_ADMIN_CLUSTER_REPLY_H

#include "common/base/json.h"
#include "common/cluster/view/view.h"
#include "common/net/http.h"

/* The error, or (e NULL) an object whose members `fill` puts. */
void cluster_reply(struct http_req *r, const struct err *e,
                   void (*fill)(void *cookie, struct json *j), void *cookie);
/* False, and answered: the coordination service holds not this cluster, or less of it. */
bool cluster_followed(const struct view *v, struct http_req *r);

#endif

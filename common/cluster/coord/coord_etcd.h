/* SPDX-License-Identifier: Apache-2.0
 *
 * coord_etcd.h: etcd (v3, by its JSON gateway) as the coordination service.
 */
#ifndef COMMON_CLUSTER_COORD_COORD_ETCD_H
#define COMMON_CLUSTER_COORD_COORD_ETCD_H

#include "common/cluster/coord/coord.h"
#include "common/net/client/http_client.h"
#include "common/sys/loop.h"

#define COORD_ENDPOINTS_MAX 16

struct coord_etcd_opts { /* everything is copied */
    struct loop *loop;
    const char *const *urls; /* "https://etcd-0:2379"; one after the other where one fails */
    size_t urls_len;
    struct http_client_tls tls;
    const char *user, *password; /* NULL or "": no login */
};
/* Real loops only. ERR_CONFIG: a URL is invalid, or their number is 0 or too high. */
NODISCARD int coord_etcd_new(const struct coord_etcd_opts *o, struct coord **ret, struct err *e);
/* The reason of etcd's last refusal of a change or a lease: no right, no space left, no leader;
 * "" when it has made a change since. coord_why says it, too, while it holds. */
const char *coord_etcd_refused(const struct coord *coord);

#endif

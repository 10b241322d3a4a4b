/* SPDX-License-Identifier: Apache-2.0
 *
 * cluster_keys.h: cluster.key_file in the life of a process: read at the start, read again when it
 * changes, and a line in the log when a peer without a key sends frames. Thread: the loop's.
 */
#ifndef COMMON_ROLE_CLUSTER_CLUSTER_KEYS_H
#define COMMON_ROLE_CLUSTER_CLUSTER_KEYS_H

#include "common/role/core/role.h"
#include "common/rpc/rpc_keys.h"

#define CLUSTER_KEYS_WARN_MS 10000 /* at most one line about refused frames in that time */

struct cluster_keys {
    struct rpc_keys *keys;       /* owned; NULL: none configured */
    struct rpc_net *net;         /* borrowed */
    uint64_t warned_ms;          /* 0: not yet */
    uint64_t refused[RPC_DROPS]; /* when last looked */
};

/* Before the first role. Without cluster.key_file: frames are not sealed. */
NODISCARD int cluster_keys_start(struct cluster_keys *c, const struct cluster_conf *conf,
                                 struct rpc_net *net, struct err *e);
void cluster_keys_tick(struct cluster_keys *c, uint64_t now_ms);
void cluster_keys_stop(struct cluster_keys *c); /* the net is freed */

#endif

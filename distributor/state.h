/* SPDX-License-Identifier: Apache-2.0
 *
 * state.h: one distributor; internal to the role.
 */
#ifndef DISTRIBUTOR_STATE_H
#define DISTRIBUTOR_STATE_H

#include "common/role/role.h"
#include "distributor/metrics.h"
#include "distributor/options.h"
#include "distributor/tenants.h"

#define DISTRIBUTOR_MAGIC MAGIC('D', 'I', 'S', 'T')

struct distributor {
    uint32_t magic;
    const struct role_ctx *ctx;          /* borrowed */
    const struct distributor_conf *conf; /* borrowed */
    struct limits limits;                /* the configured ones, decode_bytes fit to the memory */
    struct distributor_metrics metrics;
    struct write_secret secret;
    struct tenants *tenants;
    struct rpc_node *node;
    struct rpc_peer **peers; /* by position in cluster.ingesters; owned array */
    size_t peers_len;
    struct budget in_flight; /* memory of pushes in work */
    uint64_t seed;           /* of hash tables over foreign bytes */
    struct prng prng;        /* jitter of retries */
    size_t pushes;           /* in work */
    bool draining;
    void (*drained)(void *cookie);
    void *drained_cookie;
    char why[256]; /* not ready because */
};

#endif

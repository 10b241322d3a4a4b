/* SPDX-License-Identifier: Apache-2.0
 *
 * state.h: everything a querier keeps. All on the loop, but for the shared budget.
 */
#ifndef QUERIER_BASE_STATE_H
#define QUERIER_BASE_STATE_H

#include "common/role/core/role.h"
#include "common/role/route/route.h"
#include "querier/base/metrics.h"
#include "querier/base/options.h"
#include "querier/ui/ui.h"

#define QUERIER_MAGIC MAGIC('q', 'u', 'e', 'r')

struct query_route;
/* A route with its querier: the cookie of the HTTP route. */
struct querier_route {
    struct querier *querier;
    const struct query_route *route;
};

struct querier {
    uint32_t magic;
    const struct role_ctx *ctx; /* borrowed; outlives the role */
    const struct querier_conf *conf;
    struct rpc_node *node;       /* owned */
    struct route *route;         /* owned: where the shards are */
    struct budget bytes;         /* of all queries */
    struct tenant_queues *turns; /* owned: whose query is next */
    struct limits_watch *limits; /* owned; NULL: no overrides_file */
    struct asyncs *asyncs;       /* owned: queries whose answer is fetched later */
    size_t query_bytes_max;
    size_t running;               /* waiting for their turn, too */
    uint64_t seed;                /* of hash tables over names from outside */
    struct querier_route *routes; /* owned */
    struct ui ui;
    struct querier_metrics metrics;
    bool was_ready;                             /* every ingester answered once */
    char why[256];                              /* what ready() said last */
    void (*on_query_ended)(struct querier *qr); /* of querier.c: the drain waits for it */
    bool draining;
    void (*drained)(void *cookie); /* set while draining until all queries ended */
    void *drained_cookie;
};

#endif

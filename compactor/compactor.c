/* SPDX-License-Identifier: Apache-2.0
 *
 * compactor: start, readiness and end of the role.
 *
 * It builds the levels from 1 h up (builder.c), of the shards it has claimed where compactors share
 * them (claims.c), and watches how far sealing is (ingester_poll.c). Readiness
 * is the watch's alone: without builds every answer is the same, only dearer.
 */
#include "compactor/compactor.h"

#include "common/base/mem.h"
#include "common/role/core/memory.h"
#include "compactor/builder.h"
#include "compactor/check.h"
#include "compactor/claims.h"
#include "compactor/ingester_poll.h"
#include "compactor/options.h"

#define COMPACTOR_MAGIC MAGIC('c', 'o', 'm', 'p')

struct compactor {
    uint32_t magic;
    struct rpc_node *node;
    struct route *route;
    struct ingester_poll *watch;
    struct builder *builder;
    struct claims *claims; /* NULL: it works for all shards */
    bool draining;
    void (*drained)(void *cookie);
    void *drained_cookie;
};

static int start_node(const struct role_ctx *ctx, const struct compactor_conf *conf,
                      struct compactor *c, struct err *e)
{
    struct rpc_node_opts o = {
        .net = ctx->rpc,
        .loop = ctx->loop,
        .listen = conf->listen,
        .message_max = ctx->cluster->rpc_message_bytes_max,
        .pending_max = ctx->cluster->rpc_pending_max,
        .heartbeat_ms = (uint32_t)ctx->cluster->heartbeat_ms,
        .pool = ctx->pool,
        .dead_ms = (uint32_t)ctx->cluster->dead_ms,
    };

    return rpc_node_new(&o, &c->node, e) ? err_wrap(e, "compactor.listen") : 0;
}

static int start_route(const struct role_ctx *ctx, struct compactor *c, struct err *e)
{
    struct route_opts o = {
        .node = c->node, .loop = ctx->loop, .view = ctx->view, .metrics = ctx->metrics
    };

    return route_new(&o, &c->route, e);
}

static bool claims_own(void *cookie, uint32_t shard, uint64_t fence)
{
    return builder_own(cookie, shard, fence);
}

static bool claims_let_go(void *cookie, uint32_t shard)
{
    return builder_leave(cookie, shard);
}

static void claims_lose(void *cookie, uint32_t shard)
{
    builder_lose(cookie, shard);
}

static void start_claims(const struct role_ctx *ctx, uint64_t id, struct compactor *c)
{
    struct claims_opts o = {
        .loop = ctx->loop,
        .coord = ctx->coord,
        .view = ctx->view,
        .metrics = ctx->metrics,
        .prefix = ctx->cluster->etcd_prefix,
        .id = id,
        .ttl_ms = ctx->cluster->lease_ttl_ms,
        .own = claims_own,
        .leave = claims_let_go,
        .lose = claims_lose,
        .cookie = c->builder,
    };

    c->claims = claims_new(&o);
}

static void start_builder(const struct role_ctx *ctx, const struct compactor_conf *conf,
                          struct compactor *c)
{
    struct builder_opts o = {
        .route = c->route,
        .loop = ctx->loop,
        .pool = ctx->pool,
        .clock = ctx->env->clock,
        .metrics = ctx->metrics,
        .interval_ms = conf->build_interval_ms,
        .timeout_ms = conf->build_timeout_ms,
        .lag_warn_ms = conf->build_lag_warn_ms,
        .share = conf->build_share,
        .jobs_max = conf->build_jobs,
        .memory_bytes = conf->build_memory ? conf->build_memory
                                           : memory_share(ctx->memory_limit, MEMORY_BUILDS),
        .memory = ctx->memory,
        .message_max = ctx->cluster->rpc_message_bytes_max,
    };

    ctx->env->random(ctx->env, &o.id, sizeof(o.id));
    o.claimed = ctx->coord != NULL;
    c->builder = builder_new(&o);
    if (ctx->coord)
        start_claims(ctx, o.id, c);
}

static void compactor_free(void *self)
{
    struct compactor *c = self;

    if (!c)
        return;
    CHECK(c->magic == COMPACTOR_MAGIC);
    ingester_poll_free(c->watch);
    claims_free(c->claims);
    builder_free(c->builder);
    route_free(c->route);
    rpc_node_free(c->node);
    c->magic = 0;
    xfree(c);
}

static int compactor_start(const struct role_ctx *ctx, void **ret_self, struct err *e)
{
    const struct compactor_conf *conf = conf_get(ctx->conf, &compactor_options);
    struct compactor *c = XNEW(struct compactor);
    struct ingester_poll_opts o = {
        .loop = ctx->loop,
        .metrics = ctx->metrics,
        .view = ctx->view,
        .interval_ms = conf->check_interval_ms,
        .lag_warn_ms = conf->lag_warn_ms,
    };
    int code;

    c->magic = COMPACTOR_MAGIC;
    code = start_node(ctx, conf, c, e);
    o.node = c->node;
    if (!code)
        code = ingester_poll_new(&o, &c->watch, e);
    if (!code)
        code = start_route(ctx, c, e);
    if (code) {
        compactor_free(c);
        return code;
    }
    start_builder(ctx, conf, c);
    *ret_self = c;
    return 0;
}

static bool compactor_ready(void *self, const char **ret_why)
{
    const struct compactor *c = self;

    CHECK(c->magic == COMPACTOR_MAGIC);
    if (c->draining)
        *ret_why = "draining";
    return !c->draining && ingester_poll_ready(c->watch, ret_why);
}

static void on_left(void *cookie)
{
    struct compactor *c = cookie;

    rpc_node_drain(c->node, c->drained, c->drained_cookie);
}

/* Others take over once the lease is given back. */
static void on_builder_drained(void *cookie)
{
    struct compactor *c = cookie;

    if (c->claims)
        claims_leave(c->claims, on_left, c);
    else
        on_left(c);
}

static void compactor_drain(void *self, void (*done)(void *cookie), void *cookie)
{
    struct compactor *c = self;

    CHECK(c->magic == COMPACTOR_MAGIC);
    c->draining = true;
    ingester_poll_free(c->watch);
    c->watch = NULL;
    c->drained = done;
    c->drained_cookie = cookie;
    builder_drain(c->builder, on_builder_drained, c);
}

static void compactor_ring(void *self, struct json *j)
{
    const struct compactor *c = self;

    if (c->watch)
        ingester_poll_ring(c->watch, j);
    if (c->claims)
        claims_ring(c->claims, j);
    builder_ring(c->builder, j);
}

static const struct conf_table *const tables[] = { &compactor_options };

const struct role compactor_role = {
    .name = "compactor",
    .conf = tables,
    .conf_len = ARRAY_LEN(tables),
    .check = compactor_check,
    .start = compactor_start,
    .ready = compactor_ready,
    .drain = compactor_drain,
    .free = compactor_free,
    .ring = compactor_ring,
};

/* SPDX-License-Identifier: Apache-2.0
 *
 * compactor: start, readiness and end of the role.
 *
 * Today it watches: every ingester is asked how long its seal log is, how many raw rows wait and
 * how far sealing is behind (watch.c). The levels from 1 h up are its work once the engine has
 * them; then the watch is what tells it that a range is sealed.
 */
#include "compactor/compactor.h"

#include "common/base/mem.h"
#include "compactor/options.h"
#include "compactor/watch.h"

#define COMPACTOR_MAGIC MAGIC('c', 'o', 'm', 'p')

struct compactor {
    uint32_t magic;
    struct rpc_node *node;
    struct watch *watch;
    bool draining;
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

static void compactor_free(void *self)
{
    struct compactor *c = self;

    if (!c)
        return;
    CHECK(c->magic == COMPACTOR_MAGIC);
    watch_free(c->watch);
    rpc_node_free(c->node);
    c->magic = 0;
    xfree(c);
}

static int compactor_start(const struct role_ctx *ctx, void **ret_self, struct err *e)
{
    const struct compactor_conf *conf = conf_get(ctx->conf, &compactor_options);
    struct compactor *c = XNEW(struct compactor);
    struct watch_opts o = {
        .loop = ctx->loop,
        .metrics = ctx->metrics,
        .ingesters = &ctx->cluster->ingesters,
        .interval_ms = conf->check_interval_ms,
        .lag_warn_ms = conf->lag_warn_ms,
    };
    int code;

    c->magic = COMPACTOR_MAGIC;
    code = start_node(ctx, conf, c, e);
    o.node = c->node;
    if (!code)
        code = watch_new(&o, &c->watch, e);
    if (code) {
        compactor_free(c);
        return code;
    }
    *ret_self = c;
    return 0;
}

static bool compactor_ready(void *self, const char **ret_why)
{
    const struct compactor *c = self;

    CHECK(c->magic == COMPACTOR_MAGIC);
    if (c->draining)
        *ret_why = "draining";
    return !c->draining && watch_ready(c->watch, ret_why);
}

static void compactor_drain(void *self, void (*done)(void *cookie), void *cookie)
{
    struct compactor *c = self;

    CHECK(c->magic == COMPACTOR_MAGIC);
    c->draining = true;
    watch_free(c->watch);
    c->watch = NULL;
    rpc_node_drain(c->node, done, cookie);
}

static void compactor_ring(void *self, struct json *j)
{
    const struct compactor *c = self;

    if (c->watch)
        watch_ring(c->watch, j);
}

static const struct conf_table *const tables[] = { &compactor_options };

const struct role compactor_role = {
    .name = "compactor",
    .conf = tables,
    .conf_len = ARRAY_LEN(tables),
    .start = compactor_start,
    .ready = compactor_ready,
    .drain = compactor_drain,
    .free = compactor_free,
    .ring = compactor_ring,
};

/* SPDX-License-Identifier: Apache-2.0
 *
 * distributor: start, ready, drain, free. It keeps nothing: any number of them may run, and a push
 * may be repeated through another one (write_id.c).
 */
#include "distributor/distributor.h"

#include <stdio.h>

#include "common/base/mem.h"
#include "common/obs/log.h"
#include "distributor/api_ingest.h"

#define IN_FLIGHT_SHARE 10 /* of the memory limit, one part in so many */
#define DECODE_SHARE    4
#define DECODE_LEAST    (8 * MIB)

static void distributor_free(void *self)
{
    struct distributor *d = self;

    if (!d)
        return;
    CHECK(d->magic == DISTRIBUTOR_MAGIC && d->pushes == 0);
    rpc_node_free(d->node);
    tenants_free(d->tenants);
    xfree(d->peers);
    d->magic = 0;
    xfree(d);
}

static int start_node(struct distributor *d, struct err *e)
{
    const struct cluster_conf *c = d->ctx->cluster;
    struct rpc_node_opts o = {
        .net = d->ctx->rpc,
        .loop = d->ctx->loop,
        .listen = "",
        .message_max = (size_t)c->rpc_message_bytes_max,
        .pending_max = (size_t)c->rpc_pending_max,
        .heartbeat_ms = (uint32_t)c->heartbeat_ms,
        .dead_ms = (uint32_t)c->dead_ms,
        .pool = d->ctx->pool,
    };

    if (c->ingesters.len == 0)
        return err_set(e, ERR_CONFIG, "cluster.ingesters is empty: pushes have nowhere to go");
    if (c->shards == 0)
        return err_set(e, ERR_CONFIG, "cluster.shards is 0, want at least 1");
    if (rpc_node_new(&o, &d->node, e))
        return e->code;
    d->peers_len = c->ingesters.len;
    d->peers = XNEW_ARRAY(struct rpc_peer *, d->peers_len);
    for (size_t i = 0; i < d->peers_len; i++)
        if (rpc_peer_get(d->node, c->ingesters.items[i], &d->peers[i], e))
            return err_wrap(e, "cluster.ingesters: %s", c->ingesters.items[i]);
    return 0;
}

/* A simulated process has no files: its secret comes from the seeded randomness. */
static int load_secret(struct distributor *d, struct err *e)
{
    struct env *env = d->ctx->env;

    if (!d->ctx->simulated || d->conf->write_id_secret[0])
        return write_secret_load(&d->secret, d->conf->write_id_secret, d->ctx->data_dir, env, e);
    env->random(env, &d->secret, sizeof(d->secret));
    return 0;
}

static int distributor_start(const struct role_ctx *ctx, void **ret_self, struct err *e)
{
    struct distributor *d = XNEW(struct distributor);
    uint64_t seed;

    d->magic = DISTRIBUTOR_MAGIC;
    d->ctx = ctx;
    d->conf = conf_get(ctx->conf, &distributor_table);
    d->limits = d->conf->limits;
    d->limits.decode_bytes =
        MIN(d->limits.decode_bytes, MAX(ctx->memory_limit / DECODE_SHARE, DECODE_LEAST));
    budget_init(&d->in_flight,
                (size_t)(d->conf->in_flight_bytes
                             ? d->conf->in_flight_bytes
                             : MAX(ctx->memory_limit / IN_FLIGHT_SHARE, DECODE_LEAST)));
    distributor_metrics_init(&d->metrics, ctx->metrics);
    ctx->env->random(ctx->env, &d->seed, sizeof(d->seed));
    ctx->env->random(ctx->env, &seed, sizeof(seed));
    prng_init(&d->prng, seed);
    if (load_secret(d, e) || start_node(d, e)) {
        distributor_free(d);
        return e->code;
    }
    d->tenants = tenants_new(ctx->env->clock, d->conf, &d->secret, ctx->tenancy->multi);
    api_ingest_routes(d);
    *ret_self = d;
    return 0;
}

static bool distributor_ready(void *self, const char **ret_why)
{
    struct distributor *d = self;

    CHECK(d->magic == DISTRIBUTOR_MAGIC);
    *ret_why = d->why;
    if (d->draining) {
        (void)snprintf(d->why, sizeof(d->why), "shutting down");
        return false;
    }
    for (size_t i = 0; i < d->peers_len; i++) {
        if (rpc_peer_up(d->peers[i]))
            continue;
        (void)snprintf(d->why, sizeof(d->why), "ingester %s does not answer",
                       rpc_peer_addr(d->peers[i]));
        return false;
    }
    return true;
}

static void tell_drained(void *cookie)
{
    struct distributor *d = cookie;

    d->drained(d->drained_cookie);
}

/* Pushes in work run to their end, which ack_timeout bounds. */
static void distributor_drain(void *self, void (*done)(void *cookie), void *cookie)
{
    struct distributor *d = self;

    CHECK(d->magic == DISTRIBUTOR_MAGIC && !d->draining);
    d->draining = true;
    d->drained = done;
    d->drained_cookie = cookie;
    if (d->pushes == 0)
        loop_post(d->ctx->loop, tell_drained, d);
}

static void distributor_ring(void *self, struct json *j)
{
    const struct distributor *d = self;

    json_key(j, "pushesInWork");
    json_u64(j, d->pushes);
    json_key(j, "ingesters");
    json_arr(j);
    for (size_t i = 0; i < d->peers_len; i++) {
        json_obj(j);
        json_key(j, "address");
        json_cstr(j, rpc_peer_addr(d->peers[i]));
        json_key(j, "up");
        json_bool(j, rpc_peer_up(d->peers[i]));
        json_obj_end(j);
    }
    json_arr_end(j);
}

const struct role distributor_role = {
    .name = "distributor",
    .conf = distributor_tables,
    .conf_len = DISTRIBUTOR_TABLES,
    .start = distributor_start,
    .ready = distributor_ready,
    .drain = distributor_drain,
    .free = distributor_free,
    .ring = distributor_ring,
};

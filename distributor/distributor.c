/* SPDX-License-Identifier: Apache-2.0
 *
 * distributor: start, readiness and end of the role. It keeps nothing: a client gets its answer
 * only after ingesters have acked, so a crash loses nothing that was promised.
 */
#include "distributor/distributor.h"

#include <stdio.h>

#include "common/base/mem.h"
#include "common/cluster/node/peers.h"
#include "common/identity/identity.h"
#include "common/obs/log.h"
#include "common/role/core/memory.h"
#include "common/sys/secret_file.h"
#include "distributor/adhoc/api_adhoc.h"
#include "distributor/api/api_import.h"
#include "distributor/api/api_ingest.h"
#include "distributor/api/api_otlp.h"
#include "distributor/api/api_push.h"
#include "distributor/base/state.h"
#include "distributor/base/tokens.h"
#include "distributor/check.h"
#include "distributor/forward/forward.h"
#include "distributor/intake/intake.h"
#include "distributor/parca/api_parca.h"
#include "distributor/parca/debuginfo/api_debuginfo.h"
#include "distributor/parca/parca_since.h"
#include "distributor/rules/rules.h"
#include "distributor/rules/stored.h"
#include "distributor/scrape/scrape.h"
#include "distributor/send/ack_audit.h"
#include "distributor/send/secret.h"
#include "distributor/send/symbol_sessions.h"

#define DISTRIBUTOR_MAGIC MAGIC('d', 'i', 's', 't')
#define DECODE_SHARE      8 /* of the memory limit: what one push may take at most, 1 in so many */
#define DECODE_LEAST      (8 * MIB)
#define ARENAS_SHARE      128 /* of the memory limit, for arenas that are kept */
#define ARENAS_MOST       32
#define SECRET_FILE_MAX   (4 * KIB)
#define ARENA_KEPT        (256 * KIB)

static int start_node(const struct role_ctx *ctx, struct distributor *d, struct err *e)
{
    struct rpc_node_opts o = {
        .net = ctx->rpc,
        .loop = ctx->loop,
        .listen = d->conf->listen,
        .message_max = ctx->cluster->rpc_message_bytes_max,
        .pending_max = ctx->cluster->rpc_pending_max,
        .heartbeat_ms = (uint32_t)ctx->cluster->heartbeat_ms,
        .dead_ms = (uint32_t)ctx->cluster->dead_ms,
        .pool = ctx->pool,
    };
    struct route_opts ro = { .loop = ctx->loop,
                             .view = ctx->view,
                             .hedge_ms = ctx->cluster->hedge_ms,
                             .metrics = ctx->metrics };

    if (role_rpc_listen_check(ctx, "distributor.listen", d->conf->listen, e))
        return e->code;
    if (rpc_node_new(&o, &d->node, e))
        return err_wrap(e, "distributor.listen");
    ro.node = d->node;
    ro.patience_ms = d->conf->ack_ms; /* so long pushes wait for a leader */
    return route_new(&ro, &d->route, e);
}

static void distributor_free(void *self)
{
    struct distributor *d = self;

    if (!d)
        return;
    CHECK(d->magic == DISTRIBUTOR_MAGIC);
    d->closing = true;
    memory_forget(d->ctx->memory, &d->memory);
    memory_forget(d->ctx->memory, d);
    scrape_stop(d->scrape);
    rpc_node_free(d->node); /* answers what waits for an ingester */
    forward_free(d->forward);
    scrape_free(d->scrape);
    if (d->ctx->identity)
        identity_tokens(d->ctx->identity, NULL, NULL);
    tokens_free(d->tokens);
    api_debuginfo_free(d->debuginfo);
    secret_free(d->secret);
    peers_free(d->peers);
    xfree(d->secret_text);
    tenants_free(d->tenants);
    symbol_sessions_free(d->knowns);
    stored_free(d->stored);
    parca_since_free(d->parca_since);
    rules_free(d->rules);
    ledger_book_free(d->book);
    route_free(d->route);
    intake_pool_free(d);
    arena_pool_free(d->arenas);
    d->magic = 0;
    xfree(d);
}

/* The configured secret, from its file if one is named. *ret is "" if no secret is configured. */
static int configured_secret(struct distributor *d, const char **ret, struct err *e)
{
    const struct distributor_conf *c = d->conf;
    struct buf text;
    int rc;

    *ret = c->write_id_secret;
    if (!c->write_id_secret_file[0])
        return 0;
    if (c->write_id_secret[0])
        log_warn("distributor.write_id_secret is not used, because write_id_secret_file is set; "
                 "remove it: the list of processes shows it",
                 KV_CSTR("file", c->write_id_secret_file));
    buf_init(&text, SECRET_FILE_MAX);
    rc = secret_file_check(c->write_id_secret_file, e);
    if (!rc)
        rc = d->ctx->env->fs->read_file(d->ctx->env->fs, c->write_id_secret_file, &text, e);
    struct str secret = str_trim(buf_str(&text));
    if (!rc && (secret.len < WRITE_ID_SECRET_LEAST || memchr(secret.ptr, 0, secret.len)))
        rc = err_set(e, ERR_CONFIG, "%s has %zu characters, want %d or more",
                     c->write_id_secret_file, secret.len, WRITE_ID_SECRET_LEAST);
    if (!rc) {
        d->secret_text = xcalloc(1, secret.len + 1);
        memcpy(d->secret_text, secret.ptr, secret.len);
        *ret = d->secret_text;
    }
    buf_deinit(&text);
    return rc ? err_wrap(e, "distributor.write_id_secret_file") : 0;
}

/* A simulated process has no files: its secret comes from the seeded randomness. */
static int start_tenants(struct distributor *d, struct err *e)
{
    const struct role_ctx *ctx = d->ctx;
    struct secret_opts o = {
        .loop = ctx->loop,
        .env = ctx->env,
        .data_dir = ctx->simulated && !d->conf->write_id_secret[0] ? NULL : ctx->data_dir,
        .coord = ctx->coord,
        .prefix = ctx->cluster->etcd_prefix,
        .view = ctx->view,
    };

    if (configured_secret(d, &o.option, e))
        return e->code;
    o.tenants = d->tenants = tenants_new(d->conf, NULL, ctx->tenancy->multi);
    return secret_new(&o, &d->secret, e);
}

static void on_peers(void *cookie, uint64_t n)
{
    struct distributor *d = cookie;

    metric_set(d->metrics.live, (int64_t)n);
    if (!d->conf->limits_of)
        tenants_part(d->tenants, n);
}

/* Limits of tenants are divided by the number of distributors. */
static void start_peers(struct distributor *d)
{
    const struct role_ctx *ctx = d->ctx;
    struct peers_opts o = {
        .loop = ctx->loop,
        .coord = ctx->coord,
        .view = ctx->view,
        .prefix = ctx->cluster->etcd_prefix,
        .kind = "distributor",
        .ttl_ms = ctx->cluster->lease_ttl_ms,
        .changed = on_peers,
        .cookie = d,
    };

    metric_set(d->metrics.live, 1);
    if (!ctx->coord)
        return;
    ctx->env->random(ctx->env, &o.id, sizeof(o.id));
    d->peers = peers_new(&o);
}

static uint64_t known_used(void *cookie)
{
    const struct distributor *d = cookie;

    return symbol_sessions_bytes(d->knowns);
}

/* Memory that is kept for the next pushes, outside of the budget of pushes in work. */
static uint64_t kept_used(void *cookie)
{
    const struct distributor *d = cookie;

    return arena_pool_bytes(d->arenas) + intake_spares_bytes(d) +
           (d->parca_since ? parca_since_bytes(d->parca_since) : 0);
}

/* Kept requests are the loop's: they go when the next one ends. */
static void on_shrink(void *cookie, unsigned percent)
{
    const struct distributor *d = cookie;

    if (d->knowns)
        symbol_sessions_shrink(d->knowns, percent);
    if (d->parca_since)
        parca_since_shrink(d->parca_since, percent);
    arena_pool_shrink(d->arenas, percent < 100 ? 0 : 100);
}

static void start_knowns(struct distributor *d)
{
    const struct role_ctx *ctx = d->ctx;

    if (!d->conf->known_stacks)
        return;
    d->knowns = symbol_sessions_new(d->conf->symbol_session_bytes
                                        ? d->conf->symbol_session_bytes
                                        : (size_t)memory_share(ctx->memory_limit, MEMORY_KNOWN),
                                    ctx->env, hash_u64(d->seed));
    memory_watch(ctx->memory, MEMORY_KNOWN, known_used, d);
}

static void add_routes(struct distributor *d)
{
    api_ingest_routes(d);
    api_import_routes(d);
    api_push_routes(d);
    api_otlp_routes(d);
    api_parca_routes(d);
    api_adhoc_routes(d);
    rules_routes(d->rules);
}

/* Where callers are asked who they are (identity.mode), a token tells it, too. */
static struct str on_token(void *cookie, const struct http_req *r)
{
    return tokens_tenant(cookie, r);
}

static int distributor_start(const struct role_ctx *ctx, void **ret_self, struct err *e)
{
    struct distributor *d = XNEW(struct distributor);
    int code;

    d->magic = DISTRIBUTOR_MAGIC;
    d->ctx = ctx;
    d->conf = conf_get(ctx->conf, &distributor_table);
    d->limits = d->conf->limits;
    d->limits.decode_bytes =
        MIN(d->limits.decode_bytes, MAX(ctx->memory_limit / DECODE_SHARE, DECODE_LEAST));
    distributor_metrics_init(&d->metrics, ctx->metrics, ctx->env->clock);
    ctx->env->random(ctx->env, &d->seed, sizeof(d->seed));
    budget_init(&d->memory, d->conf->in_flight_bytes
                                ? d->conf->in_flight_bytes
                                : memory_share(ctx->memory_limit, MEMORY_PUSHES));
    memory_watch_budget(ctx->memory, MEMORY_PUSHES, &d->memory);
    d->arenas = arena_pool_new(
        (size_t)MIN(MAX(ctx->memory_limit / ARENAS_SHARE / ARENA_KEPT, 1), ARENAS_MOST),
        ARENA_KEPT);
    code = start_tenants(d, e);
    if (!code)
        code = start_node(ctx, d, e);
    if (code) {
        distributor_free(d);
        return code;
    }
    start_peers(d);
    start_knowns(d);
    if (d->conf->parca_last_bytes)
        d->parca_since = parca_since_new((size_t)d->conf->parca_last_bytes);
    memory_watch(ctx->memory, MEMORY_PUSHES, kept_used, d);
    memory_on_shrink(ctx->memory, on_shrink, d);
    d->book = ledger_book_new(d);
    if (rules_new(d, &d->rules, e)) {
        distributor_free(d);
        return e->code;
    }
    d->stored = stored_new(d);
    tenants_rates(d->tenants, rules_rates, d->rules);
    if (ctx->http && api_debuginfo_new(d, &d->debuginfo, e)) {
        distributor_free(d);
        return e->code;
    }
    if (d->conf->tokens_file[0] && tokens_load(ctx->env->fs, d->conf->tokens_file, &d->tokens, e)) {
        distributor_free(d);
        return err_wrap(e, "distributor.tokens_file");
    }
    if (d->tokens && ctx->identity)
        identity_tokens(ctx->identity, on_token, d->tokens);
    if (forward_new(d, &d->forward, e)) {
        distributor_free(d);
        return e->code;
    }
    if (ctx->http)
        add_routes(d);
    if (ctx->http && scrape_new(d, &d->scrape, e)) {
        distributor_free(d);
        return e->code;
    }
    *ret_self = d;
    return 0;
}

static bool distributor_ready(void *self, const char **ret_why)
{
    struct distributor *d = self;

    CHECK(d->magic == DISTRIBUTOR_MAGIC);
    *ret_why = d->why;
    if (d->draining) {
        *ret_why = "draining";
        return false;
    }
    *ret_why = secret_missing(d->secret);
    if (*ret_why)
        return false;
    bool ready = route_ready(d->route, d->why, sizeof(d->why));
    *ret_why = ready ? NULL : d->why; /* where it serves it would be a note: role.h */
    return ready;
}

static void distributor_drain(void *self, void (*done)(void *cookie), void *cookie)
{
    struct distributor *d = self;

    CHECK(d->magic == DISTRIBUTOR_MAGIC);
    d->draining = true;
    d->drained = done;
    d->drained_cookie = cookie;
    scrape_stop(d->scrape);
    if (d->peers)
        peers_leave(d->peers);
    if (d->working == 0)
        distributor_end_drain(d);
}

static void distributor_ring(void *self, struct json *j)
{
    const struct distributor *d = self;

    route_json(d->route, j);
    json_put_u64(j, "distributors_live", d->peers ? peers_count(d->peers) : 1);
}

const struct role distributor_role = {
    .name = "distributor",
    .conf = distributor_tables,
    .conf_len = DISTRIBUTOR_TABLES,
    .check = distributor_check,
    .start = distributor_start,
    .ready = distributor_ready,
    .drain = distributor_drain,
    .free = distributor_free,
    .ring = distributor_ring,
};

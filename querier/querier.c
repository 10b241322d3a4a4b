/* SPDX-License-Identifier: Apache-2.0
 *
 * querier.c: start, routes, readiness and end of the role.
 *
 * A querier keeps nothing between requests, so any number of them can run at once. It calls every
 * address of cluster.ingesters; without one of them an answer would be partial, so it becomes ready
 * when all have answered once. Later it stays ready while any is up: the readiness of each ingester
 * and errors that name it show its health, and clients may allow partial answers.
 */
#include "querier/querier.h"

#include <stdio.h>

#include "common/base/mem.h"
#include "common/net/http_not_found.h"
#include "common/obs/log.h"
#include "common/role/core/memory.h"
#include "querier/api/api.h"
#include "querier/api/flame/api_render.h"
#include "querier/api/names/api_labels.h"
#include "querier/api/table/api_functions.h"
#include "querier/api/table/api_views.h"
#include "querier/api/tenant/api_annotations.h"
#include "querier/api/tenant/api_delete.h"
#include "querier/api/tenant/api_ledger.h"
#include "querier/api/tenant/api_settings.h"
#include "querier/api/tenant/api_space.h"
#include "querier/async/async.h"
#include "querier/base/limits_file.h"
#include "querier/base/tenant_queues.h"
#include "querier/check.h"
#include "querier/query/query.h"

/* Where shards move a question to all of them is a call for each: some of such at once. */
#define PENDING_LEAST      ((size_t)16 * CLUSTER_SHARDS_MAX)
#define LEADER_PATIENCE_MS 15000 /* a fail-over takes some seconds; queries wait for it */

#define CONNECT_BODY (1 * MIB)
#define TAKEN_BODY   (32 * MIB) /* of an RPC: a body over its limit is refused in its protocol */
#define SERVICE      "/querier.v1.QuerierService/"
#define SETTINGS     "/settings.v1.SettingsService/"
#define RULES        "/settings.v1.RecordingRulesService/"
#define FLAGS        "/capabilities.v1.FeatureFlagsService/"

static const struct query_route routes[] = {
    { HTTP_GET, "/pyroscope/render", 0, api_render, false },
    { HTTP_GET, "/pyroscope/render-diff", 0, api_render_diff, false },
    { HTTP_GET, "/render", 0, api_render_old, false },
    { HTTP_GET, "/render-diff", 0, api_render_diff_old, false },
    { HTTP_GET, "/api/exemplars:query", 0, api_exemplars_query, false },
    { HTTP_POST, "/merge", CONNECT_BODY, api_merge_old, false },
    { HTTP_POST, "/api/exemplars:merge", CONNECT_BODY, api_merge_old, false },
    { HTTP_GET, "/pyroscope/label-values", 0, api_label_values, false },
    { HTTP_GET, "/label-values", 0, api_label_values_old, false },
    { HTTP_GET, "/labels", 0, api_label_names, false },
    { HTTP_GET, "/api/apps", 0, api_apps, false },
    { HTTP_GET, "/api/v1/functions", 0, api_functions, false },
    { HTTP_GET, "/api/v1/functions/grew", 0, api_grew, false },
    { HTTP_GET, "/api/v1/top", 0, api_top, false },
    { HTTP_GET, "/api/v1/focus", 0, api_focus, false },
    { HTTP_GET, "/api/v1/sandwich", 0, api_sandwich, false },
    { HTTP_GET, "/api/v1/subtree", 0, api_subtree, false },
    { HTTP_GET, "/api/v1/diff", 0, api_compare, false },
    { HTTP_GET, "/api/v1/space", 0, api_space, false },
    { HTTP_GET, "/api/v1/ledger", 0, api_ledger, false },
    { HTTP_POST, "/api/v1/ledger/accept", 0, api_ledger_accept, false },
    { HTTP_POST, "/api/v1/delete", 0, api_delete, false },
    { HTTP_GET, "/api/v1/deletes", 0, api_deletes, false },
    { HTTP_GET, "/api/annotations", 0, api_annotations_list, false },
    { HTTP_POST, "/api/annotations", CONNECT_BODY, api_annotations_create, false },
    { HTTP_DELETE, "/api/annotations", 0, api_annotations_delete, false },
    { HTTP_POST, SERVICE "ProfileTypes", CONNECT_BODY, api_profile_types, true },
    { HTTP_POST, SERVICE "LabelNames", CONNECT_BODY, api_connect_label_names, true },
    { HTTP_POST, SERVICE "LabelValues", CONNECT_BODY, api_connect_label_values, true },
    { HTTP_POST, SERVICE "Series", CONNECT_BODY, api_series, true },
    { HTTP_POST, SERVICE "SelectMergeStacktraces", CONNECT_BODY, api_select_merge_stacktraces,
      true },
    { HTTP_POST, SERVICE "SelectSeries", CONNECT_BODY, api_select_series, true },
    { HTTP_POST, SERVICE "SelectMergeSpanProfile", CONNECT_BODY, api_select_merge_span_profile,
      true },
    { HTTP_POST, SERVICE "SelectMergeProfile", CONNECT_BODY, api_select_merge_profile, true },
    { HTTP_POST, SERVICE "SelectHeatmap", CONNECT_BODY, api_select_heatmap, true },
    { HTTP_POST, SERVICE "Diff", CONNECT_BODY, api_diff_rpc, true },
    { HTTP_POST, SERVICE "GetProfileStats", CONNECT_BODY, api_profile_stats, true },
    { HTTP_POST, SERVICE "AnalyzeQuery", CONNECT_BODY, api_analyze_query, true },
    { HTTP_POST, SETTINGS "Get", CONNECT_BODY, api_settings_get, true },
    { HTTP_POST, SETTINGS "Set", CONNECT_BODY, api_settings_set, true },
    { HTTP_POST, SETTINGS "Delete", CONNECT_BODY, api_settings_delete, true },
    { HTTP_POST, RULES "GetRecordingRule", CONNECT_BODY, api_rules_get, true },
    { HTTP_POST, RULES "ListRecordingRules", CONNECT_BODY, api_rules_list, true },
    { HTTP_POST, RULES "UpsertRecordingRule", CONNECT_BODY, api_rules_upsert, true },
    { HTTP_POST, RULES "DeleteRecordingRule", CONNECT_BODY, api_rules_delete, true },
    { HTTP_POST, FLAGS "GetFeatureFlags", CONNECT_BODY, api_feature_flags, true },
    { HTTP_POST, "/version.v1.Version/Version", CONNECT_BODY, api_version, true },
};

const struct query_route *query_routes(size_t *ret_len)
{
    *ret_len = ARRAY_LEN(routes);
    return routes;
}

/* ---- start ------------------------------------------------------------------------------------*/

static int start_peers(struct querier *qr, struct err *e)
{
    const struct cluster_conf *c = qr->ctx->cluster;
    struct rpc_node_opts o = { .net = qr->ctx->rpc,
                               .loop = qr->ctx->loop,
                               .listen = qr->conf->listen,
                               .message_max = c->rpc_message_bytes_max,
                               .pending_max = qr->ctx->coord
                                                  ? MAX(c->rpc_pending_max, PENDING_LEAST)
                                                  : c->rpc_pending_max,
                               .heartbeat_ms = (uint32_t)c->heartbeat_ms,
                               .dead_ms = (uint32_t)c->dead_ms,
                               .pool = qr->ctx->pool };

    if (role_rpc_listen_check(qr->ctx, "querier.listen", qr->conf->listen, e))
        return e->code;
    if (rpc_node_new(&o, &qr->node, e))
        return err_wrap(e, "querier.listen");
    struct route_opts ro = { .node = qr->node,
                             .loop = qr->ctx->loop,
                             .view = qr->ctx->view,
                             .patience_ms = LEADER_PATIENCE_MS,
                             .hedge_ms = c->hedge_ms,
                             .metrics = qr->ctx->metrics };
    return route_new(&ro, &qr->route, e);
}

static void start_routes(struct querier *qr)
{
    static const char *const pushes[] = { "/ingest", "/pyroscope/ingest",
                                          "/push.v1.PusherService/*", "/v1development/profiles",
                                          "/api/v1/adhoc" };

    if (!qr->ctx->http)
        return; /* simulation */
    qr->routes = XNEW_ARRAY(struct querier_route, ARRAY_LEN(routes));
    for (size_t i = 0; i < ARRAY_LEN(routes); i++) {
        qr->routes[i] = (struct querier_route){ qr, &routes[i] };
        http_route(qr->ctx->http, routes[i].methods, routes[i].path,
                   routes[i].connect ? TAKEN_BODY : routes[i].body_max, query_on_http,
                   &qr->routes[i]);
    }
    /* Methods that are not above, and reading sources from version control, are unimplemented. */
    svc_service(qr->ctx->http, SERVICE "*");
    svc_service(qr->ctx->http, SETTINGS "*");
    svc_service(qr->ctx->http, RULES "*");
    svc_service(qr->ctx->http, FLAGS "*");
    svc_service(qr->ctx->http, "/vcs.v1.VCSService/*");
    for (size_t i = 0; i < ARRAY_LEN(pushes); i++)
        http_not_found_hint(qr->ctx->http, pushes[i],
                            "a querier takes no pushes; a distributor does");
    ui_route(&qr->ui, qr->ctx->http);
}

static int start_turns(struct querier *qr, struct err *e)
{
    const struct querier_conf *c = qr->conf;
    size_t bytes = qr->ctx->tenancy->multi ? qr->bytes.max / 2 : qr->bytes.max;
    struct tenant_queues_opts o = {
        .running_max = c->queries_max,
        .waiting_max = c->queue_max,
        .seed = qr->seed,
        .limits = { .running = c->tenant_queries,
                    .waiting = c->tenant_queue,
                    .bytes = c->tenant_bytes_max ? c->tenant_bytes_max : bytes,
                    .read_bytes = c->query_read_bytes_max },
    };

    qr->turns = tenant_queues_new(&o);
    qr->asyncs = asyncs_new(qr);
    for (size_t i = 0; i < c->tenants.len; i++) {
        struct tenant_queue_limits l = o.limits;
        struct str tenant;
        if (tenant_queue_limits_parse(str_c(c->tenants.items[i]), &tenant, &l, e))
            return err_wrap(e, "querier.tenants");
        tenant_queues_override(qr->turns, tenant, &l);
    }
    return limits_watch_new(qr, &qr->limits, e);
}

static void on_metrics(void *cookie)
{
    const struct querier *qr = cookie;

    metric_set(qr->metrics.running, (int64_t)tenant_queues_running(qr->turns));
    metric_set(qr->metrics.waiting, (int64_t)tenant_queues_waiting(qr->turns));
    metric_set(qr->metrics.bytes, (int64_t)qr->bytes.used);
    metric_set(qr->metrics.bytes_limit, (int64_t)qr->bytes.max);
}

static void querier_free(void *self)
{
    struct querier *qr = self;

    if (!qr)
        return;
    CHECK(qr->magic == QUERIER_MAGIC && qr->running == 0);
    memory_forget(qr->ctx->memory, &qr->bytes);
    rpc_node_free(qr->node);
    route_free(qr->route);
    asyncs_free(qr->asyncs);
    limits_watch_free(qr->limits);
    tenant_queues_free(qr->turns);
    ui_deinit(&qr->ui);
    xfree(qr->routes);
    qr->magic = 0;
    xfree(qr);
}

static void querier_drain_node(struct querier *qr)
{
    asyncs_drop(qr->asyncs);
    rpc_node_drain(qr->node, qr->drained, qr->drained_cookie);
    qr->drained = NULL;
}

static void on_query_ended(struct querier *qr)
{
    CHECK(qr->running > 0);
    qr->running--;
    if (qr->running == 0 && qr->drained)
        querier_drain_node(qr);
}

static int querier_start(const struct role_ctx *ctx, void **ret_self, struct err *e)
{
    struct querier *qr = XNEW(struct querier);
    size_t share = memory_share(ctx->memory_limit, MEMORY_QUERIES);

    qr->magic = QUERIER_MAGIC;
    qr->ctx = ctx;
    qr->on_query_ended = on_query_ended;
    qr->conf = conf_get(ctx->conf, &querier_options);
    share = qr->conf->bytes_max ? qr->conf->bytes_max : share;
    budget_init(&qr->bytes, share);
    memory_watch_budget(ctx->memory, MEMORY_QUERIES, &qr->bytes);
    qr->query_bytes_max = MIN(share, qr->conf->query_bytes_max);
    ctx->env->random(ctx->env, &qr->seed, sizeof(qr->seed));
    querier_metrics_init(&qr->metrics, ctx->metrics);
    if (ui_init_linked(&qr->ui, e) || start_turns(qr, e) || start_peers(qr, e)) {
        querier_free(qr);
        return e->code;
    }
    metrics_on_render(ctx->metrics, on_metrics, qr);
    start_routes(qr);
    log_info("querier started", KV_U64("targets", route_targets(qr->route)),
             KV_U64("bytes_max", qr->bytes.max), KV_U64("query_bytes_max", qr->query_bytes_max));
    *ret_self = qr;
    return 0;
}

/* ---- running and end --------------------------------------------------------------------------*/

static bool querier_ready(void *self, const char **ret_why)
{
    struct querier *qr = self;
    size_t all, up = route_up(qr->route, &all);

    CHECK(qr->magic == QUERIER_MAGIC);
    if (qr->draining) {
        *ret_why = "shutting down";
        return false;
    }
    if (route_ready(qr->route, qr->why, sizeof(qr->why)))
        qr->was_ready = true;
    if (qr->was_ready && up > 0)
        return true;
    *ret_why = qr->why;
    return false;
}

static void querier_drain(void *self, void (*done)(void *cookie), void *cookie)
{
    struct querier *qr = self;

    CHECK(qr->magic == QUERIER_MAGIC && !qr->draining);
    qr->draining = true;
    qr->drained = done;
    qr->drained_cookie = cookie;
    if (qr->running == 0)
        querier_drain_node(qr);
}

static void querier_ring(void *self, struct json *j)
{
    const struct querier *qr = self;

    route_json(qr->route, j);
}

static const struct conf_table *const tables[] = { &querier_options };

const struct role querier_role = {
    .name = "querier",
    .conf = tables,
    .conf_len = ARRAY_LEN(tables),
    .check = querier_check,
    .start = querier_start,
    .ready = querier_ready,
    .drain = querier_drain,
    .free = querier_free,
    .ring = querier_ring,
};

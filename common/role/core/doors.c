/* SPDX-License-Identifier: Apache-2.0
 *
 * doors: the table of all routes of all roles.
 *
 * It is here, and not with the handlers, so that it can be read and checked as a whole: which
 * callers may come in is a property of the product. http_door.c enforces it before a handler runs.
 *
 *   ASKS   reads. Pages of other sites may make a browser send it, but never see the answer.
 *   ACTS   changes something, or costs a slot or much time: refused to pages of other sites.
 *
 * A POST that only reads is named as such here; a GET that costs much is named as acting.
 *
 *   NOTHING    for all callers: of one tenant, or of no tenant
 *   METRICS    the admin token where http.metrics_token is set
 *   TOKEN      tells of the server or all tenants, or deletes: the admin token where there is one
 *   OPERATOR   changes the cluster: the admin token
 *
 * What comes through the server's Unix socket (http.admin_socket) needs no token.
 */
#include "common/role/core/doors.h"

#define ASKS false
#define ACTS true

#define NOTHING  HTTP_NEEDS_NOTHING
#define METRICS  HTTP_NEEDS_METRICS
#define TOKEN    HTTP_NEEDS_TOKEN
#define OPERATOR HTTP_NEEDS_OPERATOR

#define PUSHER    "/push.v1.PusherService/"
#define OTLP      "/opentelemetry.proto.collector.profiles."
#define PARCA     "/parca.profilestore.v1alpha1.ProfileStoreService/"
#define DEBUGINFO "/parca.debuginfo.v1alpha1.DebuginfoService/"
#define ALLOY     "/debuginfo.v1alpha1.DebuginfoService/"
#define ADHOC     "/adhocprofiles.v1.AdHocProfileService/"
#define QUERIER   "/querier.v1.QuerierService/"
#define SETTINGS  "/settings.v1.SettingsService/"
#define RULES     "/settings.v1.RecordingRulesService/"
#define FLAGS     "/capabilities.v1.FeatureFlagsService/"
#define HEALTH    "/grpc.health.v1.Health/"
#define CLUSTER   "/api/v1/cluster/"
#define KEYS      "/api/v1/keys"

static const struct http_door table[] = {
    /* the process */
    { HTTP_GET, "/healthz", ASKS, NOTHING },
    { HTTP_GET, "/readyz", ASKS, NOTHING },
    { HTTP_GET, "/ready", ASKS, NOTHING },
    { HTTP_POST, HEALTH "Check", ASKS, NOTHING },
    { HTTP_POST, HEALTH "Watch", ASKS, NOTHING },
    { HTTP_POST, HEALTH "*", ASKS, NOTHING },
    { HTTP_GET, "/metrics", ASKS, METRICS },
    { HTTP_GET, "/config", ASKS, TOKEN },
    { HTTP_GET, "/ring", ASKS, TOKEN },
    { HTTP_GET, "/debug/pprof", ASKS, TOKEN },
    { HTTP_GET, "/debug/pprof/*", ASKS, TOKEN },
    { HTTP_GET, "/debug/pprof/profile", ACTS, TOKEN },
    { HTTP_GET, "/debug/pprof/heap", ACTS, TOKEN },
    /* the cluster */
    { HTTP_GET, CLUSTER "places", ASKS, TOKEN },
    { HTTP_GET, CLUSTER "progress", ASKS, TOKEN },
    { HTTP_GET, CLUSTER "rebalance", ASKS, TOKEN },
    { HTTP_GET, CLUSTER "kept", ASKS, TOKEN },
    { HTTP_POST, CLUSTER "nodes/*", ACTS, OPERATOR },
    { HTTP_POST, CLUSTER "services", ACTS, OPERATOR },
    { HTTP_POST, CLUSTER "tenants", ACTS, OPERATOR },
    { HTTP_POST, CLUSTER "rebalance", ACTS, OPERATOR },
    { HTTP_POST, CLUSTER "recover", ACTS, OPERATOR },
    /* keys of callers */
    { HTTP_GET, KEYS, ASKS, OPERATOR },
    { HTTP_POST, KEYS, ACTS, OPERATOR },
    { HTTP_POST, KEYS "/*", ACTS, OPERATOR },
    { HTTP_DELETE, KEYS "/*", ACTS, OPERATOR },
    /* pushes */
    { HTTP_POST, "/ingest", ACTS, NOTHING },
    { HTTP_POST, "/pyroscope/ingest", ACTS, NOTHING },
    { HTTP_POST, PUSHER "Push", ACTS, NOTHING },
    { HTTP_POST, PUSHER "*", ASKS, NOTHING },
    { HTTP_POST, "/v1development/profiles", ACTS, NOTHING },
    { HTTP_POST, "/v1experimental/profiles", ACTS, NOTHING },
    { HTTP_POST, OTLP "v1development.ProfilesService/Export", ACTS, NOTHING },
    { HTTP_POST, OTLP "v1development.ProfilesService/*", ASKS, NOTHING },
    { HTTP_POST, OTLP "v1experimental.ProfilesService/Export", ACTS, NOTHING },
    { HTTP_POST, OTLP "v1experimental.ProfilesService/*", ASKS, NOTHING },
    { HTTP_POST, PARCA "WriteRaw", ACTS, NOTHING },
    { HTTP_POST, PARCA "WriteArrow", ACTS, NOTHING },
    { HTTP_POST, PARCA "Write", ACTS, NOTHING },
    { HTTP_POST, PARCA "*", ASKS, NOTHING },
    { HTTP_POST, DEBUGINFO "ShouldInitiateUpload", ACTS, NOTHING },
    { HTTP_POST, DEBUGINFO "InitiateUpload", ACTS, NOTHING },
    { HTTP_POST, DEBUGINFO "MarkUploadFinished", ACTS, NOTHING },
    { HTTP_POST, DEBUGINFO "Upload", ACTS, NOTHING },
    { HTTP_POST, DEBUGINFO "*", ASKS, NOTHING },
    { HTTP_POST, ALLOY "ShouldInitiateUpload", ACTS, NOTHING },
    { HTTP_POST, ALLOY "UploadFinished", ACTS, NOTHING },
    { HTTP_POST, ALLOY "ListDebuginfo", ASKS, NOTHING },
    { HTTP_POST, ALLOY "DeleteDebuginfo", ACTS, NOTHING },
    { HTTP_POST, ALLOY "Upload/*", ACTS, NOTHING },
    { HTTP_POST, ALLOY "*", ASKS, NOTHING },
    { HTTP_POST, "/api/v1/import", ACTS, NOTHING },
    { HTTP_GET, "/api/v1/targets", ASKS, NOTHING },
    { HTTP_GET, "/api/v1/forward", ASKS, TOKEN },
    { HTTP_GET, "/api/v1/tenant_limits", ASKS, NOTHING },
    { HTTP_GET, "/runtime_config", ASKS, TOKEN },
    /* uploads to look at */
    { HTTP_GET, "/api/v1/adhoc", ASKS, NOTHING },
    { HTTP_POST, "/api/v1/adhoc", ACTS, NOTHING },
    { HTTP_GET, "/api/v1/adhoc/*", ASKS, NOTHING },
    { HTTP_DELETE, "/api/v1/adhoc/*", ACTS, NOTHING },
    { HTTP_POST, ADHOC "Upload", ACTS, NOTHING },
    { HTTP_POST, ADHOC "Get", ASKS, NOTHING },
    { HTTP_POST, ADHOC "List", ASKS, NOTHING },
    { HTTP_POST, ADHOC "Diff", ASKS, NOTHING },
    { HTTP_POST, ADHOC "*", ASKS, NOTHING },
    /* queries */
    { HTTP_GET, "/pyroscope/render", ASKS, NOTHING },
    { HTTP_GET, "/pyroscope/render-diff", ASKS, NOTHING },
    { HTTP_GET, "/render", ASKS, NOTHING },
    { HTTP_GET, "/render-diff", ASKS, NOTHING },
    { HTTP_GET, "/api/exemplars:query", ASKS, NOTHING },
    { HTTP_POST, "/merge", ASKS, NOTHING },
    { HTTP_POST, "/api/exemplars:merge", ASKS, NOTHING },
    { HTTP_GET, "/pyroscope/label-values", ASKS, NOTHING },
    { HTTP_GET, "/label-values", ASKS, NOTHING },
    { HTTP_GET, "/labels", ASKS, NOTHING },
    { HTTP_GET, "/api/apps", ASKS, NOTHING },
    { HTTP_GET, "/api/v1/functions", ASKS, NOTHING },
    { HTTP_GET, "/api/v1/functions/grew", ASKS, NOTHING },
    { HTTP_GET, "/api/v1/top", ASKS, NOTHING },
    { HTTP_GET, "/api/v1/focus", ASKS, NOTHING },
    { HTTP_GET, "/api/v1/sandwich", ASKS, NOTHING },
    { HTTP_GET, "/api/v1/subtree", ASKS, NOTHING },
    { HTTP_GET, "/api/v1/diff", ASKS, NOTHING },
    { HTTP_GET, "/api/v1/space", ASKS, NOTHING },
    { HTTP_GET, "/api/v1/ledger", ASKS, NOTHING },
    { HTTP_POST, "/api/v1/ledger/accept", ACTS, OPERATOR },
    { HTTP_POST, "/api/v1/delete", ACTS, TOKEN },
    { HTTP_GET, "/api/v1/deletes", ASKS, NOTHING },
    { HTTP_GET, "/api/annotations", ASKS, NOTHING },
    { HTTP_POST, "/api/annotations", ACTS, NOTHING },
    { HTTP_DELETE, "/api/annotations", ACTS, NOTHING },
    { HTTP_POST, QUERIER "ProfileTypes", ASKS, NOTHING },
    { HTTP_POST, QUERIER "LabelNames", ASKS, NOTHING },
    { HTTP_POST, QUERIER "LabelValues", ASKS, NOTHING },
    { HTTP_POST, QUERIER "Series", ASKS, NOTHING },
    { HTTP_POST, QUERIER "SelectMergeStacktraces", ASKS, NOTHING },
    { HTTP_POST, QUERIER "SelectSeries", ASKS, NOTHING },
    { HTTP_POST, QUERIER "SelectMergeSpanProfile", ASKS, NOTHING },
    { HTTP_POST, QUERIER "SelectMergeProfile", ASKS, NOTHING },
    { HTTP_POST, QUERIER "SelectHeatmap", ASKS, NOTHING },
    { HTTP_POST, QUERIER "Diff", ASKS, NOTHING },
    { HTTP_POST, QUERIER "GetProfileStats", ASKS, NOTHING },
    { HTTP_POST, QUERIER "AnalyzeQuery", ASKS, NOTHING },
    { HTTP_POST, QUERIER "*", ASKS, NOTHING },
    { HTTP_POST, SETTINGS "Get", ASKS, NOTHING },
    { HTTP_POST, SETTINGS "Set", ACTS, NOTHING },
    { HTTP_POST, SETTINGS "Delete", ACTS, NOTHING },
    { HTTP_POST, SETTINGS "*", ASKS, NOTHING },
    { HTTP_POST, RULES "GetRecordingRule", ASKS, NOTHING },
    { HTTP_POST, RULES "ListRecordingRules", ASKS, NOTHING },
    { HTTP_POST, RULES "UpsertRecordingRule", ACTS, NOTHING },
    { HTTP_POST, RULES "DeleteRecordingRule", ACTS, NOTHING },
    { HTTP_POST, RULES "*", ASKS, NOTHING },
    { HTTP_POST, FLAGS "GetFeatureFlags", ASKS, NOTHING },
    { HTTP_POST, FLAGS "*", ASKS, NOTHING },
    { HTTP_POST, "/version.v1.Version/Version", ASKS, NOTHING },
    { HTTP_POST, "/vcs.v1.VCSService/*", ASKS, NOTHING },
    /* the page */
    { HTTP_GET, "/*", ASKS, NOTHING },
};

const struct http_door *doors(size_t *ret_len)
{
    *ret_len = ARRAY_LEN(table);
    return table;
}

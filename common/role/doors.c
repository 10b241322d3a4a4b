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
 */
#include "common/role/doors.h"

#define ASKS false
#define ACTS true

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

static const struct http_door table[] = {
    /* the process */
    { HTTP_GET, "/healthz", ASKS },
    { HTTP_GET, "/readyz", ASKS },
    { HTTP_GET, "/ready", ASKS },
    { HTTP_POST, HEALTH "Check", ASKS },
    { HTTP_POST, HEALTH "Watch", ASKS },
    { HTTP_POST, HEALTH "*", ASKS },
    { HTTP_GET, "/metrics", ASKS },
    { HTTP_GET, "/config", ASKS },
    { HTTP_GET, "/ring", ASKS },
    { HTTP_GET, "/debug/pprof", ASKS },
    { HTTP_GET, "/debug/pprof/*", ASKS },
    { HTTP_GET, "/debug/pprof/profile", ACTS },
    { HTTP_GET, "/debug/pprof/heap", ACTS },
    /* the cluster */
    { HTTP_GET, CLUSTER "places", ASKS },
    { HTTP_GET, CLUSTER "progress", ASKS },
    { HTTP_GET, CLUSTER "rebalance", ASKS },
    { HTTP_GET, CLUSTER "kept", ASKS },
    { HTTP_POST, CLUSTER "nodes/*", ACTS },
    { HTTP_POST, CLUSTER "services", ACTS },
    { HTTP_POST, CLUSTER "tenants", ACTS },
    { HTTP_POST, CLUSTER "rebalance", ACTS },
    { HTTP_POST, CLUSTER "recover", ACTS },
    /* pushes */
    { HTTP_POST, "/ingest", ACTS },
    { HTTP_POST, "/pyroscope/ingest", ACTS },
    { HTTP_POST, PUSHER "Push", ACTS },
    { HTTP_POST, PUSHER "*", ASKS },
    { HTTP_POST, "/v1development/profiles", ACTS },
    { HTTP_POST, "/v1experimental/profiles", ACTS },
    { HTTP_POST, OTLP "v1development.ProfilesService/Export", ACTS },
    { HTTP_POST, OTLP "v1development.ProfilesService/*", ASKS },
    { HTTP_POST, OTLP "v1experimental.ProfilesService/Export", ACTS },
    { HTTP_POST, OTLP "v1experimental.ProfilesService/*", ASKS },
    { HTTP_POST, PARCA "WriteRaw", ACTS },
    { HTTP_POST, PARCA "WriteArrow", ACTS },
    { HTTP_POST, PARCA "Write", ACTS },
    { HTTP_POST, PARCA "*", ASKS },
    { HTTP_POST, DEBUGINFO "ShouldInitiateUpload", ACTS },
    { HTTP_POST, DEBUGINFO "InitiateUpload", ACTS },
    { HTTP_POST, DEBUGINFO "MarkUploadFinished", ACTS },
    { HTTP_POST, DEBUGINFO "Upload", ACTS },
    { HTTP_POST, DEBUGINFO "*", ASKS },
    { HTTP_POST, ALLOY "ShouldInitiateUpload", ACTS },
    { HTTP_POST, ALLOY "UploadFinished", ACTS },
    { HTTP_POST, ALLOY "ListDebuginfo", ASKS },
    { HTTP_POST, ALLOY "DeleteDebuginfo", ACTS },
    { HTTP_POST, ALLOY "Upload/*", ACTS },
    { HTTP_POST, ALLOY "*", ASKS },
    { HTTP_POST, "/api/v1/import", ACTS },
    { HTTP_GET, "/api/v1/targets", ASKS },
    { HTTP_GET, "/api/v1/forward", ASKS },
    { HTTP_GET, "/api/v1/tenant_limits", ASKS },
    { HTTP_GET, "/runtime_config", ASKS },
    /* uploads to look at */
    { HTTP_GET, "/api/v1/adhoc", ASKS },
    { HTTP_POST, "/api/v1/adhoc", ACTS },
    { HTTP_GET, "/api/v1/adhoc/*", ASKS },
    { HTTP_DELETE, "/api/v1/adhoc/*", ACTS },
    { HTTP_POST, ADHOC "Upload", ACTS },
    { HTTP_POST, ADHOC "Get", ASKS },
    { HTTP_POST, ADHOC "List", ASKS },
    { HTTP_POST, ADHOC "Diff", ASKS },
    { HTTP_POST, ADHOC "*", ASKS },
    /* queries */
    { HTTP_GET, "/pyroscope/render", ASKS },
    { HTTP_GET, "/pyroscope/render-diff", ASKS },
    { HTTP_GET, "/render", ASKS },
    { HTTP_GET, "/render-diff", ASKS },
    { HTTP_GET, "/api/exemplars:query", ASKS },
    { HTTP_POST, "/merge", ASKS },
    { HTTP_POST, "/api/exemplars:merge", ASKS },
    { HTTP_GET, "/pyroscope/label-values", ASKS },
    { HTTP_GET, "/label-values", ASKS },
    { HTTP_GET, "/labels", ASKS },
    { HTTP_GET, "/api/apps", ASKS },
    { HTTP_GET, "/api/v1/functions", ASKS },
    { HTTP_GET, "/api/v1/functions/grew", ASKS },
    { HTTP_GET, "/api/v1/top", ASKS },
    { HTTP_GET, "/api/v1/focus", ASKS },
    { HTTP_GET, "/api/v1/sandwich", ASKS },
    { HTTP_GET, "/api/v1/subtree", ASKS },
    { HTTP_GET, "/api/v1/diff", ASKS },
    { HTTP_GET, "/api/v1/space", ASKS },
    { HTTP_GET, "/api/v1/ledger", ASKS },
    { HTTP_POST, "/api/v1/ledger/accept", ACTS },
    { HTTP_POST, "/api/v1/delete", ACTS },
    { HTTP_GET, "/api/v1/deletes", ASKS },
    { HTTP_GET, "/api/annotations", ASKS },
    { HTTP_POST, "/api/annotations", ACTS },
    { HTTP_DELETE, "/api/annotations", ACTS },
    { HTTP_POST, QUERIER "ProfileTypes", ASKS },
    { HTTP_POST, QUERIER "LabelNames", ASKS },
    { HTTP_POST, QUERIER "LabelValues", ASKS },
    { HTTP_POST, QUERIER "Series", ASKS },
    { HTTP_POST, QUERIER "SelectMergeStacktraces", ASKS },
    { HTTP_POST, QUERIER "SelectSeries", ASKS },
    { HTTP_POST, QUERIER "SelectMergeSpanProfile", ASKS },
    { HTTP_POST, QUERIER "SelectMergeProfile", ASKS },
    { HTTP_POST, QUERIER "SelectHeatmap", ASKS },
    { HTTP_POST, QUERIER "Diff", ASKS },
    { HTTP_POST, QUERIER "GetProfileStats", ASKS },
    { HTTP_POST, QUERIER "AnalyzeQuery", ASKS },
    { HTTP_POST, QUERIER "*", ASKS },
    { HTTP_POST, SETTINGS "Get", ASKS },
    { HTTP_POST, SETTINGS "Set", ACTS },
    { HTTP_POST, SETTINGS "Delete", ACTS },
    { HTTP_POST, SETTINGS "*", ASKS },
    { HTTP_POST, RULES "GetRecordingRule", ASKS },
    { HTTP_POST, RULES "ListRecordingRules", ASKS },
    { HTTP_POST, RULES "UpsertRecordingRule", ACTS },
    { HTTP_POST, RULES "DeleteRecordingRule", ACTS },
    { HTTP_POST, RULES "*", ASKS },
    { HTTP_POST, FLAGS "GetFeatureFlags", ASKS },
    { HTTP_POST, FLAGS "*", ASKS },
    { HTTP_POST, "/version.v1.Version/Version", ASKS },
    { HTTP_POST, "/vcs.v1.VCSService/*", ASKS },
    /* the page */
    { HTTP_GET, "/*", ASKS },
};

const struct http_door *doors(size_t *ret_len)
{
    *ret_len = ARRAY_LEN(table);
    return table;
}

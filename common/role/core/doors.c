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
 *
 * The last column is for servers that ask callers for keys (common/identity/decide.h): which role
 * opens the route, of how many tenants a request may be, what an identity gets that may see only
 * some series, and what is audited. Each name in it stands for four values that belong together.
 */
#include "common/role/core/doors.h"

#include "common/identity/grant.h"

#define ASKS false
#define ACTS true

#define NOTHING  HTTP_NEEDS_NOTHING
#define METRICS  HTTP_NEEDS_METRICS
#define TOKEN    HTTP_NEEDS_TOKEN
#define OPERATOR HTTP_NEEDS_OPERATOR

#define EDITOR     (ROLE_READ | ROLE_TENANT_ADMIN | HTTP_ROLES_EDIT)
#define AUTHOR     (ROLE_READ | HTTP_ROLES_EDIT)
#define NO_TENANT  HTTP_TENANTS_NONE
#define ONE_TENANT HTTP_TENANTS_ONE
#define TENANTS    HTTP_TENANTS_MANY

#define OPEN        HTTP_ROLES_OPEN, NO_TENANT, HTTP_SCOPE_NONE, '-'
#define ANYBODY     HTTP_ROLES_ANY, NO_TENANT, HTTP_SCOPE_NONE, '-'
#define SCRAPE      ROLE_SCRAPE | ROLE_SERVER_ADMIN, NO_TENANT, HTTP_SCOPE_NONE, '-'
#define SERVER      ROLE_SERVER_ADMIN, NO_TENANT, HTTP_SCOPE_NONE, '-'
#define SERVER_TOLD ROLE_SERVER_ADMIN, NO_TENANT, HTTP_SCOPE_NONE, 'A'
#define SERVER_ACT  ROLE_SERVER_ADMIN, NO_TENANT, HTTP_SCOPE_REFUSE, 'A'
#define SERVER_OF   ROLE_SERVER_ADMIN, ONE_TENANT, HTTP_SCOPE_REFUSE, 'A'
#define KEYS        ROLE_TENANT_ADMIN | ROLE_SERVER_ADMIN, NO_TENANT, HTTP_SCOPE_REFUSE, 'A'
#define PUSH        ROLE_PUSH, ONE_TENANT, HTTP_SCOPE_SET, '-'
#define SYMBOLS     ROLE_PUSH, ONE_TENANT, HTTP_SCOPE_NONE, '-'
#define READ        ROLE_READ, TENANTS, HTTP_SCOPE_CONJOIN, 'R'
#define TENANT      ROLE_READ, ONE_TENANT, HTTP_SCOPE_REFUSE, '-'
#define EDIT        EDITOR, ONE_TENANT, HTTP_SCOPE_REFUSE, 'A'
#define OWN         ROLE_READ, ONE_TENANT, HTTP_SCOPE_OWN, 'R'
#define OWN_EDIT    AUTHOR, ONE_TENANT, HTTP_SCOPE_OWN, 'A'
#define DELETE      ROLE_DELETE, ONE_TENANT, HTTP_SCOPE_CONJOIN, 'A'
#define ERASE       ROLE_DELETE, ONE_TENANT, HTTP_SCOPE_REFUSE, 'A'

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
    { HTTP_GET, "/healthz", ASKS, NOTHING, OPEN },
    { HTTP_GET, "/readyz", ASKS, NOTHING, OPEN },
    { HTTP_GET, "/ready", ASKS, NOTHING, OPEN },
    { HTTP_POST, HEALTH "Check", ASKS, NOTHING, OPEN },
    { HTTP_POST, HEALTH "Watch", ASKS, NOTHING, ANYBODY },
    { HTTP_POST, HEALTH "*", ASKS, NOTHING, ANYBODY },
    { HTTP_GET, "/metrics", ASKS, METRICS, SCRAPE },
    { HTTP_GET, "/config", ASKS, TOKEN, SERVER },
    { HTTP_GET, "/ring", ASKS, TOKEN, SERVER },
    { HTTP_GET, "/debug/pprof", ASKS, TOKEN, SERVER_TOLD },
    { HTTP_GET, "/debug/pprof/*", ASKS, TOKEN, SERVER_TOLD },
    { HTTP_GET, "/debug/pprof/profile", ACTS, TOKEN, SERVER_TOLD },
    { HTTP_GET, "/debug/pprof/heap", ACTS, TOKEN, SERVER_TOLD },
    /* the cluster */
    { HTTP_GET, CLUSTER "places", ASKS, TOKEN, SERVER },
    { HTTP_GET, CLUSTER "progress", ASKS, TOKEN, SERVER },
    { HTTP_GET, CLUSTER "rebalance", ASKS, TOKEN, SERVER },
    { HTTP_GET, CLUSTER "kept", ASKS, TOKEN, SERVER_TOLD },
    { HTTP_POST, CLUSTER "nodes/*", ACTS, OPERATOR, SERVER_ACT },
    { HTTP_POST, CLUSTER "services", ACTS, OPERATOR, SERVER_ACT },
    { HTTP_POST, CLUSTER "tenants", ACTS, OPERATOR, SERVER_ACT },
    { HTTP_POST, CLUSTER "rebalance", ACTS, OPERATOR, SERVER_ACT },
    { HTTP_POST, CLUSTER "recover", ACTS, OPERATOR, SERVER_ACT },
    /* keys */
    { HTTP_GET, "/api/v1/keys", ASKS, OPERATOR, KEYS },
    { HTTP_POST, "/api/v1/keys", ACTS, OPERATOR, KEYS },
    { HTTP_POST, "/api/v1/keys/*", ACTS, OPERATOR, KEYS },
    { HTTP_DELETE, "/api/v1/keys/*", ACTS, OPERATOR, KEYS },
    /* pushes */
    { HTTP_POST, "/ingest", ACTS, NOTHING, PUSH },
    { HTTP_POST, "/pyroscope/ingest", ACTS, NOTHING, PUSH },
    { HTTP_POST, PUSHER "Push", ACTS, NOTHING, PUSH },
    { HTTP_POST, PUSHER "*", ASKS, NOTHING, ANYBODY },
    { HTTP_POST, "/v1development/profiles", ACTS, NOTHING, PUSH },
    { HTTP_POST, "/v1experimental/profiles", ACTS, NOTHING, PUSH },
    { HTTP_POST, OTLP "v1development.ProfilesService/Export", ACTS, NOTHING, PUSH },
    { HTTP_POST, OTLP "v1development.ProfilesService/*", ASKS, NOTHING, ANYBODY },
    { HTTP_POST, OTLP "v1experimental.ProfilesService/Export", ACTS, NOTHING, PUSH },
    { HTTP_POST, OTLP "v1experimental.ProfilesService/*", ASKS, NOTHING, ANYBODY },
    { HTTP_POST, PARCA "WriteRaw", ACTS, NOTHING, PUSH },
    { HTTP_POST, PARCA "WriteArrow", ACTS, NOTHING, PUSH },
    { HTTP_POST, PARCA "Write", ACTS, NOTHING, PUSH },
    { HTTP_POST, PARCA "*", ASKS, NOTHING, ANYBODY },
    { HTTP_POST, DEBUGINFO "ShouldInitiateUpload", ACTS, NOTHING, SYMBOLS },
    { HTTP_POST, DEBUGINFO "InitiateUpload", ACTS, NOTHING, SYMBOLS },
    { HTTP_POST, DEBUGINFO "MarkUploadFinished", ACTS, NOTHING, SYMBOLS },
    { HTTP_POST, DEBUGINFO "Upload", ACTS, NOTHING, SYMBOLS },
    { HTTP_POST, DEBUGINFO "*", ASKS, NOTHING, ANYBODY },
    { HTTP_POST, ALLOY "ShouldInitiateUpload", ACTS, NOTHING, SYMBOLS },
    { HTTP_POST, ALLOY "UploadFinished", ACTS, NOTHING, SYMBOLS },
    { HTTP_POST, ALLOY "ListDebuginfo", ASKS, NOTHING, TENANT },
    { HTTP_POST, ALLOY "DeleteDebuginfo", ACTS, NOTHING, ERASE },
    { HTTP_POST, ALLOY "Upload/*", ACTS, NOTHING, SYMBOLS },
    { HTTP_POST, ALLOY "*", ASKS, NOTHING, ANYBODY },
    { HTTP_POST, "/api/v1/import", ACTS, NOTHING, PUSH },
    { HTTP_GET, "/api/v1/targets", ASKS, NOTHING, TENANT },
    { HTTP_GET, "/api/v1/forward", ASKS, TOKEN, SERVER },
    { HTTP_GET, "/api/v1/tenant_limits", ASKS, NOTHING, TENANT },
    { HTTP_GET, "/runtime_config", ASKS, TOKEN, SERVER },
    /* uploads to look at */
    { HTTP_GET, "/api/v1/adhoc", ASKS, NOTHING, OWN },
    { HTTP_POST, "/api/v1/adhoc", ACTS, NOTHING, OWN_EDIT },
    { HTTP_GET, "/api/v1/adhoc/*", ASKS, NOTHING, OWN },
    { HTTP_DELETE, "/api/v1/adhoc/*", ACTS, NOTHING, OWN_EDIT },
    { HTTP_POST, ADHOC "Upload", ACTS, NOTHING, OWN_EDIT },
    { HTTP_POST, ADHOC "Get", ASKS, NOTHING, OWN },
    { HTTP_POST, ADHOC "List", ASKS, NOTHING, OWN },
    { HTTP_POST, ADHOC "Diff", ASKS, NOTHING, OWN },
    { HTTP_POST, ADHOC "*", ASKS, NOTHING, ANYBODY },
    /* queries */
    { HTTP_GET, "/pyroscope/render", ASKS, NOTHING, READ },
    { HTTP_GET, "/pyroscope/render-diff", ASKS, NOTHING, READ },
    { HTTP_GET, "/render", ASKS, NOTHING, READ },
    { HTTP_GET, "/render-diff", ASKS, NOTHING, READ },
    { HTTP_GET, "/api/exemplars:query", ASKS, NOTHING, READ },
    { HTTP_POST, "/merge", ASKS, NOTHING, READ },
    { HTTP_POST, "/api/exemplars:merge", ASKS, NOTHING, READ },
    { HTTP_GET, "/pyroscope/label-values", ASKS, NOTHING, READ },
    { HTTP_GET, "/label-values", ASKS, NOTHING, READ },
    { HTTP_GET, "/labels", ASKS, NOTHING, READ },
    { HTTP_GET, "/api/apps", ASKS, NOTHING, READ },
    { HTTP_GET, "/api/v1/functions", ASKS, NOTHING, READ },
    { HTTP_GET, "/api/v1/functions/grew", ASKS, NOTHING, READ },
    { HTTP_GET, "/api/v1/top", ASKS, NOTHING, READ },
    { HTTP_GET, "/api/v1/focus", ASKS, NOTHING, READ },
    { HTTP_GET, "/api/v1/sandwich", ASKS, NOTHING, READ },
    { HTTP_GET, "/api/v1/subtree", ASKS, NOTHING, READ },
    { HTTP_GET, "/api/v1/diff", ASKS, NOTHING, READ },
    { HTTP_GET, "/api/v1/space", ASKS, NOTHING, TENANT },
    { HTTP_GET, "/api/v1/ledger", ASKS, NOTHING, TENANT },
    { HTTP_POST, "/api/v1/ledger/accept", ACTS, OPERATOR, SERVER_OF },
    { HTTP_POST, "/api/v1/delete", ACTS, TOKEN, DELETE },
    { HTTP_GET, "/api/v1/deletes", ASKS, NOTHING, TENANT },
    { HTTP_GET, "/api/annotations", ASKS, NOTHING, TENANT },
    { HTTP_POST, "/api/annotations", ACTS, NOTHING, EDIT },
    { HTTP_DELETE, "/api/annotations", ACTS, NOTHING, EDIT },
    { HTTP_POST, QUERIER "ProfileTypes", ASKS, NOTHING, READ },
    { HTTP_POST, QUERIER "LabelNames", ASKS, NOTHING, READ },
    { HTTP_POST, QUERIER "LabelValues", ASKS, NOTHING, READ },
    { HTTP_POST, QUERIER "Series", ASKS, NOTHING, READ },
    { HTTP_POST, QUERIER "SelectMergeStacktraces", ASKS, NOTHING, READ },
    { HTTP_POST, QUERIER "SelectSeries", ASKS, NOTHING, READ },
    { HTTP_POST, QUERIER "SelectMergeSpanProfile", ASKS, NOTHING, READ },
    { HTTP_POST, QUERIER "SelectMergeProfile", ASKS, NOTHING, READ },
    { HTTP_POST, QUERIER "SelectHeatmap", ASKS, NOTHING, READ },
    { HTTP_POST, QUERIER "Diff", ASKS, NOTHING, READ },
    { HTTP_POST, QUERIER "GetProfileStats", ASKS, NOTHING, READ },
    { HTTP_POST, QUERIER "AnalyzeQuery", ASKS, NOTHING, READ },
    { HTTP_POST, QUERIER "*", ASKS, NOTHING, ANYBODY },
    { HTTP_POST, SETTINGS "Get", ASKS, NOTHING, TENANT },
    { HTTP_POST, SETTINGS "Set", ACTS, NOTHING, EDIT },
    { HTTP_POST, SETTINGS "Delete", ACTS, NOTHING, EDIT },
    { HTTP_POST, SETTINGS "*", ASKS, NOTHING, ANYBODY },
    { HTTP_POST, RULES "GetRecordingRule", ASKS, NOTHING, TENANT },
    { HTTP_POST, RULES "ListRecordingRules", ASKS, NOTHING, TENANT },
    { HTTP_POST, RULES "UpsertRecordingRule", ACTS, NOTHING, EDIT },
    { HTTP_POST, RULES "DeleteRecordingRule", ACTS, NOTHING, EDIT },
    { HTTP_POST, RULES "*", ASKS, NOTHING, ANYBODY },
    { HTTP_POST, FLAGS "GetFeatureFlags", ASKS, NOTHING, ANYBODY },
    { HTTP_POST, FLAGS "*", ASKS, NOTHING, ANYBODY },
    { HTTP_POST, "/version.v1.Version/Version", ASKS, NOTHING, ANYBODY },
    { HTTP_POST, "/vcs.v1.VCSService/*", ASKS, NOTHING, ANYBODY },
    /* the page */
    { HTTP_GET, "/*", ASKS, NOTHING, OPEN },
};

const struct http_door *doors(size_t *ret_len)
{
    *ret_len = ARRAY_LEN(table);
    return table;
}

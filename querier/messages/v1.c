/* SPDX-License-Identifier: Apache-2.0
 *
 * v1: rows are {json, other spelling, number, kind, member, most entries, table, names}.
 */
#include "querier/messages/v1.h"

#include <stddef.h>

#define STRINGS_MAX 1024
#define FRAMES_MAX  8192

#define AT(m) offsetof(ST, m)
#define ROW(json, proto, number, kind, m)         \
    {                                             \
        json, proto, number, kind, AT(m), 0, 0, 0 \
    }
#define LIST(json, proto, number, m)                           \
    {                                                          \
        json, proto, number, MSG_STR, AT(m), STRINGS_MAX, 0, 0 \
    }
#define SUB(json, proto, number, m, desc)               \
    {                                                   \
        json, proto, number, MSG_MSG, AT(m), 0, desc, 0 \
    }
#define SUBS(json, proto, number, m, max, desc)           \
    {                                                     \
        json, proto, number, MSG_MSG, AT(m), max, desc, 0 \
    }
#define NAMES(json, proto, number, m, names)              \
    {                                                     \
        json, proto, number, MSG_ENUM, AT(m), 0, 0, names \
    }

/* ---- enums ------------------------------------------------------------------------------------*/

static const char *const formats[] = { "PROFILE_FORMAT_UNSPECIFIED", "PROFILE_FORMAT_FLAMEGRAPH",
                                       "PROFILE_FORMAT_TREE", "PROFILE_FORMAT_DOT",
                                       "PROFILE_FORMAT_PPROF" };
static const char *const exemplar_types[] = { "EXEMPLAR_TYPE_UNSPECIFIED", "EXEMPLAR_TYPE_NONE",
                                              "EXEMPLAR_TYPE_INDIVIDUAL", "EXEMPLAR_TYPE_SPAN" };
static const char *const heatmap_types[] = { "HEATMAP_QUERY_TYPE_UNSPECIFIED",
                                             "HEATMAP_QUERY_TYPE_INDIVIDUAL",
                                             "HEATMAP_QUERY_TYPE_SPAN" };
static const char *const aggregations[] = { "TIME_SERIES_AGGREGATION_TYPE_SUM",
                                            "TIME_SERIES_AGGREGATION_TYPE_AVERAGE" };
static const char *const async_types[] = { "ASYNC_QUERY_TYPE_DISABLED", "ASYNC_QUERY_TYPE_FORCE" };
static const char *const metric_types[] = { "TOTAL" };

const struct msg_enum v1_formats = { formats, ARRAY_LEN(formats) };
const struct msg_enum v1_exemplar_types = { exemplar_types, ARRAY_LEN(exemplar_types) };
const struct msg_enum v1_heatmap_types = { heatmap_types, ARRAY_LEN(heatmap_types) };
const struct msg_enum v1_metric_types = { metric_types, ARRAY_LEN(metric_types) };
static const struct msg_enum aggregation_names = { aggregations, ARRAY_LEN(aggregations) };
static const struct msg_enum async_names = { async_types, ARRAY_LEN(async_types) };

/* ---- lists ------------------------------------------------------------------------------------*/

#define ST struct v1_types
static const struct msg_field types_fields[] = {
    ROW("start", NULL, 1, MSG_I64, start),
    ROW("end", NULL, 2, MSG_I64, end),
};
#undef ST
const struct msg_desc v1_types_desc =
    MSG_DESC("ProfileTypesRequest", struct v1_types, types_fields);

#define ST struct v1_labels
static const struct msg_field label_names_fields[] = {
    LIST("matchers", NULL, 1, matchers),
    ROW("start", NULL, 2, MSG_I64, start),
    ROW("end", NULL, 3, MSG_I64, end),
};
static const struct msg_field label_values_fields[] = {
    ROW("name", NULL, 1, MSG_STR, name),
    LIST("matchers", NULL, 2, matchers),
    ROW("start", NULL, 3, MSG_I64, start),
    ROW("end", NULL, 4, MSG_I64, end),
};
static const struct msg_field series_list_fields[] = {
    LIST("matchers", NULL, 1, matchers),
    LIST("labelNames", "label_names", 2, label_names),
    ROW("start", NULL, 3, MSG_I64, start),
    ROW("end", NULL, 4, MSG_I64, end),
};
#undef ST
const struct msg_desc v1_label_names_desc =
    MSG_DESC("LabelNamesRequest", struct v1_labels, label_names_fields);
const struct msg_desc v1_label_values_desc =
    MSG_DESC("LabelValuesRequest", struct v1_labels, label_values_fields);
const struct msg_desc v1_series_list_desc =
    MSG_DESC("SeriesRequest", struct v1_labels, series_list_fields);

/* ---- merges -----------------------------------------------------------------------------------*/

#define ST struct v1_location
static const struct msg_field location_fields[] = { ROW("name", NULL, 1, MSG_STR, name) };
#undef ST
static const struct msg_desc location_desc =
    MSG_DESC("Location", struct v1_location, location_fields);

#define ST struct v1_go_pgo
static const struct msg_field go_pgo_fields[] = {
    ROW("keepLocations", "keep_locations", 1, MSG_I64, keep_locations),
    ROW("aggregateCallees", "aggregate_callees", 2, MSG_BOOL, aggregate_callees),
};
#undef ST
static const struct msg_desc go_pgo_desc = MSG_DESC("GoPGO", struct v1_go_pgo, go_pgo_fields);

#define ST struct v1_stack_selector
static const struct msg_field selector_fields[] = {
    SUBS("callSite", "call_site", 1, call_site, FRAMES_MAX, &location_desc),
    SUB("goPgo", "go_pgo", 2, go_pgo, &go_pgo_desc),
};
#undef ST
static const struct msg_desc selector_desc =
    MSG_DESC("StackTraceSelector", struct v1_stack_selector, selector_fields);

#define ST struct v1_async
static const struct msg_field async_fields[] = {
    ROW("requestId", "request_id", 1, MSG_STR, request_id),
    NAMES("type", NULL, 2, type, &async_names),
};
#undef ST
static const struct msg_desc async_desc =
    MSG_DESC("AsyncQueryRequest", struct v1_async, async_fields);

#define ST       struct v1_merge
#define TYPE     ROW("profileTypeID", "profile_typeID", 1, MSG_STR, profile_type)
#define SELECTOR ROW("labelSelector", "label_selector", 2, MSG_STR, label_selector)
#define START(n) ROW("start", NULL, n, MSG_I64, start)
#define END(n)   ROW("end", NULL, n, MSG_I64, end)
#define NODES(n) ROW("maxNodes", "max_nodes", n, MSG_I64, max_nodes)
#define STACKS(n) \
    SUB("stackTraceSelector", "stack_trace_selector", n, stack_trace_selector, &selector_desc)
static const struct msg_field stacktraces_fields[] = {
    TYPE,
    SELECTOR,
    START(3),
    END(4),
    NODES(5),
    NAMES("format", NULL, 6, format, &v1_formats),
    STACKS(7),
    LIST("profileIdSelector", "profile_id_selector", 8, profile_ids),
    SUB("async", NULL, 9, async, &async_desc),
    LIST("traceIdSelector", "trace_id_selector", 10, trace_ids),
    LIST("spanSelector", "span_selector", 11, spans),
};
static const struct msg_field span_profile_fields[] = {
    TYPE,   SELECTOR, LIST("spanSelector", "span_selector", 3, spans), START(4),
    END(5), NODES(6), NAMES("format", NULL, 7, format, &v1_formats),
};
static const struct msg_field profile_fields[] = {
    TYPE,
    SELECTOR,
    START(3),
    END(4),
    NODES(5),
    STACKS(6),
    LIST("profileIdSelector", "profile_id_selector", 7, profile_ids),
    LIST("traceIdSelector", "trace_id_selector", 8, trace_ids),
};
#undef ST
const struct msg_desc v1_stacktraces_desc =
    MSG_DESC("SelectMergeStacktracesRequest", struct v1_merge, stacktraces_fields);
const struct msg_desc v1_span_profile_desc =
    MSG_DESC("SelectMergeSpanProfileRequest", struct v1_merge, span_profile_fields);
const struct msg_desc v1_profile_desc =
    MSG_DESC("SelectMergeProfileRequest", struct v1_merge, profile_fields);

#define ST struct v1_diff
static const struct msg_field diff_fields[] = {
    SUB("left", NULL, 1, left, &v1_stacktraces_desc),
    SUB("right", NULL, 2, right, &v1_stacktraces_desc),
};
#undef ST
const struct msg_desc v1_diff_desc = MSG_DESC("DiffRequest", struct v1_diff, diff_fields);

/* ---- series -----------------------------------------------------------------------------------*/

#define ST struct v1_series
static const struct msg_field series_fields[] = {
    TYPE,
    SELECTOR,
    START(3),
    END(4),
    LIST("groupBy", "group_by", 5, group_by),
    ROW("step", NULL, 6, MSG_DOUBLE, step),
    NAMES("aggregation", NULL, 7, average, &aggregation_names),
    STACKS(8),
    ROW("limit", NULL, 9, MSG_I64, limit),
    NAMES("exemplarType", "exemplar_type", 10, exemplars, &v1_exemplar_types),
};
static const struct msg_field heatmap_fields[] = {
    TYPE,
    SELECTOR,
    START(3),
    END(4),
    ROW("step", NULL, 5, MSG_DOUBLE, step),
    LIST("groupBy", "group_by", 6, group_by),
    NAMES("queryType", "query_type", 7, query_type, &v1_heatmap_types),
    NAMES("exemplarType", "exemplar_type", 8, exemplars, &v1_exemplar_types),
    ROW("limit", NULL, 9, MSG_I64, limit),
};
#undef ST
const struct msg_desc v1_series_desc =
    MSG_DESC("SelectSeriesRequest", struct v1_series, series_fields);
const struct msg_desc v1_heatmap_desc =
    MSG_DESC("SelectHeatmapRequest", struct v1_series, heatmap_fields);

#define ST struct v1_analyze
static const struct msg_field analyze_fields[] = {
    START(2),
    END(3),
    ROW("query", NULL, 4, MSG_STR, query),
};
#undef ST
const struct msg_desc v1_analyze_desc =
    MSG_DESC("AnalyzeQueryRequest", struct v1_analyze, analyze_fields);
const struct msg_desc v1_nothing_desc = { "the request", sizeof(struct v1_nothing), NULL, 0 };

/* ---- settings.v1 ------------------------------------------------------------------------------*/

#define ST struct v1_setting
static const struct msg_field setting_fields[] = {
    ROW("name", NULL, 1, MSG_STR, name),
    ROW("value", NULL, 2, MSG_STR, value),
    ROW("modifiedAt", "modified_at", 3, MSG_I64, modified_at),
};
static const struct msg_field setting_name_fields[] = { ROW("name", NULL, 1, MSG_STR, name) };
#undef ST
const struct msg_desc v1_setting_desc = MSG_DESC("Setting", struct v1_setting, setting_fields);
const struct msg_desc v1_setting_name_desc =
    MSG_DESC("DeleteSettingsRequest", struct v1_setting, setting_name_fields);

#define ST struct v1_setting_set
static const struct msg_field setting_set_fields[] = {
    SUB("setting", NULL, 1, setting, &v1_setting_desc),
};
#undef ST
const struct msg_desc v1_setting_set_desc =
    MSG_DESC("SetSettingsRequest", struct v1_setting_set, setting_set_fields);

#define ST struct v1_function_filter
static const struct msg_field function_filter_fields[] = {
    ROW("functionName", "function_name", 1, MSG_STR, function_name),
    NAMES("metricType", "metric_type", 2, metric_type, &v1_metric_types),
};
#undef ST
static const struct msg_desc function_filter_desc =
    MSG_DESC("StacktraceFilterFunctionName", struct v1_function_filter, function_filter_fields);

#define ST struct v1_rule_filter
static const struct msg_field rule_filter_fields[] = {
    SUB("functionName", "function_name", 1, function_name, &function_filter_desc),
};
#undef ST
static const struct msg_desc rule_filter_desc =
    MSG_DESC("StacktraceFilter", struct v1_rule_filter, rule_filter_fields);

#define ST struct v1_label
static const struct msg_field label_fields[] = {
    ROW("name", NULL, 1, MSG_STR, name),
    ROW("value", NULL, 2, MSG_STR, value),
};
#undef ST
static const struct msg_desc label_desc = MSG_DESC("LabelPair", struct v1_label, label_fields);

#define ST struct v1_rule
static const struct msg_field rule_fields[] = {
    ROW("id", NULL, 1, MSG_STR, id),
    ROW("metricName", "metric_name", 2, MSG_STR, metric_name),
    LIST("matchers", NULL, 3, matchers),
    LIST("groupBy", "group_by", 4, group_by),
    SUBS("externalLabels", "external_labels", 5, external_labels, STRINGS_MAX, &label_desc),
    ROW("generation", NULL, 6, MSG_I64, generation),
    SUB("stacktraceFilter", "stacktrace_filter", 7, filter, &rule_filter_desc),
};
static const struct msg_field stored_rule_fields[] = {
    ROW("id", NULL, 1, MSG_STR, id),
    ROW("metricName", "metric_name", 2, MSG_STR, metric_name),
    ROW("profileType", "profile_type", 3, MSG_STR, profile_type),
    LIST("matchers", NULL, 4, matchers),
    LIST("groupBy", "group_by", 5, group_by),
    SUBS("externalLabels", "external_labels", 6, external_labels, STRINGS_MAX, &label_desc),
    ROW("generation", NULL, 7, MSG_I64, generation),
    SUB("stacktraceFilter", "stacktrace_filter", 8, filter, &rule_filter_desc),
};
static const struct msg_field rule_id_fields[] = { ROW("id", NULL, 1, MSG_STR, id) };
#undef ST
const struct msg_desc v1_rule_desc =
    MSG_DESC("UpsertRecordingRuleRequest", struct v1_rule, rule_fields);
const struct msg_desc v1_stored_rule_desc =
    MSG_DESC("RecordingRule", struct v1_rule, stored_rule_fields);
const struct msg_desc v1_rule_id_desc =
    MSG_DESC("RecordingRuleRequest", struct v1_rule, rule_id_fields);

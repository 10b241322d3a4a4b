/* SPDX-License-Identifier: Apache-2.0
 *
 * v1.h: the requests of querier.v1 and of the services beside it (proto/WIRE.md, "querier.v1
 * methods", "Settings and rules"), and the tables that msg_in.h reads them by. Names of members are
 * those of the fields.
 */
#ifndef QUERIER_MESSAGES_V1_H
#define QUERIER_MESSAGES_V1_H

#include "querier/messages/msg_in.h"

enum v1_format { V1_ANY, V1_FLAMEGRAPH, V1_TREE, V1_DOT, V1_PPROF };
enum v1_exemplars { V1_EXM_UNSPECIFIED, V1_EXM_NONE, V1_EXM_INDIVIDUAL, V1_EXM_SPAN };
enum v1_heatmap { V1_HEAT_UNSPECIFIED, V1_HEAT_INDIVIDUAL, V1_HEAT_SPAN };

/* ---- querier.v1 ---- */

struct v1_types { /* ProfileTypesRequest */
    int64_t start, end;
};
struct v1_labels { /* LabelNamesRequest, LabelValuesRequest, SeriesRequest */
    struct str name;
    struct msg_list matchers, label_names;
    int64_t start, end;
};
struct v1_location {
    struct str name;
};
struct v1_go_pgo {
    int64_t keep_locations;
    bool aggregate_callees;
};
struct v1_stack_selector {
    struct msg_list call_site; /* of struct v1_location */
    struct v1_go_pgo *go_pgo;
};
struct v1_async {
    struct str request_id;
    int64_t type; /* 1: force */
};
/* SelectMergeStacktraces, SelectMergeSpanProfile, SelectMergeProfile; one side of a diff. */
struct v1_merge {
    struct str profile_type, label_selector;
    int64_t start, end, max_nodes;
    int64_t format; /* enum v1_format */
    struct v1_stack_selector *stack_trace_selector;
    struct msg_list profile_ids, trace_ids, spans;
    struct v1_async *async;
};
struct v1_series { /* SelectSeriesRequest, SelectHeatmapRequest */
    struct str profile_type, label_selector;
    int64_t start, end;
    struct msg_list group_by;
    double step;
    int64_t average;    /* SelectSeries: 1 */
    int64_t query_type; /* SelectHeatmap: enum v1_heatmap */
    struct v1_stack_selector *stack_trace_selector;
    int64_t limit;
    int64_t exemplars; /* enum v1_exemplars */
};
struct v1_diff {
    struct v1_merge *left, *right;
};
struct v1_analyze {
    int64_t start, end;
    struct str query;
};
struct v1_nothing {
    char none;
};

extern const struct msg_desc v1_types_desc, v1_label_names_desc, v1_label_values_desc,
    v1_series_list_desc, v1_stacktraces_desc, v1_span_profile_desc, v1_profile_desc, v1_series_desc,
    v1_heatmap_desc, v1_diff_desc, v1_analyze_desc, v1_nothing_desc;
extern const struct msg_enum v1_formats, v1_exemplar_types, v1_heatmap_types;

/* ---- settings.v1 ---- */

struct v1_setting {
    struct str name, value;
    int64_t modified_at;
};
struct v1_setting_set {
    struct v1_setting *setting;
};
struct v1_function_filter {
    struct str function_name;
    int64_t metric_type;
};
struct v1_rule_filter {
    struct v1_function_filter *function_name;
};
struct v1_label {
    struct str name, value;
};
struct v1_rule { /* UpsertRecordingRuleRequest, RecordingRule; id alone: Get, Delete */
    struct str id, metric_name, profile_type;
    struct msg_list matchers, group_by, external_labels; /* the last: struct v1_label */
    int64_t generation;
    struct v1_rule_filter *filter;
};

extern const struct msg_desc v1_setting_desc, v1_setting_set_desc, v1_setting_name_desc,
    v1_rule_desc, v1_stored_rule_desc, v1_rule_id_desc;
extern const struct msg_enum v1_metric_types;

#endif

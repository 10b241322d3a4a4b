/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests and whole replies over two ingesters: the replies stand in tests/golden/querier (without
 * Date and request id); UPDATE=1 writes them again.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "common/base/mem.h"
#include "common/sys/fs.h"
#include "tests/lib/roles/querier_bed.h"

#define T(s)    (QBED_NOW + (s)*INT64_C(1000))
#define HEAP    "memory:inuse_space:bytes::"
#define GO_HEAP "memory:inuse_space:bytes:space:bytes"
#define NOW     "1750000000"
#define RANGE   "\"start\":\"1749999900000\",\"end\":1750000000000"

static const struct qbed_push pushes[] = {
    { QBED_BY_SERVICE, "shop", "env=prod,pod=a", QBED_CPU, T(-60), "main;serve;pay", 30, false,
      NULL },
    { QBED_BY_SERVICE, "shop", "env=prod,pod=a", QBED_CPU, T(-50), "main;serve;list", 20, false,
      NULL },
    { QBED_BY_SERVICE, "shop", "env=prod,pod=b", QBED_CPU, T(-50), "main;serve;pay", 5, false,
      NULL },
    { QBED_BY_SERVICE, "shop", "env=dev,pod=c", QBED_CPU, T(-45), "main;idle", 7, false, NULL },
    { QBED_BY_SERVICE, "shop", "env=dev,pod=c", QBED_CPU, T(-45), "main", 1, false, NULL },
    { QBED_BY_SERVICE, "cart", "k8s.pod=x", QBED_CPU, T(-40), "loop", 9, false, NULL },
    { QBED_BY_SERVICE, "shop", "env=prod,pod=a", HEAP, T(-60), "main;alloc", 100, true, NULL },
    { QBED_BY_SERVICE, "shop", "env=prod,pod=a", HEAP, T(-50), "main;alloc", 200, true, NULL },
    { QBED_BY_SERVICE, "shop", "env=prod,pod=b", GO_HEAP, T(-50), "main;cache", 301, true, NULL },
    { QBED_BY_SERVICE, "tiny", "", "otel:x:count::", T(-30), "f", 2, false, NULL },
    { QBED_BY_SERVICE, "cart", "", "process_cpu:samples:count:cpu:nanoseconds", T(-40), "loop", 3,
      false, NULL },
};

struct row {
    const char *name;   /* of the golden file */
    const char *target; /* GET; or NULL: a Connect method */
    const char *method, *json;
};
#define Q    "query=" QBED_CPU
#define FROM "&from=now-100s&until=now"
static const struct row rows[] = {
    { "render", "/pyroscope/render?" Q "%7Bservice_name%3D%22shop%22%7D" FROM, NULL, NULL },
    { "render_type_in_braces",
      "/pyroscope/render?query=%7B__name__%3D%22" QBED_CPU "%22,service_name=%22shop%22%7D" FROM,
      NULL, NULL },
    { "render_delta_type", "/pyroscope/render?" Q ":delta%7Bpod=%22a%22%7D" FROM, NULL, NULL },
    { "render_regex", "/pyroscope/render?" Q "%7Bpod=~%22a|b%22%7D" FROM, NULL, NULL },
    { "render_max_nodes", "/pyroscope/render?" Q "%7B%7D&max-nodes=2" FROM, NULL, NULL },
    { "render_max_nodes_wins", "/pyroscope/render?" Q "%7B%7D&max-nodes=1&maxNodes=2" FROM, NULL,
      NULL },
    { "render_group", "/pyroscope/render?" Q "%7Bservice_name=%22shop%22%7D&groupBy=env" FROM, NULL,
      NULL },
    { "render_group_missing", "/pyroscope/render?" Q "%7B%7D&groupBy=env" FROM, NULL, NULL },
    { "render_avg", "/pyroscope/render?" Q "%7Bservice_name=%22shop%22%7D&aggregation=avg" FROM,
      NULL, NULL },
    { "render_gauge", "/pyroscope/render?query=" HEAP "%7B%7D" FROM, NULL, NULL },
    { "render_nothing", "/pyroscope/render?" Q "%7Bservice_name=%22none%22%7D" FROM, NULL, NULL },
    { "render_before_everything", "/pyroscope/render?" Q "%7B%7D&from=1000&until=2000", NULL,
      NULL },
    { "render_point", "/pyroscope/render?" Q "%7B%7D&from=1749999955&until=1749999955", NULL,
      NULL },
    { "render_folded", "/pyroscope/render?" Q "%7B%7D&format=collapsed" FROM, NULL, NULL },
    { "render_no_query", "/pyroscope/render?from=now-1h", NULL, NULL },
    { "render_bad_query", "/pyroscope/render?" Q "%7Ba%3D%7D" FROM, NULL, NULL },
    { "render_bad_regex", "/pyroscope/render?" Q "%7Ba=~%22(%3F=b)%22%7D" FROM, NULL, NULL },
    { "render_no_type", "/pyroscope/render?query=%7Ba=%22b%22%7D" FROM, NULL, NULL },
    { "render_bad_type", "/pyroscope/render?query=cpu%7Ba=%22b%22%7D" FROM, NULL, NULL },
    { "render_from_zero", "/pyroscope/render?" Q "%7B%7D&from=0&until=now", NULL, NULL },
    { "render_backwards", "/pyroscope/render?" Q "%7B%7D&from=now&until=now-1h", NULL, NULL },
    { "render_bad_time", "/pyroscope/render?" Q "%7B%7D&from=yesterday", NULL, NULL },
    { "render_too_many_nodes", "/pyroscope/render?" Q "%7B%7D&max-nodes=2000000" FROM, NULL, NULL },
    { "render_no_number", "/pyroscope/render?" Q "%7B%7D&max_nodes=x" FROM, NULL, NULL },
    { "render_no_flag", "/pyroscope/render?" Q "%7B%7D&format=pgo&aggregateCallees=maybe" FROM,
      NULL, NULL },
    { "diff_no_number", "/pyroscope/render-diff?leftQuery=x&rightQuery=x&max-nodes=12three" FROM,
      NULL, NULL },
    { "render_dot", "/pyroscope/render?" Q "%7B%7D&format=dot" FROM, NULL, NULL },
    { "old_cpu", "/render?query=shop.cpu" FROM, NULL, NULL },
    { "old_name", "/render?name=shop.cpu%7Benv=%22prod%22%7D&format=json" FROM, NULL, NULL },
    { "old_regex_searches", "/render?query=shop.cpu%7Benv=~%22ro%22%7D&format=collapsed" FROM, NULL,
      NULL },
    { "old_inuse_space_both_types", "/render?query=shop.inuse_space&format=collapsed" FROM, NULL,
      NULL },
    { "old_best_rank", "/render?query=cart.cpu&format=collapsed" FROM, NULL, NULL },
    { "old_no_suffix", "/render?query=cart&format=collapsed" FROM, NULL, NULL },
    { "old_unknown_service", "/render?query=none.alloc_space" FROM, NULL, NULL },
    { "old_new_query", "/render?" Q "%7Bservice_name=%22cart%22%7D" FROM, NULL, NULL },
    { "old_bad_format", "/render?query=shop.cpu&format=png" FROM, NULL, NULL },
    { "old_dot", "/render?query=shop.cpu&format=dot&max-nodes=3" FROM, NULL, NULL },
    { "render_dot_nothing", "/pyroscope/render?" Q "%7Bservice_name=%22none%22%7D&format=dot" FROM,
      NULL, NULL },
    { "render_other_format", "/pyroscope/render?" Q "%7B%7D&format=png" FROM, NULL, NULL },
    { "render_diff",
      "/pyroscope/render-diff?leftQuery=" QBED_CPU "%7Bpod=%22a%22%7D&leftFrom=now-100s"
      "&leftUntil=now&rightQuery=" QBED_CPU "%7Bpod!=%22a%22%7D&rightFrom=now-45s&rightUntil=now",
      NULL, NULL },
    { "render_diff_nothing",
      "/pyroscope/render-diff?leftQuery=" QBED_CPU "%7Bpod=%22z%22%7D&rightQuery=" QBED_CPU
      "%7Bpod=%22z%22%7D",
      NULL, NULL },
    { "render_diff_types",
      "/pyroscope/render-diff?leftQuery=" QBED_CPU "%7B%7D&rightQuery=" HEAP "%7B%7D", NULL, NULL },
    { "render_diff_zero",
      "/pyroscope/render-diff?leftQuery=" QBED_CPU "%7B%7D&rightQuery=" QBED_CPU
      "%7B%7D&rightFrom=0",
      NULL, NULL },
    { "render_diff_no_query", "/pyroscope/render-diff?leftQuery=" QBED_CPU "%7B%7D", NULL, NULL },
    { "render_diff_dot",
      "/pyroscope/render-diff?format=dot&leftQuery=" QBED_CPU "%7B%7D&rightQuery=" QBED_CPU
      "%7B%7D",
      NULL, NULL },
    { "old_diff",
      "/render-diff?query=shop.cpu&leftFrom=now-100s&leftUntil=now-55s&rightFrom=now-55s"
      "&rightUntil=now",
      NULL, NULL },
    { "old_diff_types",
      "/render-diff?leftQuery=shop.cpu&rightQuery=shop.inuse_space&leftFrom=now-100s&leftUntil=now"
      "&rightFrom=now-100s&rightUntil=now",
      NULL, NULL },
    { "functions", "/api/v1/functions?" Q "%7Bservice_name=%22shop%22%7D" FROM, NULL, NULL },
    { "functions_top",
      "/api/v1/functions?" Q "%7B%7D&top=2&sort=total&step=40&from=1749999920&until=now", NULL,
      NULL },
    { "functions_names",
      "/api/v1/functions?" Q "%7B%7D&name=pay&name=none&name=pay&step=10"
      "&from=1749999940&until=1749999960",
      NULL, NULL },
    { "functions_gauge", "/api/v1/functions?query=" HEAP "%7B%7D&step=50" FROM, NULL, NULL },
    { "functions_nothing", "/api/v1/functions?" Q "%7Ba=%22b%22%7D" FROM, NULL, NULL },
    { "functions_no_type", "/api/v1/functions?query=%7Ba=%22b%22%7D" FROM, NULL, NULL },
    { "functions_bad_top", "/api/v1/functions?" Q "%7B%7D&top=0" FROM, NULL, NULL },
    { "functions_big_top", "/api/v1/functions?" Q "%7B%7D&top=1001" FROM, NULL, NULL },
    { "functions_bad_step", "/api/v1/functions?" Q "%7B%7D&step=1.5" FROM, NULL, NULL },
    { "functions_bad_sort", "/api/v1/functions?" Q "%7B%7D&sort=name" FROM, NULL, NULL },
    { "functions_groups",
      "/api/v1/functions?" Q "%7B%7D&name=pay&name=main&groupBy=env&groupBy=pod&step=50" FROM, NULL,
      NULL },
    { "functions_groups_cut",
      "/api/v1/functions?" Q "%7B%7D&top=1&groupBy=service_name&groups=1" FROM, NULL, NULL },
    { "functions_groups_gauge", "/api/v1/functions?query=" HEAP "%7B%7D&groupBy=pod" FROM, NULL,
      NULL },
    { "functions_groups_nothing", "/api/v1/functions?" Q "%7Ba=%22b%22%7D&groupBy=pod" FROM, NULL,
      NULL },
    { "functions_bad_groups", "/api/v1/functions?" Q "%7B%7D&groupBy=pod&groups=0" FROM, NULL,
      NULL },
    { "functions_many_points", "/api/v1/functions?" Q "%7B%7D&step=1&from=1&until=now", NULL,
      NULL },
    { "functions_backwards", "/api/v1/functions?" Q "%7B%7D&from=now&until=now-1h", NULL, NULL },
    { "grew",
      "/api/v1/functions/grew?" Q "%7B%7D&from=1749999950&until=1749999970"
      "&beforeFrom=1749999940&beforeUntil=1749999950",
      NULL, NULL },
    { "grew_by_service",
      "/api/v1/functions/grew?" Q "%7B%7D&from=1749999950&until=1749999970"
      "&by=service&sort=total&limit=3&mode=absolute",
      NULL, NULL },
    { "grew_shrank",
      "/api/v1/functions/grew?" Q "%7Bservice_name=%22shop%22%7D&from=1749999950"
      "&until=1749999960&dir=shrank&mode=relative&sort=total",
      NULL, NULL },
    { "grew_gauge",
      "/api/v1/functions/grew?query=" HEAP "%7B%7D&from=1749999950&until=1749999960&dir=all", NULL,
      NULL },
    { "grew_search_page",
      "/api/v1/functions/grew?" Q "%7B%7D&from=1749999950&until=1749999970&by=service&search=L"
      "&offset=1&limit=1",
      NULL, NULL },
    { "grew_nothing", "/api/v1/functions/grew?" Q "%7Ba=%22b%22%7D&by=service", NULL, NULL },
    { "grew_bad_by", "/api/v1/functions/grew?" Q "%7B%7D&by=pod", NULL, NULL },
    { "grew_too_deep", "/api/v1/functions/grew?" Q "%7B%7D&offset=9950&limit=51", NULL, NULL },
    { "top", "/api/v1/top?" Q "%7Bservice_name=%22shop%22%7D" FROM, NULL, NULL },
    { "top_page", "/api/v1/top?" Q "%7B%7D&sort=total&offset=1&limit=2" FROM, NULL, NULL },
    { "top_search", "/api/v1/top?" Q "%7B%7D&sort=name&order=reverse&search=A" FROM, NULL, NULL },
    { "top_of_function", "/api/v1/top?" Q "%7B%7D&function=serve" FROM, NULL, NULL },
    { "top_below_call_site", "/api/v1/top?" Q "%7B%7D&callSite=main&callSite=serve" FROM, NULL,
      NULL },
    { "top_gauge", "/api/v1/top?query=" HEAP "%7B%7D" FROM, NULL, NULL },
    { "top_bad_sort", "/api/v1/top?" Q "%7B%7D&sort=size" FROM, NULL, NULL },
    { "top_bad_limit", "/api/v1/top?" Q "%7B%7D&limit=10001" FROM, NULL, NULL },
    { "top_bad_query", "/api/v1/top?" Q "%7Ba%3D%7D" FROM, NULL, NULL },
    { "top_backwards", "/api/v1/top?" Q "%7B%7D&from=now&until=now-1h", NULL, NULL },
    { "focus", "/api/v1/focus?" Q "%7B%7D&function=serve" FROM, NULL, NULL },
    { "focus_cut", "/api/v1/focus?" Q "%7B%7D&function=serve&max-nodes=3" FROM, NULL, NULL },
    { "focus_unknown", "/api/v1/focus?" Q "%7B%7D&function=none" FROM, NULL, NULL },
    { "focus_no_function", "/api/v1/focus?" Q "%7B%7D" FROM, NULL, NULL },
    { "focus_bad_nodes", "/api/v1/focus?" Q "%7B%7D&function=f&maxNodes=x" FROM, NULL, NULL },
    { "sandwich", "/api/v1/sandwich?" Q "%7B%7D&function=serve" FROM, NULL, NULL },
    { "sandwich_leaf", "/api/v1/sandwich?" Q "%7B%7D&function=pay&maxNodes=2" FROM, NULL, NULL },
    { "sandwich_unknown", "/api/v1/sandwich?" Q "%7B%7D&function=none" FROM, NULL, NULL },
    { "subtree", "/api/v1/subtree?" Q "%7B%7D" FROM, NULL, NULL },
    { "subtree_path", "/api/v1/subtree?" Q "%7B%7D&path=main&limit=1" FROM, NULL, NULL },
    { "subtree_page", "/api/v1/subtree?" Q "%7B%7D&path=main&offset=1&limit=1" FROM, NULL, NULL },
    { "subtree_tree", "/api/v1/subtree?" Q "%7B%7D&path=main&path=serve&tree=1&sort=name" FROM,
      NULL, NULL },
    { "subtree_unknown", "/api/v1/subtree?" Q "%7B%7D&path=main&path=none&tree=1" FROM, NULL,
      NULL },
    { "diff",
      "/api/v1/diff?" Q "%7Bservice_name=%22shop%22%7D&leftFrom=1749999940"
      "&leftUntil=1749999950&rightFrom=1749999950&rightUntil=1749999960&tree=1",
      NULL, NULL },
    { "diff_default_left",
      "/api/v1/diff?" Q "%7B%7D&rightFrom=1749999950&rightUntil=1749999960"
      "&dir=grew&sort=total",
      NULL, NULL },
    { "diff_relative",
      "/api/v1/diff?leftQuery=" QBED_CPU "%7Benv=%22prod%22%7D&rightQuery=" QBED_CPU
      "%7Benv=%22dev%22%7D&leftFrom=now-100s&rightFrom=now-50s&mode=relative&tree=1",
      NULL, NULL },
    { "diff_second_instance",
      "/api/v1/diff?leftQuery=" QBED_CPU "%7Benv=%22prod%22%7D&rightQuery=" QBED_CPU
      "%7Benv=%22dev%22%7D&leftFrom=now-100s&rightFrom=now-50s&mode=second-instance"
      "&leftUntil=now&tree=1&limit=1",
      NULL, NULL },
    { "diff_units", "/api/v1/diff?leftQuery=" HEAP "%7B%7D&rightQuery=" QBED_CPU "%7B%7D", NULL,
      NULL },
    { "diff_bad_mode", "/api/v1/diff?" Q "%7B%7D&mode=percent", NULL, NULL },
    { "diff_bad_left", "/api/v1/diff?" Q "%7B%7D&leftQuery=cpu%7B", NULL, NULL },
    { "label_values", "/pyroscope/label-values?label=pod", NULL, NULL },
    { "label_values_types", "/pyroscope/label-values?label=__name__", NULL, NULL },
    { "label_values_query", "/pyroscope/label-values?label=pod&query=%7Benv=%22prod%22%7D", NULL,
      NULL },
    { "label_values_range", "/pyroscope/label-values?label=pod&from=now-45s&until=now", NULL,
      NULL },
    { "label_values_none", "/pyroscope/label-values?label=nope", NULL, NULL },
    { "label_values_no_label", "/pyroscope/label-values", NULL, NULL },
    { "old_label_values", "/label-values?label=pod&query=shop.cpu", NULL, NULL },
    { "old_label_values_names", "/label-values?label=__name__", NULL, NULL },
    { "old_labels", "/labels?query=cart.cpu", NULL, NULL },
    { "apps", "/api/apps", NULL, NULL },
    { "c_types", NULL, "ProfileTypes", "{" RANGE "}" },
    { "c_types_last_hour", NULL, "ProfileTypes", "{}" },
    { "c_types_negative", NULL, "ProfileTypes", "{\"start\":-20,\"end\":\"-10\"}" },
    { "c_types_one_time", NULL, "ProfileTypes", "{\"start\":5}" },
    { "c_names", NULL, "LabelNames", "{" RANGE ",\"matchers\":[]}" },
    { "c_names_matchers", NULL, "LabelNames",
      "{" RANGE ",\"matchers\":[\"{env=\\\"dev\\\"}\",\"{pod!=\\\"a\\\"}\"]}" },
    { "c_names_no_time", NULL, "LabelNames", "{}" },
    { "c_names_backwards", NULL, "LabelNames", "{\"start\":2,\"end\":1}" },
    { "c_names_bad_matcher", NULL, "LabelNames", "{" RANGE ",\"matchers\":[\"{\"]}" },
    { "c_values", NULL, "LabelValues", "{" RANGE ",\"name\":\"service_name\"}" },
    { "c_values_none", NULL, "LabelValues", "{" RANGE ",\"name\":\"nope\"}" },
    { "c_values_no_name", NULL, "LabelValues", "{" RANGE "}" },
    { "c_series", NULL, "Series",
      "{" RANGE ",\"labelNames\":[\"service_name\",\"__profile_type__\"],\"matchers\":[]}" },
    { "c_series_other_spelling", NULL, "Series", "{" RANGE ",\"label_names\":[\"env\"]}" },
    { "c_series_metric", NULL, "Series",
      "{" RANGE ",\"matchers\":[\"" HEAP "{}\"],\"labelNames\":[\"pod\"]}" },
    { "c_series_odd_names_hidden", NULL, "Series",
      "{" RANGE ",\"matchers\":[\"{service_name=\\\"cart\\\"}\"]}" },
    { "c_merge", NULL, "SelectMergeStacktraces",
      "{" RANGE ",\"profileTypeID\":\"" QBED_CPU
      "\",\"labelSelector\":\"{service_name=\\\"shop\\\"}\"}" },
    { "c_merge_other_spelling", NULL, "SelectMergeStacktraces",
      "{" RANGE ",\"profile_typeID\":\"" QBED_CPU

      "\",\"label_selector\":\"{service_name=\\\"shop\\\"}\",\"max_nodes\":\"2\","
      "\"format\":\"PROFILE_FORMAT_FLAMEGRAPH\",\"unknown\":{\"a\":[1]},\"async\":null}" },
    { "c_merge_call_site", NULL, "SelectMergeStacktraces",
      "{" RANGE ",\"profileTypeID\":\"" QBED_CPU
      "\",\"labelSelector\":\"{}\",\"stackTraceSelector\":{\"call_site\":[{\"name\":\"main\"},"
      "{\"name\":\"serve\"}]}}" },
    { "c_merge_nothing", NULL, "SelectMergeStacktraces",
      "{" RANGE ",\"profileTypeID\":\"" QBED_CPU
      "\",\"labelSelector\":\"{service_name=\\\"none\\\"}\"}" },
    { "c_merge_no_selector", NULL, "SelectMergeStacktraces",
      "{" RANGE ",\"profileTypeID\":\"" QBED_CPU "\"}" },
    { "c_merge_bad_type", NULL, "SelectMergeStacktraces",
      "{" RANGE ",\"profileTypeID\":\"cpu\",\"labelSelector\":\"{}\"}" },
    { "c_merge_too_many_nodes", NULL, "SelectMergeStacktraces",
      "{" RANGE ",\"profileTypeID\":\"" QBED_CPU
      "\",\"labelSelector\":\"{}\",\"maxNodes\":2000000}" },
    { "c_merge_negative_nodes", NULL, "SelectMergeStacktraces",
      "{" RANGE ",\"profileTypeID\":\"" QBED_CPU "\",\"labelSelector\":\"{}\",\"maxNodes\":-1}" },
    { "c_merge_bad_format", NULL, "SelectMergeStacktraces",
      "{" RANGE ",\"profileTypeID\":\"" QBED_CPU
      "\",\"labelSelector\":\"{}\",\"format\":\"PNG\"}" },
    { "c_select", NULL, "SelectSeries",
      "{" RANGE ",\"profileTypeID\":\"" QBED_CPU "\",\"labelSelector\":\"{}\",\"step\":15}" },
    { "c_select_groups", NULL, "SelectSeries",
      "{" RANGE ",\"profileTypeID\":\"" QBED_CPU
      "\",\"labelSelector\":\"{}\",\"step\":15,\"groupBy\":[\"service_name\",\"env\"]}" },
    { "c_select_limit", NULL, "SelectSeries",
      "{" RANGE ",\"profileTypeID\":\"" QBED_CPU
      "\",\"labelSelector\":\"{}\",\"step\":15,\"group_by\":[\"service_name\"],\"limit\":\"1\"}" },
    { "c_select_average", NULL, "SelectSeries",
      "{" RANGE ",\"profileTypeID\":\"" QBED_CPU

      "\",\"labelSelector\":\"{service_name=\\\"shop\\\"}\",\"step\":50,"
      "\"aggregation\":\"TIME_SERIES_AGGREGATION_TYPE_AVERAGE\"}" },
    { "c_select_gauge", NULL, "SelectSeries",
      "{" RANGE ",\"profileTypeID\":\"" HEAP "\",\"labelSelector\":\"{}\",\"step\":100}" },
    /* From steps of a minute on points are [T - step, T): what lies on an edge counts in the next.
     */
    { "c_select_minutes", NULL, "SelectSeries",
      "{\"start\":1749999900000,\"end\":1750000020000,\"profileTypeID\":\"" QBED_CPU
      "\",\"labelSelector\":\"{}\",\"step\":60}" },
    { "c_select_site", NULL, "SelectSeries",
      "{" RANGE ",\"profileTypeID\":\"" QBED_CPU "\",\"labelSelector\":\"{}\",\"step\":10,"
      "\"stackTraceSelector\":{\"callSite\":[{\"name\":\"main\"},{\"name\":\"serve\"}]}"
      "}" },
    { "c_select_site_groups", NULL, "SelectSeries",
      "{" RANGE ",\"profileTypeID\":\"" QBED_CPU "\",\"labelSelector\":\"{}\",\"step\":10,"
      "\"stackTraceSelector\":{\"callSite\":[{\"name\":\"main\"},{\"name\":\"serve\"}]}"
      ",\"groupBy\":[\"pod\",\"none\"]}" },
    { "c_select_site_limit", NULL, "SelectSeries",
      "{" RANGE ",\"profileTypeID\":\"" QBED_CPU "\",\"labelSelector\":\"{}\",\"step\":10,"
      "\"stackTraceSelector\":{\"callSite\":[{\"name\":\"main\"},{\"name\":\"serve\"}]}"
      ",\"groupBy\":[\"pod\"],\"limit\":1}" },
    { "c_select_site_gauge", NULL, "SelectSeries",
      "{" RANGE ",\"profileTypeID\":\"" HEAP "\",\"labelSelector\":\"{}\",\"step\":10,"
      "\"stackTraceSelector\":{\"callSite\":[{\"name\":\"main\"},{\"name\":\"alloc\"}]}"
      "}" },
    { "c_select_site_average", NULL, "SelectSeries",
      "{" RANGE ",\"profileTypeID\":\"" QBED_CPU "\",\"labelSelector\":\"{}\",\"step\":10,"
      "\"stackTraceSelector\":{\"callSite\":[{\"name\":\"main\"},{\"name\":\"serve\"}]}"
      ",\"aggregation\":1}" },
    { "c_select_site_many", NULL, "SelectSeries",
      "{" RANGE ",\"profileTypeID\":\"" QBED_CPU "\",\"labelSelector\":\"{}\",\"step\":0.02,"
      "\"stackTraceSelector\":{\"callSite\":[{\"name\":\"main\"},{\"name\":\"serve\"}]}}" },
    { "c_select_nothing", NULL, "SelectSeries",
      "{" RANGE ",\"profileTypeID\":\"" QBED_CPU
      "\",\"labelSelector\":\"{a=\\\"b\\\"}\",\"step\":15}" },
    { "c_select_no_step", NULL, "SelectSeries",
      "{" RANGE ",\"profileTypeID\":\"" QBED_CPU "\",\"labelSelector\":\"{}\"}" },
    { "c_select_small_step", NULL, "SelectSeries",
      "{" RANGE ",\"profileTypeID\":\"" QBED_CPU "\",\"labelSelector\":\"{}\",\"step\":0.0009}" },
    { "c_select_many_points", NULL, "SelectSeries",
      "{\"start\":1,\"end\":1750000000000,\"profileTypeID\":\"" QBED_CPU
      "\",\"labelSelector\":\"{}\",\"step\":1}" },
    { "c_select_exemplars", NULL, "SelectSeries",
      "{" RANGE ",\"profileTypeID\":\"" QBED_CPU
      "\",\"labelSelector\":\"{}\",\"step\":15,\"exemplarType\":4}" },
    { "c_diff_no_left", NULL, "Diff", "{}" },
    { "c_diff_no_right", NULL, "Diff",
      "{\"left\":{" RANGE ",\"profileTypeID\":\"" QBED_CPU "\",\"labelSelector\":\"{}\"}}" },
    { "c_diff_same", NULL, "Diff",
      "{\"left\":{" RANGE ",\"profileTypeID\":\"" QBED_CPU
      "\",\"labelSelector\":\"{}\"},\"right\":{" RANGE ",\"profile_typeID\":\"" QBED_CPU
      "\",\"label_selector\":\"{}\"}}" },
    { "c_diff", NULL, "Diff",
      "{\"left\":{" RANGE ",\"profileTypeID\":\"" QBED_CPU
      "\",\"labelSelector\":\"{pod=\\\"a\\\"}\"},\"right\":{" RANGE ",\"profileTypeID\":\"" QBED_CPU
      "\",\"labelSelector\":\"{pod!=\\\"a\\\"}\",\"maxNodes\":3}}" },
    { "c_format_tree", NULL, "SelectMergeStacktraces",
      "{" RANGE ",\"profile_typeID\":\"" QBED_CPU
      "\",\"labelSelector\":\"{service_name=\\\"shop\\\"}\",\"format\":\"PROFILE_FORMAT_TREE\"}" },
    { "c_format_tree_nothing", NULL, "SelectMergeStacktraces",
      "{" RANGE ",\"profile_typeID\":\"" QBED_CPU
      "\",\"labelSelector\":\"{a=\\\"b\\\"}\",\"format\":\"PROFILE_FORMAT_TREE\"}" },
    { "c_format_dot", NULL, "SelectMergeStacktraces",
      "{" RANGE ",\"profile_typeID\":\"" QBED_CPU
      "\",\"labelSelector\":\"{service_name=\\\"shop\\\"}\",\"format\":\"PROFILE_FORMAT_DOT\"}" },
    { "c_format_dot_nothing", NULL, "SelectMergeStacktraces",
      "{" RANGE ",\"profile_typeID\":\"" QBED_CPU
      "\",\"labelSelector\":\"{a=\\\"b\\\"}\",\"format\":\"PROFILE_FORMAT_DOT\"}" },
    { "c_format_pprof", NULL, "SelectMergeStacktraces",
      "{" RANGE ",\"profile_typeID\":\"" QBED_CPU
      "\",\"labelSelector\":\"{service_name=\\\"shop\\\"}\",\"format\":\"PROFILE_FORMAT_PPROF\"}" },
    { "c_format_pprof_nothing", NULL, "SelectMergeStacktraces",
      "{" RANGE ",\"profile_typeID\":\"" QBED_CPU
      "\",\"labelSelector\":\"{a=\\\"b\\\"}\",\"format\":\"PROFILE_FORMAT_PPROF\"}" },
    { "c_format_tree_cut", NULL, "SelectMergeStacktraces",
      "{" RANGE ",\"profile_typeID\":\"" QBED_CPU
      "\",\"labelSelector\":\"{service_name=\\\"shop\\\"}\",\"format\":2,\"maxNodes\":2}" },
    { "c_format_pgo", NULL, "SelectMergeStacktraces",
      "{" RANGE ",\"profile_typeID\":\"" QBED_CPU
      "\",\"labelSelector\":\"{service_name=\\\"shop\\\"}\""
      ",\"format\":4"
      ",\"stackTraceSelector\":{\"goPgo\":{\"keepLocations\":1,\"aggregateCallees\":true}}}" },
    { "c_profile", NULL, "SelectMergeProfile",
      "{" RANGE ",\"profile_typeID\":\"" QBED_CPU
      "\",\"labelSelector\":\"{service_name=\\\"shop\\\"}\"}" },
    { "c_profile_site", NULL, "SelectMergeProfile",
      "{" RANGE ",\"profile_typeID\":\"" QBED_CPU
      "\",\"labelSelector\":\"{service_name=\\\"shop\\\"}\""
      ",\"stackTraceSelector\":{\"callSite\":[{\"name\":\"main\"}]},\"maxNodes\":2}" },
    { "c_span_profile_dot", NULL, "SelectMergeSpanProfile",
      "{" RANGE ",\"profile_typeID\":\"" QBED_CPU
      "\",\"labelSelector\":\"{service_name=\\\"shop\\\"}\""
      ",\"format\":3,\"spanSelector\":[\"00000000000000aa\"]}" },
    { "c_stats", NULL, "GetProfileStats", "{}" },
    { "c_analyze", NULL, "AnalyzeQuery", "{" RANGE ",\"query\":\"{service_name=\\\"shop\\\"}\"}" },
    { "c_analyze_type", NULL, "AnalyzeQuery",
      "{" RANGE ",\"query\":\"" QBED_CPU "{pod=\\\"a\\\"}\"}" },
    { "c_analyze_bad", NULL, "AnalyzeQuery", "{" RANGE ",\"query\":\"{a\"}" },
    { "c_no_body", NULL, "Series", "" },
    { "c_no_object", NULL, "Series", "[]" },
    { "c_bad_json", NULL, "Series", "{\"a\":" },
    { "c_wrong_kind", NULL, "Series", "{\"start\":[],\"end\":1}" },
    { "c_no_method", NULL, "Nope", "{}" },
};

/* The reply without what changes from run to run. */
static void put_stable(const char *reply, struct buf *out)
{
    struct str rest = str_c(reply), line;
    bool more = true, head = true;

    while (str_next(&rest, '\n', &more, &line)) {
        if (head && (str_starts(line, STR("Date: ")) || str_starts(line, STR("X-Request-Id: "))))
            continue;
        if (line.len && line.ptr[line.len - 1] == '\r') {
            head = head && line.len > 1;
            line.len--;
        }
        buf_add_str(out, line);
        if (more)
            buf_add_c(out, '\n');
    }
}

static void test_golden_replies(void **state)
{
    (void)state;
    const struct fs *fs = fs_real();
    bool update = getenv("UPDATE") != NULL;
    struct qbed b;
    int bad = 0;

    qbed_init(&b, 2, NULL);
    qbed_data(&b, pushes, ARRAY_LEN(pushes));
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const struct row *r = &rows[i];
        char path[128];
        struct buf got, want;
        struct err e;
        const char *reply =
            r->target ? qbed_get(&b, r->target) : qbed_connect(&b, r->method, r->json);
        snprintf(path, sizeof(path), "tests/golden/querier/%s.http", r->name);
        buf_init(&got, MIB);
        buf_init(&want, MIB);
        put_stable(reply, &got);
        if (update)
            assert_int_equal(fs->write_file(fs, path, buf_str(&got), &e), 0);
        else if (fs->read_file(fs, path, &want, &e)) {
            print_error("%s\n", e.text);
            bad++;
        } else if (!str_eq(buf_str(&got), buf_str(&want))) {
            print_error("%s: got\n%.*s\nwant\n%.*s\n", path, STR_ARG(buf_str(&got)),
                        STR_ARG(buf_str(&want)));
            bad++;
        }
        buf_deinit(&got);
        buf_deinit(&want);
    }
    assert_int_equal(bad, 0);
    qbed_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_replies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

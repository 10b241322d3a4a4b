/* SPDX-License-Identifier: Apache-2.0
 *
 * api_connect.h: querier.v1.QuerierService (proto/WIRE.md, "querier.v1 methods"): first steps.
 */
#ifndef QUERIER_API_NAMES_API_CONNECT_H
#define QUERIER_API_NAMES_API_CONNECT_H

#include "querier/query/query.h"

int api_profile_types(struct query *q, struct err *e);
int api_connect_label_names(struct query *q, struct err *e);
int api_connect_label_values(struct query *q, struct err *e);
int api_series(struct query *q, struct err *e);
/* api_stacks.c */
int api_select_merge_stacktraces(struct query *q, struct err *e);
int api_select_merge_span_profile(struct query *q, struct err *e);
int api_select_merge_profile(struct query *q, struct err *e);
int api_diff_rpc(struct query *q, struct err *e);
/* api_select.c */
int api_select_series(struct query *q, struct err *e);
/* api_stats.c */
int api_profile_stats(struct query *q, struct err *e);
int api_analyze_query(struct query *q, struct err *e);
/* api_heatmap.c */
int api_select_heatmap(struct query *q, struct err *e);

#endif

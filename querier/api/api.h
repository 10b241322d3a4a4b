/* SPDX-License-Identifier: Apache-2.0
 *
 * api.h: the first steps of querier.v1.QuerierService (proto/WIRE.md, "querier.v1 methods"), which
 * the folders flame and names define. Folders of api/ do not include one another.
 */
#ifndef QUERIER_API_API_H
#define QUERIER_API_API_H

struct err;
struct query;

/* names/api_connect.c */
int api_profile_types(struct query *q, struct err *e);
int api_connect_label_names(struct query *q, struct err *e);
int api_connect_label_values(struct query *q, struct err *e);
int api_series(struct query *q, struct err *e);
/* flame/api_stacks.c */
int api_select_merge_stacktraces(struct query *q, struct err *e);
int api_select_merge_span_profile(struct query *q, struct err *e);
int api_select_merge_profile(struct query *q, struct err *e);
int api_diff_rpc(struct query *q, struct err *e);
/* flame/api_select.c */
int api_select_series(struct query *q, struct err *e);
/* names/api_stats.c */
int api_profile_stats(struct query *q, struct err *e);
int api_analyze_query(struct query *q, struct err *e);
/* flame/api_heatmap.c */
int api_select_heatmap(struct query *q, struct err *e);

#endif

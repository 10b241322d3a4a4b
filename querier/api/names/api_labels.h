/* SPDX-License-Identifier: Apache-2.0
 *
 * api_labels.h: the label routes in plain JSON (proto/WIRE.md, "Render", "Legacy routes"): first
 * steps.
 *
 *   GET /pyroscope/label-values, /label-values   label= [query= from= until=]   sorted values
 *   GET /labels                                  [query= from= until=]          sorted names
 *   GET /api/apps                                                               old names
 */
#ifndef QUERIER_API_NAMES_API_LABELS_H
#define QUERIER_API_NAMES_API_LABELS_H

#include "querier/query/query.h"

int api_label_values(struct query *q, struct err *e);
int api_label_values_old(struct query *q, struct err *e);
int api_label_names(struct query *q, struct err *e);
int api_apps(struct query *q, struct err *e);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * api_render.h: flame graphs over plain HTTP (proto/WIRE.md, "Render", "Flamebearer JSON", "Legacy
 * routes").
 */
#ifndef QUERIER_API_FLAME_API_RENDER_H
#define QUERIER_API_FLAME_API_RENDER_H

#include "querier/query/query.h"

/* First steps. */
int api_render(struct query *q, struct err *e);
int api_render_old(struct query *q, struct err *e);
int api_render_diff(struct query *q, struct err *e);
int api_render_diff_old(struct query *q, struct err *e);
int api_merge_old(struct query *q, struct err *e);
int api_exemplars_query(struct query *q, struct err *e);

#endif

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

/* from= and until= style parameters: absent gives `absent`. ERR_INPUT out of years 1970 .. 9999. */
NODISCARD int api_time(const struct query *q, const char *name, int64_t absent, int64_t *ret,
                       struct err *e);
/* The same of a text; `what` is named in errors. */
NODISCARD int api_time_of(const struct query *q, struct str text, const char *what, int64_t absent,
                          int64_t *ret, struct err *e);

#endif

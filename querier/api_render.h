/* SPDX-License-Identifier: Apache-2.0
 *
 * api_render.h: GET /pyroscope/render the old /render, POST /merge (wire facts 5.1, 5.2, 5.6).
 */
#ifndef QUERIER_API_RENDER_H
#define QUERIER_API_RENDER_H

#include "querier/query.h"

/* First steps. */
int api_render(struct query *q, struct err *e);
int api_render_old(struct query *q, struct err *e);
int api_merge_old(struct query *q, struct err *e);

/* from= and until= style parameters: absent gives `absent`. ERR_INPUT out of years 1970 .. 9999. */
NODISCARD int api_time(const struct query *q, const char *name, int64_t absent, int64_t *ret,
                       struct err *e);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * select.h: a SelectSeries request, for the two ways to answer it.
 */
#ifndef QUERIER_SELECT_H
#define QUERIER_SELECT_H

#include "querier/connect_msg.h"
#include "querier/exemplars.h"
#include "querier/merged.h"
#include "querier/v1.h"

struct select_series {
    struct v1_series asked;
    struct spec spec;
    struct msg_times times;
    struct plan_grid grid;
    const struct str *group_by;
    size_t group_by_len;
    struct exm_ids ids;
};

/* q->state is the request, with a stackTraceSelector. Asks, or sets the next step. */
NODISCARD int select_site_ask(struct query *q, struct err *e);
/* The last step's: writes the answer from a finished timeline. */
NODISCARD int select_reply(struct query *q, const struct select_series *s, const struct timeline *t,
                           struct err *e);

#endif

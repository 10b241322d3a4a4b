/* SPDX-License-Identifier: Apache-2.0
 *
 * select.h: a SelectSeries request, for the two ways to answer it.
 */
#ifndef QUERIER_API_FLAME_SELECT_H
#define QUERIER_API_FLAME_SELECT_H

#include "querier/merge/merged.h"
#include "querier/messages/v1.h"
#include "querier/select/connect_msg.h"
#include "querier/select/exemplars.h"

struct select_series {
    struct v1_series asked;
    struct query_spec spec;
    struct msg_times times;
    struct plan_grid grid;
    const struct str *group_by;
    size_t group_by_len;
    struct exm_ids ids;
    struct exm_site site; /* without names: of all stacks */
};
/* Exemplars for points. */
struct select_list {
    const struct wire_exm_list *at;
    size_t len;
    struct plan_grid grid; /* which point they stand in */
    bool leaves;           /* whole leaves do */
};

/* q->state is the request, below a call site, not by id. Asks, or sets the next step. */
NODISCARD int select_site_ask(struct query *q, struct err *e);
/* Spans, or the pushes that came with an id of their own. */
NODISCARD int select_ask_list(struct query *q, const struct select_series *s, size_t ask,
                              struct wire_query *wq, struct err *e);
/* All replies to a list of exemplars; says nothing of the grid. In the next step, once. */
NODISCARD int select_read_list(struct query *q, size_t ask, struct select_list *ret, struct err *e);
/* The last step's: writes the answer from a finished timeline with the exemplars. */
NODISCARD int select_reply(struct query *q, const struct select_series *s, const struct timeline *t,
                           const struct select_list *list, struct err *e);

#endif

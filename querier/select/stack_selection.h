/* SPDX-License-Identifier: Apache-2.0
 *
 * stack_selection.h: which stacks a SelectMerge request of querier.v1 means, checked; and asking
 * for them.
 */
#ifndef QUERIER_SELECT_STACK_SELECTION_H
#define QUERIER_SELECT_STACK_SELECTION_H

#include "querier/messages/v1.h"
#include "querier/select/connect_msg.h"
#include "querier/select/exemplars.h"

struct stack_selection {
    struct query_spec spec;
    struct msg_times times;
    const struct str *call_site; /* root first */
    size_t call_site_len;
    const struct v1_go_pgo *go_pgo; /* or NULL */
    size_t max_nodes;               /* 0: all */
    size_t asked_nodes;             /* what the request says; 0: nothing */
    enum v1_format format;
    struct exm_ids ids;
};
/* How the request is read. */
enum stack_selection_kind {
    STACK_SELECTION_STACKS,
    STACK_SELECTION_SPANS,   /* the spans are what it is about, even if none is named */
    STACK_SELECTION_PROFILE, /* a pprof file: all nodes, unless it says how many */
};
/* In the query's arena. ERR_INPUT. */
NODISCARD int stack_selection_read(struct query *q, const struct v1_merge *m,
                                   enum stack_selection_kind kind, struct stack_selection **ret,
                                   struct err *e);
/* Replies are read as those of query_ask_merge. */
NODISCARD int stack_selection_ask(struct query *q, size_t ask, const struct stack_selection *p,
                                  struct err *e);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * exemplars.h: questions by the id of spans, traces and profiles: where requests name them.
 */
#ifndef QUERIER_SELECT_EXEMPLARS_H
#define QUERIER_SELECT_EXEMPLARS_H

#include "common/model/exid.h"
#include "querier/messages/v1.h"
#include "querier/query/query.h"
#include "querier/select/query_spec.h"

struct exm_ids {
    unsigned kinds;        /* bit 1 << enum exid_kind; 0: the question is not by id */
    const struct str *ids; /* packed, ascending, each once; none: nothing can match */
    size_t len;
};
/* Takes span_id="x", trace_id="x", profile_id="x" (a span or a whole push) out of the matchers;
 * also =~"x|y". They are no labels of any series. ERR_INPUT for other operators. */
NODISCARD int exm_of_spec(struct query_spec *s, struct arena *a, struct exm_ids *ret,
                          struct err *e);
/* spanSelector, traceIdSelector, profileIdSelector of querier.v1; with `must` the first is what the
 * request is about, even if it is empty. Adds to what *io has from the spec. */
NODISCARD int exm_of_msg(struct query *q, const struct v1_merge *m, bool must, struct exm_ids *io,
                         struct err *e);
/* A list of texts as ids of these kinds. */
NODISCARD int exm_of_texts(const struct str *texts, size_t n, unsigned kinds, struct arena *a,
                           struct exm_ids *ret, struct err *e);

/* Functions, root first: only the cost of stacks that begin with them counts. */
struct exm_site {
    const struct str *names;
    size_t len; /* 0: all stacks */
};
/* Asks for the sum of the samples with these ids; replies are read as those of query_ask_merge. */
NODISCARD int exm_ask_merge(struct query *q, size_t ask, const struct wire_query *wq,
                            const struct exm_ids *ids, struct exm_site site, struct err *e);
struct exm_timeline {
    struct plan_grid grid;
    struct exm_site site;
};
/* As query_ask_timeline, without groups. */
NODISCARD int exm_ask_timeline(struct query *q, size_t ask, const struct wire_query *wq,
                               const struct exm_ids *ids, const struct exm_timeline *timeline,
                               struct err *e);
/* All exemplars of some kinds, or those with some ids. Below a site, a question by kinds gives
 * those with stacks below it; a question by ids gives all of them, some with a value of 0. `more`
 * has the kinds and the limits of the list. */
NODISCARD int exm_ask_list(struct query *q, size_t ask, const struct wire_query *wq,
                           struct wire_exemplars more, struct exm_site site, struct err *e);
NODISCARD int exm_ask_ids(struct query *q, size_t ask, const struct wire_query *wq,
                          const struct exm_ids *ids, struct exm_site site, struct err *e);

/* The point of a grid that an exemplar stands in; false: none. */
bool exm_point(const struct plan_grid *g, int64_t start_ms, uint32_t *ret_k);
/* The labels a series is grouped by, and their canonical bytes; both in the arena. */
struct exm_group {
    struct labels labels;
    struct str key;
};
NODISCARD int exm_group(const struct labels *series, const struct str *by, size_t by_len,
                        struct arena *a, struct exm_group *ret, struct err *e);
/* types.v1.Exemplar, an item of the open list; of the labels those the answer is not grouped by. */
void exm_put(const struct wire_exemplar *x, const struct labels *series, const struct str *by,
             size_t by_len, struct msg_out *o);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * function_view_args.h: what the views (/api/v1/top, focus, sandwich, subtree, diff) have in
 * common: their parameters, the question for a tree, and the head of an answer. Pool thread.
 */
#ifndef QUERIER_SELECT_FUNCTION_VIEW_ARGS_H
#define QUERIER_SELECT_FUNCTION_VIEW_ARGS_H

#include "querier/merge/merged.h"
#include "querier/select/exemplars.h"
#include "querier/select/query_spec.h"

/* One tree: what it is asked for, and afterwards what it covers. */
struct view_side {
    struct query_spec spec;
    struct exm_ids ids;
    struct plan_range range;
    const struct str *call_site; /* only stacks that begin with these functions */
    size_t call_site_len;
    int64_t start_ms, end_ms; /* real bounds, from view_read */
};
struct view_page {
    uint64_t offset, limit;
    struct str search; /* empty: all */
};

/* `query`, `from`, `until`, `callSite` with a prefix: "left" reads leftQuery, leftFrom .. A text
 * without a prefix is the default; `from` and `until` default to the given times. */
NODISCARD int view_side_read(struct query *q, const char *prefix, int64_t from_ms, int64_t until_ms,
                             struct view_side *ret, struct err *e);
/* All parameters of a name, in the arena. ERR_LIMIT: over 1,024. */
NODISCARD int view_strs(struct query *q, const char *name, const struct str **ret, size_t *ret_len,
                        struct err *e);
/* maxNodes, max-nodes or max_nodes: the name that was used and what was given; NULL if none. */
const char *view_nodes_given(const struct query *q, struct str *ret);
/* The same as a number; absent: querier.nodes_default. ERR_INPUT over the limit. */
NODISCARD int view_nodes(struct query *q, size_t *ret, struct err *e);
/* offset, limit (default 100, at most 10,000), search. */
NODISCARD int view_page_read(struct query *q, struct view_page *ret, struct err *e);
/* The parameter as one of n words; *ret is its number, and unchanged if the parameter is absent. */
NODISCARD int view_word(struct query *q, const char *name, const char *const *words, size_t n,
                        size_t *ret, struct err *e);
/* `function`, which must be there. */
NODISCARD int view_function(struct query *q, struct str *ret, struct err *e);
/* 1, true: true. Absent, 0, false: false. */
NODISCARD int view_flag(struct query *q, const char *name, bool *ret, struct err *e);

/* Asks for the tree in every tenant of the request. */
NODISCARD int view_ask(struct query *q, size_t ask, const struct view_side *s, struct err *e);
/* Reads the replies into *m, and the bounds into *s. merged_deinit in any case. */
NODISCARD int view_read(struct query *q, size_t ask, struct view_side *s, struct merged *m,
                        struct err *e);

/* profileType, unit, gauge: how answers begin. The type was parsed before. */
void view_type_json(struct str profile_type, bool gauge, struct json *j);
/* Keys of the open object: profileType, unit, gauge, startMs, endMs, total. */
void view_side_json(const struct view_side *s, const struct merged *m, struct json *j);
/* Keys of the open object where they say something: partial, notice. */
void view_notes_json(const struct query *q, struct json *j);
/* Value: {"names":..,"levels":..,"numTicks":n,"maxSelf":n} of the tree, cut. */
NODISCARD int view_flame_json(struct query *q, const struct calltree *t, size_t max_nodes,
                              struct json *j, struct err *e);
/* 100 v / total, or 0. */
double view_percent(uint64_t v, uint64_t total);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * wire.h: proto/query.proto as the querier sees it: requests out, replies in.
 *
 * Encoders append to a buf. Decoders put everything into the arena (its limit bounds the memory)
 * and check it: a reply that passes can be used without further looks. Thread: any.
 */
#ifndef QUERIER_ASK_WIRE_H
#define QUERIER_ASK_WIRE_H

#include "common/base/arena.h"
#include "common/base/err.h"
#include "common/model/label.h"
#include "common/model/leaves.h"
#include "common/model/selector.h"
#include "common/render/calltree.h"
#include "querier/ask/plan.h"
#include "querier/ask/scoped.h"

/* What is asked of every target. */
struct wire_query {
    struct str tenant;
    struct str profile_type;          /* empty for labels */
    const struct selector *selectors; /* joined by AND; their metrics are not sent */
    size_t selectors_len;
    struct plan_range range; /* not for timelines */
    uint64_t map_version;    /* by which the targets are all there are; 0: all are asked */
    bool leaf_items;         /* of timelines and functions: several replies will be united */
};
/* The series, and the ingester that is asked. Tenant and matchers of a message are those in `of`,
 * which can only be made for an identity; those of wire_query are what it is made from. */
struct wire_to {
    const struct scoped_matchers *of;
    const struct plan_target *target;
};
struct wire_merge {
    const struct str *call_site;
    size_t call_site_len;
    uint64_t bytes_max;
    uint64_t cost_max; /* of bytes to be read; 0: any */
};
struct wire_timeline {
    struct plan_grid grid;
    const struct str *group_by;
    size_t group_by_len;
    bool spread; /* pushes over the slots they cover */
};
struct wire_functions {
    struct plan_grid grid;
    const struct str *names; /* none: all */
    size_t names_len;
    uint64_t bytes_max;
    uint64_t cost_max;
};
enum wire_exm { WIRE_EXM_MERGE, WIRE_EXM_LIST, WIRE_EXM_TIMELINE }; /* travels */
struct wire_exemplars {
    enum wire_exm what;
    unsigned kinds;
    const struct str *ids; /* packed, ascending; none: any */
    size_t ids_len;
    const struct str *call_site;
    size_t call_site_len;
    uint64_t bytes_max;
    uint32_t limit;
    struct plan_grid grid; /* timelines; then the range of the query is not used */
    /* Lists without ids; with a grid of points: one for each cell. proto/exemplar.proto */
    bool leaves, whole_leaves, summary;
    const struct str *group_by;
    size_t group_by_len;
    uint32_t buckets;
    uint64_t least, most;
};
enum wire_labels_kind { WIRE_NAMES, WIRE_VALUES, WIRE_SETS, WIRE_TYPES }; /* travels */
struct wire_labels {
    enum wire_labels_kind kind;
    struct str name;         /* WIRE_VALUES */
    const struct str *names; /* WIRE_SETS; none: all */
    size_t names_len;
    uint32_t limit;
};

/* ERR_LIMIT if *out would pass its max. */
NODISCARD int wire_put_merge(const struct wire_query *q, const struct wire_merge *m,
                             const struct wire_to *to, struct arena *a, struct buf *out,
                             struct err *e);
NODISCARD int wire_put_timeline(const struct wire_query *q, const struct wire_timeline *tl,
                                const struct wire_to *to, struct arena *a, struct buf *out,
                                struct err *e);
NODISCARD int wire_put_functions(const struct wire_query *q, const struct wire_functions *f,
                                 const struct wire_to *to, struct arena *a, struct buf *out,
                                 struct err *e);
NODISCARD int wire_put_labels(const struct wire_query *q, const struct wire_labels *l,
                              const struct wire_to *to, struct arena *a, struct buf *out,
                              struct err *e);

/* What a merge of this query would read; without a profile type: of all types. */
NODISCARD int wire_put_estimate(const struct wire_query *q, bool detail, const struct wire_to *to,
                                struct arena *a, struct buf *out, struct err *e);

/* The reply to a WIRE_EXM_MERGE is a wire_merged, to a WIRE_EXM_TIMELINE a wire_timelines. */
NODISCARD int wire_put_exemplars(const struct wire_query *q, const struct wire_exemplars *x,
                                 const struct wire_to *to, struct arena *a, struct buf *out,
                                 struct err *e);

struct wire_merged {
    struct calltree_part part; /* checked */
    uint64_t total;
    int64_t start_ms, end_ms;
    uint64_t series, rows, saturated;
    bool gauge;
    const uint32_t *leaves; /* gauges: ascending */
    size_t leaves_len;
};
struct wire_points {
    struct labels labels;  /* sorted */
    const uint32_t *point; /* ascending, below the grid's points */
    const uint64_t *value, *writes;
    const uint32_t *leaves; /* NULL unless gauge */
    struct leaf_part items; /* which ones; checked; without items: not said */
    size_t len;
};
struct wire_timelines {
    struct wire_points *series;
    size_t len;
    bool gauge;
    int64_t start_ms, end_ms; /* real bounds; 0, 0: not said */
};
struct wire_function {
    struct str name;
    const uint32_t *point; /* ascending, below the grid's points */
    const uint64_t *self, *total;
    size_t len;
};
struct wire_function_list {
    struct wire_function *at;
    size_t len;
    const uint64_t *all;    /* by point */
    const uint32_t *leaves; /* by point; NULL unless gauge */
    struct leaf_part items; /* as of wire_points */
    bool gauge;
    int64_t start_ms, end_ms;
    uint64_t saturated;
};
struct wire_label_lists {
    struct str *values;
    size_t values_len;
    struct labels *sets; /* each sorted */
    size_t sets_len;
    bool truncated;
};
struct wire_estimate { /* common/store/query/estimate.h */
    uint64_t services, units, nodes, rows, bytes;
    bool sampled, more;
    uint64_t series, writes, samples, index_bytes, dictionary_bytes;
    uint32_t shards;
};
struct wire_exemplar {
    uint32_t kind;
    struct str id; /* packed, valid */
    int64_t start_ms;
    uint32_t duration_ms;
    uint64_t total;
    uint32_t series;
    uint64_t count, sum; /* of its cell, or 1 and total */
};
struct wire_exm_list {
    struct wire_exemplar *items; /* by start */
    size_t len;
    struct labels *series; /* each sorted */
    size_t series_len;
    bool truncated, gauge;
    uint64_t count, least, most; /* of all; 0: none, or not said */
    int64_t leaves_from_ms;      /* leaves before are not known; 0: all of the range */
};
/* ERR_CORRUPT what does not decode or check, ERR_LIMIT what does not fit the arena. */
NODISCARD int wire_get_merged(struct str in, struct arena *a, struct wire_merged *ret,
                              struct err *e);
NODISCARD int wire_get_timelines(struct str in, uint32_t points, struct arena *a,
                                 struct wire_timelines *ret, struct err *e);
NODISCARD int wire_get_functions(struct str in, uint32_t points, struct arena *a,
                                 struct wire_function_list *ret, struct err *e);
NODISCARD int wire_get_labels(struct str in, struct arena *a, struct wire_label_lists *ret,
                              struct err *e);
NODISCARD int wire_get_exemplars(struct str in, struct arena *a, struct wire_exm_list *ret,
                                 struct err *e);
NODISCARD int wire_get_estimate(struct str in, struct arena *a, struct wire_estimate *ret,
                                struct err *e);
/* Arena bytes that decoding a reply of n bytes takes at most. */
size_t wire_cost_merged(size_t n);
size_t wire_cost_lists(size_t n); /* timelines, functions, labels, exemplars */

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * timeline.h: the ingesters' points united, as series by group.
 *
 * Thread: one at a time. Labels point into the replies, which must outlive the timeline; so must
 * points and leaves until timeline_finish.
 */
#ifndef QUERIER_MERGE_TIMELINE_H
#define QUERIER_MERGE_TIMELINE_H

#include "common/base/json.h"
#include "querier/ask/wire.h"

struct timeline_point {
    uint32_t k; /* of the grid */
    uint32_t leaves;
    uint64_t value, writes;
};
struct timeline_group {
    struct labels labels;
    struct str key;                    /* canonical bytes of the labels; in the arena */
    VEC(struct timeline_point) points; /* after timeline_finish: ascending, each k once */
    VEC(struct leaf_part) parts;       /* gauges: of replies that say which leaves; borrowed */
    double sum;                        /* of the shown values */
};
struct timeline {
    VEC(struct timeline_group) groups;
    struct map_str *by_key; /* owned; key -> index + 1 */
    struct arena *arena;    /* borrowed */
    bool gauge;
    int64_t start_ms, end_ms; /* real bounds; 0, 0: not said */
};

void timeline_init(struct timeline *t, struct arena *a);
void timeline_deinit(struct timeline *t);
/* Memory that adding a reply takes at most. */
size_t timeline_cost(const struct wire_timelines *w);
/* ERR_LIMIT: the arena is full. */
NODISCARD int timeline_add(struct timeline *t, const struct wire_timelines *w, struct err *e);
/* Unites equal points and puts groups in order: largest sum of values first, then by labels. */
void timeline_finish(struct timeline *t, bool average);
/* What a point shows: the sum; the mean over its leaves for a gauge; with `average` the mean over
 * the profiles in it. */
double timeline_value(const struct timeline *t, const struct timeline_point *p, bool average);

/* {"startTime":s,"samples":[..],"durationDelta":s,"watermarks":null}, zeros filled in. g NULL: all
 * zeros. */
void timeline_json(const struct timeline *t, const struct timeline_group *g,
                   const struct plan_timeline *plan, bool average, struct json *j);

#endif

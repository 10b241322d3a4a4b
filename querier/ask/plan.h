/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.h: from what a request asks to what ingesters are asked. Pure: no clock, no network.
 */
#ifndef QUERIER_ASK_PLAN_H
#define QUERIER_ASK_PLAN_H

#include "common/base/arena.h"
#include "common/base/err.h"
#include "common/model/selector.h"

/* [start_ms, end_ms); */
struct plan_range {
    int64_t start_ms, end_ms;
    bool empty; /* nothing can lie in it: no ingester needs to be asked */
};
/* Clamps to the times that can be stored and snaps outward to leaves. start <= end. */
struct plan_range plan_range(int64_t start_ms, int64_t end_ms);

/* The ingesters that hold shards of the cluster, each with its shards. */
struct plan_target {
    size_t ingester; /* a target of common/role/route/route.h */
    const uint32_t *shards;
    size_t shards_len;
};
struct plan_targets {
    struct plan_target *ptr;
    size_t len;
};
/* Shard i lives on ingester i mod n; an ingester without a shard is no target. ERR_LIMIT: arena. */
NODISCARD int plan_targets(uint64_t shards, size_t ingesters, struct arena *a,
                           struct plan_targets *ret, struct err *e);
/* Shards that move: each is a target of its own. */
NODISCARD int plan_targets_each(uint64_t shards, struct arena *a, struct plan_targets *ret,
                                struct err *e);
/* Some shards to be asked. */
struct plan_some {
    const uint32_t *shards; /* borrowed; if they move, as long as the targets are used */
    size_t n;               /* at least 1, each shard once */
    size_t ingesters;       /* at least 1 */
    bool moves;             /* shards move: each is a target of its own */
};
/* The targets that hold these shards. ERR_LIMIT: arena. */
NODISCARD int plan_targets_some(const struct plan_some *some, struct arena *a,
                                struct plan_targets *ret, struct err *e);
/* If the selectors name one service by service_name="x", true and that. */
bool plan_service(const struct selector *selectors, size_t n, struct str *ret);

/* Points in time at origin + k * step, k = 0 .. points - 1; point k sums (T(k-1), T(k)]. */
struct plan_grid {
    int64_t origin_ms, step_ms;
    uint32_t points;
};
/* SelectSeries: points at start, start + step, .. up to end. ERR_INPUT: step under 1 ms or no
 * number; ERR_LIMIT: over points_max. */
NODISCARD int plan_series_grid(int64_t start_ms, int64_t end_ms, double step_s, uint64_t points_max,
                               struct plan_grid *ret, struct err *e);
/* What is asked for it: with steps of a minute and more, points are [T(k-1), T(k)), which can be
 * the edges of stored nodes; below, slots in (T(k-1), T(k)] as they stand. */
struct plan_grid plan_grid_asked(struct plan_grid g);

/* Timeline of /render: half-open buckets [start + i * step, start + (i + 1) * step), start snapped
 * down to the step, the last one holds the last millisecond before `until`. */
struct plan_timeline {
    int64_t start_s, step_s;
    uint32_t samples;
    struct plan_grid grid; /* the same buckets as points */
};
int64_t plan_timeline_step_s(int64_t range_ms);
struct plan_timeline plan_timeline(int64_t from_ms, int64_t until_ms);

#endif

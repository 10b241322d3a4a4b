/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.c: ranges, grids, targets.
 *
 * There is no limit on a range: what it costs grows with its logarithm (a tree of sums) and with
 * the size of the answer, and both are bounded elsewhere. Flame graphs snap outward to leaves,
 * since vectors cannot be cut finer; timelines have their own, finer slots.
 *
 * The store sums half-open intervals that are closed on the right: (T(k-1), T(k)]. A timeline of
 * /render has buckets closed on the left. Slots start at whole milliseconds, so a grid that stands
 * one millisecond before the buckets' right edges says the same.
 */
#include "querier/ask/plan.h"

#include <math.h>

#include "common/model/slot.h"

#define TIME_MIN_MS SLOT_EPOCH_MS
#define TIME_MAX_MS (SLOT_EPOCH_MS + (int64_t)(UINT32_MAX - 3) * SLOT_MS)

static int64_t clamp_ms(int64_t ms)
{
    return ms < TIME_MIN_MS ? TIME_MIN_MS : ms > TIME_MAX_MS ? TIME_MAX_MS : ms;
}

struct plan_range plan_range(int64_t start_ms, int64_t end_ms)
{
    struct plan_range r = { clamp_ms(start_ms), clamp_ms(end_ms), false };

    CHECK(start_ms <= end_ms);
    r.empty = r.start_ms == r.end_ms;
    int64_t into = (r.start_ms - SLOT_EPOCH_MS) % LEAF_MS;
    r.start_ms -= into;
    into = (r.end_ms - SLOT_EPOCH_MS) % LEAF_MS;
    r.end_ms += into ? LEAF_MS - into : 0;
    return r;
}

NODISCARD int plan_targets(uint64_t shards, size_t ingesters, struct arena *a,
                           struct plan_targets *ret, struct err *e)
{
    size_t n = MIN(shards, ingesters);
    struct plan_target *targets = ARENA_ARRAY(a, struct plan_target, n);
    uint32_t *numbers = ARENA_ARRAY(a, uint32_t, shards);

    CHECK(n > 0 && shards <= UINT32_MAX);
    if (!targets || !numbers)
        return err_set(e, ERR_LIMIT, "no memory in the query's arena for %zu targets", n);
    for (size_t i = 0; i < n; i++) {
        targets[i] = (struct plan_target){ .ingester = i, .shards = numbers };
        for (uint64_t s = i; s < shards; s += ingesters)
            numbers[targets[i].shards_len++] = (uint32_t)s;
        numbers += targets[i].shards_len;
    }
    *ret = (struct plan_targets){ targets, n };
    return 0;
}

NODISCARD int plan_targets_each(uint64_t shards, struct arena *a, struct plan_targets *ret,
                                struct err *e)
{
    if (shards == 0)
        return err_set(e, ERR_UNAVAILABLE, "the map of the cluster is not known yet");
    return plan_targets(shards, (size_t)shards, a, ret, e);
}

NODISCARD int plan_targets_some(const struct plan_some *some, struct arena *a,
                                struct plan_targets *ret, struct err *e)
{
    const uint32_t *shards = some->shards;
    const size_t n = some->n, ingesters = some->ingesters;
    const bool moves = some->moves;
    struct plan_target *targets = ARENA_ARRAY(a, struct plan_target, n);
    uint32_t *numbers = moves ? NULL : ARENA_ARRAY(a, uint32_t, n);
    size_t len = 0, put = 0;

    CHECK(n > 0 && ingesters > 0);
    if (!targets || (!moves && !numbers))
        return err_set(e, ERR_LIMIT, "no memory in the query's arena for %zu targets", n);
    for (size_t i = 0; moves && i < n; i++)
        targets[i] = (struct plan_target){ shards[i], &shards[i], 1 };
    for (size_t i = 0; !moves && i < n; i++) {
        size_t ingester = shards[i] % ingesters;
        bool first = true;

        for (size_t k = 0; k < i && first; k++)
            first = shards[k] % ingesters != ingester;
        if (!first)
            continue;
        targets[len] = (struct plan_target){ .ingester = ingester, .shards = numbers + put };
        for (size_t k = i; k < n; k++)
            if (shards[k] % ingesters == ingester) {
                numbers[put++] = shards[k];
                targets[len].shards_len++;
            }
        len++;
    }
    *ret = (struct plan_targets){ targets, moves ? n : len };
    return 0;
}

bool plan_service(const struct selector *selectors, size_t n, struct str *ret)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < selectors[i].len; k++) {
            const struct matcher *m = &selectors[i].matchers[k];
            if (m->op != MATCH_EQ || !m->value.len || !str_eqc(m->name, "service_name"))
                continue;
            *ret = m->value;
            return true;
        }
    return false;
}

NODISCARD int plan_series_grid(int64_t start_ms, int64_t end_ms, double step_s, uint64_t points_max,
                               struct plan_grid *ret, struct err *e)
{
    if (!(step_s >= 0.001) || step_s > 1e12)
        return err_set(e, ERR_INPUT, "step is %g s: it must be at least 0.001", step_s);
    int64_t step_ms = llround(step_s * 1000);
    uint64_t range = (uint64_t)end_ms - (uint64_t)start_ms;

    CHECK(start_ms <= end_ms && step_ms > 0);
    if (range / (uint64_t)step_ms >= points_max)
        return err_set(e, ERR_LIMIT,
                       "%" PRIu64 " points between start and end, the limit is %" PRIu64
                       ": use a step of at least %" PRIu64 " s",
                       range / (uint64_t)step_ms + 1, points_max, range / points_max / 1000 + 1);
    *ret = (struct plan_grid){ start_ms, step_ms, (uint32_t)(range / (uint64_t)step_ms) + 1 };
    return 0;
}

struct plan_grid plan_grid_asked(struct plan_grid g)
{
    if (g.step_ms >= 60000)
        g.origin_ms--; /* slots start at whole milliseconds */
    return g;
}

/* The steps dashboards use: below `under` ms, the interval is `step_s`. */
int64_t plan_timeline_step_s(int64_t range_ms)
{
    static const struct {
        int64_t under, step_s;
    } steps[] = {
        { 17500, 15 },          { 25000, 20 },           { 45000, 30 },       { 90000, 60 },
        { 210000, 120 },        { 450000, 300 },         { 750000, 600 },     { 1050000, 900 },
        { 1500000, 1200 },      { 2700000, 1800 },       { 5400000, 3600 },   { 9000000, 7200 },
        { 16200000, 10800 },    { 32400000, 21600 },     { 86400000, 43200 }, { 604800000, 86400 },
        { 1814400000, 604800 }, { 3628800000, 2592000 },
    };
    int64_t ideal = (range_ms + 750) / 1500;

    for (size_t i = 0; i < ARRAY_LEN(steps); i++)
        if (ideal < steps[i].under)
            return steps[i].step_s;
    return 31536000;
}

static int64_t floor_to(int64_t v, int64_t step)
{
    int64_t into = v % step;
    return v - (into < 0 ? into + step : into);
}

struct plan_timeline plan_timeline(int64_t from_ms, int64_t until_ms)
{
    struct plan_timeline t = { .step_s = plan_timeline_step_s(until_ms - from_ms) };
    int64_t step_ms = t.step_s * 1000;
    int64_t start_ms = floor_to(from_ms, step_ms);
    int64_t last = MAX(until_ms - 1, from_ms); /* an empty range is a point */
    int64_t samples = (floor_to(last, step_ms) - start_ms) / step_ms + 1;

    CHECK(from_ms <= until_ms && samples > 0 && samples <= UINT32_MAX);
    t.start_s = start_ms / 1000;
    t.samples = (uint32_t)samples;
    t.grid = (struct plan_grid){ start_ms + step_ms - 1, step_ms, t.samples };
    return t;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * exm_grid: where an exemplar stands in time and among values. Pure.
 */
#include "common/store/exemplar/exm.h"

bool store_exm_point(const struct store_exm_grid *g, int64_t start_ms, uint32_t *ret_k)
{
    int64_t at = g->leaves ? slot_to_ms(slot_leaf(slot_of_ms(start_ms))) : start_ms;
    int64_t behind = at - g->origin_ms;
    int64_t k = behind > 0 ? (behind + g->step_ms - 1) / g->step_ms : 0;

    *ret_k = (uint32_t)k;
    return behind > -g->step_ms && k < g->points;
}

uint32_t store_exm_bucket(uint64_t least, uint64_t most, uint32_t buckets, uint64_t value)
{
    double step = most > least ? (double)(most - least) / buckets : 0;
    double at = step > 0 && value > least ? (double)(value - least) / step : 0;

    return at >= buckets ? buckets - 1 : (uint32_t)at;
}

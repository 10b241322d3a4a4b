/* SPDX-License-Identifier: Apache-2.0
 *
 * tier_metrics.h: embertree_cold_*, of the cold tier of one ingester.
 */
#ifndef INGESTER_TIER_TIER_METRICS_H
#define INGESTER_TIER_TIER_METRICS_H

#include "common/obs/metrics.h"

struct tier_metrics { /* borrowed from the metrics */
    struct metric_cell *rows, *bytes, *units, *errors, *backups, *deleted, *age, *hits, *misses,
        *cache_bytes, *failing, *not_ours;
};
void tier_metrics_init(struct tier_metrics *m, struct metrics *all);

#endif

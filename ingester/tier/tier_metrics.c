/* SPDX-License-Identifier: Apache-2.0 */
#include "ingester/tier/tier_metrics.h"

static struct metric_cell *cell(struct metrics *all, enum metric_kind kind, const char *name,
                                const char *help)
{
    return metric_at(metric_new(all, kind, name, help, NULL), NULL, 0);
}

void tier_metrics_init(struct tier_metrics *m, struct metrics *all)
{
    m->units = cell(all, METRIC_COUNTER, "embertree_cold_buckets_total", "Buckets moved");
    m->rows = cell(all, METRIC_COUNTER, "embertree_cold_rows_total", "Rows moved");
    m->bytes =
        cell(all, METRIC_COUNTER, "embertree_cold_bytes_total", "Bytes of the parts they are");
    m->errors = cell(all, METRIC_COUNTER, "embertree_cold_errors_total",
                     "Moves and backups that failed and are tried again");
    m->backups = cell(all, METRIC_COUNTER, "embertree_cold_backups_total", "Backups written");
    m->deleted = cell(all, METRIC_COUNTER, "embertree_cold_deleted_total",
                      "Objects deleted that nothing named");
    m->age = cell(all, METRIC_GAUGE, "embertree_cold_backup_age_seconds",
                  "Age of the newest backup of the shard where it is the oldest");
    m->failing =
        cell(all, METRIC_GAUGE, "embertree_cold_failing",
             "1: the object store cannot be used, or is another database's; /ring says why");
    m->not_ours = cell(all, METRIC_GAUGE, "embertree_cold_refused",
                       "1: the objects at cold.url are not those of this ingester's shards, so "
                       "nothing is written there; /ring says why");
    m->hits = cell(all, METRIC_GAUGE, "embertree_cold_cache_hits", "Pieces read from the cache");
    m->misses =
        cell(all, METRIC_GAUGE, "embertree_cold_cache_misses", "Pieces read from the object store");
    m->cache_bytes = cell(all, METRIC_GAUGE, "embertree_cold_cache_bytes", "Bytes of the cache");
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * metrics.h: what the ingester counts: embertree_ingester_*.
 */
#ifndef INGESTER_BASE_METRICS_H
#define INGESTER_BASE_METRICS_H

#include "common/base/err.h"
#include "common/obs/metrics.h"

#define INGESTER_COUNTERS(X)                                                               \
    X(writes, "writes_total", "Write requests acked after their fsync")                    \
    X(write_bytes, "write_bytes_total", "Bytes of write requests taken in")                \
    X(series, "series_total", "Series of write requests stored")                           \
    X(duplicates, "duplicates_total", "Series of write requests whose write id was known") \
    X(overflow, "dictionary_overflow_total",                                               \
      "Stacks that went to [overflow]: a service or tenant had its new nodes of the day")  \
    X(exemplars, "exemplars_total", "Exemplars stored")                                    \
    X(exemplars_left_out, "exemplars_left_out_total",                                      \
      "Exemplars over a bound or too old; their samples are in their series")              \
    X(reads, "reads_total", "Queries answered")                                            \
    X(read_rows, "read_rows_total", "Stored rows looked at by queries")                    \
    X(build_jobs, "build_jobs_total", "Parts of coarse nodes given to compactors")         \
    X(build_rows, "build_rows_total", "Sums of compactors that were proven and written")   \
    X(build_bytes, "build_bytes_total", "Bytes of those sums")                             \
    X(reads_far, "reads_far_waited_total",                                                 \
      "Queries that waited until fewer others read from the cold tier")                    \
    X(build_fenced, "build_fenced_total",                                                  \
      "Requests of compactors refused: another one has claimed the shard since")

#define INGESTER_GAUGES(X)                                                             \
    X(writes_pending, "writes_pending", "Write requests that wait for their fsync")    \
    X(write_pending_bytes, "writes_pending_bytes",                                     \
      "Bytes of those requests and of their decoding")                                 \
    X(reads_pending, "reads_pending", "Queries running or waiting")                    \
    X(disk_free, "disk_free_bytes", "Free bytes of the volume that holds the data")    \
    X(disk_reserve, "disk_reserve_bytes", "Free bytes below which writes are refused") \
    X(disk_growth, "disk_growth_bytes_per_day", "Growth of the files of all shards")   \
    X(disk_settles, "disk_settles_bytes",                                              \
      "Where their size settles as retention takes what is too old; 0: nowhere")       \
    X(disk_days_left, "disk_days_left",                                                \
      "Days until the disk reserve is reached; 3650: not in ten years")                \
    X(read_only, "read_only", "1 while writes are refused for want of disk, or after a disk error")

/* One cell per shard of this process, label `shard`. */
#define SHARD_COUNTERS(X)                                                                         \
    X(groups, "commit_groups_total", "Groups of writes committed, one fsync each")                \
    X(commit_errors, "commit_errors_total", "Groups the disk refused")                            \
    X(expired, "writes_expired_total", "Writes whose deadline passed before they were looked at") \
    X(seal_steps, "seal_steps_total", "Steps of sealing")                                         \
    X(seal_errors, "seal_errors_total", "Steps of sealing that failed")                           \
    X(sealed_entries, "seal_entries_total", "Entries of the seal log applied since the start")    \
    X(sealed_rows, "sealed_rows_total", "Raw rows folded into leaves since the start")            \
    X(floors_moved, "retention_floors_moved_total", "Steps of retention that let something go")   \
    X(held_back, "retention_held_back_total", "Times it waited for a coarser level to be built")  \
    X(ranges_deleted, "retention_ranges_deleted_total", "Buckets of a service deleted whole")     \
    X(rows_purged, "retention_series_purged_total", "Series that lost part of a bucket")          \
    X(epochs_dropped, "retention_epochs_dropped_total", "Dictionaries that nothing named")        \
    X(file_drops, "retention_file_drops_total", "Runs of buckets dropped with their files")

#define SHARD_GAUGES(X)                                                                      \
    X(raw_rows, "raw_rows", "Raw rows not sealed yet")                                       \
    X(stored_series, "stored_series", "Series known")                                        \
    X(dict_nodes, "dictionary_nodes", "Stack nodes in dictionaries")                         \
    X(dict_bytes, "dictionary_bytes", "Memory of dictionaries")                              \
    X(applied, "seal_log_entries", "Length of the seal log")                                 \
    X(clock_paused, "clock_paused", "1 while sealing waits because the wall clock jumped")   \
    X(clock_held, "clock_held",                                                              \
      "1 while nothing is deleted for its age because the wall clock is far off")            \
    X(clock_ahead, "clock_ahead_seconds",                                                    \
      "While held, how far the wall clock is ahead of what is stored; below 0: behind")      \
    X(seal_lag, "seal_lag_seconds", "Time since sealing last caught up")                     \
    X(nodes_built, "nodes_built", "Nodes of 10 minutes and more built since the start")      \
    X(marks, "nodes_marked", "Nodes of 10 minutes and more that are not built")              \
    X(marks_due, "nodes_due", "Those of them that should be built by now")                   \
    X(build_lag, "build_lag_seconds", "How long the oldest node of 10 minutes has been due") \
    X(build_lag_coarse, "build_lag_coarse_seconds",                                          \
      "How long the oldest node of an hour or more has been due")                            \
    X(memtable_bytes, "memtable_bytes", "Memory of RocksDB's memtables")                     \
    X(cache_bytes, "block_cache_bytes", "Memory of RocksDB's block cache")                   \
    X(file_bytes, "file_bytes", "Bytes in RocksDB's files")

#define SHARD_HISTOGRAMS(X)                                                      \
    X(commit_seconds, "commit_seconds", "Write and fsync of one group", SECONDS) \
    X(seal_seconds, "seal_seconds", "One step of sealing", SECONDS)              \
    X(group_writes, "group_writes", "Writes in one group", COUNTS)               \
    X(group_bytes, "group_bytes", "Bytes of one group", BYTES)

#define METRIC_CELL(field, ...) struct metric_cell *field;

struct ingester_metrics {
    INGESTER_COUNTERS(METRIC_CELL)
    INGESTER_GAUGES(METRIC_CELL)
    struct metric *refused;      /* label reason */
    struct metric *read_seconds; /* label method */
};
struct shard_metrics {
    SHARD_COUNTERS(METRIC_CELL)
    SHARD_GAUGES(METRIC_CELL)
    SHARD_HISTOGRAMS(METRIC_CELL)
};

void ingester_metrics_init(struct ingester_metrics *im, struct metrics *m);
void shard_metrics_init(struct shard_metrics *sm, struct metrics *m, uint32_t shard);
/* The shard is served here no more: its gauges read 0. */
void shard_metrics_gone(const struct shard_metrics *sm);
/* Counts one refused request under the name of the error. */
void ingester_refused(const struct ingester_metrics *im, int code);

#endif

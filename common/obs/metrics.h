/* SPDX-License-Identifier: Apache-2.0
 *
 * metrics.h: counters, gauges and histograms, rendered as Prometheus text (exposition format
 * 0.0.4). A metric is registered once with name, help and label names; cells are found by label
 * values (bounded: past METRIC_CELLS_MAX the cell "other" is returned). Hot paths keep the cell.
 * Names: embertree_<role>_<thing>_<unit>[_total]. Thread: any.
 *
 * Format: proto/WIRE.md, "Metrics exposition".
 */
#ifndef COMMON_OBS_METRICS_H
#define COMMON_OBS_METRICS_H

#include "common/base/buf.h"

#define METRIC_CELLS_MAX 512

enum metric_kind { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM };
struct metrics; /* a registry: one per process */
struct metric;
struct metric_cell;

struct metrics *metrics_new(void);
void metrics_free(struct metrics *m);
/* Registers a counter or a gauge; the same name again returns the first. `labels`: comma-separated
 * names or NULL. */
struct metric *metric_new(struct metrics *m, enum metric_kind kind, const char *name,
                          const char *help, const char *labels);
/* The same for a histogram. `buckets`: ascending upper bounds, values in the metric's unit. */
struct metric *metric_new_histogram(struct metrics *m, const char *name, const char *help,
                                    const char *labels, const double *buckets, size_t buckets_len);
/* Values in the order of the label names; none for a metric without labels. */
struct metric_cell *metric_at(struct metric *m, const struct str *values, size_t n);
/* Frees the cell with these values, so that there is a place for another. Nothing happens if there
 * is no such cell, or if it is "other". Other code must not keep a pointer to the cell. */
void metric_forget(struct metric *m, const struct str *values, size_t n);
void metric_add(struct metric_cell *c, uint64_t n);   /* counters */
void metric_set(struct metric_cell *c, int64_t v);    /* gauges */
void metric_move(struct metric_cell *c, int64_t by);  /* gauges */
void metric_observe(struct metric_cell *c, double v); /* histograms */
uint64_t metric_value(const struct metric_cell *c);   /* counters and gauges, for tests */
/* Called before each rendering, to set gauges that are derived. */
void metrics_on_render(struct metrics *m, void (*fn)(void *cookie), void *cookie);
void metrics_render(struct metrics *m, struct buf *out);

#endif

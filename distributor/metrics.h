/* SPDX-License-Identifier: Apache-2.0
 *
 * metrics.h: what the distributor counts: embertree_distributor_*.
 */
#ifndef DISTRIBUTOR_METRICS_H
#define DISTRIBUTOR_METRICS_H

#include "common/obs/metrics.h"
#include "distributor/formats/push.h"

#define DISTRIBUTOR_COUNTERS(X)                                                             \
    X(pushes, "pushes_total", "Pushes answered with 200")                                   \
    X(empty, "empty_pushes_total", "Pushes answered with 200 that had nothing to store")    \
    X(series, "series_total", "Series of stored pushes")                                    \
    X(duplicates, "duplicates_total", "Series of stored pushes whose write id was known")   \
    X(samples, "samples_total", "Samples of stored pushes")                                 \
    X(body_bytes, "body_bytes_total", "Bytes of the bodies of stored pushes, as they came") \
    X(sent_bytes, "sent_bytes_total", "Bytes of write requests sent to ingesters")          \
    X(told, "told_requests_total", "Write requests that name their stacks by number")       \
    X(told_refused, "told_refused_total",                                                   \
      "Of those, sent again at once: the ingester did not know all numbers")                \
    X(retries, "retries_total", "Write requests sent again, with the same write ids")

#define DISTRIBUTOR_GAUGES(X)                                      \
    X(working, "pushes_working", "Pushes being decoded or stored") \
    X(working_bytes, "pushes_working_bytes", "Memory set aside for those pushes")

#define DISTRIBUTOR_CELL(field, ...) struct metric_cell *field;

struct distributor_metrics {
    DISTRIBUTOR_COUNTERS(DISTRIBUTOR_CELL)
    DISTRIBUTOR_GAUGES(DISTRIBUTOR_CELL)
    struct metric_cell *decode_seconds, *ack_seconds;
    struct metric_cell *drops[PUSH_DROPS];
    struct metric *requests; /* label format */
    struct metric *refused;  /* label reason */
};
void distributor_metrics_init(struct distributor_metrics *dm, struct metrics *m);
/* A push answered with an error. */
void distributor_refused(const struct distributor_metrics *dm, int code);

#endif

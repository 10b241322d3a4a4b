/* SPDX-License-Identifier: Apache-2.0
 *
 * metrics.h: what the distributor counts: embertree_distributor_*.
 */
#ifndef DISTRIBUTOR_BASE_METRICS_H
#define DISTRIBUTOR_BASE_METRICS_H

#include "common/base/err.h"
#include "common/obs/metrics.h"
#include "common/sys/clock.h"
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

#define DISTRIBUTOR_GAUGES(X)                                                     \
    X(working, "pushes_working", "Pushes being decoded or stored")                \
    X(working_bytes, "pushes_working_bytes", "Memory set aside for those pushes") \
    X(live, "distributors_live",                                                  \
      "Distributors that live, among which limits of tenants are divided")

#define DISTRIBUTOR_CELL(field, ...) struct metric_cell *field;

struct distributor_metrics {
    DISTRIBUTOR_COUNTERS(DISTRIBUTOR_CELL)
    DISTRIBUTOR_GAUGES(DISTRIBUTOR_CELL)
    struct metric_cell *decode_seconds, *ack_seconds;
    struct metric_cell *drops[PUSH_DROPS];
    struct metric *requests; /* label format */
    struct metric *refused;  /* label reason */
    const struct clock *clock;
    /* What the log said last of refused pushes, and how many were refused since; of those that the
     * sender has to mend, and of those that this server would have taken at another time. */
    struct {
        uint64_t told_ms, since;
    } refusals[2];
};
/* clock: of the log's lines. */
void distributor_metrics_init(struct distributor_metrics *dm, struct metrics *m,
                              const struct clock *clock);
/* A push was answered with an error: counts it, and logs it once a minute. peer: the sender or
 * NULL. Thread: the loop's. */
void distributor_refused(struct distributor_metrics *dm, const struct err *e, const char *peer);

#endif

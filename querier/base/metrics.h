/* SPDX-License-Identifier: Apache-2.0
 *
 * metrics.h: what the querier counts. One row gives field, name and help.
 */
#ifndef QUERIER_BASE_METRICS_H
#define QUERIER_BASE_METRICS_H

#include "common/obs/metrics.h"

#define QUERIER_COUNTERS(X)                                                          \
    X(partial, "partial_answers_total", "Answers that lack an ingester, and say so") \
    X(reply_bytes, "ingester_reply_bytes_total", "Bytes of the ingesters' replies")  \
    X(gone, "gone_total", "Queries whose client went away")                          \
    X(again, "again_total", "Queries begun again, since the map had changed")
#define QUERIER_GAUGES(X)                                           \
    X(running, "queries", "Queries being worked on")                \
    X(waiting, "queries_waiting", "Queries waiting for their turn") \
    X(bytes, "bytes", "Memory that running queries have reserved")  \
    X(bytes_limit, "bytes_max", "Memory that queries may reserve")

struct querier_metrics {
#define CELL(field, name, help) struct metric_cell *field;
    QUERIER_COUNTERS(CELL)
    QUERIER_GAUGES(CELL)
#undef CELL
    struct metric *queries;         /* route, code */
    struct metric *seconds;         /* route */
    struct metric *ingester_errors; /* reason */
};
void querier_metrics_init(struct querier_metrics *qm, struct metrics *m);
/* An ended query; code 0 is success. */
void querier_metrics_ended(const struct querier_metrics *qm, const char *route, int code,
                           double seconds);
void querier_metrics_ingester_error(const struct querier_metrics *qm, int code);

#endif

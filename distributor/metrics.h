/* SPDX-License-Identifier: Apache-2.0
 *
 * metrics.h: what the distributor counts: embertree_distributor_*.
 */
#ifndef DISTRIBUTOR_METRICS_H
#define DISTRIBUTOR_METRICS_H

#include "common/obs/metrics.h"
#include "distributor/formats/push.h"

#define DISTRIBUTOR_COUNTERS(X)                                                                  \
    X(profiles, "profiles_total", "Pushes stored, answered with 200")                            \
    X(empty, "empty_pushes_total", "Pushes without any value, answered with 200")                \
    X(series, "series_total", "Series of stored pushes")                                         \
    X(duplicates, "duplicate_series_total", "Series that were stored before, by their write id") \
    X(samples, "samples_total", "Samples, or lines of text, of decoded pushes")                  \
    X(body_bytes, "body_bytes_total", "Bytes of bodies taken in, as they came")                  \
    X(message_bytes, "message_bytes_total", "Bytes of write requests sent to ingesters")         \
    X(retries, "retries_total", "Write requests sent again")

#define DISTRIBUTOR_GAUGES(X)                                                    \
    X(in_flight, "in_flight", "Pushes in work")                                  \
    X(in_flight_bytes, "in_flight_bytes", "Memory set aside for pushes in work") \
    X(tenants, "tenants", "Tenants seen lately")

#define DISTRIBUTOR_HISTOGRAMS(X)                                                  \
    X(decode_seconds, "decode_seconds", "Body to write request, on a pool thread") \
    X(ack_seconds, "ack_seconds", "Write request sent until it is stored")         \
    X(push_seconds, "push_seconds", "Request complete until it is answered")

#define DISTRIBUTOR_CELL(field, ...) struct metric_cell *field;

struct distributor_metrics {
    DISTRIBUTOR_COUNTERS(DISTRIBUTOR_CELL)
    DISTRIBUTOR_GAUGES(DISTRIBUTOR_CELL)
    DISTRIBUTOR_HISTOGRAMS(DISTRIBUTOR_CELL)
    struct metric *requests; /* label format */
    struct metric *rejects;  /* label reason */
    struct metric *changed;  /* label reason: samples left out of stored pushes, or changed */
};

void distributor_metrics_init(struct distributor_metrics *dm, struct metrics *m);
void distributor_count_request(const struct distributor_metrics *dm, enum format f);
/* Counts one refused push under the name of the error. */
void distributor_count_reject(const struct distributor_metrics *dm, int code);
void distributor_count_drops(const struct distributor_metrics *dm, const struct push *p);

#endif

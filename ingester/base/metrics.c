/* SPDX-License-Identifier: Apache-2.0 */
#include "ingester/base/metrics.h"

#include <stdio.h>

#define NAME(thing) "embertree_ingester_" thing

static const double SECONDS[] = { 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025,
                                  0.05,   0.1,     0.25,   0.5,   1,      2.5,   10 };
static const double COUNTS[] = { 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096 };
static const double BYTES[] = { 1024,    4096,    16384,    65536,   262144,
                                1048576, 4194304, 16777216, 67108864 };

void ingester_metrics_init(struct ingester_metrics *im, struct metrics *m)
{
#define COUNTER(field, name, help) \
    im->field = metric_at(metric_new(m, METRIC_COUNTER, NAME(name), help, NULL), NULL, 0);
#define GAUGE(field, name, help) \
    im->field = metric_at(metric_new(m, METRIC_GAUGE, NAME(name), help, NULL), NULL, 0);
    INGESTER_COUNTERS(COUNTER)
    INGESTER_GAUGES(GAUGE)
#undef COUNTER
#undef GAUGE
    im->refused = metric_new(m, METRIC_COUNTER, NAME("refused_total"),
                             "Requests answered with an error, by its name", "reason");
    im->read_seconds =
        metric_new_histogram(m, NAME("read_seconds"), "Queries, from arrival to answer", "method",
                             SECONDS, ARRAY_LEN(SECONDS));
}

void shard_metrics_init(struct shard_metrics *sm, struct metrics *m, uint32_t shard)
{
    char number[16];
    struct str label;

    (void)snprintf(number, sizeof(number), "%" PRIu32, shard);
    label = str_c(number);
#define COUNTER(field, name, help) \
    sm->field = metric_at(metric_new(m, METRIC_COUNTER, NAME(name), help, "shard"), &label, 1);
#define GAUGE(field, name, help) \
    sm->field = metric_at(metric_new(m, METRIC_GAUGE, NAME(name), help, "shard"), &label, 1);
#define HISTOGRAM(field, name, help, buckets)                                                      \
    sm->field =                                                                                    \
        metric_at(metric_new_histogram(m, NAME(name), help, "shard", buckets, ARRAY_LEN(buckets)), \
                  &label, 1);
    SHARD_COUNTERS(COUNTER)
    SHARD_GAUGES(GAUGE)
    SHARD_HISTOGRAMS(HISTOGRAM)
#undef COUNTER
#undef GAUGE
#undef HISTOGRAM
}

void shard_metrics_gone(const struct shard_metrics *sm)
{
#define GAUGE(field, ...) metric_set(sm->field, 0);
    SHARD_GAUGES(GAUGE)
#undef GAUGE
}

void ingester_refused(const struct ingester_metrics *im, int code)
{
    struct str reason = str_c(err_name(code));

    metric_add(metric_at(im->refused, &reason, 1), 1);
}

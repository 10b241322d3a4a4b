/* SPDX-License-Identifier: Apache-2.0 */
#include "distributor/metrics.h"

#define NAME(thing) "embertree_distributor_" thing

static const double SECONDS[] = { 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025,
                                  0.05,   0.1,     0.25,   0.5,   1,      2.5,   10 };

void distributor_metrics_init(struct distributor_metrics *dm, struct metrics *m)
{
#define COUNTER(field, name, help) \
    dm->field = metric_at(metric_new(m, METRIC_COUNTER, NAME(name), help, NULL, NULL, 0), NULL, 0);
#define GAUGE(field, name, help) \
    dm->field = metric_at(metric_new(m, METRIC_GAUGE, NAME(name), help, NULL, NULL, 0), NULL, 0);
#define HISTOGRAM(field, name, help)                                                          \
    dm->field = metric_at(                                                                    \
        metric_new(m, METRIC_HISTOGRAM, NAME(name), help, NULL, SECONDS, ARRAY_LEN(SECONDS)), \
        NULL, 0);
    DISTRIBUTOR_COUNTERS(COUNTER)
    DISTRIBUTOR_GAUGES(GAUGE)
    DISTRIBUTOR_HISTOGRAMS(HISTOGRAM)
#undef COUNTER
#undef GAUGE
#undef HISTOGRAM
    dm->requests = metric_new(m, METRIC_COUNTER, NAME("requests_total"),
                              "Pushes that reached decoding, by format", "format", NULL, 0);
    dm->rejects = metric_new(m, METRIC_COUNTER, NAME("rejects_total"),
                             "Pushes answered with an error, by its name", "reason", NULL, 0);
    dm->changed = metric_new(m, METRIC_COUNTER, NAME("discarded_samples_total"),
                             "Samples left out of accepted pushes, or changed in them, by reason",
                             "reason", NULL, 0);
}

void distributor_count_request(const struct distributor_metrics *dm, enum format f)
{
    struct str label = str_c(format_name(f));

    metric_add(metric_at(dm->requests, &label, 1), 1);
}

void distributor_count_reject(const struct distributor_metrics *dm, int code)
{
    struct str label = str_c(err_name(code));

    metric_add(metric_at(dm->rejects, &label, 1), 1);
}

void distributor_count_drops(const struct distributor_metrics *dm, const struct push *p)
{
    for (int i = 0; i < PUSH_DROPS; i++) {
        struct str label = str_c(push_drop_name((enum push_drop)i));
        if (p->drops[i])
            metric_add(metric_at(dm->changed, &label, 1), p->drops[i]);
    }
}

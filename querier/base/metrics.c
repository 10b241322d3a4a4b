/* SPDX-License-Identifier: Apache-2.0 */
#include "querier/base/metrics.h"

#include "common/base/err.h"

#define NAME(thing) "embertree_querier_" thing

static const double SECONDS[] = { 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                  0.25,  0.5,    1,     2.5,  5,     10,   30 };

void querier_metrics_init(struct querier_metrics *qm, struct metrics *m)
{
#define COUNTER(field, name, help) \
    qm->field = metric_at(metric_new(m, METRIC_COUNTER, NAME(name), help, NULL), NULL, 0);
#define GAUGE(field, name, help) \
    qm->field = metric_at(metric_new(m, METRIC_GAUGE, NAME(name), help, NULL), NULL, 0);
    QUERIER_COUNTERS(COUNTER)
    QUERIER_GAUGES(GAUGE)
#undef COUNTER
#undef GAUGE
    qm->queries = metric_new(m, METRIC_COUNTER, NAME("queries_total"),
                             "Queries answered, by what was asked and how it ended", "route,code");
    qm->seconds = metric_new_histogram(m, NAME("query_seconds"),
                                       "Queries, from the whole request to the reply", "route",
                                       SECONDS, ARRAY_LEN(SECONDS));
    qm->ingester_errors = metric_new(m, METRIC_COUNTER, NAME("ingester_errors_total"),
                                     "Calls to ingesters that failed, by reason", "reason");
}

void querier_metrics_ended(const struct querier_metrics *qm, const char *route, int code,
                           double seconds)
{
    struct str labels[2] = { str_c(route), code ? str_c(err_name(code)) : STR("ok") };

    metric_add(metric_at(qm->queries, labels, 2), 1);
    metric_observe(metric_at(qm->seconds, labels, 1), seconds);
}

void querier_metrics_ingester_error(const struct querier_metrics *qm, int code)
{
    struct str reason = str_c(err_name(code));

    metric_add(metric_at(qm->ingester_errors, &reason, 1), 1);
}

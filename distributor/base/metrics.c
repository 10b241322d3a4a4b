/* SPDX-License-Identifier: Apache-2.0 */
#include "distributor/base/metrics.h"

#include "common/obs/log.h"

#define TELL_EACH_MS 60000
#define NAME(thing)  "embertree_distributor_" thing

static const double SECONDS[] = { 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005,
                                  0.01,    0.025,  0.05,    0.1,    0.25,  1,      10 };

void distributor_metrics_init(struct distributor_metrics *dm, struct metrics *m,
                              const struct clock *clock)
{
    dm->clock = clock;
#define COUNTER(field, name, help) \
    dm->field = metric_at(metric_new(m, METRIC_COUNTER, NAME(name), help, NULL), NULL, 0);
#define GAUGE(field, name, help) \
    dm->field = metric_at(metric_new(m, METRIC_GAUGE, NAME(name), help, NULL), NULL, 0);
    DISTRIBUTOR_COUNTERS(COUNTER)
    DISTRIBUTOR_GAUGES(GAUGE)
#undef COUNTER
#undef GAUGE
    dm->decode_seconds =
        metric_at(metric_new_histogram(m, NAME("decode_seconds"),
                                       "From the body to the packed request, on the pool", NULL,
                                       SECONDS, ARRAY_LEN(SECONDS)),
                  NULL, 0);
    dm->ack_seconds = metric_at(metric_new_histogram(m, NAME("ack_seconds"),
                                                     "From sending a write request to its ack",
                                                     NULL, SECONDS, ARRAY_LEN(SECONDS)),
                                NULL, 0);
    struct metric *drops =
        metric_new(m, METRIC_COUNTER, NAME("left_out_total"),
                   "Parts of accepted pushes left out or changed, by what it was", "what");
    for (enum push_drop d = 0; d < PUSH_DROPS; d++) {
        struct str what = str_c(push_drop_name(d));
        dm->drops[d] = metric_at(drops, &what, 1);
    }
    dm->requests = metric_new(m, METRIC_COUNTER, NAME("requests_total"),
                              "Pushes that were let in, by format", "format");
    dm->refused = metric_new(m, METRIC_COUNTER, NAME("refused_total"),
                             "Pushes answered with an error, by its name", "reason");
}

void distributor_refused(struct distributor_metrics *dm, const struct err *e, const char *peer)
{
    struct str reason = str_c(err_name(e->code));
    int status = err_http_status(e->code);
    bool ours = status == 429 || status >= 500;
    uint64_t now = clock_mono_ms(dm->clock), *told = &dm->refusals[ours].told_ms,
             *since = &dm->refusals[ours].since;

    metric_add(metric_at(dm->refused, &reason, 1), 1);
    ++*since;
    if (*told && now - *told < TELL_EACH_MS)
        return;
    log_warn(ours ? "pushes are refused for now; their senders should try again"
                  : "pushes are refused that their senders have to mend",
             KV_U64("refused", *since), KV_CSTR("last_of", peer ? peer : "?"), KV_ERR(e));
    *told = MAX(now, UINT64_C(1));
    *since = 0;
}

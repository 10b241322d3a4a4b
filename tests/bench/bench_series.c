/* SPDX-License-Identifier: Apache-2.0
 *
 * P4: a flame graph of a service with 1, 100 and 10,000 pods, without a pod matcher, the minutes
 * included that are not sealed yet. P5: a year at one day a point, 1,000 series.
 *
 * All services run the same 400 stacks, so that the answers have one size: what differs is the
 * number of series behind them.
 */
#include <stdlib.h>

#include "common/model/slot.h"
#include "tests/lib/gen/year_bed.h"

#define DAY     YEAR_DAY_SLOTS
#define MINUTES 24
#define TIMES   401 /* of 0.1 ms each: a neighbour on the machine spoils 15 at once */

static uint32_t number(const char *name, uint32_t otherwise)
{
    uint64_t n;

    return str_u64(str_c(getenv(name)), &n) ? (uint32_t)n : otherwise;
}

/* ---- P4 ---- */

struct p4 {
    uint32_t pods;
    struct year_answer recent, sealed, all;
};

static void bench_pods(struct p4 *r)
{
    struct year_opts o = { .seed = 9,
                           .kind = YEAR_NODE,
                           .pods = r->pods,
                           .stacks = 400,
                           .samples = 200,
                           .no_nights = true,
                           .start = 1995 * DAY };
    uint32_t from = o.start + 12 * 720, to = from + MINUTES * 12;
    struct year_bed_opts bo = { .slot = from, .memory = 2 * GIB };
    struct year *y = year_new(&o);
    struct year_bed b;

    year_bed_open(&b, &bo);
    double t = year_wall_s();
    year_bed_live(&b, y, from, to, r->pods);
    r->recent = year_bed_merge(&b, "{service_name=\"node\"}", to - 24, to, TIMES);
    r->all = year_bed_merge(&b, "{service_name=\"node\"}", to - 20 * 12, to, TIMES);
    r->sealed = year_bed_merge(&b, "{service_name=\"node\"}", to - 20 * 12, to - 5 * 12, TIMES);
    printf("P4 %5" PRIu32 " series: last 2 min %8.2f ms, %6" PRIu64 " rows; last 20 min %8.2f ms, "
           "%6" PRIu64 " rows; 15 min sealed %7.2f ms, %5" PRIu64 " rows; %zu stacks; loaded in "
           "%.0f s\n",
           r->pods, r->recent.ms, r->recent.rows, r->all.ms, r->all.rows, r->sealed.ms,
           r->sealed.rows, r->all.stacks, year_wall_s() - t);
    fflush(stdout);
    year_bed_remove(&b);
    year_free(y);
}

static void p4(void)
{
    struct p4 r[3] = { { .pods = 1 }, { .pods = 100 }, { .pods = number("SERIES", 10000) } };

    for (size_t i = 0; i < ARRAY_LEN(r); i++)
        bench_pods(&r[i]);
    for (size_t i = 1; i < ARRAY_LEN(r); i++) {
        double recent = r[i].recent.ms / r[0].recent.ms, all = r[i].all.ms / r[0].all.ms;
        printf("P4 %" PRIu32 " series : 1 series = %.2f over 2 min, %.2f over 20 min, %.2f sealed; "
               "goal <= 2, recent minutes included: %s\n",
               r[i].pods, recent, all, r[i].sealed.ms / r[0].sealed.ms,
               all <= 2 && recent <= 2 ? "reached" : "MISSED");
    }
    fflush(stdout);
}

/* ---- P5 ---- */

static void p5(uint32_t pods)
{
    struct year_opts o = { .seed = 10,
                           .kind = YEAR_NODE,
                           .pods = pods,
                           .stacks = 100,
                           .samples = 5,
                           .no_nights = true,
                           .no_restarts = true,
                           .start = 1995 * DAY };
    uint32_t end = o.start + 366 * DAY;
    struct year_bed_opts bo = { .slot = end, .retention = true };
    struct year *y = year_new(&o);
    struct year_bed b;
    double t = year_wall_s();

    year_bed_open(&b, &bo);
    for (uint32_t day = 0; day < 366; day += 6) /* a profile of 1 m a day and pod */
        year_bed_import_at(&b, y, o.start + day * DAY + 6000, 6, DAY, pods);
    year_bed_settle(&b);
    t = year_wall_s() - t;
    struct year_answer sum =
        year_bed_timeline(&b, "{service_name=\"node\"}", end - 365 * DAY, end, DAY, NULL, 15);
    struct year_answer each =
        year_bed_timeline(&b, "{service_name=\"node\"}", end - 365 * DAY, end, DAY, "pod", 15);
    printf("P5 1 y at 1 d, %" PRIu32 " series: sum %.2f ms; %" PRIu64 " lines by pod, %" PRIu64
           " points, %.2f ms; goal <= 20 ms: %s (loaded in %.0f s)\n",
           pods, sum.ms, each.series, each.rows, each.ms,
           sum.ms <= 20 && each.ms <= 20 ? "reached" : "MISSED", t);
    fflush(stdout);
    year_bed_remove(&b);
    year_free(y);
}

int main(void)
{
    const char *only = getenv("ONLY");

    if (!only || str_eqc(str_c(only), "p5"))
        p5(number("SERIES5", 1000));
    if (!only || str_eqc(str_c(only), "p4"))
        p4();
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * P2: bytes on disk per profile of 10 s, everything included, beside the same profiles as gzip'd
 * pprof uploads. A day of 20 pods of each kind; LONG=1: 30 days with the default retention.
 */
#include <stdlib.h>

#include "common/model/slot.h"
#include "tests/lib/gen/year_bed.h"

#define GOALS_DAY        \
    {                    \
        30.0, 20.0, 12.0 \
    }

static uint32_t number(const char *name, uint32_t otherwise)
{
    uint64_t n;

    return str_u64(str_c(getenv(name)), &n) ? (uint32_t)n : otherwise;
}

/* Average size of what agents would upload, over profiles spread over the time. */
static double upload_bytes(const struct year_opts *o, uint32_t days)
{
    struct year *y = year_new(o);
    struct buf body;
    double sum = 0;
    uint32_t n = 0, all = days * YEAR_DAY_SLOTS;

    buf_init(&body, 64 * MIB);
    for (uint32_t at = 0; at < all; at += all / 500 / 2 * 2, n++) {
        year_pprof(y, n % o->pods, o->start + at / 2 * 2, LEAF_SLOTS, &body);
        sum += (double)body.len;
    }
    buf_deinit(&body);
    year_free(y);
    return sum / n;
}

static void bench_kind(enum year_kind kind, uint32_t days, uint32_t pods)
{
    static const uint32_t stacks[YEAR_KINDS] = { 40000, 8000, 30000 };
    static const double goals[YEAR_KINDS] = GOALS_DAY;
    struct year_opts o = { .seed = 7,
                           .kind = kind,
                           .pods = pods,
                           .stacks = stacks[kind],
                           .deploy_days = 4,
                           .moved = 300,
                           .start = 1995 * YEAR_DAY_SLOTS };
    struct year_bed_opts bo = { .slot = o.start, .retention = days > 1 };
    double uploads = upload_bytes(&o, days), goal = goals[kind] * (days > 1 ? 2 : 1);
    struct year *y = year_new(&o);
    struct year_bed b;
    uint64_t parts[KV_CFS];

    year_print_fit(y, stdout);
    year_free(y);
    y = year_new(&o);
    year_bed_open(&b, &bo);
    double t = year_wall_s();
    year_bed_live(&b, y, o.start, o.start + days * YEAR_DAY_SLOTS, pods);
    year_bed_advance(&b, o.start + days * YEAR_DAY_SLOTS + 720); /* all that is due is built */
    t = year_wall_s() - t;
    year_bed_settle(&b);
    double each = (double)year_bed_bytes(&b, parts) / (double)b.profiles;
    printf("P2 %s, %" PRIu32 " day%s of %" PRIu32 " pods: %.0f B per profile on disk, gzip'd pprof "
           "%.0f B: %.1f x smaller; goal %.0f x: %s\n",
           year_kinds[kind].name, days, days > 1 ? "s, default retention" : "", pods, each, uploads,
           uploads / each, goal, uploads / each >= goal ? "reached" : "MISSED");
    year_bed_print_bytes(&b, b.profiles);
    printf("  %" PRIu64 " profiles in %.0f s; us CPU per profile: stage %.1f, seal %.1f, build "
           "%.1f, retain %.1f\n\n",
           b.profiles, t, b.stage_s * 1e6 / (double)b.profiles, b.seal_s * 1e6 / (double)b.profiles,
           b.build_s * 1e6 / (double)b.profiles, b.retain_s * 1e6 / (double)b.profiles);
    fflush(stdout);
    year_bed_remove(&b);
    year_free(y);
}

int main(void)
{
    uint32_t pods = number("PODS", 20), days = number("DAYS", number("LONG", 0) ? 30 : 1);
    const char *only = getenv("KIND");

    for (enum year_kind k = 0; k < YEAR_KINDS; k++)
        if (!only || str_eqc(str_c(year_kinds[k].name), only))
            bench_kind(k, days, pods);
    return 0;
}

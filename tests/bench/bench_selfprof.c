/* SPDX-License-Identifier: Apache-2.0
 *
 * What the self-profiler costs: CPU time of the whole process for a fixed load, with and without
 * sampling at 100 Hz, in turns, so that a noisy machine disturbs both alike. The ratio is the
 * median of the pairs. The cost of starting (reading .eh_frame of every library) is shown apart.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/obs/selfprof.h"
#include "common/obs/unwind.h"

enum { PAIRS = 31, DEPTH = 24, ITEMS = 4096, ROUND_MS = 400 };

static uint64_t items[ITEMS];
static volatile uint64_t sink;

static double cpu_ms(void)
{
    struct timespec t;

    CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) == 0);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static void work_deep(unsigned depth, uint64_t seed);
static void (*volatile work_deep_ptr)(unsigned, uint64_t) = work_deep;

/* Hashing and sorting at the end of a stack of a usual depth. */
static void work_deep(unsigned depth, uint64_t seed)
{
    if (depth) {
        work_deep_ptr(depth - 1, seed);
    } else {
        for (size_t i = 0; i < ITEMS; i++)
            items[i] = hash64(&i, sizeof(i), seed);
        qsort(items, ITEMS, sizeof(items[0]), by_value);
    }
    sink += items[0];
}

static double run_load(unsigned rounds)
{
    double before = cpu_ms();

    for (unsigned i = 0; i < rounds; i++)
        work_deep_ptr(DEPTH, i);
    return cpu_ms() - before;
}

static struct unwind_map *map;
static double walk_us;
static size_t walk_frames;

static void time_walks(void)
{
    enum { WALKS = 20000 };
    uint64_t pcs[UNWIND_DEPTH_MAX];
    double before = cpu_ms();
    ucontext_t uc;

    CHECK(getcontext(&uc) == 0);
    for (int i = 0; i < WALKS; i++) {
        struct unwind_regs r = { (uint64_t)uc.uc_mcontext.gregs[REG_RIP],
                                 (uint64_t)uc.uc_mcontext.gregs[REG_RSP],
                                 (uint64_t)uc.uc_mcontext.gregs[REG_RBP] };

        CHECK(unwind_walk(map, r, unwind_stack_end(map, r.sp), pcs, ARRAY_LEN(pcs), &walk_frames) ==
              UNWIND_WHOLE);
    }
    walk_us = (cpu_ms() - before) * 1e3 / WALKS;
}

static void walk_deep(unsigned depth);
static void (*volatile walk_deep_ptr)(unsigned) = walk_deep;

static void walk_deep(unsigned depth)
{
    if (depth)
        walk_deep_ptr(depth - 1);
    else
        time_walks();
    sink++;
}

struct seen {
    uint64_t samples;
};

static void on_push(void *cookie, const struct selfprof_push *p)
{
    ((struct seen *)cookie)->samples += p->samples;
}

static int by_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

int main(void)
{
    struct metrics *m = metrics_new();
    struct seen seen = { 0 };
    struct selfprof_opts o = { .env = env_real(),
                               .metrics = m,
                               .hz = 100,
                               .service = "bench",
                               .per_thread = true,
                               .on_push = on_push,
                               .cookie = &seen };
    double ratios[PAIRS], starts[PAIRS], on_ms = 0, off_ms = 0;
    unsigned rounds = 1;
    struct err e = { 0 };

    while (run_load(rounds) < ROUND_MS)
        rounds *= 2;
    for (int i = 0; i < PAIRS; i++) {
        struct selfprof *p;
        double start = cpu_ms(), on, off;

        CHECK(selfprof_start(&o, &p, &e) == 0);
        (void)usleep(300 * 1000); /* its tables are made */
        starts[i] = cpu_ms() - start;
        on = run_load(rounds);
        selfprof_stop(p);
        off = run_load(rounds);
        ratios[i] = on / off;
        on_ms += on;
        off_ms += off;
    }
    qsort(ratios, PAIRS, sizeof(ratios[0]), by_double);
    qsort(starts, PAIRS, sizeof(starts[0]), by_double);
    printf("sampling at 100 Hz: CPU x %.4f (median of %d pairs; quartiles %.4f and %.4f)\n",
           ratios[PAIRS / 2], PAIRS, ratios[PAIRS / 4], ratios[PAIRS * 3 / 4]);
    printf("sum of all pairs: %.0f ms with, %.0f ms without: x %.4f\n", on_ms, off_ms,
           on_ms / off_ms);
    printf("start, once per process: %.0f ms of CPU (median)\n", starts[PAIRS / 2]);
    printf("samples %" PRIu64 ", broken stacks %" PRIu64 "\n", seen.samples,
           metric_value(metric_at(
               metric_new(m, METRIC_COUNTER, "embertree_selfprof_broken_stacks_total", "", NULL),
               NULL, 0)));
    map = unwind_map_new(NULL);
    walk_deep_ptr(DEPTH);
    printf("one walk of %zu frames: %.2f us, so at 100 Hz %.3f %% of a core\n", walk_frames,
           walk_us, walk_us * 100 / 1e6 * 100);
    unwind_map_free(map, NULL);
    metrics_free(m);
    return 0;
}

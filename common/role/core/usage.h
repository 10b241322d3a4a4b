/* SPDX-License-Identifier: Apache-2.0
 *
 * usage.h: what this process takes from the machine, as last read. Thread: the loop's.
 */
#ifndef COMMON_ROLE_CORE_USAGE_H
#define COMMON_ROLE_CORE_USAGE_H

#include "common/obs/metrics.h"
#include "common/sys/pool.h"

struct usage {
    uint64_t rss_bytes; /* resident memory */
    uint64_t cpu_us;    /* user and system time since the start */
    uint64_t fds, fds_max;
    uint64_t threads;
    const struct pool *pool;  /* borrowed; NULL: none */
    struct pool_stats pooled; /* as told */
    struct metric_cell *rss, *cpu, *fd, *fd_max, *thread, *limit;
    struct metric_cell *pool_jobs, *pool_pauses, *pool_single, *pool_passed, *pool_passed_max;
};

/* Which build this process runs: the labels of embertree_build_info. */
struct usage_build {
    const char *version; /* "0.4.0" */
    const char *commit;  /* "75058f53", or "unknown" */
};

/* Registers embertree_process_*, embertree_pool_* and embertree_build_info. */
void usage_init(struct usage *u, struct metrics *m, const struct pool *pool,
                const struct usage_build *build, uint64_t memory_limit);
/* Reads memory and CPU time; what cannot be read keeps its last value. */
void usage_refresh(struct usage *u);
/* The same, and threads and open files, which take a walk: before a rendering of the metrics. */
void usage_render(void *cookie);

#endif

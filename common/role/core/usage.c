/* SPDX-License-Identifier: Apache-2.0
 *
 * usage: memory, CPU time, threads and files of this process, from /proc and getrusage; what its
 * pool says of turns.
 */
#include "common/role/core/usage.h"

#include <dirent.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

static void pool_init(struct usage *u, struct metrics *m)
{
#define POOL(kind, name, help) \
    metric_at(metric_new(m, kind, "embertree_pool_" name, help, NULL), NULL, 0)
    u->pool_jobs = POOL(METRIC_COUNTER, "jobs_total", "Jobs that began");
    u->pool_pauses = POOL(METRIC_COUNTER, "pauses_total",
                          "How often a long job stopped so that another tenant's could run");
    u->pool_single = POOL(METRIC_COUNTER, "single_jobs_total",
                          "Jobs of tenants that had nothing else in the pool when they came");
    u->pool_passed = POOL(METRIC_COUNTER, "passed_total",
                          "Turns of others that began while such a job waited for its first");
    u->pool_passed_max = POOL(METRIC_GAUGE, "passed_max",
                              "Most turns of others that such a job waited for since the start");
#undef POOL
}

static void pool_render(struct usage *u)
{
    struct pool_stats s;

    if (!u->pool)
        return;
    s = pool_stats_of(u->pool);
    metric_add(u->pool_jobs, s.jobs - u->pooled.jobs);
    metric_add(u->pool_pauses, s.pauses - u->pooled.pauses);
    metric_add(u->pool_single, s.single - u->pooled.single);
    metric_add(u->pool_passed, s.passed - u->pooled.passed);
    metric_set(u->pool_passed_max, (int64_t)s.passed_max);
    u->pooled = s;
}

static void build_init(const struct usage_build *build, struct metrics *m)
{
    struct str labels[] = { str_c(build->version), str_c(build->commit) };
    struct metric *info =
        metric_new(m, METRIC_GAUGE, "embertree_build_info",
                   "Always 1; the labels say which build this is", "version,commit");

    metric_set(metric_at(info, labels, ARRAY_LEN(labels)), 1);
}

void usage_init(struct usage *u, struct metrics *m, const struct pool *pool,
                const struct usage_build *build, uint64_t memory_limit)
{
#define GAUGE(name, help) \
    metric_at(metric_new(m, METRIC_GAUGE, "embertree_process_" name, help, NULL), NULL, 0)
    *u = (struct usage){ .pool = pool };
    pool_init(u, m);
    build_init(build, m);
    u->rss = GAUGE("resident_bytes", "Resident memory");
    u->limit = GAUGE("memory_limit_bytes", "Memory the process may live in");
    u->fd = GAUGE("open_fds", "Open file descriptors");
    u->fd_max = GAUGE("max_fds", "Most file descriptors the process may open");
    u->thread = GAUGE("threads", "Threads");
    u->cpu = metric_at(metric_new(m, METRIC_COUNTER, "embertree_process_cpu_microseconds_total",
                                  "CPU time, user and system", NULL),
                       NULL, 0);
#undef GAUGE
    metric_set(u->limit, (int64_t)memory_limit);
    usage_refresh(u);
}

/* Resident pages are the second number of statm. */
static void read_rss(struct usage *u)
{
    char text[128];
    FILE *f = fopen("/proc/self/statm", "re");
    struct str rest, part;
    bool more = true;
    uint64_t pages;
    size_t n;

    if (!f)
        return;
    n = fread(text, 1, sizeof(text), f);
    (void)fclose(f);
    rest = str_n(text, n);
    if (str_next(&rest, ' ', &more, &part) && str_next(&rest, ' ', &more, &part) &&
        str_u64(part, &pages))
        u->rss_bytes = pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static uint64_t count_entries(const char *path, uint64_t otherwise)
{
    DIR *d = opendir(path);
    uint64_t n = 0;

    if (!d)
        return otherwise;
    while (readdir(d)) /* "." and ".." too */
        n++;
    (void)closedir(d);
    return n > 2 ? n - 2 : 0;
}

void usage_refresh(struct usage *u)
{
    struct rusage ru;

    read_rss(u);
    metric_set(u->rss, (int64_t)u->rss_bytes);
    if (getrusage(RUSAGE_SELF, &ru) == 0) {
        uint64_t us = (uint64_t)(ru.ru_utime.tv_sec + ru.ru_stime.tv_sec) * 1000000 +
                      (uint64_t)(ru.ru_utime.tv_usec + ru.ru_stime.tv_usec);

        if (us > u->cpu_us) {
            metric_add(u->cpu, us - u->cpu_us);
            u->cpu_us = us;
        }
    }
}

void usage_render(void *cookie)
{
    struct usage *u = cookie;
    struct rlimit rl;

    usage_refresh(u);
    pool_render(u);
    u->threads = count_entries("/proc/self/task", u->threads);
    u->fds = count_entries("/proc/self/fd", u->fds + 1) - 1; /* not the one of the walk itself */
    if (getrlimit(RLIMIT_NOFILE, &rl) == 0)
        u->fds_max = rl.rlim_cur;
    metric_set(u->thread, (int64_t)u->threads);
    metric_set(u->fd, (int64_t)u->fds);
    metric_set(u->fd_max, (int64_t)u->fds_max);
}

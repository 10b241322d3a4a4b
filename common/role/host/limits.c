/* SPDX-License-Identifier: Apache-2.0
 *
 * limits: of the machine and the group that the process runs in.
 *
 * cgroup: /proc/self/cgroup names our group by hierarchy: "0::/path" is v2's, "4:memory:/path" that
 * of v1's memory controller. Any group above ours may have the lower limit, so all are read.
 *
 * In a container the path may be the host's, while what is mounted begins at our own group: files
 * below the path are missing then, and the one at the top is ours. Reading all on the way up to the
 * top does that, too.
 *
 * Files: the usual soft limit (1,024) is for programs that use select(); the hard one is what the
 * machine's owner allows.
 */
#include "common/role/host/limits.h"

#include <limits.h>
#include <stdio.h>
#include <sys/resource.h>

#include "common/base/str.h"

#define NO_LIMIT (UINT64_C(1) << 60) /* v1 writes about 2^63 for "none" */

/* What is asked for. */
struct limit {
    const char *controller;                                      /* of v1 */
    uint64_t (*read)(const char *top, struct str path, bool v2); /* UINT64_MAX: no limit */
};

/* Reads a small file of a group; *ret is in `text`. False: the file cannot be read. */
static bool read_file(const char *top, struct str path, const char *file, char text[64],
                      struct str *ret)
{
    char name[3 * PATH_MAX];
    int n = snprintf(name, sizeof(name), "%s%.*s/%s", top, STR_ARG(path), file);
    FILE *f = n > 0 && (size_t)n < sizeof(name) ? fopen(name, "re") : NULL;

    if (!f)
        return false;
    *ret = str_trim(str_n(text, fread(text, 1, 64, f)));
    (void)fclose(f);
    return true;
}

/* Returns UINT64_MAX if the file is missing or has no number ("max", "-1"). */
static uint64_t number_in(const char *top, struct str path, const char *file)
{
    char text[64];
    struct str s;
    uint64_t v = 0;

    return read_file(top, path, file, text, &s) && str_u64(s, &v) && v < NO_LIMIT ? v : UINT64_MAX;
}

static uint64_t read_memory(const char *top, struct str path, bool v2)
{
    return number_in(top, path, v2 ? "memory.max" : "memory.limit_in_bytes");
}

/* So many microseconds in each period of so many. */
static uint64_t read_cpu(const char *top, struct str path, bool v2)
{
    uint64_t quota = UINT64_MAX, period = UINT64_MAX;
    struct str s, one;
    bool more = true;
    char text[64];

    if (!v2) {
        quota = number_in(top, path, "cpu.cfs_quota_us");
        period = number_in(top, path, "cpu.cfs_period_us");
    } else if (read_file(top, path, "cpu.max", text, &s) && str_next(&s, ' ', &more, &one)) {
        quota = str_u64(one, &quota) ? quota : UINT64_MAX;
        period = str_u64(s, &period) ? period : UINT64_MAX;
    }
    if (quota >= NO_LIMIT / 1000 || period >= NO_LIMIT || !period)
        return UINT64_MAX;
    return MAX(quota * 1000 / period, UINT64_C(1));
}

static uint64_t least_above(const struct limit *l, const char *top, struct str path, bool v2)
{
    uint64_t least = UINT64_MAX;

    for (;;) {
        while (path.len && path.ptr[path.len - 1] == '/')
            path.len--;
        least = MIN(least, l->read(top, path, v2));
        if (!path.len)
            return least;
        path.len = (size_t)MAX(str_rfind(path, '/'), 0);
    }
}

/* Is "memory" one of "cpu,memory"? */
static bool has(struct str names, const char *controller)
{
    struct str one;
    bool more = names.len > 0;

    while (str_next(&names, ',', &more, &one))
        if (str_eq(one, str_c(controller)))
            return true;
    return false;
}

/* "id:controllers:path" */
static uint64_t limit_of(const struct limit *l, const char *root, struct str line)
{
    ptrdiff_t a = str_find(line, ':');
    char top[PATH_MAX];

    if (a < 0)
        return UINT64_MAX;
    struct str rest = str_sub(line, (size_t)a + 1, line.len);
    ptrdiff_t b = str_find(rest, ':');
    if (b < 0)
        return UINT64_MAX;
    struct str names = str_sub(rest, 0, (size_t)b), path = str_sub(rest, (size_t)b + 1, rest.len);
    bool v2 = !names.len, v1 = has(names, l->controller);
    int n = snprintf(top, sizeof(top), "%s/sys/fs/cgroup%s%s", root, v2 ? "" : "/",
                     v2 ? "" : l->controller);

    if ((!v2 && !v1) || n < 0 || (size_t)n >= sizeof(top))
        return UINT64_MAX;
    return least_above(l, top, path, v2);
}

static uint64_t least(const struct limit *l, const char *root)
{
    char line[PATH_MAX + 256], path[PATH_MAX];
    uint64_t ret = UINT64_MAX;

    (void)snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    FILE *f = fopen(path, "re");
    if (!f)
        return 0;
    while (fgets(line, sizeof(line), f))
        ret = MIN(ret, limit_of(l, root, str_trim(str_c(line))));
    (void)fclose(f);
    return ret == UINT64_MAX ? 0 : ret;
}

uint64_t limits_memory(const char *root)
{
    return least(&(struct limit){ "memory", read_memory }, root);
}

uint64_t limits_cpu(const char *root)
{
    return least(&(struct limit){ "cpu", read_cpu }, root);
}

uint64_t limits_files_raise(uint64_t want)
{
    struct rlimit rl;

    if (getrlimit(RLIMIT_NOFILE, &rl) != 0)
        return 0;
    if (rl.rlim_cur < want && rl.rlim_cur < rl.rlim_max) {
        struct rlimit more = { .rlim_cur = MIN((rlim_t)want, rl.rlim_max),
                               .rlim_max = rl.rlim_max };
        if (setrlimit(RLIMIT_NOFILE, &more) == 0)
            rl = more;
    }
    return (uint64_t)rl.rlim_cur;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * cgroup: /proc/self/cgroup names our group by hierarchy: "0::/path" is v2's, "4:memory:/path" that
 * of v1's memory controller. Any group above ours may have the lower limit, so all are read.
 *
 * In a container the path may be the host's, while what is mounted begins at our own group: files
 * below the path are missing then, and the one at the top is ours. Reading all on the way up to the
 * top does that, too.
 */
#include "common/role/cgroup.h"

#include <limits.h>
#include <stdio.h>

#include "common/base/str.h"

#define NO_LIMIT (UINT64_C(1) << 60) /* v1 writes about 2^63 for "none" */

/* The number in a small file; UINT64_MAX if there is none ("max"). */
static uint64_t number_in(const char *path)
{
    char text[64];
    FILE *f = fopen(path, "re");
    uint64_t v = 0;

    if (!f)
        return UINT64_MAX;
    size_t n = fread(text, 1, sizeof(text), f);
    (void)fclose(f);
    return str_u64(str_trim(str_n(text, n)), &v) && v < NO_LIMIT ? v : UINT64_MAX;
}

static uint64_t least_above(const char *top, struct str path, const char *file)
{
    uint64_t least = UINT64_MAX;
    char name[3 * PATH_MAX];

    for (;;) {
        while (path.len && path.ptr[path.len - 1] == '/')
            path.len--;
        int n = snprintf(name, sizeof(name), "%s%.*s/%s", top, STR_ARG(path), file);
        if (n > 0 && (size_t)n < sizeof(name))
            least = MIN(least, number_in(name));
        if (!path.len)
            return least;
        path.len = (size_t)MAX(str_rfind(path, '/'), 0);
    }
}

/* Is "memory" one of "cpu,memory"? */
static bool has_memory(struct str names)
{
    struct str one;
    bool more = names.len > 0;

    while (str_next(&names, ',', &more, &one))
        if (str_eq(one, STR("memory")))
            return true;
    return false;
}

/* "id:controllers:path" */
static uint64_t limit_of(const char *root, struct str line)
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
    bool v2 = !names.len, v1 = has_memory(names);
    int n = snprintf(top, sizeof(top), "%s/sys/fs/cgroup%s", root, v2 ? "" : "/memory");

    if ((!v2 && !v1) || n < 0 || (size_t)n >= sizeof(top))
        return UINT64_MAX;
    return least_above(top, path, v2 ? "memory.max" : "memory.limit_in_bytes");
}

uint64_t cgroup_memory_limit(const char *root)
{
    char line[PATH_MAX + 256], path[PATH_MAX];
    uint64_t least = UINT64_MAX;

    (void)snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    FILE *f = fopen(path, "re");
    if (!f)
        return 0;
    while (fgets(line, sizeof(line), f))
        least = MIN(least, limit_of(root, str_trim(str_c(line))));
    (void)fclose(f);
    return least == UINT64_MAX ? 0 : least;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory limits of cgroups, v2 and v1, in made-up folders of /proc and /sys.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/role/host/limits.h"
#include "tests/lib/store/kv_dir.h"

static char *root;

static int setup(void **state)
{
    (void)state;
    root = kv_dir_new();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    kv_dir_remove(root);
    return 0;
}

/* Makes the folders, too. */
static void put(const char *path, const char *text)
{
    char name[4096];

    (void)snprintf(name, sizeof(name), "%s%s", root, path);
    for (char *p = name + strlen(root) + 1; (p = strchr(p, '/')); p++) {
        *p = '\0';
        (void)mkdir(name, 0777);
        *p = '/';
    }
    FILE *f = fopen(name, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void test_none(void **state)
{
    (void)state;
    assert_int_equal(limits_memory(root), 0);
    put("/proc/self/cgroup", "");
    assert_int_equal(limits_memory(root), 0);
    put("/proc/self/cgroup", "nonsense\n0:/\n7:cpu,cpuacct:/a\n0::/a/b\n");
    put("/sys/fs/cgroup/cpu/a/memory.limit_in_bytes", "1\n");
    put("/sys/fs/cgroup/a/b/memory.max", "max\n");
    assert_int_equal(limits_memory(root), 0);
}

static void test_v2(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/a.slice/b.scope\n");
    put("/sys/fs/cgroup/a.slice/b.scope/memory.max", "671088640\n");
    assert_int_equal(limits_memory(root), 671088640);
    put("/sys/fs/cgroup/a.slice/memory.max", "600000000\n"); /* above ours */
    assert_int_equal(limits_memory(root), 600000000);
    put("/sys/fs/cgroup/a.slice/b.scope/memory.max", "max\n");
    assert_int_equal(limits_memory(root), 600000000);
    put("/proc/self/cgroup", "0::/\n"); /* with a namespace of its own */
    put("/sys/fs/cgroup/memory.max", "500000000\n");
    assert_int_equal(limits_memory(root), 500000000);
}

static void test_v1(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "9:cpu:/c\n4:hugetlb,memory:/docker/0123\n0::/x\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "671088640\n"); /* ours, in a container */
    assert_int_equal(limits_memory(root), 671088640);
    put("/sys/fs/cgroup/memory/docker/0123/memory.limit_in_bytes", "9223372036854771712\n");
    assert_int_equal(limits_memory(root), 671088640);
    put("/sys/fs/cgroup/memory/docker/0123/memory.limit_in_bytes", "1000000\n");
    assert_int_equal(limits_memory(root), 1000000);
}

static void test_cpu(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/a.slice/b.scope\n");
    assert_int_equal(limits_cpu(root), 0);
    put("/sys/fs/cgroup/a.slice/b.scope/cpu.max", "max 100000\n");
    assert_int_equal(limits_cpu(root), 0);
    put("/sys/fs/cgroup/a.slice/b.scope/cpu.max", "250000 100000\n");
    assert_int_equal(limits_cpu(root), 2500);
    put("/sys/fs/cgroup/a.slice/cpu.max", "50000 100000\n"); /* above ours */
    assert_int_equal(limits_cpu(root), 500);
    put("/sys/fs/cgroup/a.slice/cpu.max", "50000 0\n"); /* no period: nothing is said */
    assert_int_equal(limits_cpu(root), 2500);
    put("/proc/self/cgroup", "7:cpu,cpuacct:/c\n");
    put("/sys/fs/cgroup/cpu/c/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu/c/cpu.cfs_period_us", "100000\n");
    assert_int_equal(limits_cpu(root), 0);
    put("/sys/fs/cgroup/cpu/c/cpu.cfs_quota_us", "150000\n");
    assert_int_equal(limits_cpu(root), 1500);
}

static void test_files_raise(void **state)
{
    struct rlimit rl = { .rlim_cur = 64 }, now;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &now), 0);
    rl.rlim_max = now.rlim_max < 200 ? now.rlim_max : 200;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &rl), 0);
    assert_int_equal(limits_files_raise(100), 100);
    assert_int_equal(limits_files_raise(80), 100); /* never lower */
    assert_int_equal(limits_files_raise(100000), rl.rlim_max);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &now), 0);
    assert_int_equal(now.rlim_cur, rl.rlim_max);
    assert_int_equal(now.rlim_max, rl.rlim_max);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_none, setup, teardown),
        cmocka_unit_test_setup_teardown(test_v2, setup, teardown),
        cmocka_unit_test_setup_teardown(test_v1, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cpu, setup, teardown),
        cmocka_unit_test(test_files_raise),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

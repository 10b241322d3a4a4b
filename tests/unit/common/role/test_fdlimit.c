/* SPDX-License-Identifier: Apache-2.0 */
#include "common/role/fdlimit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sys/resource.h>

static void test_raise(void **state)
{
    struct rlimit rl = { .rlim_cur = 64 }, now;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &now), 0);
    rl.rlim_max = now.rlim_max < 200 ? now.rlim_max : 200;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &rl), 0);
    assert_int_equal(fdlimit_raise(100), 100);
    assert_int_equal(fdlimit_raise(80), 100); /* never lower */
    assert_int_equal(fdlimit_raise(100000), rl.rlim_max);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &now), 0);
    assert_int_equal(now.rlim_cur, rl.rlim_max);
    assert_int_equal(now.rlim_max, rl.rlim_max);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_raise) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

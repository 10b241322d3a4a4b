/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/role/lock.h"

static void test_second_taker_is_told_who(void **state)
{
    char dir[] = "/tmp/embertree-lock-XXXXXX", sub[64], path[96], want[64];
    struct err e = { 0 };
    int first, second = -1, again;

    (void)state;
    assert_non_null(mkdtemp(dir));
    (void)snprintf(sub, sizeof(sub), "%s/a/b", dir); /* made on the way */
    (void)snprintf(path, sizeof(path), "%s/LOCK", sub);
    (void)snprintf(want, sizeof(want), "embertree-x (pid %ld)", (long)getpid());
    assert_int_equal(lock_take(sub, "embertree-x", &first, &e), 0);
    assert_int_equal(lock_take(sub, "embertree-y", &second, &e), ERR_CONFIG);
    assert_int_equal(second, -1);
    assert_non_null(strstr(e.text, want));
    assert_non_null(strstr(e.text, "--data.dir"));
    lock_drop(first);
    assert_int_equal(lock_take(sub, "embertree-y", &again, &e), 0);
    lock_drop(again);
    lock_drop(-1);

    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(sub), 0);
    (void)snprintf(sub, sizeof(sub), "%s/a", dir);
    assert_int_equal(rmdir(sub), 0);
    assert_int_equal(rmdir(dir), 0);
}

static void test_folder_that_cannot_be(void **state)
{
    struct err e = { 0 };
    int fd = -1;

    (void)state;
    assert_int_not_equal(lock_take("/proc/no-such-folder/x", "embertree", &fd, &e), 0);
    assert_int_equal(fd, -1);
    assert_non_null(strstr(e.text, "data.dir"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_second_taker_is_told_who),
        cmocka_unit_test(test_folder_that_cannot_be),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/role/host/lock.h"

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

static void test_was_taken(void **state)
{
    char dir[] = "/tmp/embertree-lock-XXXXXX", path[96];
    struct err e = { 0 };
    int fd;

    (void)state;
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof(path), "%s/LOCK", dir);
    assert_int_equal(lock_was_taken(path, &e), ERR_CONFIG); /* no folder */
    assert_int_equal(lock_was_taken(dir, &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, dir));
    assert_int_equal(lock_take(dir, "embertree", &fd, &e), 0);
    lock_drop(fd);
    assert_int_equal(lock_was_taken(dir, &e), 0);
    assert_int_equal(unlink(path), 0);
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

static void put(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* LOCK or any other name that leads elsewhere: nothing is written through it. */
static void test_links_are_refused(void **state)
{
    static const char *const names[] = { "LOCK", "node-id", "shard-0" };
    char dir[] = "/tmp/embertree-lock-XXXXXX", link[64], victim[64], text[32] = "";
    struct err e = { 0 };
    struct stat st;

    (void)state;
    assert_non_null(mkdtemp(dir));
    (void)snprintf(victim, sizeof(victim), "%s-victim", dir);
    put(victim, "mine");
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        int fd = -1;

        (void)snprintf(link, sizeof(link), "%s/%s", dir, names[i]);
        assert_int_equal(symlink(victim, link), 0);
        assert_int_equal(lock_take(dir, "embertree", &fd, &e), ERR_CONFIG);
        assert_int_equal(fd, -1);
        assert_non_null(strstr(e.text, names[i]));
        assert_int_equal(unlink(link), 0);
    }
    FILE *f = fopen(victim, "r");
    assert_non_null(f);
    assert_non_null(fgets(text, sizeof(text), f));
    assert_int_equal(fclose(f), 0);
    assert_string_equal(text, "mine");
    /* The folder itself may be one: a service manager's state folder is. */
    (void)snprintf(link, sizeof(link), "%s-link", dir);
    assert_int_equal(symlink(dir, link), 0);
    int fd = -1;
    assert_int_equal(chmod(dir, 0755), 0);
    assert_int_equal(lock_take(link, "embertree", &fd, &e), 0);
    lock_drop(fd);
    assert_int_equal(stat(dir, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700); /* it was wider */
    assert_int_equal(unlink(link), 0);
    assert_int_equal(unlink(victim), 0);
    (void)snprintf(link, sizeof(link), "%s/LOCK", dir);
    assert_int_equal(stat(link, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(unlink(link), 0);
    assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_second_taker_is_told_who),
        cmocka_unit_test(test_was_taken),
        cmocka_unit_test(test_folder_that_cannot_be),
        cmocka_unit_test(test_links_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * What a file that is written whole never does: write through a link that lies at its temporary
 * name, or leave anything that others could read, whatever the umask.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/sys/fs.h"

static void check_text(const char *path, const char *want)
{
    struct buf b;
    struct err e;

    buf_init(&b, KIB);
    assert_int_equal(fs_real()->read_file(fs_real(), path, &b, &e), 0);
    assert_true(str_eq(buf_str(&b), str_c(want)));
    buf_deinit(&b);
}

static unsigned mode_of(const char *path)
{
    struct stat st;

    assert_int_equal(lstat(path, &st), 0);
    return st.st_mode & 07777;
}

static void test_private(void **state)
{
    char top[] = "/tmp/embertree-fs-XXXXXX", dir[64], path[96], tmp[128], victim[64];
    const struct fs *fs = fs_real();
    struct err e;

    (void)state;
    assert_non_null(mkdtemp(top));
    (void)snprintf(dir, sizeof(dir), "%s/a", top);
    (void)snprintf(path, sizeof(path), "%s/secret", dir);
    (void)snprintf(tmp, sizeof(tmp), "%s.tmp", path);
    (void)snprintf(victim, sizeof(victim), "%s/victim", top);
    mode_t before = umask(0);
    assert_int_equal(fs->mkdir_all(fs, dir, &e), 0);
    assert_int_equal(mode_of(dir), 0700);
    assert_int_equal(fs->write_file(fs, victim, STR("mine"), &e), 0);
    assert_int_equal(mode_of(victim), 0600);
    assert_int_equal(symlink(victim, tmp), 0);
    assert_int_equal(fs->write_file(fs, path, STR("secret"), &e), 0);
    check_text(victim, "mine");
    check_text(path, "secret");
    assert_int_equal(mode_of(path), 0600);
    /* A link at the name itself is replaced. */
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink(victim, path), 0);
    assert_int_equal(fs->write_file(fs, path, STR("other"), &e), 0);
    check_text(victim, "mine");
    check_text(path, "other");
    (void)umask(before);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(unlink(victim), 0);
    assert_int_equal(rmdir(dir), 0);
    assert_int_equal(rmdir(top), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_private) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

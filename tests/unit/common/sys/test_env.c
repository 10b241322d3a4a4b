/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/sys/env.h"

struct dir {
    char path[64];
};

static void dir_new(struct dir *d)
{
    (void)snprintf(d->path, sizeof(d->path), "/tmp/embertree-env-XXXXXX");
    assert_non_null(mkdtemp(d->path));
}

static const char *below(const struct dir *d, const char *name)
{
    static char full[256];

    (void)snprintf(full, sizeof(full), "%s/%s", d->path, name);
    return full;
}

static void test_fake_clock(void **state)
{
    struct clock_fake f;

    (void)state;
    clock_fake_init(&f, 1700000000000);
    clock_fake_advance(&f, 1500);
    assert_int_equal(clock_wall_ms(&f.clock), 1700000001500);
    assert_int_equal(clock_mono_ms(&f.clock), 2500);
    clock_fake_jump(&f, -3600000);
    assert_int_equal(clock_wall_ms(&f.clock), 1699996401500);
    assert_int_equal(clock_mono_ms(&f.clock), 2500);
}

static void test_real_clock_moves(void **state)
{
    const struct clock *c = clock_real();
    uint64_t before = clock_mono_ns(c);

    (void)state;
    assert_true(clock_wall_ms(c) > 1600000000000); /* after 2020 */
    while (clock_mono_ns(c) == before)
        ;
    assert_true(clock_mono_ns(c) > before);
}

static void test_write_then_read(void **state)
{
    const struct fs *fs = env_real()->fs;
    struct dir d;
    struct buf b;
    struct err e = { 0 };

    (void)state;
    dir_new(&d);
    buf_init(&b, 11);
    assert_int_equal(fs->write_file(fs, below(&d, "f"), STR("old"), &e), 0);
    assert_int_equal(fs->write_file(fs, below(&d, "f"), STR("hello\0world"), &e), 0);
    assert_int_equal(fs->read_file(fs, below(&d, "f"), &b, &e), 0); /* exactly the maximum */
    assert_true(str_eq(buf_str(&b), STR("hello\0world")));
    assert_int_equal(access(below(&d, "f.tmp"), F_OK), -1);
    buf_deinit(&b);
    buf_init(&b, 10);
    assert_int_equal(fs->read_file(fs, below(&d, "f"), &b, &e), ERR_LIMIT);
    buf_deinit(&b);
    assert_int_equal(fs->read_file(fs, below(&d, "none"), &b, &e), ERR_NOT_FOUND);
    assert_non_null(strstr(e.text, "/none"));
    assert_int_equal(unlink(below(&d, "f")), 0);
    assert_int_equal(rmdir(d.path), 0);
}

static void test_failed_write_leaves_the_old_file(void **state)
{
    const struct fs *fs = fs_real();
    struct dir d;
    struct err e = { 0 };
    struct stat st;

    (void)state;
    dir_new(&d);
    assert_int_equal(fs->write_file(fs, below(&d, "no/f"), STR("x"), &e), ERR_IO);
    assert_int_equal(mkdir(below(&d, "f"), 0755), 0); /* a folder stands in the way of the rename */
    assert_int_equal(fs->write_file(fs, below(&d, "f"), STR("x"), &e), ERR_IO);
    assert_int_equal(stat(below(&d, "f"), &st), 0);
    assert_true(S_ISDIR(st.st_mode));
    assert_int_equal(access(below(&d, "f.tmp"), F_OK), -1); /* nothing left behind */
    assert_int_equal(rmdir(below(&d, "f")), 0);
    assert_int_equal(rmdir(d.path), 0);
}

static void test_mkdir_all_and_space(void **state)
{
    const struct fs *fs = fs_real();
    struct dir d;
    struct err e = { 0 };
    uint64_t left = 0, total = 0;
    FILE *f;

    (void)state;
    dir_new(&d);
    assert_int_equal(fs->mkdir_all(fs, below(&d, "a/b//c/"), &e), 0);
    assert_int_equal(fs->mkdir_all(fs, below(&d, "a/b/c"), &e), 0); /* again is fine */
    assert_int_equal(fs->space(fs, below(&d, "a/b/c"), &left, &total, &e), 0);
    assert_true(total > 0 && left <= total);
    assert_int_equal(fs->space(fs, below(&d, "none"), &left, &total, &e), ERR_IO);
    f = fopen(below(&d, "a/file"), "w");
    assert_non_null(f);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(fs->mkdir_all(fs, below(&d, "a/file"), &e), ERR_IO);
    assert_int_equal(fs->mkdir_all(fs, below(&d, "a/file/x"), &e), ERR_IO);
    assert_int_equal(fs->mkdir_all(fs, "", &e), ERR_INPUT);
    assert_int_equal(unlink(below(&d, "a/file")), 0);
    assert_int_equal(rmdir(below(&d, "a/b/c")), 0);
    assert_int_equal(rmdir(below(&d, "a/b")), 0);
    assert_int_equal(rmdir(below(&d, "a")), 0);
    assert_int_equal(rmdir(d.path), 0);
}

static void test_randomness(void **state)
{
    struct env *env = env_real();
    struct clock_fake f;
    struct env_sim s1, s2;
    uint64_t a[4] = { 0 }, b[4] = { 0 };

    (void)state;
    env->random(env, a, sizeof(a));
    env->random(env, b, sizeof(b));
    assert_memory_not_equal(a, b, sizeof(a));
    clock_fake_init(&f, 0);
    env_sim_init(&s1, &f.clock, fs_real(), 7);
    env_sim_init(&s2, &f.clock, fs_real(), 7);
    s1.env.random(&s1.env, a, 29); /* not a multiple of a word */
    s2.env.random(&s2.env, b, 29);
    assert_memory_equal(a, b, 29);
    s1.env.random(&s1.env, b, 29);
    assert_memory_not_equal(a, b, 29);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fake_clock),
        cmocka_unit_test(test_real_clock_moves),
        cmocka_unit_test(test_write_then_read),
        cmocka_unit_test(test_failed_write_leaves_the_old_file),
        cmocka_unit_test(test_mkdir_all_and_space),
        cmocka_unit_test(test_randomness),
    };

    return cmocka_run_group_tests_name("env", tests, NULL, NULL);
}

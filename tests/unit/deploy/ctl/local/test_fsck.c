/* SPDX-License-Identifier: Apache-2.0
 *
 * `embertree fsck --mark`: a wrong node is found, marked, and built again by whoever opens the
 * database next; what nothing can be built from stays a finding; a database in use is left alone.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/store/check/check.h"
#include "common/store/codec/keys.h"
#include "common/store/state/store_impl.h"
#include "deploy/ctl/ctl.h"
#include "tests/lib/gen/year_bed.h"
#include "tests/lib/store/kv_dir.h"

#define HOURS 6

static const struct year_opts YEAR = { .seed = 7,
                                       .kind = YEAR_KAFKA,
                                       .pods = 3,
                                       .stacks = 200,
                                       .deploy_days = 4,
                                       .moved = 20,
                                       .start = 1995 * YEAR_DAY_SLOTS };
static char *dir;

static void fill(void)
{
    uint32_t end = YEAR.start + HOURS * 360;
    struct year_bed_opts o = { .dir = dir, .slot = YEAR.start };
    struct year *y = year_new(&YEAR);
    struct year_bed b;

    year_bed_open(&b, &o);
    year_bed_live(&b, y, YEAR.start, end, 3);
    year_bed_advance(&b, end + 360);
    year_bed_work(&b);
    year_bed_remove(&b);
    year_free(y);
}

static int setup(void **state)
{
    (void)state;
    dir = kv_dir_new();
    fill();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    kv_dir_remove(dir);
    return 0;
}

/* Runs it; what it says goes to `out`. */
static int fsck(const char *option, const char *of, char *out, size_t size)
{
    char name[] = "fsck", quiet[] = "--quiet", path[4096], option_text[32];
    char *argv[] = { name, quiet, path, option ? option_text : NULL, NULL };
    FILE *f = tmpfile();

    assert_non_null(f);
    (void)snprintf(path, sizeof(path), "%s", of);
    (void)snprintf(option_text, sizeof(option_text), "%s", option ? option : "");
    (void)fflush(stdout);
    int saved = dup(STDOUT_FILENO);
    assert_true(saved >= 0 && dup2(fileno(f), STDOUT_FILENO) >= 0);
    int code = fsck_command.run(option ? 4 : 3, argv);
    (void)fflush(stdout);
    assert_true(dup2(saved, STDOUT_FILENO) >= 0);
    (void)close(saved);
    rewind(f);
    size_t n = fread(out, 1, size - 1, f);
    out[n] = '\0';
    (void)fclose(f);
    return code;
}

/* Puts another row's vector in place of the first one of a level. */
static void spoil(enum kv_cf cf, uint32_t level)
{
    char path[4096], from = (char)level;
    struct buf key, value;
    struct err e;

    (void)snprintf(path, sizeof(path), "%s/shard-0", dir);
    struct kv *k = kv_dir_open(path);
    struct kv_iter *it = kv_iter_new(k, NULL, cf, str_n(&from, 1), STR_NULL);
    buf_init(&key, KIB);
    buf_init(&value, MIB);
    assert_true(kv_iter_valid(it) && kv_iter_key(it).ptr[0] == from);
    assert_true(buf_add_str(&key, kv_iter_key(it)));
    assert_true(buf_add_str(&value, kv_iter_value(it)));
    do {
        kv_iter_next(it);
        if (!kv_iter_valid(it) || kv_iter_key(it).ptr[0] != from)
            fail_msg("family %d: one row of level %u only", (int)cf, level);
    } while (str_eq(kv_iter_value(it), buf_str(&value)));
    struct kv_batch *b = kv_batch_new();
    kv_batch_put(b, cf, buf_str(&key), kv_iter_value(it));
    kv_iter_free(it);
    assert_int_equal(kv_write(k, b, true, &e), 0);
    kv_batch_free(b);
    kv_close(k);
    buf_deinit(&key);
    buf_deinit(&value);
}

static void serve(void)
{
    struct year_bed_opts o = { .dir = dir, .slot = YEAR.start + (HOURS + 2) * 360, .reopen = true };
    struct year_bed b;

    year_bed_open(&b, &o);
    year_bed_advance(&b, o.slot + 360);
    year_bed_work(&b);
    year_bed_remove(&b);
}

static void test_marks_what_can_be_built(void **state)
{
    static char out[256 * KIB];

    (void)state;
    assert_int_equal(fsck(NULL, dir, out, sizeof(out)), 0);
    assert_int_equal(fsck("--mark", dir, out, sizeof(out)), 0);
    assert_non_null(strstr(out, "shard-0: 0 nodes were not the sum"));

    spoil(KV_COARSE, 3);
    spoil(KV_RU, 3);
    assert_int_equal(fsck(NULL, dir, out, sizeof(out)), 1); /* looks, and changes nothing */
    assert_int_equal(fsck(NULL, dir, out, sizeof(out)), 1);
    assert_int_equal(fsck("--mark", dir, out, sizeof(out)), 0);
    assert_non_null(strstr(out, "marked: level 3"));
    assert_null(strstr(out, "shard-0: 0 nodes"));
    assert_null(strstr(out, "cannot be built"));
    assert_int_equal(fsck(NULL, dir, out, sizeof(out)), 0);
    assert_int_equal(fsck("--mark", dir, out, sizeof(out)), 0); /* a second time: nothing to do */
    assert_non_null(strstr(out, "shard-0: 0 nodes"));
    serve();
    assert_int_equal(fsck(NULL, dir, out, sizeof(out)), 0);
    assert_int_equal(fsck("--mark", dir, out, sizeof(out)), 0);
    assert_non_null(strstr(out, "shard-0: 0 nodes"));
}

/* A leaf is the truth of its place: said, and still found. */
static void test_says_what_is_lost(void **state)
{
    static char out[256 * KIB];

    (void)state;
    spoil(KV_FINE, 0);
    int before = fsck(NULL, dir, out, sizeof(out));
    assert_int_equal(before, 1);
    assert_int_equal(fsck("--mark", dir, out, sizeof(out)), 1);
    assert_non_null(strstr(out, "findings"));
}

static void test_in_use(void **state)
{
    static char out[4 * KIB];
    struct year_bed_opts o = { .dir = dir, .slot = YEAR.start + (HOURS + 4) * 360, .reopen = true };
    struct year_bed b;

    (void)state;
    year_bed_open(&b, &o);
    assert_int_equal(fsck("--mark", dir, out, sizeof(out)), 2);
    year_bed_remove(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_marks_what_can_be_built, setup, teardown),
        cmocka_unit_test_setup_teardown(test_says_what_is_lost, setup, teardown),
        cmocka_unit_test_setup_teardown(test_in_use, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

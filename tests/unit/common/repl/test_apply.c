/* SPDX-License-Identifier: Apache-2.0
 *
 * Entries into a RocksDB, its emptying for a snapshot, and the note of how far it is.
 */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/repl/apply.h"
#include "common/store/kv/kv_impl.h"
#include "tests/lib/store/kv_dir.h"

static struct err e;

static size_t rows(struct kv *k)
{
    size_t n = 0;

    for (int cf = 0; cf < KV_CFS; cf++) {
        struct kv_iter *it = kv_iter_new(k, NULL, (enum kv_cf)cf, STR_NULL, STR_NULL);
        for (; kv_iter_valid(it); kv_iter_next(it))
            n += !apply_is_note(cf, kv_iter_key(it));
        kv_iter_free(it);
    }
    return n;
}

static void put_all(struct kv *k, uint64_t index)
{
    struct repl_entry *x;

    for (int cf = 0; cf < KV_CFS; cf++) {
        char ops[] = { (char)cf, 2, (char)0xff, (char)0xff, 1, 'v', (char)cf, 1, 'a', 1, 'w' };
        x = entry_new(REPL_BATCH, str_n(ops, sizeof(ops)));
        assert_true(entry_check(REPL_BATCH, str_n(ops, sizeof(ops))));
        x->index = index + (uint64_t)cf;
        x->term = 9;
        assert_int_equal(apply_entry(k, x, &e), 0);
        entry_unref(x);
    }
}

static void test_rocks(void **state)
{
    char *dir = kv_dir_new();
    struct kv *k = kv_dir_open(dir);
    uint64_t index, term;
    bool any;

    (void)state;
    assert_int_equal(apply_any_row(k, &any, &e), 0);
    assert_false(any);
    assert_int_equal(apply_read(k, &index, &term, &e), 0);
    assert_int_equal(index, 0);
    put_all(k, 100);
    assert_int_equal(rows(k), 2 * KV_CFS);
    assert_int_equal(kv_flush(k, &e), 0);
    put_all(k, 200); /* once more, in memory */
    kv_close(k);
    k = kv_dir_open(dir);
    assert_int_equal(apply_read(k, &index, &term, &e), 0);
    assert_int_equal(index, 200 + KV_CFS - 1);
    assert_int_equal(term, 9);
    assert_int_equal(apply_empty(k, &e), 0);
    assert_int_equal(rows(k), 0);
    kv_close(k);
    k = kv_dir_open(dir);
    assert_int_equal(rows(k), 0);
    assert_int_equal(apply_read(k, &index, &term, &e), 0);
    assert_true(index == APPLY_HALF);
    put_all(k, 300);
    assert_int_equal(rows(k), 2 * KV_CFS);
    assert_int_equal(apply_note(k, 400, 10, &e), 0);
    assert_int_equal(apply_read(k, &index, &term, &e), 0);
    assert_int_equal(index, 400);
    assert_int_equal(term, 10);
    kv_close(k);
    kv_dir_remove(dir);
}

/* ---- holes that versions without a list of synced logs left ---- */

static void put_upto(struct kv *k, uint64_t from, uint64_t upto)
{
    char ops[] = { KV_FINE, 1, 'a', 1, 'w' };

    for (uint64_t i = from; i <= upto; i++) {
        struct repl_entry *x = entry_new(REPL_BATCH, str_n(ops, sizeof(ops)));
        x->index = i;
        x->term = 1;
        assert_int_equal(apply_entry(k, x, &e), 0);
        entry_unref(x);
    }
}

/* The path of the newest log. */
static void newest_log(const char *dir, char path[4400])
{
    DIR *d = opendir(dir);
    struct dirent *one;
    char best[256] = "";

    assert_non_null(d);
    while ((one = readdir(d)) != NULL)
        if (str_ends(str_c(one->d_name), STR(".log")) && strcmp(one->d_name, best) > 0)
            memcpy(best, one->d_name, strlen(one->d_name) + 1);
    (void)closedir(d);
    (void)snprintf(path, 4400, "%s/%s", dir, best);
}

/* As a version leaves it that has no list. */
static void close_old(struct kv *k, const char *dir)
{
    char path[4400];

    kv_close(k);
    (void)snprintf(path, sizeof(path), "%s/synced-wals", dir);
    assert_int_equal(unlink(path), 0);
}

/* Entries 1 to 10 in tables, if flushed, to 30 in one log, to 40 in the next; of the first one so
 * many stay. */
static int check_with(uint64_t stay, bool flushed)
{
    char *dir = kv_dir_new(), first[4400];
    struct kv *k = kv_dir_open(dir);
    struct stat st = { 0 };
    int rc;

    put_upto(k, 1, 10);
    if (flushed)
        assert_int_equal(kv_flush(k, &e), 0);
    newest_log(dir, first);
    put_upto(k, 11, stay);
    if (stay)
        assert_int_equal(stat(first, &st), 0);
    put_upto(k, MAX(stay, 10) + 1, 30);
    close_old(k, dir);
    k = kv_dir_open(dir);
    put_upto(k, 31, 40);
    close_old(k, dir);
    assert_int_equal(truncate(first, st.st_size), 0);
    rc = apply_check_files(dir, &e);
    k = kv_dir_open(dir); /* as before this check */
    uint64_t index, term;
    struct err own;
    assert_int_equal(apply_read(k, &index, &term, &own), 0);
    assert_int_equal(index, 40);
    kv_close(k);
    assert_int_equal(apply_check_files(dir, &own), 0); /* the list says what opening finds */
    kv_dir_remove(dir);
    return rc;
}

static void test_holes(void **state)
{
    (void)state;
    for (int flushed = 0; flushed < 2; flushed++) {
        assert_int_equal(check_with(30, flushed), 0);
        assert_int_equal(check_with(29, flushed), ERR_CORRUPT);
        assert_non_null(strstr(e.text, "batch 29 is followed by batch 31"));
        assert_int_equal(check_with(12, flushed), ERR_CORRUPT);
        assert_int_equal(check_with(0, flushed), ERR_CORRUPT);
    }
}

/* Half a database, the only copy, an emptied database, and none: no holes. */
static void test_no_holes(void **state)
{
    char *dir = kv_dir_new();
    struct kv *k = kv_dir_open(dir);

    (void)state;
    assert_int_equal(apply_note(k, 1, 1, &e), 0);
    put_upto(k, 2, 5);
    assert_int_equal(apply_empty(k, &e), 0);
    assert_int_equal(apply_note(k, 900, 3, &e), 0);
    put_upto(k, 901, 905);
    assert_int_equal(apply_forget(k, &e), 0);
    close_old(k, dir);
    assert_int_equal(apply_check_files(dir, &e), 0);
    k = kv_dir_open(dir);
    assert_int_equal(apply_note(k, 1, 1, &e), 0);
    put_upto(k, 2, 5);
    assert_int_equal(k->ops->flush_soon(k, KV_META, &e), 0); /* the log is left to other families */
    put_upto(k, 6, 9);
    close_old(k, dir);
    assert_int_equal(apply_check_files(dir, &e), 0);
    kv_dir_remove(dir);
    dir = kv_dir_new();
    assert_int_equal(apply_check_files(dir, &e), 0);
    kv_dir_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rocks),
        cmocka_unit_test(test_holes),
        cmocka_unit_test(test_no_holes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

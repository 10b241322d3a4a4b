/* SPDX-License-Identifier: Apache-2.0
 *
 * Entries into a RocksDB, its emptying for a snapshot, and the note of how far it is.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/repl/apply.h"
#include "tests/lib/kv_dir.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rocks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * What kv.h promises: one body of tests for both implementations.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/base/wr.h"
#include "common/store/kv/kv_impl.h"
#include "tests/lib/store/kv_fixture.h"

static struct err e;

static void test_put_get_del(void **state)
{
    (void)state;
    kvt_want(NULL, KV_RAW, "a", NULL);
    kvt_put(KV_RAW, "a", "1");
    kvt_put(KV_RAW, "empty", "");
    kvt_put(KV_RAW, "", "no key");
    kvt_put(KV_META, "a", "other family");
    kvt_want(NULL, KV_RAW, "a", NULL); /* not before the write */
    kvt_commit();
    kvt_want(NULL, KV_RAW, "a", "1");
    kvt_want(NULL, KV_RAW, "empty", "");
    kvt_want(NULL, KV_RAW, "", "no key");
    kvt_want(NULL, KV_META, "a", "other family");
    kvt_want(NULL, KV_WID, "a", NULL);
    kvt_put(KV_RAW, "a", "2");
    kvt_commit();
    kvt_want(NULL, KV_RAW, "a", "2");
    kv_batch_del(kvt.b, KV_RAW, STR("a"));
    kv_batch_del(kvt.b, KV_RAW, STR("was never there"));
    kvt_commit();
    kvt_want(NULL, KV_RAW, "a", NULL);
    kvt_want(NULL, KV_META, "a", "other family");
    kvt_reopen();
    kvt_want(NULL, KV_RAW, "a", NULL);
    kvt_want(NULL, KV_META, "a", "other family");
}

static void test_bytes_are_bytes(void **state)
{
    struct str low = str_n("\0", 1), high = str_n("\xff\0\xff", 3), value = str_n("\0\n\xff", 3);

    (void)state;
    kv_batch_put(kvt.b, KV_FN, high, value);
    kv_batch_put(kvt.b, KV_FN, low, STR_NULL);
    kv_batch_put(kvt.b, KV_FN, STR("\x7f"), STR("mid"));
    kvt_commit();
    struct kv_iter *it = kv_iter_new(kvt.k, NULL, KV_FN, STR_NULL, STR_NULL);
    assert_true(str_eq(kv_iter_key(it), low)); /* unsigned order */
    assert_int_equal(kv_iter_value(it).len, 0);
    kv_iter_next(it);
    assert_true(str_eqc(kv_iter_key(it), "\x7f"));
    kv_iter_next(it);
    assert_true(str_eq(kv_iter_key(it), high));
    assert_true(str_eq(kv_iter_value(it), value));
    kv_iter_next(it);
    assert_false(kv_iter_valid(it));
    kv_iter_free(it);
}

static void test_order_inside_a_batch(void **state)
{
    (void)state;
    kvt_put(KV_TL, "a", "1");
    kvt_put(KV_TL, "b", "1");
    kvt_put(KV_TL, "c", "1");
    kvt_put(KV_TL, "d", "1");
    kvt_commit();
    kvt_put(KV_TL, "a", "2");
    kvt_put(KV_TL, "a", "3");
    kv_batch_del(kvt.b, KV_TL, STR("b"));
    kvt_put(KV_TL, "b", "4");
    kvt_put(KV_TL, "c", "5");
    kv_batch_del(kvt.b, KV_TL, STR("c"));
    kvt_put(KV_TL, "e", "6");
    kv_batch_del_range(kvt.b, KV_TL, STR("d"), STR("f"));
    kvt_put(KV_TL, "d2", "7");
    assert_int_equal(kv_batch_count(kvt.b), 9);
    kvt_commit();
    kvt_want_range(NULL, KV_TL, NULL, NULL, "a=3 b=4 d2=7");
}

static void test_del_range(void **state)
{
    (void)state;
    for (const char *p = "abcdef"; *p; p++)
        kv_batch_put(kvt.b, KV_RAW, str_n(p, 1), STR("x"));
    kvt_put(KV_FINE, "c", "stays");
    kvt_commit();
    kv_batch_del_range(kvt.b, KV_RAW, STR("b"), STR("d"));
    kv_batch_del_range(kvt.b, KV_RAW, STR("f"), STR("e")); /* backwards: nothing */
    kv_batch_del_range(kvt.b, KV_RAW, STR("a"), STR("a"));
    assert_int_equal(kv_batch_count(kvt.b), 1);
    kvt_commit();
    kvt_want_range(NULL, KV_RAW, NULL, NULL, "a=x d=x e=x f=x");
    kvt_want(NULL, KV_RAW, "b", NULL);
    kvt_want(NULL, KV_FINE, "c", "stays");
    kv_batch_del_range(kvt.b, KV_RAW, STR_NULL, STR("\xff"));
    kvt_commit();
    kvt_want_range(NULL, KV_RAW, NULL, NULL, "");
    kvt_reopen();
    kvt_want_range(NULL, KV_RAW, NULL, NULL, "");
    kvt_want(NULL, KV_FINE, "c", "stays");
}

static void test_append(void **state)
{
    struct kv_batch *other = kv_batch_new();

    (void)state;
    kvt_put(KV_RAW, "a", "1");
    kv_batch_put(other, KV_RAW, STR("a"), STR("2"));
    kv_batch_put(other, KV_WID, STR("w"), STR("3"));
    kv_batch_append(kvt.b, other);
    assert_int_equal(kv_batch_count(kvt.b), 3);
    assert_true(kv_batch_bytes(kvt.b) > kv_batch_bytes(other));
    kv_batch_clear(other);
    kv_batch_append(kvt.b, other);
    assert_int_equal(kv_batch_count(kvt.b), 3);
    kv_batch_free(other);
    kvt_commit();
    kvt_want(NULL, KV_RAW, "a", "2");
    kvt_want(NULL, KV_WID, "w", "3");
}

/* What is taken out of a batch is what was put last, wherever its bytes moved to meanwhile. */
static void test_part(void **state)
{
    size_t end[2];

    (void)state;
    kv_batch_reserve(kvt.b, 100);
    assert_int_equal(kv_batch_bytes(kvt.b), 0);
    kv_batch_put(kvt.b, KV_RAW, STR("a"), STR("first"));
    end[0] = kv_batch_bytes(kvt.b);
    kv_batch_put(kvt.b, KV_RAW, STR("b"), STR("second"));
    end[1] = kv_batch_bytes(kvt.b);
    for (int i = 0; i < 1000; i++)
        kv_batch_del(kvt.b, KV_RAW, STR("absent"));
    kv_batch_reserve(kvt.b, SIZE_MAX / 2); /* more than there can be: nothing */
    assert_true(str_eqc(kv_batch_part(kvt.b, end[0] - 5, 5), "first"));
    assert_true(str_eqc(kv_batch_part(kvt.b, end[1] - 6, 6), "second"));
    kvt_commit();
    kvt_want(NULL, KV_RAW, "b", "second");
}

static void test_batch_over_its_limit(void **state)
{
    struct kv_batch *other = kv_batch_new();

    (void)state;
    other->ops.max = 100; /* in place of a gigabyte */
    for (int i = 0; i < 20; i++)
        kv_batch_put(other, KV_RAW, STR("key"), STR("0123456789"));
    assert_int_equal(kv_write(kvt.k, other, true, &e), ERR_LIMIT);
    kv_batch_append(kvt.b, other); /* does not hide it */
    assert_int_equal(kv_write(kvt.k, kvt.b, true, &e), ERR_LIMIT);
    kvt_want(NULL, KV_RAW, "key", NULL);
    kv_batch_clear(other);
    kv_batch_put(other, KV_RAW, STR("key"), STR("v"));
    assert_int_equal(kv_write(kvt.k, other, true, &e), 0);
    kvt_want(NULL, KV_RAW, "key", "v");
    kv_batch_free(other);
}

static void test_iterator_bounds(void **state)
{
    (void)state;
    for (const char *p = "bdfh"; *p; p++)
        kv_batch_put(kvt.b, KV_RU, str_n(p, 1), STR("x"));
    kvt_commit();
    kvt_want_range(NULL, KV_RU, NULL, NULL, "b=x d=x f=x h=x");
    kvt_want_range(NULL, KV_RU, "b", "h", "b=x d=x f=x");
    kvt_want_range(NULL, KV_RU, "c", NULL, "d=x f=x h=x");
    kvt_want_range(NULL, KV_RU, "c", "d", "");
    kvt_want_range(NULL, KV_RU, "i", NULL, "");
    kvt_want_range(NULL, KV_RU, "h", "b", "");
    kvt_want_range(NULL, KV_RU, NULL, "d0", "b=x d=x");
    kvt_want_range(NULL, KV_TL, NULL, NULL, "");
    struct kv_iter *it = kv_iter_new(kvt.k, NULL, KV_RU, STR("c"), STR("h"));
    kv_iter_seek(it, STR("e"));
    assert_true(str_eqc(kv_iter_key(it), "f"));
    kv_iter_seek(it, STR("a")); /* not below the bounds */
    assert_true(str_eqc(kv_iter_key(it), "d"));
    kv_iter_seek(it, STR("h"));
    assert_false(kv_iter_valid(it));
    kv_iter_seek(it, STR("d")); /* and back */
    assert_true(str_eqc(kv_iter_key(it), "d"));
    assert_int_equal(kv_iter_status(it, &e), 0);
    kv_iter_free(it);
    kv_iter_free(NULL);
}

static void test_snapshots(void **state)
{
    (void)state;
    kvt_put(KV_RAW, "a", "1");
    kvt_put(KV_RAW, "b", "1");
    kvt_commit();
    struct kv_snap *one = kv_snap_new(kvt.k);
    kvt_put(KV_RAW, "a", "2");
    kv_batch_del(kvt.b, KV_RAW, STR("b"));
    kvt_put(KV_RAW, "c", "2");
    kvt_commit();
    struct kv_snap *two = kv_snap_new(kvt.k);
    kv_batch_del_range(kvt.b, KV_RAW, STR("a"), STR("z"));
    kvt_commit();
    assert_int_equal(kv_flush(kvt.k, &e), 0);
    kvt_want(one, KV_RAW, "a", "1");
    kvt_want(one, KV_RAW, "c", NULL);
    kvt_want_range(one, KV_RAW, NULL, NULL, "a=1 b=1");
    kvt_want_range(two, KV_RAW, NULL, NULL, "a=2 c=2");
    kvt_want_range(NULL, KV_RAW, NULL, NULL, "");
    kv_snap_free(kvt.k, one);
    for (int i = 0; i < 200; i++) { /* older versions are collected; the second still reads */
        kvt_put(KV_RAW, "a", "x");
        kv_batch_del(kvt.b, KV_RAW, STR("gone"));
        assert_int_equal(kv_write(kvt.k, kvt.b, true, &e), 0);
    }
    kv_batch_clear(kvt.b);
    kvt_want_range(two, KV_RAW, NULL, NULL, "a=2 c=2");
    kv_snap_free(kvt.k, two);
    kv_snap_free(kvt.k, NULL);
    kvt_want_range(NULL, KV_RAW, NULL, NULL, "a=x");
}

static void test_iterator_sees_its_moment(void **state)
{
    (void)state;
    kvt_put(KV_RAW, "a", "1");
    kvt_put(KV_RAW, "c", "1");
    kvt_commit();
    struct kv_iter *it = kv_iter_new(kvt.k, NULL, KV_RAW, STR_NULL, STR_NULL);
    kvt_put(KV_RAW, "b", "2");
    kvt_put(KV_RAW, "c", "2");
    kv_batch_del(kvt.b, KV_RAW, STR("a"));
    kvt_commit();
    assert_true(str_eqc(kv_iter_key(it), "a"));
    kv_iter_next(it);
    assert_true(str_eqc(kv_iter_key(it), "c"));
    assert_true(str_eqc(kv_iter_value(it), "1"));
    kv_iter_seek(it, STR("a"));
    assert_true(str_eqc(kv_iter_key(it), "a"));
    kv_iter_free(it);
    kvt_want_range(NULL, KV_RAW, NULL, NULL, "b=2 c=2");
}

static void test_large_values(void **state)
{
    size_t n = 5 * MIB;
    char *big = xmalloc(n);

    (void)state;
    kvt_fill(big, n, 1);
    for (int i = 0; i < 4; i++) {
        char key[8];
        snprintf(key, sizeof(key), "k%d", i);
        kv_batch_put(kvt.b, KV_COARSE, str_c(key), str_n(big, n));
        kvt_commit();
    }
    assert_int_equal(kv_flush(kvt.k, &e), 0);
    kvt_reopen();
    /* Rows larger than a shard of the cache: read past it, by get and by iterator. */
    assert_int_equal(kv_get(kvt.k, NULL, KV_COARSE, STR("k2"), &kvt.out, &e), 0);
    assert_int_equal(kvt.out.len, n);
    assert_memory_equal(kvt.out.ptr, big, n);
    struct kv_iter *it = kv_iter_new(kvt.k, NULL, KV_COARSE, STR("k1"), STR_NULL);
    int rows = 0;
    for (; kv_iter_valid(it); kv_iter_next(it), rows++) {
        assert_int_equal(kv_iter_key(it).ptr[1], '1' + rows);
        assert_int_equal(kv_iter_value(it).len, n);
        assert_memory_equal(kv_iter_value(it).ptr, big, n);
    }
    assert_int_equal(kv_iter_status(it, &e), 0);
    kv_iter_free(it);
    assert_int_equal(rows, 3);
    struct buf small;
    buf_init(&small, n - 1);
    assert_int_equal(kv_get(kvt.k, NULL, KV_COARSE, STR("k2"), &small, &e), ERR_LIMIT);
    buf_deinit(&small);
    xfree(big);
}

static void test_flush_and_stats(void **state)
{
    struct kv_stats s;

    (void)state;
    for (int i = 0; i < 1000; i++) {
        char key[16];
        snprintf(key, sizeof(key), "%05d", i);
        kvt_put(KV_FINE, key, "some value");
    }
    kvt_commit();
    kv_stats(kvt.k, &s);
    assert_true(s.memtable_bytes > 10000);
    assert_true(s.keys_estimate[KV_FINE] >= 900 && s.keys_estimate[KV_FINE] <= 1100);
    assert_int_equal(s.keys_estimate[KV_RAW], 0);
    assert_int_equal(kv_flush(kvt.k, &e), 0);
    kv_stats(kvt.k, &s);
    if (kvt.rocks)
        assert_true(s.file_bytes[KV_FINE] > 1000 && s.file_bytes[KV_RAW] == 0);
    assert_true(s.keys_estimate[KV_FINE] >= 900);
    kvt_want(NULL, KV_FINE, "00999", "some value");
    kvt_reopen();
    kvt_want(NULL, KV_FINE, "00999", "some value");
    assert_int_equal(kv_write(kvt.k, kvt.b, true, &e), 0); /* empty: syncs */
    assert_int_equal(kv_write(kvt.k, kvt.b, false, &e), 0);
}

static void test_families_are_apart(void **state)
{
    (void)state;
    for (int cf = 0; cf < KV_CFS; cf++) {
        char value[2] = { (char)('0' + cf), 0 };
        kvt_put((enum kv_cf)cf, "k", value);
    }
    assert_int_equal(kv_write(kvt.k, kvt.b, true, &e), 0);
    kvt_reopen();
    for (int cf = 0; cf < KV_CFS; cf++) {
        char value[4] = { 'k', '=', (char)('0' + cf), 0 };
        kvt_want_range(NULL, (enum kv_cf)cf, NULL, NULL, value);
    }
}

/* One thread writes the same number to all families, others look: in a snapshot and in what an
 * iterator sees all numbers are one, and they only grow. */
#define WRITES  600
#define READERS 3

static void write_number(struct kv_batch *b, uint32_t n)
{
    char value[4];

    put_u32be(value, n);
    kv_batch_clear(b);
    for (int cf = 0; cf < KV_CFS; cf++)
        kv_batch_put(b, (enum kv_cf)cf, STR("n"), str_n(value, 4));
    if (n % 2)
        kv_batch_put(b, KV_RAW, STR("odd"), STR("1"));
    else
        kv_batch_del(b, KV_RAW, STR("odd"));
    CHECK(kv_write(kvt.k, b, n % 50 == 0, &e) == 0);
}

static void *reader(void *arg)
{
    uint32_t last = 0;
    struct buf out;
    struct err mine;

    (void)arg;
    buf_init(&out, KIB);
    while (last < WRITES) {
        struct kv_snap *s = kv_snap_new(kvt.k);
        for (int cf = 0; cf < KV_CFS; cf++) {
            CHECK(kv_get(kvt.k, s, (enum kv_cf)cf, STR("n"), &out, &mine) == 0 && out.len == 4);
            uint32_t n = get_u32be(out.ptr);
            CHECK(cf == 0 ? n >= last : n == last);
            last = n;
        }
        struct kv_iter *it = kv_iter_new(kvt.k, s, KV_RAW, STR_NULL, STR_NULL);
        CHECK(get_u32be(kv_iter_value(it).ptr) == last);
        kv_iter_next(it);
        CHECK(kv_iter_valid(it) == last % 2);
        kv_iter_free(it);
        kv_snap_free(kvt.k, s);
        it = kv_iter_new(kvt.k, NULL, KV_RAW, STR_NULL, STR_NULL);
        uint32_t now = get_u32be(kv_iter_value(it).ptr);
        kv_iter_next(it);
        CHECK(now >= last && kv_iter_valid(it) == now % 2);
        kv_iter_free(it);
    }
    buf_deinit(&out);
    return NULL;
}

static void test_readers_beside_a_writer(void **state)
{
    pthread_t id[READERS];

    (void)state;
    write_number(kvt.b, 0);
    for (int i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&id[i], NULL, reader, NULL), 0);
    for (uint32_t n = 1; n <= WRITES; n++)
        write_number(kvt.b, n);
    for (int i = 0; i < READERS; i++)
        pthread_join(id[i], NULL);
}

/* Files of one range each, as buckets have them: what lies in the range goes, to the byte. */
static void test_drop_range(void **state)
{
    char key[3] = { 0 }, bytes[4096];
    size_t left = 0;

    (void)state;
    for (unsigned file = 0; file < 4; file++) {
        for (unsigned i = 0; i < 64; i++) {
            kvt_fill(bytes, sizeof(bytes), file * 64 + i);
            key[0] = (char)('a' + file);
            key[1] = (char)i;
            kv_batch_put(kvt.b, KV_FINE, str_n(key, 2), str_n(bytes, sizeof(bytes)));
        }
        kvt_commit();
        assert_int_equal(kv_flush(kvt.k, &e), 0);
    }
    kvt_put(KV_FINE, "bb", "in the memtable");
    kvt_put(KV_COARSE, "bb", "another family");
    kvt_commit();
    assert_int_equal(kv_drop_range(kvt.k, KV_FINE, STR("a\x20"), STR("c"), &e), 0);
    assert_int_equal(kv_drop_range(kvt.k, KV_FINE, STR("c"), STR("b"), &e), 0);
    struct kv_iter *it = kv_iter_new(kvt.k, NULL, KV_FINE, STR_NULL, STR_NULL);
    for (; kv_iter_valid(it); kv_iter_next(it), left++)
        assert_true(str_cmp(kv_iter_key(it), STR("a\x20")) < 0 ||
                    str_cmp(kv_iter_key(it), STR("c")) >= 0);
    kv_iter_free(it);
    assert_int_equal(left, 32 + 128);
    kvt_want(NULL, KV_COARSE, "bb", "another family");
    kvt_reopen();
    kvt_want(NULL, KV_FINE, "bb", NULL);
}

/* Once a file has left level 0, a drop frees it at once. */
static void test_drop_range_frees_files(void **state)
{
    struct kv_stats st = { 0 };
    char key[2], bytes[16384];
    uint64_t before;

    (void)state;
    for (unsigned file = 0; file < 8; file++) {
        for (unsigned i = 0; i < 32; i++) {
            kvt_fill(bytes, sizeof(bytes), file * 32 + i);
            key[0] = (char)('a' + file);
            key[1] = (char)i;
            kv_batch_put(kvt.b, KV_COARSE, str_n(key, 2), str_n(bytes, sizeof(bytes)));
        }
        kvt_commit();
        assert_int_equal(kv_flush(kvt.k, &e), 0);
    }
    kv_stats(kvt.k, &st);
    before = st.file_bytes[KV_COARSE];
    assert_true(before > 8 * 32 * sizeof(bytes) / 10 * 9);
    for (unsigned tries = 0; st.file_bytes[KV_COARSE] > before / 4; tries++) {
        assert_true(tries < 24000); /* files are moved down in the background */
        assert_int_equal(kv_drop_range(kvt.k, KV_COARSE, STR("a"), STR("h"), &e), 0);
        kv_stats(kvt.k, &st);
        usleep(5000);
    }
    struct kv_iter *it = kv_iter_new(kvt.k, NULL, KV_COARSE, STR_NULL, STR_NULL);
    assert_true(kv_iter_valid(it) && kv_iter_key(it).ptr[0] == 'h');
    kv_iter_free(it);
}

#define BOTH(f)                                                \
    { #f " (rocks)", f, kvt_setup_rocks, kvt_teardown, NULL }, \
    {                                                          \
#f " (mem)", f, kvt_setup_mem, kvt_teardown, NULL      \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(test_put_get_del),
        BOTH(test_bytes_are_bytes),
        BOTH(test_order_inside_a_batch),
        BOTH(test_del_range),
        BOTH(test_drop_range),
        { "test_drop_range_frees_files (rocks)", test_drop_range_frees_files, kvt_setup_rocks,
          kvt_teardown, NULL },
        BOTH(test_append),
        BOTH(test_part),
        BOTH(test_batch_over_its_limit),
        BOTH(test_iterator_bounds),
        BOTH(test_snapshots),
        BOTH(test_iterator_sees_its_moment),
        BOTH(test_large_values),
        BOTH(test_flush_and_stats),
        BOTH(test_families_are_apart),
        BOTH(test_readers_beside_a_writer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

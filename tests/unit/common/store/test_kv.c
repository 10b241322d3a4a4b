/* SPDX-License-Identifier: Apache-2.0
 *
 * One body of tests for both implementations of kv.h; faults and crashes of each at the end.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cmocka.h>
#include <rocksdb/c.h>

#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/base/wr.h"
#include "common/store/kv_impl.h"
#include "common/store/kv_mem.h"
#include "tests/lib/kv_dir.h"

static struct {
    bool rocks;
    char *dir;
    struct kv *k;
    struct kv_batch *b;
    struct buf out;
    struct kv_mem_faults faults;
} t;
static struct err e;

static int setup(bool rocks)
{
    memset(&t, 0, sizeof(t));
    t.rocks = rocks;
    t.b = kv_batch_new();
    buf_init(&t.out, 64 * MIB);
    if (rocks) {
        t.dir = kv_dir_new();
        t.k = kv_dir_open(t.dir);
    } else {
        t.k = kv_mem_new(&t.faults);
    }
    return 0;
}

static int setup_rocks(void **state)
{
    (void)state;
    return setup(true);
}

static int setup_mem(void **state)
{
    (void)state;
    return setup(false);
}

static int teardown(void **state)
{
    (void)state;
    kv_close(t.k);
    kv_batch_free(t.b);
    buf_deinit(&t.out);
    kv_dir_remove(t.dir);
    return 0;
}

static void reopen(void)
{
    if (t.rocks) {
        kv_close(t.k);
        t.k = kv_dir_open(t.dir);
    } else {
        t.k = kv_mem_reopen(t.k, KV_MEM_KILL, 0);
    }
}

static void put(enum kv_cf cf, const char *key, const char *value)
{
    kv_batch_put(t.b, cf, str_c(key), str_c(value));
}

static void commit(void)
{
    assert_int_equal(kv_write(t.k, t.b, false, &e), 0);
    kv_batch_clear(t.b);
}

/* NULL = not there. */
static void want(const struct kv_snap *s, enum kv_cf cf, const char *key, const char *value)
{
    int rc = kv_get(t.k, s, cf, str_c(key), &t.out, &e);

    if (!value) {
        assert_int_equal(rc, ERR_NOT_FOUND);
        return;
    }
    assert_int_equal(rc, 0);
    if (!str_eqc(buf_str(&t.out), value))
        fail_msg("%s is %.*s, not %s", key, STR_ARG(buf_str(&t.out)), value);
}

/* All of [from, to) as "k=v k=v". */
static void want_range(const struct kv_snap *s, enum kv_cf cf, const char *from, const char *to,
                       const char *text)
{
    struct kv_iter *it = kv_iter_new(t.k, s, cf, str_c(from), str_c(to));

    buf_reset(&t.out);
    for (; kv_iter_valid(it); kv_iter_next(it)) {
        if (t.out.len)
            buf_add_c(&t.out, ' ');
        buf_add_str(&t.out, kv_iter_key(it));
        buf_add_c(&t.out, '=');
        buf_add_str(&t.out, kv_iter_value(it));
    }
    assert_int_equal(kv_iter_status(it, &e), 0);
    kv_iter_free(it);
    if (!str_eqc(buf_str(&t.out), text))
        fail_msg("[%s, %s) is '%.*s', not '%s'", from ? from : "", to ? to : "",
                 STR_ARG(buf_str(&t.out)), text);
}

static void test_put_get_del(void **state)
{
    (void)state;
    want(NULL, KV_RAW, "a", NULL);
    put(KV_RAW, "a", "1");
    put(KV_RAW, "empty", "");
    put(KV_RAW, "", "no key");
    put(KV_META, "a", "other family");
    want(NULL, KV_RAW, "a", NULL); /* not before the write */
    commit();
    want(NULL, KV_RAW, "a", "1");
    want(NULL, KV_RAW, "empty", "");
    want(NULL, KV_RAW, "", "no key");
    want(NULL, KV_META, "a", "other family");
    want(NULL, KV_WID, "a", NULL);
    put(KV_RAW, "a", "2");
    commit();
    want(NULL, KV_RAW, "a", "2");
    kv_batch_del(t.b, KV_RAW, STR("a"));
    kv_batch_del(t.b, KV_RAW, STR("was never there"));
    commit();
    want(NULL, KV_RAW, "a", NULL);
    want(NULL, KV_META, "a", "other family");
    reopen();
    want(NULL, KV_RAW, "a", NULL);
    want(NULL, KV_META, "a", "other family");
}

static void test_bytes_are_bytes(void **state)
{
    struct str low = str_n("\0", 1), high = str_n("\xff\0\xff", 3), value = str_n("\0\n\xff", 3);

    (void)state;
    kv_batch_put(t.b, KV_FN, high, value);
    kv_batch_put(t.b, KV_FN, low, STR_NULL);
    kv_batch_put(t.b, KV_FN, STR("\x7f"), STR("mid"));
    commit();
    struct kv_iter *it = kv_iter_new(t.k, NULL, KV_FN, STR_NULL, STR_NULL);
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
    put(KV_TL, "a", "1");
    put(KV_TL, "b", "1");
    put(KV_TL, "c", "1");
    put(KV_TL, "d", "1");
    commit();
    put(KV_TL, "a", "2");
    put(KV_TL, "a", "3");
    kv_batch_del(t.b, KV_TL, STR("b"));
    put(KV_TL, "b", "4");
    put(KV_TL, "c", "5");
    kv_batch_del(t.b, KV_TL, STR("c"));
    put(KV_TL, "e", "6");
    kv_batch_del_range(t.b, KV_TL, STR("d"), STR("f"));
    put(KV_TL, "d2", "7");
    assert_int_equal(kv_batch_count(t.b), 9);
    commit();
    want_range(NULL, KV_TL, NULL, NULL, "a=3 b=4 d2=7");
}

static void test_del_range(void **state)
{
    (void)state;
    for (const char *p = "abcdef"; *p; p++)
        kv_batch_put(t.b, KV_RAW, str_n(p, 1), STR("x"));
    put(KV_FINE, "c", "stays");
    commit();
    kv_batch_del_range(t.b, KV_RAW, STR("b"), STR("d"));
    kv_batch_del_range(t.b, KV_RAW, STR("f"), STR("e")); /* backwards: nothing */
    kv_batch_del_range(t.b, KV_RAW, STR("a"), STR("a"));
    assert_int_equal(kv_batch_count(t.b), 1);
    commit();
    want_range(NULL, KV_RAW, NULL, NULL, "a=x d=x e=x f=x");
    want(NULL, KV_RAW, "b", NULL);
    want(NULL, KV_FINE, "c", "stays");
    kv_batch_del_range(t.b, KV_RAW, STR_NULL, STR("\xff"));
    commit();
    want_range(NULL, KV_RAW, NULL, NULL, "");
    reopen();
    want_range(NULL, KV_RAW, NULL, NULL, "");
    want(NULL, KV_FINE, "c", "stays");
}

static void test_append(void **state)
{
    struct kv_batch *other = kv_batch_new();

    (void)state;
    put(KV_RAW, "a", "1");
    kv_batch_put(other, KV_RAW, STR("a"), STR("2"));
    kv_batch_put(other, KV_WID, STR("w"), STR("3"));
    kv_batch_append(t.b, other);
    assert_int_equal(kv_batch_count(t.b), 3);
    assert_true(kv_batch_bytes(t.b) > kv_batch_bytes(other));
    kv_batch_clear(other);
    kv_batch_append(t.b, other);
    assert_int_equal(kv_batch_count(t.b), 3);
    kv_batch_free(other);
    commit();
    want(NULL, KV_RAW, "a", "2");
    want(NULL, KV_WID, "w", "3");
}

static void test_batch_over_its_limit(void **state)
{
    struct kv_batch *other = kv_batch_new();

    (void)state;
    other->ops.max = 100; /* in place of a gigabyte */
    for (int i = 0; i < 20; i++)
        kv_batch_put(other, KV_RAW, STR("key"), STR("0123456789"));
    assert_int_equal(kv_write(t.k, other, true, &e), ERR_LIMIT);
    kv_batch_append(t.b, other); /* does not hide it */
    assert_int_equal(kv_write(t.k, t.b, true, &e), ERR_LIMIT);
    want(NULL, KV_RAW, "key", NULL);
    kv_batch_clear(other);
    kv_batch_put(other, KV_RAW, STR("key"), STR("v"));
    assert_int_equal(kv_write(t.k, other, true, &e), 0);
    want(NULL, KV_RAW, "key", "v");
    kv_batch_free(other);
}

static void test_iterator_bounds(void **state)
{
    (void)state;
    for (const char *p = "bdfh"; *p; p++)
        kv_batch_put(t.b, KV_RU, str_n(p, 1), STR("x"));
    commit();
    want_range(NULL, KV_RU, NULL, NULL, "b=x d=x f=x h=x");
    want_range(NULL, KV_RU, "b", "h", "b=x d=x f=x");
    want_range(NULL, KV_RU, "c", NULL, "d=x f=x h=x");
    want_range(NULL, KV_RU, "c", "d", "");
    want_range(NULL, KV_RU, "i", NULL, "");
    want_range(NULL, KV_RU, "h", "b", "");
    want_range(NULL, KV_RU, NULL, "d0", "b=x d=x");
    want_range(NULL, KV_TL, NULL, NULL, "");
    struct kv_iter *it = kv_iter_new(t.k, NULL, KV_RU, STR("c"), STR("h"));
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
    put(KV_RAW, "a", "1");
    put(KV_RAW, "b", "1");
    commit();
    struct kv_snap *one = kv_snap_new(t.k);
    put(KV_RAW, "a", "2");
    kv_batch_del(t.b, KV_RAW, STR("b"));
    put(KV_RAW, "c", "2");
    commit();
    struct kv_snap *two = kv_snap_new(t.k);
    kv_batch_del_range(t.b, KV_RAW, STR("a"), STR("z"));
    commit();
    assert_int_equal(kv_flush(t.k, &e), 0);
    want(one, KV_RAW, "a", "1");
    want(one, KV_RAW, "c", NULL);
    want_range(one, KV_RAW, NULL, NULL, "a=1 b=1");
    want_range(two, KV_RAW, NULL, NULL, "a=2 c=2");
    want_range(NULL, KV_RAW, NULL, NULL, "");
    kv_snap_free(t.k, one);
    for (int i = 0; i < 200; i++) { /* older versions are collected; the second still reads */
        put(KV_RAW, "a", "x");
        kv_batch_del(t.b, KV_RAW, STR("gone"));
        assert_int_equal(kv_write(t.k, t.b, true, &e), 0);
    }
    kv_batch_clear(t.b);
    want_range(two, KV_RAW, NULL, NULL, "a=2 c=2");
    kv_snap_free(t.k, two);
    kv_snap_free(t.k, NULL);
    want_range(NULL, KV_RAW, NULL, NULL, "a=x");
}

static void test_iterator_sees_its_moment(void **state)
{
    (void)state;
    put(KV_RAW, "a", "1");
    put(KV_RAW, "c", "1");
    commit();
    struct kv_iter *it = kv_iter_new(t.k, NULL, KV_RAW, STR_NULL, STR_NULL);
    put(KV_RAW, "b", "2");
    put(KV_RAW, "c", "2");
    kv_batch_del(t.b, KV_RAW, STR("a"));
    commit();
    assert_true(str_eqc(kv_iter_key(it), "a"));
    kv_iter_next(it);
    assert_true(str_eqc(kv_iter_key(it), "c"));
    assert_true(str_eqc(kv_iter_value(it), "1"));
    kv_iter_seek(it, STR("a"));
    assert_true(str_eqc(kv_iter_key(it), "a"));
    kv_iter_free(it);
    want_range(NULL, KV_RAW, NULL, NULL, "b=2 c=2");
}

/* Bytes no compressor can shorten. */
static void hash_fill(char *p, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (char)(hash_u64(seed << 32 | i) & 0xff);
}

static void test_large_values(void **state)
{
    size_t n = 5 * MIB;
    char *big = xmalloc(n);

    (void)state;
    hash_fill(big, n, 1);
    for (int i = 0; i < 4; i++) {
        char key[8];
        snprintf(key, sizeof(key), "k%d", i);
        kv_batch_put(t.b, KV_COARSE, str_c(key), str_n(big, n));
        commit();
    }
    assert_int_equal(kv_flush(t.k, &e), 0);
    reopen();
    /* Rows larger than a shard of the cache: read past it, by get and by iterator. */
    assert_int_equal(kv_get(t.k, NULL, KV_COARSE, STR("k2"), &t.out, &e), 0);
    assert_int_equal(t.out.len, n);
    assert_memory_equal(t.out.ptr, big, n);
    struct kv_iter *it = kv_iter_new(t.k, NULL, KV_COARSE, STR("k1"), STR_NULL);
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
    assert_int_equal(kv_get(t.k, NULL, KV_COARSE, STR("k2"), &small, &e), ERR_LIMIT);
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
        put(KV_FINE, key, "some value");
    }
    commit();
    kv_stats(t.k, &s);
    assert_true(s.memtable_bytes > 10000);
    assert_true(s.keys_estimate[KV_FINE] >= 900 && s.keys_estimate[KV_FINE] <= 1100);
    assert_int_equal(s.keys_estimate[KV_RAW], 0);
    assert_int_equal(kv_flush(t.k, &e), 0);
    kv_stats(t.k, &s);
    if (t.rocks)
        assert_true(s.file_bytes[KV_FINE] > 1000 && s.file_bytes[KV_RAW] == 0);
    assert_true(s.keys_estimate[KV_FINE] >= 900);
    want(NULL, KV_FINE, "00999", "some value");
    reopen();
    want(NULL, KV_FINE, "00999", "some value");
    assert_int_equal(kv_write(t.k, t.b, true, &e), 0); /* empty: syncs */
    assert_int_equal(kv_write(t.k, t.b, false, &e), 0);
}

static void test_families_are_apart(void **state)
{
    (void)state;
    for (int cf = 0; cf < KV_CFS; cf++) {
        char value[2] = { (char)('0' + cf), 0 };
        put((enum kv_cf)cf, "k", value);
    }
    assert_int_equal(kv_write(t.k, t.b, true, &e), 0);
    reopen();
    for (int cf = 0; cf < KV_CFS; cf++) {
        char value[4] = { 'k', '=', (char)('0' + cf), 0 };
        want_range(NULL, (enum kv_cf)cf, NULL, NULL, value);
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
    CHECK(kv_write(t.k, b, n % 50 == 0, &e) == 0);
}

static void *reader(void *arg)
{
    uint32_t last = 0;
    struct buf out;
    struct err mine;

    (void)arg;
    buf_init(&out, KIB);
    while (last < WRITES) {
        struct kv_snap *s = kv_snap_new(t.k);
        for (int cf = 0; cf < KV_CFS; cf++) {
            CHECK(kv_get(t.k, s, (enum kv_cf)cf, STR("n"), &out, &mine) == 0 && out.len == 4);
            uint32_t n = get_u32be(out.ptr);
            CHECK(cf == 0 ? n >= last : n == last);
            last = n;
        }
        struct kv_iter *it = kv_iter_new(t.k, s, KV_RAW, STR_NULL, STR_NULL);
        CHECK(get_u32be(kv_iter_value(it).ptr) == last);
        kv_iter_next(it);
        CHECK(kv_iter_valid(it) == last % 2);
        kv_iter_free(it);
        kv_snap_free(t.k, s);
        it = kv_iter_new(t.k, NULL, KV_RAW, STR_NULL, STR_NULL);
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
    write_number(t.b, 0);
    for (int i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&id[i], NULL, reader, NULL), 0);
    for (uint32_t n = 1; n <= WRITES; n++)
        write_number(t.b, n);
    for (int i = 0; i < READERS; i++)
        pthread_join(id[i], NULL);
}

/* ---- RocksDB only ---- */

static int try_open(const char *dir)
{
    struct kv_opts o = { .dir = dir, .background_bytes_per_s = MIB };
    struct kv *k = NULL;
    int rc = kv_rocks_open(&o, &k, &e);

    assert_true(rc ? k == NULL : k != NULL);
    kv_close(k);
    return rc;
}

static void test_rocks_open_errors(void **state)
{
    char path[4200];

    (void)state;
    assert_int_equal(try_open(t.dir), ERR_BUSY); /* t.k has it */
    assert_non_null(strstr(e.text, t.dir));
    snprintf(path, sizeof(path), "%s/no/such/parent", t.dir);
    assert_int_equal(try_open(path), ERR_IO);
    put(KV_RAW, "a", "1");
    commit();
    assert_int_equal(kv_flush(t.k, &e), 0);
    kv_close(t.k);
    t.k = NULL;
    assert_int_equal(try_open(t.dir), 0);
    /* A lost CURRENT must not become a new, empty database. */
    char current[4200], away[4200];
    snprintf(current, sizeof(current), "%s/CURRENT", t.dir);
    snprintf(away, sizeof(away), "%s/elsewhere", t.dir);
    assert_int_equal(rename(current, away), 0);
    assert_int_equal(try_open(t.dir), ERR_CORRUPT);
    assert_non_null(strstr(e.text, "CURRENT"));
    assert_int_equal(rename(away, current), 0);
    t.k = kv_dir_open(t.dir);
    want(NULL, KV_RAW, "a", "1");
}

static void test_rocks_refuses_a_newer_database(void **state)
{
    char *message = NULL;
    const char *names[KV_CFS + 1] = { "default", "raw", "fine", "coarse", "ru",
                                      "tl",      "fn",  "meta", "wid",    "exm" };
    const rocksdb_options_t *options[KV_CFS + 1];
    rocksdb_column_family_handle_t *cf[KV_CFS + 1];

    (void)state;
    kv_close(t.k);
    t.k = NULL;
    rocksdb_options_t *o = rocksdb_options_create();
    for (size_t i = 0; i < ARRAY_LEN(options); i++)
        options[i] = o;
    rocksdb_t *db =
        rocksdb_open_column_families(o, t.dir, KV_CFS + 1, names, options, cf, &message);
    assert_null(message);
    rocksdb_column_family_handle_t *extra =
        rocksdb_create_column_family(db, o, "invented_later", &message);
    assert_null(message);
    rocksdb_column_family_handle_destroy(extra);
    for (size_t i = 0; i < ARRAY_LEN(cf); i++)
        rocksdb_column_family_handle_destroy(cf[i]);
    rocksdb_close(db);
    rocksdb_options_destroy(o);
    assert_int_equal(try_open(t.dir), ERR_CONFIG);
    assert_non_null(strstr(e.text, "invented_later"));
}

/* A database in which only some families exist (killed while it was created) gets the others. */
static void test_rocks_completes_families(void **state)
{
    char *message = NULL;

    kv_close(t.k);
    kv_dir_remove(t.dir);
    t.dir = kv_dir_new();
    rocksdb_options_t *o = rocksdb_options_create();
    rocksdb_options_set_create_if_missing(o, 1);
    rocksdb_t *db = rocksdb_open(o, t.dir, &message);
    assert_null(message);
    rocksdb_close(db);
    rocksdb_options_destroy(o);
    t.k = kv_dir_open(t.dir);
    test_families_are_apart(state);
}

static void flip_byte(const char *dir, const char *suffix)
{
    char command[8500];

    /* The first such file, a byte in its first block. */
    snprintf(command, sizeof(command), "ls %s/*%s | head -1", dir, suffix);
    FILE *p = popen(command, "r");
    char path[4200] = "";
    assert_non_null(fgets(path, sizeof(path), p));
    pclose(p);
    path[strcspn(path, "\n")] = 0;
    int fd = open(path, O_RDWR);
    unsigned char c;
    assert_int_equal(pread(fd, &c, 1, 40), 1);
    c ^= 0x55;
    assert_int_equal(pwrite(fd, &c, 1, 40), 1);
    close(fd);
}

static void test_rocks_finds_corruption(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++) {
        char key[16];
        snprintf(key, sizeof(key), "%05d", i);
        put(KV_FINE, key, "a value that is long enough to matter here");
    }
    commit();
    assert_int_equal(kv_flush(t.k, &e), 0);
    kv_close(t.k);
    flip_byte(t.dir, ".sst");
    t.k = kv_dir_open(t.dir);
    assert_int_equal(kv_get(t.k, NULL, KV_FINE, STR("00000"), &t.out, &e), ERR_CORRUPT);
    struct kv_iter *it = kv_iter_new(t.k, NULL, KV_FINE, STR_NULL, STR_NULL);
    assert_false(kv_iter_valid(it));
    assert_int_equal(kv_iter_status(it, &e), ERR_CORRUPT);
    kv_iter_free(it);
}

/* A full disk: the write says so, nothing acked is lost, and after room was made it goes on. */
static void test_rocks_full_disk(void **state)
{
    char path[4200], fill[8300];

    (void)state;
    if (mount("tmpfs", t.dir, "tmpfs", 0, "size=24m")) {
        print_message("SKIPPED: full disk: cannot mount a tmpfs (%s)\n", strerror(errno));
        skip();
    }
    snprintf(path, sizeof(path), "%s/db", t.dir);
    snprintf(fill, sizeof(fill), "%s/fill", t.dir);
    struct kv *k = kv_dir_open(path);
    int fd = open(fill, O_CREAT | O_WRONLY, 0600), rc = 0;
    assert_int_equal(posix_fallocate(fd, 0, 8 * (off_t)MIB), 0);
    close(fd);
    char value[16384];
    int acked = 0;
    for (; acked < 5000 && !rc; acked += !rc) {
        char key[16];
        snprintf(key, sizeof(key), "%05d", acked);
        kv_batch_clear(t.b);
        hash_fill(value, sizeof(value), (uint64_t)acked);
        kv_batch_put(t.b, KV_RAW, str_c(key), str_n(value, sizeof(value)));
        rc = kv_write(k, t.b, true, &e);
    }
    assert_int_equal(rc, ERR_NO_SPACE);
    assert_true(acked > 100);
    assert_int_equal(kv_write(k, t.b, true, &e), ERR_NO_SPACE); /* and stays so */
    kv_close(k);
    assert_int_equal(unlink(fill), 0);
    k = kv_dir_open(path);
    for (int i = 0; i < acked; i++) {
        char key[16];
        snprintf(key, sizeof(key), "%05d", i);
        assert_int_equal(kv_get(k, NULL, KV_RAW, str_c(key), &t.out, &e), 0);
        assert_int_equal(t.out.len, sizeof(value));
    }
    assert_int_equal(kv_write(k, t.b, true, &e), 0);
    kv_close(k);
    kv_close(t.k); /* was opened below the mount */
    t.k = NULL;
    assert_int_equal(umount(t.dir), 0);
}

/* ---- the in-memory one only ---- */

static void test_mem_power_cut(void **state)
{
    (void)state;
    for (uint64_t keep = 0; keep <= 4; keep++) {
        kv_batch_clear(t.b);
        kv_batch_del_range(t.b, KV_RAW, STR_NULL, STR("\xff"));
        put(KV_RAW, "a", "synced");
        put(KV_RAW, "b", "synced");
        assert_int_equal(kv_write(t.k, t.b, true, &e), 0);
        kv_batch_clear(t.b);
        assert_int_equal(kv_mem_unsynced(t.k), 0);
        put(KV_RAW, "a", "1");
        put(KV_RAW, "c", "1");
        commit();
        kv_batch_del_range(t.b, KV_RAW, STR("a"), STR("z"));
        commit();
        put(KV_RAW, "b", "3");
        commit();
        assert_int_equal(kv_mem_unsynced(t.k), 3);
        want_range(NULL, KV_RAW, NULL, NULL, "b=3");
        t.k = kv_mem_reopen(t.k, KV_MEM_POWER, keep);
        static const char *const after[] = { "a=synced b=synced", "a=1 b=synced c=1", "", "b=3",
                                             "b=3" };
        want_range(NULL, KV_RAW, NULL, NULL, after[keep]);
        t.k = kv_mem_reopen(t.k, KV_MEM_POWER, 0); /* what was recovered is durable */
        want_range(NULL, KV_RAW, NULL, NULL, after[keep]);
    }
}

static void test_mem_kill_loses_nothing(void **state)
{
    (void)state;
    put(KV_RAW, "a", "1");
    commit();
    t.k = kv_mem_reopen(t.k, KV_MEM_KILL, 0);
    want_range(NULL, KV_RAW, NULL, NULL, "a=1");
}

static void test_mem_failing_writes(void **state)
{
    static const struct {
        int code;
        bool doubt;
        enum kv_mem_crash how;
        uint64_t keep;
        const char *after;
    } rows[] = {
        { ERR_IO, false, KV_MEM_KILL, 0, "a=1 b=2" },
        { ERR_NO_SPACE, false, KV_MEM_POWER, 9, "a=1 b=2" },
        { ERR_IO, false, KV_MEM_POWER, 0, "a=1" },
        { ERR_IO, true, KV_MEM_KILL, 0, "a=1 b=2 c=3" },
        { ERR_IO, true, KV_MEM_POWER, 2, "a=1 b=2 c=3" },
        { ERR_IO, true, KV_MEM_POWER, 1, "a=1 b=2" },
        { ERR_IO, true, KV_MEM_POWER, 0, "a=1" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        kv_batch_clear(t.b);
        kv_batch_del_range(t.b, KV_RAW, STR_NULL, STR("\xff"));
        put(KV_RAW, "a", "1");
        assert_int_equal(kv_write(t.k, t.b, true, &e), 0);
        kv_batch_clear(t.b);
        t.faults.fail_in = 2;
        t.faults.fail_code = rows[i].code;
        t.faults.fail_in_doubt = rows[i].doubt;
        put(KV_RAW, "b", "2");
        commit();
        put(KV_RAW, "c", "3");
        assert_int_equal(kv_write(t.k, t.b, true, &e), rows[i].code);
        want_range(NULL, KV_RAW, NULL, NULL, "a=1 b=2"); /* never visible before a restart */
        assert_int_equal(kv_write(t.k, t.b, true, &e), rows[i].code);
        assert_int_equal(kv_flush(t.k, &e), rows[i].code);
        assert_int_equal(kv_mem_unsynced(t.k), rows[i].doubt ? 2 : 1);
        t.k = kv_mem_reopen(t.k, rows[i].how, rows[i].keep);
        want_range(NULL, KV_RAW, NULL, NULL, rows[i].after);
    }
    t.faults.fail_gets_in = 2;
    assert_int_equal(kv_get(t.k, NULL, KV_RAW, STR("a"), &t.out, &e), 0);
    assert_int_equal(kv_get(t.k, NULL, KV_RAW, STR("a"), &t.out, &e), ERR_IO);
    assert_int_equal(kv_get(t.k, NULL, KV_RAW, STR("a"), &t.out, &e), 0);
}

/* Memory of dead versions comes back. */
static void test_mem_collects(void **state)
{
    struct kv_stats s;

    (void)state;
    for (int round = 0; round < 500; round++) {
        char key[16];
        snprintf(key, sizeof(key), "%d", round);
        put(KV_RAW, "same", "value");
        put(KV_RAW, key, "once");
        assert_int_equal(kv_write(t.k, t.b, true, &e), 0);
        kv_batch_clear(t.b);
        kv_batch_del(t.b, KV_RAW, str_c(key));
    }
    assert_int_equal(kv_write(t.k, t.b, true, &e), 0);
    assert_int_equal(kv_flush(t.k, &e), 0);
    kv_stats(t.k, &s);
    assert_int_equal(s.keys_estimate[KV_RAW], 1);
    assert_true(s.memtable_bytes < 500);
    want_range(NULL, KV_RAW, NULL, NULL, "same=value");
    assert_int_equal(t.faults.writes, 501);
    assert_int_equal(t.faults.syncs, 501);
}

#define BOTH(f)                                        \
    { #f " (rocks)", f, setup_rocks, teardown, NULL }, \
    {                                                  \
#f " (mem)", f, setup_mem, teardown, NULL      \
    }
#define ROCKS(f) cmocka_unit_test_setup_teardown(f, setup_rocks, teardown)
#define MEM(f)   cmocka_unit_test_setup_teardown(f, setup_mem, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(test_put_get_del),
        BOTH(test_bytes_are_bytes),
        BOTH(test_order_inside_a_batch),
        BOTH(test_del_range),
        BOTH(test_append),
        BOTH(test_batch_over_its_limit),
        BOTH(test_iterator_bounds),
        BOTH(test_snapshots),
        BOTH(test_iterator_sees_its_moment),
        BOTH(test_large_values),
        BOTH(test_flush_and_stats),
        BOTH(test_families_are_apart),
        BOTH(test_readers_beside_a_writer),
        ROCKS(test_rocks_open_errors),
        ROCKS(test_rocks_refuses_a_newer_database),
        ROCKS(test_rocks_completes_families),
        ROCKS(test_rocks_finds_corruption),
        ROCKS(test_rocks_full_disk),
        MEM(test_mem_power_cut),
        MEM(test_mem_kill_loses_nothing),
        MEM(test_mem_failing_writes),
        MEM(test_mem_collects),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

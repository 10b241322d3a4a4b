/* SPDX-License-Identifier: Apache-2.0
 *
 * What is special about RocksDB: opening, damaged files, a full disk.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cmocka.h>
#include <rocksdb/c.h>
#include <signal.h>
#include <sys/resource.h>

#include "tests/lib/store/kv_dir.h"
#include "tests/lib/store/kv_fixture.h"

static struct err e;

/* Names are part of the format. */
static const char *const families[KV_CFS] = { "raw", "fine", "coarse", "ru", "tl",
                                              "fn",  "meta", "wid",    "exm" };

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
    assert_int_equal(try_open(kvt.dir), ERR_BUSY); /* kvt.k has it */
    assert_non_null(strstr(e.text, kvt.dir));
    snprintf(path, sizeof(path), "%s/no/such/parent", kvt.dir);
    assert_int_equal(try_open(path), ERR_IO);
    kvt_put(KV_RAW, "a", "1");
    kvt_commit();
    assert_int_equal(kv_flush(kvt.k, &e), 0);
    kv_close(kvt.k);
    kvt.k = NULL;
    assert_int_equal(try_open(kvt.dir), 0);
    /* A lost CURRENT must not become a new, empty database. */
    char current[4200], away[4200];
    snprintf(current, sizeof(current), "%s/CURRENT", kvt.dir);
    snprintf(away, sizeof(away), "%s/elsewhere", kvt.dir);
    assert_int_equal(rename(current, away), 0);
    assert_int_equal(try_open(kvt.dir), ERR_CORRUPT);
    assert_non_null(strstr(e.text, "CURRENT"));
    assert_int_equal(rename(away, current), 0);
    kvt.k = kv_dir_open(kvt.dir);
    kvt_want(NULL, KV_RAW, "a", "1");
}

static void test_rocks_refuses_a_newer_database(void **state)
{
    char *message = NULL;
    const char *names[KV_CFS + 1] = { "default", "raw", "fine", "coarse", "ru",
                                      "tl",      "fn",  "meta", "wid",    "exm" };
    const rocksdb_options_t *options[KV_CFS + 1];
    rocksdb_column_family_handle_t *cf[KV_CFS + 1];

    (void)state;
    kv_close(kvt.k);
    kvt.k = NULL;
    rocksdb_options_t *o = rocksdb_options_create();
    for (size_t i = 0; i < ARRAY_LEN(options); i++)
        options[i] = o;
    rocksdb_t *db =
        rocksdb_open_column_families(o, kvt.dir, KV_CFS + 1, names, options, cf, &message);
    assert_null(message);
    rocksdb_column_family_handle_t *extra =
        rocksdb_create_column_family(db, o, "invented_later", &message);
    assert_null(message);
    rocksdb_column_family_handle_destroy(extra);
    for (size_t i = 0; i < ARRAY_LEN(cf); i++)
        rocksdb_column_family_handle_destroy(cf[i]);
    rocksdb_close(db);
    rocksdb_options_destroy(o);
    assert_int_equal(try_open(kvt.dir), ERR_CONFIG);
    assert_non_null(strstr(e.text, "invented_later"));
}

/* A database in which only some families exist (killed while it was created) gets the others. */
static void test_rocks_completes_families(void **state)
{
    char *message = NULL;

    kv_close(kvt.k);
    kv_dir_remove(kvt.dir);
    kvt.dir = kv_dir_new();
    rocksdb_options_t *o = rocksdb_options_create();
    rocksdb_options_set_create_if_missing(o, 1);
    rocksdb_t *db = rocksdb_open(o, kvt.dir, &message);
    assert_null(message);
    rocksdb_close(db);
    rocksdb_options_destroy(o);
    kvt.k = kv_dir_open(kvt.dir);
    (void)state;
    for (int cf = 0; cf < KV_CFS; cf++)
        kvt_put((enum kv_cf)cf, "k", families[cf]);
    kvt_commit();
    kvt_reopen();
    for (int cf = 0; cf < KV_CFS; cf++)
        kvt_want(NULL, (enum kv_cf)cf, "k", families[cf]);
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
        kvt_put(KV_FINE, key, "a value that is long enough to matter here");
    }
    kvt_commit();
    assert_int_equal(kv_flush(kvt.k, &e), 0);
    kv_close(kvt.k);
    flip_byte(kvt.dir, ".sst");
    kvt.k = kv_dir_open(kvt.dir);
    assert_int_equal(kv_get(kvt.k, NULL, KV_FINE, STR("00000"), &kvt.out, &e), ERR_CORRUPT);
    struct kv_iter *it = kv_iter_new(kvt.k, NULL, KV_FINE, STR_NULL, STR_NULL);
    assert_false(kv_iter_valid(it));
    assert_int_equal(kv_iter_status(it, &e), ERR_CORRUPT);
    kv_iter_free(it);
}

/* A full disk: the write fails with it, no acked write is lost, and with room writes succeed. */
static void test_rocks_full_disk(void **state)
{
    char path[4200], fill[8300];

    (void)state;
    if (mount("tmpfs", kvt.dir, "tmpfs", 0, "size=24m")) {
        print_message("SKIPPED: full disk: cannot mount a tmpfs (%s)\n", strerror(errno));
        skip();
    }
    snprintf(path, sizeof(path), "%s/db", kvt.dir);
    snprintf(fill, sizeof(fill), "%s/fill", kvt.dir);
    struct kv *k = kv_dir_open(path);
    int fd = open(fill, O_CREAT | O_WRONLY, 0600), rc = 0;
    assert_int_equal(posix_fallocate(fd, 0, 8 * (off_t)MIB), 0);
    close(fd);
    char value[16384];
    int acked = 0;
    for (; acked < 5000 && !rc; acked += !rc) {
        char key[16];
        snprintf(key, sizeof(key), "%05d", acked);
        kv_batch_clear(kvt.b);
        kvt_fill(value, sizeof(value), (uint64_t)acked);
        kv_batch_put(kvt.b, KV_RAW, str_c(key), str_n(value, sizeof(value)));
        rc = kv_write(k, kvt.b, true, &e);
    }
    assert_int_equal(rc, ERR_NO_SPACE);
    assert_true(acked > 100);
    assert_int_equal(kv_write(k, kvt.b, true, &e), ERR_NO_SPACE); /* and stays so */
    kv_close(k);
    assert_int_equal(unlink(fill), 0);
    k = kv_dir_open(path);
    for (int i = 0; i < acked; i++) {
        char key[16];
        snprintf(key, sizeof(key), "%05d", i);
        assert_int_equal(kv_get(k, NULL, KV_RAW, str_c(key), &kvt.out, &e), 0);
        assert_int_equal(kvt.out.len, sizeof(value));
    }
    assert_int_equal(kv_write(k, kvt.b, true, &e), 0);
    kv_close(k);
    kv_close(kvt.k); /* was opened below the mount */
    kvt.k = NULL;
    assert_int_equal(umount(kvt.dir), 0);
}

/* A reader beside nothing: sees what is only in the log, changes no byte, refuses to write. */
static void test_rocks_read_only(void **state)
{
    struct kv_opts o = { .dir = kvt.dir, .read_only = true };
    struct kv_disk before, after;
    struct kv *k = NULL;

    (void)state;
    kvt_put(KV_FINE, "k", "v");
    kvt_commit();
    kv_close(kvt.k);
    kvt.k = NULL;
    assert_int_equal(kv_rocks_open(&o, &k, &e), 0);
    assert_int_equal(kv_disk(k, &before, &e), 0);
    assert_int_equal(kv_get(k, NULL, KV_FINE, STR("k"), &kvt.out, &e), 0);
    assert_true(str_eq(buf_str(&kvt.out), STR("v")));
    kv_batch_clear(kvt.b);
    kv_batch_put(kvt.b, KV_FINE, STR("k"), STR("w"));
    assert_int_equal(kv_write(k, kvt.b, true, &e), ERR_UNAVAILABLE);
    assert_int_equal(kv_disk(k, &after, &e), 0);
    assert_int_equal(before.log_bytes, after.log_bytes);
    assert_true(before.log_bytes > 0);
    kv_close(k);

    o.dir = "/nonexistent";
    assert_int_equal(kv_rocks_open(&o, &k, &e), ERR_NOT_FOUND);
    kvt.k = kv_dir_open(kvt.dir);
    kvt_want(NULL, KV_FINE, "k", "v");
}

/* Ranges of a family, taken together, are the family; and the folder holds what it says. */
static void test_rocks_sizes(void **state)
{
    struct kv_range r[] = { { STR("a"), STR("m") },
                            { STR("m"), STR("~") },
                            { STR("x"), STR("y") } };
    char value[20000], key[] = "a";
    struct kv_disk d;
    uint64_t n[3];

    (void)state;
    for (; key[0] <= 'p'; key[0]++) {
        kvt_fill(value, sizeof(value), (uint64_t)key[0]);
        kv_batch_put(kvt.b, KV_COARSE, str_c(key), str_n(value, sizeof(value)));
    }
    assert_int_equal(kv_write(kvt.k, kvt.b, true, &e), 0);
    assert_int_equal(kv_flush(kvt.k, &e), 0);
    assert_int_equal(kv_disk(kvt.k, &d, &e), 0);
    assert_int_equal(kv_sizes(kvt.k, KV_COARSE, r, 3, n, &e), 0);
    assert_true(n[0] >= 11 * sizeof(value) && n[1] >= 3 * sizeof(value));
    assert_true(n[0] + n[1] <= d.live_bytes[KV_COARSE] + 4096);
    assert_true(n[0] + n[1] >= d.live_bytes[KV_COARSE] / 10 * 9);
    assert_int_equal(n[2], 0);
    assert_true(d.tables_bytes >= d.live_bytes[KV_COARSE] && d.other_bytes > 0);
    kv_cache_resize(kvt.k, 0); /* and reads succeed */
    assert_int_equal(kv_get(kvt.k, NULL, KV_COARSE, STR("b"), &kvt.out, &e), 0);
    assert_int_equal(kvt.out.len, sizeof(value));
}

static uint64_t table_bytes(void)
{
    struct kv_disk d;

    assert_int_equal(kv_flush(kvt.k, &e), 0);
    assert_int_equal(kv_disk(kvt.k, &d, &e), 0);
    return d.tables_bytes;
}

static size_t count_keys(enum kv_cf cf)
{
    struct kv_iter *it = kv_iter_new(kvt.k, NULL, cf, STR_NULL, STR_NULL);
    size_t n = 0;

    for (; kv_iter_valid(it); kv_iter_next(it))
        n++;
    assert_int_equal(kv_iter_status(it, &e), 0);
    kv_iter_free(it);
    return n;
}

static void put_keys(int n)
{
    char key[16];

    for (int i = 0; i < n; i++) {
        (void)snprintf(key, sizeof(key), "k%05d", i);
        kv_batch_put(kvt.b, KV_TL, str_c(key), STR("value"));
    }
}

/* Deleting what is not there writes nothing: files of nothing but deletions are what an assertion
 * of RocksDB needs on a full disk (kv_rocks_full.c). However it is done, the range is gone. */
static void test_rocks_del_ranges(void **state)
{
    static const int sizes[] = { 1, 255, 256, 257, 2000, 6000 };

    (void)state;
    kv_batch_del_range(kvt.b, KV_TL, STR("a"), STR("z"));
    kvt_commit();
    assert_int_equal(table_bytes(), 0);
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        put_keys(sizes[i]);
        kvt_put(KV_TL, "a", "below");
        kvt_put(KV_TL, "z", "at the end");
        kvt_commit();
        if (i % 2)
            (void)table_bytes();
        struct kv_snap *snap = kv_snap_new(kvt.k);
        kv_batch_del_range(kvt.b, KV_TL, STR("k"), STR("z"));
        kvt_put(KV_TL, "k00000", "behind it");
        kvt_commit();
        kvt_want_range(NULL, KV_TL, NULL, NULL, "a=below k00000=behind it z=at the end");
        kvt_want(snap, KV_TL, "k00000", "value");
        kv_snap_free(kvt.k, snap);
        put_keys(sizes[i]); /* of the same batch, before it: a long one is not looked through */
        kv_batch_del_range(kvt.b, KV_TL, STR("k"), STR("z"));
        kv_batch_del_range(kvt.b, KV_TL, STR("a"), STR("b"));
        kvt_commit();
        kvt_want_range(NULL, KV_TL, NULL, NULL, "z=at the end");
        kv_batch_del_range(kvt.b, KV_TL, STR("a"), STR("zz"));
        kvt_commit();
        assert_int_equal(count_keys(KV_TL), 0);
    }
    kvt_reopen();
    assert_int_equal(count_keys(KV_TL), 0);
}

/* As on a disk that fills up while a shard is opened: every file ends after so many bytes. The
 * LOG of RocksDB ended the process then. */
static void test_rocks_opens_or_says_why(void **state)
{
    struct rlimit before, few;
    int refused = 0;

    (void)state;
    kv_close(kvt.k);
    kvt.k = NULL;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    assert_true(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    for (rlim_t bytes = 0; bytes < 256 * KIB; bytes = bytes * 2 + 100) {
        struct kv_opts o = { .dir = kvt.dir, .block_cache_bytes = MIB, .memtable_bytes = MIB };
        struct kv *k = NULL;
        int code;

        few = (struct rlimit){ bytes, before.rlim_max };
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &few), 0);
        code = kv_rocks_open(&o, &k, &e);
        kv_close(k);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        refused += code != 0;
        if (code)
            assert_true(e.text[0] != 0);
    }
    assert_true(refused > 0); /* else this test shows nothing */
    kvt.k = kv_dir_open(kvt.dir);
}

#define ROCKS(f) cmocka_unit_test_setup_teardown(f, kvt_setup_rocks, kvt_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROCKS(test_rocks_open_errors),        ROCKS(test_rocks_refuses_a_newer_database),
        ROCKS(test_rocks_completes_families), ROCKS(test_rocks_finds_corruption),
        ROCKS(test_rocks_full_disk),          ROCKS(test_rocks_opens_or_says_why),
        ROCKS(test_rocks_read_only),          ROCKS(test_rocks_sizes),
        ROCKS(test_rocks_del_ranges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Databases that share memory: together they hold no more than one may, the idle ones make room for
 * the busy one, and all rows are there.
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/prng.h"
#include "common/base/wr.h"
#include "common/store/kv/kv_pool.h"
#include "tests/lib/store/kv_dir.h"

#define MEMTABLES (4 * MIB)
enum { DATABASES = 12, WAIT_US = 2000, WAITS = 60000 };

static struct {
    char *dir;
    struct kv_pool *pool;
    struct kv *k[DATABASES];
    uint64_t rows[DATABASES];
    struct prng rng;
} t;

static struct kv *open_one(int i)
{
    char dir[512];
    struct kv_opts o = { .dir = dir, .pool = t.pool, .memtable_bytes = MEMTABLES };
    struct kv *k = NULL;
    struct err e;

    (void)snprintf(dir, sizeof(dir), "%s/%d", t.dir, i);
    if (kv_rocks_open(&o, &k, &e))
        fail_msg("%s", e.text);
    return k;
}

static int set_up(void **state)
{
    (void)state;
    t.dir = kv_dir_new();
    t.pool = kv_pool_new(8 * MIB, MEMTABLES);
    prng_init(&t.rng, 5);
    for (int i = 0; i < DATABASES; i++) {
        t.k[i] = open_one(i);
        t.rows[i] = 0;
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (int i = 0; i < DATABASES; i++)
        kv_close(t.k[i]);
    kv_pool_free(t.pool);
    kv_dir_remove(t.dir);
    return 0;
}

static void write_rows(int i, size_t bytes)
{
    struct kv_batch *b = kv_batch_new();
    char key[8], value[4096];
    struct err e;

    for (size_t n = 0; n < bytes; n += sizeof(value)) {
        put_u64be(key, t.rows[i]++);
        for (size_t c = 0; c < sizeof(value); c += 8)
            put_u64be(value + c, prng_u64(&t.rng)); /* nothing to compress */
        kv_batch_put(b, KV_FINE, str_n(key, 8), str_n(value, sizeof(value)));
    }
    assert_int_equal(kv_write(t.k[i], b, false, &e), 0);
    kv_batch_free(b);
}

static struct kv_pool_stats stats(void)
{
    struct kv_pool_stats st;

    kv_pool_stats(t.pool, &st);
    return st;
}

/* Writing out ends by itself. */
static void wait_for(uint64_t bytes)
{
    for (int i = 0; i < WAITS && stats().memtable_bytes > bytes; i++)
        usleep(WAIT_US);
    if (stats().memtable_bytes > bytes)
        fail_msg("%" PRIu64 " bytes, of which %" PRIu64 " in use; want %" PRIu64,
                 stats().memtable_bytes, stats().active_bytes, bytes);
}

static void all_there(void)
{
    struct err e;

    for (int i = 0; i < DATABASES; i++) {
        struct kv_iter *it = kv_iter_new(t.k[i], NULL, KV_FINE, STR_NULL, STR_NULL);
        uint64_t n = 0;
        for (; kv_iter_valid(it); kv_iter_next(it))
            n++;
        assert_int_equal(kv_iter_status(it, &e), 0);
        assert_int_equal(n, t.rows[i]);
        kv_iter_free(it);
    }
}

/* Each alone would stay far below its own limit. */
static void test_many(void **state)
{
    (void)state;
    assert_int_equal(stats().databases, DATABASES);
    for (int round = 0; round < 12; round++) {
        for (int i = 0; i < DATABASES; i++)
            write_rows(i, 128 * KIB); /* 18 MiB in all */
        (void)kv_pool_relieve(t.pool, MEMTABLES / 4 * 3);
    }
    assert_true(stats().active_bytes <= MEMTABLES); /* the others are being written out */
    wait_for(MEMTABLES);
    all_there();
    assert_true(stats().cache_bytes <= 8 * MIB);
}

static uint64_t files_of(int i)
{
    struct kv_stats st;
    uint64_t n = 0;

    kv_stats(t.k[i], &st);
    for (size_t c = 0; c < KV_CFS; c++)
        n += st.file_bytes[c] != 0;
    return n;
}

/* The idle one with most in memory goes first, though it writes nothing. */
static void test_idle(void **state)
{
    (void)state;
    write_rows(3, MIB);
    for (int i = 0; i < DATABASES; i++)
        write_rows(i, 32 * KIB);
    assert_int_equal(files_of(3), 0);
    assert_int_equal(kv_pool_relieve(t.pool, 64 * MIB), 0); /* there is no need */
    uint64_t before = stats().active_bytes;
    assert_int_equal(kv_pool_relieve(t.pool, before - 1), 1);
    assert_true(stats().active_bytes < before - MIB + 64 * KIB);
    wait_for(before - MIB + 64 * KIB);
    for (int i = 0; i < WAITS && !files_of(3); i++)
        usleep(WAIT_US);
    for (int i = 0; i < DATABASES; i++)
        assert_int_equal(files_of(i), i == 3);
    /* To nothing: every row is written out, and again there is nothing to do. */
    assert_int_equal(kv_pool_relieve(t.pool, 0), DATABASES - 1);
    assert_int_equal(kv_pool_relieve(t.pool, 0), 0);
    all_there();
}

/* Closed databases count no more; the cache is smaller from then on, and reads succeed. */
static void test_close(void **state)
{
    (void)state;
    write_rows(0, MIB);
    kv_close(t.k[0]);
    assert_int_equal(stats().databases, DATABASES - 1);
    (void)kv_pool_relieve(t.pool, 0);
    t.k[0] = open_one(0);
    assert_int_equal(stats().databases, DATABASES);
    kv_pool_resize(t.pool, 0);
    kv_cache_resize(t.k[1], 0); /* not its own */
    all_there();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_many, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_idle, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_close, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * What the settings of kv_rocks_open.c are worth: rows of a simulated service (20 pods, HOURS)
 * are copied, family by family, into databases that differ in one setting, and each is measured
 * the same way: bytes in files, CPU of writing them out, of reading all in order, of getting
 * single rows that are there and that are not. Everything beside the setting in use, as a ratio,
 * in one run.
 *
 *   ONLY=fine   one family        HOURS=2   BASE=1   nothing but the absolute figures
 *   LD_LIBRARY_PATH=dir           with another build of RocksDB as dir/librocksdb.so.7.8
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/base/mem.h"
#include "common/base/prng.h"
#include "tests/lib/gen/year_bed.h"
#include "tests/lib/store/kv_dir.h"

#define GETS        4000
#define BATCH_BYTES (256 * KIB)
#define MEMTABLE    (64 * MIB)
#define CACHE       (64 * MIB)

static double clock_us(clockid_t id)
{
    struct timespec t;

    clock_gettime(id, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void must(int code, const struct err *e)
{
    if (code) {
        (void)fprintf(stderr, "%s\n", e->text);
        abort();
    }
}

/* Rows of one family, in memory. */
struct row {
    struct str key, value;
};
struct rows {
    VEC(struct row) at;
    struct arena *arena;
    uint64_t bytes;
};

static struct rows load(struct kv *k, enum kv_cf cf)
{
    struct rows r = { .arena = arena_new(2 * GIB) };
    struct kv_iter *it = kv_iter_new(k, NULL, cf, STR_NULL, STR_NULL);

    for (; kv_iter_valid(it); kv_iter_next(it)) {
        struct row one = { arena_strdup(r.arena, kv_iter_key(it)),
                           arena_strdup(r.arena, kv_iter_value(it)) };
        CHECK(one.key.ptr);
        vec_push(&r.at, one);
        r.bytes += one.key.len + one.value.len;
    }
    kv_iter_free(it);
    return r;
}

struct figures {
    double bytes, write_us, scan_us, get_us, miss_us; /* by row, but for the bytes */
};

static void write_all(struct kv *k, enum kv_cf cf, const struct rows *r)
{
    struct kv_batch *b = kv_batch_new();
    struct err e;

    vec_for (i, &r->at) {
        kv_batch_put(b, cf, r->at.ptr[i].key, r->at.ptr[i].value);
        if (kv_batch_bytes(b) < BATCH_BYTES && i + 1 < r->at.len)
            continue;
        must(kv_write(k, b, false, &e), &e);
        kv_batch_clear(b);
    }
    must(kv_flush(k, &e), &e);
    kv_batch_free(b);
}

static double get_some(struct kv *k, enum kv_cf cf, const struct rows *r, bool there)
{
    struct prng p;
    struct buf out;
    struct err e;
    char key[128];

    prng_init(&p, 3);
    buf_init(&out, GIB);
    double began = clock_us(CLOCK_THREAD_CPUTIME_ID);
    for (int i = 0; i < GETS; i++) {
        struct str from = r->at.ptr[prng_below(&p, r->at.len)].key;
        CHECK(from.len < sizeof(key));
        memcpy(key, from.ptr, from.len);
        key[from.len] = '!';
        int rc = kv_get(k, NULL, cf, str_n(key, from.len + !there), &out, &e);
        CHECK(rc == (there ? 0 : ERR_NOT_FOUND));
    }
    double us = (clock_us(CLOCK_THREAD_CPUTIME_ID) - began) / GETS;
    buf_deinit(&out);
    return us;
}

static struct figures measure(enum kv_cf cf, const struct rows *r, const char *tune)
{
    char *dir = kv_dir_new();
    struct kv_opts o = {
        .dir = dir, .block_cache_bytes = CACHE, .memtable_bytes = MEMTABLE, .tune = tune
    };
    struct figures f;
    struct kv_disk d;
    struct kv *k;
    struct err e;
    uint64_t n = 0;

    must(kv_rocks_open(&o, &k, &e), &e);
    double began = clock_us(CLOCK_PROCESS_CPUTIME_ID);
    write_all(k, cf, r);
    f.write_us = (clock_us(CLOCK_PROCESS_CPUTIME_ID) - began) / (double)r->at.len;
    must(kv_disk(k, &d, &e), &e);
    f.bytes = (double)d.live_bytes[cf];
    kv_close(k);

    must(kv_rocks_open(&o, &k, &e), &e); /* an empty cache */
    began = clock_us(CLOCK_THREAD_CPUTIME_ID);
    struct kv_iter *it = kv_iter_new(k, NULL, cf, STR_NULL, STR_NULL);
    for (; kv_iter_valid(it); kv_iter_next(it))
        n += kv_iter_value(it).len;
    kv_iter_free(it);
    f.scan_us = (clock_us(CLOCK_THREAD_CPUTIME_ID) - began) / (double)r->at.len;
    CHECK(n > 0);
    f.get_us = get_some(k, cf, r, true);
    f.miss_us = get_some(k, cf, r, false);
    kv_close(k);
    kv_dir_remove(dir);
    return f;
}

static void bench_family(struct kv *from, enum kv_cf cf)
{
    static const char *const variants[] = {
        "block=4096",      "block=8192",       "block=16384",  "block=32768",   "block=65536",
        "block=131072",    "filter=none",      "filter=bloom", "filter=ribbon", "compression=none",
        "compression=lz4", "compression=zstd", "dict=16384",   "dict=65536",
    };
    const char *name = year_bed_family(cf);
    struct rows r = load(from, cf);
    char tune[64];

    if (!r.at.len)
        return;
    (void)measure(cf, &r, NULL); /* warms up */
    struct figures base = measure(cf, &r, NULL);
    printf(
        "%s: %zu rows, %.1f MB plain; as set: %.1f MB, us of CPU per row: write %.2f, scan %.2f, "
        "get %.2f, miss %.2f\n",
        name, r.at.len, (double)r.bytes / 1e6, base.bytes / 1e6, base.write_us, base.scan_us,
        base.get_us, base.miss_us);
    if (getenv("BASE"))
        goto out;
    printf("  %-18s %7s %7s %7s %7s %7s   beside as set\n", "", "bytes", "write", "scan", "get",
           "miss");
    for (size_t i = 0; i < ARRAY_LEN(variants); i++) {
        (void)snprintf(tune, sizeof(tune), "%s.%s", name, variants[i]);
        struct figures f = measure(cf, &r, tune);
        printf("  %-18s %7.2f %7.2f %7.2f %7.2f %7.2f\n", variants[i], f.bytes / base.bytes,
               f.write_us / base.write_us, f.scan_us / base.scan_us, f.get_us / base.get_us,
               f.miss_us / base.miss_us);
        (void)fflush(stdout);
    }
out:
    arena_free(r.arena);
    vec_free(&r.at);
}

int main(void)
{
    uint64_t hours = 2;
    const char *only = getenv("ONLY"), *text = getenv("HOURS");
    struct year_opts o = { .seed = 7,
                           .kind = YEAR_KAFKA,
                           .pods = 20,
                           .stacks = 40000,
                           .deploy_days = 4,
                           .moved = 300,
                           .start = 1995 * YEAR_DAY_SLOTS };
    struct year_bed_opts bo = { .slot = o.start };
    struct year_bed b;

    if (text && (!str_u64(str_c(text), &hours) || hours == 0))
        hours = 2;
    struct year *y = year_new(&o);
    year_bed_open(&b, &bo);
    year_bed_live(&b, y, o.start, o.start + (uint32_t)hours * 720, 20);
    year_bed_settle(&b);
    for (int cf = 0; cf < KV_CFS; cf++)
        if (!only || strcmp(only, year_bed_family((enum kv_cf)cf)) == 0)
            bench_family(b.kv, (enum kv_cf)cf);
    year_bed_remove(&b);
    year_free(y);
    return 0;
}

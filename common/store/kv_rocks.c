/* SPDX-License-Identifier: Apache-2.0
 *
 * kv_rocks: kv.h on RocksDB. The only file that knows RocksDB.
 *
 * One database per shard, one column family per kind of row, one write-ahead log for all of them:
 * that log is what makes a batch atomic over column families, therefore it is never switched off,
 * and flushes need not be atomic. Every acked byte is in the log (fdatasync at kv_write with sync)
 * until the last column family it touched has been flushed; max_total_wal_size forces the slow
 * ones, so that a quiet family cannot pin the log, and a restart replays 128 MiB at most.
 *
 * Recovery is point in time: the log is read up to the first record that does not check, what comes
 * after a hole is never applied. Files of the log that were synced and are missing or too short are
 * an error (track_and_verify_wals_in_manifest), so losing them is not silent.
 *
 * Memory: memtables of all families share db_write_buffer_size; blocks, indexes and filters share
 * one cache with a strict capacity. A read that finds no room in it (all blocks pinned, or one
 * block larger than a shard of the cache) is repeated without keeping what it reads.
 *
 * After a failed write nothing more is accepted (`failed`): the failed batch may or may not be in
 * the log, and what follows it must not be acked on top of that. Reopening settles it.
 *
 * Debian's RocksDB has assertions on: handles of column families must go before the database.
 * Thread: as kv.h says; `failed` is touched by the writer only.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <rocksdb/c.h>
#include <stdio.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/store/kv.h"
#include "common/store/kv_impl.h"

/* ---- options: everything that is tuned stands in this section ---- */

enum filter {
    FILTER_NONE,
    FILTER_BLOOM,  /* 10 bits per key: 1 % false; memtables have one, too */
    FILTER_RIBBON, /* the same in 7 bits, thrice the work to build; bloom in level 0 */
};
/*
 * Blocks are small where single rows are read, large where runs are. Compression: zstd for what
 * stays, LZ4 for what lives for minutes, none for what is random. A filter pays where gets often
 * miss: write ids (nearly always), sealed rows (has this leaf been there before?), dictionaries and
 * series (is this one new?); rows that are only scanned have none. The names are part of the format
 * of a database, and no family may be removed or renamed.
 */
static const struct family {
    const char *name;
    uint32_t block_bytes;
    int compression;
    enum filter filter;
} families[KV_CFS] = {
    [KV_RAW] = { "raw", 16384, rocksdb_lz4_compression, FILTER_NONE },
    [KV_FINE] = { "fine", 16384, rocksdb_zstd_compression, FILTER_RIBBON },
    [KV_COARSE] = { "coarse", 65536, rocksdb_zstd_compression, FILTER_RIBBON },
    [KV_RU] = { "ru", 65536, rocksdb_zstd_compression, FILTER_RIBBON },
    [KV_TL] = { "tl", 16384, rocksdb_zstd_compression, FILTER_RIBBON },
    [KV_FN] = { "fn", 16384, rocksdb_zstd_compression, FILTER_NONE },
    [KV_META] = { "meta", 16384, rocksdb_zstd_compression, FILTER_BLOOM },
    [KV_WID] = { "wid", 8192, rocksdb_no_compression, FILTER_BLOOM },
    [KV_EXM] = { "exm", 16384, rocksdb_zstd_compression, FILTER_NONE },
};
/* RocksDB insists on a family of this name; it stays empty. */
#define DEFAULT_FAMILY "default"
#define FAMILIES       (KV_CFS + 1)

#define WAL_BYTES_MAX      (128 * MIB)
#define MEMTABLE_BYTES_MIN (4 * MIB)
#define CACHE_BYTES_MIN    (8 * MIB)
#define FILE_BYTES         (64 * MIB)
#define OPEN_FILES_MAX     512
#define BACKGROUND_JOBS    2
#define BITS_PER_KEY       10.0
#define MEMTABLE_BLOOM     0.02 /* of its bytes: about as many bits per key for write ids */
#define FORMAT_VERSION     5    /* of table files: RocksDB 6.6 and newer */
#define CHECKSUM_XXH3      4

struct kv_rocks {
    struct kv kv;
    rocksdb_t *db;
    rocksdb_column_family_handle_t *cf[FAMILIES]; /* the last is the default family */
    rocksdb_options_t *options[FAMILIES];
    rocksdb_options_t *db_options;
    rocksdb_cache_t *cache;
    rocksdb_ratelimiter_t *limiter; /* or NULL */
    rocksdb_writeoptions_t *write_sync, *write_fast;
    rocksdb_readoptions_t *read;
    rocksdb_writebatch_t *batch; /* reused by the writer */
    int failed;                  /* code of the write that failed; sticky */
};

static struct kv_rocks *rocks_of(struct kv *k)
{
    return container_of(k, struct kv_rocks, kv);
}

static void set_db_options(rocksdb_options_t *o, const struct kv_opts *opts)
{
    rocksdb_options_set_create_missing_column_families(o, 1);
    rocksdb_options_set_paranoid_checks(o, 1);
    rocksdb_options_set_wal_recovery_mode(o, rocksdb_point_in_time_recovery);
    rocksdb_options_set_max_total_wal_size(o, WAL_BYTES_MAX);
    rocksdb_options_set_db_write_buffer_size(
        o, MAX((size_t)opts->memtable_bytes, (size_t)MEMTABLE_BYTES_MIN));
    rocksdb_options_set_max_background_jobs(o, BACKGROUND_JOBS);
    rocksdb_options_set_max_open_files(o, OPEN_FILES_MAX);
    /* Writes out files piece by piece, so that an fsync of the log does not wait behind 64 MiB. */
    rocksdb_options_set_bytes_per_sync(o, MIB);
    /* A fast start, and a quiet log of its own in a few small files. */
    rocksdb_options_set_skip_stats_update_on_db_open(o, 1);
    rocksdb_options_set_stats_dump_period_sec(o, 0);
    rocksdb_options_set_stats_persist_period_sec(o, 0);
    rocksdb_options_set_keep_log_file_num(o, 4);
    rocksdb_options_set_max_log_file_size(o, 4 * MIB);
}

/* What the C interface has no setter for. Replayed rows stay in memtables: a crash loop does not
 * grind out small files, and the start does not wait for a flush. */
static const char db_options_text[] =
    "avoid_flush_during_recovery=true;track_and_verify_wals_in_manifest=true";

static void set_table_options(rocksdb_options_t *o, const struct family *f, rocksdb_cache_t *cache)
{
    rocksdb_block_based_table_options_t *t = rocksdb_block_based_options_create();

    rocksdb_block_based_options_set_block_cache(t, cache);
    rocksdb_block_based_options_set_block_size(t, f->block_bytes);
    rocksdb_block_based_options_set_format_version(t, FORMAT_VERSION);
    rocksdb_block_based_options_set_checksum(t, CHECKSUM_XXH3);
    /* Indexes and filters in pieces of one block, inside the cache: no piece is ever too large
     * for a shard of the cache, whose size is a 64th of the whole. */
    rocksdb_block_based_options_set_index_type(
        t, rocksdb_block_based_table_index_type_two_level_index_search);
    rocksdb_block_based_options_set_partition_filters(t, 1);
    rocksdb_block_based_options_set_metadata_block_size(t, 4 * KIB);
    rocksdb_block_based_options_set_cache_index_and_filter_blocks(t, 1);
    rocksdb_block_based_options_set_cache_index_and_filter_blocks_with_high_priority(t, 1);
    if (f->filter == FILTER_BLOOM)
        rocksdb_block_based_options_set_filter_policy(
            t, rocksdb_filterpolicy_create_bloom_full(BITS_PER_KEY));
    else if (f->filter == FILTER_RIBBON)
        rocksdb_block_based_options_set_filter_policy(
            t, rocksdb_filterpolicy_create_ribbon_hybrid(BITS_PER_KEY, 1));
    rocksdb_options_set_block_based_table_factory(o, t);
    rocksdb_block_based_options_destroy(t);
}

static void set_family_options(rocksdb_options_t *o, const struct family *f,
                               const struct kv_opts *opts, rocksdb_cache_t *cache)
{
    size_t memtables = MAX((size_t)opts->memtable_bytes, (size_t)MEMTABLE_BYTES_MIN);

    /* One busy family may take half of the shared budget before it is switched; four tables may
     * wait for their flush before writers do. Small arenas: nine families each hold one. */
    rocksdb_options_set_write_buffer_size(o, MIN(memtables / 2, 64 * MIB));
    rocksdb_options_set_max_write_buffer_number(o, 4);
    rocksdb_options_set_arena_block_size(o, MIN(MAX(memtables / 128, 16 * KIB), MIB));
    rocksdb_options_set_target_file_size_base(o, FILE_BYTES);
    rocksdb_options_set_level_compaction_dynamic_level_bytes(o, 1);
    rocksdb_options_set_compression(o, f->compression);
    if (f->filter == FILTER_BLOOM) {
        rocksdb_options_set_memtable_whole_key_filtering(o, 1);
        rocksdb_options_set_memtable_prefix_bloom_size_ratio(o, MEMTABLE_BLOOM);
    }
    set_table_options(o, f, cache);
}

/* ---- errors ---- */

/* Takes RocksDB's message over. */
static int fail(struct err *e, char *message, const char *doing)
{
    static const struct {
        const char *text;
        int code;
    } kinds[] = {
        { "No space left", ERR_NO_SPACE },       { "NoSpace", ERR_NO_SPACE },
        { "Space limit reached", ERR_NO_SPACE }, { "Disk quota exceeded", ERR_NO_SPACE },
        { "Corruption", ERR_CORRUPT },           { "LRU cache being full", ERR_BUSY },
        { "While lock file", ERR_BUSY },         { "lock hold by current process", ERR_BUSY },
    };
    int code = ERR_IO;

    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (strstr(message, kinds[i].text)) {
            code = kinds[i].code;
            break;
        }
    err_set(e, code, "%s: %s", doing, message);
    rocksdb_free(message);
    return code;
}

static bool cache_was_full(const char *message)
{
    return strstr(message, "LRU cache being full") != NULL;
}

/* ---- open and close ---- */

static void rocks_close(struct kv *k)
{
    struct kv_rocks *r = rocks_of(k);

    if (r->db) {
        rocksdb_cancel_all_background_work(r->db, 1);
        for (size_t i = 0; i < FAMILIES; i++)
            rocksdb_column_family_handle_destroy(r->cf[i]);
        rocksdb_close(r->db);
    }
    rocksdb_writebatch_destroy(r->batch);
    rocksdb_writeoptions_destroy(r->write_sync);
    rocksdb_writeoptions_destroy(r->write_fast);
    rocksdb_readoptions_destroy(r->read);
    for (size_t i = 0; i < FAMILIES; i++)
        rocksdb_options_destroy(r->options[i]);
    rocksdb_options_destroy(r->db_options);
    if (r->limiter)
        rocksdb_ratelimiter_destroy(r->limiter);
    rocksdb_cache_destroy(r->cache);
    xfree(r);
}

static void closedirp(DIR **d)
{
    if (*d)
        closedir(*d);
}

static void rocks_closep(struct kv_rocks **r)
{
    if (*r)
        rocks_close(&(*r)->kv);
}

/* Everything but the database itself. *message is set if RocksDB refused the text options. */
static struct kv_rocks *rocks_new(const struct kv_opts *opts, char **message)
{
    struct kv_rocks *r = XNEW(struct kv_rocks);
    rocksdb_options_t *plain = rocksdb_options_create();

    r->cache = rocksdb_cache_create_lru_with_strict_capacity_limit(
        MAX((size_t)opts->block_cache_bytes, CACHE_BYTES_MIN));
    r->db_options = rocksdb_options_create();
    rocksdb_get_options_from_string(plain, db_options_text, r->db_options, message);
    rocksdb_options_destroy(plain);
    set_db_options(r->db_options, opts);
    if (opts->background_bytes_per_s) {
        int64_t rate = (int64_t)MIN(opts->background_bytes_per_s, (uint64_t)INT64_MAX);
        r->limiter = rocksdb_ratelimiter_create(rate, 100000, 10);
        rocksdb_options_set_ratelimiter(r->db_options, r->limiter);
    }
    for (size_t i = 0; i < FAMILIES; i++) {
        r->options[i] = rocksdb_options_create_copy(r->db_options);
        set_family_options(r->options[i], &families[i % KV_CFS], opts, r->cache);
    }
    r->write_fast = rocksdb_writeoptions_create();
    r->write_sync = rocksdb_writeoptions_create();
    rocksdb_writeoptions_set_sync(r->write_sync, 1);
    r->read = rocksdb_readoptions_create();
    r->batch = rocksdb_writebatch_create();
    return r;
}

/* Is there a database in dir? A folder with tables but without CURRENT lost a file: creating a new
 * database there would delete the tables. */
static int look(const char *dir, bool *ret_exists, struct err *e)
{
    CLEANUP(closedirp) DIR *d = opendir(dir);
    bool current = false, tables = false;

    if (!d && errno != ENOENT)
        return err_errno(e, errno, "cannot read the folder %s", dir);
    for (struct dirent *one; d && (one = readdir(d));) {
        current |= strcmp(one->d_name, "CURRENT") == 0;
        tables |= str_ends(str_c(one->d_name), STR(".sst"));
    }
    if (tables && !current)
        return err_set(e, ERR_CORRUPT,
                       "%s has table files but no CURRENT; restore that file, nothing was touched",
                       dir);
    *ret_exists = current;
    return 0;
}

/* RocksDB syncs what is in the folder, not the entry of a new folder in its parent. */
static int sync_parent(const char *dir, struct err *e)
{
    char path[4096];

    if ((size_t)snprintf(path, sizeof(path), "%s/..", dir) >= sizeof(path))
        return err_set(e, ERR_CONFIG, "the path %.100s... is too long", dir);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;
    if (fd < 0 || fsync(fd))
        rc = err_errno(e, errno, "cannot sync the folder above %s", dir);
    if (fd >= 0)
        close(fd);
    return rc;
}

static int family_of(const char *name)
{
    for (int i = 0; i < KV_CFS; i++)
        if (strcmp(name, families[i].name) == 0)
            return i;
    return strcmp(name, DEFAULT_FAMILY) == 0 ? KV_CFS : -1;
}

/* A family we do not know was made by a newer version; opening without it is not possible, and
 * dropping it would lose data. */
static int check_families(const struct kv_rocks *r, const char *dir, struct err *e)
{
    char *message = NULL;
    size_t n = 0;
    char **names = rocksdb_list_column_families(r->db_options, dir, &n, &message);
    int rc = 0;

    if (message)
        return fail(e, message, "cannot list the column families");
    for (size_t i = 0; i < n && !rc; i++)
        if (family_of(names[i]) < 0)
            rc = err_set(e, ERR_CONFIG,
                         "%s has a column family \"%s\" that this version does not know; it was "
                         "written by a newer one: use that",
                         dir, names[i]);
    rocksdb_list_column_families_destroy(names, n);
    return rc;
}

/* ---- write ---- */

static void replay(struct kv_rocks *r, const struct kv_batch *b)
{
    struct rd rd = rd_of(buf_str(&b->ops));
    struct kv_entry op;

    rocksdb_writebatch_clear(r->batch);
    while (kv_batch_next(&rd, &op)) {
        rocksdb_column_family_handle_t *cf = r->cf[op.cf];
        if (op.op == KV_PUT)
            rocksdb_writebatch_put_cf(r->batch, cf, op.key.ptr, op.key.len, op.value.ptr,
                                      op.value.len);
        else if (op.op == KV_DEL)
            rocksdb_writebatch_delete_cf(r->batch, cf, op.key.ptr, op.key.len);
        else
            rocksdb_writebatch_delete_range_cf(r->batch, cf, op.key.ptr, op.key.len, op.value.ptr,
                                               op.value.len);
    }
}

static int rocks_write(struct kv *k, const struct kv_batch *b, bool sync, struct err *e)
{
    struct kv_rocks *r = rocks_of(k);
    char *message = NULL;

    if (r->failed)
        return err_set(e, r->failed, "an earlier write failed; restart to go on");
    if (b->count) {
        replay(r, b);
        rocksdb_write(r->db, sync ? r->write_sync : r->write_fast, r->batch, &message);
        rocksdb_writebatch_clear(r->batch);
    } else if (sync) {
        rocksdb_flush_wal(r->db, 1, &message);
    }
    if (!message)
        return 0;
    r->failed = fail(e, message, "cannot write to the database");
    return r->failed;
}

/* ---- read ---- */

struct kv_snap {
    const rocksdb_snapshot_t *at;
    rocksdb_readoptions_t *read;
};

static struct kv_snap *rocks_snap_new(struct kv *k)
{
    struct kv_snap *s = XNEW(struct kv_snap);

    s->at = rocksdb_create_snapshot(rocks_of(k)->db);
    s->read = rocksdb_readoptions_create();
    rocksdb_readoptions_set_snapshot(s->read, s->at);
    return s;
}

static void rocks_snap_free(struct kv *k, struct kv_snap *s)
{
    rocksdb_readoptions_destroy(s->read);
    rocksdb_release_snapshot(rocks_of(k)->db, s->at);
    xfree(s);
}

/* Reads past the cache: for when it has no room. */
static rocksdb_pinnableslice_t *get_uncached(struct kv_rocks *r, const struct kv_snap *snap,
                                             enum kv_cf cf, struct str key, char **message)
{
    rocksdb_readoptions_t *read = rocksdb_readoptions_create();

    rocksdb_readoptions_set_fill_cache(read, 0);
    if (snap)
        rocksdb_readoptions_set_snapshot(read, snap->at);
    rocksdb_free(*message);
    *message = NULL;
    rocksdb_pinnableslice_t *v =
        rocksdb_get_pinned_cf(r->db, read, r->cf[cf], key.ptr, key.len, message);
    rocksdb_readoptions_destroy(read);
    return v;
}

static int rocks_get(struct kv *k, const struct kv_snap *snap, enum kv_cf cf, struct str key,
                     struct buf *out, struct err *e)
{
    struct kv_rocks *r = rocks_of(k);
    char *message = NULL;
    rocksdb_pinnableslice_t *v = rocksdb_get_pinned_cf(r->db, snap ? snap->read : r->read,
                                                       r->cf[cf], key.ptr, key.len, &message);

    if (message && cache_was_full(message))
        v = get_uncached(r, snap, cf, key, &message);
    if (message)
        return fail(e, message, "cannot read from the database");
    if (!v)
        return err_set(e, ERR_NOT_FOUND, "no such key");
    size_t len;
    const char *p = rocksdb_pinnableslice_value(v, &len);
    buf_reset(out);
    bool fits = buf_add(out, p, len);
    rocksdb_pinnableslice_destroy(v);
    if (!fits)
        return err_set(e, ERR_LIMIT, "a value of %zu bytes does not fit %zu", len, out->max);
    return 0;
}

/* ---- iterators ---- */

struct rocks_iter {
    struct kv_iter it;
    struct kv_rocks *r; /* borrowed */
    enum kv_cf cf;
    const struct kv_snap *snap; /* the caller's or own */
    struct kv_snap *own;        /* when the caller gave none */
    struct buf to;              /* owned: RocksDB keeps a pointer to the bound */
    rocksdb_readoptions_t *read;
    rocksdb_iterator_t *iter;
    bool uncached;  /* the cache was full once: reads past it from then on */
    struct buf key; /* where we stand, to come back to after a retry */
};

static void iter_start(struct rocks_iter *i)
{
    i->read = rocksdb_readoptions_create();
    rocksdb_readoptions_set_snapshot(i->read, i->snap->at);
    rocksdb_readoptions_set_fill_cache(i->read, !i->uncached);
    if (i->to.len)
        rocksdb_readoptions_set_iterate_upper_bound(i->read, i->to.ptr, i->to.len);
    i->iter = rocksdb_create_iterator_cf(i->r->db, i->read, i->r->cf[i->cf]);
}

static void iter_stop(struct rocks_iter *i)
{
    rocksdb_iter_destroy(i->iter);
    rocksdb_readoptions_destroy(i->read);
}

/* True if the last move found the cache full and should be made again, past it. */
static bool iter_retry(struct rocks_iter *i)
{
    char *message = NULL;

    if (rocksdb_iter_valid(i->iter) || i->uncached)
        return false;
    rocksdb_iter_get_error(i->iter, &message);
    bool full = message && cache_was_full(message);
    rocksdb_free(message);
    if (!full)
        return false;
    i->uncached = true;
    iter_stop(i);
    iter_start(i);
    return true;
}

static void iter_pull(struct rocks_iter *i)
{
    i->it.valid = rocksdb_iter_valid(i->iter);
    if (!i->it.valid)
        return;
    i->it.key.ptr = rocksdb_iter_key(i->iter, &i->it.key.len);
    i->it.value.ptr = rocksdb_iter_value(i->iter, &i->it.value.len);
}

static void rocks_iter_seek(struct kv_iter *it, struct str key)
{
    struct rocks_iter *i = container_of(it, struct rocks_iter, it);
    const char *p = key.len ? key.ptr : "";

    rocksdb_iter_seek(i->iter, p, key.len);
    if (iter_retry(i))
        rocksdb_iter_seek(i->iter, p, key.len);
    iter_pull(i);
}

static void rocks_iter_next(struct kv_iter *it)
{
    struct rocks_iter *i = container_of(it, struct rocks_iter, it);

    buf_reset(&i->key);
    CHECK(buf_add_str(&i->key, it->key));
    rocksdb_iter_next(i->iter);
    if (iter_retry(i)) {
        rocksdb_iter_seek(i->iter, i->key.ptr, i->key.len);
        if (rocksdb_iter_valid(i->iter))
            rocksdb_iter_next(i->iter);
    }
    iter_pull(i);
}

static int rocks_iter_status(struct kv_iter *it, struct err *e)
{
    struct rocks_iter *i = container_of(it, struct rocks_iter, it);
    char *message = NULL;

    rocksdb_iter_get_error(i->iter, &message);
    return message ? fail(e, message, "cannot read from the database") : 0;
}

static void rocks_iter_free(struct kv_iter *it)
{
    struct rocks_iter *i = container_of(it, struct rocks_iter, it);

    iter_stop(i);
    kv_snap_free(&i->r->kv, i->own);
    buf_deinit(&i->to);
    buf_deinit(&i->key);
    xfree(i);
}

static const struct kv_iter_ops rocks_iter_ops = {
    .seek = rocks_iter_seek,
    .next = rocks_iter_next,
    .status = rocks_iter_status,
    .free = rocks_iter_free,
};

static struct kv_iter *rocks_iter_new(struct kv *k, const struct kv_snap *snap, enum kv_cf cf,
                                      struct str from, struct str to)
{
    struct rocks_iter *i = XNEW(struct rocks_iter);

    (void)from; /* the common part seeks, and never below it */
    i->it.ops = &rocks_iter_ops;
    i->r = rocks_of(k);
    i->cf = cf;
    i->own = snap ? NULL : rocks_snap_new(k);
    i->snap = snap ? snap : i->own;
    buf_init(&i->to, MAX(to.len, 1));
    buf_init(&i->key, KV_KEY_BYTES_MAX);
    CHECK(buf_add_str(&i->to, to));
    iter_start(i);
    return &i->it;
}

/* ---- the rest ---- */

static uint64_t property(const struct kv_rocks *r, size_t cf, const char *name)
{
    uint64_t v = 0;

    return rocksdb_property_int_cf(r->db, r->cf[cf], name, &v) ? 0 : v;
}

static void rocks_stats(struct kv *k, struct kv_stats *ret)
{
    struct kv_rocks *r = rocks_of(k);

    ret->cache_bytes = rocksdb_cache_get_usage(r->cache);
    for (size_t i = 0; i < KV_CFS; i++) {
        ret->memtable_bytes += property(r, i, "rocksdb.cur-size-all-mem-tables");
        ret->file_bytes[i] = property(r, i, "rocksdb.total-sst-files-size");
        ret->keys_estimate[i] = property(r, i, "rocksdb.estimate-num-keys");
    }
}

static int rocks_flush(struct kv *k, struct err *e)
{
    struct kv_rocks *r = rocks_of(k);
    rocksdb_flushoptions_t *o = rocksdb_flushoptions_create();
    char *message = NULL;

    rocksdb_flushoptions_set_wait(o, 1);
    for (size_t i = 0; i < KV_CFS && !message; i++)
        rocksdb_flush_cf(r->db, o, r->cf[i], &message);
    rocksdb_flushoptions_destroy(o);
    return message ? fail(e, message, "cannot flush the database") : 0;
}

static const struct kv_ops rocks_ops = {
    .write = rocks_write,
    .get = rocks_get,
    .snap_new = rocks_snap_new,
    .snap_free = rocks_snap_free,
    .iter_new = rocks_iter_new,
    .stats = rocks_stats,
    .flush = rocks_flush,
    .close = rocks_close,
};

int kv_rocks_open(const struct kv_opts *o, struct kv **ret, struct err *e)
{
    char *message = NULL;
    CLEANUP(rocks_closep) struct kv_rocks *r = rocks_new(o, &message);
    const char *names[FAMILIES];
    bool exists = false;

    if (message)
        return fail(e, message, "RocksDB refuses an option we need");
    int rc = look(o->dir, &exists, e);
    if (!rc && exists)
        rc = check_families(r, o->dir, e);
    if (rc)
        return rc;
    for (size_t i = 0; i < KV_CFS; i++)
        names[i] = families[i].name;
    names[KV_CFS] = DEFAULT_FAMILY;
    rocksdb_options_set_create_if_missing(r->db_options, !exists);
    r->db =
        rocksdb_open_column_families(r->db_options, o->dir, FAMILIES, names,
                                     (const rocksdb_options_t *const *)r->options, r->cf, &message);
    if (message) {
        fail(e, message, "cannot open the database");
        return err_wrap(e, "%s", o->dir);
    }
    if (!exists && sync_parent(o->dir, e))
        return e->code;
    r->kv.ops = &rocks_ops;
    *ret = &r->kv;
    r = NULL; /* moved to the caller */
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * kv_rocks_open: RocksDB's options, and opening and closing a database. TUNING.md says what chose
 * each value.
 *
 * One database per shard, one column family per kind of row, one write-ahead log for all of them:
 * that log is what makes a batch atomic over column families, therefore it is never switched off,
 * and flushes need not be atomic. Every acked byte is in the log (fdatasync at kv_write with sync)
 * until the last column family it touched has been flushed; max_total_wal_size forces the slow
 * ones, so that a quiet family cannot pin the log, and a restart replays 128 MiB at most.
 *
 * Recovery is point in time: the log is read up to the first record that does not check, what comes
 * after a hole is never applied. Files of the log that were synced and are missing or too short are
 * an error (track_and_verify_wals_in_manifest), so losing them is not silent. A log that was never
 * synced can end early without a trace, so every log is synced before the next one begins, and all
 * of them before the database is opened (rocks_wal.cc).
 *
 * Memory: memtables of all families share db_write_buffer_size; blocks, indexes and filters share
 * one cache with a strict capacity. Databases of a pool share both with each other.
 *
 * Debian's RocksDB has assertions on: handles of column families must go before the database.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/obs/log.h"
#include "common/store/kv/kv_rocks_impl.h"

/* ---- options: everything that is tuned stands in this section ---- */

enum filter {
    FILTER_NONE,
    FILTER_BLOOM,  /* 10 bits per key: 1 % false; memtables have one, too */
    FILTER_RIBBON, /* the same in 7 bits, thrice the work to build; bloom in level 0 */
};
/*
 * Blocks are small where single rows are read, large where runs are. Compression: zstd for what
 * stays, LZ4 for what lives for minutes. A filter pays where gets often
 * miss: write ids (nearly always), sealed rows (has this leaf been there before?), dictionaries and
 * series (is this one new?); rows that are only scanned have none. The names are part of the format
 * of a database, and no family may be removed or renamed.
 */
static const struct family {
    const char *name;
    uint32_t block_bytes;
    int compression;
    enum filter filter;
    uint32_t zstd_dict; /* bytes of a dictionary trained per file; 0: none */
} families[KV_CFS] = {
    [KV_RAW] = { "raw", 16384, rocksdb_lz4_compression, FILTER_NONE, 0 },
    [KV_FINE] = { "fine", 16384, rocksdb_zstd_compression, FILTER_RIBBON, 0 },
    [KV_COARSE] = { "coarse", 65536, rocksdb_zstd_compression, FILTER_RIBBON, 0 },
    [KV_RU] = { "ru", 65536, rocksdb_zstd_compression, FILTER_RIBBON, 0 },
    [KV_TL] = { "tl", 16384, rocksdb_zstd_compression, FILTER_RIBBON, 0 },
    [KV_FN] = { "fn", 16384, rocksdb_zstd_compression, FILTER_NONE, 0 },
    [KV_META] = { "meta", 16384, rocksdb_zstd_compression, FILTER_BLOOM, 0 },
    [KV_WID] = { "wid", 8192, rocksdb_zstd_compression, FILTER_BLOOM, 0 },
    [KV_EXM] = { "exm", 16384, rocksdb_zstd_compression, FILTER_NONE, 0 },
};
/* RocksDB insists on a family of this name; it stays empty. */
#define DEFAULT_FAMILY "default"

#define WAL_BYTES_MAX      (128 * MIB)
#define MEMTABLE_BYTES_MIN (4 * MIB)
#define FILE_BYTES         (64 * MIB)
#define OPEN_FILES_MAX     512
#define BACKGROUND_JOBS    2
#define BITS_PER_KEY       10.0
#define MEMTABLE_BLOOM     0.02      /* of its bytes: about as many bits per key for write ids */
#define FORMAT_VERSION     5         /* of table files: RocksDB 6.6 and newer */
#define OPEN_BYTES_MIN     (2 * MIB) /* free on the volume: opening writes some */
#define CHECKSUM_XXH3      4

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
    /* A fast start. */
    rocksdb_options_set_skip_stats_update_on_db_open(o, 1);
    rocksdb_options_set_stats_dump_period_sec(o, 0);
    rocksdb_options_set_stats_persist_period_sec(o, 0);
    rocks_quiet(o);
}

/* ---- another value for one run ---- */

static int word_of(struct str v)
{
    static const struct {
        const char *word;
        int value;
    } words[] = { { "none", 0 },
                  { "bloom", FILTER_BLOOM },
                  { "ribbon", FILTER_RIBBON },
                  { "lz4", rocksdb_lz4_compression },
                  { "zstd", rocksdb_zstd_compression } };
    uint64_t n = 0;

    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (str_eqc(v, words[i].word))
            return words[i].value;
    return str_u64(v, &n) && n <= INT_MAX ? (int)n : 0;
}

/* Of `tune` what is said of this family; what is not understood has no effect. */
static struct family tuned(const struct family *f, const char *tune)
{
    struct str rest = str_c(tune ? tune : ""), one, name = str_c(f->name);
    struct family got = *f;
    bool more = rest.len > 0;

    while (str_next(&rest, ' ', &more, &one)) {
        ptrdiff_t eq = str_find(one, '=');
        if (eq < 0 || !str_starts(one, name) || one.ptr[name.len] != '.')
            continue;
        struct str what = str_sub(one, name.len + 1, (size_t)eq);
        int v = word_of(str_sub(one, (size_t)eq + 1, one.len));
        if (str_eqc(what, "block"))
            got.block_bytes = (uint32_t)v;
        else if (str_eqc(what, "filter"))
            got.filter = (enum filter)v;
        else if (str_eqc(what, "compression"))
            got.compression = v;
        else if (str_eqc(what, "dict"))
            got.zstd_dict = (uint32_t)v;
    }
    return got;
}

/* Words of `tune` that begin with "<whose>:" are options as RocksDB spells them. Options with them,
 * in place of `o`. *message is set if it refused one. */
static rocksdb_options_t *with_words(rocksdb_options_t *o, const char *tune, const char *whose,
                                     char **message)
{
    struct str rest = str_c(tune ? tune : ""), one, who = str_c(whose);
    bool more = rest.len > 0;
    char text[1024];
    size_t n = 0;

    while (str_next(&rest, ' ', &more, &one))
        if (str_starts(one, who) && one.len > who.len && one.ptr[who.len] == ':' &&
            n + one.len < sizeof(text))
            n += (size_t)snprintf(text + n, sizeof(text) - n, "%.*s;", (int)(one.len - who.len - 1),
                                  one.ptr + who.len + 1);
    if (!n || *message)
        return o;
    rocksdb_options_t *with = rocksdb_options_create();
    rocksdb_get_options_from_string(o, text, with, message);
    rocksdb_options_destroy(o);
    return with;
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
    rocksdb_options_set_arena_block_size(o, MIN(MAX(memtables / 256, 16 * KIB), MIB));
    rocksdb_options_set_target_file_size_base(o, FILE_BYTES);
    rocksdb_options_set_level_compaction_dynamic_level_bytes(o, 1);
    rocksdb_options_set_compression(o, f->compression);
    if (f->zstd_dict) {
        rocksdb_options_set_compression_options(o, -14, 32767, 0, (int)f->zstd_dict);
        rocksdb_options_set_compression_options_zstd_max_train_bytes(o, 100 * (int)f->zstd_dict);
    }
    if (f->filter == FILTER_BLOOM) {
        rocksdb_options_set_memtable_whole_key_filtering(o, 1);
        rocksdb_options_set_memtable_prefix_bloom_size_ratio(o, MEMTABLE_BLOOM);
    }
    set_table_options(o, f, cache);
}

/* ---- open and close ---- */

void kv_rocks_close(struct kv *k)
{
    struct kv_rocks *r = kv_rocks_of(k);

    atomic_store(&r->closing, true);
    kv_rocks_pool_leave(r);
    if (r->db) {
        rocksdb_cancel_all_background_work(r->db, 1);
        for (size_t i = 0; i < KV_FAMILIES; i++)
            rocksdb_column_family_handle_destroy(r->cf[i]);
        rocksdb_close(r->db);
        rocks_files_closed(r->files);
    }
    rocksdb_writebatch_destroy(r->batch);
    rocksdb_writeoptions_destroy(r->write_sync);
    rocksdb_writeoptions_destroy(r->write_fast);
    rocksdb_readoptions_destroy(r->read);
    for (size_t i = 0; i < KV_FAMILIES; i++)
        rocksdb_options_destroy(r->options[i]);
    rocksdb_options_destroy(r->db_options);
    if (r->limiter)
        rocksdb_ratelimiter_destroy(r->limiter);
    if (!r->pool)
        rocksdb_cache_destroy(r->cache);
    rocks_files_free(r->files);
    xfree(r->dir);
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
        kv_rocks_close(&(*r)->kv);
}

/* Everything but the database itself. *message is set if RocksDB refused the text options. */
static struct kv_rocks *rocks_new(const struct kv_opts *opts, char **message)
{
    struct kv_rocks *r = XNEW(struct kv_rocks);
    rocksdb_options_t *plain = rocksdb_options_create();

    r->db_options = rocksdb_options_create();
    rocksdb_get_options_from_string(plain, db_options_text, r->db_options, message);
    rocksdb_options_destroy(plain);
    set_db_options(r->db_options, opts);
    r->pool = opts->pool;
    r->cache = r->pool ? kv_rocks_pool_use(r->pool, r->db_options)
                       : rocksdb_cache_create_lru_with_strict_capacity_limit(
                             MAX((size_t)opts->block_cache_bytes, KV_CACHE_BYTES_MIN));
    r->db_options = with_words(r->db_options, opts->tune, "db", message);
    r->files = rocks_files_new(r->db_options, opts->dir);
    if (opts->tune && strstr(opts->tune, "statistics"))
        rocksdb_options_enable_statistics(r->db_options);
    if (opts->background_bytes_per_s) {
        int64_t rate = (int64_t)MIN(opts->background_bytes_per_s, (uint64_t)INT64_MAX);
        r->limiter = rocksdb_ratelimiter_create(rate, 100000, 10);
        rocksdb_options_set_ratelimiter(r->db_options, r->limiter);
    }
    for (size_t i = 0; i < KV_FAMILIES; i++) {
        r->options[i] = rocksdb_options_create_copy(r->db_options);
        struct family f = tuned(&families[i % KV_CFS], opts->tune);
        set_family_options(r->options[i], &f, opts, r->cache);
        kv_rocks_gate(r, r->options[i]);
        r->options[i] = with_words(r->options[i], opts->tune, "all", message);
        r->options[i] = with_words(r->options[i], opts->tune, f.name, message);
    }
    r->write_fast = rocksdb_writeoptions_create();
    r->write_sync = rocksdb_writeoptions_create();
    rocksdb_writeoptions_set_sync(r->write_sync, 1);
    r->read = rocksdb_readoptions_create();
    r->batch = rocksdb_writebatch_create();
    r->read_only = opts->read_only;
    r->dir = xstrdup(opts->dir);
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

/* The assertion of the log waits for whoever opens on a full disk. */
static int check_room(const char *dir, struct err *e)
{
    uint64_t left = kv_rocks_room(dir);

    return left >= OPEN_BYTES_MIN
               ? 0
               : err_set(e, ERR_NO_SPACE, "only %" PRIu64 " KiB are free on the volume of %s",
                         left / KIB, dir);
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

    if (message) {
        rocksdb_list_column_families_destroy(names, n); /* there is a list nevertheless */
        return kv_rocks_fail(e, message, "cannot list the column families");
    }
    for (size_t i = 0; i < n && !rc; i++)
        if (family_of(names[i]) < 0)
            rc = err_set(e, ERR_CONFIG,
                         "%s has a column family \"%s\" that this version does not know; it was "
                         "written by a newer one: use that",
                         dir, names[i]);
    rocksdb_list_column_families_destroy(names, n);
    return rc;
}

/* What is replayed now is never synced later: rocks_wal.cc. */
static int prepare_logs(const struct kv_rocks *r, struct err *e)
{
    char *message = NULL;
    uint64_t cut = rocks_files_prepare(r->files, &message);

    if (cut)
        log_warn("a power cut had torn the end of a database's manifest; the bytes behind its last "
                 "whole record were removed",
                 KV_CSTR("dir", r->dir), KV_U64("bytes", cut));
    if (!message)
        return 0;
    kv_rocks_fail(e, message, "cannot replay the write-ahead logs");
    return err_wrap(e, "%s", r->dir);
}

static int note_logs(const struct kv_rocks *r, struct err *e)
{
    char *message = NULL;

    rocks_files_opened(r->files, &message);
    return message ? kv_rocks_fail(e, message, "cannot note which logs are synced") : 0;
}

static int open_db(const struct kv_opts *o, struct rocks_chain *chain, struct kv **ret,
                   struct err *e)
{
    char *message = NULL;
    CLEANUP(rocks_closep) struct kv_rocks *r = rocks_new(o, &message);
    const char *names[KV_FAMILIES];
    bool exists = false;

    if (message)
        return kv_rocks_fail(e, message, "RocksDB refuses an option we need");
    if (chain)
        rocks_chain_use(chain, r->db_options);
    int rc = look(o->dir, &exists, e);
    if (!rc && !o->read_only)
        rc = check_room(o->dir, e);
    if (!rc && exists && !o->read_only)
        rc = prepare_logs(r, e);
    if (!rc && exists)
        rc = check_families(r, o->dir, e);
    if (rc)
        return rc;
    if (!exists && o->read_only)
        return err_set(e, ERR_NOT_FOUND, "no database was found in %s", o->dir);
    for (size_t i = 0; i < KV_CFS; i++)
        names[i] = families[i].name;
    names[KV_CFS] = DEFAULT_FAMILY;
    rocksdb_options_set_create_if_missing(r->db_options, !exists);
    const rocksdb_options_t *const *options = (const rocksdb_options_t *const *)r->options;
    r->db = o->read_only
                ? rocksdb_open_for_read_only_column_families(r->db_options, o->dir, KV_FAMILIES,
                                                             names, options, r->cf, 0, &message)
                : rocksdb_open_column_families(r->db_options, o->dir, KV_FAMILIES, names, options,
                                               r->cf, &message);
    if (message) {
        kv_rocks_fail(e, message, "cannot open the database");
        return err_wrap(e, "%s", o->dir);
    }
    if (!o->read_only && note_logs(r, e))
        return err_wrap(e, "%s", o->dir);
    if (!exists && sync_parent(o->dir, e))
        return e->code;
    r->kv.ops = &kv_rocks_ops;
    if (r->pool)
        kv_rocks_pool_join(r);
    *ret = &r->kv;
    r = NULL; /* moved to the caller */
    return 0;
}

int kv_rocks_open(const struct kv_opts *o, struct kv **ret, struct err *e)
{
    return open_db(o, NULL, ret, e);
}

int kv_rocks_open_chain(const struct kv_opts *o, struct rocks_chain *c, struct kv **ret,
                        struct err *e)
{
    return open_db(o, c, ret, e);
}

int kv_rocks_check_list(const char *dir, bool *ret_counts, struct err *e)
{
    rocksdb_options_t *o = rocksdb_options_create();
    struct rocks_files *f = rocks_files_new(o, dir);
    char *message = NULL;

    *ret_counts = rocks_files_check(f, &message);
    rocksdb_options_destroy(o);
    rocks_files_free(f);
    return message ? kv_rocks_fail(e, message, "cannot replay the write-ahead logs") : 0;
}

const char *kv_rocks_family(enum kv_cf cf)
{
    return families[cf].name;
}

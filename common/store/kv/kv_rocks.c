/* SPDX-License-Identifier: Apache-2.0
 *
 * kv_rocks: kv.h on RocksDB: writes, reads, iterators, figures. What is tuned and how a database is
 * opened stands in kv_rocks_open.c; these two are the only files that know RocksDB.
 *
 * After a failed write nothing more is accepted (`failed`): the failed batch may or may not be in
 * the log, and what follows it must not be acked on top of that. Reopening settles it. Background
 * work ends with it, too; reads continue.
 *
 * A read that finds no room in the block cache (all blocks pinned, or one block larger than a shard
 * of the cache) is repeated without keeping what it reads.
 *
 * Thread: as kv.h says; `failed` is touched by the writer only.
 */
#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>

#include "common/base/mem.h"
#include "common/store/kv/kv_rocks_impl.h"

/* ---- errors ---- */

/* Takes RocksDB's message over. */
int kv_rocks_fail(struct err *e, char *message, const char *doing)
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

/* ---- write ---- */

static void replay(struct kv_rocks *r, const struct kv_batch *b)
{
    struct str ops = buf_str(&b->ops);
    struct rd rd = rd_of(ops);
    struct kv_entry op;

    rocksdb_writebatch_clear(r->batch);
    for (size_t at = 0; kv_batch_next(&rd, &op); at = ops.len - rd_left(&rd)) {
        rocksdb_column_family_handle_t *cf = r->cf[op.cf];
        if (op.op == KV_PUT)
            rocksdb_writebatch_put_cf(r->batch, cf, op.key.ptr, op.key.len, op.value.ptr,
                                      op.value.len);
        else if (op.op == KV_DEL)
            rocksdb_writebatch_delete_cf(r->batch, cf, op.key.ptr, op.key.len);
        else
            kv_rocks_del_range(r, str_sub(ops, 0, at), &op);
    }
}

static int rocks_write(struct kv *k, const struct kv_batch *b, bool sync, struct err *e)
{
    struct kv_rocks *r = kv_rocks_of(k);
    char *message = NULL;

    if (r->read_only)
        return err_set(e, ERR_UNAVAILABLE, "the database is open for reading only");
    if (r->failed)
        return err_set(e, r->failed,
                       "an earlier write failed; no writes until the database is opened again");
    if (b->count) {
        replay(r, b);
        /* It would count each comparison, in memory of this thread that takes a call to find. */
        rocksdb_set_perf_level(rocksdb_disable);
        rocksdb_write(r->db, sync ? r->write_sync : r->write_fast, r->batch, &message);
        rocksdb_writebatch_clear(r->batch);
    } else if (sync) {
        rocksdb_flush_wal(r->db, 1, &message);
    }
    if (!message)
        return 0;
    r->failed = kv_rocks_fail(e, message, "cannot write to the database");
    /* The log may end in half a record. RocksDB would flush by itself when the disk has space
     * again, family by family; closed between two of them, it refuses to open ("SST file is ahead
     * of WALs"): some families are behind the hole, others need the log before it. */
    atomic_store(&r->closing, true);
    rocksdb_cancel_all_background_work(r->db, 0);
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

    s->at = rocksdb_create_snapshot(kv_rocks_of(k)->db);
    s->read = rocksdb_readoptions_create();
    rocksdb_readoptions_set_snapshot(s->read, s->at);
    return s;
}

static void rocks_snap_free(struct kv *k, struct kv_snap *s)
{
    rocksdb_readoptions_destroy(s->read);
    rocksdb_release_snapshot(kv_rocks_of(k)->db, s->at);
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
    struct kv_rocks *r = kv_rocks_of(k);
    char *message = NULL;
    rocksdb_pinnableslice_t *v = rocksdb_get_pinned_cf(r->db, snap ? snap->read : r->read,
                                                       r->cf[cf], key.ptr, key.len, &message);

    if (message && cache_was_full(message))
        v = get_uncached(r, snap, cf, key, &message);
    if (message)
        return kv_rocks_fail(e, message, "cannot read from the database");
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
    return message ? kv_rocks_fail(e, message, "cannot read from the database") : 0;
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
    i->r = kv_rocks_of(k);
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
    struct kv_rocks *r = kv_rocks_of(k);

    ret->cache_bytes =
        r->pool ? kv_rocks_pool_cache_part(r->pool) : rocksdb_cache_get_usage(r->cache);
    for (size_t i = 0; i < KV_CFS; i++) {
        ret->memtable_bytes += property(r, i, "rocksdb.cur-size-all-mem-tables");
        ret->file_bytes[i] = property(r, i, "rocksdb.total-sst-files-size");
        ret->keys_estimate[i] = property(r, i, "rocksdb.estimate-num-keys");
    }
}

static void rocks_cache_resize(struct kv *k, uint64_t bytes)
{
    if (!kv_rocks_of(k)->pool)
        rocksdb_cache_set_capacity(kv_rocks_of(k)->cache, MAX((size_t)bytes, KV_CACHE_BYTES_MIN));
}

/* RocksDB wants columns. It looks offsets up in the indexes of the files. */
static int rocks_sizes(struct kv *k, enum kv_cf cf, const struct kv_range *ranges, size_t n,
                       uint64_t *ret, struct err *e)
{
    struct kv_rocks *r = kv_rocks_of(k);
    const char **from = XNEW_ARRAY(const char *, n), **to = XNEW_ARRAY(const char *, n);
    size_t *from_len = XNEW_ARRAY(size_t, n), *to_len = XNEW_ARRAY(size_t, n);
    char *message = NULL;

    for (size_t i = 0; i < n; i++) {
        from[i] = ranges[i].from.len ? ranges[i].from.ptr : "";
        from_len[i] = ranges[i].from.len;
        to[i] = ranges[i].to.ptr;
        to_len[i] = ranges[i].to.len;
    }
    rocksdb_approximate_sizes_cf(r->db, r->cf[cf], (int)n, from, from_len, to, to_len, ret,
                                 &message);
    xfree(from);
    xfree(to);
    xfree(from_len);
    xfree(to_len);
    return message ? kv_rocks_fail(e, message, "cannot ask for sizes") : 0;
}

/* Bytes in the folder, by kind. Files come and go meanwhile: a deleted file has no bytes. */
static int rocks_disk(struct kv *k, struct kv_disk *ret, struct err *e)
{
    struct kv_rocks *r = kv_rocks_of(k);
    DIR *d = opendir(r->dir);
    struct stat st;

    *ret = (struct kv_disk){ 0 };
    if (!d)
        return err_errno(e, errno, "cannot read the folder %s", r->dir);
    for (struct dirent *one; (one = readdir(d));) {
        struct str name = str_c(one->d_name);
        if (fstatat(dirfd(d), one->d_name, &st, 0) || !S_ISREG(st.st_mode))
            continue;
        uint64_t bytes = (uint64_t)st.st_size;
        *(str_ends(name, STR(".sst"))   ? &ret->tables_bytes
          : str_ends(name, STR(".log")) ? &ret->log_bytes
                                        : &ret->other_bytes) += bytes;
    }
    (void)closedir(d);
    for (size_t i = 0; i < KV_CFS; i++)
        ret->live_bytes[i] = property(r, i, "rocksdb.live-sst-files-size");
    return 0;
}

static int rocks_flush(struct kv *k, struct err *e)
{
    struct kv_rocks *r = kv_rocks_of(k);
    rocksdb_flushoptions_t *o = rocksdb_flushoptions_create();
    char *message = NULL;

    rocksdb_flushoptions_set_wait(o, 1);
    for (size_t i = 0; i < KV_CFS && !message; i++)
        rocksdb_flush_cf(r->db, o, r->cf[i], &message);
    rocksdb_flushoptions_destroy(o);
    return message ? kv_rocks_fail(e, message, "cannot flush the database") : 0;
}

/* On a full disk it would wait; compactions of their own will do it one day. RocksDB does not say
 * whether it did it: not if background work ended meanwhile. */
static bool rocks_compact(struct kv *k, enum kv_cf cf, struct str from, struct str to)
{
    struct kv_rocks *r = kv_rocks_of(k);

    if (kv_rocks_full(r) || atomic_load(&r->closing))
        return false;
    rocksdb_compactoptions_t *o = rocksdb_compactoptions_create();
    /* Other compactions continue: it only shares the threads and the rate limit of all
     * compactions. */
    rocksdb_compactoptions_set_exclusive_manual_compaction(o, 0);
    rocksdb_compact_range_cf_opt(r->db, r->cf[cf], o, from.ptr, from.len, to.ptr, to.len);
    rocksdb_compactoptions_destroy(o);
    return !atomic_load(&r->closing);
}

/* What overlaps the range without lying in it is compacted soon, so that deletions written earlier
 * free their bytes. */
static int rocks_drop_files(struct kv *k, enum kv_cf cf, struct str from, struct str last,
                            struct err *e)
{
    struct kv_rocks *r = kv_rocks_of(k);
    char *message = NULL;

    if (r->failed)
        return err_set(e, r->failed,
                       "an earlier write failed; no writes until the database is opened again");
    rocksdb_delete_file_in_range_cf(r->db, r->cf[cf], from.ptr, from.len, last.ptr, last.len,
                                    &message);
    if (!message)
        rocksdb_suggest_compact_range_cf(r->db, r->cf[cf], from.ptr, from.len, last.ptr, last.len,
                                         &message);
    return message ? kv_rocks_fail(e, message, "cannot drop files of the database") : 0;
}

static int rocks_flush_soon(struct kv *k, enum kv_cf cf, struct err *e)
{
    struct kv_rocks *r = kv_rocks_of(k);
    rocksdb_flushoptions_t *o = rocksdb_flushoptions_create();
    char *message = NULL;

    rocksdb_flushoptions_set_wait(o, 0);
    rocksdb_flush_cf(r->db, o, r->cf[cf], &message);
    rocksdb_flushoptions_destroy(o);
    return message ? kv_rocks_fail(e, message, "cannot flush the database") : 0;
}

const struct kv_ops kv_rocks_ops = {
    .write = rocks_write,
    .get = rocks_get,
    .snap_new = rocks_snap_new,
    .snap_free = rocks_snap_free,
    .iter_new = rocks_iter_new,
    .stats = rocks_stats,
    .cache_resize = rocks_cache_resize,
    .sizes = rocks_sizes,
    .disk = rocks_disk,
    .flush = rocks_flush,
    .drop_files = rocks_drop_files,
    .flush_soon = rocks_flush_soon,
    .compact = rocks_compact,
    .checkpoint = kv_rocks_checkpoint,
    .close = kv_rocks_close,
};

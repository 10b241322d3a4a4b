/* SPDX-License-Identifier: Apache-2.0
 *
 * kv.h: an ordered key-value store with column families and atomic batches: all the engine knows
 * of its disk. kv_rocks.c is RocksDB; kv_mem.c is a sorted map with an injectable power cut
 * (kv_mem.h), for property tests and simulation.
 *
 * Promises, the same for both: a batch is applied whole or not at all, over all column families; a
 * synced batch survives a power cut together with all batches before it; what survives is always a
 * prefix of the batches in the order of kv_write; a killed process loses none that returned 0.
 *
 * Thread: kv_get, snapshots and iterators on any thread; kv_write on one at a time. One iterator
 * belongs to one thread. Slices given by an iterator are valid until it moves; by kv_get they are
 * owned by the buf.
 */
#ifndef COMMON_STORE_KV_KV_H
#define COMMON_STORE_KV_KV_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/size.h"

/* Column families of one shard (design/decisions: Engine, Shard). Never renumber. */
enum kv_cf {
    KV_RAW,    /* unsealed rows */
    KV_FINE,   /* sealed member vectors, 10 s and 1 m */
    KV_COARSE, /* member vectors, 10 m and up */
    KV_RU,     /* roll-ups */
    KV_TL,     /* timelines */
    KV_FN,     /* function index */
    KV_META,   /* dictionaries, series, postings, groups, control */
    KV_WID,    /* write ids */
    KV_EXM,    /* exemplars */
    KV_CFS,
};

struct kv;
struct kv_batch;
struct kv_snap;
struct kv_iter;

#define KV_KEY_BYTES_MAX   ((size_t)65535)
#define KV_BATCH_BYTES_MAX GIB

struct kv_opts {
    const char *dir;                 /* its parent exists */
    uint64_t block_cache_bytes;      /* blocks, indexes and filters of all column families */
    uint64_t memtable_bytes;         /* all column families together */
    struct kv_pool *pool;            /* NULL, or kv_pool.h: then the cache and the memory of all
                                        memtables are its own, block_cache_bytes counts for nothing,
                                        and memtable_bytes says how large a single one may become */
    uint64_t background_bytes_per_s; /* flush and compaction writes; 0 = unlimited */
    const char *tune; /* for measurements, NULL: "fine.block=65536 ru.filter=none": family, one of
                         block, filter, compression, dict; a value in words or bytes. And options in
                         RocksDB's spelling: "db:bytes_per_sync=0", "all:num_levels=3" of families,
                         "fine:..." of one. "statistics" counts */
    bool read_only; /* nothing in the folder is changed; writes are ERR_UNAVAILABLE; takes no lock,
                       so the caller makes sure that no process writes */
};
/* Opens or creates. ERR_CONFIG: a folder that is not a database, or a database of a newer version;
 * ERR_BUSY: another process has it open; ERR_CORRUPT, ERR_NO_SPACE, ERR_IO. */
NODISCARD int kv_rocks_open(const struct kv_opts *o, struct kv **ret, struct err *e);
/* A fresh in-memory one; `faults` may be NULL. */
struct kv_mem_faults;
struct kv *kv_mem_new(struct kv_mem_faults *faults);
void kv_close(struct kv *k); /* NULL is fine; no snapshot or iterator may be open */

struct kv_batch *kv_batch_new(void);
void kv_batch_free(struct kv_batch *b); /* NULL is fine */
void kv_batch_clear(struct kv_batch *b);
void kv_batch_put(struct kv_batch *b, enum kv_cf cf, struct str key, struct str value);
void kv_batch_del(struct kv_batch *b, enum kv_cf cf, struct str key);
/* All keys in [from, to); `to` is not empty. Nothing if from >= to. */
void kv_batch_del_range(struct kv_batch *b, enum kv_cf cf, struct str from, struct str to);
size_t kv_batch_count(const struct kv_batch *b);
size_t kv_batch_bytes(const struct kv_batch *b);
/* Memory for so many bytes at once. Not a limit. */
void kv_batch_reserve(struct kv_batch *b, size_t bytes);
/* Bytes of the batch from `at` on, until it changes: what was put last ends where it ends. */
struct str kv_batch_part(const struct kv_batch *b, size_t at, size_t len);
/* What a batch may have to be written there. A caller that cannot say beforehand how large its
 * batch becomes looks before it writes: a refused batch ends all writing (see below). */
size_t kv_batch_max(const struct kv *k);
/* Appends all of `from` to `to`: group commit. A batch over kv_batch_max is refused by kv_write
 * (ERR_LIMIT), also when it was appended. */
void kv_batch_append(struct kv_batch *to, const struct kv_batch *from);

/* Applies the batch atomically; with sync it is on disk when this returns, as is everything before
 * it (an empty batch, too: then it only syncs). The batch is left as it is. Later operations of a
 * batch win over earlier ones. After an error nothing of it is visible, but it may be there after
 * a restart; further writes fail until then. ERR_IO, ERR_NO_SPACE, ERR_CORRUPT, ERR_LIMIT. */
NODISCARD int kv_write(struct kv *k, const struct kv_batch *b, bool sync, struct err *e);
/* ---- pipelined batches ----
 * Where a majority must have a batch before it is applied (common/repl), a batch that needs no
 * fsync may be begun and not waited for. Batches are applied in the order of kv_begin and kv_write.
 * When one fails, all later ones fail: the database is always the result of a prefix. kv_get and
 * iterators without a snapshot wait for batches in flight that write a row they want; a snapshot
 * shows the batches that were applied when it was made. */
bool kv_begins(const struct kv *k); /* false: kv_begin must not be called */
/* *ret_number is 1 for the first batch. Waits while too many are in flight. One thread, which may
 * be another than that of kv_write. Errors as kv_write, also of batches begun earlier. */
NODISCARD int kv_begin(struct kv *k, const struct kv_batch *b, uint64_t *ret_number, struct err *e);
/* Returns the number of the last batch applied: each snapshot made from now on shows it. */
uint64_t kv_begun_done(struct kv *k);
/* Returns the highest number of a batch in flight that writes a row of [from, to), or the row
 * `from` if both are equal; an empty `to` means no end. 0: no batch does. Any thread. */
uint64_t kv_begun_touches(struct kv *k, enum kv_cf cf, struct str from, struct str to);
/* Waits until batch `number` is applied, at most wait_ms (UINT64_MAX: until it has ended).
 * ERR_TIMEOUT: it is in flight; any other error: a batch has failed, and nothing is written any
 * more. Not on the loop's thread. */
NODISCARD int kv_begun_wait(struct kv *k, uint64_t number, uint64_t wait_ms, struct err *e);

/* Value into *out (replaced). 0, ERR_NOT_FOUND, ERR_LIMIT (over out->max), ERR_IO, ERR_CORRUPT.
 * snap NULL = now. */
NODISCARD int kv_get(struct kv *k, const struct kv_snap *snap, enum kv_cf cf, struct str key,
                     struct buf *out, struct err *e);
/* A database as of a snapshot, for functions that read many rows. Both are borrowed. */
struct kv_view {
    struct kv *kv;
    const struct kv_snap *snap; /* NULL: the newest committed state at each read */
};
struct kv_snap *kv_snap_new(struct kv *k);
void kv_snap_free(struct kv *k, struct kv_snap *s); /* NULL is fine */

/* Keys in [from, to) in byte order, on the first one; to {NULL,0} = no end. snap NULL = the moment
 * of this call. The snapshot must live as long. */
struct kv_iter *kv_iter_new(struct kv *k, const struct kv_snap *snap, enum kv_cf cf,
                            struct str from, struct str to);
void kv_iter_free(struct kv_iter *it); /* NULL is fine */
bool kv_iter_valid(const struct kv_iter *it);
struct str kv_iter_key(const struct kv_iter *it);
struct str kv_iter_value(const struct kv_iter *it);
void kv_iter_next(struct kv_iter *it);
void kv_iter_seek(struct kv_iter *it, struct str key); /* first key >= key, inside the bounds */
/* After the loop: an iterator that hit an error looks exhausted. ERR_IO, ERR_CORRUPT. */
NODISCARD int kv_iter_status(struct kv_iter *it, struct err *e);

/* For the metrics page and space report: bytes of memtables, of files per column family. */
struct kv_stats {
    uint64_t memtable_bytes;
    uint64_t cache_bytes;
    uint64_t file_bytes[KV_CFS];
    uint64_t keys_estimate[KV_CFS];
};
void kv_stats(struct kv *k, struct kv_stats *ret);
NODISCARD int kv_flush(struct kv *k, struct err *e); /* memtables to files */
/* The block cache may hold this much from now on; what is over goes at once. Nothing where it is a
 * pool's. Any thread. */
#define KV_CACHE_BYTES_MIN (8 * MIB)
void kv_cache_resize(struct kv *k, uint64_t bytes);

/* Bytes that keys in [from, to) take in table files, compressed, as the files' indexes tell: exact
 * to about a block. `to` is not empty. What is still in memtables is not counted. Any thread. */
struct kv_range {
    struct str from, to;
};
NODISCARD int kv_sizes(struct kv *k, enum kv_cf cf, const struct kv_range *ranges, size_t n,
                       uint64_t *ret, struct err *e);
/* What lies in the folder now. */
struct kv_disk {
    uint64_t tables_bytes; /* all table files; what live_bytes does not count waits for readers */
    uint64_t log_bytes;    /* write-ahead log */
    uint64_t other_bytes;
    uint64_t live_bytes[KV_CFS]; /* of the table files in use */
};
NODISCARD int kv_disk(struct kv *k, struct kv_disk *ret, struct err *e);
/* What of a snapshot (NULL: of now) is remote (common/cold), piece by piece, without looking
 * there; `each` ends the walk by what it returns, unless that is 0. */
struct kv_far_owner {
    uint32_t tenant, scope; /* numbers, as in keys */
    uint64_t bytes;
};
struct kv_far {
    enum kv_cf cf;
    struct str first;                  /* key */
    uint64_t bytes;                    /* as stored there; of rows that were deleted since, too */
    const struct kv_far_owner *owners; /* the rest of the bytes has no known owner */
    size_t owners_len;
};
typedef int (*kv_far_fn)(void *cookie, const struct kv_far *f, struct err *e);
NODISCARD int kv_far(struct kv *k, const struct kv_snap *snap, kv_far_fn each, void *cookie,
                     struct err *e);
/* Deletes all keys of [from, to); `to` is not empty. Files that hold no other keys are deleted
 * whole and at once, also for existing snapshots, so the keys must be deleted or hidden already,
 * and no older snapshot may need them. Not atomic: after a crash any part may still exist; call it
 * again. Bytes in files that hold other rows, too, are freed by compaction. A later second call
 * starts that compaction, since the deletion of the first call must be in a file by then. Writer's
 * thread. Errors as kv_write. */
NODISCARD int kv_drop_range(struct kv *k, enum kv_cf cf, struct str from, struct str to,
                            struct err *e);
/* Rewrites the files of [from, to) without what was deleted of it, as far as no snapshot needs it;
 * `to` is not empty. Takes as long as it takes; any thread, beside everything else. False: it could
 * not be done now, since the disk is full or the database failed. */
bool kv_compact(struct kv *k, enum kv_cf cf, struct str from, struct str to);

/* A folder that is the database as it is now, for kv_rocks_open, whatever becomes of this one; made
 * of links to its files, so on the same volume, and quick after a flush. It must not exist; it is
 * there whole or not at all ("dir.tmp" may be left after a crash). Writer's thread.
 * ERR_UNIMPLEMENTED: a kv without files. */
bool kv_has_files(const struct kv *k);
NODISCARD int kv_checkpoint(struct kv *k, const char *dir, struct err *e);

#endif

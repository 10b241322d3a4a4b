/* SPDX-License-Identifier: Apache-2.0
 *
 * kv_rocks_impl.h: shared by kv_rocks.c (reads and writes) and kv_rocks_open.c (options, open,
 * close). No other file includes it.
 */
#ifndef COMMON_STORE_KV_KV_ROCKS_IMPL_H
#define COMMON_STORE_KV_KV_ROCKS_IMPL_H

#include <rocksdb/c.h>
#include <stdatomic.h>

#include "common/base/list.h"
#include "common/base/size.h"
#include "common/store/kv/kv.h"
#include "common/store/kv/kv_impl.h"

#define KV_FAMILIES (KV_CFS + 1) /* RocksDB insists on one named "default"; it stays empty */

struct kv_rocks {
    struct kv kv;
    rocksdb_t *db;
    rocksdb_column_family_handle_t *cf[KV_FAMILIES]; /* the last is the default family */
    rocksdb_options_t *options[KV_FAMILIES];
    rocksdb_options_t *db_options;
    rocksdb_cache_t *cache; /* owned, but for a pool's */
    struct kv_pool *pool;   /* or NULL */
    struct list link;       /* the pool's */
    bool in_pool, passed_over;
    rocksdb_ratelimiter_t *limiter; /* or NULL */
    struct rocks_files *files;
    rocksdb_writeoptions_t *write_sync, *write_fast;
    rocksdb_readoptions_t *read;
    rocksdb_writebatch_t *batch; /* reused by the writer */
    int failed;                  /* code of the write that failed; sticky */
    bool read_only;
    _Atomic bool closing; /* a writer that waits for room ends its wait */
    char *dir;            /* owned */
};

static inline struct kv_rocks *kv_rocks_of(struct kv *k)
{
    return container_of(k, struct kv_rocks, kv);
}
/* Databases opened with o have no LOG. In rocks_quiet.cc. */
void rocks_quiet(rocksdb_options_t *o);
/* One limit for the memtables of several databases. In rocks_pool.cc. */
struct rocks_buffers;
struct rocks_buffers *rocks_buffers_new(size_t bytes);
void rocks_buffers_free(struct rocks_buffers *b); /* databases keep it as long as they need it */
void rocks_buffers_use(const struct rocks_buffers *b, rocksdb_options_t *o);
size_t rocks_buffers_all(const struct rocks_buffers *b);
size_t rocks_buffers_active(const struct rocks_buffers *b); /* not those being written out */
/* rocks_wal.cc. The database in dir, opened with o and copies of o, begins no write-ahead log
 * before all older ones are synced. To be freed when it is closed. */
struct rocks_files;
struct rocks_files *rocks_files_new(rocksdb_options_t *o, const char *dir);
void rocks_files_free(struct rocks_files *f);
/* Checks and syncs the logs in the folder, before the database is opened; *message is set if that
 * failed, or if a log lacks what was synced. A manifest that a power cut has torn is cut back
 * (rocks_manifest.cc): returns the bytes that were removed. */
uint64_t rocks_files_prepare(struct rocks_files *f, char **message);
void rocks_files_opened(struct rocks_files *f, char **message); /* behind that */
void rocks_files_closed(struct rocks_files *f); /* if it was opened: its logs are whole */
/* Does the list of synced logs count? *message is set if a log lacks what was synced. Changes
 * nothing. */
bool rocks_files_check(struct rocks_files *f, char **message);
/* rocks_chain.cc. The numbers of batches in write-ahead logs, for kv_rocks_chain.c. */
struct rocks_chain;
struct rocks_chain *rocks_chain_new(const char *family, const char *key, size_t len);
void rocks_chain_free(struct rocks_chain *c);
void rocks_chain_use(struct rocks_chain *c, rocksdb_options_t *o);
size_t rocks_chain_len(const struct rocks_chain *c);
uint64_t rocks_chain_at(const struct rocks_chain *c, size_t i);
/* In a log that the family needs: its tables do not have the rows. */
bool rocks_chain_behind(const struct rocks_chain *c, size_t i);
/* Opens it to be read, without its logs, which go to c. */
NODISCARD int kv_rocks_open_chain(const struct kv_opts *o, struct rocks_chain *c, struct kv **ret,
                                  struct err *e);
const char *kv_rocks_family(enum kv_cf cf);
NODISCARD int kv_rocks_check_list(const char *dir, bool *ret_counts, struct err *e);
/* A flush with o is begun at once, and not waited for. */
void rocks_flush_at_once(rocksdb_flushoptions_t *o);
/* Takes RocksDB's message over and returns the code it means. */
int kv_rocks_fail(struct err *e, char *message, const char *doing);
extern const struct kv_ops kv_rocks_ops;
void kv_rocks_close(struct kv *k);
/* kv_rocks_pool.c. The cache of databases opened with o. */
rocksdb_cache_t *kv_rocks_pool_use(const struct kv_pool *p, rocksdb_options_t *o);
void kv_rocks_pool_join(struct kv_rocks *r);
void kv_rocks_pool_leave(struct kv_rocks *r); /* before it is closed; if it did not join: fine */
uint64_t kv_rocks_pool_cache_part(const struct kv_pool *p); /* of one database, if all had alike */
/* kv_rocks_copy.c */
int kv_rocks_checkpoint(struct kv *k, const char *dir, struct err *e);

/* kv_rocks_full.c. Free bytes of the volume of dir; if it cannot tell, as many as there can be. */
uint64_t kv_rocks_room(const char *dir);
bool kv_rocks_full(const struct kv_rocks *r); /* compactions wait */
/* Deletes range->key up to range->value, behind the operations `ops` of the same batch. */
void kv_rocks_del_range(struct kv_rocks *r, struct str ops, const struct kv_entry *range);
/* Compactions of this family begin only while there is room. */
void kv_rocks_gate(struct kv_rocks *r, rocksdb_options_t *o);

#endif

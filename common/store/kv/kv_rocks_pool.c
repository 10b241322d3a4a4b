/* SPDX-License-Identifier: Apache-2.0
 *
 * kv_rocks_pool: what databases of RocksDB have in common.
 *
 * Why: a share of its own for each would have to be a hundredth of the whole where a process has a
 * hundred, too little for the busy one to work and for nothing with the idle ones; and there is a
 * least below which a cache or a memtable does not work at all, so that a hundred of them passed
 * the limit. A cache in common needs nothing more: the least recently used block of all goes.
 *
 * Memtables are less willing. RocksDB counts all of them, and a database that writes while they
 * are too large writes out its own: one busy database among idle ones would write out a few rows
 * at each write, while the idle ones hold the memory. So the largest are written out before it
 * comes to that.
 *
 * Threads: `lock` guards the list; a database is closed only after it left it, so it stays open
 * while its memtables are looked at. Beginning to write out takes the database's own locks, behind
 * at most the write that is at work, and does not wait for room: RocksDB holds up writers then.
 */
#include "common/store/kv/kv_pool.h"

#include "common/base/list.h"
#include "common/base/mem.h"
#include "common/store/kv/kv_rocks_impl.h"
#include "common/sys/thread.h"

#define ROUNDS_MAX 64 /* of one call */

struct kv_pool {
    rocksdb_cache_t *cache;
    struct rocks_buffers *buffers;
    struct mutex lock;
    struct list all; /* of struct kv_rocks */
    size_t len;
};

struct kv_pool *kv_pool_new(uint64_t cache_bytes, uint64_t memtable_bytes)
{
    struct kv_pool *p = XNEW(struct kv_pool);

    p->cache = rocksdb_cache_create_lru_with_strict_capacity_limit(
        MAX((size_t)cache_bytes, KV_CACHE_BYTES_MIN));
    p->buffers = rocks_buffers_new(MAX((size_t)memtable_bytes, MIB));
    mutex_init(&p->lock);
    list_init(&p->all);
    return p;
}

void kv_pool_free(struct kv_pool *p)
{
    if (!p)
        return;
    CHECK(p->len == 0);
    rocksdb_cache_destroy(p->cache);
    rocks_buffers_free(p->buffers);
    mutex_deinit(&p->lock);
    xfree(p);
}

/* ---- databases come and go ---- */

rocksdb_cache_t *kv_rocks_pool_use(const struct kv_pool *p, rocksdb_options_t *o)
{
    rocks_buffers_use(p->buffers, o);
    return p->cache;
}

void kv_rocks_pool_join(struct kv_rocks *r)
{
    mutex_lock(&r->pool->lock);
    list_add_tail(&r->pool->all, &r->link);
    r->pool->len++;
    r->in_pool = true;
    mutex_unlock(&r->pool->lock);
}

void kv_rocks_pool_leave(struct kv_rocks *r)
{
    if (!r->in_pool)
        return;
    mutex_lock(&r->pool->lock);
    list_del(&r->link);
    r->pool->len--;
    mutex_unlock(&r->pool->lock);
    r->in_pool = false;
}

uint64_t kv_rocks_pool_cache_part(const struct kv_pool *p)
{
    struct kv_pool_stats st;

    /* Locking does not change what the caller sees. */
    kv_pool_stats((struct kv_pool *)(uintptr_t)p, &st);
    return st.cache_bytes / MAX(st.databases, 1u);
}

/* ---- memory ---- */

void kv_pool_resize(struct kv_pool *p, uint64_t cache_bytes)
{
    rocksdb_cache_set_capacity(p->cache, MAX((size_t)cache_bytes, KV_CACHE_BYTES_MIN));
}

void kv_pool_stats(struct kv_pool *p, struct kv_pool_stats *ret)
{
    mutex_lock(&p->lock);
    ret->databases = p->len;
    mutex_unlock(&p->lock);
    ret->memtable_bytes = rocks_buffers_all(p->buffers);
    ret->active_bytes = rocks_buffers_active(p->buffers);
    ret->cache_bytes = rocksdb_cache_get_usage(p->cache);
}

/* The largest memtable in use of all that are not empty. */
static struct kv_rocks *largest(const struct kv_pool *p, size_t *ret_cf)
{
    struct kv_rocks *most = NULL;
    uint64_t rows, bytes, max = 0;

    list_for (it, &p->all) {
        struct kv_rocks *r = container_of(it, struct kv_rocks, link);
        for (size_t i = 0; i < KV_CFS && !r->passed_over; i++) {
            if (rocksdb_property_int_cf(r->db, r->cf[i], "rocksdb.num-entries-active-mem-table",
                                        &rows) ||
                !rows ||
                rocksdb_property_int_cf(r->db, r->cf[i], "rocksdb.cur-size-active-mem-table",
                                        &bytes) ||
                bytes <= max)
                continue;
            most = r;
            max = bytes;
            *ret_cf = i;
        }
    }
    return most;
}

/* False: it cannot be. What is wrong its writer hears, too. */
static bool write_out(struct kv_rocks *r, size_t cf)
{
    rocksdb_flushoptions_t *o;
    char *message = NULL;

    if (kv_rocks_full(r))
        return false;
    o = rocksdb_flushoptions_create();
    rocks_flush_at_once(o);
    rocksdb_flush_cf(r->db, o, r->cf[cf], &message);
    rocksdb_flushoptions_destroy(o);
    rocksdb_free(message);
    return !message;
}

size_t kv_pool_relieve(struct kv_pool *p, uint64_t memtable_bytes)
{
    size_t n = 0, cf;

    if (rocks_buffers_active(p->buffers) <= memtable_bytes)
        return 0;
    mutex_lock(&p->lock);
    list_for (it, &p->all)
        container_of(it, struct kv_rocks, link)->passed_over = false;
    while (n < ROUNDS_MAX && rocks_buffers_active(p->buffers) > memtable_bytes) {
        struct kv_rocks *r = largest(p, &cf);
        if (!r)
            break;
        r->passed_over = !write_out(r, cf);
        n += !r->passed_over;
    }
    mutex_unlock(&p->lock);
    return n;
}

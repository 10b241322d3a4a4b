/* SPDX-License-Identifier: Apache-2.0
 *
 * dict_cache: which dictionaries are in memory, and why readers and the writer agree on them.
 *
 *   readers ──dict_cache_read──┐                      ┌── shard thread: dict_cache_write
 *                              ▼                      ▼
 *                   map (tenant, scope, epoch) -> struct dict, LRU list       one lock, for
 * look-ups
 *
 * A dictionary is *pinned* while it is open for writing: it may hold entries that no committed
 * batch holds yet. Only the shard thread drops pinned ones, and only when every batch that got
 * entries of them is committed; so an id in flight is never forgotten and given to another stack.
 * All others are prefixes of what is on disk, and anyone may drop them.
 *
 * Why a reader with a snapshot never misses an id: if the cached dictionary is pinned, it has every
 * entry ever staged, and those of a batch were published before the batch was committed, hence
 * before a snapshot could hold it. Else it is a prefix of the disk, loaded from some snapshot;
 * where that was older, the epoch row of the reader's own snapshot counts more, and the reader
 * loads the rest under d->load. The shard thread opens for writing under d->load too, after
 * loading what is committed by then, and nothing of a dictionary that is not pinned is in flight.
 *
 * Two objects of one epoch may exist at a time, when the cache has dropped an object that a reader
 * still holds. Both are prefixes of the same sequence, so they never contradict each other.
 *
 * Threads: `lock` guards map, list and the flags cached and pinned; it is held for look-ups and
 * unlinking, never for I/O. d->load is held while rows are read.
 */
#include "common/store/dict/dict_cache.h"

#include "common/base/map.h"
#include "common/base/mem.h"

struct entry {
    struct dict_id id; /* also the key's bytes */
    struct dict *d;    /* one reference */
};
struct dict_cache {
    struct kv *kv; /* borrowed */
    _Atomic uint64_t bytes_max;
    uint64_t hash_mask;
    _Atomic size_t bytes; /* of all dictionaries alive, dropped ones that are still held too */
    struct mutex lock;
    struct map_str *map; /* of struct entry */
    struct list lru;     /* of struct dict; the next to go first */
};

static struct str id_key(const struct dict_id *id)
{
    return str_n(id, sizeof(*id));
}

struct dict_cache *dict_cache_new(struct kv *kv, uint64_t bytes_max, uint64_t hash_mask)
{
    struct dict_cache *c = XNEW(struct dict_cache);

    c->kv = kv;
    atomic_init(&c->bytes_max, bytes_max);
    c->hash_mask = hash_mask;
    mutex_init(&c->lock);
    c->map = map_str_new();
    list_init(&c->lru);
    return c;
}

uint64_t dict_cache_bytes(const struct dict_cache *c)
{
    return atomic_load_explicit(&c->bytes, memory_order_relaxed);
}

void dict_unref(struct dict *d)
{
    if (d && atomic_fetch_sub_explicit(&d->refs, 1, memory_order_acq_rel) == 1)
        dict_free(d);
}

/* ---- with the lock held ---- */

static struct dict *lookup(struct dict_cache *c, const struct dict_id *id)
{
    struct entry *n = map_str_get(c->map, id_key(id));

    if (!n)
        return NULL;
    list_del(&n->d->lru);
    list_add_tail(&c->lru, &n->d->lru);
    atomic_fetch_add_explicit(&n->d->refs, 1, memory_order_relaxed);
    return n->d;
}

/* Takes a reference of its own; an entry that is there stays (false). */
static bool insert(struct dict_cache *c, struct dict *d)
{
    if (map_str_get(c->map, id_key(&d->id)))
        return false;
    struct entry *n = XNEW(struct entry);
    *n = (struct entry){ d->id, d };
    map_str_put(c->map, id_key(&n->id), n);
    list_add_tail(&c->lru, &d->lru);
    d->cached = true;
    atomic_fetch_add_explicit(&d->refs, 1, memory_order_relaxed);
    return true;
}

/* The reference the map had is now the caller's. */
static void unlink_entry(struct dict_cache *c, struct dict *d)
{
    struct entry *n = map_str_del(c->map, id_key(&d->id));

    CHECK(n && n->d == d);
    xfree(n);
    list_del(&d->lru);
    d->cached = false;
}

/* ---- dropping ---- */

/* `committed` is NULL on readers' threads: then pinned ones stay. */
static void trim(struct dict_cache *c, const uint64_t *committed)
{
    struct list gone;
    uint64_t max = atomic_load_explicit(&c->bytes_max, memory_order_relaxed);
    size_t bytes = dict_cache_bytes(c);

    if (bytes <= max)
        return;
    list_init(&gone);
    mutex_lock(&c->lock);
    list_for (it, &c->lru) {
        struct dict *d = container_of(it, struct dict, lru);
        if (bytes <= max)
            break;
        if (d->pinned && (!committed || d->seq > *committed))
            continue;
        bytes -= MIN(bytes, atomic_load_explicit(&d->bytes, memory_order_relaxed));
        unlink_entry(c, d);
        d->pinned = false;
        list_add_tail(&gone, &d->lru);
    }
    mutex_unlock(&c->lock);
    list_for (it, &gone) {
        list_del(it);
        dict_unref(container_of(it, struct dict, lru));
    }
}

void dict_cache_resize(struct dict_cache *c, uint64_t bytes_max)
{
    atomic_store_explicit(&c->bytes_max, bytes_max, memory_order_relaxed);
    trim(c, NULL);
}

void dict_cache_trim(struct dict_cache *c, uint64_t committed)
{
    trim(c, &committed);
}

void dict_cache_drop(struct dict_cache *c, uint32_t tenant, uint32_t scope)
{
    struct list gone;

    list_init(&gone);
    mutex_lock(&c->lock);
    list_for (it, &c->lru) {
        struct dict *d = container_of(it, struct dict, lru);
        if (d->id.tenant != tenant || (scope && d->id.scope != scope))
            continue;
        unlink_entry(c, d);
        d->pinned = false;
        list_add_tail(&gone, &d->lru);
    }
    mutex_unlock(&c->lock);
    list_for (it, &gone) {
        list_del(it);
        dict_unref(container_of(it, struct dict, lru));
    }
}

void dict_cache_free(struct dict_cache *c)
{
    if (!c)
        return;
    list_for (it, &c->lru) {
        struct dict *d = container_of(it, struct dict, lru);
        unlink_entry(c, d);
        CHECK(atomic_load(&d->refs) == 1);
        dict_unref(d);
    }
    map_str_free(c->map);
    mutex_deinit(&c->lock);
    xfree(c);
}

/* ---- readers ---- */

static bool has(const struct dict *d, struct dict_counts want)
{
    struct dict_counts n = dict_counts(d);
    return n.nodes >= want.nodes && n.frames >= want.frames && n.strings >= want.strings;
}

static int epoch_counts(struct dict_cache *c, const struct kv_snap *snap, struct dict_id id,
                        struct dict_counts *ret, struct err *e)
{
    struct buf row;
    struct key k;
    bool closed;

    buf_init(&row, KIB);
    key_epoch(&k, id.tenant, id.scope, id.epoch);
    int rc = kv_get(c->kv, snap, KV_META, key_str(&k), &row, e);
    if (rc == ERR_NOT_FOUND)
        rc = err_set(e, ERR_CORRUPT, "service %u of tenant %u has no dictionary epoch %u", id.scope,
                     id.tenant, id.epoch);
    if (!rc)
        rc = dict_epoch_read(buf_str(&row), &closed, ret, e);
    buf_deinit(&row);
    return rc;
}

/* A dictionary without entries joins the map before it is loaded, so that a second reader waits for
 * the first instead of reading the same rows. Pinned at once where it will be written, so that no
 * reader's thread drops it while it is being opened. */
static struct dict *find_or_new(struct dict_cache *c, struct dict_id id, bool pin, bool *ret_pinned)
{
    mutex_lock(&c->lock);
    struct dict *d = lookup(c, &id);
    if (!d) {
        d = dict_new(id, 0, &c->bytes);
        CHECK(insert(c, d));
    }
    *ret_pinned = d->pinned;
    d->pinned |= pin;
    mutex_unlock(&c->lock);
    return d;
}

int dict_cache_read(struct dict_cache *c, const struct kv_snap *snap, struct dict_id id,
                    struct dict **ret, struct dict_counts *ret_counts, struct err *e)
{
    struct dict_counts want;
    bool pinned;
    int rc = epoch_counts(c, snap, id, &want, e);

    if (rc)
        return rc;
    struct dict *d = find_or_new(c, id, false, &pinned);
    if (!has(d, want)) {
        mutex_lock(&d->load);
        if (!has(d, want))
            rc = dict_load(d, c->kv, snap, want, e);
        mutex_unlock(&d->load);
    }
    if (rc) {
        dict_unref(d);
        return rc;
    }
    trim(c, NULL);
    *ret = d;
    *ret_counts = want;
    return 0;
}

/* ---- the shard thread ---- */

static void set_pinned(struct dict_cache *c, struct dict *d, bool pinned)
{
    mutex_lock(&c->lock);
    d->pinned = pinned;
    mutex_unlock(&c->lock);
}

int dict_cache_write(struct dict_cache *c, struct dict_id id, uint64_t seed, struct dict **ret,
                     struct err *e)
{
    struct dict_counts want;
    bool ready;
    struct dict *d = find_or_new(c, id, true, &ready);

    if (ready) {
        *ret = d;
        return 0;
    }
    int rc = epoch_counts(c, NULL, id, &want, e);
    if (!rc) {
        mutex_lock(&d->load);
        rc = dict_load(d, c->kv, NULL, want, e);
        if (!rc) {
            d->seed = seed;
            dict_open_writer(d, c->hash_mask);
        }
        mutex_unlock(&d->load);
    }
    if (rc) {
        set_pinned(c, d, false);
        dict_unref(d);
        return rc;
    }
    *ret = d;
    return 0;
}

struct dict *dict_cache_create(struct dict_cache *c, struct dict_id id, uint64_t seed)
{
    struct dict *d = dict_new(id, seed, &c->bytes);

    dict_open_writer(d, c->hash_mask);
    mutex_lock(&c->lock);
    CHECK(insert(c, d));
    d->pinned = true;
    mutex_unlock(&c->lock);
    return d;
}

void dict_cache_close_epoch(struct dict_cache *c, struct dict *d)
{
    dict_close_writer(d);
    set_pinned(c, d, false);
}

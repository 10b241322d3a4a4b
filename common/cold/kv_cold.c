/* SPDX-License-Identifier: Apache-2.0
 *
 * kv_cold: the kv under the engine, with some of its rows in the object store.
 *
 *   engine ─ kv_write ─> kv_cold ─ the batch, and what it changes in tables 78, 79 ─> inner kv
 *          ─ get, iterators ─> inner kv, and, where parts lie in the range, their rows below it
 *
 * The rules are those of a log-structured tree with two levels: a local row hides a row of a part;
 * a deletion of rows of a part is kept as a range until the part is deleted. Offloading is an
 * ordinary batch, {delete the range, put the rows of tables 78}: operations count in their order,
 * so local rows are replaced by rows of parts in one step, in every snapshot, and on every replica
 * that applies the same batch.
 *
 * A snapshot is the inner snapshot and the manifest of the same moment. While a batch that changes
 * the manifest is being written (to a quorum: possibly for seconds), the manifest is read from the
 * inner snapshot itself. Readers never wait for that write; writers wait for each other. Batches
 * that change nothing about parts, nearly all, take no lock.
 *
 * Indexes of parts stay in memory up to a bound; of those not in use the least recently used is
 * freed first.
 */
#include "common/cold/kv_cold.h"

#include "common/base/mem.h"
#include "common/cold/kv_cold_impl.h"
#include "common/cold/usage.h"
#include "common/store/kv/cold_read.h"

#define INDEX_BYTES_MAX (32 * MIB)

static struct kv_cold *cold_of(struct kv *k)
{
    return container_of(k, struct kv_cold, kv);
}

/* ---- parts ---------------------------------------------------------------------------------- */

struct fetching {
    struct kv_cold *k;
    const struct cold_part *p;
};

static int fetch(void *cookie, uint64_t at, size_t len, struct buf *out, struct err *e)
{
    struct fetching *f = cookie;

    return cold_cache_read(
        f->k->o.cache,
        &(struct cold_range){ .name = str_c(f->p->name), .size = f->p->size, .at = at, .len = len },
        out, e);
}

/* A missing object is damage: "not found" would look like a row that never existed. */
static int cold_error(const struct cold_part *p, const struct err *why, struct err *e)
{
    return err_set(e, why->code == ERR_NOT_FOUND ? ERR_CORRUPT : why->code, "cold tier, %s: %.300s",
                   p->name, why->text);
}

int cold_block_read(struct kv_cold *k, const struct cold_part *p, const struct part_index *x,
                    size_t block, struct buf *out, struct err *e)
{
    struct fetching f = { k, p };
    struct err why = { 0 };
    int rc = part_block_read(x, block, fetch, &f, out, &why);

    if (rc == ERR_CORRUPT) { /* a torn file of the cache, or the object itself? */
        cold_cache_forget(k->o.cache, str_c(p->name), 0, (size_t)p->size);
        rc = part_block_read(x, block, fetch, &f, out, &why);
    }
    return rc ? cold_error(p, &why, e) : 0;
}

/* Locked. Over the bound, frees indexes that are not in use, least recently used first. */
static void trim_indexes(struct kv_cold *k)
{
    size_t max = k->o.index_bytes_max ? k->o.index_bytes_max : INDEX_BYTES_MAX;

    while (k->index_bytes > max) {
        size_t oldest = SIZE_MAX;

        vec_for (i, &k->loaded) {
            const struct cold_part *p = k->loaded.ptr[i];
            if (!p->index_users &&
                (oldest == SIZE_MAX || p->index_used < k->loaded.ptr[oldest]->index_used))
                oldest = i;
        }
        if (oldest == SIZE_MAX)
            return;
        struct cold_part *p = k->loaded.ptr[oldest];
        k->index_bytes -= part_index_bytes(p->index);
        part_index_free(p->index);
        p->index = NULL;
        k->loaded.ptr[oldest] = k->loaded.ptr[--k->loaded.len];
        cold_part_unref(p);
    }
}

static int load_index(struct kv_cold *k, struct cold_part *p, struct part_index **ret,
                      struct err *e)
{
    struct fetching f = { k, p };
    struct err why = { 0 };
    int rc = part_index_read(p->size, fetch, &f, ret, &why);

    if (rc == ERR_CORRUPT) {
        cold_cache_forget(k->o.cache, str_c(p->name), 0, (size_t)p->size);
        rc = part_index_read(p->size, fetch, &f, ret, &why);
    }
    return rc ? cold_error(p, &why, e) : 0;
}

int cold_index_get(struct kv_cold *k, struct cold_part *p, struct part_index **ret, struct err *e)
{
    struct part_index *fresh = NULL;

    mutex_lock(&k->lock);
    if (!p->index) {
        mutex_unlock(&k->lock);
        if (load_index(k, p, &fresh, e))
            return e->code;
        mutex_lock(&k->lock);
    }
    if (!p->index) {
        p->index = fresh;
        fresh = NULL;
        k->index_bytes += part_index_bytes(p->index);
        atomic_fetch_add(&p->refs, 1);
        vec_push(&k->loaded, p);
    }
    p->index_users++;
    p->index_used = ++k->index_clock;
    *ret = p->index;
    trim_indexes(k);
    mutex_unlock(&k->lock);
    part_index_free(fresh); /* another thread was faster */
    return 0;
}

void cold_index_put(struct kv_cold *k, struct cold_part *p)
{
    mutex_lock(&k->lock);
    CHECK(p->index_users);
    p->index_users--;
    trim_indexes(k);
    mutex_unlock(&k->lock);
}

/* ---- writes --------------------------------------------------------------------------------- */

static bool watched(const struct kv_cold *k, const struct kv_entry *op)
{
    if (!k->watch.on || op->cf != k->watch.cf)
        return false;
    if (op->op == KV_DEL_RANGE)
        return str_cmp(op->key, k->watch.to) < 0 && str_cmp(k->watch.from, op->value) < 0;
    return str_cmp(op->key, k->watch.from) >= 0 && str_cmp(op->key, k->watch.to) < 0;
}

/* One operation; *next is the manifest it changes, made when needed. */
static int apply(struct kv_cold *k, const struct kv_entry *op, struct manifest **next,
                 struct kv_batch *rows, struct err *e)
{
    const struct manifest *m = *next ? *next : k->now;
    const struct cold_family *f = &m->of[op->cf];
    char end[PART_KEY_MAX + 1];
    struct str to = op->value;

    if (op->op != KV_DEL_RANGE && manifest_is_row(op->cf, op->key)) {
        if (!*next)
            *next = manifest_clone(k->now);
        return manifest_row(*next, op->key, op->op == KV_DEL ? STR_NULL : op->value, e);
    }
    if (op->op == KV_PUT || !f->parts.len)
        return 0;
    if (op->op == KV_DEL) {
        if (op->key.len > PART_KEY_MAX)
            return 0;
        memcpy(end, op->key.ptr, op->key.len);
        end[op->key.len] = '\0';
        to = str_n(end, op->key.len + 1);
    }
    if (!manifest_intersects(f, op->key, to))
        return 0;
    if (!*next)
        *next = manifest_clone(k->now);
    (void)manifest_delete(*next, op->cf, op->key, to, rows);
    return 0;
}

static void set_changing(struct kv_cold *k)
{
    mutex_lock(&k->lock);
    k->changing = true;
    mutex_unlock(&k->lock);
}

/* Holding `writing`. Takes `next`. */
static int write_changed(struct kv_cold *k, const struct kv_batch *b, const struct kv_batch *rows,
                         struct manifest *next, bool sync, struct err *e)
{
    struct kv_batch *all = kv_batch_new();
    struct manifest *other = next;
    int rc;

    /* First: the batch's own rows of the tables say what comes behind what it deletes. */
    kv_batch_append(all, rows);
    kv_batch_append(all, b);
    set_changing(k);
    rc = kv_write(k->o.inner, all, sync, e);
    kv_batch_free(all);
    mutex_lock(&k->lock);
    if (!rc) {
        other = k->now;
        k->now = next;
    }
    /* A write that failed may still be committed (by a leader that was replaced meanwhile): from
     * then on each snapshot says itself which manifest is its own. */
    k->changing = rc != 0;
    mutex_unlock(&k->lock);
    manifest_unref(other);
    return rc;
}

/* Called after a write. The write may have been under way (for seconds, with a slow quorum) when a
 * watch began: then the watching thread has read the rows without it. */
static void look_again(struct kv_cold *k, const struct kv_batch *b)
{
    struct rd r = rd_of(buf_str(&b->ops));
    struct kv_entry op;

    if (!atomic_load(&k->cold))
        return;
    mutex_lock(&k->lock);
    while (k->watch.on && !k->watch.changed && kv_batch_next(&r, &op))
        k->watch.changed = watched(k, &op);
    mutex_unlock(&k->lock);
}

static int plain(struct kv_cold *k, const struct kv_batch *b, bool sync, uint64_t *ret_number,
                 struct err *e)
{
    int rc = ret_number ? kv_begin(k->o.inner, b, ret_number, e) : kv_write(k->o.inner, b, sync, e);

    look_again(k, b);
    return rc;
}

/* `ret_number`: as kv_begin; NULL: as kv_write. A batch that changes the manifest is never
 * pipelined, since snapshots and manifest must change in one step. */
static int write_or_begin(struct kv_cold *k, const struct kv_batch *b, bool sync,
                          uint64_t *ret_number, struct err *e)
{
    struct rd r = rd_of(buf_str(&b->ops));
    struct manifest *next = NULL;
    struct kv_batch *rows;
    struct kv_entry op;
    int rc = 0;

    if (!atomic_load(&k->cold))
        return plain(k, b, sync, ret_number, e);
    rows = kv_batch_new();
    mutex_lock(&k->writing);
    mutex_lock(&k->lock);
    while (!rc && kv_batch_next(&r, &op)) {
        if (watched(k, &op))
            k->watch.changed = true;
        rc = apply(k, &op, &next, rows, e);
    }
    mutex_unlock(&k->lock);
    if (rc || !next) {
        mutex_unlock(&k->writing);
        kv_batch_free(rows);
        manifest_unref(next);
        return rc ? rc : plain(k, b, sync, ret_number, e);
    }
    rc = write_changed(k, b, rows, next, sync || ret_number, e);
    mutex_unlock(&k->writing);
    look_again(k, b);
    kv_batch_free(rows);
    return rc;
}

static int cold_write(struct kv *kv, const struct kv_batch *b, bool sync, struct err *e)
{
    return write_or_begin(cold_of(kv), b, sync, NULL, e);
}

static int cold_begin(struct kv *kv, const struct kv_batch *b, uint64_t *ret_number, struct err *e)
{
    *ret_number = 0;
    return write_or_begin(cold_of(kv), b, false, ret_number, e);
}

static uint64_t cold_begun_done(struct kv *kv)
{
    return kv_begun_done(cold_of(kv)->o.inner);
}

static uint64_t cold_begun_touches(struct kv *kv, enum kv_cf cf, struct str from, struct str to)
{
    return kv_begun_touches(cold_of(kv)->o.inner, cf, from, to);
}

static int cold_begun_wait(struct kv *kv, uint64_t number, uint64_t wait_ms, struct err *e)
{
    return kv_begun_wait(cold_of(kv)->o.inner, number, wait_ms, e);
}

/* Waits for pipelined batches before a read without a snapshot takes its locks, which must not be
 * held meanwhile. */
static int see_begun(struct kv_cold *k, enum kv_cf cf, struct str from, struct str to,
                     struct err *e)
{
    return kv_begun_wait(k->o.inner, kv_begun_touches(k->o.inner, cf, from, to), UINT64_MAX, e);
}

/* ---- reads ---------------------------------------------------------------------------------- */

static struct cold_snap *snap_of(const struct kv_snap *s)
{
    return (struct cold_snap *)(uintptr_t)(const void *)s;
}

const struct kv_snap *kv_cold_inner_snap(const struct kv_snap *snap)
{
    return snap ? snap_of(snap)->inner : NULL;
}

struct manifest *kv_cold_manifest(struct kv *kv, const struct kv_snap *snap)
{
    struct kv_cold *k = cold_of(kv);
    struct manifest *m;

    if (snap)
        return manifest_ref(snap_of(snap)->m);
    mutex_lock(&k->lock);
    m = manifest_ref(k->now);
    mutex_unlock(&k->lock);
    return m;
}

/* False: it could not be read whether the change that is under way is in it. `anyway`: then it is
 * taken for not being in it. */
static bool snap_try(struct kv_cold *k, struct cold_snap *s, bool anyway)
{
    bool sure = true;
    struct err e;

    mutex_lock(&k->lock);
    s->inner = kv_snap_new(k->o.inner);
    if (k->changing)
        sure = manifest_load(k->o.inner, s->inner, k->o.shard, &s->m, &e) == 0;
    if (!k->changing || (!sure && anyway)) {
        s->m = manifest_ref(k->now);
        sure = true;
    }
    mutex_unlock(&k->lock);
    if (!sure)
        kv_snap_free(k->o.inner, s->inner);
    return sure;
}

static struct kv_snap *cold_snap_new(struct kv *kv)
{
    struct kv_cold *k = cold_of(kv);
    struct cold_snap *s = XNEW(struct cold_snap);

    if (!snap_try(k, s, false)) {
        mutex_lock(&k->writing);     /* then nothing is under way */
        CHECK(snap_try(k, s, true)); /* anyway: a write failed, and its database cannot be read */
        mutex_unlock(&k->writing);
    }
    return (struct kv_snap *)(void *)s;
}

static void cold_snap_free(struct kv *kv, struct kv_snap *snap)
{
    struct cold_snap *s = snap_of(snap);

    kv_snap_free(cold_of(kv)->o.inner, s->inner);
    manifest_unref(s->m);
    xfree(s);
}

/* The row of a part, unless it is missing or deleted. */
static int get_part(struct kv_cold *k, struct manifest *m, enum kv_cf cf, struct str key,
                    struct buf *out, struct err *e)
{
    struct cold_cursor c;
    int rc;

    cold_cursor_init(&c, k, m, cf, STR_NULL);
    cold_cursor_seek(&c, key);
    if (c.err.code)
        rc = err_set(e, c.err.code, "%s", c.err.text);
    else if (!c.valid || !str_eq(part_row_key(&c.row), key))
        rc = err_set(e, ERR_NOT_FOUND, "no such key");
    else {
        buf_reset(out);
        rc = buf_add_str(out, c.row.value)
                 ? 0
                 : err_set(e, ERR_LIMIT, "a value of %zu bytes is over %zu", c.row.value.len,
                           out->max);
    }
    cold_cursor_deinit(&c);
    return rc;
}

/* True if this read skips rows of parts. Then it notes that some exist. */
static bool passes_over(const struct kv_cold *k)
{
    struct cold_read *r = cold_read();

    if (r)
        r->met = r->met || r->local || k->o.local;
    return k->o.local || (r && r->local);
}

static int cold_get(struct kv *kv, const struct kv_snap *snap, enum kv_cf cf, struct str key,
                    struct buf *out, struct err *e)
{
    struct kv_cold *k = cold_of(kv);
    struct kv_snap *own = NULL;
    int rc;

    if (!manifest_may(cf))
        return kv_get(k->o.inner, kv_cold_inner_snap(snap), cf, key, out, e);
    if (!snap && see_begun(k, cf, key, key, e))
        return e->code;
    if (!snap) /* both at one moment */
        snap = own = cold_snap_new(kv);
    struct manifest *m = snap_of(snap)->m;
    rc = kv_get(k->o.inner, snap_of(snap)->inner, cf, key, out, e);
    if (rc == ERR_NOT_FOUND && manifest_intersects(&m->of[cf], key, STR_NULL)) {
        size_t i = manifest_part_at(&m->of[cf], key);
        if (str_cmp(m->of[cf].parts.ptr[i]->first, key) <= 0 && passes_over(k))
            rc = ERR_NOT_FOUND;
        else if (str_cmp(m->of[cf].parts.ptr[i]->first, key) <= 0) {
            err_clear(e);
            rc = get_part(k, m, cf, key, out, e);
        }
    }
    if (own)
        cold_snap_free(kv, own);
    return rc;
}

static struct kv_iter *cold_iter(struct kv *kv, const struct kv_snap *snap, enum kv_cf cf,
                                 struct str from, struct str to)
{
    struct kv_cold *k = cold_of(kv);
    const struct kv_snap *inner = kv_cold_inner_snap(snap);
    struct kv_iter *it;
    struct manifest *m;
    struct err e;

    if (!manifest_may(cf) || !atomic_load(&k->cold))
        return k->o.inner->ops->iter_new(k->o.inner, inner, cf, from, to);
    if (!snap && see_begun(k, cf, from, to, &e))
        return kv_iter_failed(&e);
    if (!snap) { /* the engine's writers alone read so: their own write is not under way */
        mutex_lock(&k->writing);
        mutex_lock(&k->lock);
    }
    m = manifest_ref(snap ? snap_of(snap)->m : k->now);
    if (!manifest_intersects(&m->of[cf], from, to)) {
        it = k->o.inner->ops->iter_new(k->o.inner, inner, cf, from, to);
        manifest_unref(m);
    } else if (passes_over(k)) {
        it = k->o.inner->ops->iter_new(k->o.inner, inner, cf, from, to);
        manifest_unref(m);
    } else {
        it = cold_iter_new(k, kv_iter_new(k->o.inner, inner, cf, from, to), m, cf, to);
    }
    if (!snap) {
        mutex_unlock(&k->lock);
        mutex_unlock(&k->writing);
    }
    return it;
}

/* ---- the rest is the inner kv's ------------------------------------------------------------- */

static void cold_stats(struct kv *kv, struct kv_stats *ret)
{
    kv_stats(cold_of(kv)->o.inner, ret);
}

static void cold_cache_resize(struct kv *kv, uint64_t bytes)
{
    kv_cache_resize(cold_of(kv)->o.inner, bytes);
}

static int cold_sizes(struct kv *kv, enum kv_cf cf, const struct kv_range *ranges, size_t n,
                      uint64_t *ret, struct err *e)
{
    return kv_sizes(cold_of(kv)->o.inner, cf, ranges, n, ret, e);
}

static int cold_disk(struct kv *kv, struct kv_disk *ret, struct err *e)
{
    return kv_disk(cold_of(kv)->o.inner, ret, e);
}

static int cold_far(struct kv *kv, const struct kv_snap *snap, kv_far_fn each, void *cookie,
                    struct err *e)
{
    struct kv_snap *own = snap ? NULL : cold_snap_new(kv);
    const struct cold_snap *s = snap_of(snap ? snap : own);
    int rc = cold_usage_each(s->m, cold_of(kv)->o.inner, s->inner, each, cookie, e);

    if (own)
        cold_snap_free(kv, own);
    return rc;
}

static int cold_flush(struct kv *kv, struct err *e)
{
    return kv_flush(cold_of(kv)->o.inner, e);
}

static bool cold_compact(struct kv *kv, enum kv_cf cf, struct str from, struct str to)
{
    return kv_compact(cold_of(kv)->o.inner, cf, from, to);
}

static int cold_drop_files(struct kv *kv, enum kv_cf cf, struct str from, struct str last,
                           struct err *e)
{
    struct kv *inner = cold_of(kv)->o.inner;

    mutex_lock(&cold_of(kv)->lock); /* no thread reads there now; a watching offload may have */
    cold_of(kv)->watch.changed = true;
    mutex_unlock(&cold_of(kv)->lock);
    return inner->ops->drop_files ? inner->ops->drop_files(inner, cf, from, last, e) : 0;
}

static int cold_flush_soon(struct kv *kv, enum kv_cf cf, struct err *e)
{
    struct kv *inner = cold_of(kv)->o.inner;

    return inner->ops->flush_soon ? inner->ops->flush_soon(inner, cf, e) : 0;
}

static void unwatch(struct kv_cold *k)
{
    xfree((void *)(uintptr_t)k->watch.from.ptr);
    xfree((void *)(uintptr_t)k->watch.to.ptr);
    k->watch.from = k->watch.to = STR_NULL;
    k->watch.on = false;
}

static void cold_close(struct kv *kv)
{
    struct kv_cold *k = cold_of(kv);

    unwatch(k);
    vec_for (i, &k->loaded) {
        struct cold_part *p = k->loaded.ptr[i];
        CHECK(!p->index_users);
        part_index_free(p->index);
        p->index = NULL;
        cold_part_unref(p);
    }
    vec_free(&k->loaded);
    manifest_unref(k->now);
    kv_close(k->o.inner);
    mutex_deinit(&k->lock);
    mutex_deinit(&k->writing);
    xfree(k);
}

/* ---- opening, and the watch of an offload --------------------------------------------------- */

struct kv *kv_cold_inner(struct kv *k)
{
    return cold_of(k)->o.inner;
}

void kv_cold_watch(struct kv *kv, enum kv_cf cf, struct str from, struct str to)
{
    struct kv_cold *k = cold_of(kv);

    mutex_lock(&k->lock);
    unwatch(k);
    k->watch.on = true;
    k->watch.changed = false;
    k->watch.cf = cf;
    k->watch.from = str_n(xmemdup(from.ptr, from.len), from.len);
    k->watch.to = str_n(xmemdup(to.ptr, to.len), to.len);
    atomic_store(&k->cold, true);
    mutex_unlock(&k->lock);
    /* A batch in flight may be applied after the caller has read the range, and look_again ran
     * before the watch began. So it counts as a change, and the caller tries again later. */
    if (kv_begun_touches(k->o.inner, cf, from, to)) {
        mutex_lock(&k->lock);
        k->watch.changed = true;
        mutex_unlock(&k->lock);
    }
}

bool kv_cold_unchanged(struct kv *kv)
{
    struct kv_cold *k = cold_of(kv);

    mutex_lock(&k->lock);
    bool same = k->watch.on && !k->watch.changed;
    unwatch(k);
    mutex_unlock(&k->lock);
    return same;
}

static bool any_part(const struct manifest *m)
{
    for (int cf = 0; cf < KV_CFS; cf++)
        if (m->of[cf].parts.len || m->of[cf].hides.len)
            return true;
    return false;
}

int kv_cold_open(const struct kv_cold_opts *o, struct kv **ret, struct err *e)
{
    static const struct kv_ops ops = {
        .write = cold_write,
        .get = cold_get,
        .snap_new = cold_snap_new,
        .snap_free = cold_snap_free,
        .iter_new = cold_iter,
        .stats = cold_stats,
        .cache_resize = cold_cache_resize,
        .sizes = cold_sizes,
        .disk = cold_disk,
        .flush = cold_flush,
        .compact = cold_compact,
        .drop_files = cold_drop_files,
        .flush_soon = cold_flush_soon,
        .far = cold_far,
        .begin = cold_begin,
        .begun_done = cold_begun_done,
        .begun_touches = cold_begun_touches,
        .begun_wait = cold_begun_wait,
        .close = cold_close,
    };
    struct manifest *m;
    struct kv_cold *k;

    if (manifest_load(o->inner, NULL, o->shard, &m, e)) {
        kv_close(o->inner);
        return err_wrap(e, "parts of shard %" PRIu32, o->shard);
    }
    if (any_part(m) && !o->cache && !o->local) {
        manifest_unref(m);
        kv_close(o->inner);
        return err_set(e, ERR_CONFIG,
                       "shard %" PRIu32 " has rows in the cold tier; say where that is (cold.url), "
                       "or they would be missing from answers",
                       o->shard);
    }
    k = XNEW(struct kv_cold);
    k->kv.ops = &ops;
    k->kv.batch_max = kv_batch_max(o->inner);
    k->kv.begins = kv_begins(o->inner);
    k->o = *o;
    k->now = m;
    mutex_init(&k->lock);
    mutex_init(&k->writing);
    atomic_store(&k->cold, any_part(m));
    *ret = &k->kv;
    return 0;
}

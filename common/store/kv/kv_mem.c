/* SPDX-License-Identifier: Apache-2.0
 *
 * kv_mem: kv.h in memory: a skip list per column family, with versions.
 *
 * Every key has a chain of versions, newest first, each with the number of the batch that wrote it
 * (seq). A snapshot is a number, reading at it takes the newest version not above it, and a power
 * cut is the removal of all versions above a number:
 *
 *      seq   1 .......... synced ...... seq         keep = 2:  versions above synced + 2 go
 *            survive a power cut | may be lost
 *
 * Invariants: (1) chains descend strictly in seq; (2) of each key all versions above floor =
 * min(synced, oldest snapshot, what is loose) are kept, and the newest one not above it; (3) a key
 * whose only version is a deletion not above the floor is dropped. No iterator stands on such a
 * key: it holds a snapshot, and stands on keys that have a value there.
 *
 * Thread: one lock around everything. It is a double for tests, not for speed; an iterator copies
 * each entry, so that what it gave stays valid whatever others do.
 */
#include "common/store/kv/kv_mem.h"

#include "common/base/hash.h"
#include "common/base/list.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/store/kv/kv_impl.h"
#include "common/sys/thread.h"

#define HEIGHT_MAX 16

struct version {
    struct version *older; /* owned */
    uint64_t seq;
    size_t len;
    bool dead; /* a deletion */
    char data[];
};
struct node {
    struct version *top; /* owned, never NULL but in heads */
    char *key;           /* owned */
    size_t key_len;
    bool stale; /* listed in stale[] */
    enum kv_cf cf;
    int height;
    struct node *next[];
};

/* Batches that KV_MEM_KILL_UNSYNCED left without a sync, for good. */
struct loose {
    uint64_t above, upto;
};
struct kv_snap {
    struct list link; /* oldest first */
    uint64_t seq;
};

struct kv_mem {
    struct kv kv;
    struct mutex lock;
    struct node *heads[KV_CFS]; /* owned */
    uint64_t keys[KV_CFS];
    uint64_t bytes;
    uint64_t seq;    /* of the newest batch */
    uint64_t synced; /* all up to here survive a power cut */
    uint64_t levels; /* state of the dice for node heights */
    struct list snaps;
    size_t iters;
    VEC(struct node *) stale;     /* may have versions that no reader needs */
    struct kv_batch *doubt;       /* failed after it reached the log, or NULL */
    VEC(struct loose) loose;      /* in order */
    int failed;                   /* code of the failed write; sticky */
    struct kv_mem_faults *faults; /* borrowed, may be NULL */
};

static struct kv_mem *mem_of(struct kv *k)
{
    return container_of(k, struct kv_mem, kv);
}

/* ---- skip list ---- */

static struct node *node_new(struct str key, int height)
{
    struct node *n = xcalloc(1, sizeof(*n) + (size_t)height * sizeof(n->next[0]));

    n->key = xmemdup(key.len ? key.ptr : "", key.len);
    n->key_len = key.len;
    n->height = height;
    return n;
}

static void node_free(struct node *n)
{
    for (struct version *v = n->top, *older; v; v = older) {
        older = v->older;
        xfree(v);
    }
    xfree(n->key);
    xfree(n);
}

static struct str node_key(const struct node *n)
{
    return (struct str){ n->key, n->key_len };
}

/* First node with key >= `key`, or NULL; prev[i] = last node before it on level i. */
static struct node *find(struct kv_mem *m, enum kv_cf cf, struct str key,
                         struct node *prev[HEIGHT_MAX])
{
    struct node *at = m->heads[cf];

    for (int i = HEIGHT_MAX - 1; i >= 0; i--) {
        while (at->next[i] && str_cmp(node_key(at->next[i]), key) < 0)
            at = at->next[i];
        if (prev)
            prev[i] = at;
    }
    return at->next[0];
}

static struct node *find_or_add(struct kv_mem *m, enum kv_cf cf, struct str key)
{
    struct node *prev[HEIGHT_MAX];
    struct node *n = find(m, cf, key, prev);

    if (n && str_eq(node_key(n), key))
        return n;
    m->levels = hash_u64(m->levels + 1);
    int height = 1 + __builtin_ctzll(m->levels | UINT64_C(1) << (HEIGHT_MAX - 1));
    n = node_new(key, height);
    n->cf = cf;
    for (int i = 0; i < height; i++) {
        n->next[i] = prev[i]->next[i];
        prev[i]->next[i] = n;
    }
    m->keys[cf]++;
    m->bytes += sizeof(*n) + key.len;
    return n;
}

static void drop_node(struct kv_mem *m, struct node *n)
{
    struct node *prev[HEIGHT_MAX];

    CHECK(find(m, n->cf, node_key(n), prev) == n);
    for (int i = 0; i < n->height; i++)
        prev[i]->next[i] = n->next[i];
    m->keys[n->cf]--;
    m->bytes -= sizeof(*n) + n->key_len;
    node_free(n);
}

/* ---- versions ---- */

static const struct version *version_at(const struct node *n, uint64_t seq)
{
    const struct version *v = n->top;

    while (v && v->seq > seq)
        v = v->older;
    return v && !v->dead ? v : NULL;
}

static void drop_version(struct kv_mem *m, struct version *v)
{
    m->bytes -= sizeof(*v) + v->len;
    xfree(v);
}

static void add_version(struct kv_mem *m, struct node *n, const struct str *value)
{
    size_t len = value ? value->len : 0;
    struct version *v = xmalloc(sizeof(*v) + len);

    *v = (struct version){ .older = n->top, .seq = m->seq, .len = len, .dead = !value };
    if (len)
        memcpy(v->data, value->ptr, len);
    m->bytes += sizeof(*v) + len;
    if (n->top && n->top->seq == m->seq) { /* a later operation of the same batch wins */
        v->older = n->top->older;
        drop_version(m, n->top);
    }
    n->top = v;
    if ((v->older || v->dead) && !n->stale) {
        n->stale = true;
        vec_push(&m->stale, n);
    }
}

static void apply(struct kv_mem *m, const struct kv_batch *b)
{
    struct rd r = rd_of(buf_str(&b->ops));
    struct kv_entry op;

    m->seq++;
    while (kv_batch_next(&r, &op)) {
        if (op.op == KV_DEL_RANGE) {
            struct node *n = find(m, op.cf, op.key, NULL);
            for (; n && str_cmp(node_key(n), op.value) < 0; n = n->next[0])
                add_version(m, n, NULL);
        } else if (op.op == KV_PUT) {
            add_version(m, find_or_add(m, op.cf, op.key), &op.value);
        } else {
            struct node *n = find(m, op.cf, op.key, NULL);
            if (n && str_eq(node_key(n), op.key))
                add_version(m, n, NULL);
        }
    }
}

/* Drops what invariant (2) does not keep. */
static void collect(struct kv_mem *m)
{
    uint64_t floor = m->loose.len ? MIN(m->synced, m->loose.ptr[0].above) : m->synced;
    size_t left = 0;

    if (!list_empty(&m->snaps))
        floor = MIN(floor, container_of(m->snaps.next, struct kv_snap, link)->seq);
    vec_for (i, &m->stale) {
        struct node *n = m->stale.ptr[i];
        struct version *keep = n->top;
        while (keep->seq > floor && keep->older)
            keep = keep->older;
        while (keep->older) {
            struct version *v = keep->older;
            keep->older = v->older;
            drop_version(m, v);
        }
        bool gone = n->top->dead && n->top->seq <= floor;
        if (gone) {
            drop_version(m, n->top);
            n->top = NULL;
            drop_node(m, n);
        } else if (n->top->older || n->top->dead) {
            m->stale.ptr[left++] = n;
        } else {
            n->stale = false;
        }
    }
    m->stale.len = left;
}

/* ---- write, read ---- */

static int inject(struct kv_mem *m, const struct kv_batch *b, struct err *e)
{
    struct kv_mem_faults *f = m->faults;

    if (!m->failed && f && f->fail_in && --f->fail_in == 0) {
        m->failed = f->fail_code ? f->fail_code : ERR_IO;
        if (f->fail_in_doubt) {
            m->doubt = kv_batch_new();
            kv_batch_append(m->doubt, b);
        }
    }
    if (m->failed)
        return err_set(e, m->failed, "injected: the write of %zu operations failed", b->count);
    if (f) {
        f->writes++;
    }
    return 0;
}

static int mem_write(struct kv *k, const struct kv_batch *b, bool sync, struct err *e)
{
    struct kv_mem *m = mem_of(k);

    mutex_lock(&m->lock);
    int rc = inject(m, b, e);
    if (!rc) {
        apply(m, b);
        if (sync) {
            m->synced = m->seq;
            if (m->faults)
                m->faults->syncs++;
        }
        if (m->stale.len > 64 && sync)
            collect(m);
    }
    mutex_unlock(&m->lock);
    return rc;
}

static int mem_get(struct kv *k, const struct kv_snap *snap, enum kv_cf cf, struct str key,
                   struct buf *out, struct err *e)
{
    struct kv_mem *m = mem_of(k);
    int rc = 0;

    mutex_lock(&m->lock);
    struct kv_mem_faults *f = m->faults;
    const struct node *n = find(m, cf, key, NULL);
    const struct version *v =
        n && str_eq(node_key(n), key) ? version_at(n, snap ? snap->seq : m->seq) : NULL;
    if (f && f->fail_gets_in && --f->fail_gets_in == 0)
        rc = err_set(e, ERR_IO, "injected: a read failed");
    else if (!v)
        rc = err_set(e, ERR_NOT_FOUND, "no such key");
    else {
        buf_reset(out);
        if (!buf_add(out, v->data, v->len))
            rc = err_set(e, ERR_LIMIT, "a value of %zu bytes does not fit %zu", v->len, out->max);
    }
    mutex_unlock(&m->lock);
    return rc;
}

static struct kv_snap *mem_snap_new(struct kv *k)
{
    struct kv_mem *m = mem_of(k);
    struct kv_snap *s = XNEW(struct kv_snap);

    mutex_lock(&m->lock);
    s->seq = m->seq;
    list_add_tail(&m->snaps, &s->link);
    mutex_unlock(&m->lock);
    return s;
}

static void mem_snap_free(struct kv *k, struct kv_snap *s)
{
    struct kv_mem *m = mem_of(k);

    mutex_lock(&m->lock);
    list_del(&s->link);
    mutex_unlock(&m->lock);
    xfree(s);
}

/* ---- iterators ---- */

struct mem_iter {
    struct kv_iter it;
    struct kv_mem *m; /* borrowed */
    enum kv_cf cf;
    struct kv_snap *own; /* when the caller gave no snapshot */
    uint64_t seq;
    struct buf to; /* owned; empty = no end */
    bool bounded;
    struct node *at;
    struct buf key, value; /* owned copies */
};

/* On from node `n`: the first node with a version at our seq and below the end. */
static void settle(struct mem_iter *i, struct node *n)
{
    const struct version *v = NULL;

    while (n && !(v = version_at(n, i->seq)))
        n = n->next[0];
    i->at = n;
    i->it.valid = n && !(i->bounded && str_cmp(node_key(n), buf_str(&i->to)) >= 0);
    if (!i->it.valid)
        return;
    buf_reset(&i->key);
    buf_reset(&i->value);
    CHECK(buf_add_str(&i->key, node_key(n)) && buf_add(&i->value, v->data, v->len));
    i->it.key = buf_str(&i->key);
    i->it.value = buf_str(&i->value);
}

static void mem_iter_seek(struct kv_iter *it, struct str key)
{
    struct mem_iter *i = container_of(it, struct mem_iter, it);

    mutex_lock(&i->m->lock);
    settle(i, find(i->m, i->cf, key, NULL));
    mutex_unlock(&i->m->lock);
}

static void mem_iter_next(struct kv_iter *it)
{
    struct mem_iter *i = container_of(it, struct mem_iter, it);

    mutex_lock(&i->m->lock);
    settle(i, i->at->next[0]);
    mutex_unlock(&i->m->lock);
}

static int mem_iter_status(struct kv_iter *it, struct err *e)
{
    (void)it;
    (void)e;
    return 0;
}

static void mem_iter_free(struct kv_iter *it)
{
    struct mem_iter *i = container_of(it, struct mem_iter, it);

    mutex_lock(&i->m->lock);
    i->m->iters--;
    mutex_unlock(&i->m->lock);
    kv_snap_free(&i->m->kv, i->own);
    buf_deinit(&i->to);
    buf_deinit(&i->key);
    buf_deinit(&i->value);
    xfree(i);
}

static const struct kv_iter_ops mem_iter_ops = {
    .seek = mem_iter_seek,
    .next = mem_iter_next,
    .status = mem_iter_status,
    .free = mem_iter_free,
};

static struct kv_iter *mem_iter_new(struct kv *k, const struct kv_snap *snap, enum kv_cf cf,
                                    struct str from, struct str to)
{
    struct mem_iter *i = XNEW(struct mem_iter);

    (void)from; /* the common part seeks */
    i->it.ops = &mem_iter_ops;
    i->m = mem_of(k);
    i->cf = cf;
    i->own = snap ? NULL : mem_snap_new(k);
    i->seq = snap ? snap->seq : i->own->seq;
    i->bounded = to.len > 0;
    buf_init(&i->to, MAX(to.len, 1));
    buf_init(&i->key, KV_KEY_BYTES_MAX);
    buf_init(&i->value, KV_BATCH_BYTES_MAX);
    CHECK(buf_add_str(&i->to, to));
    mutex_lock(&i->m->lock);
    i->m->iters++;
    mutex_unlock(&i->m->lock);
    return &i->it;
}

/* ---- life ---- */

static void mem_stats(struct kv *k, struct kv_stats *ret)
{
    struct kv_mem *m = mem_of(k);

    mutex_lock(&m->lock);
    ret->memtable_bytes = m->bytes;
    for (int i = 0; i < KV_CFS; i++)
        ret->keys_estimate[i] = m->keys[i];
    mutex_unlock(&m->lock);
}

/* Files of RocksDB are synced when they are written, hence so is this. */
static int mem_flush(struct kv *k, struct err *e)
{
    struct kv_mem *m = mem_of(k);
    int rc = 0;

    mutex_lock(&m->lock);
    if (m->failed)
        rc = err_set(e, m->failed, "injected: a write failed before");
    else {
        m->synced = m->seq;
        collect(m);
    }
    mutex_unlock(&m->lock);
    return rc;
}

static void mem_close(struct kv *k)
{
    struct kv_mem *m = mem_of(k);

    CHECK(list_empty(&m->snaps) && m->iters == 0);
    for (int i = 0; i < KV_CFS; i++)
        for (struct node *n = m->heads[i], *next; n; n = next) {
            next = n->next[0];
            node_free(n);
        }
    vec_free(&m->stale);
    vec_free(&m->loose);
    kv_batch_free(m->doubt);
    mutex_deinit(&m->lock);
    xfree(m);
}

static const struct kv_ops mem_ops = {
    .write = mem_write,
    .get = mem_get,
    .snap_new = mem_snap_new,
    .snap_free = mem_snap_free,
    .iter_new = mem_iter_new,
    .stats = mem_stats,
    .flush = mem_flush,
    .close = mem_close,
};

struct kv *kv_mem_new(struct kv_mem_faults *faults)
{
    struct kv_mem *m = XNEW(struct kv_mem);

    m->kv.ops = &mem_ops;
    m->faults = faults;
    list_init(&m->snaps);
    mutex_init(&m->lock);
    for (int i = 0; i < KV_CFS; i++)
        m->heads[i] = node_new(STR_NULL, HEIGHT_MAX);
    return &m->kv;
}

uint64_t kv_mem_unsynced(struct kv *k)
{
    struct kv_mem *m = mem_of(k);

    CHECK(k->ops == &mem_ops);
    return m->seq - m->synced + (m->doubt ? 1 : 0);
}

/* Removes all versions above m->seq. */
static void roll_back(struct kv_mem *m)
{
    for (int i = 0; i < KV_CFS; i++)
        for (struct node *n = m->heads[i]->next[0], *next; n; n = next) {
            next = n->next[0];
            while (n->top && n->top->seq > m->seq) {
                struct version *v = n->top;
                n->top = v->older;
                drop_version(m, v);
            }
            if (!n->top)
                drop_node(m, n);
        }
}

static bool is_loose(const struct kv_mem *m, uint64_t seq)
{
    vec_for (i, &m->loose)
        if (seq > m->loose.ptr[i].above && seq <= m->loose.ptr[i].upto)
            return true;
    return false;
}

/* The hole that a power cut leaves: what came behind stays. */
static void drop_loose(struct kv_mem *m)
{
    for (int i = 0; i < KV_CFS && m->loose.len; i++)
        for (struct node *n = m->heads[i]->next[0], *next; n; n = next) {
            next = n->next[0];
            for (struct version **at = &n->top; *at;) {
                struct version *v = *at;
                if (is_loose(m, v->seq)) {
                    *at = v->older;
                    drop_version(m, v);
                } else {
                    at = &v->older;
                }
            }
            if (!n->top)
                drop_node(m, n);
        }
    m->loose.len = 0;
}

/* A process that starts syncs what it found, or does not. */
static void found(struct kv_mem *m, enum kv_mem_crash how)
{
    if (how == KV_MEM_KILL_UNSYNCED && m->seq > m->synced)
        vec_push(&m->loose, ((struct loose){ m->synced, m->seq }));
    m->synced = m->seq;
}

struct kv *kv_mem_reopen(struct kv *k, enum kv_mem_crash how, uint64_t keep)
{
    struct kv_mem *m = mem_of(k);

    CHECK(k->ops == &mem_ops && list_empty(&m->snaps) && m->iters == 0);
    if (how == KV_MEM_HOLE) {
        CHECK(keep > 0 && keep < m->seq - m->synced);
        vec_push(&m->loose, ((struct loose){ m->synced, m->synced + keep }));
    }
    if (how != KV_MEM_POWER)
        keep = UINT64_MAX;
    m->stale.len = 0; /* roll_back may free what is listed; the list is rebuilt below */
    if (m->doubt && keep > m->seq - m->synced)
        apply(m, m->doubt);
    kv_batch_free(m->doubt);
    m->doubt = NULL;
    if (keep < m->seq - m->synced)
        m->seq = m->synced + keep;
    roll_back(m);
    if (how == KV_MEM_POWER || how == KV_MEM_HOLE)
        drop_loose(m);
    found(m, how);
    m->failed = 0;
    if (m->faults)
        m->faults->fail_in = 0;
    m->stale.len = 0;
    for (int i = 0; i < KV_CFS; i++)
        for (struct node *n = m->heads[i]->next[0]; n; n = n->next[0]) {
            n->stale = n->top->older || n->top->dead;
            if (n->stale)
                vec_push(&m->stale, n);
        }
    collect(m);
    return k;
}

/* Its versions that are left, the oldest first. */
static void copy_versions(struct kv_mem *to, struct node *n, const struct version *v)
{
    if (v->older)
        copy_versions(to, n, v->older);
    struct str value = str_n(v->data, v->len);
    to->seq = v->seq;
    add_version(to, n, v->dead ? NULL : &value);
}

struct kv *kv_mem_fork(struct kv *k, enum kv_mem_crash how, uint64_t keep)
{
    struct kv_mem *m = mem_of(k), *to;
    struct kv *ret = kv_mem_new(NULL);

    CHECK(k->ops == &mem_ops);
    to = mem_of(ret);
    mutex_lock(&m->lock);
    for (int i = 0; i < KV_CFS; i++)
        for (const struct node *n = m->heads[i]->next[0]; n; n = n->next[0])
            copy_versions(to, find_or_add(to, (enum kv_cf)i, node_key(n)), n->top);
    to->seq = m->seq;
    to->synced = m->synced;
    vec_for (i, &m->loose)
        vec_push(&to->loose, m->loose.ptr[i]);
    if (m->doubt) {
        to->doubt = kv_batch_new();
        kv_batch_append(to->doubt, m->doubt);
    }
    mutex_unlock(&m->lock);
    return kv_mem_reopen(ret, how, keep);
}

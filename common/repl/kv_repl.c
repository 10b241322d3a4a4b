/* SPDX-License-Identifier: Apache-2.0
 *
 * kv_repl: writes become entries and wait for them; all else goes to the database below.
 *
 * The loop decides whether a write is taken: only there the role is known. A writer sleeps on a
 * channel of its own until its entry is applied; in simulation its fiber yields. A pipelined
 * batch (kv_begin) takes the same way, and its writer does not wait. repl_pipe.h knows which rows
 * are in flight, and a read of "now" waits if it wants one of them.
 *
 * Reads. When the leadership ends, the loop takes a snapshot before anything of the next leader is
 * applied; from then on a read of "now" uses this snapshot. A read that began just before checks
 * again when it ends, and is repeated if the snapshot came meanwhile. The snapshot is released when
 * the handle is closed.
 */
#include "common/repl/kv_repl.h"

#include <stdatomic.h>

#include "common/base/mem.h"
#include "common/base/wr.h"
#include "common/repl/repl_node_impl.h"
#include "common/repl/repl_pipe.h"
#include "common/store/kv/kv_impl.h"

struct kv_repl {
    struct kv kv;
    struct repl_node *n;
    struct kv *db; /* the node's */
    uint64_t epoch;
    struct repl_pipe *pipe; /* broken when a write failed: nothing more is written */
};

static struct kv_repl *repl_of(struct kv *k)
{
    return (struct kv_repl *)(void *)k;
}

static int refuse(struct kv_repl *k, struct err *e)
{
    struct err why;

    if (!pipe_broken(k->pipe, &why))
        return 0;
    return err_set(e, ERR_UNAVAILABLE, "nothing is written here since a write failed: %s",
                   why.text);
}

static int propose(struct kv_repl *k, enum repl_kind kind, struct str data, struct err *e)
{
    struct proposal p = { .n = k->n, .epoch = k->epoch, .pipe = k->pipe };
    void *msg;

    if (refuse(k, e))
        return e->code;
    if (data.len > REPL_BYTES_MAX)
        return err_set(e, ERR_LIMIT, "a batch of %zu bytes is over the %zu that replicas exchange",
                       data.len, (size_t)REPL_BYTES_MAX);
    list_init(&p.link);
    p.entry = entry_new(kind, data);
    if (k->n->o.simulated) {
        p.fiber = fiber_self();
        CHECK(p.fiber);
        loop_post(k->n->loop, node_propose, &p);
        fiber_yield();
    } else {
        CHECK(!loop_is_mine(k->n->loop));
        p.wake = chan_new(1, NULL, NULL);
        loop_post(k->n->loop, node_propose, &p);
        CHECK(chan_wait(p.wake, &msg, 1, UINT64_MAX) == 1);
        chan_free(p.wake);
    }
    *e = p.err;
    return e->code;
}

static int repl_write(struct kv *kv, const struct kv_batch *b, bool sync, struct err *e)
{
    struct kv_repl *k = repl_of(kv);

    (void)sync; /* what returned is on a majority's medium */
    if (!b->ops.len)
        return refuse(k, e);
    return propose(k, REPL_BATCH, buf_str(&b->ops), e);
}

/* ---- pipelined batches ---- */

static int repl_begin(struct kv *kv, const struct kv_batch *b, uint64_t *ret_number, struct err *e)
{
    struct kv_repl *k = repl_of(kv);
    struct proposal *p;

    if (refuse(k, e) || pipe_wait_room(k->pipe, e))
        return e->code;
    *ret_number = pipe_begun(k->pipe);
    if (!b->ops.len)
        return 0;
    if (b->ops.len > REPL_BYTES_MAX)
        return err_set(e, ERR_LIMIT, "a batch of %zu bytes is over the %zu that replicas exchange",
                       b->ops.len, (size_t)REPL_BYTES_MAX);
    p = XNEW(struct proposal);
    list_init(&p->link);
    p->n = k->n;
    p->epoch = k->epoch;
    p->entry = entry_new(REPL_BATCH, buf_str(&b->ops));
    p->pipe = pipe_ref(k->pipe);
    p->begun = true;
    *ret_number = pipe_begin(k->pipe, p->entry);
    loop_post(k->n->loop, node_propose, p);
    return 0;
}

static uint64_t repl_begun_done(struct kv *k)
{
    return pipe_done(repl_of(k)->pipe);
}

static uint64_t repl_begun_touches(struct kv *k, enum kv_cf cf, struct str from, struct str to)
{
    return pipe_touches(repl_of(k)->pipe, cf, from, to, from.len && str_eq(from, to));
}

static int repl_begun_wait(struct kv *k, uint64_t number, uint64_t wait_ms, struct err *e)
{
    return pipe_wait(repl_of(k)->pipe, number, wait_ms, e);
}

/* Waits until pipelined batches that write rows of the range are applied. */
static int see_begun(struct kv_repl *k, enum kv_cf cf, struct str from, struct str to, bool alone,
                     struct err *e)
{
    uint64_t number = pipe_touches(k->pipe, cf, from, to, alone);

    if (!number || (k->n->o.mutants & (uint32_t)MUTANT_READ_BLIND))
        return 0;
    return pipe_wait(k->pipe, number, UINT64_MAX, e);
}

/* ---- reads ---- */

static struct kv_snap *past_of(struct kv *k)
{
    return atomic_load(&repl_of(k)->n->past);
}

static int repl_get(struct kv *k, const struct kv_snap *snap, enum kv_cf cf, struct str key,
                    struct buf *out, struct err *e)
{
    struct kv_snap *past;
    size_t len = out->len;
    int code;

    if (!snap && see_begun(repl_of(k), cf, key, STR_NULL, true, e))
        return e->code;
    past = past_of(k);
    code = kv_get(repl_of(k)->db, snap ? snap : past, cf, key, out, e);
    if (snap || past || !(past = past_of(k)))
        return code;
    out->len = len;
    return kv_get(repl_of(k)->db, past, cf, key, out, e);
}

static struct kv_snap *repl_snap_new(struct kv *k)
{
    struct kv_snap *past = past_of(k), *s;

    if (past)
        return past;
    s = kv_snap_new(repl_of(k)->db);
    past = past_of(k);
    if (past)
        kv_snap_free(repl_of(k)->db, s);
    return past ? past : s;
}

static void repl_snap_free(struct kv *k, struct kv_snap *s)
{
    if (s != past_of(k)) /* the past one is released with the handle */
        kv_snap_free(repl_of(k)->db, s);
}

static struct kv_iter *repl_iter_new(struct kv *k, const struct kv_snap *snap, enum kv_cf cf,
                                     struct str from, struct str to)
{
    struct kv *db = repl_of(k)->db;
    struct kv_snap *past;
    struct kv_iter *it;
    struct err e;

    if (!snap && see_begun(repl_of(k), cf, from, to, false, &e))
        return kv_iter_failed(&e);
    past = past_of(k);
    it = db->ops->iter_new(db, snap ? snap : past, cf, from, to);
    if (snap || past || !(past = past_of(k)))
        return it;
    kv_iter_free(it);
    return db->ops->iter_new(db, past, cf, from, to);
}

static void repl_stats(struct kv *k, struct kv_stats *ret)
{
    kv_stats(repl_of(k)->db, ret);
}

static void repl_cache_resize(struct kv *k, uint64_t bytes)
{
    kv_cache_resize(repl_of(k)->db, bytes);
}

static int repl_sizes(struct kv *k, enum kv_cf cf, const struct kv_range *ranges, size_t n,
                      uint64_t *ret, struct err *e)
{
    return kv_sizes(repl_of(k)->db, cf, ranges, n, ret, e);
}

static int repl_disk(struct kv *k, struct kv_disk *ret, struct err *e)
{
    return kv_disk(repl_of(k)->db, ret, e);
}

static int repl_flush(struct kv *k, struct err *e)
{
    return kv_flush(repl_of(k)->db, e);
}

static bool repl_compact(struct kv *k, enum kv_cf cf, struct str from, struct str to)
{
    return kv_compact(repl_of(k)->db, cf, from, to);
}

static int repl_drop_files(struct kv *k, enum kv_cf cf, struct str from, struct str last,
                           struct err *e)
{
    struct buf data;
    int code;

    buf_init(&data, 4 * KV_KEY_BYTES_MAX);
    (void)buf_add_c(&data, (char)cf);
    (void)wr_varint(&data, from.len);
    (void)buf_add_str(&data, from);
    (void)wr_varint(&data, last.len);
    (void)buf_add_str(&data, last);
    CHECK(buf_ok(&data));
    code = propose(repl_of(k), REPL_DROP_FILES, buf_str(&data), e);
    buf_deinit(&data);
    return code;
}

static int repl_flush_soon(struct kv *k, enum kv_cf cf, struct err *e)
{
    char c = (char)cf;

    return propose(repl_of(k), REPL_FLUSH, str_n(&c, 1), e);
}

/* ---- the end of a leadership: loop ---- */

void node_past(struct repl_node *n)
{
    if (n->handles && !n->past && (n->handle_over || replica_state(n->r).epoch != n->handle_epoch))
        atomic_store(&n->past, kv_snap_new(n->o.db));
}

static void on_closed(void *cookie)
{
    struct repl_node *n = cookie;

    CHECK(n->magic == NODE_MAGIC && n->handles > 0);
    if (--n->handles == 0)
        kv_snap_free(n->o.db, atomic_exchange(&n->past, NULL));
}

static void repl_close(struct kv *k)
{
    struct repl_node *n = repl_of(k)->n;

    pipe_unref(repl_of(k)->pipe);
    xfree(repl_of(k));
    loop_post(n->loop, on_closed, n);
}

static const struct kv_ops ops = {
    .write = repl_write,
    .get = repl_get,
    .snap_new = repl_snap_new,
    .snap_free = repl_snap_free,
    .iter_new = repl_iter_new,
    .stats = repl_stats,
    .cache_resize = repl_cache_resize,
    .sizes = repl_sizes,
    .disk = repl_disk,
    .flush = repl_flush,
    .compact = repl_compact,
    .drop_files = repl_drop_files,
    .flush_soon = repl_flush_soon,
    .begin = repl_begin,
    .begun_done = repl_begun_done,
    .begun_touches = repl_begun_touches,
    .begun_wait = repl_begun_wait,
    .close = repl_close,
};

struct kv *kv_repl_new(struct repl_node *n)
{
    struct kv_repl *k = XNEW(struct kv_repl);

    k->kv.ops = &ops;
    k->kv.batch_max = REPL_BYTES_MAX;
    k->kv.begins = true;
    k->n = n;
    k->db = n->o.db;
    k->epoch = repl_node_state(n).epoch;
    k->pipe = pipe_new(n->loop, n->o.simulated);
    kv_snap_free(n->o.db, atomic_exchange(&n->past, NULL)); /* of a handle that is closed */
    n->handles++;
    n->handle_epoch = k->epoch;
    n->handle_over = false;
    return &k->kv;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * view: what readers see: a snapshot, and which state of the store it shows.
 *
 * After each write the writer, still holding the lock of writers, makes a snapshot, which replaces
 * the previous one. So a reader's snapshot shows a moment between two writes, at which the hot sums
 * (hot.h) held exactly its unsealed rows, and getting a snapshot waits for no fsync. A snapshot of
 * the kv costs about a microsecond; it is freed when its last reader releases it.
 */
#include "common/store/state/view.h"
#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/store/state/pipe.h"
#include "common/store/state/reader_gate.h"
#include "common/store/state/store_impl.h"
#include "common/sys/pool.h"

#define HOT_MEMBERS_MIN 16

struct shown {
    struct list link; /* in store.shown_all, oldest first; guarded by `show` */
    uint64_t number;
    _Atomic uint32_t refs;
    struct kv_snap *snap;
    uint64_t seq, applied;
};

static void unref(struct store *s, struct shown *d)
{
    if (!d || atomic_fetch_sub(&d->refs, 1) > 1)
        return;
    mutex_lock(&s->show);
    list_del(&d->link);
    mutex_unlock(&s->show);
    kv_snap_free(s->kv, d->snap);
    xfree(d);
}

void view_publish(struct store *s)
{
    struct shown *d = XNEW(struct shown), *old;

    atomic_store(&d->refs, 1);
    d->snap = pipe_snap(s);
    d->seq = s->published_seq;
    d->applied = s->published_applied;
    mutex_lock(&s->show);
    old = s->shown;
    s->shown = d;
    d->number = ++s->shown_number;
    list_add_tail(&s->shown_all, &d->link);
    mutex_unlock(&s->show);
    unref(s, old);
}

void view_open(struct store *s)
{
    struct hot_opts o = {
        .bytes_max = s->o.hot_bytes_max,
        .members_min = s->o.hot_members_min ? s->o.hot_members_min : HOT_MEMBERS_MIN,
    };

    vec_for (i, &s->raw.at)
        o.known_from = MAX(o.known_from, (s->raw.at.ptr[i].bucket + 1) * RAW_BUCKET_SLOTS);
    s->hot = hot_new(&o);
    s->published_applied = atomic_load(&s->applied);
    mutex_lock(&s->write);
    view_publish(s);
    mutex_unlock(&s->write);
}

void view_close(struct store *s)
{
    unref(s, s->shown);
    s->shown = NULL;
    hot_free(s->hot);
    s->hot = NULL;
}

uint64_t view_latest(struct store *s)
{
    uint64_t n;

    store_settle(s, UINT64_MAX);
    mutex_lock(&s->show);
    n = s->shown_number;
    mutex_unlock(&s->show);
    return n;
}

uint64_t view_oldest(struct store *s)
{
    uint64_t n;

    mutex_lock(&s->show);
    n = container_of(s->shown_all.next, struct shown, link)->number;
    mutex_unlock(&s->show);
    return n;
}

struct store_view *store_view_get(struct store *s)
{
    struct store_view *v = XNEW(struct store_view);

    (void)reader_gate_enter(s->gate, true);
    v->s = s;
    v->engine_ms = atomic_load_explicit(&s->engine_ms, memory_order_acquire);
    mutex_lock(&s->show);
    v->shown = s->shown;
    atomic_fetch_add(&v->shown->refs, 1);
    mutex_unlock(&s->show);
    v->kv = s->kv;
    v->dicts = s->dicts;
    v->snap = v->shown->snap;
    v->hot = (struct hot_state){ .seq = v->shown->seq, .applied = v->shown->applied };
    return v;
}

struct store_view *store_view_get_live(struct store *s)
{
    struct store_view *v = store_view_get(s);

    v->hot.live = true;
    return v;
}

struct kv *store_view_kv(const struct store_view *v)
{
    return v->kv;
}

void store_view_put(struct store_view *v)
{
    unref(v->s, v->shown);
    reader_gate_leave(v->s->gate);
    xfree(v);
}

int store_check_canceled(const atomic_bool *cancel, struct err *e)
{
    pool_slice();
    if (cancel && atomic_load_explicit(cancel, memory_order_relaxed))
        return err_set(e, ERR_CANCELED, "the query was canceled");
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * pipe: batches in flight, and what views show of them.
 *
 *   pipe_write   fold the rows out of the hot sums, begin the batch     one step under `lock`
 *   pipe_snap    ask which batches are applied, make a snapshot         one step under `lock`
 *
 * Invariant: a view never uses a hot sum that includes rows which its snapshot shows as leaves. A
 * seal therefore folds its rows before its batch is begun, and no snapshot is made in between.
 * A snapshot may then show a seal that its view does not know of, or not yet show a seal whose rows
 * were folded. A view whose `applied` is below the last fold of a group scans the rows themselves
 * (hot.h), which is right in both cases. `applied` of a view is the last seal that was applied when
 * its snapshot was made, so it is never ahead of the snapshot.
 *
 * A row must be added to a sum before it is folded. The rows of a group of writes are added after
 * its commit (write/batch.c), and a seal may read them a moment earlier. So a seal of minutes of
 * which an uncommitted group has rows waits for that commit. Only late data make that happen.
 *
 * When a batch fails, the database refuses all later ones (kv.h), and the store takes no more
 * writes until it is reopened.
 */
#include "common/store/state/pipe.h"

#include "common/base/mem.h"
#include "common/store/state/commit.h"
#include "common/store/state/store_impl.h"
#include "common/store/state/view.h"

#define GROUPS_MAX 8 /* uncommitted groups whose lowest minute is known */

struct shows {
    uint64_t number, entry;
};
struct store_pipe {
    struct mutex lock;         /* guards entries; held for a whole step (see above) */
    VEC(struct shows) entries; /* seals that were begun and that no view knows of yet */
    uint64_t begun;            /* number of the last batch; the shard thread's */
    _Atomic uint64_t shown;    /* number of the last batch applied before the last snapshot */
    struct {
        uint64_t seq;
        uint32_t low;
    } groups[GROUPS_MAX]; /* the shard thread's: lowest minute of a batch that is staged */
};

struct store_pipe *pipe_state_new(void)
{
    struct store_pipe *p = XNEW(struct store_pipe);

    mutex_init(&p->lock);
    return p;
}

void pipe_state_free(struct store_pipe *p)
{
    if (!p)
        return;
    vec_free(&p->entries);
    mutex_deinit(&p->lock);
    xfree(p);
}

void pipe_staged(struct store *s, uint64_t seq, uint32_t bucket)
{
    struct store_pipe *p = s->pipe;
    size_t i = seq % GROUPS_MAX;

    if (p->groups[i].seq != seq)
        p->groups[i].low = UINT32_MAX;
    p->groups[i].seq = seq;
    p->groups[i].low = MIN(p->groups[i].low, bucket);
}

/* True if an uncommitted group may have a row of this minute or an earlier one. */
static bool group_has(const struct store *s, uint32_t bucket)
{
    const struct store_pipe *p = s->pipe;
    uint64_t seq = atomic_load_explicit(&s->committed, memory_order_acquire) + 1;

    if (s->staged >= seq + GROUPS_MAX)
        return true;
    for (; seq <= s->staged; seq++) {
        size_t i = seq % GROUPS_MAX;
        if (p->groups[i].seq == seq && p->groups[i].low <= bucket)
            return true;
    }
    return false;
}

static void failed(struct store *s, const struct err *why)
{
    mutex_lock(&s->write);
    store_set_read_only(s, why);
    hot_stop(s->hot);
    mutex_unlock(&s->write);
}

static void on_written(void *cookie)
{
    const struct pipe_seal *seal = cookie;

    seal->fold(seal->cookie);
}

int pipe_write(struct store *s, struct kv_batch *b, const struct pipe_seal *seal, struct err *e)
{
    struct store_pipe *p = s->pipe;
    uint64_t number;

    if (!kv_begins(s->kv)) {
        if (!seal)
            return store_write_then(s, b, false, NULL, NULL, e);
        return store_write_then(s, b, false, on_written, (void *)(uintptr_t)seal, e);
    }
    if (store_check_writable(s, e))
        return e->code;
    if (seal && group_has(s, seal->bucket_high)) {
        mutex_lock(&s->write);
        mutex_unlock(&s->write);
    }
    mutex_lock(&p->lock);
    if (seal)
        seal->fold(seal->cookie);
    int rc = kv_begin(s->kv, b, &number, e);
    if (!rc) {
        struct shows at = { number, seal ? seal->entry : 0 };
        p->begun = MAX(p->begun, number);
        if (at.entry)
            vec_push(&p->entries, at);
    }
    mutex_unlock(&p->lock);
    if (rc)
        failed(s, e);
    return rc;
}

struct kv_snap *pipe_snap(struct store *s)
{
    struct store_pipe *p = s->pipe;
    struct kv_snap *snap;
    uint64_t done = 0;
    size_t n = 0;

    mutex_lock(&p->lock);
    if (kv_begins(s->kv))
        done = kv_begun_done(s->kv);
    for (; n < p->entries.len && p->entries.ptr[n].number <= done; n++)
        s->published_applied = p->entries.ptr[n].entry;
    p->entries.len -= n;
    if (n)
        memmove(p->entries.ptr, p->entries.ptr + n, p->entries.len * sizeof(*p->entries.ptr));
    snap = kv_snap_new(s->kv);
    atomic_store(&p->shown, done);
    mutex_unlock(&p->lock);
    return snap;
}

bool store_settled(const struct store *s)
{
    const struct store_pipe *p = s->pipe;

    return store_read_only(s) || p->begun <= atomic_load(&p->shown);
}

void store_settle(struct store *s, uint64_t wait_ms)
{
    struct store_pipe *p = s->pipe;
    struct err e;

    if (store_settled(s))
        return;
    if (kv_begun_wait(s->kv, p->begun, wait_ms, &e)) {
        if (e.code != ERR_TIMEOUT)
            failed(s, &e);
        return;
    }
    mutex_lock(&s->write);
    if (!store_settled(s))
        view_publish(s);
    mutex_unlock(&s->write);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * repl_pipe: a queue of batches. Each has its operations sorted by column family and key, so that a
 * read finds by binary search whether the batch writes a row it wants. Deletions of ranges are
 * compared one by one, since a batch has few.
 *
 * Nothing is copied: keys are slices of the log entry, which the queue references. Nearly all reads
 * find an empty queue, and take no lock for that.
 */
#include "common/repl/repl_pipe.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "common/base/list.h"
#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/base/vec.h"
#include "common/store/kv/kv_impl.h"
#include "common/sys/clock.h"
#include "common/sys/fiber.h"
#include "common/sys/loop.h"
#include "common/sys/thread.h"

struct piece {
    enum kv_cf cf;
    struct str key, end; /* end: of a range; else empty */
};
struct piped {
    struct list link;
    uint64_t number;
    struct repl_entry *entry;
    VEC(struct piece) rows;   /* by column family and key */
    VEC(struct piece) ranges; /* as they came */
};
struct waiter { /* simulated; on the stack of the fiber */
    struct list link;
    struct fiber *fiber;
    uint64_t number;
    bool room;
};
struct repl_pipe {
    struct loop *loop;
    bool simulated;
    _Atomic uint32_t refs;
    _Atomic size_t len; /* batches on their way */
    struct mutex lock;  /* guards what follows */
    struct cond moved;
    struct list queue, waiters;
    uint64_t begun, done;
    size_t bytes;
    bool broken;
    struct err why;
};

struct repl_pipe *pipe_new(struct loop *loop, bool simulated)
{
    struct repl_pipe *p = XNEW(struct repl_pipe);

    p->loop = loop;
    p->simulated = simulated;
    atomic_store(&p->refs, 1);
    mutex_init(&p->lock);
    cond_init(&p->moved);
    list_init(&p->queue);
    list_init(&p->waiters);
    return p;
}

struct repl_pipe *pipe_ref(struct repl_pipe *p)
{
    atomic_fetch_add(&p->refs, 1);
    return p;
}

static void piped_free(struct piped *b)
{
    list_del(&b->link);
    entry_unref(b->entry);
    vec_free(&b->rows);
    vec_free(&b->ranges);
    xfree(b);
}

void pipe_unref(struct repl_pipe *p)
{
    if (!p || atomic_fetch_sub(&p->refs, 1) > 1)
        return;
    list_for (it, &p->queue)
        piped_free(container_of(it, struct piped, link));
    CHECK(list_empty(&p->waiters));
    cond_deinit(&p->moved);
    mutex_deinit(&p->lock);
    xfree(p);
}

/* ---- what they write ---- */

static int by_key(const void *a, const void *b)
{
    const struct piece *x = a, *y = b;

    if (x->cf != y->cf)
        return x->cf < y->cf ? -1 : 1;
    return str_cmp(x->key, y->key);
}

static void list_rows(struct piped *b)
{
    struct rd r = rd_of(str_n(b->entry->data, b->entry->len));
    struct kv_entry op;
    bool sorted = true;

    while (kv_batch_next(&r, &op)) {
        struct piece x = { op.cf, op.key, op.op == KV_DEL_RANGE ? op.value : STR_NULL };
        if (op.op == KV_DEL_RANGE) {
            vec_push(&b->ranges, x);
            continue;
        }
        sorted = sorted && (!b->rows.len || by_key(&b->rows.ptr[b->rows.len - 1], &x) <= 0);
        vec_push(&b->rows, x);
    }
    if (!sorted)
        qsort(b->rows.ptr, b->rows.len, sizeof(*b->rows.ptr), by_key);
}

static bool touches(const struct piped *b, enum kv_cf cf, struct str from, struct str to,
                    bool alone)
{
    struct piece want = { cf, from, STR_NULL };
    size_t lo = 0, hi = b->rows.len;

    while (lo < hi) { /* the first row at or behind `from` */
        size_t mid = lo + (hi - lo) / 2;
        if (by_key(&b->rows.ptr[mid], &want) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo < b->rows.len && b->rows.ptr[lo].cf == cf) {
        struct str at = b->rows.ptr[lo].key;
        if (alone ? str_eq(at, from) : !to.len || str_cmp(at, to) < 0)
            return true;
    }
    vec_for (i, &b->ranges) {
        const struct piece *x = &b->ranges.ptr[i];
        if (x->cf != cf || str_cmp(x->end, from) <= 0)
            continue;
        if (alone ? str_cmp(x->key, from) <= 0 : !to.len || str_cmp(x->key, to) < 0)
            return true;
    }
    return false;
}

uint64_t pipe_touches(struct repl_pipe *p, enum kv_cf cf, struct str from, struct str to,
                      bool alone)
{
    uint64_t number = 0;

    if (!atomic_load_explicit(&p->len, memory_order_acquire))
        return 0;
    mutex_lock(&p->lock);
    list_for (it, &p->queue) {
        const struct piped *b = container_of(it, struct piped, link);
        if (touches(b, cf, from, to, alone))
            number = b->number;
    }
    mutex_unlock(&p->lock);
    return number;
}

/* ---- on their way ---- */

uint64_t pipe_begin(struct repl_pipe *p, struct repl_entry *batch)
{
    struct piped *b = XNEW(struct piped);
    uint64_t number;

    list_init(&b->link);
    b->entry = entry_ref(batch);
    list_rows(b);
    mutex_lock(&p->lock);
    b->number = number = ++p->begun;
    p->bytes += batch->len;
    list_add_tail(&p->queue, &b->link);
    atomic_fetch_add(&p->len, 1);
    mutex_unlock(&p->lock);
    return number;
}

uint64_t pipe_begun(struct repl_pipe *p)
{
    uint64_t begun;

    mutex_lock(&p->lock);
    begun = p->begun;
    mutex_unlock(&p->lock);
    return begun;
}

uint64_t pipe_done(struct repl_pipe *p)
{
    uint64_t done;

    mutex_lock(&p->lock);
    done = p->done;
    mutex_unlock(&p->lock);
    return done;
}

static bool has_room(const struct repl_pipe *p)
{
    return p->begun - p->done < PIPE_BATCHES && p->bytes < PIPE_BYTES;
}

bool pipe_broken(struct repl_pipe *p, struct err *ret_why)
{
    bool broken;

    mutex_lock(&p->lock);
    broken = p->broken;
    if (broken && ret_why)
        *ret_why = p->why;
    mutex_unlock(&p->lock);
    return broken;
}

/* ---- waiting ---- */

static bool reached(const struct repl_pipe *p, uint64_t number, bool room)
{
    return p->broken || (room ? has_room(p) : p->done >= number);
}

static void on_wake(void *cookie)
{
    fiber_resume(cookie);
}

/* Locked. */
static void wake(struct repl_pipe *p)
{
    cond_wake_all(&p->moved);
    list_for (it, &p->waiters) {
        struct waiter *w = container_of(it, struct waiter, link);
        if (!reached(p, w->number, w->room))
            continue;
        list_del(it);
        loop_post(p->loop, on_wake, w->fiber);
    }
}

static void wait_simulated(struct repl_pipe *p, uint64_t number, bool room)
{
    struct waiter w = { .fiber = fiber_self(), .number = number, .room = room };

    CHECK(w.fiber);
    list_init(&w.link);
    list_add_tail(&p->waiters, &w.link);
    mutex_unlock(&p->lock);
    fiber_yield();
    mutex_lock(&p->lock);
}

static void wait_thread(struct repl_pipe *p, uint64_t number, uint64_t wait_ms, bool room)
{
    uint64_t until = u64_add_sat(clock_mono_ms(clock_real()), wait_ms);

    while (!reached(p, number, room))
        if (!cond_wait_until(&p->moved, &p->lock, until))
            return;
}

static int wait_for(struct repl_pipe *p, uint64_t number, uint64_t wait_ms, bool room,
                    struct err *e)
{
    int code = 0;

    mutex_lock(&p->lock);
    if (!reached(p, number, room) && wait_ms) {
        if (!p->simulated)
            wait_thread(p, number, wait_ms, room);
        else if (wait_ms == UINT64_MAX)
            wait_simulated(p, number, room);
    }
    if (!room && p->done >= number)
        code = 0;
    else if (p->broken)
        code = err_set(e, p->why.code, "%s", p->why.text);
    else if (!reached(p, number, room))
        code = err_set(e, ERR_TIMEOUT, "batches are still on their way to the other copies");
    mutex_unlock(&p->lock);
    return code;
}

int pipe_wait(struct repl_pipe *p, uint64_t number, uint64_t wait_ms, struct err *e)
{
    return wait_for(p, number, wait_ms, false, e);
}

int pipe_wait_room(struct repl_pipe *p, struct err *e)
{
    return wait_for(p, 0, UINT64_MAX, true, e);
}

/* ---- their ends ---- */

void pipe_ended(struct repl_pipe *p)
{
    mutex_lock(&p->lock);
    if (p->broken) { /* the handle knows already that this batch failed */
        mutex_unlock(&p->lock);
        return;
    }
    CHECK(!list_empty(&p->queue));
    struct piped *b = container_of(p->queue.next, struct piped, link);
    CHECK(b->number == p->done + 1);
    p->done = b->number;
    p->bytes -= b->entry->len;
    atomic_fetch_sub(&p->len, 1);
    piped_free(b);
    wake(p);
    mutex_unlock(&p->lock);
}

void pipe_break(struct repl_pipe *p, const struct err *why)
{
    mutex_lock(&p->lock);
    if (!p->broken) {
        p->broken = true;
        p->why = *why;
        wake(p);
    }
    mutex_unlock(&p->lock);
}

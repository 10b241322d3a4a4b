/* SPDX-License-Identifier: Apache-2.0
 *
 * shard: writes become durable in groups; between groups, minutes are sealed.
 *
 *   pool ──shard_send──> inbox ──> shard thread: waiting ──stage──> open group ──┐ (one at a time)
 *   loop <──post done()── committer thread: write + fsync <──────────────────────┘
 *                              └──"committed"──> inbox
 *
 * Group commit: while one group is at the disk, all writes that arrive are staged into the next
 * one. A write that comes alone, after others that came alone, leaves at once: a quiet shard pays
 * one fsync of latency. Where the group before had company, the next one is held back for up to
 * group_wait, and the thread sleeps over what arrives meanwhile: on a fast disk groups would be of
 * two or three writes, and a wake-up, an fsync and a wake-up of the loop are dearer than a write.
 *
 * While the committer is at the disk, or a group waits, a few writes do not wake the shard's
 * thread: nothing can leave before the one is back or the time is over, and either wakes it.
 * LAZY_WRITES of them do, so that a flood is staged beside the fsync and not behind it.
 *
 * Where a commit takes less than COMMIT_HERE_NS lately and nothing waits to be staged, the shard's
 * thread commits by itself: on a fast disk waking the committer and being woken by it costs more
 * CPU than staging beside the fsync saves time. All the rest is the same.
 *
 * Writes wait in a fair queue (common/sys/fair.h): tenants take turns by the bytes of their writes,
 * as they would be written. What one tenant has piled up is therefore passed by the write of
 * another that has had less; it waits for the write that is being staged and for the group that is
 * at the disk. To notice it, the thread looks into its inbox after each STAGE_BYTES it staged, and
 * hands a group of several tenants over then, rather than to fill it with what one of them sends.
 * The stacks of a heavy write are staged in parts before it (stage_ahead.h), each a turn of its
 * own, so that it takes the thread for milliseconds at a time.
 *
 * Sealing takes turns with staging on the same thread, at most seal_rows rows a turn, while the
 * committer is at the disk: the engine keeps batches and seal entries apart
 * (common/store/seal/seal.c).
 *
 * Where a shard has copies, batches of seals and chores are pipelined (common/store/state/pipe.h).
 * Seals follow each other without a wait. Chores and tasks read by views what was written before
 * them, so they start when no batch is in flight. A chore that is due does get its turn: after
 * SETTLE_HELD_MS no seal starts before it.
 *
 * Late data of a bucket that left for the cold tier need far rows to be sealed and built. The
 * thread waits for those in bounded turns (cold_wait.h); meanwhile minutes that need none are
 * sealed.
 *
 * Invariants: (1) at most one group is at the committer, at most one is open; (2) a write is in
 * exactly one of: inbox, waiting, open group, committing group, posted done; (3) done() of a group
 * is posted only after its fsync returned; (4) neither a flood of writes nor a backlog of sealing
 * keeps the other from its turn.
 *
 * Threads: shard_step runs on the shard's thread, or on the loop when simulated, in which case a
 * commit runs inside the step. The inbox holds every write the caller may have on its way and one
 * message of each other kind, so sending cannot fail. Tasks are chained, and one message says that
 * there are some: however many there are, they need no room of their own.
 */
#include "ingester/shard/shard.h"

#include <stdio.h>

#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/obs/log.h"
#include "common/store/catalog/names_max.h"
#include "common/store/mask/tomb.h"
#include "common/store/write/stage_ahead.h"
#include "ingester/shard/shard_impl.h"
#include "ingester/shard/shard_state.h"

#define STATE_EVERY_MS 1000
#define SEAL_RETRY_MS  1000
#define INBOX_OWN      5 /* messages that are not writes: committed, stop, reopen, tasks */
#define LAZY_WRITES    16
#define STAGE_BYTES    MIB
#define COMMIT_HERE_NS (4 * UINT64_C(1000000))
#define SETTLE_LOOK_MS 1  /* between two looks whether batches are in flight */
#define SETTLE_IDLE_MS 5  /* longest wait for them if there is nothing else to do */
#define SETTLE_HELD_MS 20 /* a chore that is due lets seals start first for so long */

struct state_message {
    struct shard *shard;
    struct shard_state state;
};

/* ---- commit: committer thread, or inside the step when simulated ---------------------------- */

static void on_group_done(void *cookie)
{
    struct group *g = cookie;

    list_for (it, &g->writes) {
        struct shard_write *w = container_of(it, struct shard_write, link);

        list_del(it);
        w->done(w);
    }
    xfree(g);
}

static void group_commit(struct shard *s, struct group *g)
{
    uint64_t began = clock_mono_ns(s->o.clock), took, lately;
    struct err e = { 0 };

    atomic_store_explicit(&s->commit_at, began, memory_order_relaxed);
    if (store_commit(s->o.store, g->batch, &e)) {
        if (e.code == ERR_UNAVAILABLE) { /* another replica leads: the callers ask it */
            log_info("writes came while the shard was handed over; none of them was acked",
                     KV_U64("shard", s->o.number), KV_U64("writes", g->writes_len));
        } else {
            metric_add(s->m.commit_errors, 1);
            log_error("the disk refused a group of writes; none of them was acked",
                      KV_U64("shard", s->o.number), KV_U64("writes", g->writes_len), KV_ERR(&e));
        }
        list_for (it, &g->writes)
            container_of(it, struct shard_write, link)->err = e;
    }
    atomic_store_explicit(&s->commit_at, 0, memory_order_relaxed);
    took = clock_mono_ns(s->o.clock) - began;
    lately = atomic_load_explicit(&s->commit_ns, memory_order_relaxed);
    atomic_store_explicit(&s->commit_ns, lately - lately / 8 + took / 8, memory_order_relaxed);
    metric_observe(s->m.commit_seconds, (double)took / 1e9);
    metric_observe(s->m.group_writes, (double)g->writes_len);
    metric_observe(s->m.group_bytes, (double)g->bytes);
    metric_add(s->m.groups, 1);
    loop_post(s->o.loop, on_group_done, g);
}

static void committer_run(void *cookie)
{
    struct shard *s = cookie;
    void *g;

    while (chan_wait(s->commits, &g, 1, UINT64_MAX)) {
        group_commit(s, g);
        CHECK(chan_send(s->inbox, &s->committed_message));
    }
}

/* ---- steps: shard thread -------------------------------------------------------------------- */

static void on_write_done(void *cookie)
{
    struct shard_write *w = cookie;

    w->done(w);
}

static void on_task_done(void *cookie)
{
    struct shard_task *t = cookie;

    t->done(t);
}

static void run_task(struct shard *s, struct shard_task *t)
{
    store_settle(s->o.store, UINT64_MAX);
    cold_wait_begin(&s->far);
    t->run(t, s->o.store);
    cold_wait_over(&s->far);
    loop_post(s->o.loop, on_task_done, t);
}

static void receive_task(struct shard *s, struct shard_task *t)
{
    if (t->quiet)
        list_add_tail(&s->quiet, &t->link);
    else
        run_task(s, t);
}

static void receive_tasks(struct shard *s)
{
    struct list *first;

    do {
        mutex_lock(&s->tasks_lock);
        first = list_empty(&s->tasks) ? NULL : s->tasks.next;
        if (first)
            list_del(first);
        mutex_unlock(&s->tasks_lock);
        if (first)
            receive_task(s, container_of(first, struct shard_task, link));
    } while (first);
}

static void receive(struct shard *s, void *msg)
{
    if (msg == &s->committed_message) {
        s->committing = false;
    } else if (msg == &s->stop_message) {
        s->stopping = true;
    } else if (msg == &s->reopen_message) {
        s->reopen_wanted = true;
    } else if (msg == &s->tasks_message) {
        receive_tasks(s);
    } else {
        struct shard_write *w = msg;

        w->bytes = store_write_bytes(&w->write);
        w->parts = w->bytes <= s->batch_max ? store_ahead_parts(&w->write) : 0;
        CHECK(fair_push(s->waiting, w->tenant, w->bytes / (w->parts + 1) + 1, &w->item));
    }
}

static struct group *group_new(struct shard *s, uint64_t now_ms)
{
    struct group *g = XNEW(struct group);

    g->batch = store_batch_new(s->o.store);
    g->opened_ms = now_ms;
    list_init(&g->writes);
    return g;
}

static void stage(struct shard *s, struct shard_write *w, uint64_t now_ns)
{
    int code;

    if (now_ns > w->deadline_mono_ns) {
        metric_add(s->m.expired, 1);
        (void)err_set(&w->err, ERR_TIMEOUT, "shard %" PRIu32 " was too busy to begin in time",
                      s->o.number);
        loop_post(s->o.loop, on_write_done, w);
        return;
    }
    if (w->bytes > s->batch_max) {
        (void)err_set(&w->err, ERR_LIMIT,
                      "a push that would be written as over %zu MiB at once: send it in parts",
                      s->batch_max / MIB);
        loop_post(s->o.loop, on_write_done, w);
        return;
    }
    if (!s->open)
        s->open = group_new(s, now_ns / 1000000);
    code = store_stage(s->o.store, s->open->batch, &w->write, &w->result, &w->err);
    if (code) {
        loop_post(s->o.loop, on_write_done, w);
        return;
    }
    err_clear(&w->err); /* what was tried on the way may have left its mark */
    list_add_tail(&s->open->writes, &w->link);
    if (s->open->writes_len++ == 0)
        s->open->tenant = w->tenant;
    s->open->mixed = s->open->mixed || s->open->tenant != w->tenant;
    s->open->bytes = store_batch_bytes(s->open->batch);
}

/* What needs a quiet shard goes first: writes wait for one commit at most. */
static bool holds_writes(struct shard *s)
{
    list_for (it, &s->quiet) {
        if (s->committing || s->open)
            return true;
        list_del(it);
        run_task(s, container_of(it, struct shard_task, link));
    }
    return store_wants_quiet(s->o.store);
}

/* A group that is refused for its size would end all writing. */
static bool group_takes(const struct shard *s, const struct shard_write *w)
{
    size_t bytes = s->open ? s->open->bytes : 0;

    return !bytes || (bytes < s->o.group_bytes_max && bytes + w->bytes <= s->batch_max);
}

/* What came while much was staged: its turn may be the next one. */
static void receive_more(struct shard *s)
{
    void *msgs[TAKE_MAX];
    size_t n = chan_take(s->inbox, msgs, TAKE_MAX);

    for (size_t i = 0; i < n; i++)
        receive(s, msgs[i]);
}

/* Some of the stacks of a heavy write, which then waits for its next turn. False: it is the turn of
 * the write itself. */
static bool stage_part(struct shard *s, struct shard_write *w, uint64_t now_ns)
{
    if (w->part == w->parts || now_ns > w->deadline_mono_ns)
        return false;
    if (!s->open)
        s->open = group_new(s, now_ns / 1000000);
    w->part++;
    if (!store_stage_ahead(s->o.store, s->open->batch, &w->write, w->part, w->parts)) {
        w->part = w->parts;
        return false;
    }
    s->open->bytes = store_batch_bytes(s->open->batch);
    return true;
}

/* Writes that could leave now do not wait for a part of another one. */
static bool may_leave(const struct shard *s)
{
    return !s->committing && s->open && s->open->writes_len > 0;
}

static void stage_waiting(struct shard *s)
{
    struct fair_item *next;
    size_t staged = 0;

    while (!holds_writes(s) && (next = fair_next(s->waiting))) {
        struct shard_write *w = container_of(next, struct shard_write, item);

        if (!group_takes(s, w) || (w->part < w->parts && may_leave(s)))
            break;
        fair_take(s->waiting, next);
        if (stage_part(s, w, clock_mono_ns(s->o.clock))) {
            fair_pause(s->waiting, next, 0, next->cost);
            receive_more(s);
            continue;
        }
        fair_done(s->waiting, next, 0);
        staged += w->bytes;
        stage(s, w, clock_mono_ns(s->o.clock));
        if (staged < STAGE_BYTES)
            continue;
        receive_more(s);
        staged = 0;
        if (may_leave(s) && s->open->mixed)
            break;
    }
}

/* Writes wait that could be staged now: there was more of them than one turn stages. */
static bool can_stage(struct shard *s)
{
    struct fair_item *next = fair_next(s->waiting);

    return next && list_empty(&s->quiet) && !store_wants_quiet(s->o.store) &&
           group_takes(s, container_of(next, struct shard_write, item));
}

/* Milliseconds the open group may still wait for companions. */
static uint64_t group_wait(const struct shard *s, uint64_t now_ms)
{
    uint64_t due = s->open->opened_ms + s->o.group_wait_ms;
    bool alone = s->company < 2 && s->open->writes_len < 2;
    bool wanted = !list_empty(&s->quiet) || s->reopen_wanted || store_wants_quiet(s->o.store);

    /* What waits beside an open group did not fit. */
    bool full = s->open->bytes >= s->o.group_bytes_max || fair_waiting(s->waiting) > 0;

    return alone || wanted || s->stopping || full || due <= now_ms ? 0 : due - now_ms;
}

/* Nothing that could be staged meanwhile, and a disk that is sooner back than it is worth waking
 * two threads. What arrives in that time is the next group. */
static bool commits_here(struct shard *s)
{
    return fair_waiting(s->waiting) == 0 &&
           atomic_load_explicit(&s->commit_ns, memory_order_relaxed) < COMMIT_HERE_NS;
}

static void hand_over(struct shard *s)
{
    struct group *g = s->open;

    CHECK(!s->committing);
    s->open = NULL;
    s->company = g->writes_len;
    if (s->o.simulated || commits_here(s)) {
        group_commit(s, g);
        return;
    }
    s->committing = true;
    CHECK(chan_send(s->commits, g));
}

static void publish(struct shard *s, uint64_t now_ms);

static void on_reopened(void *cookie)
{
    struct shard *s = cookie;
    struct shard_reopen *r = s->reopen;

    s->reopen = NULL;
    r->done(r);
}

/* What waits for a read-only store is refused by it at once, so the way is soon clear. */
static void reopen_step(struct shard *s, uint64_t now_ms)
{
    struct shard_reopen *r = s->reopen;

    if (s->committing || s->open || fair_waiting(s->waiting) > 0)
        return;
    s->reopen_wanted = false;
    if (s->stopping)
        (void)err_set(&r->err, ERR_BUSY, "the ingester is stopping");
    else if (store_reopen(s->o.store, r->open, r->cookie, &r->err) == 0)
        err_clear(&r->err); /* what was tried on the way may have left its mark */
    store_tenants_max(s->o.store, s->o.tenants_max);
    publish(s, now_ms); /* first: on_reopened must find the new state */
    loop_post(s->o.loop, on_reopened, s);
}

static void seal_step(struct shard *s, uint64_t now_ms)
{
    uint64_t began = clock_mono_ns(s->o.clock);
    struct store_stats before, after;
    struct err e = { 0 };
    bool more = false, fresh = now_ms < s->seal_far_ms, far;
    int code;

    store_stats(s->o.store, &before);
    cold_wait_begin(&s->far);
    code = fresh ? store_seal_fresh(s->o.store, s->o.seal_rows, &more, &e)
                 : store_seal(s->o.store, s->o.seal_rows, &more, &e);
    far = cold_wait_end(&s->far, code);
    store_stats(s->o.store, &after);
    metric_observe(s->m.seal_seconds, (double)(clock_mono_ns(s->o.clock) - began) / 1e9);
    metric_add(s->m.seal_steps, 1);
    metric_add(s->m.sealed_entries, after.applied - before.applied);
    if (after.raw_rows < before.raw_rows)
        metric_add(s->m.sealed_rows, before.raw_rows - after.raw_rows);
    if (code || fresh)
        s->seal_after_ms = more && !code ? 0 : now_ms + SEAL_RETRY_MS;
    if (far) {
        now_ms = clock_mono_ms(s->o.clock);
        s->seal_far_ms = now_ms + MAX(cold_wait_wait(&s->far, now_ms), (uint64_t)SEAL_RETRY_MS);
        if (!fresh)               /* else it wants far rows, too: not at once again */
            s->seal_after_ms = 0; /* what is fresh, now */
        if (cold_wait_told(&s->far))
            log_warn("late rows wait for the cold tier to be sealed; they are read unsealed",
                     KV_U64("shard", s->o.number), KV_ERR(&e));
    } else if (code) {
        if (code != ERR_UNAVAILABLE) { /* else handed over: the new leader seals */
            metric_add(s->m.seal_errors, 1);
            log_error("sealing failed; the rows stay raw and are read from there",
                      KV_U64("shard", s->o.number), KV_ERR(&e));
        }
    }
}

static void on_state(void *cookie)
{
    struct state_message *m = cookie;
    struct shard *s = m->shard;

    CHECK(s->magic == SHARD_MAGIC);
    shard_state_show(&s->m, s->o.number, &s->state, &m->state);
    s->state = m->state;
    xfree(m);
}

static void publish(struct shard *s, uint64_t now_ms)
{
    struct state_message *m = XNEW(struct state_message);

    m->shard = s;
    store_trim(s->o.store); /* without pushes, too: caches that must shrink */
    store_stats(s->o.store, &m->state.stats);
    m->state.seal_lag_ms = s->due_since_ms ? now_ms - s->due_since_ms : 0;
    m->state.read_only = store_read_only(s->o.store);
    m->state.read_only_code = store_read_only_code(s->o.store);
    store_clock(s->o.store, &m->state.clock);
    store_delete_stats(s->o.store, &m->state.deletes);
    s->state_next_ms = now_ms + STATE_EVERY_MS;
    mem_idle(); /* there may be a hundred threads like this one */
    loop_post(s->o.loop, on_state, m);
}

/* Milliseconds until sealing has work; keeps track of since when it has. */
static uint64_t seal_wait(struct shard *s, uint64_t now_ms)
{
    uint64_t wait = store_read_only(s->o.store) ? UINT64_MAX : store_seal_wait_ms(s->o.store);

    if (wait > 0)
        s->due_since_ms = 0;
    else if (s->due_since_ms == 0)
        s->due_since_ms = MAX(now_ms, 1u);
    if (wait == 0 && now_ms < s->seal_after_ms)
        wait = s->seal_after_ms - now_ms;
    return wait;
}

/* True if a chore may start. While a group is being committed this does not wait: the commit
 * publishes a new view when it ends. */
static bool settled(struct shard *s, uint64_t now_ms)
{
    bool held = store_wants_quiet(s->o.store); /* writes wait for the chore */
    bool idle = !s->open && (held || fair_waiting(s->waiting) == 0);

    if (!store_settled(s->o.store) && !s->committing)
        store_settle(s->o.store,
                     idle && shard_jobs_wait(&s->chores, now_ms) == 0 ? SETTLE_IDLE_MS : 0);
    if (store_settled(s->o.store) || shard_jobs_wait(&s->chores, now_ms) > 0)
        s->held_since_ms = 0;
    else if (!s->held_since_ms)
        s->held_since_ms = MAX(now_ms, 1u);
    return store_settled(s->o.store);
}

static bool chores_held(const struct shard *s, uint64_t now_ms)
{
    return s->held_since_ms && now_ms >= s->held_since_ms + SETTLE_HELD_MS;
}

/* Milliseconds until there is something to do besides writes. */
static uint64_t own_wait(struct shard *s, uint64_t now_ms)
{
    uint64_t wait = s->state_next_ms > now_ms ? s->state_next_ms - now_ms : 0;

    if (!chores_held(s, now_ms))
        wait = MIN(wait, seal_wait(s, now_ms));
    if (store_settled(s->o.store))
        return MIN(wait, shard_jobs_wait(&s->chores, now_ms));
    return MIN(wait, (uint64_t)SETTLE_LOOK_MS);
}

uint64_t shard_step(struct shard *s, void *const *msgs, size_t n)
{
    uint64_t now_ms = clock_mono_ms(s->o.clock);
    uint64_t wait;

    for (size_t i = 0; i < n; i++)
        receive(s, msgs[i]);
    stage_waiting(s);
    if (s->open && !s->committing && group_wait(s, now_ms) == 0)
        hand_over(s);
    if (seal_wait(s, now_ms) == 0 && !s->stopping && !chores_held(s, now_ms))
        seal_step(s, now_ms);
    if (!s->stopping && settled(s, clock_mono_ms(s->o.clock)))
        shard_jobs_step(&s->chores, &s->far, s->o.clock);
    if (s->reopen_wanted)
        reopen_step(s, now_ms);
    if (now_ms >= s->state_next_ms)
        publish(s, now_ms);

    now_ms = clock_mono_ms(s->o.clock);
    wait = own_wait(s, now_ms);
    if (s->committing) /* what else waits or is open can move when a message says that it ended */
        return can_stage(s) ? 0 : wait;
    if (fair_waiting(s->waiting) > 0)
        return store_wants_quiet(s->o.store) && !store_settled(s->o.store) ? wait : 0;
    return s->open ? MIN(wait, group_wait(s, now_ms)) : wait;
}

static void shard_main(void *cookie)
{
    struct shard *s = cookie;
    void *msgs[TAKE_MAX];
    uint64_t wait = 0;

    while (!s->stopping || s->committing || s->open) {
        size_t least = s->committing || s->open ? LAZY_WRITES : 1;
        size_t n = chan_wait_for(s->inbox, least, msgs, TAKE_MAX, wait);

        wait = shard_step(s, msgs, n);
    }
    CHECK(fair_waiting(s->waiting) == 0);
}

/* ---- life ----------------------------------------------------------------------------------- */

struct shard *shard_new(const struct shard_opts *o)
{
    struct shard *s = XNEW(struct shard);
    char name[24]; /* cut to what a thread name may be */

    s->magic = SHARD_MAGIC;
    s->o = *o;
    s->batch_max = store_batch_max(o->store);
    store_tenants_max(o->store, o->tenants_max);
    s->commit_ns = 4 * COMMIT_HERE_NS; /* a disk has to show that it is fast */
    shard_metrics_init(&s->m, o->metrics, o->number);
    shard_jobs_init(&s->chores, o->store, o->number, o->metrics);
    cold_wait_init(&s->far, o->clock);
    s->waiting = fair_new(&(struct fair_opts){ 0 });
    mutex_init(&s->tasks_lock);
    list_init(&s->tasks);
    list_init(&s->quiet);
    s->inbox = chan_new(o->writes_max + INBOX_OWN, o->simulated ? shard_simulated_wake : NULL, s);
    if (o->simulated) {
        s->timer = loop_timer_new(o->loop, shard_simulated_step, s);
        loop_timer_start(s->timer, 0, 0);
        return s;
    }
    s->commits = chan_new(1, NULL, NULL);
    (void)snprintf(name, sizeof(name), "shard-%" PRIu32, o->number);
    thread_start(&s->thread, name, shard_main, s);
    (void)snprintf(name, sizeof(name), "commit-%" PRIu32, o->number);
    thread_start(&s->committer, name, committer_run, s);
    return s;
}

uint32_t shard_number(const struct shard *s)
{
    return s->o.number;
}

void shard_send(struct shard *s, struct shard_write *w)
{
    CHECK(s->magic == SHARD_MAGIC);
    CHECK(chan_send_lazily(s->inbox, w));
}

void shard_run(struct shard *s, struct shard_task *t)
{
    CHECK(s->magic == SHARD_MAGIC);
    mutex_lock(&s->tasks_lock);
    bool first = list_empty(&s->tasks);
    list_add_tail(&s->tasks, &t->link);
    mutex_unlock(&s->tasks_lock);
    if (first)
        CHECK(chan_send(s->inbox, &s->tasks_message));
}

void shard_reopen(struct shard *s, struct shard_reopen *r)
{
    CHECK(s->magic == SHARD_MAGIC && !s->reopen);
    s->reopen = r;
    CHECK(chan_send(s->inbox, &s->reopen_message));
}

bool shard_read_only(const struct shard *s)
{
    return s->state.read_only || store_read_only(s->o.store);
}

uint64_t shard_commit_ms(const struct shard *s)
{
    uint64_t at = atomic_load_explicit(&s->commit_at, memory_order_relaxed);
    uint64_t now = clock_mono_ns(s->o.clock);

    return at && now > at ? (now - at) / 1000000 : 0;
}

struct store *shard_store(struct shard *s)
{
    return s->o.store;
}

const struct shard_state *shard_state(const struct shard *s)
{
    return &s->state;
}

void shard_stop(struct shard *s)
{
    if (s->stop_sent)
        return;
    s->stop_sent = true;
    CHECK(chan_send(s->inbox, &s->stop_message));
    if (s->o.simulated)
        loop_timer_stop(s->timer);
}

bool shard_stopped(const struct shard *s)
{
    return !s->o.simulated || (s->stopping && !s->in_step && !s->step_posted);
}

void shard_end(struct shard *s)
{
    CHECK(s->stop_sent && shard_stopped(s));
    if (!s->o.simulated) {
        thread_join(&s->thread);
        chan_close(s->commits);
        thread_join(&s->committer);
    }
    store_close(s->o.store);
    s->o.store = NULL;
}

void shard_free(struct shard *s)
{
    if (!s)
        return;
    CHECK(s->magic == SHARD_MAGIC && !s->open && !s->committing && list_empty(&s->tasks));
    CHECK(!s->o.store);
    shard_metrics_gone(&s->m);
    loop_timer_free(s->timer);
    chan_free(s->commits);
    chan_free(s->inbox);
    fair_free(s->waiting);
    mutex_deinit(&s->tasks_lock);
    s->magic = 0;
    xfree(s);
}

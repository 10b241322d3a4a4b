/* SPDX-License-Identifier: Apache-2.0
 *
 * repl_node: the loop's side of a replica at work. Every input of the protocol (message, tick, end
 * of an operation, record, write) comes here, goes into replica.c, and is followed by node_settle:
 * only there others are called back and new work is begun, since the protocol must not be called
 * from inside its own outputs.
 *
 * A write waits in one of two lists: `waiting` until there is a term to take it (a leader that
 * continues in its own next record takes nothing for a moment), then `proposed` until it is
 * applied. Both end when the epoch does, or when nothing is applied for WRITE_WAIT_MS: it is then
 * unknown whether a proposed write was committed. All of them end at once, and the pipe of their
 * handle refuses later writes, so no write succeeds behind a failed one.
 */
#include "common/repl/repl_node.h"

#include <stdio.h>

#include "common/base/mem.h"
#include "common/repl/copy.h"
#include "common/repl/digest.h"
#include "common/repl/repl_node_impl.h"
#include "common/repl/repl_pipe.h"
#include "common/repl/snapshot.h"

/* ---- outputs of the protocol ---- */

static void io_send(void *cookie, const char *to, const struct repl_msg *m)
{
    struct repl_node *n = cookie;

    hub_send(n->o.hub, to, m);
}

static void io_append(void *cookie, struct repl_entry *const *entries, size_t n, uint64_t seq)
{
    disk_append(cookie, entries, n, seq);
}

static void io_hard(void *cookie, uint64_t promised, uint64_t commit, uint64_t seq)
{
    disk_hard(cookie, promised, commit, seq);
}

static void io_reset(void *cookie, uint64_t index, uint64_t term, uint64_t seq)
{
    disk_reset(cookie, index, term, seq);
}

static size_t io_entries(void *cookie, uint64_t from, size_t bytes_max, struct repl_entry **ret,
                         size_t max)
{
    return disk_entries(cookie, from, bytes_max, ret, max);
}

static void io_commit(void *cookie, uint64_t index)
{
    struct repl_node *n = cookie;

    n->commit_to = MAX(n->commit_to, index);
}

static void io_role(void *cookie)
{
    struct repl_node *n = cookie;

    n->role_changed = true;
}

static void io_establish(void *cookie, uint64_t record_term)
{
    const struct repl_node *n = cookie;

    if (n->o.establish)
        n->o.establish(n->o.cookie, record_term);
}

static void io_prefer(void *cookie, const char *name)
{
    const struct repl_node *n = cookie;

    if (n->o.prefer)
        n->o.prefer(n->o.cookie, name);
}

struct read_wait {
    struct list link;
    uint64_t id;
    bool ok;
    void (*done)(void *cookie, int code);
    void *cookie;
};

static void on_read(void *cookie)
{
    struct read_wait *w = cookie;

    w->done(w->cookie, w->ok ? 0 : ERR_UNAVAILABLE);
    xfree(w);
}

static void io_confirmed(void *cookie, uint64_t read, bool ok)
{
    struct repl_node *n = cookie;

    list_for (it, &n->reads) {
        struct read_wait *w = container_of(it, struct read_wait, link);
        if (w->id != read)
            continue;
        list_del(it);
        w->ok = ok;
        loop_post(n->loop, on_read, w);
        return;
    }
}

static void io_snapshot(void *cookie, const char *to)
{
    repl_snapshot_start(cookie, to);
}

void node_io(struct replica_io *io)
{
    io->send = io_send;
    io->log_append = io_append;
    io->log_hard = io_hard;
    io->log_reset = io_reset;
    io->entries = io_entries;
    io->commit = io_commit;
    io->role = io_role;
    io->establish = io_establish;
    io->confirmed = io_confirmed;
    io->snapshot = io_snapshot;
    io->prefer = io_prefer;
}

/* ---- writes ---- */

static void on_wake(void *cookie)
{
    fiber_resume(cookie);
}

static void proposal_end(struct proposal *p, const struct err *why)
{
    list_del(&p->link);
    entry_unref(p->entry);
    if (why)
        pipe_break(p->pipe, why);
    if (p->begun) {
        if (!why)
            pipe_ended(p->pipe);
        pipe_unref(p->pipe);
        xfree(p);
        return;
    }
    if (why)
        p->err = *why;
    if (p->fiber)
        loop_post(p->n->loop, on_wake, p->fiber);
    else
        CHECK(chan_send(p->wake, p)); /* p may be gone behind this */
}

static void not_leading(const struct repl_node *n, struct err *e)
{
    struct replica_state st = replica_state(n->r);

    (void)err_set(
        e, ERR_UNAVAILABLE,
        "shard %" PRIu32 ": this node (%s) does not lead any more; in term %" PRIu64 " it is %s",
        n->o.shard, n->self, st.record_term, st.leader && st.leader[0] ? st.leader : "not known");
}

/* Fails the writes of other epochs, or all. */
static void fail_writes(struct list *list, uint64_t epoch, bool all, const struct err *why)
{
    list_for (it, list) {
        struct proposal *p = container_of(it, struct proposal, link);
        if (all || p->epoch != epoch)
            proposal_end(p, why);
    }
}

static void take_writes(struct repl_node *n)
{
    struct replica_state st = replica_state(n->r);

    if (st.role != REPLICA_LEADING)
        return;
    list_for (it, &n->waiting) {
        struct proposal *p = container_of(it, struct proposal, link);
        struct err e;

        if (replica_propose(n->r, p->entry, &e)) {
            proposal_end(p, &e);
            continue;
        }
        list_del(it);
        p->index = p->entry->index;
        list_add_tail(&n->proposed, &p->link);
    }
}

static void end_writes(struct repl_node *n)
{
    list_for (it, &n->proposed) {
        struct proposal *p = container_of(it, struct proposal, link);
        if (p->index > n->applied)
            return;
        proposal_end(p, NULL);
    }
}

static bool dead(const struct repl_node *n)
{
    return n->failed || n->stopping;
}

/* Mutants for tests: a pipelined batch is lost, or proposed after the next one. */
static bool mutate(struct repl_node *n, struct proposal *p)
{
    if (LIKELY(!n->o.mutants) || !p->begun || n->held)
        return false;
    if ((n->o.mutants & (uint32_t)MUTANT_PIPE_GOES_ON) && ++n->begun % 8 == 0) {
        proposal_end(p, NULL);
        return true;
    }
    if (!(n->o.mutants & (uint32_t)MUTANT_BEGUN_SWAP) || dead(n))
        return false;
    n->held = p;
    return true;
}

static void late_writes(struct repl_node *n)
{
    bool none = list_empty(&n->waiting) && list_empty(&n->proposed);
    struct err e;

    if (n->held) {
        list_add_tail(&n->waiting, &n->held->link);
        n->held = NULL;
        take_writes(n);
    }
    if (none || n->applied != n->writes_at) {
        n->writes_at = n->applied;
        n->writes_ticks = 0;
        return;
    }
    if (++n->writes_ticks < WRITE_WAIT_MS / TICK_MS)
        return;
    n->writes_ticks = 0;
    (void)err_set(&e, ERR_UNAVAILABLE,
                  "shard %" PRIu32 ": nothing was stored for %d s: no majority of its copies "
                  "answers, or the disk here does not. It takes writes again when they do",
                  n->o.shard, WRITE_WAIT_MS / 1000);
    n->handle_over = true;
    node_past(n);
    fail_writes(&n->waiting, 0, true, &e);
    fail_writes(&n->proposed, 0, true, &e);
}

void node_propose(void *proposal)
{
    struct proposal *p = proposal;
    struct repl_node *n = p->n;
    struct replica_state st = replica_state(n->r);
    bool fits = st.role == REPLICA_LEADING || st.role == REPLICA_PREPARING;
    struct err e;

    CHECK(n->magic == NODE_MAGIC);
    if (mutate(n, p))
        return;
    list_add_tail(&n->waiting, &p->link);
    if (pipe_broken(p->pipe, &e)) {
        proposal_end(p, &e);
        return;
    }
    if (dead(n) || !fits || st.epoch != p->epoch) {
        not_leading(n, &e);
        proposal_end(p, &e);
        return;
    }
    if (n->held) {
        list_add_tail(&n->waiting, &n->held->link);
        n->held = NULL;
    }
    take_writes(n);
    node_settle(n);
}

/* ---- after each input ---- */

void node_settle(struct repl_node *n)
{
    if (dead(n))
        return;
    if (n->role_changed) {
        struct replica_state st = replica_state(n->r);
        struct err e;

        n->role_changed = false;
        node_past(n);
        not_leading(n, &e);
        fail_writes(&n->waiting, st.epoch, false, &e);
        fail_writes(&n->proposed, st.epoch, false, &e);
        take_writes(n);
        n->o.role(n->o.cookie);
    }
    end_writes(n);
    disk_apply(n);
}

static void fail_all(struct repl_node *n, const struct err *why)
{
    if (n->held)
        list_add_tail(&n->waiting, &n->held->link);
    n->held = NULL;
    fail_writes(&n->waiting, 0, true, why);
    fail_writes(&n->proposed, 0, true, why);
    list_for (it, &n->reads) {
        struct read_wait *w = container_of(it, struct read_wait, link);
        list_del(it);
        w->ok = false;
        loop_post(n->loop, on_read, w);
    }
}

static void on_failed(void *cookie)
{
    struct repl_node *n = cookie;

    if (!n->stopping && n->o.failed)
        n->o.failed(n->o.cookie, &n->why);
}

void node_fail(struct repl_node *n, const struct err *why)
{
    struct err e;

    if (dead(n))
        return;
    n->failed = true;
    n->why = *why;
    (void)err_set(&e, ERR_UNAVAILABLE, "shard %" PRIu32 ": its replica here failed: %s", n->o.shard,
                  why->text);
    fail_all(n, &e);
    loop_post(n->loop, on_failed, n);
}

void repl_node_halt(struct repl_node *n)
{
    struct err e;

    if (dead(n))
        return;
    n->failed = true;
    (void)err_set(&e, ERR_UNAVAILABLE, "shard %" PRIu32 ": its replica here is being closed",
                  n->o.shard);
    fail_all(n, &e);
}

void node_tick(struct repl_node *n)
{
    if (dead(n))
        return;
    n->ticks++;
    replica_tick(n->r);
    late_writes(n);
    disk_tick(n);
    repl_digest_tick(n);
    repl_snapshot_tick(n);
    repl_copy_tick(n);
    node_settle(n);
}

void node_message(struct repl_node *n, const struct repl_msg *m)
{
    if (dead(n))
        return;
    replica_message(n->r, m);
    node_settle(n);
}

/* ---- for its users ---- */

void repl_node_record(struct repl_node *n, const struct repl_record *rec)
{
    CHECK(n->magic == NODE_MAGIC);
    if (dead(n))
        return;
    replica_record(n->r, rec);
    node_settle(n);
}

void repl_node_room(struct repl_node *n, bool room)
{
    replica_room(n->r, room);
}

void repl_node_reclaimed(struct repl_node *n, uint64_t index)
{
    replica_reclaimed(n->r, index);
}

void repl_node_shed(struct repl_node *n)
{
    n->shed = true;
    n->rolled = 0;
}

bool repl_node_drained(const struct repl_node *n)
{
    if (n->o.mutants & (uint32_t)MUTANT_UNDRAINED)
        return true;
    return list_empty(&n->waiting) && list_empty(&n->proposed) &&
           replica_state(n->r).last_index <= n->applied;
}

bool repl_node_hold(struct repl_node *n)
{
    if (dead(n))
        return false;
    n->jobs++;
    return true;
}

void repl_node_release(struct repl_node *n)
{
    n->jobs--;
    node_jobs_end(n);
}

bool repl_node_reads_past(const struct repl_node *n)
{
    return n->past || !list_empty(&n->snaps) || n->snap_id || repl_digest_runs(n);
}

void repl_node_admit(struct repl_node *n)
{
    if (dead(n))
        return;
    replica_admit(n->r);
    node_settle(n);
}

struct replica_state repl_node_state(const struct repl_node *n)
{
    struct replica_state st = replica_state(n->r);

    if (dead(n))
        st.role = REPLICA_FOLLOWER;
    return st;
}

bool repl_node_peer(const struct repl_node *n, size_t i, struct replica_peer *ret)
{
    return replica_peer(n->r, i, ret);
}

void repl_node_confirm(struct repl_node *n, void (*done)(void *cookie, int code), void *cookie)
{
    struct read_wait *w = XNEW(struct read_wait);

    *w = (struct read_wait){ .id = ++n->last_read, .done = done, .cookie = cookie };
    if (dead(n)) {
        list_init(&w->link);
        loop_post(n->loop, on_read, w);
        return;
    }
    list_add_tail(&n->reads, &w->link);
    replica_confirm(n->r, w->id);
    node_settle(n);
}

struct kv *repl_node_db(struct repl_node *n)
{
    return n->o.db;
}

bool repl_node_stats(const struct repl_node *n, struct kv_stats *ret)
{
    if (n->stopping)
        return false;
    kv_stats(n->o.db, ret);
    return true;
}

uint64_t repl_node_appended(const struct repl_node *n)
{
    return n->log_appended;
}

/* ---- life ---- */

int repl_node_new(const struct repl_node_opts *o, struct repl_node **ret, struct err *e)
{
    struct repl_node *n = XNEW(struct repl_node);

    n->magic = NODE_MAGIC;
    n->o = *o;
    n->loop = o->hub->o.loop;
    (void)snprintf(n->self, sizeof(n->self), "%s", o->self);
    n->o.self = n->self;
    list_init(&n->log_waiting);
    list_init(&n->waiting);
    list_init(&n->proposed);
    list_init(&n->reads);
    list_init(&n->snaps);
    if (disk_open(n, e)) {
        rlog_close(n->log);
        kv_close(n->o.db);
        xfree(n);
        return e->code;
    }
    n->o.dir = NULL;
    disk_start(n);
    repl_copy_open(n);
    n->o.copy_dir = NULL;
    n->keep_dir = o->keep_dir ? xstrdup(o->keep_dir) : NULL;
    n->o.keep_dir = NULL;
    cache_join(n, true);
    list_add_tail(&o->hub->nodes, &n->link);
    *ret = n;
    return 0;
}

static void node_free(void *cookie)
{
    struct repl_node *n = cookie;
    void (*stopped)(void *c) = n->stopped;
    void *c = n->stopped_cookie;

    repl_snapshot_free(n);
    repl_digest_free(n);
    repl_copy_free(n);
    replica_free(n->r);
    xfree(n->keep_dir);
    n->magic = 0;
    xfree(n);
    stopped(c);
}

struct closing {
    struct thread thread;
    struct repl_node *n;
};

static void on_closed(void *cookie)
{
    struct closing *c = cookie;
    struct repl_node *n = c->n;

    thread_join(&c->thread);
    xfree(c);
    node_free(n);
}

static void close_thread(void *cookie)
{
    struct closing *c = cookie;

    disk_stop(c->n);
    loop_post(c->n->loop, on_closed, c);
}

/* Simulated: behind what the loop still had posted for it. */
static void close_simulated(void *cookie)
{
    struct repl_node *n = cookie;

    disk_stop(n);
    loop_post(n->loop, node_free, n);
}

static void close_node(struct repl_node *n)
{
    struct closing *c;

    if (n->o.simulated) {
        loop_post(n->loop, close_simulated, n);
        return;
    }
    c = XNEW(struct closing);
    c->n = n;
    thread_start(&c->thread, "repl-close", close_thread, c);
}

void node_jobs_end(struct repl_node *n)
{
    if (n->jobs || !n->close_later)
        return;
    n->close_later = false;
    close_node(n);
}

void repl_node_stop(struct repl_node *n, void (*done)(void *cookie), void *cookie)
{
    struct err e;

    CHECK(n->magic == NODE_MAGIC && !n->stopping);
    (void)err_set(&e, ERR_UNAVAILABLE, "shard %" PRIu32 ": its replica here is being closed",
                  n->o.shard);
    fail_all(n, &e);
    n->stopping = true;
    n->stopped = done;
    n->stopped_cookie = cookie;
    list_del(&n->link);
    cache_join(n, false);
    repl_copy_stop(n);
    n->close_later = true; /* behind jobs that use the database */
    node_jobs_end(n);
}

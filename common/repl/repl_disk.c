/* SPDX-License-Identifier: Apache-2.0
 *
 * repl_disk: the log thread, the apply thread, and the newest entries in memory between them.
 *
 * Operations on the log go to its thread in order; it takes what waits, does it, fsyncs once, and
 * tells the loop the number of the last one. Entries are applied by another thread in order of
 * their index, from memory while they are new, else read back from the log.
 *
 * Reads of the log are queued in the same order as all other operations, so they see the log of
 * that moment; a generation shows whether entries were replaced meanwhile.
 */
#include <stdatomic.h>

#include "common/base/mem.h"
#include "common/repl/apply.h"
#include "common/repl/copy.h"
#include "common/repl/digest.h"
#include "common/repl/repl_node_impl.h"
#include "common/repl/snapshot.h"

#define LOG_QUEUE     65536
#define APPLY_QUEUE   65536
#define APPLY_BYTES   (16 * MIB) /* handed over and not applied */
#define FLIGHT_BYTES  (16 * MIB) /* sent to one peer and not answered */
#define MESSAGE_BYTES (4 * MIB)

/* ---- operations on the log: log thread, or the loop when simulated ---- */

static int log_do(struct repl_node *n, struct log_op *op, struct err *e)
{
    switch (op->kind) {
    case LOG_APPEND:
        return rlog_append(n->log, op->entries, op->len, e);
    case LOG_HARD:
        return rlog_hard(n->log, op->a, op->b, e);
    case LOG_RESET:
        return rlog_reset(n->log, op->a, op->b, e);
    case LOG_DROP:
        return rlog_drop(n->log, op->a, e);
    case LOG_ROLL:
        op->a = rlog_state(n->log).last_index;
        return rlog_roll(n->log, e);
    case LOG_SEAL:
        return rlog_seal(n->log, e);
    case LOG_READ:
        break;
    }
    op->entries = XNEW_ARRAY(struct repl_entry *, READ_MAX);
    int code = rlog_read(
        n->log, &(struct rlog_range){ .from = op->a, .max = READ_MAX, .bytes_max = op->bytes_max },
        op->entries, &op->len, e);
    if (code)
        op->len = 0;
    return code == ERR_NOT_FOUND ? 0 : code; /* dropped or replaced meanwhile */
}

static void on_log_end(void *cookie);

/* Into the system's cache; log_finish makes it last. */
static struct log_end *log_begin(struct repl_node *n, void *const *ops, size_t len)
{
    struct log_end *end = XNEW(struct log_end);
    int code = 0;

    end->n = n;
    for (size_t i = 0; i < len; i++) {
        struct log_op *op = ops[i];
        end->ops[end->len++] = op;
        end->wrote |= op->kind != LOG_READ && op->kind != LOG_DROP;
        if (!code)
            code = log_do(n, op, &end->err);
    }
    if (!code)
        err_clear(&end->err);
    return end;
}

static void log_finish(struct log_end *end)
{
    struct repl_node *n = end->n;

    if (!end->err.code && end->wrote && !rlog_sync(n->log, &end->err))
        err_clear(&end->err);
    end->state = rlog_state(n->log);
    loop_post(n->loop, on_log_end, end);
}

static void log_thread(void *cookie)
{
    struct repl_node *n = cookie;
    void *ops[BATCH_MAX];
    size_t len;

    while ((len = chan_wait(n->log_in, ops, BATCH_MAX, UINT64_MAX)) > 0)
        log_finish(log_begin(n, ops, len));
}

/* ---- the same on a simulated loop: the fsync takes time, and a crash may come within ---- */

static uint32_t lag(const struct repl_node *n)
{
    return n->o.fs && n->o.fs->lag_ms ? n->o.fs->lag_ms(n->o.fs) : 0;
}

static bool hangs(const struct repl_node *n)
{
    return n->o.fs && n->o.fs->hangs && n->o.fs->hangs(n->o.fs);
}

static void log_simulated(void *cookie);

static void log_again(struct repl_node *n)
{
    if (n->log_posted || n->log_flying || list_empty(&n->log_waiting))
        return;
    n->log_posted = true;
    loop_post(n->loop, log_simulated, n);
}

static void log_lagged(void *cookie);

static void log_later(struct repl_node *n, uint32_t ms)
{
    if (!n->lag_timer)
        n->lag_timer = loop_timer_new(n->loop, log_lagged, n);
    loop_timer_start(n->lag_timer, ms, 0);
}

static void log_lagged(void *cookie)
{
    struct repl_node *n = cookie;
    struct log_end *end = n->log_flying;

    if (end->wrote && hangs(n)) {
        log_later(n, TICK_MS);
        return;
    }
    n->log_flying = NULL;
    log_finish(end);
    log_again(n);
}

static void log_simulated(void *cookie)
{
    struct repl_node *n = cookie;
    void *ops[BATCH_MAX];
    size_t len = 0;

    n->log_posted = false;
    list_for (it, &n->log_waiting) {
        if (len == BATCH_MAX)
            break;
        list_del(it);
        ops[len++] = container_of(it, struct log_op, link);
    }
    if (!len)
        return;
    n->log_flying = log_begin(n, ops, len);
    uint32_t ms = n->log_flying->wrote ? lag(n) : 0;
    if (!ms) {
        log_lagged(n);
        return;
    }
    log_later(n, ms);
}

static void log_submit(struct repl_node *n, struct log_op *op)
{
    if (n->log_out++ == 0)
        n->log_moved_ms = node_now_ms(n);
    if (!n->o.simulated) {
        CHECK(chan_send(n->log_in, op));
        return;
    }
    list_add_tail(&n->log_waiting, &op->link);
    log_again(n);
}

static void op_free(struct log_op *op)
{
    for (size_t i = 0; i < op->len; i++)
        entry_unref(op->entries[i]);
    xfree(op->entries);
    xfree(op);
}

static struct log_op *op_new(struct repl_node *n, enum log_kind kind, uint64_t seq, uint64_t a,
                             uint64_t b)
{
    struct log_op *op = XNEW(struct log_op);

    *op = (struct log_op){ .kind = kind, .seq = seq, .a = a, .b = b, .gen = n->gen };
    return op;
}

/* ---- what the protocol wants of the log ---- */

void disk_append(struct repl_node *n, struct repl_entry *const *entries, size_t len, uint64_t seq)
{
    struct log_op *op = op_new(n, LOG_APPEND, seq, 0, 0);

    op->entries = XNEW_ARRAY(struct repl_entry *, len);
    op->len = len;
    for (size_t i = 0; i < len; i++) {
        op->entries[i] = entry_ref(entries[i]);
        cache_add(n, entries[i]);
    }
    log_submit(n, op);
}

void disk_hard(struct repl_node *n, uint64_t promised, uint64_t commit, uint64_t seq)
{
    log_submit(n, op_new(n, LOG_HARD, seq, promised, commit));
}

void disk_reset(struct repl_node *n, uint64_t index, uint64_t term, uint64_t seq)
{
    cache_cut(n, 0);
    cache_old_clear(n);
    n->gen++;
    n->log_last = index;
    log_submit(n, op_new(n, LOG_RESET, seq, index, term));
}

static void read_log(struct repl_node *n, uint64_t from, size_t bytes_max, enum log_purpose purpose)
{
    struct log_op *op = op_new(n, LOG_READ, 0, from, 0);

    op->bytes_max = MIN(bytes_max, cache_part(n, READ_BYTES));
    op->purpose = purpose;
    log_submit(n, op);
}

size_t disk_entries(struct repl_node *n, uint64_t from, size_t bytes_max, struct repl_entry **ret,
                    size_t max)
{
    size_t len = 0, bytes = 0;

    for (; len < max; len++) {
        uint64_t at = from + len;
        struct repl_entry *x = cache_at(n, at);
        if (!x && at >= n->old_first && at < n->old_first + n->old_len)
            x = n->old[at - n->old_first];
        if (!x || (len && bytes + entry_bytes(x->len) > bytes_max))
            break;
        bytes += entry_bytes(x->len);
        ret[len] = entry_ref(x);
    }
    if (!len && !n->old_reading) {
        n->old_reading = true;
        read_log(n, from, READ_BYTES, FOR_PEERS);
    }
    return len;
}

/* ---- applying ---- */

static void on_apply_end(void *cookie);

static int apply_sync(struct repl_node *n, struct err *e)
{
    struct kv_batch *nothing = kv_batch_new();
    int code = kv_write(n->o.db, nothing, true, e);

    kv_batch_free(nothing);
    return code;
}

/* Entries that were handed over behind a failed one still come here, before the loop learns of the
 * failure. A note of any of them would say that the failed entry is in the database, too. */
static void apply_run(struct repl_node *n, struct apply_msg *const *msgs, size_t len)
{
    struct apply_end *end = XNEW(struct apply_end);
    int code = n->apply_failed ? ERR_IO : 0; /* the loop has, or gets, the first error before */

    end->n = n;
    end->len = len;
    for (size_t i = 0; i < len; i++) {
        struct apply_msg *m = msgs[i];
        end->slow += m->kind != APPLY_ENTRY;
        if (m->kind == APPLY_CALL) {
            m->run(m->cookie);
            end->calls[end->calls_len++] = m;
            continue;
        }
        if (!code && m->kind == APPLY_SYNC) {
            code = apply_sync(n, &end->err);
            end->synced = n->applied_by_thread;
        } else if (!code) {
            code = apply_entry(n->o.db, m->entry, &end->err);
            if (!code)
                n->applied_by_thread = m->entry->index;
        }
        entry_unref(m->entry);
        xfree(m);
    }
    end->upto = n->applied_by_thread;
    n->apply_failed = code != 0;
    if (!code)
        err_clear(&end->err);
    loop_post(n->loop, on_apply_end, end);
}

static void apply_thread(void *cookie)
{
    struct repl_node *n = cookie;
    struct apply_msg *msgs[BATCH_MAX];
    size_t len;

    while ((len = chan_wait(n->apply_in, (void **)msgs, BATCH_MAX, UINT64_MAX)) > 0)
        apply_run(n, msgs, len);
}

static void apply_simulated(void *cookie);

/* Simulated. */
static void apply_again(struct repl_node *n)
{
    uint32_t ms;

    if (n->apply_posted || !n->apply_waiting.len)
        return;
    n->apply_posted = true;
    ms = hangs(n) ? TICK_MS : lag(n);
    if (!ms) {
        loop_post(n->loop, apply_simulated, n);
        return;
    }
    if (!n->apply_timer)
        n->apply_timer = loop_timer_new(n->loop, apply_simulated, n);
    loop_timer_start(n->apply_timer, ms, 0);
}

static void apply_simulated(void *cookie)
{
    struct repl_node *n = cookie;
    struct apply_msg *msgs[BATCH_MAX];
    size_t len = MIN(n->apply_waiting.len, (size_t)BATCH_MAX);

    n->apply_posted = false;
    if (!len || n->stopping)
        return;
    if (hangs(n)) {
        apply_again(n);
        return;
    }
    memcpy(msgs, n->apply_waiting.ptr, len * sizeof(*msgs));
    n->apply_waiting.len -= len;
    memmove(n->apply_waiting.ptr, n->apply_waiting.ptr + len,
            n->apply_waiting.len * sizeof(*n->apply_waiting.ptr));
    apply_run(n, msgs, len);
    apply_again(n);
}

static void apply_submit(struct repl_node *n, const struct apply_msg *what)
{
    struct apply_msg *msg = XNEW(struct apply_msg);

    *msg = *what;
    if (n->apply_out++ == 0)
        n->apply_moved_ms = node_now_ms(n);
    n->apply_slow += msg->kind != APPLY_ENTRY;
    if (!n->o.simulated) {
        CHECK(chan_send(n->apply_in, msg));
        return;
    }
    vec_push(&n->apply_waiting, msg);
    apply_again(n);
}

static void apply_one(struct repl_node *n, struct repl_entry *x)
{
    n->apply_flight += entry_bytes(x->len);
    n->apply_next++;
    apply_submit(n, &(struct apply_msg){ .kind = APPLY_ENTRY, .entry = entry_ref(x) });
    if (x->kind == REPL_DIGEST)
        repl_digest_entry(n, x->index);
}

void repl_node_on_apply(struct repl_node *n, void (*run)(void *cookie), void (*done)(void *cookie),
                        void *cookie)
{
    apply_submit(
        n, &(struct apply_msg){ .kind = APPLY_CALL, .run = run, .done = done, .cookie = cookie });
}

void disk_apply(struct repl_node *n)
{
    uint64_t flight = n->apply_next - n->applied;

    while (!n->apply_reading && n->apply_next <= n->commit_to && flight < APPLY_QUEUE / 2 &&
           (n->apply_flight < cache_part(n, APPLY_BYTES) || !flight)) {
        struct repl_entry *x = cache_at(n, n->apply_next);
        if (!x) {
            n->apply_reading = true;
            read_log(n, n->apply_next, READ_BYTES, FOR_APPLY);
            return;
        }
        apply_one(n, x);
        flight = n->apply_next - n->applied;
    }
}

static void on_apply_end(void *cookie)
{
    struct apply_end *end = cookie;
    struct repl_node *n = end->n;

    n->apply_out -= end->len;
    n->apply_slow -= end->slow;
    n->apply_moved_ms = node_now_ms(n);
    for (size_t i = 0; i < end->calls_len; i++) {
        end->calls[i]->done(end->calls[i]->cookie);
        xfree(end->calls[i]);
    }
    if (!n->stopping && !n->failed) {
        if (end->err.code) {
            node_fail(n, &end->err);
        } else {
            if (n->snap_id) /* half a database is as of nothing */
                end->upto = n->applied;
            n->applied = end->upto;
            if (n->apply_next == n->applied + 1)
                n->apply_flight = 0;
            if (end->synced) {
                n->synced = end->synced;
                n->syncing = false;
            }
            replica_applied(n->r, end->upto);
            node_settle(n);
        }
    }
    xfree(end);
}

/* ---- ends of operations: loop ---- */

static void take_read(struct repl_node *n, struct log_op *op)
{
    bool fresh = op->gen == n->gen;

    if (op->purpose == FOR_PEERS) {
        n->old_reading = false;
        cache_old_clear(n);
        if (fresh) {
            n->old = op->entries;
            n->old_len = op->len;
            n->old_first = op->a;
            op->entries = NULL;
            op->len = 0;
        }
        replica_poke(n->r);
        return;
    }
    n->apply_reading = false;
    for (size_t i = 0; i < op->len; i++)
        if (op->entries[i]->index == n->apply_next && n->apply_next <= n->commit_to)
            apply_one(n, op->entries[i]);
}

static void on_log_end(void *cookie)
{
    struct log_end *end = cookie;
    struct repl_node *n = end->n;
    uint64_t seq = 0;

    n->log_out -= end->len;
    n->log_moved_ms = node_now_ms(n);
    if (!n->stopping && !n->failed && end->err.code)
        node_fail(n, &end->err);
    for (size_t i = 0; i < end->len && !n->stopping && !n->failed; i++) {
        struct log_op *op = end->ops[i];
        seq = MAX(seq, op->seq);
        if (op->kind == LOG_READ)
            take_read(n, op);
        if (op->kind == LOG_DROP) {
            n->dropping = false;
            replica_dropped(n->r, end->state.base_index);
        }
        if (op->kind == LOG_ROLL) {
            n->rolling = false;
            n->rolled = op->a;
        }
    }
    if (!n->stopping && !n->failed) {
        n->log_bytes = end->state.bytes;
        n->log_sealed = end->state.sealed;
        n->log_appended = end->state.appended;
        if (seq)
            replica_log_done(n->r, seq);
        node_settle(n);
    }
    for (size_t i = 0; i < end->len; i++)
        op_free(end->ops[i]);
    xfree(end);
}

/* ---- for repl_trim.c ---- */

void disk_sync_soon(struct repl_node *n)
{
    if (n->syncing)
        return;
    n->syncing = true;
    apply_submit(n, &(struct apply_msg){ .kind = APPLY_SYNC });
}

void disk_log_op(struct repl_node *n, enum log_kind kind, uint64_t a)
{
    log_submit(n, op_new(n, kind, 0, a, 0));
}

/* ---- life ---- */

static void on_run(void *cookie, uint64_t from, uint64_t term)
{
    replica_log_term(cookie, from, term);
}

/* Finds where log and database meet. (1) A database that is ahead of the log, or of another
 * history, has a snapshot that was installed before the log knew: the log continues behind it. (2)
 * A database with rows that never had a log (the only copy) becomes entry 1 of a log: other
 * replicas get it as a snapshot. (3) A database that is half, or older than the log (it was lost),
 * counts as none: *index is 0 then. (4) So does one whose log was lost: the entries that it lacks
 * are not known here. */
static int join(struct repl_node *n, struct rlog_state *s, uint64_t *index, uint64_t *term,
                bool *no_database, struct err *e)
{
    bool rows = false, begun = rlog_begun(n->log);
    int code = 0;

    /* A first entry, too, if a leader made it (the only copy's is of term 1): else the log would
     * begin behind it now, and vote at the next start as if it were the lost one. */
    if (!begun && (*index > 1 || *term > 1))
        *index = APPLY_HALF;
    if (*index == 0 && s->last_index == 0) {
        code = apply_any_row(n->o.db, &rows, e);
        if (!code && rows) {
            *index = *term = 1;
            code = apply_note(n->o.db, 1, 1, e);
        }
    }
    *no_database = *index == APPLY_HALF || *index < s->base_index;
    if (*no_database) {
        *index = *term = 0;
    } else if (!code && *index > 0 && rlog_term(n->log, *index) != *term) {
        code = rlog_reset(n->log, *index, *term, e);
        if (!code)
            code = rlog_sync(n->log, e);
    }
    *s = rlog_state(n->log);
    return code;
}

int disk_open(struct repl_node *n, struct err *e)
{
    struct rlog_opts o = { .fs = n->o.fs ? n->o.fs : rlog_fs_real(),
                           .dir = n->o.dir,
                           .segment_bytes = n->o.segment_bytes };
    uint64_t index, term;
    bool no_database, begun;
    struct rlog_state s;
    int code = rlog_open(&o, &n->log, e);

    if (!code)
        code = apply_read(n->o.db, &index, &term, e);
    if (code)
        return code;
    s = rlog_state(n->log);
    begun = rlog_begun(n->log);
    code = join(n, &s, &index, &term, &no_database, e);
    if (code)
        return code;
    struct replica_opts ro = {
        .self = n->self,
        .shard = n->o.shard,
        .promised = s.promised,
        .commit = s.commit,
        .base_index = s.base_index,
        .base_term = s.base_term,
        .last_index = s.last_index,
        .last_term = s.last_term,
        .applied = index,
        .no_database = no_database,
        .silent = n->o.admits && !begun,
        .mutants = n->o.mutants,
        .flight_bytes_max = cache_flight(n, FLIGHT_BYTES),
        .message_bytes_max = cache_flight(n, MESSAGE_BYTES),
    };
    n->applied = n->applied_by_thread = n->commit_to = index;
    n->synced = s.base_index;
    n->apply_next = index + 1;
    n->log_bytes = s.bytes;
    n->log_last = s.last_index;
    n->log_sealed = s.sealed;
    ro.io = (struct replica_io){ .cookie = n };
    node_io(&ro.io);
    n->r = replica_new(&ro);
    rlog_terms(n->log, on_run, n->r);
    return 0;
}

void disk_start(struct repl_node *n)
{
    if (n->o.simulated)
        return;
    n->log_in = chan_new(LOG_QUEUE, NULL, NULL);
    n->apply_in = chan_new(APPLY_QUEUE + 16, NULL, NULL);
    thread_start(&n->log_thread, "repl-log", log_thread, n);
    thread_start(&n->apply_thread, "repl-apply", apply_thread, n);
}

/* It may lie for hours before it is opened again. */
static void seal_last(struct repl_node *n)
{
    struct err e;

    if (rlog_seal(n->log, &e) || rlog_sync(n->log, &e))
        return; /* it takes nothing any more, or the disk does not: what was acked is there */
}

void disk_stop(struct repl_node *n)
{
    if (n->log_in) {
        chan_close(n->log_in);
        chan_close(n->apply_in);
        thread_join(&n->log_thread);
        thread_join(&n->apply_thread);
        chan_free(n->log_in);
        chan_free(n->apply_in);
    }
    loop_timer_free(n->lag_timer);
    loop_timer_free(n->apply_timer);
    if (n->log_flying)
        log_finish(n->log_flying);
    list_for (it, &n->log_waiting) {
        list_del(it);
        op_free(container_of(it, struct log_op, link));
    }
    vec_for (i, &n->apply_waiting) {
        struct apply_msg *m = n->apply_waiting.ptr[i];
        if (m->kind == APPLY_CALL)
            loop_post(n->loop, m->done, m->cookie);
        entry_unref(m->entry);
        xfree(m);
    }
    vec_free(&n->apply_waiting);
    cache_cut(n, 0);
    vec_free(&n->cache);
    cache_old_clear(n);
    seal_last(n);
    rlog_close(n->log);
    kv_snap_free(n->o.db, atomic_exchange(&n->past, NULL));
    repl_snapshot_release(n);
    repl_digest_release(n);
    kv_close(n->o.db);
}

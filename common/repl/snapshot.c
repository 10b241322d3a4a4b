/* SPDX-License-Identifier: Apache-2.0
 *
 * snapshot: all rows of a database as of one entry, part by part, into another one in place.
 *
 *   leader                                       follower
 *   apply thread: a kv snapshot, its entry       replica_wants_snapshot? replica_installing
 *   rows of about half a MiB ────── part 0 ────> apply thread: empties the database, notes that it
 *        ^                                       is half (apply.h), puts the rows
 *        └──────────── answer ──────────────────┘
 *   ... the last part ─────────────────────────> puts the rows, notes the entry, syncs;
 *   replica_snapshot_sent                        replica_installed: the log continues behind it
 *
 * Rows, not files: it needs nothing of the database but the promises of kv.h, works for every kind
 * of database, and received rows are checked like those of entries. Each part is read on the apply
 * thread between two entries, so a leader that sends parts slows down by a few milliseconds at a
 * time and never sends more than the follower takes.
 *
 * A transfer that breaks off leaves a follower without a database: it keeps log and vote, reports
 * that to the leader, and gets another snapshot from the start. So does a follower that crashes
 * meanwhile: the note is the first thing that is written, with the deletion, and synced.
 */
#include "common/repl/snapshot.h"

#include <stdio.h>

#include "common/base/mem.h"
#include "common/base/wr.h"
#include "common/repl/apply.h"
#include "common/repl/copy.h"
#include "common/repl/repl_node_impl.h"
#include "common/repl/snapshot_msg.h"
#include "common/store/kv/kv_impl.h"

enum { PART_MS = 10000, TRIES_MAX = 3, OUT_MAX = 8 };

/* A snapshot that is sent. The loop's; snap, it and the fields below `rows` are the apply thread's
 * between repl_node_on_apply and its end. */
struct snap_out {
    struct list link; /* the node's */
    struct repl_node *n;
    char to[NODE_NAME_MAX + 1];
    uint64_t id, call; /* call: of rpc, 0: none */
    int tries;
    bool reading;
    uint64_t due_ms; /* the next part waits until then for its share of the rate; 0: it does not */

    struct kv_snap *snap;
    struct kv_iter *it;
    int cf;
    struct snapshot_part part;
    struct buf rows;
    struct err err;
};

/* ---- sending ---- */

static void let_go(struct snap_out *s)
{
    kv_iter_free(s->it);
    kv_snap_free(s->n->o.db, s->snap);
    s->it = NULL;
    s->snap = NULL;
}

static void out_free(struct snap_out *s)
{
    CHECK(!s->snap);
    list_del(&s->link);
    buf_deinit(&s->rows);
    xfree(s);
}

static void release_run(void *cookie)
{
    let_go(cookie);
}

static void release_done(void *cookie)
{
    struct snap_out *s = cookie;

    s->reading = false;
    if (!s->n->stopping)
        out_free(s);
}

static void out_end(struct snap_out *s, uint64_t index)
{
    struct repl_node *n = s->n;

    replica_snapshot_sent(n->r, s->to, index);
    s->reading = true; /* kv's rule: iterators belong to the thread that made them */
    s->part.id = 0;
    repl_node_on_apply(n, release_run, release_done, s);
    node_settle(n);
}

static void read_first(struct snap_out *s)
{
    struct kv *db = s->n->o.db;

    s->snap = kv_snap_new(db); /* between two entries: it is as of what the note says */
    if (apply_read(db, &s->part.index, &s->part.index_term, &s->err))
        return;
    if (s->part.index == 0 || s->part.index == APPLY_HALF)
        (void)err_set(&s->err, ERR_UNAVAILABLE, "there is nothing to send yet");
}

static void read_run(void *cookie)
{
    struct snap_out *s = cookie;
    struct kv *db = s->n->o.db;
    int code = 0;

    err_clear(&s->err);
    if (!s->snap)
        read_first(s);
    buf_reset(&s->rows);
    while (!s->err.code && s->cf < KV_CFS && s->rows.len < SNAPSHOT_PART_BYTES) {
        if (!s->it)
            s->it = kv_iter_new(db, s->snap, (enum kv_cf)s->cf, STR_NULL, STR_NULL);
        for (; kv_iter_valid(s->it) && s->rows.len < SNAPSHOT_PART_BYTES; kv_iter_next(s->it)) {
            struct str key = kv_iter_key(s->it), value = kv_iter_value(s->it);
            if (apply_is_note(s->cf, key))
                continue; /* the follower's own says that it is half, up to the end */
            wr_u8(&s->rows, (uint8_t)(KV_PUT << 4 | s->cf));
            wr_varint(&s->rows, key.len);
            buf_add_str(&s->rows, key);
            wr_varint(&s->rows, value.len);
            buf_add_str(&s->rows, value);
        }
        if (kv_iter_valid(s->it))
            break;
        code = kv_iter_status(s->it, &s->err);
        kv_iter_free(s->it);
        s->it = NULL;
        if (code)
            return;
        s->cf++;
    }
    if (!s->err.code && !buf_ok(&s->rows))
        (void)err_set(&s->err, ERR_LIMIT, "a row is too large to be sent");
}

static void send_part(struct snap_out *s);

static void read_done(void *cookie)
{
    struct snap_out *s = cookie;

    s->reading = false;
    if (s->n->stopping)
        return;
    if (s->err.code || replica_state(s->n->r).role == REPLICA_FOLLOWER) {
        out_end(s, 0);
        return;
    }
    s->part.rows = buf_str(&s->rows);
    s->part.last = s->cf == KV_CFS;
    s->tries = 0;
    send_part(s);
}

static void read_next(struct snap_out *s)
{
    s->reading = true;
    repl_node_on_apply(s->n, read_run, read_done, s);
}

/* When the next part may follow the one just sent; 0: now. */
static uint64_t next_ms(const struct snap_out *s)
{
    struct repl_hub *h = s->n->o.hub;
    uint64_t now = clock_mono_ms(loop_clock(s->n->loop));

    if (!h->o.snapshot_rate)
        return 0;
    h->snap_next_ms = MAX(h->snap_next_ms, now) + s->rows.len * 1000 / h->o.snapshot_rate;
    return h->snap_next_ms > now ? h->snap_next_ms : 0;
}

static void on_answer(void *cookie, struct str reply, const struct err *err)
{
    struct snap_out *s = cookie;
    struct err e;
    bool ok = false;

    s->call = 0;
    if (s->n->stopping)
        return;
    if (err && ++s->tries < TRIES_MAX) {
        send_part(s); /* the same part again: a follower that has it says so */
        return;
    }
    if (err || snapshot_reply_read(reply, &ok, &e) || !ok) {
        out_end(s, 0);
    } else if (s->part.last) {
        out_end(s, s->part.index);
    } else {
        s->part.part++;
        s->due_ms = next_ms(s);
        if (!s->due_ms)
            read_next(s);
    }
}

void repl_snapshot_tick(struct repl_node *n)
{
    uint64_t now = clock_mono_ms(loop_clock(n->loop));

    list_for (it, &n->snaps) {
        struct snap_out *s = container_of(it, struct snap_out, link);
        if (!s->due_ms || s->due_ms > now)
            continue;
        s->due_ms = 0;
        read_next(s);
    }
}

static void send_part(struct snap_out *s)
{
    struct rpc_peer *peer = repl_hub_peer(s->n->o.hub, s->to);
    struct buf payload;

    if (!peer) {
        out_end(s, 0);
        return;
    }
    s->part.term = replica_state(s->n->r).term;
    buf_init(&payload, SNAPSHOT_PART_BYTES_MAX + KIB);
    snapshot_part_write(&s->part, &payload);
    s->call = rpc_send(peer, RPC_REPL_SNAPSHOT, &payload, PART_MS, on_answer, s);
}

/* Not inside the replica's output, which may not be called back. */
static void on_start(void *cookie)
{
    struct snap_out *s = cookie;

    s->reading = false;
    if (!s->n->stopping)
        read_next(s);
}

void repl_snapshot_start(struct repl_node *n, const char *to)
{
    if (!repl_copy_offer(n, to))
        repl_snapshot_rows(n, to);
}

void repl_snapshot_rows(struct repl_node *n, const char *to)
{
    struct snap_out *s;
    size_t running = 0;

    list_for (it, &n->snaps) {
        s = container_of(it, struct snap_out, link);
        if (!strcmp(s->to, to) && s->part.id)
            return;
        running++;
    }
    if (running >= OUT_MAX)
        return; /* a peer that waits for one asks again */
    s = XNEW(struct snap_out);
    s->n = n;
    s->part.shard = n->o.shard;
    s->part.id = s->id = hash_u64(clock_mono_ns(loop_clock(n->loop)) + ++n->snap_ids) | 1;
    (void)snprintf(s->to, sizeof(s->to), "%s", to);
    buf_init(&s->rows, SNAPSHOT_PART_BYTES_MAX);
    list_add_tail(&n->snaps, &s->link);
    s->reading = true;
    loop_post(n->loop, on_start, s);
}

/* ---- receiving ---- */

struct snap_in { /* one part */
    struct repl_node *n;
    struct rpc_call *call;
    struct buf rows;
    struct snapshot_part part;
    struct err err;
};

static void answer(struct rpc_call *call, bool ok, const struct err *why)
{
    struct buf out;

    if (why && why->code) {
        rpc_fail(call, why);
        return;
    }
    buf_init(&out, KIB);
    snapshot_reply_write(ok, &out);
    rpc_reply(call, &out);
}

static void put_run(void *cookie)
{
    struct snap_in *in = cookie;
    struct kv *db = in->n->o.db;
    struct kv_batch b = { .ops = in->rows, .count = 1 };
    int code = 0;

    err_clear(&in->err);
    if (in->part.part == 0)
        code = apply_empty(db, &in->err);
    if (!code && in->rows.len)
        code = kv_write(db, &b, false, &in->err);
    if (!code && in->part.last)
        code = apply_note(db, in->part.index, in->part.index_term, &in->err);
    if (!code)
        err_clear(&in->err);
    if (!code && in->part.last)
        in->n->applied_by_thread = in->part.index;
}

static void put_done(void *cookie)
{
    struct snap_in *in = cookie;
    struct repl_node *n = in->n;
    bool mine = !n->stopping && n->snap_id == in->part.id;

    if (n->stopping)
        (void)err_set(&in->err, ERR_UNAVAILABLE, "this replica is being closed");
    else if (in->err.code)
        node_fail(n, &in->err);
    else if (mine && in->part.last) {
        n->applied = n->synced = n->commit_to = in->part.index;
        n->apply_next = in->part.index + 1;
        n->snap_id = 0;
        replica_installed(n->r, in->part.index, in->part.index_term);
        n->snap_done = in->part.id;
    }
    answer(in->call, mine, &in->err);
    if (!n->stopping)
        node_settle(n);
    buf_deinit(&in->rows);
    xfree(in);
}

/* True: goes to the database. */
static bool take_part(struct repl_node *n, const struct snapshot_part *p, bool *ret_ok)
{
    bool wanted =
        hub_accepts(n->o.hub, n, p->term, 0) && replica_wants_snapshot(n->r, p->term, p->index);

    *ret_ok = false;
    if (p->id == n->snap_done) {
        *ret_ok = true; /* the answer to the last part was lost */
        return false;
    }
    if (!wanted)
        return false;
    /* Not for a snapshot that came earlier: the database that it empties may be filled by now. */
    if (p->part == 0 && p->id != n->snap_id) {
        n->snap_id = p->id;
        n->snap_next = n->snap_bytes = 0;
        n->commit_to = n->apply_next - 1; /* what was handed over comes before */
        replica_installing(n->r);
        repl_copy_drop(n);
    }
    if (p->id != n->snap_id || p->part > n->snap_next)
        return false;
    *ret_ok = true;
    if (p->part < n->snap_next)
        return false; /* once more */
    n->snap_next++;
    n->snap_bytes += p->rows.len;
    return true;
}

void repl_snapshot_serve(void *cookie, struct rpc_call *call, struct str payload)
{
    struct snapshot_part p;
    struct repl_node *n;
    struct snap_in *in;
    struct err e = { 0 };
    bool ok;

    if (snapshot_part_read(payload, &p, &e)) {
        rpc_fail(call, &e);
        return;
    }
    n = repl_hub_node(cookie, p.shard);
    if (!n || n->failed) {
        (void)err_set(&e, ERR_UNAVAILABLE, "no replica of shard %" PRIu32 " is here", p.shard);
        rpc_fail(call, &e);
        return;
    }
    if (!take_part(n, &p, &ok)) {
        answer(call, ok, NULL);
        node_settle(n);
        return;
    }
    in = XNEW(struct snap_in);
    in->n = n;
    in->call = call;
    in->part = p;
    buf_init(&in->rows, SNAPSHOT_PART_BYTES_MAX);
    CHECK(buf_add_str(&in->rows, p.rows));
    repl_node_on_apply(n, put_run, put_done, in);
    node_settle(n);
}

/* ---- closing ---- */

void repl_snapshot_release(struct repl_node *n)
{
    list_for (it, &n->snaps)
        let_go(container_of(it, struct snap_out, link));
}

void repl_snapshot_free(struct repl_node *n)
{
    list_for (it, &n->snaps) {
        struct snap_out *s = container_of(it, struct snap_out, link);
        if (s->call)
            rpc_cancel(n->o.hub->o.rpc, s->call);
        out_free(s);
    }
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * digest: sums of databases, compared by the leader.
 *
 * The entry makes "as of when" the same for all: the kv snapshot is taken on the apply thread right
 * behind it. Then a slice of rows is read at every tick, as large as digest_rate leaves for it, so
 * that a large database takes hours rather than the disk. One at a time in a shard, and mostly in a
 * process; an entry that comes meanwhile is passed over.
 *
 * Verdicts are kept by peer until all have answered, or the tries have ended. The leader deletes
 * nothing by its own verdict: a majority of members, itself included, must agree against the
 * replica that differs. Where the leader differs from the majority, that is counted and reported,
 * and left to the operator.
 */
#include "common/repl/digest.h"

#include <stdio.h>
#include <unistd.h>

#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/base/wr.h"
#include "common/repl/apply.h"
#include "common/repl/copy.h"
#include "common/repl/repl_node_impl.h"

enum {
    SLICE_BYTES = 1 << 20,
    FIRST_BYTES = 64 * 1024,
    ASK_TICKS = 80,
    ASKS_MAX = 40000,
    ASK_MS = 5000,
    VERDICTS = 24
};

enum verdict { NO_ANSWER, SAME, DIFFERS };
struct digest_ask_call {
    struct list link;
    struct repl_node *n;
    uint64_t id, index;
    char name[NODE_NAME_MAX + 1];
};
struct digest_job {
    /* The apply thread's while busy. */
    struct kv_snap *snap;
    struct kv_iter *it;
    int cf;
    size_t slice;
    struct digest_sums now;
    struct err err;
    /* The loop's. */
    bool running, busy;
    struct digest_sums done;
    uint64_t asking; /* index that peers are asked about; 0: none */
    uint32_t ticks, asks;
    struct {
        char name[NODE_NAME_MAX + 1];
        enum verdict verdict;
    } peers[VERDICTS];
    size_t peers_len;
    struct list calls;
};

static struct digest_job *job_of(struct repl_node *n)
{
    if (!n->digest) {
        n->digest = XNEW(struct digest_job);
        list_init(&n->digest->calls);
    }
    return n->digest;
}

/* ---- summing up: apply thread ---- */

static void let_go(struct repl_node *n, struct digest_job *j)
{
    kv_iter_free(j->it);
    kv_snap_free(n->o.db, j->snap);
    j->it = NULL;
    j->snap = NULL;
}

static void slice_run(void *cookie)
{
    struct repl_node *n = cookie;
    struct digest_job *j = n->digest;
    size_t bytes = 0;

    if (!j->snap)
        j->snap = kv_snap_new(n->o.db);
    while (j->cf < KV_CFS && bytes < j->slice) {
        if (!j->it)
            j->it = kv_iter_new(n->o.db, j->snap, (enum kv_cf)j->cf, STR_NULL, STR_NULL);
        for (; kv_iter_valid(j->it) && bytes < j->slice; kv_iter_next(j->it)) {
            struct str key = kv_iter_key(j->it), value = kv_iter_value(j->it);
            if (apply_is_note(j->cf, key))
                continue;
            uint64_t sum = hash64(key.ptr, key.len, j->now.sums[j->cf] + key.len);
            j->now.sums[j->cf] = hash64(value.len ? value.ptr : "", value.len, sum);
            j->now.rows++;
            bytes += key.len + value.len;
        }
        if (kv_iter_valid(j->it))
            return;
        if (kv_iter_status(j->it, &j->err)) {
            let_go(n, j);
            return;
        }
        kv_iter_free(j->it);
        j->it = NULL;
        j->cf++;
    }
    if (j->cf == KV_CFS)
        let_go(n, j);
}

static void slice_done(void *cookie)
{
    struct repl_node *n = cookie;
    struct digest_job *j = n->digest;

    j->busy = false;
    if (n->stopping || j->snap)
        return;
    j->running = false;
    if (j->err.code)
        return; /* a database that cannot be read fails by itself */
    j->done = j->now;
    metric_add(n->o.hub->m_digests, 1);
    if (replica_state(n->r).role == REPLICA_LEADING) {
        j->asking = j->done.index;
        j->asks = j->ticks = 0;
        j->peers_len = 0;
    }
}

static void slice(struct repl_node *n, struct digest_job *j, size_t bytes)
{
    j->busy = true;
    j->slice = bytes;
    repl_node_on_apply(n, slice_run, slice_done, n);
}

bool repl_digest_runs(const struct repl_node *n)
{
    return n->digest && n->digest->running;
}

void repl_digest_entry(struct repl_node *n, uint64_t index)
{
    struct digest_job *j = job_of(n);

    if (j->running)
        return;
    j->running = true;
    j->cf = 0;
    err_clear(&j->err);
    j->now = (struct digest_sums){ .index = index };
    slice(n, j, FIRST_BYTES);
}

/* ---- comparing: loop of the leader ---- */

static void send_ask(struct repl_node *n, const char *name, bool repair);

static void judge(struct repl_node *n, struct digest_job *j, bool last)
{
    struct replica_peer p;
    size_t members = 1, agree = 1, answered = 0, all = 0;

    for (size_t i = 0; repl_node_peer(n, i, &p); i++) {
        enum verdict v = NO_ANSWER;
        for (size_t k = 0; k < j->peers_len; k++)
            if (!strcmp(j->peers[k].name, p.name))
                v = j->peers[k].verdict;
        members += p.member;
        agree += p.member && v == SAME;
        answered += v != NO_ANSWER;
        all++;
    }
    if (answered < all && !last)
        return;
    j->asking = 0;
    for (size_t k = 0; k < j->peers_len; k++) {
        if (j->peers[k].verdict != DIFFERS)
            continue;
        metric_add(n->o.hub->m_differences, 1);
        if (agree > members / 2)
            send_ask(n, j->peers[k].name, true);
        if (n->o.differs)
            n->o.differs(n->o.cookie, j->peers[k].name, agree > members / 2);
    }
}

static void on_sums(void *cookie, struct str reply, const struct err *err)
{
    struct digest_ask_call *c = cookie;
    struct digest_job *j = c->n->digest;
    struct digest_sums s;
    struct err e;
    bool same = true, known = false;

    list_del(&c->link);
    for (size_t k = 0; k < j->peers_len; k++)
        known |= !strcmp(j->peers[k].name, c->name);
    if (err || digest_sums_read(reply, &s, &e) || s.index != c->index || j->asking != c->index ||
        j->peers_len == VERDICTS || known) {
        xfree(c);
        return;
    }
    for (int cf = 0; cf < KV_CFS; cf++)
        same &= s.sums[cf] == j->done.sums[cf];
    same &= s.rows == j->done.rows;
    memcpy(j->peers[j->peers_len].name, c->name, sizeof(c->name));
    j->peers[j->peers_len++].verdict = same ? SAME : DIFFERS;
    judge(c->n, j, false);
    xfree(c);
}

static void send_ask(struct repl_node *n, const char *name, bool repair)
{
    struct digest_job *j = n->digest;
    struct rpc_peer *peer = repl_hub_peer(n->o.hub, name);
    struct digest_ask a = { n->o.shard, replica_state(n->r).term, j->done.index, repair };
    struct digest_ask_call *c;
    struct buf payload;

    if (!peer)
        return;
    c = XNEW(struct digest_ask_call);
    c->n = n;
    c->index = j->done.index;
    (void)snprintf(c->name, sizeof(c->name), "%s", name);
    list_add_tail(&j->calls, &c->link);
    buf_init(&payload, KIB);
    digest_ask_write(&a, &payload);
    c->id = rpc_send(peer, RPC_REPL_DIGEST, &payload, ASK_MS, on_sums, c);
}

static void ask_all(struct repl_node *n, struct digest_job *j)
{
    struct replica_peer p;

    for (size_t i = 0; repl_node_peer(n, i, &p); i++) {
        bool known = false;
        for (size_t k = 0; k < j->peers_len; k++)
            known |= !strcmp(j->peers[k].name, p.name);
        if (!known)
            send_ask(n, p.name, false);
    }
}

void repl_digest_tick(struct repl_node *n)
{
    struct digest_job *j = job_of(n);
    bool leads = replica_state(n->r).role == REPLICA_LEADING;
    uint64_t every = n->o.digest_every_ms / TICK_MS, phase;
    size_t room = MIN(n->o.hub->digest_room, (size_t)SLICE_BYTES);

    if (j->running && !j->busy && room) {
        n->o.hub->digest_room -= room;
        slice(n, j, room);
    }
    if (!leads)
        j->asking = 0;
    if (j->asking && j->ticks++ % ASK_TICKS == 0) {
        if (++j->asks > ASKS_MAX)
            judge(n, j, true);
        else
            ask_all(n, j);
    }
    phase = every ? (n->ticks + hash_u64(n->o.shard + 1)) % every : 0; /* not all shards at once */
    if (leads && every && (phase == every - 1 || n->digest_soon) && !j->running && !j->asking) {
        struct repl_entry *x = entry_new(REPL_DIGEST, STR_NULL);
        struct err e;
        n->digest_soon = replica_propose(n->r, x, &e) != 0;
        entry_unref(x);
    }
}

void repl_digest_soon(struct repl_node *n)
{
    n->digest_soon = true;
}

/* ---- answering ---- */

/* A majority may be wrong in the same way, and this be the only database that is right. Links to
 * its files cost no time, and space only as tables would be deleted. */
static void keep_files(struct repl_node *n)
{
    struct err e;

    if (!n->keep_dir || !kv_has_files(n->o.db) || access(n->keep_dir, F_OK) == 0)
        return;
    if (kv_checkpoint(n->o.db, n->keep_dir, &e))
        err_clear(&e); /* no room: the repair is worth more */
}

static void empty_run(void *cookie)
{
    struct repl_node *n = cookie;
    struct err e;

    keep_files(n);
    n->digest->err.code = apply_empty(n->o.db, &e);
    if (n->digest->err.code)
        n->digest->err = e;
}

static void empty_done(void *cookie)
{
    struct repl_node *n = cookie;

    if (!n->stopping && n->digest->err.code)
        node_fail(n, &n->digest->err);
}

void repl_digest_serve(void *cookie, struct rpc_call *call, struct str payload)
{
    struct digest_ask a;
    struct repl_node *n = NULL;
    struct digest_job *j;
    struct buf out;
    struct err e = { 0 };

    if (digest_ask_read(payload, &a, &e) == 0) {
        n = repl_hub_node(cookie, a.shard);
        if (!n || n->failed || a.term != replica_state(n->r).term)
            (void)err_set(&e, ERR_UNAVAILABLE, "no replica of shard %" PRIu32 " follows here",
                          a.shard);
    }
    if (e.code) {
        rpc_fail(call, &e);
        return;
    }
    j = job_of(n);
    if (a.repair && a.index == j->done.index && !j->running && !n->snap_id &&
        replica_state(n->r).role == REPLICA_FOLLOWER) {
        n->commit_to = n->apply_next - 1; /* what was handed over comes before */
        replica_installing(n->r);
        repl_copy_drop(n);
        j->done.index = 0;
        repl_node_on_apply(n, empty_run, empty_done, n);
    }
    buf_init(&out, KIB);
    digest_sums_write(&j->done, &out);
    rpc_reply(call, &out);
}

/* ---- closing ---- */

void repl_digest_release(struct repl_node *n)
{
    if (n->digest)
        let_go(n, n->digest);
}

void repl_digest_free(struct repl_node *n)
{
    if (!n->digest)
        return;
    list_for (it, &n->digest->calls) {
        struct digest_ask_call *c = container_of(it, struct digest_ask_call, link);
        rpc_cancel(n->o.hub->o.rpc, c->id);
        list_del(it);
        xfree(c);
    }
    xfree(n->digest);
}

/* ---- on the wire ---- */

static void put_num(struct buf *out, unsigned f, uint64_t v)
{
    wr_varint(out, (uint64_t)f << 3);
    wr_varint(out, v);
}

void digest_ask_write(const struct digest_ask *a, struct buf *out)
{
    put_num(out, 1, a->shard);
    put_num(out, 2, a->term);
    put_num(out, 3, a->index);
    put_num(out, 4, a->repair);
}

int digest_ask_read(struct str bytes, struct digest_ask *ret, struct err *e)
{
    struct rd r = rd_of(bytes);
    struct pb_field f;
    int got;

    *ret = (struct digest_ask){ 0 };
    while ((got = rd_pb(&r, &f)) > 0) {
        if (f.number == 1)
            ret->shard = (uint32_t)f.u64;
        else if (f.number == 2)
            ret->term = f.u64;
        else if (f.number == 3)
            ret->index = f.u64;
        else if (f.number == 4)
            ret->repair = f.u64 != 0;
    }
    return got < 0 ? err_set(e, ERR_INPUT, "a question for a digest is no protobuf") : 0;
}

void digest_sums_write(const struct digest_sums *s, struct buf *out)
{
    put_num(out, 1, s->index);
    put_num(out, 2, s->rows);
    for (int cf = 0; cf < KV_CFS; cf++)
        put_num(out, 3 + (unsigned)cf, s->sums[cf]);
}

int digest_sums_read(struct str bytes, struct digest_sums *ret, struct err *e)
{
    struct rd r = rd_of(bytes);
    struct pb_field f;
    int got;

    *ret = (struct digest_sums){ 0 };
    while ((got = rd_pb(&r, &f)) > 0) {
        if (f.number == 1)
            ret->index = f.u64;
        else if (f.number == 2)
            ret->rows = f.u64;
        else if (f.number >= 3 && f.number < 3 + KV_CFS)
            ret->sums[f.number - 3] = f.u64;
    }
    return got < 0 ? err_set(e, ERR_INPUT, "a digest is no protobuf") : 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * file_copy_send: the leader's offers, the copies made for them, and their bytes for a replica that
 * asks.
 *
 *   leader                              replica
 *   1. may I? ────── offer, id 0 ─────> has room, no other copy comes in
 *   2. flush (files' thread), links (apply thread, between two entries)
 *   3. ready ─────── offer, id ───────> asks for the list, for pieces, whether all sums are right
 *   4. how is it? ── offer, again ────> on its way ... in place
 *
 * The receiver decides what is sent: this end remembers nothing but the folder and the sums of the
 * bytes it sent, so it may lose its lead or be restarted, and still serves the copy. A copy is
 * deleted ten minutes after the last question about it.
 *
 * Offers end in rows (snapshot.h) where the other end knows no file copies, or cannot use them.
 */
#include <dirent.h>
#include <stdio.h>

#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/repl/apply.h"
#include "common/repl/copy_impl.h"
#include "common/repl/digest.h"
#include "common/repl/snapshot.h"
#include "common/sys/fs.h"

enum {
    OFFER_MS = 5000,
    AGAIN_MS = 1000,
    WAIT_MS = 3000,
    SILENT_MS = 30000,
    UNUSED_MS = 30000, /* for a copy that cannot be offered any more, since the last question */
    FAILED_MAX = 3,
    RATE_MS = 20000, /* a request waits no longer than this for a share of the rate */
    ADD_PIECES = 64  /* read again at once, to sum up bytes that were sent before a restart */
};

struct copy_out {
    struct list link;
    struct repl_copy *c;
    char dir[COPY_PATH_BYTES];
    uint64_t id, index, term;
    uint64_t used_ms; /* last */
    size_t serves;    /* questions about it, those that wait, too */
    bool gone;        /* not to be found any more; its files are deleted when no job uses them */
    bool going;       /* they are being deleted */
    /* The files' thread's. */
    bool listed;
    struct copy_list list;
    size_t *first;    /* of a file, in pieces */
    uint64_t *pieces; /* sums; 0: not read yet */
    size_t added;     /* before it, all are there */
};
struct serve {
    struct list link;
    struct repl_copy *c;
    struct copy_out *out;
    struct rpc_call *call;
    struct copy_ask ask;
    uint64_t due_ms;
    struct buf reply;
    struct err err;
};
struct offer {
    struct list link;
    struct repl_copy *c;
    char to[NODE_NAME_MAX + 1];
    uint64_t call, due_ms, heard_ms;
    uint64_t id, index; /* of what was offered last */
    bool making;        /* waits for a copy that is being made */
    int failed;
};
struct making {
    struct repl_copy *c;
    struct copy_out *out;
    struct err err;
};

/* ---- copies ---- */

static void out_free(struct copy_out *o)
{
    list_del(&o->link);
    o->c->n->o.hub->outs--;
    copy_list_free(&o->list);
    xfree(o->first);
    xfree(o->pieces);
    xfree(o);
}

static struct copy_out *out_new(struct repl_copy *c, uint64_t id, uint64_t index, uint64_t term)
{
    struct copy_out *o = XNEW(struct copy_out);

    o->c = c;
    o->id = id;
    o->index = index;
    o->term = term;
    o->used_ms = copy_now(c->n);
    list_add_tail(&c->outs, &o->link);
    c->n->o.hub->outs++;
    return o;
}

static bool out_path(struct copy_out *o)
{
    char name[64];
    struct err e;

    copy_out_name(o->id, o->index, o->term, name);
    return copy_path(o->dir, o->c->base, name, &e) == 0;
}

static void remove_run(void *cookie)
{
    const struct copy_out *o = cookie;
    struct err e;

    (void)(copy_remove(o->c->n->o.copy_faults, o->dir, &e) == 0); /* else at the next start */
}

static void remove_done(void *cookie)
{
    out_free(cookie);
}

/* Not while a question waits for its share of the rate, nor while the links are made: both have it
 * in hand, and come here when they end. */
static void out_settle(struct copy_out *o)
{
    const struct repl_copy *c = o->c;

    if (!o->gone || o->going || o->serves || (c->making && c->making->out == o))
        return;
    o->going = true;
    repl_job(c->n, remove_run, remove_done, o);
}

static void out_drop(struct copy_out *o)
{
    o->gone = true;
    out_settle(o);
}

void repl_copy_drop(struct repl_node *n)
{
    if (!n->copy)
        return;
    list_for (it, &n->copy->outs)
        out_drop(container_of(it, struct copy_out, link));
}

static struct copy_out *out_find(const struct repl_copy *c, uint64_t id)
{
    list_for (it, &c->outs) {
        struct copy_out *o = container_of(it, struct copy_out, link);
        if (o->id == id && !o->gone)
            return o;
    }
    return NULL;
}

/* The newest copy that the log still continues from. */
static struct copy_out *out_usable(const struct repl_copy *c)
{
    uint64_t base = replica_state(c->n->r).base_index;
    struct copy_out *got = NULL;

    list_for (it, &c->outs) {
        struct copy_out *o = container_of(it, struct copy_out, link);
        /* While a copy is being made, its index still belongs to the apply thread. */
        if (!o->gone && !(c->making && c->making->out == o) && o->index >= base)
            got = o;
    }
    return got;
}

/* Loads copies that existed before the restart. Incomplete ones are deleted; all are deleted if
 * their database is gone. */
void copy_give_open(struct repl_copy *c)
{
    bool good = !replica_state(c->n->r).no_database;
    DIR *d = opendir(c->base);
    char dir[COPY_PATH_BYTES];
    uint64_t id, index, term;
    struct err e;

    if (!d)
        return;
    for (struct dirent *one; (one = readdir(d));) {
        if (good && copy_out_parse(one->d_name, &id, &index, &term)) {
            struct copy_out *o = out_new(c, id, index, term);
            (void)out_path(o);
        } else if (str_starts(str_c(one->d_name), STR("out-"))) {
            (void)(copy_path(dir, c->base, one->d_name, &e) ||
                   copy_remove(c->n->o.copy_faults, dir, &e));
        }
    }
    (void)closedir(d);
}

/* ---- making one ---- */

static void end_making(struct repl_copy *c, bool ok)
{
    uint64_t now = copy_now(c->n);

    list_for (it, &c->offers) {
        struct offer *of = container_of(it, struct offer, link);
        if (!of->making)
            continue;
        of->making = false;
        of->due_ms = ok ? now : now + WAIT_MS;
        of->failed += !ok;
    }
}

static void made(void *cookie)
{
    struct making *m = cookie;
    struct repl_copy *c = m->c;
    bool ok = !m->err.code && !m->out->gone;

    c->making = NULL;
    if (!c->n->stopping) { /* else what is half of it goes at the next start */
        if (!ok)
            out_drop(m->out);
        end_making(c, ok);
    }
    xfree(m);
}

static void link_run(void *cookie)
{
    struct making *m = cookie;
    struct copy_out *o = m->out;
    struct repl_node *n = m->c->n;

    if (apply_read(n->o.db, &o->index, &o->term, &m->err))
        return;
    if (o->index == 0 || o->index == APPLY_HALF || !out_path(o))
        (void)err_set(&m->err, ERR_UNAVAILABLE, "there is nothing to be copied yet");
    else if (copy_fault(n->o.copy_faults, "link", o->dir, &m->err) == 0 &&
             kv_checkpoint(n->o.db, o->dir, &m->err) == 0)
        err_clear(&m->err);
}

static void flush_run(void *cookie)
{
    struct making *m = cookie;
    struct err e;

    if (fs_real()->mkdir_all(fs_real(), m->c->base, &m->err) == 0)
        (void)(kv_flush(m->c->n->o.db, &e) == 0); /* else its log comes along */
}

static void flush_done(void *cookie)
{
    struct making *m = cookie;

    if (m->c->n->stopping && !m->err.code)
        (void)err_set(&m->err, ERR_UNAVAILABLE, "this replica is being closed");
    if (m->err.code)
        made(m);
    else
        repl_node_on_apply(m->c->n, link_run, made, m);
}

static void make(struct repl_copy *c)
{
    struct repl_node *n = c->n;
    struct making *m;
    uint64_t id;

    if (c->making)
        return;
    m = XNEW(struct making);
    id = hash_u64(clock_mono_ns(loop_clock(n->loop)) + clock_wall_ms(loop_clock(n->loop)) +
                  ++c->ids) |
         1;
    m->c = c;
    m->out = out_new(c, id, 0, 0);
    c->making = m;
    repl_job(n, flush_run, flush_done, m);
}

/* ---- offers ---- */

static void offer_end(struct offer *of, uint64_t index, bool rows)
{
    struct repl_node *n = of->c->n;
    char to[NODE_NAME_MAX + 1];

    memcpy(to, of->to, sizeof(to));
    list_del(&of->link);
    xfree(of);
    if (rows) {
        repl_snapshot_rows(n, to);
    } else {
        if (index)
            repl_digest_soon(n); /* is it the same? */
        replica_snapshot_sent(n->r, to, index);
    }
}

static void wait_for_copy(struct offer *of)
{
    const struct repl_copy *c = of->c;

    of->due_ms = copy_now(c->n) + WAIT_MS;
    if (!of->id && out_usable(c)) { /* made for another replica meanwhile */
        of->due_ms = copy_now(c->n);
        return;
    }
    if (of->failed >= FAILED_MAX) {
        offer_end(of, 0, true);
        return;
    }
    if (!c->making &&
        (c->n->o.hub->outs >= COPY_OUT_MAX || copy_room(c->n) < (uint64_t)COPY_ROOM_MIN))
        return;
    of->making = true;
    make(of->c);
}

static void on_offer_answer(void *cookie, struct str reply, const struct err *err)
{
    struct offer *of = cookie;
    struct repl_node *n = of->c->n;
    uint64_t now = copy_now(n);
    struct copy_reply r = { .sum = 0 };
    struct err e;

    of->call = 0;
    if (n->stopping)
        return;
    if (err && err->code == ERR_UNIMPLEMENTED) {
        offer_end(of, 0, true);
    } else if (err || copy_reply_read(reply, &r, &e)) {
        of->due_ms = now + AGAIN_MS;
        if (now >= of->heard_ms + SILENT_MS)
            offer_end(of, 0, false);
    } else {
        of->heard_ms = now;
        of->due_ms = now + (r.state == COPY_WAIT ? WAIT_MS : AGAIN_MS);
        if (r.state == COPY_HAVE)
            offer_end(of, of->index, false);
        else if (r.state == COPY_NO)
            offer_end(of, 0, false);
        else if (r.state == COPY_READY)
            wait_for_copy(of);
        else if (r.state != COPY_WAIT && r.state != COPY_PULLING)
            offer_end(of, 0, true);
    }
    node_settle(n);
}

static uint64_t bytes_of(const struct repl_node *n)
{
    struct kv_disk d;
    struct err e;
    uint64_t sum = 0;

    if (kv_disk(n->o.db, &d, &e))
        return 0;
    for (int i = 0; i < KV_CFS; i++)
        sum += d.live_bytes[i];
    return sum + d.log_bytes;
}

static void offer_send(struct offer *of)
{
    struct repl_node *n = of->c->n;
    struct rpc_peer *peer = repl_hub_peer(n->o.hub, of->to);
    const struct copy_out *o = out_usable(of->c);
    struct replica_state st = replica_state(n->r);
    struct copy_ask a = { .kind = COPY_OFFER,
                          .shard = n->o.shard,
                          .id = o ? o->id : 0,
                          .term = st.term,
                          .index = o ? o->index : st.applied,
                          .index_term = o ? o->term : 0,
                          .base = st.base_index,
                          .bytes = bytes_of(n),
                          .format = COPY_FORMAT };
    struct buf payload;

    of->due_ms = copy_now(n) + AGAIN_MS;
    if (!peer || !a.index) {
        if (copy_now(n) >= of->heard_ms + SILENT_MS)
            offer_end(of, 0, false);
        return;
    }
    (void)snprintf(a.from, sizeof(a.from), "%s", n->self);
    of->id = a.id;
    of->index = a.index;
    buf_init(&payload, KIB);
    copy_ask_write(&a, &payload);
    of->call = rpc_send(peer, RPC_REPL_COPY, &payload, OFFER_MS, on_offer_answer, of);
}

bool repl_copy_offer(struct repl_node *n, const char *to)
{
    struct repl_copy *c = n->copy;
    struct offer *of;

    if (!copy_can(n))
        return false;
    list_for (it, &c->offers)
        if (!strcmp(container_of(it, struct offer, link)->to, to))
            return true;
    of = XNEW(struct offer);
    of->c = c;
    of->due_ms = of->heard_ms = copy_now(n);
    (void)snprintf(of->to, sizeof(of->to), "%s", to);
    list_add_tail(&c->offers, &of->link); /* sent at the next tick */
    return true;
}

bool repl_copy_giving(const struct repl_node *n)
{
    return n->copy && !list_empty(&n->copy->offers) && copy_room(n) > 0;
}

/* ---- giving: files' thread ---- */

static int list_files(struct copy_out *o, struct err *e)
{
    size_t at = 0;
    int rc;

    if (o->listed)
        return 0;
    rc = copy_scan(o->dir, &o->list, e);
    if (rc)
        return rc;
    o->list.index = o->index;
    o->list.index_term = o->term;
    o->first = XNEW_ARRAY(size_t, o->list.len + 1);
    for (size_t i = 0; i < o->list.len; i++) {
        o->first[i] = at;
        at += copy_pieces(o->list.files[i].size);
    }
    o->first[o->list.len] = at;
    o->pieces = XNEW_ARRAY(uint64_t, at + 1);
    memset(o->pieces, 0, (at + 1) * sizeof(*o->pieces));
    o->listed = true;
    return 0;
}

static int read_piece(struct copy_out *o, size_t file, uint64_t offset, struct buf *body,
                      uint64_t *ret_sum, struct err *e)
{
    const struct copy_file *f = &o->list.files[file];
    int rc = copy_read(o->dir, f, offset, (size_t)MIN(f->size - offset, (uint64_t)COPY_PIECE_BYTES),
                       body, e);

    if (rc)
        return rc;
    *ret_sum = copy_piece_sum(buf_str(body), f->name, offset);
    o->pieces[o->first[file] + offset / COPY_PIECE_BYTES] = *ret_sum;
    return 0;
}

static int piece(struct serve *s, struct copy_reply *r, struct buf *body)
{
    struct copy_out *o = s->out;
    const struct copy_ask *a = &s->ask;

    if (a->file >= o->list.len || a->offset >= o->list.files[a->file].size)
        return err_set(&s->err, ERR_INPUT, "file %" PRIu64 " of the copy has no byte %" PRIu64,
                       a->file, a->offset);
    return read_piece(o, (size_t)a->file, a->offset, body, &r->sum, &s->err);
}

/* Sums of what was sent before a restart are read again, some at a time. */
static int add_up(struct serve *s, struct copy_reply *r, struct buf *body)
{
    struct copy_out *o = s->out;
    size_t budget = ADD_PIECES;
    uint64_t sum, *sums;
    int rc = 0;

    for (; o->added < o->list.len && budget; o->added++)
        for (uint64_t at = 0; at < o->list.files[o->added].size; at += COPY_PIECE_BYTES) {
            if (o->pieces[o->first[o->added] + at / COPY_PIECE_BYTES])
                continue;
            buf_reset(body);
            rc = read_piece(o, o->added, at, body, &sum, &s->err);
            if (rc)
                return rc;
            if (--budget == 0)
                break;
        }
    buf_reset(body);
    r->state = COPY_WORKING;
    if (!budget) { /* the last file may not be through */
        o->added -= o->added > 0;
        return 0;
    }
    sums = XNEW_ARRAY(uint64_t, o->list.len + 1);
    for (size_t i = 0; i < o->list.len; i++)
        sums[i] = copy_file_sum(o->pieces + o->first[i], o->list.files[i].size);
    r->state = copy_total(sums, o->list.len) == s->ask.total ? COPY_SAME : COPY_DIFFERS;
    xfree(sums);
    return 0;
}

static void serve_run(void *cookie)
{
    struct serve *s = cookie;
    struct copy_reply r = { .sum = 0 };
    struct buf body;
    int rc;

    err_clear(&s->err);
    buf_init(&body, 16 * MIB);
    rc = list_files(s->out, &s->err);
    if (!rc && s->ask.kind == COPY_LIST)
        copy_list_write(&s->out->list, &body);
    else if (!rc && s->ask.kind == COPY_PIECE)
        rc = piece(s, &r, &body);
    else if (!rc)
        rc = add_up(s, &r, &body);
    if (!rc && !buf_ok(&body))
        rc = err_set(&s->err, ERR_LIMIT, "the list of the copy's files is too long");
    if (!rc) {
        err_clear(&s->err);
        r.bytes = buf_str(&body);
        copy_reply_write(&r, &s->reply);
    }
    buf_deinit(&body);
}

/* ---- giving: loop ---- */

static void serve_end(struct serve *s)
{
    struct repl_hub *h = s->c->n->o.hub;

    h->serving--;
    if (s->err.code)
        rpc_fail(s->call, &s->err);
    else
        rpc_reply(s->call, &s->reply);
    buf_deinit(&s->reply);
    xfree(s);
}

static void serve_done(void *cookie)
{
    struct serve *s = cookie;

    s->out->serves--;
    s->out->used_ms = copy_now(s->c->n);
    if ((s->err.code == ERR_CORRUPT || s->err.code == ERR_IO) && !s->c->n->stopping)
        out_drop(s->out); /* another one may be better */
    else
        out_settle(s->out);
    if (!s->err.code)
        metric_add(s->c->n->o.hub->m_copy_sent, s->reply.len);
    serve_end(s);
}

static int not_here(const struct repl_copy *c, uint64_t id, struct err *e)
{
    return err_set(e, ERR_NOT_FOUND, "copy %016" PRIx64 " of shard %" PRIu32 " is not here", id,
                   c->n->o.shard);
}

static void serve_start(struct serve *s)
{
    struct copy_out *o = s->out;

    if (!o->gone) {
        repl_job(s->c->n, serve_run, serve_done, s);
        return;
    }
    (void)not_here(s->c, o->id, &s->err); /* it went while this one waited */
    serve_end(s);
    o->serves--;
    out_settle(o);
}

/* When a piece may be sent; 0: now. */
static uint64_t due_of(struct repl_hub *h, uint64_t now, const struct copy_ask *a)
{
    if (!h->o.snapshot_rate || a->kind != COPY_PIECE)
        return 0;
    uint64_t due = MAX(h->snap_next_ms, now);
    h->snap_next_ms = due + a->len * 1000 / h->o.snapshot_rate;
    return due > now ? due : 0;
}

void file_copy_send(struct repl_copy *c, struct rpc_call *call, const struct copy_ask *a)
{
    struct repl_hub *h = c->n->o.hub;
    struct copy_out *o = out_find(c, a->id);
    uint64_t now = copy_now(c->n);
    struct serve *s;
    struct err e = { 0 };

    if (!o || (c->making && c->making->out == o))
        (void)not_here(c, a->id, &e);
    else if (h->serving >= COPY_SERVE_MAX || h->snap_next_ms > now + RATE_MS)
        (void)err_set(&e, ERR_BUSY, "copies are sent to others; ask again soon");
    if (e.code) {
        rpc_fail(call, &e);
        return;
    }
    s = XNEW(struct serve);
    s->c = c;
    s->out = o;
    s->call = call;
    s->ask = *a;
    s->due_ms = due_of(h, now, a);
    buf_init(&s->reply, 20 * MIB);
    o->used_ms = now;
    o->serves++;
    h->serving++;
    if (s->due_ms)
        list_add_tail(&c->waiting, &s->link);
    else
        serve_start(s);
}

/* ---- life ---- */

static void expire(struct repl_copy *c, uint64_t now)
{
    bool full = copy_room(c->n) == 0;
    const struct copy_out *use = out_usable(c);

    list_for (it, &c->outs) {
        struct copy_out *o = container_of(it, struct copy_out, link);
        uint64_t keep = full || o != use ? UNUSED_MS : COPY_KEEP_MS;
        if (!o->serves && now >= o->used_ms + keep && !(c->making && c->making->out == o))
            out_drop(o);
    }
}

void copy_give_tick(struct repl_copy *c)
{
    uint64_t now = copy_now(c->n);
    bool follows = replica_state(c->n->r).role == REPLICA_FOLLOWER;

    list_for (it, &c->waiting) {
        struct serve *s = container_of(it, struct serve, link);
        if (s->due_ms > now)
            continue;
        list_del(it);
        serve_start(s);
    }
    list_for (it, &c->offers) {
        struct offer *of = container_of(it, struct offer, link);
        if (of->call)
            continue;
        if (follows)
            offer_end(of, 0, false);
        else if (!of->making && now >= of->due_ms)
            offer_send(of);
    }
    if (c->n->ticks % 40 == 0)
        expire(c, now);
}

void copy_give_stop(struct repl_copy *c)
{
    list_for (it, &c->waiting) {
        struct serve *s = container_of(it, struct serve, link);
        list_del(it);
        (void)err_set(&s->err, ERR_UNAVAILABLE, "this replica is being closed");
        s->out->serves--;
        out_settle(s->out);
        serve_end(s);
    }
    list_for (it, &c->offers) {
        struct offer *of = container_of(it, struct offer, link);
        if (of->call)
            rpc_cancel(c->n->o.hub->o.rpc, of->call);
        list_del(it);
        xfree(of);
    }
}

void copy_give_free(struct repl_copy *c)
{
    CHECK(!c->making && list_empty(&c->offers) && list_empty(&c->waiting));
    list_for (it, &c->outs)
        out_free(container_of(it, struct copy_out, link));
}

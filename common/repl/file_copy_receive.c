/* SPDX-License-Identifier: Apache-2.0
 *
 * file_copy_receive: receives the files of another replica's database, piece by piece, and has
 * them take the place of the local one.
 *
 *   offer ──file_copy_receive──> LISTING ──begin_done──> PULLING ──ask_end──> CHECKING
 * ──complete_done──>
 *   DONE: opts.copied: close, copy_install, open
 *
 * This end decides what it asks for: some pieces at a time, in order; a lost piece is asked for
 * again. The local database stays unchanged up to the end, and the log grows on. So an interruption
 * costs only time: after a lost connection the next piece follows, after a restart of this process
 * the next file. A change of leaders does not matter: an applied entry is committed, so the copy is
 * good as long as its source serves it and the log of the present leader reaches back to it
 * (offer.base).
 *
 * Where the disk has no room for both databases, the local one is emptied first, as rows would have
 * it; where that is not enough, the offer is answered "wait", and `why` names the reason.
 */
#include <stdio.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/repl/apply.h"
#include "common/repl/copy_impl.h"
#include "common/repl/copy_in.h"
#include "common/store/kv/kv_impl.h"

enum { RETRY_MS = 1000, BAD_MAX = 5, ADDING_MS = 20 };

enum pull_state { LISTING, PULLING, CHECKING, DONE };
struct piece {
    struct list link; /* of pull.again while it is to be asked for again */
    struct pull *p;
    size_t file;
    uint64_t offset, call;
    struct buf bytes;
    uint64_t sum;
    struct err err;
};
struct pull {
    struct repl_copy *c;
    enum pull_state state;
    char source[NODE_NAME_MAX + 1];
    uint64_t id, index, index_term;
    struct copy_in *in; /* the files' thread's while it has a job; NULL: not listed yet */
    struct copy_list list;
    struct piece pieces[COPY_WINDOW];
    struct list again, idle; /* of pieces */
    size_t flying, writing;  /* pieces asked for; being written */
    size_t file;             /* next to be asked for */
    uint64_t offset;
    uint64_t call; /* LISTING, CHECKING */
    bool job;      /* LISTING, CHECKING */
    uint64_t retry_ms, began_ms, moved_ms;
    uint64_t ask_ms; /* so long an answer may take */
    int bad;
    bool anyway, ended, remove; /* ended: goes when nothing is under way; remove: so do its files */
    uint64_t bytes, total;
    struct err err;
};

static void fill(struct pull *p);
static void ask_end(struct pull *p);

/* ---- ending ---- */

static void cleared(void *cookie)
{
    struct repl_copy *c = cookie;

    c->clearing = false;
    c->leftover = false;
}

static void clear_run(void *cookie)
{
    const struct repl_copy *c = cookie;
    char dir[COPY_PATH_BYTES];
    struct err e;

    (void)(copy_path(dir, c->base, "in", &e) || copy_remove(c->n->o.copy_faults, dir, &e));
}

static void clear(struct repl_copy *c)
{
    if (c->clearing)
        return;
    c->clearing = true;
    repl_job(c->n, clear_run, cleared, c);
}

static void pull_free(struct pull *p)
{
    struct repl_copy *c = p->c;

    c->pull = NULL;
    c->n->o.hub->pulls--;
    c->leftover = true;
    c->leftover_ms = copy_now(c->n);
    if (p->remove && !c->n->stopping)
        clear(c);
    for (size_t i = 0; i < COPY_WINDOW; i++)
        buf_deinit(&p->pieces[i].bytes);
    copy_list_free(&p->list);
    copy_in_free(p->in);
    xfree(p);
}

/* True: p is gone. */
static bool pull_end(struct pull *p, bool remove)
{
    struct rpc_node *rpc = p->c->n->o.hub->o.rpc;

    p->ended = true;
    p->remove |= remove;
    for (size_t i = 0; i < COPY_WINDOW; i++)
        if (p->pieces[i].call) {
            rpc_cancel(rpc, p->pieces[i].call);
            p->pieces[i].call = 0;
            p->flying--;
        }
    if (p->call)
        rpc_cancel(rpc, p->call);
    p->call = 0;
    if (p->writing || p->job)
        return false; /* its end comes here again */
    pull_free(p);
    return true;
}

/* Decides after a failure: another try, another source, or another start. */
static void pull_fail(struct pull *p, const struct err *why)
{
    struct repl_copy *c = p->c;

    (void)snprintf(c->why, sizeof(c->why), "the copy from %s: %s", p->source, why->text);
    if (why->code == ERR_CORRUPT)
        c->bad_id = p->id;
    (void)pull_end(p, why->code == ERR_CORRUPT || why->code == ERR_NO_SPACE);
}

/* ---- pieces ---- */

static void later(struct piece *x)
{
    list_add_tail(&x->p->again, &x->link);
    x->p->retry_ms = copy_now(x->p->c->n) + RETRY_MS;
}

static void write_run(void *cookie)
{
    struct piece *x = cookie;
    const struct copy_faults *f = x->p->c->n->o.copy_faults;

    err_clear(&x->err);
    if (f && f->came)
        f->came(f->cookie, &x->bytes);
    if (copy_in_write(x->p->in, x->file, x->offset, buf_str(&x->bytes), x->sum, &x->err) == 0)
        err_clear(&x->err);
}

static void write_done(void *cookie)
{
    struct piece *x = cookie;
    struct pull *p = x->p;
    struct repl_hub *h = p->c->n->o.hub;

    p->writing--;
    if (p->ended || p->c->n->stopping) {
        (void)pull_end(p, false);
        return;
    }
    if (x->err.code == ERR_CORRUPT && ++p->bad < BAD_MAX) {
        later(x);
        return;
    }
    if (x->err.code) {
        pull_fail(p, &x->err);
        return;
    }
    metric_add(h->m_copy_taken, x->bytes.len);
    p->moved_ms = copy_now(p->c->n);
    p->bytes += x->bytes.len;
    p->bad = 0;
    p->c->why[0] = '\0';
    buf_reset(&x->bytes);
    list_add_tail(&p->idle, &x->link);
    fill(p);
}

static void on_piece(void *cookie, struct str reply, const struct err *err)
{
    struct piece *x = cookie;
    struct pull *p = x->p;
    struct copy_reply r;
    struct err e;

    x->call = 0;
    p->flying--;
    if (err && (err->code == ERR_NOT_FOUND || err->code == ERR_CORRUPT || err->code == ERR_INPUT ||
                err->code == ERR_UNIMPLEMENTED)) {
        pull_fail(p, err);
        return;
    }
    /* Lost, or on a line that needs longer: the first costs little, the second comes in the end. */
    if (err && err->code == ERR_TIMEOUT)
        p->ask_ms = MIN(p->ask_ms * 2, (uint64_t)COPY_ASK_MOST_MS);
    if (err || copy_reply_read(reply, &r, &e)) {
        later(x);
        return;
    }
    buf_reset(&x->bytes);
    x->sum = r.sum;
    if (!buf_add_str(&x->bytes, r.bytes)) {
        later(x);
        return;
    }
    p->writing++;
    repl_job(p->c->n, write_run, write_done, x);
}

static void ask_piece(struct piece *x)
{
    struct pull *p = x->p;
    struct repl_node *n = p->c->n;
    struct rpc_peer *peer = repl_hub_peer(n->o.hub, p->source);
    uint64_t left = p->list.files[x->file].size - x->offset;
    struct copy_ask a = { .kind = COPY_PIECE,
                          .shard = n->o.shard,
                          .id = p->id,
                          .file = x->file,
                          .offset = x->offset,
                          .len = MIN(left, (uint64_t)COPY_PIECE_BYTES) };
    struct buf payload;

    if (!peer) {
        later(x);
        return;
    }
    buf_init(&payload, KIB);
    copy_ask_write(&a, &payload);
    p->flying++;
    x->call = rpc_send(peer, RPC_REPL_COPY, &payload, p->ask_ms, on_piece, x);
}

/* The next piece that is missing. */
static bool next_piece(struct pull *p, struct piece *x)
{
    for (; p->file < p->list.len; p->file++, p->offset = 0) {
        /* Not p->in: it may be at work. Files of an earlier pull are marked in the list. */
        if (p->list.files[p->file].tail == 0 || p->offset >= p->list.files[p->file].size)
            continue;
        x->file = p->file;
        x->offset = p->offset;
        p->offset += COPY_PIECE_BYTES;
        return true;
    }
    return false;
}

static void fill(struct pull *p)
{
    list_for (it, &p->idle) {
        struct piece *x = container_of(it, struct piece, link);
        if (!next_piece(p, x))
            break;
        list_del(it);
        ask_piece(x);
    }
    if (p->file == p->list.len && !p->flying && !p->writing && list_empty(&p->again))
        ask_end(p);
}

/* ---- the end ---- */

static void complete_run(void *cookie)
{
    struct pull *p = cookie;

    err_clear(&p->err);
    if (copy_in_complete(p->in, p->anyway, &p->err) == 0)
        err_clear(&p->err);
}

static void complete_done(void *cookie)
{
    struct pull *p = cookie;
    struct repl_node *n = p->c->n;

    p->job = false;
    if (p->ended || n->stopping) {
        (void)pull_end(p, false);
    } else if (p->err.code) {
        pull_fail(p, &p->err);
    } else {
        p->state = DONE;
        metric_add(n->o.hub->m_copies, 1);
        n->o.copied(n->o.cookie);
    }
}

static void on_end(void *cookie, struct str reply, const struct err *err)
{
    struct pull *p = cookie;
    struct repl_node *n = p->c->n;
    struct replica_state st = replica_state(n->r);
    struct copy_reply r = { .sum = 0 };
    struct err e;

    p->call = 0;
    if (err && err->code == ERR_NOT_FOUND) {
        pull_fail(p, err);
    } else if (err || copy_reply_read(reply, &r, &e) || r.state == COPY_WORKING) {
        p->retry_ms = copy_now(n) + (err ? RETRY_MS : ADDING_MS);
        p->moved_ms = err ? p->moved_ms : copy_now(n);
    } else if (r.state != COPY_SAME) {
        (void)err_set(&e, ERR_CORRUPT, "what came in is not what was sent");
        pull_fail(p, &e);
    } else if (!replica_wants_snapshot(n->r, st.term, p->index)) {
        (void)pull_end(p, true); /* it went on without */
    } else {
        p->anyway = st.no_database;
        p->job = true;
        repl_job(n, complete_run, complete_done, p);
    }
}

static void ask(struct pull *p, enum copy_kind kind, uint64_t total, rpc_done_fn done)
{
    struct repl_node *n = p->c->n;
    struct rpc_peer *peer = repl_hub_peer(n->o.hub, p->source);
    struct copy_ask a = { .kind = kind, .shard = n->o.shard, .id = p->id, .total = total };
    struct buf payload;

    p->retry_ms = copy_now(n) + RETRY_MS;
    if (!peer)
        return;
    buf_init(&payload, KIB);
    copy_ask_write(&a, &payload);
    p->call = rpc_send(peer, RPC_REPL_COPY, &payload, p->ask_ms, done, p);
}

static void ask_end(struct pull *p)
{
    struct err e;

    p->state = CHECKING;
    if (p->in->files_left) { /* cannot be: each piece was written */
        (void)err_set(&e, ERR_CORRUPT, "%zu files are not whole", p->in->files_left);
        pull_fail(p, &e);
        return;
    }
    ask(p, COPY_END, copy_in_total(p->in), on_end);
}

/* ---- the beginning ---- */

static void begin_run(void *cookie)
{
    struct pull *p = cookie;
    const struct repl_node *n = p->c->n;
    struct copy_offer offer = { .source = p->source, .id = p->id, .list = p->list };
    struct copy_list *list = &offer.list;
    int rc;

    err_clear(&p->err);
    list->files = XNEW_ARRAY(struct copy_file, list->len);
    memcpy(list->files, p->list.files, list->len * sizeof(*list->files));
    rc = copy_in_begin(p->c->base, n->o.copy_faults, &offer, &p->in, &p->err);
    if (!rc)
        err_clear(&p->err);
}

static void begin_done(void *cookie)
{
    struct pull *p = cookie;

    p->job = false;
    if (p->ended || p->c->n->stopping) {
        (void)pull_end(p, false);
        return;
    }
    if (p->err.code) {
        pull_fail(p, &p->err);
        return;
    }
    for (size_t i = 0; i < p->list.len; i++)
        p->list.files[i].tail = p->in->sums[i] ? 0 : 1; /* from now on: is it to come? */
    p->bytes = p->in->kept;
    p->state = PULLING;
    p->moved_ms = copy_now(p->c->n);
    fill(p);
}

static void on_list(void *cookie, struct str reply, const struct err *err)
{
    struct pull *p = cookie;
    struct copy_reply r;
    struct err e;

    p->call = 0;
    if (err && err->code != ERR_BUSY && err->code != ERR_UNAVAILABLE && err->code != ERR_TIMEOUT) {
        pull_fail(p, err);
        return;
    }
    if (err || copy_reply_read(reply, &r, &e)) {
        p->retry_ms = copy_now(p->c->n) + RETRY_MS;
        return;
    }
    if (copy_list_read(r.bytes, &p->list, &e)) {
        pull_fail(p, &e);
        return;
    }
    if (p->list.index != p->index) {
        (void)err_set(&e, ERR_INPUT, "it is as of entry %" PRIu64 ", not %" PRIu64, p->list.index,
                      p->index);
        pull_fail(p, &e);
        return;
    }
    p->total = p->list.bytes;
    p->job = true;
    repl_job(p->c->n, begin_run, begin_done, p);
}

static void start(struct repl_copy *c, const char *source, uint64_t id, uint64_t index)
{
    struct pull *p = XNEW(struct pull);

    p->c = c;
    p->ask_ms = COPY_ASK_MS;
    p->id = id;
    p->index = index;
    p->began_ms = p->moved_ms = copy_now(c->n);
    (void)snprintf(p->source, sizeof(p->source), "%s", source);
    list_init(&p->again);
    list_init(&p->idle);
    for (size_t i = 0; i < COPY_WINDOW; i++) {
        p->pieces[i].p = p;
        buf_init(&p->pieces[i].bytes, COPY_PIECE_BYTES);
        list_add_tail(&p->idle, &p->pieces[i].link);
    }
    c->pull = p;
    c->leftover = false;
    c->tried = true; /* a rest of this pull is no reason to ask its source first again */
    c->n->o.hub->pulls++;
    ask(p, COPY_LIST, 0, on_list);
}

/* ---- offers ---- */

static void empty_run(void *cookie)
{
    struct repl_copy *c = cookie;
    struct kv *db = c->n->o.db;
    char last[256]; /* above every key there is */
    struct err e;

    memset(last, 0xff, sizeof(last));
    if (apply_empty(db, &e))
        return; /* the next write fails, too, and tells */
    for (int cf = 0; cf < KV_CFS && db->ops->drop_files; cf++)
        (void)(cf == KV_META ||
               db->ops->drop_files(db, (enum kv_cf)cf, STR(""), str_n(last, sizeof(last)), &e));
}

static void empty_done(void *cookie)
{
    struct repl_copy *c = cookie;

    c->emptying = false;
}

/* Bytes of what was begun that may be of use. */
static uint64_t here(const struct repl_copy *c)
{
    struct copy_in *in;
    uint64_t bytes = 0;
    struct err e;

    if (!c->leftover || copy_in_load(c->base, c->n->o.copy_faults, &in, &e))
        return 0;
    for (size_t i = 0; i < in->list.len; i++)
        bytes += in->sums[i] ? in->list.files[i].size : 0;
    copy_in_free(in);
    return bytes;
}

/* True if there is room for so many bytes; empties the local database if that makes room. */
static bool make_room(struct repl_copy *c, uint64_t bytes)
{
    struct repl_node *n = c->n;
    uint64_t room = copy_room(n), need = bytes + (uint64_t)COPY_ROOM_MIN;
    struct kv_disk d = { 0 };
    struct err e;

    if (room >= need || room >= need - MIN(need, here(c))) /* here: reads a file */
        return true;
    (void)(kv_disk(n->o.db, &d, &e) == 0);
    if (c->leftover) {
        clear(c); /* counts for something only if it stays */
    } else if (room + d.tables_bytes >= need && !c->emptying && !replica_state(n->r).no_database) {
        c->emptying = true;
        n->commit_to = n->apply_next - 1; /* what was handed over comes before */
        replica_installing(n->r);
        repl_node_on_apply(n, empty_run, empty_done, c);
    }
    (void)snprintf(c->why, sizeof(c->why),
                   "a copy of %" PRIu64 " MiB is to come in, and the volume has room for %" PRIu64
                   " MiB: free some",
                   bytes / MIB, room / MIB);
    return false;
}

/* Continues a pull that an earlier process of this node began, from any source that has it. */
static bool go_on(struct repl_copy *c, const struct copy_ask *a)
{
    struct copy_in *in;
    struct err e;
    bool good;

    if (copy_in_load(c->base, c->n->o.copy_faults, &in, &e))
        return false;
    good = in->list.index >= a->base && in->id != a->id && in->source[0] &&
           hub_accepts(c->n->o.hub, c->n, a->term, 0) &&
           replica_wants_snapshot(c->n->r, a->term, in->list.index);
    if (good)
        start(c, in->source, in->id, in->list.index);
    copy_in_free(in);
    return good;
}

/* How long a source may send nothing before the copy of another one is taken instead: as long as
 * it has sent until then, since what would be thrown away is worth that much, within bounds. */
static uint64_t patience(const struct pull *p)
{
    return MIN(MAX(p->moved_ms - p->began_ms, (uint64_t)COPY_STALL_LEAST_MS),
               (uint64_t)COPY_STALL_MS);
}

/* A pull is under way: true if it continues. */
static bool goes_on(struct repl_copy *c, const struct copy_ask *a)
{
    struct pull *p = c->pull;
    bool stalled = copy_now(c->n) >= p->moved_ms + patience(p);

    if (p->ended || p->state == DONE)
        return true;
    if (p->index >= a->base && (!stalled || !strcmp(p->source, a->from)))
        return true;
    return !pull_end(p, false);
}

/* True if the sender's log reaches back to the local database, so entries suffice. */
static bool goes_without(const struct repl_node *n, const struct copy_ask *a)
{
    struct replica_state st = replica_state(n->r);

    return !st.no_database && !st.silent && st.applied > 0 && st.commit >= a->base;
}

enum copy_state file_copy_receive(struct repl_copy *c, const struct copy_ask *a)
{
    struct repl_node *n = c->n;
    bool first = c->leftover && !c->tried;

    if (a->format != COPY_FORMAT)
        return COPY_ROWS;
    if (goes_without(n, a)) {
        if (c->pull && c->pull->state != DONE)
            (void)pull_end(c->pull, true);
        c->why[0] = '\0';
        return COPY_HAVE;
    }
    if (!hub_accepts(n->o.hub, n, a->term, 0) || !replica_wants_snapshot(n->r, a->term, a->index))
        return COPY_NO;
    if (c->pull && goes_on(c, a))
        return COPY_PULLING;
    if (c->clearing || c->emptying || n->o.hub->pulls >= COPY_IN_MAX)
        return COPY_WAIT;
    if (first) {
        c->tried = true;
        if (go_on(c, a))
            return COPY_PULLING;
    }
    if (!make_room(c, a->bytes))
        return COPY_WAIT;
    if (!a->id || a->id == c->bad_id)
        return COPY_READY;
    start(c, a->from, a->id, a->index);
    return COPY_PULLING;
}

/* ---- life ---- */

void copy_take_open(struct repl_copy *c)
{
    char dir[COPY_PATH_BYTES];
    struct err e;

    c->leftover = copy_path(dir, c->base, "in", &e) == 0 && access(dir, F_OK) == 0;
    c->leftover_ms = copy_now(c->n);
}

static void pull_tick(struct pull *p, uint64_t now)
{
    if (p->ended || p->state == DONE)
        return;
    if (now >= p->moved_ms + COPY_KEEP_MS) {
        (void)pull_end(p, false);
        return;
    }
    if (now < p->retry_ms)
        return;
    if (p->state == LISTING && !p->call && !p->job)
        ask(p, COPY_LIST, 0, on_list);
    else if (p->state == CHECKING && !p->call && !p->job)
        ask_end(p);
    else if (p->state == PULLING)
        list_for (it, &p->again) {
            struct piece *x = container_of(it, struct piece, link);
            list_del(it);
            ask_piece(x);
            if (!list_empty(&p->again) && p->again.prev == &x->link)
                break; /* its source is not known now */
        }
}

void copy_take_tick(struct repl_copy *c)
{
    uint64_t now = copy_now(c->n);

    if (c->pull)
        pull_tick(c->pull, now);
    else if (c->leftover && !c->clearing && now >= c->leftover_ms + COPY_KEEP_MS)
        clear(c);
}

void copy_take_stop(struct repl_copy *c)
{
    if (c->pull)
        (void)pull_end(c->pull, false);
}

void copy_take_free(struct repl_copy *c)
{
    CHECK(!c->pull);
}

struct repl_copy_state repl_node_copy(const struct repl_node *n)
{
    struct repl_copy_state st = { 0 };

    if (n->snap_id) { /* the leader sends them */
        st.from = replica_state(n->r).leader;
        st.rows = true;
        st.bytes = n->snap_bytes;
    }
    if (!n->copy)
        return st;
    st.why = n->copy->why[0] ? n->copy->why : NULL;
    if (n->copy->pull) {
        st.rows = false;
        st.from = n->copy->pull->source;
        st.bytes = n->copy->pull->bytes;
        st.total = n->copy->pull->total;
    }
    return st;
}

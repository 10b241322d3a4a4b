/* SPDX-License-Identifier: Apache-2.0
 *
 * replica: the log of a replica, and how it follows; leading is in replica_lead.c. README.md, "The
 * protocol", describes both.
 *
 *   FOLLOWER ──record names us (replica_named)──> PREPARING
 *      ^                                            │   ^
 *      │    quorum of promises (replica_quorum),    │   │ the next record names us, too
 *      │    log complete (open_term), first entry   │   │ (replica_named, same epoch)
 *      │    committed and applied (replica_advance) v   │
 *      │                                          LEADING
 *      │                                            │
 *      └── a higher term, or another node's record (replica_step_down; also from PREPARING)
 *
 * In LEADING a record that names another node does not end the lead at once: leads_on().
 *
 * Invariants. (1) durable <= last; commit <= last; applied <= commit; base <= applied, all of them
 * but last and durable only rise. (2) Nothing at or below commit is ever replaced. (3) An answer
 * that says "fsynced" or "promised" leaves only when the operation on the log it stands for is done
 * (struct pending). (4) Entries are applied only up to min(commit, durable): the database never
 * knows more than the log.
 */
#include "common/repl/protocol/replica.h"

#include <stdio.h>

#include "common/base/mem.h"
#include "common/repl/protocol/replica_impl.h"

/* ---- the log ---- */

uint64_t replica_log_term_at(const struct replica *r, uint64_t index)
{
    size_t lo = 0, hi = r->runs.len;

    if (index < r->base || index > r->last)
        return 0;
    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;
        if (r->runs.ptr[mid].from <= index)
            lo = mid;
        else
            hi = mid;
    }
    return r->runs.ptr[lo].term;
}

uint64_t replica_last_term(const struct replica *r)
{
    return r->runs.ptr[r->runs.len - 1].term;
}

void replica_log_term(struct replica *r, uint64_t from, uint64_t term)
{
    if (from <= r->base) {
        r->runs.len = 0;
        from = r->base;
    }
    if (r->runs.len == 0 || replica_last_term(r) != term)
        vec_push(&r->runs, ((struct term_run){ from, term }));
}

static void cut_log(struct replica *r, uint64_t from)
{
    CHECK(from > r->base);
    while (r->runs.len > 1 && r->runs.ptr[r->runs.len - 1].from >= from)
        r->runs.len--;
    r->last = MIN(r->last, from - 1);
    r->durable = MIN(r->durable, from - 1);
    vec_for (i, &r->pending)
        r->pending.ptr[i].durable = MIN(r->pending.ptr[i].durable, from - 1);
}

uint64_t replica_log_op(struct replica *r, struct pending *p)
{
    p->seq = ++r->seq;
    p->durable = r->last;
    vec_push(&r->pending, *p);
    return p->seq;
}

static void set_reply(struct pending *p, const struct repl_msg *reply, const char *to)
{
    p->reply = true;
    p->msg = *reply;
    memcpy(p->to, to, sizeof(p->to));
}

void replica_submit_append(struct replica *r, struct repl_entry *const *entries, size_t n,
                           bool own_promise, const struct repl_msg *reply, const char *to)
{
    struct pending p = { .own_promise = own_promise, .msg.term = r->promised };

    if (n) {
        if (entries[0]->index <= r->last)
            cut_log(r, entries[0]->index);
        for (size_t i = 0; i < n; i++) {
            CHECK(entries[i]->index == r->last + 1);
            if (replica_last_term(r) != entries[i]->term)
                vec_push(&r->runs, ((struct term_run){ entries[i]->index, entries[i]->term }));
            r->last++;
        }
    }
    if (reply)
        set_reply(&p, reply, to);
    (void)replica_log_op(r, &p);
    if (n)
        r->o.io.log_append(r->o.io.cookie, entries, n, r->seq);
    else
        r->o.io.log_hard(r->o.io.cookie, r->promised, r->commit, r->seq);
}

void replica_deliver_commit(struct replica *r)
{
    uint64_t upto = MIN(r->commit, r->durable);

    if (upto <= r->told || r->no_database)
        return;
    r->told = upto;
    r->o.io.commit(r->o.io.cookie, upto);
}

void replica_log_done(struct replica *r, uint64_t seq)
{
    size_t n = 0;

    for (; n < r->pending.len && r->pending.ptr[n].seq <= seq; n++) {
        struct pending *p = &r->pending.ptr[n];
        r->durable = MAX(r->durable, p->durable);
        if (p->own_promise && p->msg.term == r->promised)
            r->self_promised = r->role == REPLICA_PREPARING;
        if (p->reply)
            r->o.io.send(r->o.io.cookie, p->to, &p->msg);
    }
    if (!n)
        return;
    r->pending.len -= n;
    memmove(r->pending.ptr, r->pending.ptr + n, r->pending.len * sizeof(*r->pending.ptr));
    replica_deliver_commit(r);
    if (r->role == REPLICA_PREPARING && !r->opened)
        replica_quorum(r);
    replica_advance(r);
}

/* ---- following ---- */

struct repl_msg replica_msg(const struct replica *r, enum repl_msg_kind kind)
{
    struct repl_msg m = {
        .kind = kind, .shard = r->o.shard, .term = r->promised, .base = r->base, .commit = r->commit
    };

    memcpy(m.from, r->self, sizeof(m.from));
    return m;
}

void replica_promise(struct replica *r, uint64_t term)
{
    CHECK(term > r->promised);
    r->promised = term;
    if (r->role != REPLICA_FOLLOWER)
        replica_step_down(r);
    else
        r->o.io.role(r->o.io.cookie);
}

static void refuse(struct replica *r, const struct repl_msg *m, enum repl_msg_kind kind,
                   uint64_t hint)
{
    struct repl_msg reply = replica_msg(r, kind);

    reply.ref = m->ref;
    reply.seq = m->seq;
    reply.round = m->round;
    reply.prev_index = hint;
    reply.last_index = MIN(r->durable, hint);
    reply.wants_snapshot = r->no_database;
    reply.no_room = r->no_room;
    reply.reclaimed = r->reclaimed;
    r->o.io.send(r->o.io.cookie, m->from, &reply);
}

static void on_prepare(struct replica *r, const struct repl_msg *m)
{
    struct repl_msg reply;
    bool again = m->term == r->promised && r->role == REPLICA_FOLLOWER;

    if (m->term < r->promised || (m->term == r->promised && !again)) {
        refuse(r, m, REPL_PREPARED, 0);
        return;
    }
    if (!again)
        replica_promise(r, m->term);
    reply = replica_msg(r, REPL_PREPARED);
    reply.ok = true;
    reply.ref = m->ref;
    reply.last_index = r->last;
    reply.last_term = replica_last_term(r);
    reply.commit = MAX(r->commit, r->known_commit);
    if (replica_mutant(r, MUTANT_PROMISE_NOT_STORED))
        r->o.io.send(r->o.io.cookie, m->from, &reply);
    else
        replica_submit_append(r, NULL, 0, false, &reply, m->from);
}

/* The next index to try when the log differs at `prev`: before the run of the term at `prev`. */
static uint64_t hint_before(const struct replica *r, uint64_t prev)
{
    uint64_t from = 0;

    if (prev > r->last)
        return r->last;
    vec_for (i, &r->runs)
        if (r->runs.ptr[i].from <= prev)
            from = r->runs.ptr[i].from;
    return MAX(from ? from - 1 : 0, r->commit);
}

bool replica_accept_entries(struct replica *r, const struct repl_msg *m, uint64_t *hint)
{
    struct repl_entry *const *x = m->entries;
    size_t n = m->entries_len;
    uint64_t prev = m->prev_index, prev_term = m->prev_term;

    while (n && prev < r->base) { /* what was dropped here is committed: the same */
        prev = (*x)->index;
        prev_term = (*x)->term;
        x++;
        n--;
    }
    *hint = r->base;
    if (prev < r->base)
        return n == 0; /* old news */
    if (!replica_mutant(r, MUTANT_NO_PREV_CHECK) || prev > r->last) {
        if (prev > r->last || replica_log_term_at(r, prev) != prev_term) {
            *hint = hint_before(r, prev);
            return false;
        }
    }
    while (n && (*x)->index <= r->last && replica_log_term_at(r, (*x)->index) == (*x)->term) {
        x++;
        n--;
    }
    if (!n && replica_mutant(r, MUTANT_TRUNCATE_ALWAYS) && m->entries_len) {
        n = 1; /* what a careless follower does: the message ends here, so does the log */
        x--;
    }
    *hint = r->commit;
    if (n && (*x)->index <= r->commit && !r->o.mutants)
        return false; /* a leader of another history: never */
    if (n)
        replica_submit_append(r, x, n, false, NULL, NULL);
    return true;
}

static void take_commit(struct replica *r, uint64_t commit)
{
    if (commit <= r->commit)
        return;
    r->commit = commit;
    replica_deliver_commit(r);
}

static void on_append(struct replica *r, const struct repl_msg *m)
{
    uint64_t end = m->prev_index + m->entries_len, hint, before = r->seq;
    struct repl_msg reply;
    bool news = m->term > r->promised;

    if (m->term < r->promised || (!news && r->role != REPLICA_FOLLOWER)) {
        refuse(r, m, REPL_APPENDED, 0);
        return;
    }
    if (news)
        replica_promise(r, m->term);
    memcpy(r->follows, m->from, sizeof(r->follows));
    r->follows_term = m->term;
    r->follows_ticks = 0;
    r->leader_commit = MAX(m->commit, UINT64_C(1));
    r->known_commit = MAX(r->known_commit, m->commit);
    r->all_have = m->all_have;
    if (!replica_accept_entries(r, m, &hint)) {
        if (news)
            replica_submit_append(r, NULL, 0, false, NULL, NULL);
        refuse(r, m, REPL_APPENDED, hint);
        return;
    }
    take_commit(r, MIN(m->commit, MIN(MAX(end, r->base), r->last)));
    reply = replica_msg(r, REPL_APPENDED);
    reply.ok = true;
    reply.ref = m->ref;
    reply.seq = m->seq;
    reply.round = m->round;
    reply.last_index = MIN(end, r->last);
    reply.wants_snapshot = r->no_database;
    reply.no_room = r->no_room;
    reply.reclaimed = r->reclaimed;
    if (replica_mutant(r, MUTANT_ACK_BEFORE_SYNC)) {
        r->o.io.send(r->o.io.cookie, m->from, &reply);
        if (news)
            replica_submit_append(r, NULL, 0, false, NULL, NULL);
    } else if (news) {
        replica_submit_append(r, NULL, 0, false, &reply, m->from);
    } else if (r->seq != before) { /* the answer waits for the entries just taken */
        set_reply(&r->pending.ptr[r->pending.len - 1], &reply, m->from);
    } else {
        reply.last_index = MIN(reply.last_index, r->durable);
        r->o.io.send(r->o.io.cookie, m->from, &reply);
    }
}

static void on_fetch(struct replica *r, const struct repl_msg *m)
{
    struct repl_entry *list[ENTRIES_MAX];
    struct repl_msg reply = replica_msg(r, REPL_FETCHED);

    reply.ref = m->ref;
    reply.prev_index = m->prev_index;
    reply.prev_term = m->prev_term;
    if (m->term != r->promised || r->role != REPLICA_FOLLOWER) {
        r->o.io.send(r->o.io.cookie, m->from, &reply); /* not ok; its term tells */
        return;
    }
    if (m->prev_index > r->last || replica_log_term_at(r, m->prev_index) != m->prev_term) {
        reply.prev_index = m->prev_index < r->base ? r->base : hint_before(r, m->prev_index);
        r->o.io.send(r->o.io.cookie, m->from, &reply);
        return;
    }
    reply.ok = true;
    if (m->prev_index < r->last)
        reply.entries_len = r->o.io.entries(r->o.io.cookie, m->prev_index + 1,
                                            r->o.message_bytes_max, list, ENTRIES_MAX);
    if (m->prev_index < r->last && !reply.entries_len)
        return; /* not at hand: it asks again */
    reply.entries = list;
    reply.last_index = r->last;
    r->o.io.send(r->o.io.cookie, m->from, &reply);
    for (size_t i = 0; i < reply.entries_len; i++)
        entry_unref(list[i]);
}

/* Entries of one message follow each other and their prev. */
static bool message_ok(const struct repl_msg *m)
{
    uint64_t at = m->prev_index, term = m->prev_term;

    for (size_t i = 0; i < m->entries_len; i++) {
        const struct repl_entry *x = m->entries[i];
        if (x->index != at + 1 || x->prev_term != term || x->term < term || x->term > m->term)
            return false;
        at = x->index;
        term = x->term;
    }
    return at < UINT64_MAX / 2;
}

void replica_message(struct replica *r, const struct repl_msg *m)
{
    if (r->silent || !message_ok(m) || m->shard != r->o.shard || !strcmp(m->from, r->self))
        return;
    switch (m->kind) {
    case REPL_PREPARE:
        on_prepare(r, m);
        break;
    case REPL_APPEND:
        on_append(r, m);
        break;
    case REPL_FETCH:
        on_fetch(r, m);
        break;
    case REPL_PREPARED:
        replica_on_prepared(r, m);
        break;
    case REPL_APPENDED:
        replica_on_appended(r, m);
        break;
    case REPL_FETCHED:
        replica_on_fetched(r, m);
        break;
    }
}

/* A log that wins is as long as any commit index of which a member with a promise has heard. If it
 * is not, a member lost entries that it had acked, as a data folder does that was restored from an
 * old copy. Then another member must promise, which has them. Mutants skip this check, since most
 * of them lose entries in order to be noticed. */
bool replica_lacks_committed(struct replica *r, const struct peer *best)
{
    uint64_t known = MAX(r->commit, r->known_commit), have = r->last;

    for (size_t i = 0; i < r->peers_len; i++)
        if (r->peers[i].promised)
            known = MAX(known, r->peers[i].known_commit);
    if (best && (best->last_term > replica_last_term(r) ||
                 (best->last_term == replica_last_term(r) && best->last_index > r->last)))
        have = best->last_index;
    r->lacks = have < known && !r->o.mutants ? known : 0;
    return r->lacks != 0;
}

/* ---- records, snapshots, the database ---- */

static const struct repl_record *newest(const struct replica *r)
{
    return r->next.term ? &r->next : &r->rec;
}

/* A record that names another leader does not end our lead: that leader may not know the record
 * yet, or may be gone. It stops us by asking for promises. If no majority answers us, we do not
 * wait for that. */
static bool leads_on(const struct replica *r, const struct repl_record *rec)
{
    return r->role == REPLICA_LEADING && rec->term > r->rec.term && !rec->established &&
           strcmp(rec->leader, r->self) != 0 && replica_is_answered(r);
}

void replica_record(struct replica *r, const struct repl_record *rec)
{
    bool first = r->rec.term == 0, same = rec->term == r->rec.term;
    bool between = rec->term > r->rec.term + 1; /* records that never came here */
    const struct repl_record *have = newest(r);

    if (rec->term < have->term ||
        (rec->term == have->term && have->established && !rec->established))
        return;
    if (leads_on(r, rec)) {
        r->next = *rec;
        r->o.io.role(r->o.io.cookie);
        return;
    }
    r->next.term = 0;
    /* Another may have led in one of those, and written: this epoch's writes and handle end, also
     * if the newest record names us again. */
    if (between && r->role != REPLICA_FOLLOWER && !replica_mutant(r, MUTANT_KEEP_EPOCH))
        replica_step_down(r);
    r->rec = *rec;
    replica_peers(r);
    if (!same || first) {
        bool mine = !strcmp(rec->leader, r->self) && !r->silent;
        if (mine)
            replica_named(r, false);
        else if (r->role != REPLICA_FOLLOWER)
            replica_step_down(r);
        else
            r->o.io.role(r->o.io.cookie);
        return;
    }
    r->o.io.role(r->o.io.cookie);
    replica_advance(r);
}

void replica_admit(struct replica *r)
{
    if (!r->silent)
        return;
    r->silent = false;
    r->o.io.role(r->o.io.cookie);
    if (r->rec.term && !strcmp(r->rec.leader, r->self))
        replica_named(r, false);
}

void replica_applied(struct replica *r, uint64_t index)
{
    if (index <= r->applied)
        return;
    CHECK(index <= r->commit);
    r->applied = index;
    replica_advance(r);
}

void replica_dropped(struct replica *r, uint64_t base)
{
    uint64_t term = replica_log_term_at(r, base);
    size_t gone = 0;

    if (base <= r->base)
        return;
    CHECK(base <= r->commit && base <= r->last);
    while (gone + 1 < r->runs.len && r->runs.ptr[gone + 1].from <= base)
        gone++;
    r->runs.len -= gone;
    memmove(r->runs.ptr, r->runs.ptr + gone, r->runs.len * sizeof(*r->runs.ptr));
    r->runs.ptr[0] = (struct term_run){ base, term };
    r->base = base;
}

bool replica_wants_snapshot(struct replica *r, uint64_t term, uint64_t index)
{
    if (r->silent || term < r->promised || r->role != REPLICA_FOLLOWER)
        return false;
    if (term > r->promised) {
        replica_promise(r, term);
        replica_submit_append(r, NULL, 0, false, NULL, NULL);
    }
    return r->no_database ? index >= r->base : index > r->commit;
}

void replica_installing(struct replica *r)
{
    r->no_database = true;
}

void replica_installed(struct replica *r, uint64_t index, uint64_t term)
{
    struct pending p = { 0 };

    if (replica_mutant(r, MUTANT_SNAPSHOT_NO_TERM))
        term = 1;
    if (index <= r->commit && !r->no_database)
        return;
    CHECK(index >= r->base);
    r->no_database = false;
    r->commit = MAX(r->commit, index);
    r->applied = r->told = index;
    if (index <= r->last && replica_log_term_at(r, index) == term)
        return; /* the log continues behind it */
    cut_log(r, r->base + 1);
    r->runs.len = 0;
    vec_push(&r->runs, ((struct term_run){ index, term }));
    r->base = r->last = index;
    (void)replica_log_op(r, &p);
    r->o.io.log_reset(r->o.io.cookie, index, term, r->seq);
}

/* ---- life ---- */

struct replica *replica_new(const struct replica_opts *o)
{
    struct replica *r = XNEW(struct replica);

    r->o = *o;
    (void)snprintf(r->self, sizeof(r->self), "%s", o->self);
    r->o.self = r->self;
    r->o.flight_bytes_max = o->flight_bytes_max ? o->flight_bytes_max : 16 * MIB;
    r->o.message_bytes_max = o->message_bytes_max ? o->message_bytes_max : 4 * MIB;
    r->o.heartbeat_ticks = o->heartbeat_ticks ? o->heartbeat_ticks : 4;
    r->o.resend_ticks = o->resend_ticks ? o->resend_ticks : 20;
    CHECK(o->base_index <= o->last_index && o->applied <= o->last_index);
    r->base = o->base_index;
    r->last = r->durable = o->last_index;
    r->promised = o->promised;
    r->known_commit = o->commit;
    r->no_database = o->no_database;
    r->silent = o->silent && !replica_mutant(r, MUTANT_FORGETS);
    r->applied = r->told = o->applied;
    r->commit = MAX(MIN(o->commit, o->last_index), MAX(o->applied, o->base_index));
    vec_push(&r->runs, ((struct term_run){ o->base_index, o->base_term }));
    return r;
}

void replica_free(struct replica *r)
{
    if (!r)
        return;
    vec_free(&r->runs);
    vec_free(&r->pending);
    vec_free(&r->reads);
    xfree(r);
}

void replica_tick(struct replica *r)
{
    replica_deliver_commit(r);
    replica_end_late_reads(r);
    if (r->role != REPLICA_FOLLOWER)
        replica_lead_tick(r);
    else
        r->follows_ticks += r->follows_ticks < UINT32_MAX;
}

void replica_room(struct replica *r, bool room)
{
    r->no_room = !room;
}

void replica_reclaimed(struct replica *r, uint64_t index)
{
    r->reclaimed = index;
}

struct replica_state replica_state(const struct replica *r)
{
    bool another = r->role == REPLICA_FOLLOWER && r->follows_term == r->promised &&
                   replica_record_of(r->follows_term) != r->rec.term &&
                   r->follows_ticks < 2 * HEARD_TICKS;

    return (struct replica_state){
        .role = r->role,
        .opened = r->role != REPLICA_FOLLOWER && r->opened,
        .term = r->promised,
        .record_term = newest(r)->term,
        .leader = newest(r)->leader,
        .follows = another ? r->follows : "",
        .epoch = r->epoch,
        .base_index = r->base,
        .last_index = r->last,
        .durable = r->durable,
        .commit = r->commit,
        .applied = r->applied,
        .member = r->self_member,
        .learner = name_set_has(&r->rec.learners, r->self),
        .silent = r->silent,
        .no_database = r->no_database,
        .leader_commit = r->leader_commit,
        .lacks = r->role == REPLICA_PREPARING && !r->opened ? r->lacks : 0,
        .all_have = r->role == REPLICA_LEADING ? replica_all_have(r) : r->all_have,
    };
}

bool replica_peer(const struct replica *r, size_t n, struct replica_peer *ret)
{
    if (n >= r->peers_len)
        return false;
    const struct peer *p = &r->peers[n];
    *ret = (struct replica_peer){
        .name = p->name,
        .match = p->match,
        .member = p->member,
        .learner = p->learner,
        .former = p->former,
        .snapshot = p->state == PEER_SNAPSHOT,
        .no_room = p->no_room,
        .reclaimed = p->reclaimed,
        .silent_ticks = p->silent,
        .stuck_ticks = p->stuck,
    };
    return true;
}

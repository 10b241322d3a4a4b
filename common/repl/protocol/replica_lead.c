/* SPDX-License-Identifier: Apache-2.0
 *
 * replica_lead: how a replica that a record names begins to lead, and leads.
 *
 *   1. promise: PREPARE to members and former members until a majority of each has promised
 *   2. fetch:   if another of those has the longer log, the entries that it has more
 *   3. open:    append an entry of this term, replicate; when a majority of members has it, ask the
 *               coordination to mark the record as established
 *   4. lead:    commit entries that are on a majority of members and, until the record is marked,
 *               of former members; the first one committed and applied: take entries and reads
 *
 * Until then the next leader asks former members, so these must have each committed entry.
 * A first record has none: there nothing is committed before it is established.
 *
 * Peers. A probe asks whether the log matches at next - 1; then entries stream, many messages under
 * way at once; a refusal, or silence, returns to probing. A peer that needs dropped entries gets a
 * snapshot. Functions: replica_named (1), replica_quorum (2), open_term (3), replica_advance (4).
 */
#include <stdio.h>

#include "common/base/mem.h"
#include "common/repl/protocol/replica_impl.h"

#define PREFER_AFTER_TICKS 20 /* a member that can lead may still answer */

/* ---- peers ---- */

static struct peer *find_peer(struct replica *r, const char *name)
{
    for (size_t i = 0; i < r->peers_len; i++)
        if (!strcmp(r->peers[i].name, name))
            return &r->peers[i];
    return NULL;
}

static void add_peers(struct replica *r, const struct name_set *set, const struct peer *old,
                      size_t old_len, size_t flag)
{
    for (uint32_t i = 0; i < set->len; i++) {
        if (!strcmp(set->names[i], r->self))
            continue;
        struct peer *p = find_peer(r, set->names[i]);
        if (!p) {
            CHECK(r->peers_len < PEERS_MAX);
            p = &r->peers[r->peers_len++];
            memset(p, 0, sizeof(*p));
            for (size_t k = 0; k < old_len; k++)
                if (!strcmp(old[k].name, set->names[i]))
                    *p = old[k];
            memcpy(p->name, set->names[i], sizeof(p->name));
            p->member = p->former = p->learner = false;
        }
        *(bool *)((char *)p + flag) = true;
    }
}

void replica_peers(struct replica *r)
{
    size_t n = r->peers_len;
    struct peer *old = xmemdup(r->peers, sizeof(r->peers));
    char fetch[NODE_NAME_MAX + 1] = "";

    if (r->fetch)
        memcpy(fetch, r->fetch->name, sizeof(fetch));
    r->peers_len = 0;
    add_peers(r, &r->rec.members, old, n, offsetof(struct peer, member));
    add_peers(r, &r->rec.learners, old, n, offsetof(struct peer, learner));
    add_peers(r, &r->rec.prev_members, old, n, offsetof(struct peer, former));
    r->self_member = name_set_has(&r->rec.members, r->self);
    r->self_former = name_set_has(&r->rec.prev_members, r->self);
    r->fetch = fetch[0] ? find_peer(r, fetch) : NULL;
    if (r->opened)
        for (size_t i = 0; i < r->peers_len; i++)
            if (r->peers[i].next == 0) /* new */
                r->peers[i].next = r->last + 1;
    xfree(old);
}

static size_t majority(const struct name_set *s)
{
    return s->len / 2 + 1;
}

/* ---- sending ---- */

static void send_append(struct replica *r, struct peer *p, uint64_t prev,
                        struct repl_entry *const *list, size_t n)
{
    struct repl_msg m = replica_msg(r, REPL_APPEND);

    m.prev_index = prev;
    m.prev_term = replica_log_term_at(r, prev);
    m.round = r->round;
    m.all_have = r->role == REPLICA_LEADING ? replica_all_have(r) : 0;
    m.seq = ++p->seq;
    m.entries = list;
    m.entries_len = n;
    p->quiet = 0;
    r->o.io.send(r->o.io.cookie, p->name, &m);
}

static void go_back(struct peer *p)
{
    p->state = PEER_PROBE;
    p->flight_len = p->flight_head = p->flight_bytes = 0;
    p->seq_floor = p->seq + 1;
    p->stalled = 0;
}

static void need_snapshot(struct replica *r, struct peer *p)
{
    if (p->snapshot || r->no_database)
        return;
    p->snapshot = true;
    r->o.io.snapshot(r->o.io.cookie, p->name);
}

/* Asks whether p has the entry before next; a snapshot if that entry is gone here. */
static void probe(struct replica *r, struct peer *p)
{
    if (p->next - 1 < r->base) {
        p->state = PEER_SNAPSHOT;
        p->stalled = 0;
        need_snapshot(r, p);
        return;
    }
    send_append(r, p, p->next - 1, NULL, 0);
}

static void stream(struct replica *r, struct peer *p)
{
    struct repl_entry *list[ENTRIES_MAX];

    while (p->state == PEER_STREAM && p->next <= r->last && p->flight_len < FLIGHT_MAX &&
           p->flight_bytes < r->o.flight_bytes_max) {
        size_t bytes = 0, n;
        if (p->next - 1 < r->base) {
            go_back(p);
            probe(r, p);
            return;
        }
        n = r->o.io.entries(r->o.io.cookie, p->next, r->o.message_bytes_max, list, ENTRIES_MAX);
        if (!n)
            return; /* replica_poke when they are at hand */
        send_append(r, p, p->next - 1, list, n);
        for (size_t i = 0; i < n; i++) {
            bytes += entry_bytes(list[i]->len);
            entry_unref(list[i]);
        }
        p->next += n;
        p->flight[(p->flight_head + p->flight_len++) % FLIGHT_MAX] =
            (struct flight){ p->next - 1, bytes };
        p->flight_bytes += bytes;
    }
}

static void stream_all(struct replica *r)
{
    for (size_t i = 0; i < r->peers_len; i++)
        if (r->peers[i].member || r->peers[i].learner)
            stream(r, &r->peers[i]);
}

void replica_poke(struct replica *r)
{
    if (r->opened)
        stream_all(r);
}

/* To all peers, with the round; a peer that is probed gets its probe. */
static void heartbeat(struct replica *r, bool all)
{
    for (size_t i = 0; i < r->peers_len; i++) {
        struct peer *p = &r->peers[i];
        if ((!p->member && !p->learner) || (!all && p->quiet < r->o.heartbeat_ticks))
            continue;
        if (p->state == PEER_PROBE)
            probe(r, p);
        else
            send_append(r, p, MAX(p->match, r->base), NULL, 0);
    }
}

/* ---- reads ---- */

static void end_reads(struct replica *r, bool ok, uint64_t round)
{
    size_t left = 0;

    vec_for (i, &r->reads) {
        struct read_wait w = r->reads.ptr[i];
        if (!ok || (w.round <= round && w.index <= r->applied))
            r->o.io.confirmed(r->o.io.cookie, w.id, ok);
        else
            r->reads.ptr[left++] = w;
    }
    r->reads.len = left;
}

static bool in(const struct peer *p, bool former)
{
    return former ? p->former : p->member;
}

/* The newest round that a majority of members, or of former ones, answered. */
static uint64_t round_of(const struct replica *r, bool former)
{
    size_t need = majority(former ? &r->rec.prev_members : &r->rec.members);
    uint64_t best = 0;

    for (size_t i = 0; i <= r->peers_len; i++) {
        uint64_t at = i < r->peers_len ? r->peers[i].round : r->round;
        size_t n = former ? r->self_former : r->self_member;
        if (i < r->peers_len && !in(&r->peers[i], former))
            continue;
        for (size_t k = 0; k < r->peers_len; k++)
            n += in(&r->peers[k], former) && r->peers[k].round >= at;
        if (n >= need)
            best = MAX(best, at);
    }
    return best;
}

/* True if each decision of a majority needs the previous members, too. */
static bool needs_former(const struct replica *r)
{
    return !r->rec.established && r->rec.prev_members.len;
}

static uint64_t round_reached(const struct replica *r)
{
    uint64_t at = round_of(r, false);

    return needs_former(r) ? MIN(at, round_of(r, true)) : at;
}

static void rounds(struct replica *r)
{
    uint64_t reached;
    bool wanted = false;

    if (r->role != REPLICA_LEADING || !r->reads.len)
        return;
    reached = round_reached(r);
    end_reads(r, true, reached);
    vec_for (i, &r->reads)
        wanted |= r->reads.ptr[i].round > r->round;
    if (wanted && reached == r->round) { /* all that came meanwhile share the next one */
        r->round++;
        heartbeat(r, true);
        end_reads(r, true, round_reached(r)); /* alone: that was it */
    }
}

void replica_confirm(struct replica *r, uint64_t read)
{
    struct read_wait w = { read, r->round + 1, r->commit, 0 };
    bool soon = r->role == REPLICA_PREPARING && r->led;

    if (replica_mutant(r, MUTANT_READ_UNCONFIRMED) && r->role == REPLICA_LEADING) {
        r->o.io.confirmed(r->o.io.cookie, read, true);
        return;
    }
    if ((r->role != REPLICA_LEADING && !soon) || r->reads.len >= READS_MAX) {
        r->o.io.confirmed(r->o.io.cookie, read, false);
        return;
    }
    vec_push(&r->reads, w);
    rounds(r);
}

void replica_end_late_reads(struct replica *r)
{
    size_t left = 0;

    vec_for (i, &r->reads) {
        struct read_wait w = r->reads.ptr[i];
        if (++w.ticks > READ_TICKS)
            r->o.io.confirmed(r->o.io.cookie, w.id, false);
        else
            r->reads.ptr[left++] = w;
    }
    r->reads.len = left;
}

/* ---- coming to lead ---- */

void replica_step_down(struct replica *r)
{
    r->role = REPLICA_FOLLOWER;
    r->led = false;
    r->epoch++;
    r->opened = 0;
    r->fetch = NULL;
    end_reads(r, false, 0);
    if (r->next.term) {
        r->rec = r->next;
        r->next.term = 0;
        replica_peers(r);
    }
    r->o.io.role(r->o.io.cookie);
}

bool replica_is_answered(const struct replica *r)
{
    size_t n = r->self_member;

    for (size_t i = 0; i < r->peers_len; i++)
        n += r->peers[i].member && r->peers[i].silent < HEARD_TICKS;
    return n >= majority(&r->rec.members);
}

static void ask_promises(struct replica *r)
{
    struct repl_msg m = replica_msg(r, REPL_PREPARE);

    r->ticks = 0;
    for (size_t i = 0; i < r->peers_len; i++)
        if ((r->peers[i].member || r->peers[i].former) && !r->peers[i].promised)
            r->o.io.send(r->o.io.cookie, r->peers[i].name, &m);
}

/* The record names this replica. `again`: it was tried before, and a peer knows a later run. */
void replica_named(struct replica *r, bool again)
{
    uint64_t record = replica_record_of(r->promised), run = 0;

    if (record > r->rec.term) { /* there is a newer record, which will come */
        if (r->role != REPLICA_FOLLOWER)
            replica_step_down(r);
        return;
    }
    if (record == r->rec.term)
        run = r->promised % (UINT64_C(1) << REPLICA_RUN_BITS) + 1;
    if (record == r->rec.term && replica_mutant(r, MUTANT_SAME_TERM_AGAIN) && !again)
        run--;
    if (run >> REPLICA_RUN_BITS) { /* by whoever sent that term: a newer record it has to be */
        if (r->role != REPLICA_FOLLOWER)
            replica_step_down(r);
        return;
    }
    r->led = r->led || r->role == REPLICA_LEADING;
    r->promised = replica_term_of(r->rec.term, run);
    r->role = REPLICA_PREPARING;
    r->self_promised = false;
    r->opened = 0;
    r->waited = 0;
    r->lacks = 0;
    r->fetch = NULL;
    for (size_t i = 0; i < r->peers_len; i++) {
        struct peer *p = &r->peers[i];
        p->promised = p->snapshot = false;
        p->match = p->next = p->round = 0;
        p->stuck = 0;
        go_back(p);
    }
    replica_submit_append(r, NULL, 0, true, NULL, NULL);
    r->o.io.role(r->o.io.cookie);
    ask_promises(r);
}

static void open_term(struct replica *r)
{
    struct repl_entry *x = entry_new(REPL_NOOP, STR_NULL);

    r->fetch = NULL;
    x->term = r->promised;
    x->prev_term = replica_last_term(r);
    x->index = r->last + 1;
    r->opened = x->index;
    r->ticks = 0;
    for (size_t i = 0; i < r->peers_len; i++) {
        r->peers[i].next = x->index;
        r->peers[i].silent = 0;
    }
    replica_submit_append(r, &x, 1, false, NULL, NULL);
    entry_unref(x);
    heartbeat(r, true);
}

static void ask_entries(struct replica *r)
{
    struct repl_msg m = replica_msg(r, REPL_FETCH);

    r->ticks = 0;
    m.prev_index = r->fetch_prev;
    m.prev_term = replica_log_term_at(r, r->fetch_prev);
    r->o.io.send(r->o.io.cookie, r->fetch->name, &m);
}

/* A node that cannot lead waits for all answers before it names a leader: the first to answer may
 * be no better off, and a later one may be able to lead. Two nodes that are always the first for
 * each other would otherwise pass the lead back and forth, and the third would never be asked. */
static bool may_hear_more(const struct replica *r)
{
    bool all = true;

    for (size_t i = 0; i < r->peers_len; i++)
        if (r->peers[i].member || r->peers[i].former)
            all = all && r->peers[i].promised;
    return !all && r->waited < PREFER_AFTER_TICKS;
}

static void prefer(struct replica *r, const char *name)
{
    r->o.io.prefer(r->o.io.cookie, name);
    replica_step_down(r);
}

void replica_quorum(struct replica *r)
{
    size_t members = r->self_member && r->self_promised,
           former = r->self_former && r->self_promised;
    struct peer *best = NULL;

    for (size_t i = 0; i < r->peers_len; i++) {
        struct peer *p = &r->peers[i];
        if (!p->promised)
            continue;
        members += p->member;
        former += p->former;
        if (!best || peer_is_ahead(p, best))
            best = p;
    }
    if (!r->self_promised || r->opened || r->fetch)
        return;
    if (members < (replica_mutant(r, MUTANT_MINORITY) ? 1 : majority(&r->rec.members)))
        return;
    if (r->rec.prev_members.len && former < majority(&r->rec.prev_members) &&
        !replica_mutant(r, MUTANT_IGNORE_PREV_MEMBERS))
        return;
    if (replica_lacks_committed(r, best))
        return;
    if (r->no_database) { /* whose it is cannot be served from here */
        if (best && !may_hear_more(r))
            prefer(r, best->name);
        return;
    }
    if (!best || best->last_term < replica_last_term(r) ||
        (best->last_term == replica_last_term(r) && best->last_index <= r->last) ||
        replica_mutant(r, MUTANT_LOSE_TAIL)) {
        open_term(r);
        return;
    }
    if (best->base > r->last) {
        if (!may_hear_more(r))
            prefer(r, best->name);
        return;
    }
    r->fetch = best;
    r->fetch_prev = MIN(r->last, best->last_index);
    ask_entries(r);
}

/* A peer knows a higher term: of a newer record, or of this one, made by an earlier process of this
 * node whose disk is gone. */
static void on_higher(struct replica *r, uint64_t term)
{
    if (term <= r->promised)
        return;
    if (replica_record_of(term) == r->rec.term && !strcmp(r->rec.leader, r->self)) {
        r->promised = term;
        replica_named(r, true);
        return;
    }
    replica_promise(r, term);
    replica_submit_append(r, NULL, 0, false, NULL, NULL);
}

void replica_on_prepared(struct replica *r, const struct repl_msg *m)
{
    struct peer *p = find_peer(r, m->from);

    if (r->role == REPLICA_FOLLOWER || !p)
        return;
    if (!m->ok)
        on_higher(r, m->term);
    if (!m->ok || m->term != r->promised || r->opened || p->promised)
        return;
    p->promised = true;
    p->last_index = m->last_index;
    p->last_term = m->last_term;
    p->known_commit = m->commit;
    p->base = m->base;
    replica_quorum(r);
}

void replica_on_fetched(struct replica *r, const struct repl_msg *m)
{
    uint64_t hint;

    if (r->role != REPLICA_PREPARING || !r->fetch || strcmp(r->fetch->name, m->from))
        return;
    if (m->term != r->promised) {
        on_higher(r, m->term);
        return;
    }
    if (!m->ok) {
        uint64_t back = MIN(m->prev_index, r->fetch_prev ? r->fetch_prev - 1 : 0);
        if (back < r->base || m->base > r->fetch_prev) {
            prefer(r, m->from);
            return;
        }
        r->fetch_prev = MAX(back, r->commit);
        ask_entries(r);
        return;
    }
    if (m->prev_index != r->fetch_prev || !replica_accept_entries(r, m, &hint))
        return;
    r->fetch_prev = m->prev_index + m->entries_len;
    if (r->fetch_prev < r->fetch->last_index)
        ask_entries(r);
    else
        open_term(r);
}

/* ---- leading ---- */

/* The index that a majority of members, or of former members, has fsynced. A former member that is
 * no member any more gets no entries, and counts as having none. */
static uint64_t reached(const struct replica *r, bool former)
{
    const struct name_set *set = former ? &r->rec.prev_members : &r->rec.members;
    uint64_t have[PEERS_MAX + 1];
    size_t n = 0, need = replica_mutant(r, MUTANT_MINORITY) ? 1 : majority(set);

    if (former ? r->self_former : r->self_member)
        have[n++] = r->durable;
    for (size_t i = 0; i < r->peers_len; i++)
        if (in(&r->peers[i], former))
            have[n++] = r->peers[i].match;
    for (size_t i = 1; i < n; i++) /* descending */
        for (size_t k = i; k && have[k] > have[k - 1]; k--) {
            uint64_t v = have[k];
            have[k] = have[k - 1];
            have[k - 1] = v;
        }
    return n >= need ? have[need - 1] : 0;
}

static void try_commit(struct replica *r)
{
    uint64_t upto = reached(r, false);

    if (upto >= r->opened && !r->rec.established && r->ticks == 0) {
        r->o.io.establish(r->o.io.cookie, r->rec.term);
        r->ticks = 1;
    }
    if (!r->rec.established && !replica_mutant(r, MUTANT_COMMIT_UNESTABLISHED))
        upto = !needs_former(r) || replica_mutant(r, MUTANT_COMMIT_LATE) ? 0
               : replica_mutant(r, MUTANT_COMMIT_BY_MEMBERS)             ? upto
                                                             : MIN(upto, reached(r, true));
    if (upto <= r->commit)
        return;
    if (upto < r->opened && !replica_mutant(r, MUTANT_COMMIT_OLD_TERMS))
        return; /* entries of older terms are committed by the first of this one */
    r->commit = upto;
    replica_deliver_commit(r);
}

void replica_advance(struct replica *r)
{
    if (r->role == REPLICA_FOLLOWER || !r->opened)
        return;
    try_commit(r);
    if (r->role == REPLICA_PREPARING && r->commit >= r->opened && r->applied >= r->opened) {
        r->role = REPLICA_LEADING;
        r->led = true;
        r->o.io.role(r->o.io.cookie);
    }
    rounds(r);
}

int replica_propose(struct replica *r, struct repl_entry *x, struct err *e)
{
    if (r->role != REPLICA_LEADING)
        return err_set(
            e, ERR_UNAVAILABLE,
            "shard %" PRIu32 ": this node (%s) is not the leader; in record %" PRIu64 " it is %s",
            r->o.shard, r->self, r->rec.term, r->rec.leader[0] ? r->rec.leader : "not known");
    x->term = r->promised;
    x->prev_term = replica_last_term(r);
    x->index = r->last + 1;
    replica_submit_append(r, &x, 1, false, NULL, NULL);
    stream_all(r);
    return 0;
}

static void pop_flight(struct peer *p)
{
    while (p->flight_len && p->flight[p->flight_head].index <= p->match) {
        p->flight_bytes -= p->flight[p->flight_head].bytes;
        p->flight_head = (p->flight_head + 1) % FLIGHT_MAX;
        p->flight_len--;
    }
}

void replica_on_appended(struct replica *r, const struct repl_msg *m)
{
    struct peer *p = find_peer(r, m->from);

    if (r->role == REPLICA_FOLLOWER || !p)
        return;
    if (m->term != r->promised) {
        on_higher(r, m->term);
        return;
    }
    if (!r->opened)
        return;
    p->silent = 0;
    p->no_room = m->no_room;
    p->reclaimed = m->reclaimed;
    p->round = MAX(p->round, MIN(m->round, r->round));
    if (m->wants_snapshot)
        need_snapshot(r, p);
    if (m->ok && m->last_index <= r->last) {
        if (m->last_index > p->match) {
            p->match = m->last_index;
            p->stalled = p->stuck = 0;
        }
        pop_flight(p);
        if (p->state == PEER_PROBE && m->seq >= p->seq_floor) {
            p->state = PEER_STREAM;
            p->next = MAX(p->next, p->match + 1);
        }
        stream(r, p);
    } else if (!m->ok && m->seq >= p->seq_floor && p->state != PEER_SNAPSHOT) {
        p->match = MIN(p->match, m->prev_index); /* a learner whose disk was lost */
        p->next = MAX(MIN(m->prev_index + 1, MAX(p->next, 2) - 1), p->match + 1);
        go_back(p);
        probe(r, p);
    }
    replica_advance(r);
}

void replica_snapshot_sent(struct replica *r, const char *to, uint64_t index)
{
    struct peer *p = find_peer(r, to);

    if (p)
        p->snapshot = false;
    if (!p || !r->opened || p->state != PEER_SNAPSHOT)
        return;
    p->next = MAX(index, r->base) + 1;
    go_back(p);
    if (index)
        probe(r, p);
}

static void peer_tick(struct replica *r, struct peer *p)
{
    p->silent++;
    p->quiet++;
    p->stuck = p->match < r->last && !p->snapshot ? p->stuck + 1 : 0;
    if (p->state == PEER_STREAM && p->next > p->match + 1 && ++p->stalled > r->o.resend_ticks) {
        p->next = p->match + 1;
        go_back(p);
        probe(r, p);
    }
}

void replica_lead_tick(struct replica *r)
{
    r->ticks++;
    if (!r->opened) {
        if (++r->waited == PREFER_AFTER_TICKS)
            replica_quorum(r);
        if (r->role != REPLICA_PREPARING || r->opened || r->ticks < r->o.resend_ticks)
            return;
        if (r->fetch && ++r->fetch->stalled > 5) { /* another majority, perhaps */
            replica_named(r, true);
            return;
        }
        if (r->fetch)
            ask_entries(r);
        else
            ask_promises(r);
        return;
    }
    for (size_t i = 0; i < r->peers_len; i++)
        peer_tick(r, &r->peers[i]);
    if (r->next.term && !replica_is_answered(r)) {
        replica_step_down(r);
        return;
    }
    heartbeat(r, false);
    if (!r->rec.established && r->ticks > r->o.resend_ticks)
        r->ticks = 0; /* ask again */
    replica_advance(r);
}

uint64_t replica_all_have(const struct replica *r)
{
    uint64_t least = r->durable;

    for (size_t i = 0; i < r->peers_len; i++)
        if (r->peers[i].member || r->peers[i].learner)
            least = MIN(least, r->peers[i].match);
    return least;
}

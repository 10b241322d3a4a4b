/* SPDX-License-Identifier: Apache-2.0
 *
 * replica_impl.h: what replica.c (log, following) and replica_lead.c (leading) share. No other file
 * includes it.
 */
#ifndef COMMON_REPL_PROTOCOL_REPLICA_IMPL_H
#define COMMON_REPL_PROTOCOL_REPLICA_IMPL_H

#include "common/base/vec.h"
#include "common/repl/protocol/replica.h"

#define PEERS_MAX   (3 * RECORD_SET_MAX)
#define FLIGHT_MAX  64 /* messages sent to a peer and not acked */
#define READS_MAX   65536
#define READ_TICKS  400 /* some 10 s: no majority answers, or nothing is applied */
#define ENTRIES_MAX 256 /* in one message that we send */
#define HEARD_TICKS 40  /* a second: a peer that answered within it is reachable */

enum peer_state { PEER_PROBE, PEER_STREAM, PEER_SNAPSHOT };
struct flight {
    uint64_t index; /* last of the message */
    size_t bytes;
};
struct peer {
    char name[NODE_NAME_MAX + 1];
    bool member, former, learner;
    /* of its answer to prepare */
    bool promised;
    uint64_t last_index, last_term, base;
    uint64_t known_commit; /* entries up to here are committed, as far as it knows */
    /* while leading */
    enum peer_state state;
    bool snapshot; /* one is on its way */
    bool no_room;
    uint64_t reclaimed;
    uint64_t next, match;
    uint64_t seq, seq_floor; /* refusals of messages sent before seq_floor are stale */
    uint64_t round;
    uint32_t silent, stalled, quiet; /* ticks since its last message, its progress, our last one */
    uint32_t stuck; /* ticks: it lacks entries that are here, and has acked none of them */
    struct flight flight[FLIGHT_MAX];
    size_t flight_head, flight_len, flight_bytes;
};
/* True if `p` has the longer log of two peers that promised. Of equal logs, the one with older
 * entries is ahead, since this replica may need those. */
static inline bool peer_is_ahead(const struct peer *p, const struct peer *of)
{
    if (p->last_term != of->last_term)
        return p->last_term > of->last_term;
    if (p->last_index != of->last_index)
        return p->last_index > of->last_index;
    return p->base < of->base;
}

/* An operation on the log that is not done yet. */
struct pending {
    uint64_t seq;
    uint64_t durable; /* the log is fsynced up to here when it is done */
    bool own_promise;
    bool reply; /* is to be sent then */
    char to[NODE_NAME_MAX + 1];
    struct repl_msg msg;
};
struct term_run {
    uint64_t from, term;
};
struct read_wait {
    uint64_t id, round, index;
    uint32_t ticks;
};

struct replica {
    struct replica_opts o;
    char self[NODE_NAME_MAX + 1];
    struct repl_record rec; /* newest known, but for `next`; term 0: none */
    /* A newer one, which names another leader: while we lead, and that leader has not asked for
     * promises, we continue by rec. term 0: none. */
    struct repl_record next;

    /* The log as it is when all operations are done. */
    VEC(struct term_run) runs;
    uint64_t base, last;
    uint64_t durable, commit, applied, told; /* told: the last index given to io.commit */
    uint64_t seq;                            /* of the newest operation */
    VEC(struct pending) pending;
    uint64_t promised;
    bool no_database, silent, no_room;
    uint64_t reclaimed;
    uint64_t leader_commit, all_have;
    /* Highest commit index that a leader has named here. It may be beyond the part of this log that
     * equals the leader's, so it must never be taken for `commit`, nor be stored as such. */
    uint64_t known_commit;
    uint64_t lacks;                  /* replica_state.lacks */
    char follows[NODE_NAME_MAX + 1]; /* sender of entries of follows_term, the last that came */
    uint64_t follows_term;
    uint32_t follows_ticks; /* since */

    enum replica_role role;
    uint64_t epoch;
    bool led; /* leads in this epoch, if it may be between two records of its own */
    struct peer peers[PEERS_MAX];
    size_t peers_len;
    bool self_member, self_former, self_promised;
    uint32_t ticks;     /* since the last prepare, fetch or establish was sent */
    uint32_t waited;    /* ticks since the record named us, or a run began */
    struct peer *fetch; /* whose entries are wanted before the term is opened */
    uint64_t fetch_prev;
    uint64_t opened; /* index of this term's first entry; 0: not there yet */
    uint64_t round;  /* asked for last */
    VEC(struct read_wait) reads;
};

/* replica.c */
uint64_t replica_last_term(const struct replica *r);
uint64_t replica_log_op(struct replica *r, struct pending *p); /* notes it, gives it a number */
void replica_submit_append(struct replica *r, struct repl_entry *const *entries, size_t n,
                           bool own_promise, const struct repl_msg *reply, const char *to);
/* Takes entries behind prev: skips those it has, replaces those that differ. False: prev does not
 * match; *hint is the next index to try. */
bool replica_accept_entries(struct replica *r, const struct repl_msg *m, uint64_t *hint);
void replica_promise(struct replica *r, uint64_t term);
void replica_deliver_commit(struct replica *r);
/* True, and r->lacks is set, if the best log of the replicas that promised lacks committed entries.
 * `best`: of the peers, or NULL. */
bool replica_lacks_committed(struct replica *r, const struct peer *best);
struct repl_msg replica_msg(const struct replica *r, enum repl_msg_kind kind);
static inline bool replica_mutant(const struct replica *r, enum replica_mutant m)
{
    return (r->o.mutants & (uint32_t)m) != 0;
}
/* replica_lead.c */
void replica_named(struct replica *r, bool again); /* the record says: lead */
void replica_step_down(struct replica *r);
bool replica_is_answered(const struct replica *r); /* by a majority of members, lately */
void replica_peers(struct replica *r);             /* from the record */
void replica_on_prepared(struct replica *r, const struct repl_msg *m);
void replica_on_appended(struct replica *r, const struct repl_msg *m);
void replica_on_fetched(struct replica *r, const struct repl_msg *m);
void replica_advance(struct replica *r); /* something became durable, applied or established */
void replica_lead_tick(struct replica *r);
void replica_end_late_reads(struct replica *r);
void replica_quorum(struct replica *r); /* promises came in */

#endif

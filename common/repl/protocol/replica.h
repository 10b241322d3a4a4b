/* SPDX-License-Identifier: Apache-2.0
 *
 * replica.h: the replication protocol of one replica of one shard, as a state machine: it has no
 * threads, no clock, no disk and no sockets of its own. repl_node.c drives it in a process,
 * tests/prop/test_repl.c in a simulated world. README.md explains the protocol and why it is right.
 *
 * Inputs are the functions below; outputs are calls of struct replica_io, which only take note:
 * they must not call back into the replica.
 *
 *   FOLLOWER ──replica_record: it names us (replica_named)──> PREPARING
 *   PREPARING ──replica_quorum, then open_term: promises, log complete;
 *               replica_advance: its first entry committed and applied──> LEADING
 *   LEADING ──replica_record: the next record names us, too──> PREPARING, in the same epoch
 *   any ──replica_step_down: a higher term, or another node begins to lead──> FOLLOWER
 *
 * Terms. The coordination (common/cluster) numbers records; each names one leader. A leader may
 * lead several times in one record (it was restarted): the protocol's term is the record's,
 * shifted, plus the number of the attempt. Only the leader named by a record makes terms of it.
 */
#ifndef COMMON_REPL_PROTOCOL_REPLICA_H
#define COMMON_REPL_PROTOCOL_REPLICA_H

#include "common/cluster/map/record.h"
#include "common/repl/protocol/msg.h"

#define REPLICA_RUN_BITS 20
static_assert(RECORD_TERM_MAX < UINT64_MAX >> REPLICA_RUN_BITS,
              "a term of a record can be shifted");
static inline uint64_t replica_term_of(uint64_t record_term, uint64_t run)
{
    return record_term << REPLICA_RUN_BITS | run;
}
static inline uint64_t replica_record_of(uint64_t term)
{
    return term >> REPLICA_RUN_BITS;
}

enum replica_role {
    REPLICA_FOLLOWER,
    REPLICA_PREPARING, /* named leader; takes no entries yet */
    REPLICA_LEADING,   /* its first entry is committed and applied: entries and reads are welcome */
};

struct replica_io {
    void *cookie;
    /* The message is borrowed for the call. A reply has the ref of its request. */
    void (*send)(void *cookie, const char *to, const struct repl_msg *m);
    /* Operations on the log, to be done in order; replica_log_done(r, seq) when all up to seq are
     * fsynced. Entries are borrowed for the call. */
    void (*log_append)(void *cookie, struct repl_entry *const *entries, size_t n, uint64_t seq);
    void (*log_hard)(void *cookie, uint64_t promised, uint64_t commit, uint64_t seq);
    void (*log_reset)(void *cookie, uint64_t index, uint64_t term, uint64_t seq);
    /* Entries of the log from `from` on for a peer, referenced for the caller; 0: not at hand;
     * replica_poke when they are. All operations above count as done. */
    size_t (*entries)(void *cookie, uint64_t from, size_t bytes_max, struct repl_entry **ret,
                      size_t max);
    void (*commit)(void *cookie, uint64_t index); /* may be applied up to here */
    void (*role)(void *cookie);                   /* replica_state changed in role, term or epoch */
    /* The record of this term may be marked as established (and prev_members cleared): a majority
     * of its members has the term's first entry. Repeated until a record says so. */
    void (*establish)(void *cookie, uint64_t record_term);
    void (*confirmed)(void *cookie, uint64_t read, bool ok); /* of replica_confirm */
    void (*snapshot)(void *cookie, const char *to); /* it needs entries that are gone here */
    /* This replica cannot lead: `name` has entries that are older than it can fetch. */
    void (*prefer)(void *cookie, const char *name);
};

/* Rules that a test switches off, to see that it notices. */
enum replica_mutant {
    MUTANT_ACK_BEFORE_SYNC = 1 << 0,
    MUTANT_COMMIT_OLD_TERMS = 1 << 1,
    MUTANT_PROMISE_NOT_STORED = 1 << 2,
    MUTANT_TRUNCATE_ALWAYS = 1 << 3, /* drops all entries behind those of a message */
    MUTANT_IGNORE_PREV_MEMBERS = 1 << 4,
    MUTANT_READ_UNCONFIRMED = 1 << 5,
    MUTANT_SNAPSHOT_NO_TERM = 1 << 6,
    MUTANT_COMMIT_UNESTABLISHED = 1 << 7,
    MUTANT_NO_PREV_CHECK = 1 << 8,
    MUTANT_SAME_TERM_AGAIN = 1 << 9, /* after a restart */
    MUTANT_MINORITY = 1 << 10,
    MUTANT_LOSE_TAIL = 1 << 11,  /* leads with its own log, however short */
    MUTANT_FORGETS = 1 << 12,    /* answers though its log is gone */
    MUTANT_KEEP_EPOCH = 1 << 13, /* though another may have led between two records of its own */
    MUTANT_COMMIT_BY_MEMBERS = 1 << 14, /* before the record is established, too */
    MUTANT_COMMIT_LATE = 1 << 15,       /* nothing before that */
    /* Of pipelined batches (kv_repl.c, repl_node.c): */
    MUTANT_READ_BLIND = 1 << 16,   /* reads do not wait for the rows of a batch in flight */
    MUTANT_BEGUN_SWAP = 1 << 17,   /* a batch is proposed after the next one */
    MUTANT_PIPE_GOES_ON = 1 << 18, /* a batch is lost, and later ones do not fail */
    MUTANT_UNDRAINED = 1 << 19,    /* a handle is opened before the whole log is applied */
};

struct replica_opts {
    const char *self; /* copied */
    uint32_t shard;
    struct replica_io io;
    /* The state of the log and the database; terms by replica_log_term before the first input. */
    uint64_t promised, commit, base_index, base_term, last_index, last_term;
    uint64_t applied; /* of the database */
    bool no_database; /* it was lost, or half a snapshot came: log only, until a whole one comes */
    bool silent;      /* the log may have been lost: says and takes nothing until replica_admit */
    size_t flight_bytes_max;  /* sent to a peer and not acked; 0: 16 MiB */
    size_t message_bytes_max; /* entries in one message; 0: 4 MiB. One entry may be larger */
    uint32_t heartbeat_ticks; /* 0: 4 */
    uint32_t resend_ticks;    /* not acked for so long: again; 0: 20 */
    uint32_t mutants;         /* tests only */
};
struct replica;
struct replica *replica_new(const struct replica_opts *o);
void replica_free(struct replica *r); /* NULL is fine */
/* Before the first input: the log has entries of this term from here on. Ascending. */
void replica_log_term(struct replica *r, uint64_t from, uint64_t term);
/* A silent replica may take part: no member counts on what it held in the past. It never answered
 * before, or it is no member of the newest record, nor of the last established one. */
void replica_admit(struct replica *r);

/* ---- inputs ---- */
/* The newest record known. Ignored if it is older than the known one. A leader that learns of a
 * record with another leader continues until that leader begins (asks for promises), or no majority
 * answers any more. */
void replica_record(struct replica *r, const struct repl_record *rec);
void replica_message(struct replica *r, const struct repl_msg *m);
void replica_tick(struct replica *r); /* about every 25 ms */
/* Whether the disk has room; true at first. Leaders are informed. */
void replica_room(struct replica *r, bool room);
/* Rows that deletes purged up to this entry are in no file here any more. Leaders are informed. */
void replica_reclaimed(struct replica *r, uint64_t index);
void replica_log_done(struct replica *r, uint64_t seq);
void replica_applied(struct replica *r, uint64_t index);
/* Entries for a peer that io.entries did not have are at hand now. */
void replica_poke(struct replica *r);
/* Takes an entry to be replicated, with a reference of its own; sets index and term.
 * ERR_UNAVAILABLE: not leading, and why. */
NODISCARD int replica_propose(struct replica *r, struct repl_entry *entry, struct err *e);
/* Asks whether this replica still leads. Calls io.confirmed(read, true) once a majority has
 * confirmed it by answers to a question asked after this call, and everything committed before the
 * call is applied. Calls it with false when this replica stops leading, or after some ten seconds:
 * a waiting read holds memory, and an answer may never come. */
void replica_confirm(struct replica *r, uint64_t read);
/* The entry before the first one is this now: older ones were dropped from the log. */
void replica_dropped(struct replica *r, uint64_t base_index);
/* True if a snapshot of the leader of `term`, up to (index, its term), may replace the database.
 * False: nothing of it is needed, or the sender leads no more. */
bool replica_wants_snapshot(struct replica *r, uint64_t term, uint64_t index);
/* The database is being replaced from now on: nothing is to be applied to it. */
void replica_installing(struct replica *r);
/* It was: the database is as of index now. */
void replica_installed(struct replica *r, uint64_t index, uint64_t index_term);
/* A peer has installed one, or it came to nothing (index 0): entries follow. */
void replica_snapshot_sent(struct replica *r, const char *to, uint64_t index);

/* ---- state ---- */
struct replica_state {
    enum replica_role role;
    uint64_t term;        /* highest promised */
    uint64_t record_term; /* of the newest record */
    const char *leader;   /* of the newest record; "" unknown */
    /* The node that leads although the newest record does not say so: a later record has not come
     * here, or the leader that it names has not begun. Entries of its term came a moment ago, of
     * the latest term known here. Only a leader that a record names sends such. "": none. */
    const char *follows;
    uint64_t epoch; /* rises when it stops leading, not when it continues in its next record */
    uint64_t base_index, last_index, durable, commit, applied;
    bool member, learner; /* of the newest record */
    bool silent, no_database;
    bool opened;            /* it leads, or will once a majority has the first entry of its term */
    uint64_t leader_commit; /* as its leader reported last; 0: no leader has reported yet */
    uint64_t all_have; /* all members and learners; the leader's last report, or known as leader */
    /* Named leader, and not leading because entries up to here are committed, and no log of the
     * replicas that promised reaches as far; 0: this is not so. */
    uint64_t lacks;
};
struct replica_state replica_state(const struct replica *r);
uint64_t replica_log_term_at(const struct replica *r, uint64_t index); /* 0: not known */
/* The n-th other replica of the newest record: false past the last. `match`: fsynced there, as far
 * as known; meaningful while leading. */
struct replica_peer {
    const char *name;
    uint64_t match;
    bool member, learner, former, snapshot;
    bool no_room;          /* it reported that its disk is as good as full */
    uint64_t reclaimed;    /* its last report; 0: nothing yet, or it is of an older version */
    uint32_t silent_ticks; /* since it answered */
    /* It lacks entries, and has acked none for so long: its disk hangs, or it has no replica. 0
     * while a snapshot is on its way. */
    uint32_t stuck_ticks;
};
bool replica_peer(const struct replica *r, size_t n, struct replica_peer *ret);
/* Least index that all members and learners have fsynced; while leading. */
uint64_t replica_all_have(const struct replica *r);

#endif

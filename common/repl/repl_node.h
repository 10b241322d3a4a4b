/* SPDX-License-Identifier: Apache-2.0
 *
 * repl_node.h: a replica at work in a process. State machine and messages are on the loop. The log
 * has a thread that fsyncs for many entries at once, the database a thread that applies them. In
 * simulation (simulated) all three run on the loop.
 *
 *   kv_repl (any thread) ──propose──> loop: replica.c ──> log thread: append, fsync ──> loop
 *          ^                           │  ^                                               │
 *          │                           v  │ RPC_REPL_*                                    v
 *          └────── applied ──────── apply thread <──────────────── commit ────────────────┘
 *
 * A hub serves the RPC_REPL methods of one rpc_node for all replicas of the process.
 *
 * Thread: the loop's, unless said otherwise. Callbacks are on the loop.
 */
#ifndef COMMON_REPL_REPL_NODE_H
#define COMMON_REPL_REPL_NODE_H

#include "common/obs/metrics.h"
#include "common/repl/log/rlog.h"
#include "common/repl/protocol/replica.h"
#include "common/rpc/rpc.h"
#include "common/store/kv/kv.h"

struct copy_faults;
struct repl_hub;
struct repl_known {
    uint64_t term; /* of the record of a shard; 0: none is known */
    uint64_t map;  /* its version */
};
struct repl_hub_opts {
    struct rpc_node *rpc; /* serves RPC_REPL_* from now on; must outlive the hub */
    struct loop *loop;
    struct metrics *metrics;
    /* rpc address of a node by name, NULL: not known (now). */
    const char *(*addr)(void *cookie, const char *name);
    /* May be NULL, both. True: the coordination service lost data, so a record that is later than
     * this one was made without knowing it: no leader of a later term is followed, and peers are
     * sent this node's knowledge. */
    bool (*known)(void *cookie, uint32_t shard, struct repl_known *ret);
    void (*told)(void *cookie, uint32_t shard, const struct repl_known *k); /* from a peer */
    void *cookie;
    uint64_t digest_rate;   /* bytes per second read to sum up databases, of all nodes; 0: 40 MiB */
    uint64_t snapshot_rate; /* bytes per second of databases sent, to all peers; 0: any */
    uint64_t log_bytes;     /* repl_hub_log_bytes */
};
struct repl_hub *repl_hub_new(const struct repl_hub_opts *o);
void repl_hub_free(struct repl_hub *h); /* after its nodes; NULL is fine */

/* The newest entries of all logs may hold so much memory together, 32 MiB of one log; 0: no other
 * limit. Above the limit the log with most in memory drops its oldest entries; a reader then gets
 * them from disk. */
void repl_hub_log_bytes(struct repl_hub *h, uint64_t bytes_max);
/* Bytes of these entries, and of entries on their way from logs to databases. */
uint64_t repl_hub_log_used(const struct repl_hub *h);

struct repl_node;
struct repl_node_opts {
    struct repl_hub *hub;
    uint32_t shard;
    const char *self;         /* this node's name */
    const char *dir;          /* of the log; created */
    const struct rlog_fs *fs; /* NULL: the system's */
    struct kv *db;            /* owned from repl_node_new on, also on failure */
    bool simulated;           /* no threads: log and apply run on the loop */
    uint32_t mutants;         /* tests only: enum replica_mutant */
    uint64_t log_bytes_max;   /* beyond it the log's prefix goes though a peer has not got it; 0: 1
                                 GiB */
    uint64_t segment_bytes;   /* 0: 64 MiB */
    /* Role, term or epoch changed: look at repl_node_state. */
    void (*role)(void *cookie);
    /* The record of this term may be marked as established in the coordination; repeated. */
    void (*establish)(void *cookie, uint64_t record_term);
    /* It is named leader and cannot be: `name` has entries that are too old to be fetched. A record
     * of the next term should name it: by record_next_leader, or, if it is only a previous member,
     * by a record that restores prev_members. */
    void (*prefer)(void *cookie, const char *name);
    /* The log or database failed (disk): nothing more is done here; free it, open it again. */
    void (*failed)(void *cookie, const struct err *why);
    /* May be NULL. A replica's rows differ; repaired: from those of a majority, it gets a snapshot;
     * else it is not known which rows are right. */
    void (*differs)(void *cookie, const char *name, bool repaired);
    void *cookie;
    uint64_t digest_every_ms; /* rows of all replicas are compared so often (digest.h); 0: never */
    /* Databases go out and come in as files (copy.h) where these are given; else as rows. */
    const char *copy_dir; /* for files of copies, on the volume of the database; created */
    uint64_t (*room)(void *cookie); /* bytes they may take there; NULL: any */
    /* A received copy is complete: stop this node, have copy_install (copy_in.h) put it in place,
     * open again. */
    void (*copied)(void *cookie);
    const struct copy_faults *copy_faults; /* tests only */
    /* Where the database is kept, as files, before it is emptied because its rows differ from those
     * of a majority, which may be wrong. On its volume. Not if the folder exists already, or that
     * fails. NULL: nowhere. */
    const char *keep_dir;
    bool admits; /* a log that has not begun may have been lost: the node sends nothing until
                    repl_node_admit */
};
/* Opens the log, applies nothing yet. A database with rows that never had a log (the only copy so
 * far) becomes the log's first entry: its node must be alone in the first record, and others be
 * added to it. A database that was lost is asked for (a snapshot). ERR_CORRUPT, ERR_IO, ... */
NODISCARD int repl_node_new(const struct repl_node_opts *o, struct repl_node **ret, struct err *e);
/* Stops (what waits fails with ERR_UNAVAILABLE), joins the threads, closes log and database. done
 * runs on the loop, behind all else; the node is gone then. Handles of kv_repl must be closed
 * before. */
void repl_node_stop(struct repl_node *n, void (*done)(void *cookie), void *cookie);

/* Ends all writes here: waiting ones fail with ERR_UNAVAILABLE. The database stays open
 * for readers until repl_node_stop. For a leader that is to end without a majority. */
void repl_node_halt(struct repl_node *n);

/* The newest record known; call it at each change. */
void repl_node_record(struct repl_node *n, const struct repl_record *rec);
/* Whether the disk has room. Leaders are informed; nothing else changes here. */
void repl_node_room(struct repl_node *n, bool room);
/* Rows that deletes purged up to this entry are in no file here any more (replicas_reclaim.c). */
void repl_node_reclaimed(struct repl_node *n, uint64_t index);
/* Drops all present entries from the log, once the database was synced and all members have it. */
void repl_node_shed(struct repl_node *n);
/* True if the whole log is applied, so that a new handle may be opened. Otherwise entries that an
 * earlier handle proposed may still change the database under a store that has just read it. */
bool repl_node_drained(const struct repl_node *n);
/* The database stays open until it is let go of, on the loop. False: it is being closed. */
bool repl_node_hold(struct repl_node *n);
void repl_node_release(struct repl_node *n);
/* True if a reader other than the store uses an older state: a comparison, a copy by rows, a former
 * leader's handle. */
bool repl_node_reads_past(const struct repl_node *n);
/* It is established now that no member counts on an earlier log of this node (replica_admit). */
void repl_node_admit(struct repl_node *n);
struct replica_state repl_node_state(const struct repl_node *n);
bool repl_node_peer(const struct repl_node *n, size_t i, struct replica_peer *ret);
/* A copy that comes in, as files or as rows. */
struct repl_copy_state {
    const char *from;      /* NULL: none */
    bool rows;             /* `bytes` are of rows, which take less room when they are stored */
    uint64_t bytes, total; /* here, of; total 0: not known yet; of rows it never is */
    const char *why;       /* NULL, or why it does not get on */
};
struct repl_copy_state repl_node_copy(const struct repl_node *n);
/* done(0) when it is sure that this replica still leads and has applied all writes acked before
 * this call; ERR_UNAVAILABLE otherwise, or after some ten seconds. Exactly once, later. */
void repl_node_confirm(struct repl_node *n, void (*done)(void *cookie, int code), void *cookie);
/* The database below, for a caller that holds the replica (repl_node_hold) and bypasses the log
 * knowingly; kv_repl.h for all others. */
struct kv *repl_node_db(struct repl_node *n);
/* Statistics of the database. False: the replica is being stopped, and another thread may be
 * closing it. */
bool repl_node_stats(const struct repl_node *n, struct kv_stats *ret);
/* For how long the log, and the database, have finished nothing although operations wait for them;
 * 0: nothing waits. A slow disk that works finishes one of them from time to time. */
struct repl_stall {
    uint64_t log_ms, apply_ms;
};
struct repl_stall repl_node_stall(const struct repl_node *n);
/* Bytes of entries that the log has taken since it was opened. */
uint64_t repl_node_appended(const struct repl_node *n);

#endif

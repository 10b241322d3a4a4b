/* SPDX-License-Identifier: Apache-2.0
 *
 * repl_node_impl.h: what the files of a node at work share: repl_hub.c (messages), repl_node.c (the
 * loop), repl_disk.c (log and database), kv_repl.c. No other file includes it.
 */
#ifndef COMMON_REPL_REPL_NODE_IMPL_H
#define COMMON_REPL_REPL_NODE_IMPL_H

#include "common/base/hash.h"
#include "common/base/list.h"
#include "common/base/vec.h"
#include "common/repl/repl_node.h"
#include "common/sys/chan.h"
#include "common/sys/fiber.h"
#include "common/sys/thread.h"

#define NODE_MAGIC  MAGIC('r', 'n', 'o', 'd')
#define TICK_MS     25
#define BATCH_MAX   256  /* operations on log or database taken at once */
#define READ_MAX    1024 /* entries read from the log at once */
#define READ_BYTES  (8 * MIB)
#define CACHE_BYTES (32 * MIB) /* of the newest entries */
#define CACHE_MAX   16384
/* Writes fail if nothing was applied for so long: no majority answers, or the disk of this node
 * hangs; a disk that is only slow applies something in that time. It is longer than a push waits
 * (ack_timeout, 10 s), so that a short outage does not close the store and drop its caches. */
#define WRITE_WAIT_MS 30000

/* An operation on the log; the log thread's between log_submit and its end. */
enum log_kind { LOG_APPEND, LOG_HARD, LOG_RESET, LOG_READ, LOG_DROP, LOG_ROLL, LOG_SEAL };
enum log_purpose { FOR_PEERS, FOR_APPLY };
struct log_op {
    struct list link; /* simulated: waiting */
    enum log_kind kind;
    struct repl_entry **entries; /* owned, with references; of a read: the result */
    size_t len;
    uint64_t seq;
    uint64_t a, b; /* HARD: promised, commit; RESET: index, term; READ: from; DROP: index */
    size_t bytes_max;
    enum log_purpose purpose;
    uint64_t gen; /* of the log's contents when it was asked for */
};
struct log_end { /* from the log thread to the loop */
    struct repl_node *n;
    struct log_op *ops[BATCH_MAX];
    size_t len;
    bool wrote;
    struct rlog_state state;
    struct err err;
};
enum apply_kind { APPLY_ENTRY, APPLY_SYNC, APPLY_CALL };
struct apply_msg {
    enum apply_kind kind;
    struct repl_entry *entry;
    void (*run)(void *cookie);
    void (*done)(void *cookie);
    void *cookie;
};
struct apply_end {
    struct repl_node *n;
    struct apply_msg *calls[BATCH_MAX]; /* that ran */
    size_t calls_len;
    size_t len, slow; /* messages it had; those that may take long */
    uint64_t upto;    /* applied */
    uint64_t synced;  /* 0: no sync was asked for */
    struct err err;
};

/* A write. On the stack of its writer, which waits; a pipelined one is freed when it ends. */
struct proposal {
    struct list link;
    struct repl_node *n;
    struct repl_entry *entry;
    struct repl_pipe *pipe; /* of its handle; a reference if `begun` */
    bool begun;
    uint64_t epoch;
    uint64_t index;      /* 0: not in the log yet */
    struct chan *wake;   /* threads */
    struct fiber *fiber; /* simulated */
    struct err err;
};

struct repl_node {
    uint32_t magic;
    struct list link; /* the hub's */
    struct repl_node_opts o;
    char self[NODE_NAME_MAX + 1];
    char *keep_dir; /* owned; or NULL */
    struct loop *loop;
    struct replica *r;
    struct rlog *log;
    bool role_changed, failed, stopping;
    void (*stopped)(void *cookie);
    void *stopped_cookie;
    struct err why; /* failed */

    /* The newest entries, in order, from index cache_first on. */
    VEC(struct repl_entry *) cache;
    size_t cache_head; /* before it: gone */
    uint64_t cache_first;
    size_t cache_bytes;
    bool counted; /* by the hub */
    /* Entries read for peers, older than those. */
    struct repl_entry **old;
    size_t old_len;
    uint64_t old_first;
    bool old_reading;
    uint64_t gen;

    /* Log. */
    struct chan *log_in;
    struct thread log_thread;
    struct list log_waiting; /* simulated */
    bool log_posted;
    struct timer *lag_timer;    /* simulated: a group is being fsynced */
    struct log_end *log_flying; /* that group */
    uint64_t log_appended;
    uint64_t log_bytes, log_last;
    size_t log_out;        /* operations submitted and not ended */
    uint64_t log_moved_ms; /* monotonic: one of them ended, or the first was submitted */
    bool log_sealed;       /* rlog_state.sealed, as of the last operation that ended */
    bool dropping;
    bool shed, rolling; /* repl_node_shed: a new file is wanted, or begun */
    uint64_t rolled;    /* the last entry before it; 0: not begun yet */

    /* Database. */
    struct chan *apply_in; /* of struct apply_msg */
    struct thread apply_thread;
    VEC(struct apply_msg *) apply_waiting; /* simulated */
    bool apply_posted;
    struct timer *apply_timer; /* simulated: it takes its time */
    uint64_t commit_to, apply_next, applied, synced, applied_by_thread;
    size_t apply_flight; /* bytes handed to it and not applied */
    size_t apply_out;    /* messages submitted and not ended */
    size_t apply_slow;   /* of those: other than APPLY_ENTRY, they may take long without trouble */
    uint64_t apply_moved_ms;
    bool apply_failed; /* the apply thread's: an entry was not applied, so none behind it is */
    bool apply_reading, syncing;
    uint32_t ticks;

    /* Snapshots: the list of those sent; and the received one, if any. */
    struct list snaps;
    uint64_t snap_ids, snap_id, snap_next, snap_done, snap_bytes;
    struct digest_job *digest; /* digest.c; NULL: none yet */
    bool digest_soon;
    struct repl_copy *copy; /* copy.c; NULL: databases go as rows */
    size_t jobs;            /* repl_job.c; closing waits for them */
    bool close_later;

    /* kv_repl.c: the database as of the end of the open handle's leadership; NULL: it leads still,
     * or no handle is open. Set and cleared by the loop, read by any thread that has the handle. */
    _Atomic(struct kv_snap *) past;
    uint64_t handle_epoch;
    size_t handles;        /* the loop's */
    bool handle_over;      /* its writes failed although the epoch continues */
    uint32_t writes_ticks; /* since writes wait and nothing was applied */
    uint64_t writes_at;    /* `applied` at that time */

    /* Writes and reads that wait. */
    struct list waiting, proposed; /* of struct proposal */
    struct proposal *held;         /* MUTANT_BEGUN_SWAP: to be proposed after the next one */
    uint32_t begun;                /* MUTANT_PIPE_GOES_ON: pipelined batches so far */
    struct list reads;             /* of struct read_wait */
    uint64_t last_read;
};

struct repl_hub {
    struct repl_hub_opts o;
    struct list nodes;
    size_t nodes_len;
    uint64_t log_bytes; /* of all caches */
    struct timer *timer;
    struct list calls;  /* ours, on their way */
    struct list served; /* requests of others that are not answered, oldest first */
    size_t served_len;
    uint64_t last_ref;
    size_t digest_room;    /* bytes that may be read for digests in this tick */
    uint64_t snap_next_ms; /* the next part of a snapshot may be sent then */
    struct chan *jobs_in;  /* repl_job.c; NULL: none was needed yet */
    struct thread jobs_thread;
    struct list jobs_waiting; /* simulated */
    struct timer *jobs_timer;
    bool job_runs;
    size_t outs, serving, pulls; /* copy.c: copies for others, questions about them, coming in */
    struct metric_cell *m_copy_sent, *m_copy_taken, *m_copies;
    struct metric_cell *m_sent, *m_sent_bytes, *m_bad, *m_digests, *m_differences;
};

/* ---- for snapshots and digests ---- */
/* Runs on the apply thread between two entries, done on the loop behind it; done alone when the
 * node is being closed. */
void repl_node_on_apply(struct repl_node *n, void (*run)(void *cookie), void (*done)(void *cookie),
                        void *cookie);
struct rpc_peer *repl_hub_peer(struct repl_hub *h, const char *name); /* NULL: unknown */
struct repl_node *repl_hub_node(struct repl_hub *h, uint32_t shard);  /* NULL: none */

/* repl_hub.c */
/* True if this term's leader may be followed (repl_hub_opts.known). `known`: its sender, which does
 * not believe the service either, knows a record of that term; 0: it did not say. */
bool hub_accepts(const struct repl_hub *h, const struct repl_node *n, uint64_t term,
                 uint64_t known);
void hub_send(struct repl_hub *h, const char *to, const struct repl_msg *m);
/* repl_node.c */
void node_fail(struct repl_node *n, const struct err *why);
void node_settle(struct repl_node *n); /* after each input of the replica */
void node_tick(struct repl_node *n);
void node_message(struct repl_node *n, const struct repl_msg *m);
void node_propose(void *proposal); /* loop */
void node_io(struct replica_io *io);
void node_jobs_end(struct repl_node *n); /* one more; the node may be closed by it */
/* kv_repl.c */
void node_past(struct repl_node *n); /* the epoch may have ended; before anything more is applied */
/* repl_cache.c */
void cache_add(struct repl_node *n, struct repl_entry *x);
struct repl_entry *cache_at(const struct repl_node *n, uint64_t index); /* NULL: not here */
void cache_cut(struct repl_node *n, uint64_t index);                    /* from there on */
void cache_old_clear(struct repl_node *n);
void cache_trim_all(struct repl_hub *h);           /* to opts.log_bytes */
void cache_join(struct repl_node *n, bool counts); /* among the hub's, or no more */
/* Its part of the hub's memory for logs, for what is read at once and what waits. */
size_t cache_part(const struct repl_node *n, size_t most);
/* How much may be on its way to one peer. */
size_t cache_flight(const struct repl_node *n, size_t most);
/* repl_disk.c */
int disk_open(struct repl_node *n, struct err *e);
void disk_start(struct repl_node *n);
void disk_stop(struct repl_node *n); /* waits for the threads, closes; not on the loop if real */
void disk_append(struct repl_node *n, struct repl_entry *const *entries, size_t len, uint64_t seq);
void disk_hard(struct repl_node *n, uint64_t promised, uint64_t commit, uint64_t seq);
void disk_reset(struct repl_node *n, uint64_t index, uint64_t term, uint64_t seq);
size_t disk_entries(struct repl_node *n, uint64_t from, size_t bytes_max, struct repl_entry **ret,
                    size_t max);
void disk_apply(struct repl_node *n); /* what is committed and not handed over yet */
void disk_sync_soon(struct repl_node *n);
void disk_log_op(struct repl_node *n, enum log_kind kind, uint64_t a);
static inline uint64_t node_now_ms(const struct repl_node *n)
{
    return clock_mono_ms(loop_clock(n->loop));
}
/* repl_trim.c */
void disk_tick(struct repl_node *n);

#endif

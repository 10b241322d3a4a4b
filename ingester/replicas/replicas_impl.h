/* SPDX-License-Identifier: Apache-2.0
 *
 * replicas_impl.h: one replica and all of them, for the replicas*.c.
 */
#ifndef INGESTER_REPLICAS_REPLICAS_IMPL_H
#define INGESTER_REPLICAS_REPLICAS_IMPL_H

#include <limits.h>

#include "common/base/rate_estimate.h"
#include "common/cluster/map/progress.h"
#include "common/cluster/view/view.h"
#include "common/repl/repl_node.h"
#include "common/store/delete/reclaim.h"
#include "ingester/replicas/replicas.h"
#include "ingester/shard/shards.h"

enum replica_at {
    AT_NOTHING,   /* no database is open */
    AT_OPENING,   /* the database */
    AT_FOLLOWING, /* the node runs; it may lead, but nothing is served */
    AT_STARTING,  /* the store is opened on top of it */
    AT_SERVING,
    AT_CLOSING,  /* the store */
    AT_STOPPING, /* the node */
    AT_REMOVING, /* the files: it belongs to others now */
};

struct replica_of { /* one shard */
    struct replicas *rs;
    uint32_t shard;
    enum replica_at at;
    bool wanted;            /* the record names us */
    bool failed;            /* disk: everything is closed and opened again */
    uint64_t retry_ms;      /* monotonic: not opened or started before */
    uint64_t pause_ms;      /* after a failure; doubles */
    uint64_t unfit_ms;      /* until then another should lead; 0: not so */
    struct repl_node *node; /* FOLLOWING to STOPPING */
    uint64_t epoch;         /* of STARTING, SERVING */
    uint64_t served_ms;     /* monotonic: SERVING since */
    /* The log here has not begun: it is asked whether an earlier one counts; replicas_cluster.c */
    bool asking, noted; /* noted: that there is a log here */
    bool spoke;         /* there was one, in this process */
    uint64_t ask_ms;    /* asked again then */
    int64_t lost_rev;   /* of the record that counts on it; 0: none does */
    /* replicas_majority.c: named, and without a majority, since; in which term; how far it was. */
    uint64_t alone_ms, alone_term, alone_last;
    uint64_t full_ms, full_term; /* without room asked to lead, first then, in this term */
    uint64_t hung_term;          /* given away in this term since the disk hung */
    bool must_return;            /* its log was gone: until it is a member again */
    uint64_t copy_why;           /* of what was logged last (replicas_copy_scan) */
    struct rate_estimate copy_speed, log_speed;
    uint64_t copy_said_ms; /* how far it is was logged then */
    uint64_t prefers;      /* times it had another one lead since it served last */
    /* replicas_reclaim.c: bytes of deletes that are purged. */
    struct reclaim reclaim;   /* the job's while it runs */
    uint64_t reclaim_ms;      /* looked at next */
    uint64_t reclaimed;       /* nothing is left here as of this entry */
    bool reclaim_shed;        /* but in the log */
    uint64_t round;           /* leading: as of which entry copies are asked; 0: none are */
    bool round_told;          /* those that answer have it */
    bool round_tells;         /* the store is being told */
    struct reclaim_list list; /* of the round */
    uint64_t left_term;       /* replicas_orphaned.c: of the record that does not name us */
    bool left_kept;
    /* Of the job (blocking_job.h) in OPENING and STARTING: while it runs, the loop leaves them
     * alone. */
    size_t shares; /* of memory, read when it began */
    struct kv *kv;
    struct store *store;
    struct err err;
    struct err trouble; /* why it stores nothing, since it failed or could not be opened; code 0 */
    /* replicas_corrupt.c. The job's in OPENING: */
    bool others_have;  /* another node has the shard; set before the job begins */
    bool damage_new;   /* the database was renamed by this job */
    struct err damage; /* what was wrong with a database that was renamed; code 0: it is here */
};

struct replicas {
    struct replicas_opts o;
    struct ingester *in;
    char self[NODE_NAME_MAX + 1];
    uint64_t life; /* of this process; random */
    struct repl_hub *hub;
    struct view *view;
    uint64_t store; /* of the view */
    struct timer *timer;
    struct replica_of *at[SHARDS_MAX];
    size_t len;
    struct member *member; /* replicas_cluster.c, NULL without a coordination service */
    struct lead *lead;
    struct controller *controller;
    struct copy_load *weigh;
    uint64_t report_ms; /* when progress is reported next */
    bool handing_over, stopping, step_posted, freed;
    bool too_many;  /* said once */
    bool left;      /* drained, as the map says; said */
    bool swept;     /* data of shards that moved away was looked for */
    bool caught_up; /* since the start, once; or it took too long */
    uint64_t catch_up_until_ms;
    bool full;                      /* the disk reserve is nearly reached */
    struct reclaim_job *reclaiming; /* NULL: none runs */
    struct err behind;              /* why not, while it is not */
    struct {
        uint64_t call, version, next_ms; /* 0: none; what it is about; asked again then */
    } doubt;                             /* step_abort.c */
    void (*handed_over)(void *cookie);
    void *handed_cookie;
    uint64_t hand_over_until_ms;
    void (*stopped)(void *cookie);
    void *stopped_cookie;
    struct metric_cell *m_replicas, *m_leading, *m_started;
    struct metric_cell *m_registered, *m_rival; /* NULL without a coordination service */
};

static inline uint64_t replicas_now_ms(const struct replicas *rs)
{
    return clock_mono_ms(rs->in->ctx->env->clock);
}
/* The steps that are due, soon. */
void replicas_step_soon(struct replicas *rs);

/* Are the copies within reach of their leaders, since the start? replicas_ask.c */
void replicas_look_behind(struct replicas *rs);

/* ---- replicas_damaged.c ---- */
/* It could not be opened: if that is for its log's bytes, it begins without it next time. */
void damaged_look(const struct replica_of *r);

/* ---- replicas_corrupt.c: a database that lacks rows or cannot be read ---- */
#define CORRUPT_KEPT "differing-shard" /* files of a database that differed from other copies */
/* True if another node has the shard, as far as is known here. On the loop, before corrupt_open. */
bool corrupt_others_have(const struct replica_of *r);
/* Opens the database in dir into r->kv; r->err says why not. If it is damaged and other nodes have
 * the shard, it is renamed, and an empty one is opened. In the job. */
NODISCARD int corrupt_open(struct replica_of *r, const char *dir);
void corrupt_opened(struct replica_of *r); /* logs that; on the loop */
void corrupt_look(struct replica_of *r);   /* has it been fetched? */

/* ---- replicas_copy.c: databases as files, on their way ---- */
/* Where; false: as rows. */
bool copy_dir(const struct replica_of *r, char dir[PATH_MAX]);
const struct copy_faults *copy_faults(const struct replica_of *r); /* NULL but in simulation */
uint64_t copy_room_left(void *replica);
void replicas_copy_present(void *replica);
/* Before the database in db is opened; where it is. */
NODISCARD int copy_put_in_place(const struct replica_of *r, const char *db, struct err *e);
void copy_remove_folder(const struct replica_of *r);
void replicas_copy_scan(
    struct replicas *rs); /* tells how far one is, and why one does not come in */
void copy_json(const struct replica_of *r, struct json *j);
/* Reports the progress of a copy that comes in, and of a log that catches up. */
void copy_report(const struct replica_of *r, struct progress_shard *ret);

/* ---- replicas_disk.c: a disk that is full, fails or hangs ---- */
void replicas_look_at_disk(struct replicas *rs);
/* Hands the lead of this shard over to the live member with most of the log. False: no other member
 * lives. `why` is a constant, which is logged with the new leader. */
bool replicas_give_lead_away(struct replica_of *r, const char *why);

/* ---- replicas_reclaim.c: what deletes left in files ---- */
void reclaim_tick(struct replicas *rs);
/* Its node is closed. */
void reclaim_forget(struct replica_of *r);

struct replica_of *replica_find(const struct replicas *rs, uint32_t shard);
void replica_add(struct replicas *rs, uint32_t shard); /* or not: there may be too many */
/* A member, learner, or former member. */
bool replica_concerns(const struct replicas *rs, const struct repl_record *rec);
/* The folder "<what>-<shard>"; false: the path is too long. Any thread. */
bool replica_path(const struct replica_of *r, const char *what, char dir[PATH_MAX]);
void replica_remove_files(const struct replica_of *r); /* aside; nothing of them is open */
void replica_remove_folder(const char *dir);           /* a flat one */
void replica_step(struct replica_of *r);
/* replicas_promises.c: repl_hub_opts */
bool replicas_known(void *cookie, uint32_t shard, struct repl_known *ret);
void replicas_promises_served(void *cookie, uint32_t shard, const struct repl_known *k);
/* replicas_orphaned.c: once, as soon as the records are known from the service itself */
void replicas_sweep(struct replicas *rs);
struct replica_state replica_now(const struct replica_of *r);
/* The record says we lead. */
bool replica_is_named(const struct replica_of *r);
/* Of a shard that is led here: has the member acked nothing for three seconds? */
bool replica_peer_is_mute(const struct replica_peer *p);

/* ---- replicas_cluster.c: our part in the cluster ---- */
void cluster_join(struct replicas *rs);
void cluster_free(struct replicas *rs);
void cluster_tick(struct replicas *rs);
void cluster_leave(struct replicas *rs); /* all nodes learn it at once */
/* Without a coordination service these do nothing. */
void cluster_established(struct replicas *rs, uint32_t shard, uint64_t record_term);
void replicas_give_lead(struct replicas *rs, uint32_t shard, const char *to, const char *why);
/* Gives the lead away after a while without a majority (replicas_majority.c). */
void replicas_lost_majority(struct replica_of *r);
/* It was not opened to be served, again and again: others, whose databases are their own, lead. */
void cluster_unfit(struct replica_of *r);
/* For a silent replica, in every step: asks, and ends its silence when that is safe. */
void cluster_admit(struct replica_of *r);
/* For a replica whose log has begun: it may be older than these notes, or adopted. */
void cluster_note(struct replica_of *r);
void cluster_forget(struct replica_of *r); /* its node is being closed */
/* step_abort.c: asks whether what is announced may be taken for never announced. */
void step_abort_tick(struct replicas *rs);
void step_abort_end(struct replicas *rs);
/* Another store is followed: what was written down there may not be. */
void cluster_store_anew(struct replica_of *r);

#endif

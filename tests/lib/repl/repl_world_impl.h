/* SPDX-License-Identifier: Apache-2.0
 *
 * repl_world_impl.h: the world of repl_world.h, shared by repl_world.c (what happens) and
 * repl_world_io.c (events, what replicas put out, the oracle of commits), repl_world_rec.c
 * (records), repl_world_end.c (whole again).
 */
#ifndef TESTS_LIB_REPL_REPL_WORLD_IMPL_H
#define TESTS_LIB_REPL_REPL_WORLD_IMPL_H

#include "common/base/prng.h"
#include "common/base/vec.h"
#include "common/repl/log/rlog.h"
#include "common/repl/protocol/replica.h"
#include "tests/lib/repl/repl_world.h"
#include "tests/lib/repl/rlog_fake.h"

enum { NODES = 5, LOG_MAX = 3000, STEPS = 4000, HEAL_STEPS = 60000 };

enum event_kind {
    EV_MESSAGE,
    EV_LOG,
    EV_TICK,
    EV_APPLY,
    EV_RECORD,
    EV_SNAPSHOT,
    EV_COPY,
    EV_BLINK,
    EV_ASK
};
struct event {
    uint64_t due, number;
    enum event_kind kind;
    int node, from; /* from: of a message, a snapshot */
    uint64_t life;  /* of the node when it was made; ticks, logs and applies die with it */
    struct repl_msg msg;
};
struct op {
    enum { OP_APPEND, OP_HARD, OP_RESET } kind;
    uint64_t a, b, seq;
    struct repl_entry **list; /* owned, referenced */
    size_t n;
};
struct ask {
    uint64_t id, need;
};
struct put {
    uint64_t index, term, tag, epoch;
};
struct node {
    char name[8];
    bool up;
    uint64_t life;
    struct rlog_fake *disk;
    struct rlog *log;
    struct replica *r;
    VEC(struct op) ops;
    bool log_event, apply_event;
    uint64_t establish; /* the record's term */
    char prefer[8];
    bool begun; /* what the coordination keeps: it opened a log once */
    bool kept;  /* its log would survive a power cut */
    bool lost;  /* it would not, or is gone, and a record may count on it */
    struct {    /* the log as the replica thinks it is */
        uint64_t term, tag;
    } mirror[LOG_MAX];
    uint64_t commit;
    /* the database: all applied so far, and what of it survives a power cut */
    uint64_t db[LOG_MAX], db_term[LOG_MAX];
    uint64_t applied, synced;
    bool no_db;
    /* a copy that comes in as files, as of copy_index; 0: none */
    uint64_t copy[LOG_MAX], copy_term[LOG_MAX], copy_index;
    bool copy_lost; /* with the disk */
    VEC(struct ask) asks;
    VEC(struct put) puts;
    uint64_t seen_role_term;
    uint64_t lead_epoch; /* of replica_state, + 1: it leads, or led, in this one */
};

struct world {
    struct prng prng;
    uint32_t mutants;
    uint64_t now, number, tags, ids;
    VEC(struct event) heap;
    struct node nodes[NODES];
    struct repl_record rec; /* the coordination's truth */
    bool cut[NODES][NODES];
    bool blind[NODES]; /* gets no records */
    uint64_t hold;     /* cuts stay until then */
    bool calm, mean, blinks, wipes, returns;
    int away; /* world_returns: the node that is cut off, + 1, and until when */
    uint64_t away_until;
    uint8_t maker[1 << 16]; /* by tag: the node that took the write, + 1 */
    double marking;         /* chance of each step that a record is marked as established */
    double lost, doubled;
    uint64_t delay_max;
    struct {
        uint64_t term, tag;
    } committed[LOG_MAX];
    uint64_t committed_len, acked_index;
    VEC(uint64_t) acked;        /* tags */
    VEC(uint64_t) leader_terms; /* term, node, term, node... */
    struct repl_world_stats stats;
    char broken[300];
};
extern struct world repl_w;
#define w repl_w

void world_broken(const char *fmt, ...) PRINTF(1, 2);
uint64_t world_below(uint64_t n);
void world_push(struct event ev, uint64_t delay);
struct event world_pop(void);
void world_node_event(struct node *n, enum event_kind kind, uint64_t delay);
struct node *world_node(const char *name);
uint64_t world_tag(const struct repl_entry *x);
struct replica_io world_io(struct node *n);
void world_copy(struct node *n, const struct node *from); /* of from's database, to n */
/* repl_world_rec.c */
void world_record(const struct repl_record *rec);
void world_prefer(const char *name, struct repl_record *next);
void world_mend(void); /* what a controller does about members that lost their disks */
void world_change_record(void);
bool world_returns(void); /* true: it did something */
/* repl_world_end.c */
bool world_whole(void);
void world_check_end(void);
bool world_does_unmarked(void); /* while no service marks records */

#endif

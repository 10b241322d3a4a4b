/* SPDX-License-Identifier: Apache-2.0
 *
 * record.h: which nodes keep a shard: one small document per shard, changed by compare-and-swap
 * only.
 *
 * A record names the term, its leader, the members (a majority of which commits) and the learners
 * (which receive the log and do not count). Until it is established (a majority of the members has
 * an entry of its term) it also names the previous members (`prev_members`, of the last term that
 * was established).
 *
 * One function says which record may follow which, record_may_follow; every writer asks it:
 *   same term      `established` is set (prev_members go), or learners are added or removed;
 *   term + 1       another leader, or the members differ by at most one. Members change only
 *                  where the old record was established, or back to prev_members.
 * So any majority of the members of one term meets every majority of the previous term.
 *
 * A plain value: copy it, no memory hangs from it.
 */
#ifndef COMMON_CLUSTER_MAP_RECORD_H
#define COMMON_CLUSTER_MAP_RECORD_H

#include "common/base/buf.h"
#include "common/base/err.h"

#define NODE_NAME_MAX      63 /* bytes: letters, digits, '-', '_', '.'; first a letter or digit */
#define REPLICAS_MAX       7
#define RECORD_SET_MAX     16 /* twice the replicas, and two: all change, one on its way */
#define RECORD_BYTES_MAX   (16 * KIB)
#define CLUSTER_SHARDS_MAX 4096
#define RECORD_TERM_MAX    (UINT64_C(1) << 40) /* replicas shift terms (repl/protocol/replica.h) */

struct name_set {
    char names[RECORD_SET_MAX][NODE_NAME_MAX + 1]; /* in order; no name twice */
    uint32_t len;
};
struct repl_record {
    uint64_t term; /* from 1; 0: no replication (coordination none) */
    char leader[NODE_NAME_MAX + 1];
    struct name_set members;      /* 1 to RECORD_SET_MAX; the leader is one */
    struct name_set learners;     /* none of the members */
    struct name_set prev_members; /* empty once established, and in a shard's first record */
    bool established;
};

bool node_name_ok(struct str name);
bool name_set_has(const struct name_set *s, const char *name);
/* False: full, or it is in it. */
bool name_set_add(struct name_set *s, const char *name);
bool name_set_del(struct name_set *s, const char *name); /* keeps the order; false: not in it */
bool name_set_eq(const struct name_set *a, const struct name_set *b); /* whatever the order */

/* Checks the rules of a single record. ERR_INPUT. */
NODISCARD int record_check(const struct repl_record *r, struct err *e);
/* ERR_CONFLICT says which rule `next` breaks. */
NODISCARD int record_may_follow(const struct repl_record *old, const struct repl_record *next,
                                struct err *e);
bool record_eq(const struct repl_record *a, const struct repl_record *b);

/* The next record with another leader (a member), or the same one again: term + 1. */
void record_next_leader(const struct repl_record *old, const char *leader, struct repl_record *ret);
/* Adds or removes one member; the old record must be established. If the leader is removed,
 * `leader` takes over, so it must not be the last member. term + 1. */
NODISCARD int record_next_add(const struct repl_record *old, const char *name,
                              struct repl_record *ret, struct err *e);
NODISCARD int record_next_remove(const struct repl_record *old, const char *name,
                                 const char *leader, struct repl_record *ret, struct err *e);
/* Undoes a change of members that is not established: the members are the previous ones again, and
 * `leader` is one of them. A node that is no longer a member becomes a learner and keeps its copy.
 * term + 1. False: there is no change to undo, or `leader` was not a previous member. */
NODISCARD bool record_undo_member_change(const struct repl_record *old, const char *leader,
                                         struct repl_record *ret);
void record_established(const struct repl_record *old, struct repl_record *ret);

/* JSON, in one line; unknown keys are skipped, so that a newer writer's record can be read. */
void record_write(const struct repl_record *r, struct buf *out);
NODISCARD int record_parse(struct str text, struct repl_record *ret, struct err *e);

#endif

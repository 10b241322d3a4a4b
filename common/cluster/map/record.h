/* SPDX-License-Identifier: Apache-2.0
 *
 * record.h: who has a shard: one small document per shard, changed by compare-and-swap only.
 *
 * A record names the term, its leader, the members (whose majority commits), the learners (who get
 * the log and count for nothing), and, until it is established (a majority of the members has an
 * entry of its term), the members before (`prev_members`, of the last term that was established).
 *
 * What may follow what is one function, record_may_follow, asked by whoever writes:
 *   same term      `established` set (prev_members go), or learners come and go;
 *   term + 1       another leader, or the members changed by one at most. Members change only
 *                  where the old record was established, or back to prev_members.
 * So any majority of the members of one term meets every majority of the term before.
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

/* What holds in each record by itself. ERR_INPUT. */
NODISCARD int record_check(const struct repl_record *r, struct err *e);
/* ERR_CONFLICT says which rule `next` breaks. */
NODISCARD int record_may_follow(const struct repl_record *old, const struct repl_record *next,
                                struct err *e);
bool record_eq(const struct repl_record *a, const struct repl_record *b);

/* The next record with another leader (a member), or the same one again: term + 1. */
void record_next_leader(const struct repl_record *old, const char *leader, struct repl_record *ret);
/* One more or one less. Of an established record; a leader that goes must not be the last member:
 * `leader` takes over. term + 1. */
NODISCARD int record_next_add(const struct repl_record *old, const char *name,
                              struct repl_record *ret, struct err *e);
NODISCARD int record_next_remove(const struct repl_record *old, const char *name,
                                 const char *leader, struct repl_record *ret, struct err *e);
/* A change of members that is not established is taken back: the members are those of before, one
 * of which leads; who is none of them any more becomes a learner and keeps what it has. term + 1.
 * False: there is nothing to take back, or `leader` was none of them. */
NODISCARD bool record_next_back(const struct repl_record *old, const char *leader,
                                struct repl_record *ret);
void record_established(const struct repl_record *old, struct repl_record *ret);

/* JSON, in one line; unknown keys are skipped, so that a newer writer's record can be read. */
void record_write(const struct repl_record *r, struct buf *out);
NODISCARD int record_parse(struct str text, struct repl_record *ret, struct err *e);

#endif

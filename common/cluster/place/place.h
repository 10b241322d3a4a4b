/* SPDX-License-Identifier: Apache-2.0
 *
 * place.h: which nodes should keep which shards, which of these nodes should lead, and the next
 * step there from the present places. Pure: everything goes in, nothing is kept, equal input gives
 * equal output whatever its order.
 */
#ifndef COMMON_CLUSTER_PLACE_PLACE_H
#define COMMON_CLUSTER_PLACE_PLACE_H

#include "common/cluster/map/record.h"

struct place_node {
    const char *name, *zone; /* zone "": each such node is a zone of its own */
    bool away;               /* does not live: keeps what it has, and leads nothing more */
};
struct place_shard {               /* as it is */
    const struct repl_record *now; /* NULL: no node has it yet */
    uint64_t bytes;                /* that a copy of it stores; 0: not known */
    uint64_t rate;                 /* bytes per second that it takes; 0: not known, or nothing */
    uint32_t able;                 /* bit i: the i-th member could lead now */
    bool stay;                     /* its leader changed a moment ago: not for evenness again */
};
struct place_in {
    const struct place_node *nodes; /* in any order, each name once; at least one */
    size_t nodes_len;
    const struct place_shard *shards;
    uint32_t shards_len, replicas;
};

/* The wanted replicas of all shards, the leader first: `replicas` each (fewer where there are fewer
 * nodes), no two in a zone while there are zones enough, every node nearly as many as its share and
 * none much more bytes than others. As few replicas move as that takes: a node that joins gets its
 * share and nothing else moves. Once the places are as wanted, the same places stay wanted. */
void placement_target(const struct place_in *in, struct name_set *ret /* one per shard */);

/* Places all shards without regard to present places: a function of the nodes alone, so that all
 * processes that know the nodes get the same result. More moves between two results of this than
 * between two of placement_target. */
void place_fresh(const struct place_node *nodes, size_t n, uint32_t shards, uint32_t replicas,
                 struct name_set *ret);

/* Chooses leaders so that nodes have equal work: names in `wanted` change places, the leader comes
 * first. At most `max` shards get another leader, first those that help most; returns how many.
 * `wanted` names nodes of `in` only. No lead moves while nodes are even, or nearly. */
uint32_t place_leaders(const struct place_in *in, struct name_set *wanted, uint32_t max);

/* The work of a node for a shard, for each byte: the cost of leading and that of following. A
 * leader decodes nothing either, but it dedupes, seals, answers (tests/bench/bench_cluster.py). */
#define PLACE_LEADS   9
#define PLACE_FOLLOWS 4
/* A shard that takes nothing counts as if it took so much. */
#define PLACE_IDLE_RATE (UINT64_C(64) << 10)

/* The state of the replicas of one shard. */
struct place_facts {
    struct name_set live;   /* answer now */
    uint32_t replicas;      /* never fewer members than this by a step */
    struct name_set synced; /* have the leader's log, or nearly: may become members, lead */
    struct name_set full;   /* have no room left: should not lead */
    struct name_set lost;   /* members whose log is gone: no votes until they join again */
    struct name_set gone;   /* dead for so long that other nodes should get their copies */
};
enum place_kind {
    PLACE_NOTHING, /* it is as wanted, or something must happen first */
    PLACE_LEARN,   /* learners changed: `to` is the whole record */
    PLACE_MEMBER,  /* a learner becomes a member */
    PLACE_REMOVE,  /* a member goes */
    PLACE_LEAD,    /* another member leads */
};
struct place_step {
    enum place_kind kind;
    const char *name;      /* the node that the step concerns; within `wanted` or `now` */
    struct repl_record to; /* the record to write */
};
/* One step from `now` towards `wanted`. Members first grow and then shrink, so that there are never
 * fewer than `wanted` has. A living member is never removed in favour of a dead one: it stays, also
 * when its node is drained, until `replicas` other members live. */
void place_next(const struct repl_record *now, const struct name_set *wanted,
                const struct place_facts *facts, struct place_step *ret);

#endif

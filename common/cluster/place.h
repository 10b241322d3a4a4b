/* SPDX-License-Identifier: Apache-2.0
 *
 * place.h: which nodes should keep which shards, and the next step there from where things are.
 * Pure: everything goes in, nothing is kept, equal input gives equal output whatever its order.
 */
#ifndef COMMON_CLUSTER_PLACE_H
#define COMMON_CLUSTER_PLACE_H

#include "common/cluster/record.h"

struct place_node {
    const char *name, *zone; /* zone "": each such node is a zone of its own */
};

/* The wanted replicas of all shards, the leader first: `replicas` each (fewer where there are fewer
 * nodes), no two in a zone while there are zones enough, every node nearly as many as its share,
 * leaders spread alike. Few replicas move when a node comes or goes. Nodes in any order, each name
 * once; at least one. */
void place_wanted(const struct place_node *nodes, size_t n, uint32_t shards, uint32_t replicas,
                  struct name_set *ret /* one per shard */);

/* What is known about the replicas of one shard. */
struct place_facts {
    struct name_set live;   /* answer now */
    uint32_t replicas;      /* never fewer members than this by a step */
    struct name_set synced; /* have the leader's log, or nearly: may become members, lead */
    struct name_set full;   /* have no room left: should not lead */
    struct name_set lost;   /* members whose log is gone: no votes until they join anew */
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
    const char *name;      /* whom it is about; within `wanted` or `now` */
    struct repl_record to; /* the record to write */
};
/* One step from `now` towards `wanted`. Members first grow and then shrink, so that there are never
 * fewer than `wanted` has; one who lives never makes room for one who does not. */
void place_next(const struct repl_record *now, const struct name_set *wanted,
                const struct place_facts *facts, struct place_step *ret);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * place_impl.h: nodes and shards by number, for the files that place them.
 */
#ifndef COMMON_CLUSTER_PLACE_PLACE_IMPL_H
#define COMMON_CLUSTER_PLACE_PLACE_IMPL_H

#include "common/base/mem.h"
#include "common/cluster/place/place.h"

#define PLAN_SET (2 * RECORD_SET_MAX) /* members and learners */

struct plan {
    const struct place_in *in;
    const struct place_node **nodes; /* owned; by name */
    uint32_t *zone;                  /* owned; of each node */
    uint32_t n, zones, shards, replicas;
    uint32_t *got;     /* owned; PLAN_SET per shard */
    uint32_t *got_len; /* owned */
};

void plan_init(struct plan *p, const struct place_in *in);
void plan_deinit(struct plan *p);
uint32_t plan_find(const struct plan *p, const char *name); /* p->n: none of the nodes */
static inline uint32_t *plan_got(const struct plan *p, uint32_t shard)
{
    return p->got + (size_t)shard * PLAN_SET;
}
static inline uint64_t plan_bytes(const struct plan *p, uint32_t shard)
{
    return p->in->shards[shard].bytes;
}

/* place_members.c: fills `got`. */
void plan_members(struct plan *p);
/* place_leaders.c: the leader first; at most so many shards get another one. */
uint32_t plan_leaders(struct plan *p, uint32_t max);

#endif

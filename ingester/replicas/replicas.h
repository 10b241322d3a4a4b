/* SPDX-License-Identifier: Apache-2.0
 *
 * replicas.h: the copies of shards this node keeps where shards are replicated: which, by the
 * records of the cluster (common/cluster); kept alike by common/repl; served while they lead.
 *
 * Thread: the loop's.
 */
#ifndef INGESTER_REPLICAS_REPLICAS_H
#define INGESTER_REPLICAS_REPLICAS_H

#include "common/base/json.h"
#include "common/cluster/coord/coord.h"
#include "ingester/base/state.h"

struct shard;        /* shard/shard.h */
struct cluster_dump; /* common/cluster/rebuild/cluster_dump.h */
struct replicas_opts {
    struct ingester *in;
    struct coord *coord; /* NULL: leaders never change (static). What follows outlives it */
    const char *prefix;  /* of its keys */
    const char *self;    /* this node's name */
    const char *addr, *zone;
    uint64_t id;       /* of the data folder */
    uint64_t lease_ms; /* nodes are missed for dead after about that */
};
/* Opens what the records name, now and whenever they change. in->node must be there. */
struct replicas *replicas_new(const struct replicas_opts *o);
/* Hands all leads over to other members, where these exist, and takes no new ones. Calls done after
 * that, at most some seconds later. */
void replicas_hand_over(struct replicas *rs, void (*done)(void *cookie), void *cookie);
/* Ends all remaining leads: writes fail, and a shard is closed when no thread holds it. */
void replicas_halt(struct replicas *rs);
/* Closes everything; done when it is closed. After that only free. */
void replicas_stop(struct replicas *rs, void (*done)(void *cookie), void *cookie);
void replicas_free(struct replicas *rs); /* NULL is fine */

/* Would writes to what it leads succeed, and can it take over what it follows? */
int replicas_ready(const struct replicas *rs, struct err *e);
/* Tells the watch for how long log and database of each copy have finished nothing. */
void replicas_note_stalls(const struct replicas *rs, struct disk_watch *w);
/* Does it lead these shards, which the caller holds (shards.h) since before? ok: no one else had
 * taken a write for them by the moment of this call. done is called once, later. */
void replicas_confirm(struct replicas *rs, struct shard *const *shards, size_t n,
                      void (*done)(void *cookie, const struct err *e), void *cookie);
/* The name of the shard's leader as far as this node's copy knows it better than the records that
 * came here; NULL: it does not. Borrowed for the loop's turn. */
const char *replicas_follows(const struct replicas *rs, uint32_t shard);
/* Memory of the newest entries of their logs: how much it may be, and is. */
void replicas_log_memory(struct replicas *rs, uint64_t bytes_max);
uint64_t replicas_log_used(const struct replicas *rs);
/* Serves RPC_GIVE_UP: other nodes ask this node, the controller, to abort the step it announced. */
void replicas_doubt_serve(struct ingester *in);
/* Members, this one too, whose files may have bytes of purged deletes of a shard it leads. */
uint32_t replicas_reclaim_behind(const struct replicas *rs, uint32_t shard);
void replicas_ring(const struct replicas *rs, struct json *j);         /* "replicas": [...] */
void replicas_kept(const struct replicas *rs, struct cluster_dump *k); /* what logs have promised */

#endif

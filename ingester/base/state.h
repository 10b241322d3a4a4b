/* SPDX-License-Identifier: Apache-2.0
 *
 * state.h: what the parts of one ingester share. Private to this folder.
 */
#ifndef INGESTER_BASE_STATE_H
#define INGESTER_BASE_STATE_H

#include "common/base/list.h"
#include "common/role/core/role.h"
#include "ingester/base/disk.h"
#include "ingester/base/disk_watch.h"
#include "ingester/base/hooks.h"
#include "ingester/base/options.h"

#define SHARDS_OWN_MAX 8 /* of one process, where shards do not move */

struct reads;           /* rpc_read.c */
struct builds;          /* rpc_build.c */
struct deletes;         /* rpc_delete.c */
struct store_recovery;  /* store_recovery.c */
struct retention;       /* retention.c */
struct rollups;         /* rollups.c */
struct replicas;        /* replicas.c */
struct tier;            /* tier.c */
struct placement_guard; /* placement_guard.c */
struct top_services;    /* top_services.c */
struct shard_memory;    /* shard_memory.c */
struct incarnation;     /* incarnation.c */
struct config_drift;    /* config_drift.c */
struct clocks;          /* clocks.c */
struct writers;         /* writers.c */
struct read_load;       /* read_load.c */
struct shards;          /* shards.c */

struct ingester {
    uint32_t magic;
    const struct role_ctx *ctx;
    const struct ingester_conf *conf;
    const struct exemplar_conf *exemplars;
    struct rollups *rollups; /* which labels they drop */
    struct ingester_metrics metrics;
    struct rpc_node *node;
    struct relay *relay; /* owned: calls of others for leaders */
    struct disk *disk;
    struct disk_watch *disk_watch;
    struct store_recovery *recover;
    struct scrubber *scrubber;
    struct accepts *accepts; /* rpc_accept.c */
    struct auditor *auditor;
    struct tier *tier; /* NULL: no cold tier */
    struct shards *shards;
    struct list hooks;             /* of struct shard_hook */
    struct shard_memory *division; /* of memory */
    struct replicas *replicas;     /* NULL: shards do not move, or not yet opened */
    struct incarnation *sole;      /* says when they may begin; NULL: at once */
    struct config_drift *as_made;  /* NULL: no coordination service */
    struct clocks *clocks;         /* of other processes, for the stores */
    size_t shards_own;             /* loop: they begin with equal parts of memory */
    bool moves;                    /* shards move between nodes: replicas.c has them */
    size_t index;                  /* in cluster.ingesters */

    /* Writes: loop thread. */
    size_t writes_pending;
    struct list writes;        /* those, of rpc_write.c */
    struct budget write_bytes; /* payloads and their decoding */
    struct writers *writers;   /* owned: which tenants hold write_bytes */
    struct placement_guard *placed;
    struct top_services *busy;   /* NULL: shards do not move, no controller asks */
    struct read_load *read_load; /* owned; from the start to the end of the role */
    struct reads *reads;
    struct builds *builds;
    struct retention *retention;
    struct deletes *deletes;
    size_t docs_running; /* rpc_doc.c */

    bool draining;
    struct timer *drain_poll;
    size_t drains_pending;
    void (*drained)(void *cookie);
    void *drained_cookie;
    char why[ERR_TEXT_MAX]; /* what ready() said last */
};

#define INGESTER_MAGIC MAGIC('i', 'n', 'g', 'e')

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * adopt.h: databases that had no copies so far (one process, a list of ingesters, a restored
 * backup) become the first copies of a new cluster's shards.
 *
 * The records name, for each shard, the one node whose folder has it as the only member; the
 * controller then adds the others one by one, as it does for any shard with too few copies. Two
 * things decide, and are written to the coordination service once: a plan (which node has which
 * shard), and for each node of it the number of the folder that has its name.
 *
 *   <prefix>/adopt               the plan; struct adopt_plan
 *   <prefix>/adopted/<node>      16 hex digits: common/role/cluster/cluster_source.c, node-id
 *   <prefix>/adopted-from/<node> the folder's path when it was adopted, for messages alone: a
 *                                folder is known by its number, wherever it is mounted
 *
 * Until a shard's record was established once, its only copy is in the adopted folder. So no other
 * folder may begin that shard, under whatever name it is started: adopt_check.
 */
#ifndef COMMON_CLUSTER_REBUILD_ADOPT_H
#define COMMON_CLUSTER_REBUILD_ADOPT_H

#include "common/cluster/coord/coord.h"
#include "common/cluster/map/map.h"
#include "common/cluster/map/record.h"

#define ADOPT_NODES_MAX 1000

/* Shard i is in the folder of nodes[i mod nodes_len], as a list of ingesters has it. */
struct adopt_plan {
    uint32_t shards, replicas;
    const char *const *nodes;
    size_t nodes_len;
};
void adopt_plan_write(const struct adopt_plan *p, struct buf *out);
/* Does this text say the same? */
bool adopt_plan_is(const struct adopt_plan *p, struct str text);

struct adopt_opts { /* everything is copied */
    struct coord *coord;
    const char *prefix;
    const char *self;       /* one of the plan's nodes */
    uint64_t id;            /* of our data folder */
    const char *folder;     /* its path; for messages */
    bool served;            /* its copies promised something in a cluster: it must be this one */
    const char *cluster_id; /* of the new cluster: CLUSTER_ID_LEN hex digits */
    struct adopt_plan plan;
    /* Where the data are (placement_history.h), of the plan's number of shards: the first map says
     * so, too. NULL: all services are in one shard each. */
    const struct map *places;
};
/* Makes what of it is not there yet: plan, records of all shards, our number, last map and id; so
 * it is repeated after any failure. done(NULL): the records of our shards name this node alone, and
 * no other folder can have them by this way.
 * ERR_CONFLICT: there is a cluster already, or another plan, or another folder of our name has
 * come; nothing was changed then. ERR_CONFIG: the cluster's map, which another node of the plan has
 * made, lacks some of our places. */
void cluster_adopt(const struct adopt_opts *o, void (*done)(void *cookie, const struct err *e),
                   void *cookie);

/* Is this the record that `embertree adopt` made for `self` (or that of a new cluster with one
 * copy), and was never established since? */
bool adopt_untouched(const struct repl_record *rec, const char *self);

struct adopt_folder {
    const char *self, *path;
    uint64_t id;
    bool untouched; /* a record of the view is adopt_untouched by `self` */
    bool has_logs;  /* the log of each of these shards is in the folder */
};
/* May this folder be used under this name, as far as the keys below key_adopt say? ERR_CONFLICT:
 * another folder has the data, or another node was made from this one; the text names both. */
NODISCARD int adopt_check(struct str prefix, const struct coord_reply *keys,
                          const struct adopt_folder *f, struct err *e);

#endif

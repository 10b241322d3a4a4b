/* SPDX-License-Identifier: Apache-2.0
 *
 * cluster_dump.h: the dump of this process's map and records, for rebuilding etcd: GET
 * /api/v1/cluster/kept answers with it, and POST /api/v1/cluster/recover takes several of them
 * merged (cluster_dump_merge.h).
 *
 *   {"cluster":"5b0c..", "node":"a", "keeps":true, "stranger":"",
 *    "map":"{\"version\":7, ...}", "records":[{"shard":0, "record":"{\"term\":5, ...}", "seen":0}],
 *    "logs":[{"shard":0, "promised":5}, {"shard":1, "fresh":["a"]}]}
 *
 * Map and records are texts, the very values of their keys (map.h, record.h), as in cluster.json. A
 * plain value without a lock. Thread: any.
 */
#ifndef COMMON_CLUSTER_REBUILD_CLUSTER_DUMP_H
#define COMMON_CLUSTER_REBUILD_CLUSTER_DUMP_H

#include "common/cluster/coord/keyspace.h"

#define CLUSTER_DUMP_BYTES_MAX    (32 * MIB)
#define CLUSTER_DUMP_STRANGER_MAX 511
#define CLUSTER_DUMP_TERM_MAX     RECORD_TERM_MAX

struct cluster_dump_shard {
    bool known; /* there is a record */
    struct repl_record record;
    uint64_t seen;     /* the record was made from one of this lower term; 0: it is the one known */
    uint64_t promised; /* the highest record's term that a log here has promised; 0: none is open */
    /* Nodes whose log has not begun, nor ever had. A node says this of itself, if its process
     * watched the cluster being made. No note is written of these (replicas_cluster.c, begun/). */
    struct name_set fresh;
};
struct cluster_dump {
    char cluster[CLUSTER_ID_LEN + 1]; /* its id; "": not known */
    char node[NODE_NAME_MAX + 1];     /* the sender; "": a process without a node name */
    bool keeps;                       /* it is a node of the map: an ingester */
    char stranger[CLUSTER_DUMP_STRANGER_MAX + 1]; /* why it does not believe the service; "": it
    does */
    const struct map *map;                        /* a reference; NULL: it never saw one */
    struct cluster_dump_shard *shards;            /* owned; as many as the map has, NULL without
    one */
};

/* Takes the reference; every shard is not known yet. */
void cluster_dump_init(struct cluster_dump *k, const struct map *map);
void cluster_dump_deinit(struct cluster_dump *k); /* all zero is fine */
void cluster_dump_write(const struct cluster_dump *k, struct buf *out);
/* ERR_INPUT, ERR_LIMIT; *ret is all zero then. Unknown keys are skipped. */
NODISCARD int cluster_dump_parse(struct str text, struct cluster_dump *ret, struct err *e);

#endif

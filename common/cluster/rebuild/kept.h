/* SPDX-License-Identifier: Apache-2.0
 *
 * kept.h: the dump of this process's map and records, for rebuilding etcd: GET /api/v1/cluster/kept
 * answers with it, and POST /api/v1/cluster/recover takes several of them merged (kept_join.h).
 *
 *   {"cluster":"5b0c..", "node":"a", "keeps":true, "stranger":"",
 *    "map":"{\"version\":7, ...}", "records":[{"shard":0, "record":"{\"term\":5, ...}", "seen":0}],
 *    "logs":[{"shard":0, "promised":5}, {"shard":1, "fresh":["a"]}]}
 *
 * Map and records are texts, the very values of their keys (map.h, record.h), as in cluster.json. A
 * plain value without a lock. Thread: any.
 */
#ifndef COMMON_CLUSTER_REBUILD_KEPT_H
#define COMMON_CLUSTER_REBUILD_KEPT_H

#include "common/cluster/coord/keyspace.h"

#define KEPT_BYTES_MAX    (32 * MIB)
#define KEPT_STRANGER_MAX 511
#define KEPT_TERM_MAX     RECORD_TERM_MAX

struct kept_shard {
    bool known; /* there is a record */
    struct repl_record record;
    uint64_t seen;     /* the record was made from one of this lower term; 0: it is the one known */
    uint64_t promised; /* the highest record's term that a log here has promised; 0: none is open */
    /* Nodes whose log has not begun, nor ever had. A node says this of itself, if its process
     * watched the cluster being made. No note is written of these (replicas_cluster.c, begun/). */
    struct name_set fresh;
};
struct kept {
    char cluster[CLUSTER_ID_LEN + 1];     /* its id; "": not known */
    char node[NODE_NAME_MAX + 1];         /* the sender; "": a process without a node name */
    bool keeps;                           /* it is a node of the map: an ingester */
    char stranger[KEPT_STRANGER_MAX + 1]; /* why it does not believe the service; "": it does */
    const struct map *map;                /* a reference; NULL: it never saw one */
    struct kept_shard *shards;            /* owned; as many as the map has, NULL without one */
};

/* Takes the reference; every shard is not known yet. */
void kept_init(struct kept *k, const struct map *map);
void kept_deinit(struct kept *k); /* all zero is fine */
void kept_write(const struct kept *k, struct buf *out);
/* ERR_INPUT, ERR_LIMIT; *ret is all zero then. Unknown keys are skipped. */
NODISCARD int kept_parse(struct str text, struct kept *ret, struct err *e);

#endif

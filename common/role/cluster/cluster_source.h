/* SPDX-License-Identifier: Apache-2.0
 *
 * cluster_source.h: what a process knows of its cluster, by the options of section "cluster": the
 * list of ingesters, a map in a file, or etcd; and who this process is in it.
 */
#ifndef COMMON_ROLE_CLUSTER_CLUSTER_SOURCE_H
#define COMMON_ROLE_CLUSTER_CLUSTER_SOURCE_H

#include "common/cluster/view/view.h"
#include "common/role/core/role.h"

struct cluster_source {
    struct coord *coord; /* owned; NULL: none, static */
    struct view *view;   /* owned */
    char node[NODE_NAME_MAX + 1];
    uint64_t node_id;           /* of the data folder, never changes; 0: none, static */
    struct etcd_health *health; /* owned; NULL: none, static */
    struct rpc_net *rpc;        /* borrowed; NULL: cluster_source_rpc was not called */
    struct peer_health *heard;  /* owned; the same */
    struct metric_cell *age, *version, *live, *leaderless, *stranger;
};
/* The options alone, and the files that they name. ERR_CONFIG. */
NODISCARD int cluster_source_check(const struct cluster_conf *conf, struct env *env, struct err *e);
/* Everything is borrowed. `env`, `loop`, `pool` and `metrics` outlive the cluster_source; `conf`
 * and `data_dir` are read during cluster_source_init only. */
struct cluster_source_opts {
    const struct cluster_conf *conf;
    struct env *env;
    struct loop *loop;
    struct pool *pool; /* may be NULL */
    struct metrics *metrics;
    const char *data_dir; /* exists, and belongs to this process */
    bool keeps;           /* the data folder holds shards */
};
/* ERR_CONFIG, ERR_IO. On failure nothing is left to be freed. */
NODISCARD int cluster_source_init(struct cluster_source *c, const struct cluster_source_opts *o,
                                  struct err *e);
/* From now on every frame carries the id of the cluster, as soon as that is known, or the settings
 * by which this process places services: peers with others are refused. The state that peers report
 * of themselves is collected (peer_health.h). */
void cluster_source_rpc(struct cluster_source *c, struct rpc_net *rpc, struct loop *loop,
                        struct metrics *metrics);
void cluster_source_deinit(struct cluster_source *c); /* all zero is fine; before the net goes */
/* The folder becomes another cluster's: what it knew of the one before is gone. */
NODISCARD int cluster_source_forget(const char *data_dir, struct err *e);

#endif

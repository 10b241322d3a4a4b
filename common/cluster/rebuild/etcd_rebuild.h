/* SPDX-License-Identifier: Apache-2.0
 *
 * etcd_rebuild.h: fills a coordination service that lost its data, or has older ones, from the
 * nodes' merged dumps (cluster_dump_merge.h; README.md, "etcd lost", says why that is enough).
 *
 * Written where missing or older: the cluster's id, records, notes of logs that have begun
 * (keyspace.h, begun/), and last the map. Newer keys of the service stay. The process may end after
 * any write; the next run continues.
 */
#ifndef COMMON_CLUSTER_REBUILD_ETCD_REBUILD_H
#define COMMON_CLUSTER_REBUILD_ETCD_REBUILD_H

#include "common/cluster/rebuild/cluster_dump.h"

/* The service's key, compared with the merged dumps. */
enum etcd_rebuild_is {
    ETCD_REBUILD_SAME,
    ETCD_REBUILD_ABSENT,
    ETCD_REBUILD_BEHIND,
    ETCD_REBUILD_AHEAD, /* the cluster has changed in this etcd since: it stays */
    /* Of the same term (map: version), but different; or a later map without some of our steps:
     * nothing is written. */
    ETCD_REBUILD_DIFFERS,
};
struct etcd_rebuild_found { /* as of the first look */
    enum etcd_rebuild_is map;
    enum etcd_rebuild_is *shards; /* as many as the map given has */
    uint64_t map_version;         /* 0: the service has no map */
    uint32_t notes;               /* of logs that have begun: so many are missing */
    bool id;                      /* the cluster's id is missing */
};
struct etcd_rebuild_opts {
    struct coord *coord;
    const char *prefix;        /* copied */
    struct cluster_dump *what; /* with a map; its contents are taken, it is zero after the call */
    bool look;                 /* nothing is written */
    /* e NULL: looked, or all of it is there. ERR_CONFLICT: another cluster, or something differs;
     * nothing was changed by this call then. `found` is borrowed for the call; NULL where it could
     * not be looked at. */
    void (*done)(void *cookie, const struct etcd_rebuild_found *found, const struct err *e);
    void *cookie;
};
void cluster_recover(const struct etcd_rebuild_opts *o);

#endif

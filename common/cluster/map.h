/* SPDX-License-Identifier: Apache-2.0
 *
 * map.h: the map of the cluster: how many shards there are and how often each is kept, the nodes,
 * and which shards a tenant's and a service's profiles go to. One document, changed as a whole.
 *
 *   {"version":7, "shards":64, "replicas":3,
 *    "nodes":[{"name":"a","addr":"tcp://10.0.0.1:4041","zone":"z1","state":"active"}],
 *    "tenants":[{"name":"t","shards":8,"before":[4,0]}],
 *    "services":[{"tenant":"t","name":"big","spread":4,"most":8}],
 *    "replicas_of":[["a","b","c"], ...]}      (static maps only: who has shard 0, 1, ...; the
 *                                              first leads)
 *
 * With no tenant and no service in it, map_shard is shard_of: data on disk depend on that. Where a
 * tenant has a size of its own or a service is spread, what was written before stays where it is:
 * `before` and `most` remember, and map_places names every shard that may have something.
 *
 * Immutable once made, shared by counted references: loops replace it, threads that hold one go on
 * with it. Thread: any.
 */
#ifndef COMMON_CLUSTER_MAP_H
#define COMMON_CLUSTER_MAP_H

#include "common/cluster/record.h"
#include "common/rpc/rpc_frame.h"

#define MAP_NODES_MAX    1000
#define MAP_TENANTS_MAX  10000
#define MAP_SERVICES_MAX 20000
#define MAP_BEFORE_MAX   8
#define MAP_SPREAD_MAX   64
#define MAP_BYTES_MAX    (4 * MIB)
#define ZONE_MAX         63

enum map_state { MAP_ACTIVE, MAP_DRAINING, MAP_LEFT };
struct map_node {
    char name[NODE_NAME_MAX + 1];
    char addr[RPC_ADDR_MAX + 1];
    char zone[ZONE_MAX + 1]; /* "": none */
    enum map_state state;
};
struct map_tenant {
    struct str name;
    uint32_t shards; /* the tenant's profiles go to so many of all; 0: all */
    uint32_t before[MAP_BEFORE_MAX], before_len; /* earlier values of it */
};
struct map_service {
    struct str tenant, name;
    uint32_t spread; /* so many shards share the service now */
    uint32_t most;   /* the most there were */
};
struct map {
    uint64_t version;
    uint32_t shards, replicas;
    const struct map_node *nodes;
    size_t nodes_len;
    const struct map_tenant *tenants;
    size_t tenants_len;
    const struct map_service *services;
    size_t services_len;
    const struct name_set *replicas_of; /* NULL, or one per shard */
    struct map_impl *impl;
};

/* A copy of all that `from` points to; checked. ERR_INPUT, ERR_LIMIT. */
NODISCARD int map_new(const struct map *from, const struct map **ret, struct err *e);
const struct map *map_ref(const struct map *m);
void map_unref(const struct map *m);                                    /* NULL is fine */
const struct map_node *map_node(const struct map *m, const char *name); /* NULL: unknown */

/* Where a profile of this series is written. `series_hash`: of its labels, any good hash. */
uint32_t map_shard(const struct map *m, struct str tenant, struct str service,
                   uint64_t series_hash);
/* All shards that may have something of the service, each once, the oldest first. Returns how many
 * there are, also where that is more than `max`. */
size_t map_places(const struct map *m, struct str tenant, struct str service, uint32_t *ret,
                  size_t max);

/* Unknown keys are skipped unless `strict` (files people write). JSON or YAML. `file` names it in
 * errors. */
NODISCARD int map_parse(const char *file, struct str text, bool strict, const struct map **ret,
                        struct err *e);
void map_write(const struct map *m, struct buf *out);

#endif

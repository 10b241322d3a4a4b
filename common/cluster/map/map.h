/* SPDX-License-Identifier: Apache-2.0
 *
 * map.h: the map of the cluster: how many shards there are and how often each is kept, the nodes,
 * and which shards a tenant's and a service's profiles go to. One document, changed as a whole.
 *
 *   {"version":7, "shards":64, "replicas":3,
 *    "nodes":[{"name":"a","addr":"tcp://10.0.0.1:4041","zone":"z1","state":"active"}],
 *    "tenant_steps":[{"from":0,"n":16}],                     (of each tenant that is not named)
 *    "tenants":[{"name":"t","steps":[{"from":0,"n":0},{"from":1763798400000,"n":8,"version":6}]}],
 *    "services":[{"tenant":"t","name":"big","spread":4,
 *                 "next":{"n":8,"version":7,"from":1763799300000,       (announced, not valid)
 *                         "by":"a 1f00d.."}}],
 *    "tenant_next":{"n":8,"version":7},                      (wanted, of each tenant not named)
 *    "replicas_of":[["a","b","c"], ...]}      (static maps only: the nodes of shard 0, 1, ...;
 *                                              the first is the leader)
 *
 * With no tenant and no service in it, map_shard is shard_of: data on disk depend on that. Where a
 * tenant has a size of its own or a service is spread, that holds for profiles of some time on: a
 * list of steps says which number for which time; "shards":8, "spread":4 and "tenant_shards":16 are
 * short for one step from the beginning. A profile's place depends on nothing but the profile and
 * the steps, which are only ever added to, in the future: so a profile that is sent again goes
 * where it went (README.md has the argument), and map_places names every shard that may have
 * something of a service.
 *
 * Immutable once made, shared by counted references: a loop replaces its map, and a thread that
 * holds a reference continues with the old map. Thread: any.
 */
#ifndef COMMON_CLUSTER_MAP_MAP_H
#define COMMON_CLUSTER_MAP_MAP_H

#include "common/cluster/map/record.h"
#include "common/rpc/rpc_frame.h"

#define MAP_NODES_MAX    1000
#define MAP_TENANTS_MAX  10000
#define MAP_SERVICES_MAX 20000
#define MAP_MOVES_MAX    256
#define MAP_STEPS_MAX    12
#define MAP_SPREAD_MAX   64
#define MAP_PLACES_MAX   (MAP_SPREAD_MAX * MAP_STEPS_MAX)
#define MAP_WHEN_FIRST   INT64_MIN /* before every step but the first */
#define MAP_BYTES_MAX    (4 * MIB)
#define MAP_BY_MAX       (NODE_NAME_MAX + 17) /* a node, a blank, 16 hex digits */
#define ZONE_MAX         63

enum map_state { MAP_ACTIVE, MAP_DRAINING, MAP_LEFT };
struct map_node {
    char name[NODE_NAME_MAX + 1];
    char addr[RPC_ADDR_MAX + 1];
    char zone[ZONE_MAX + 1]; /* "": none */
    enum map_state state;
};
struct map_step {
    int64_t from_ms;  /* of profiles that begin then and later; the first: of all before, too */
    uint64_t version; /* of the map that had it first; 0: not said */
    uint32_t n;
};
/* A change that is not yet a step (map_pending.h). Wanted: it has no effect. Announced: from_ms is
 * set, and every process that knows the announcement refuses writes that the step may move. */
struct map_pending {
    uint64_t version; /* of the map that first wanted or announced it; 0: no change is pending */
    int64_t from_ms;  /* 0: it is wanted only */
    uint32_t n;
    /* Announced: the only controller that may commit it (controller_steps.c); empty: not said. */
    struct str by;
};
struct map_steps { /* ascending by from_ms; len 0 counts as one step of 0 (tenant) or 1 (service) */
    struct map_step at[MAP_STEPS_MAX];
    uint32_t len;
    struct map_pending next;
};
/* Names the subject of a step. tenant.len 0: all tenants that are not named; service.len 0: the
 * number of the tenant's shards; else the number of shards that the service is spread over. */
struct map_whose {
    struct str tenant, service;
};
struct map_tenant {
    struct str name;
    struct map_steps steps; /* n: the tenant's profiles go to so many of all shards; 0: all */
};
struct map_service {
    struct str tenant, name;
    struct map_steps steps; /* n: so many shards share the service */
};
struct map {
    uint64_t version;
    uint32_t shards, replicas;
    uint32_t moves; /* so many shards on their way at once, until none is; 0: as configured */
    const struct map_node *nodes;
    size_t nodes_len;
    struct map_steps tenant_steps; /* of each tenant that is not named */
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

/* Where a profile of this series is written. `series_hash`: of its labels, any good hash. when_ms:
 * when it begins, if that will be the same each time it is sent; else MAP_WHEN_FIRST. */
uint32_t map_shard(const struct map *m, struct str tenant, struct str service, uint64_t series_hash,
                   int64_t when_ms);
/* False: every service's place is shard_of, and no change of it is wanted or announced. */
bool map_has_steps(const struct map *m);
/* False: all series of the service have one place, whenever they are, and it is shard_of. */
bool map_is_placed(const struct map *m, struct str tenant, struct str service);
/* The version of the last step, or of an announcement: a reader with an earlier map may know too
 * few places. 0: the map has never had steps. */
uint64_t map_places_since(const struct map *m);
/* Returns all shards that may hold data of the service, each once, the oldest first. The places of
 * an announced step are included, since other processes may already use them. Returns how many
 * there are, also where that is more than `max`. */
size_t map_places(const struct map *m, struct str tenant, struct str service, uint32_t *ret,
                  size_t max);
/* The same of a whole tenant. 0: any shard may. */
size_t map_tenant_places(const struct map *m, struct str tenant, uint32_t *ret, size_t max);
/* True if a process that knew only the map of `version` may have placed a profile of when_ms
 * wrongly: a later step changes its place, or an announced step does and may already be valid for
 * other processes. */
bool map_outdates(const struct map *m, struct str tenant, struct str service, uint64_t version,
                  int64_t when_ms);
const struct map_tenant *map_tenant(const struct map *m, struct str tenant); /* NULL: not named */
const struct map_service *map_service(const struct map *m, struct str tenant, struct str service);
/* The steps of a named tenant, else those of all other tenants. */
const struct map_steps *map_tenant_steps(const struct map *m, struct str tenant);
/* The number that is valid for profiles of that time. */
uint32_t map_step_at(const struct map_steps *s, int64_t when_ms, uint32_t none);

/* Unknown keys are skipped unless `strict` (files people write). JSON or YAML. `file` names it in
 * errors. */
NODISCARD int map_parse(const char *file, struct str text, bool strict, const struct map **ret,
                        struct err *e);
void map_write(const struct map *m, struct buf *out);

#endif

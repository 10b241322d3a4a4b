/* SPDX-License-Identifier: Apache-2.0
 *
 * role.h: a role is a table row; what a binary runs is the list it links. One main (main.c), one
 * loop, one HTTP listener, one metrics registry and one pool per process; all state of a role hangs
 * from its self pointer, so that several run in one process and under simulation.
 */
#ifndef COMMON_ROLE_CORE_ROLE_H
#define COMMON_ROLE_CORE_ROLE_H

#include "common/base/json.h"
#include "common/conf/conf.h"
#include "common/net/http.h"
#include "common/obs/metrics.h"
#include "common/rpc/rpc.h"
#include "common/store/kv/kv.h"
#include "common/sys/budget.h"
#include "common/sys/env.h"
#include "common/sys/loop.h"
#include "common/sys/pool.h"

/* Options every binary has, in the sections "http", "log", "cluster", "data", "memory", "tenancy",
 * "shutdown" and "selfprof" (tables in options.c). Zero means "work it out" only where a comment
 * says so; roles read the resolved values from role_ctx. */
struct common_conf { /* http */
    const char *listen;
    bool insecure_open;              /* allow an address that is not loopback, without keys */
    struct conf_list hosts, origins; /* see common/net/http_door.c */
    uint64_t connections_max, in_flight_bytes, head_ms, body_ms, idle_ms, write_ms;
    uint64_t body_bytes_max;
    const char *tls_cert, *tls_key, *tls_client_ca; /* "": none */
    bool tls_only;
    const char *admin_token_file; /* "": pages about the process are for all callers */
    bool metrics_token;           /* /metrics wants one of its tokens, too */
    const char *admin_socket;     /* below data.dir, or an absolute path; "": none */
};
struct cluster_conf {
    struct conf_list ingesters; /* rpc addresses; all-in-one: inproc://ingester */
    uint64_t shards;            /* all of the cluster; shard i lives on ingester i mod n */
    uint64_t rpc_message_bytes_max, rpc_pending_max, heartbeat_ms, dead_ms, hedge_ms;
    const char *key_file; /* "": roles do not prove who they are */
    bool key_optional;
    bool insecure_open;       /* roles listen beyond this machine without a key */
    const char *coordination; /* none, static, etcd */
    struct conf_list etcd;    /* URLs */
    const char *etcd_ca, *etcd_cert, *etcd_key, *etcd_user, *etcd_password_file, *etcd_prefix;
    const char *node, *zone, *map_file;
    uint64_t replicas, lease_ttl_ms, replace_after_ms;
    uint64_t digest_every_ms, digest_rate, snapshot_rate, catch_up_ms;
    uint64_t tenant_shards, spread_rate, place_after_ms;
};
struct data_conf {
    const char *dir;
    uint64_t disk_reserve; /* bytes; 0: 2 % of the volume, at least 64 MiB, at most 1 GiB */
};
struct tenancy_conf {
    bool multi;  /* off: the tenant is "anonymous" and X-Scope-OrgID is ignored */
    bool strict; /* X-Scope-OrgID is one name: neither a|b nor id:sub */
};

struct memory;      /* common/role/core/memory.h */
struct view;        /* common/cluster/view/view.h */
struct coord;       /* common/cluster/coord/coord.h */
struct rlog_fs;     /* common/repl/log/rlog_fs.h */
struct copy_faults; /* common/repl/copy_files.h */

/* Where an ingester gets the database of a shard from: simulation hands in memory with faults. */
struct kv_source {
    int (*open)(const struct kv_source *src, const struct kv_opts *o, struct kv **ret,
                struct err *e);
    /* The folder of a database, or of its log, goes. NULL: nothing does. */
    void (*remove)(const struct kv_source *src, const char *dir);
    /* Its databases have files below data_dir that can be copied; NULL: they have none. */
    const struct copy_faults *copies;
};

/* Handles of the cold tier's object store: simulation hands in one with faults. */
struct object_store;
struct object_source {
    int (*open)(const struct object_source *src, struct object_store **ret, struct err *e);
};

struct identity;     /* common/identity/identity.h */
struct cluster_dump; /* common/cluster/rebuild/cluster_dump.h */
struct role_ctx {
    struct env *env;
    struct loop *loop;
    struct pool *pool;
    struct http_server *http;  /* NULL in simulation */
    struct identity *identity; /* API keys; NULL: no caller is asked (tests, simulation) */
    struct rpc_net *rpc;
    struct view *view;            /* names the leader of each shard; outlives the roles */
    struct coord *coord;          /* the same; NULL: there is no coordination service */
    const char *node;             /* this node's name; "" without one */
    uint64_t node_id;             /* of its data folder */
    const struct rlog_fs *log_fs; /* of replication logs; NULL: the system's */
    struct metrics *metrics;
    struct budget *in_flight;
    const struct conf *conf;
    const struct common_conf *common;
    const struct cluster_conf *cluster;
    const struct tenancy_conf *tenancy;
    const struct data_conf *data;
    const char *data_dir;
    uint64_t memory_limit; /* resolved: --memory.limit, or from the machine */
    bool all_in_one;
    struct memory *memory;               /* the account all roles share; NULL in simulation */
    bool simulated;                      /* no threads: shards step on the loop */
    const struct kv_source *kv;          /* NULL: RocksDB */
    const struct object_source *objects; /* NULL: what cold.url says */
    uint32_t mutants;                    /* tests only: enum replica_mutant, placement_guard_mutant
    */
    uint64_t log_bytes; /* tests: a replication log is shortened from here on; 0: 1 GiB */
};
/* ERR_BUSY while the process is close to its memory limit: take no new push or query, begin no
 * build. Any thread. */
NODISCARD int role_memory_check(const struct role_ctx *ctx, struct err *e);
/* ERR_CONFIG if this address for other roles (of option `name`) can be reached from other machines
 * without a cluster key and without --cluster.insecure-open. */
NODISCARD int role_rpc_listen_check(const struct role_ctx *ctx, const char *name, const char *addr,
                                    struct err *e);
/* True if "host:port", "[v6]:port" or "scheme://host:port" is for this machine only. */
bool addr_is_loopback(struct str addr);

struct role_checks;
struct role {
    const char *name;  /* "ingester" */
    bool keeps_shards; /* its data folder holds what the cluster's records speak of */
    const struct conf_table *const *conf;
    size_t conf_len;
    /* Optional: what start would refuse in the role's options and their files: check.h. */
    void (*check)(struct role_checks *c);
    NODISCARD int (*start)(const struct role_ctx *ctx, void **ret_self, struct err *e);
    /* True once it can serve; else *ret_why says what is missing. It may say what an operator must
     * see to where it serves, too. Loop thread. */
    bool (*ready)(void *self, const char **ret_why);
    /* Stop taking work, finish what runs, then done(cookie) on the loop. */
    void (*drain)(void *self, void (*done)(void *cookie), void *cookie);
    void (*free)(void *self);
    /* Optional: adds members to the role's object on /ring, e.g. its peers and their state. */
    void (*ring)(void *self, struct json *j);
    /* Optional, of roles that keep shards: what they know beside the view (cluster_dump_routes.h).
     */
    void (*kept)(void *self, struct cluster_dump *k);
};
/* NULL-ended, in start order; drain order is the reverse. Defined by each binary. */
extern const struct role *const roles[];

int role_main(int argc, char **argv);

/* Tenant of a request: "anonymous", or X-Scope-OrgID checked (a-zA-Z0-9!-_.*'(), <= 150 bytes,
 * not . or ..; "id:sub" is trimmed). ERR_UNAUTHENTICATED "no org id"; several tenants (a|b) only
 * when `many` > 1: returns how many through *ret_len. Two such headers are ERR_INPUT. */
NODISCARD int tenant_of(const struct http_req *r, const struct tenancy_conf *t, size_t many,
                        struct str *ret, size_t *ret_len, struct err *e);

#endif

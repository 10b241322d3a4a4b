/* SPDX-License-Identifier: Apache-2.0
 *
 * view.h: a role's view of the cluster: which node leads each shard, where profiles go, which nodes
 * live.
 *
 *   view_new_list     the addresses of cluster.ingesters: shard i is led by the i mod n-th, term 0
 *   view_new_static   a map from a file: the first replica of a shard leads in term 1, unchanged
 *   view_new_coord    followed by a watch on the coordination service
 *
 * It answers from memory, at once, and continues with its last state while the service is away, or
 * has lost its data (view_stranger): view_age_ms says how old that is. An answer may be wrong by
 * the time it is used. A node that is asked in error refuses; the caller then calls
 * view_suspect_leader and tries again at the next change.
 *
 * Thread: the loop's, but for maps (map.h): take a reference on the loop, use it anywhere.
 */
#ifndef COMMON_CLUSTER_VIEW_VIEW_H
#define COMMON_CLUSTER_VIEW_VIEW_H

#include "common/base/json.h"
#include "common/cluster/coord/coord.h"
#include "common/cluster/map/map.h"
#include "common/cluster/map/record.h"
#include "common/sys/fs.h"
#include "common/sys/loop.h"

struct pool;
struct view;
struct view_shard {
    uint64_t term;              /* 0: not replicated */
    const char *leader;         /* its name */
    const char *leader_addr;    /* rpc address; "" while not known */
    const char *const *members; /* names */
    size_t members_len;
    bool established;
    bool leader_live; /* as far as known; always true without a coordination service */
};
struct view_node {
    const char *name, *addr, *zone;
    enum map_state state;
    bool live;
    bool mapped;      /* false: it lives, but is not in the map yet */
    uint64_t gone_ms; /* monotonic: when it was seen to go; 0: it lives, or went before we began */
    uint32_t methods; /* its build knows rpc methods below this; 0: not known */
    bool drained;     /* it lives, and says that it was drained once (view_drained) */
};

enum view_kind { VIEW_LIST, VIEW_STATIC, VIEW_COORD };
/* Node names are "ingester-0", ... in the order of the list. */
struct view *view_new_list(const char *const *addrs, size_t n, uint32_t shards);
/* ERR_CONFIG: some shard has no replica. */
NODISCARD int view_new_static(const struct map *m, struct view **ret, struct err *e);
struct view_opts {
    struct loop *loop;
    struct coord *coord; /* borrowed; outlives the view */
    const char *prefix;  /* of the keys */
    const struct fs *fs;
    const char *file;  /* the last state, for a start without the service; NULL: not kept */
    struct pool *pool; /* writes it; NULL: the loop does */
    /* This process keeps shards: what the service holds must be what it was, or more. */
    bool keeps;
    const char *node; /* its name, which outlives the view: for view_drained; NULL: none */
};
struct view *view_new_coord(const struct view_opts *o);
void view_free(struct view *v); /* NULL is fine */
enum view_kind view_kind(const struct view *v);

/* False before the first map came: there is nothing to route by. The others need it. */
bool view_ready(const struct view *v);
/* The configured number, or that of the map; 0 before there is one. */
uint32_t view_shards(const struct view *v);
/* False: the shard has no record yet. Borrowed until the next change. */
bool view_shard(const struct view *v, uint32_t shard, struct view_shard *ret);
/* The whole record and its revision; NULL: none. Borrowed until the next change. */
const struct repl_record *view_record(const struct view *v, uint32_t shard, int64_t *ret_rev);
/* The shard to write to, and all to read from (returns how many, also above `max`). */
uint32_t view_place(const struct view *v, struct str tenant, struct str service,
                    uint64_t series_hash, int64_t when_ms);
size_t view_places(const struct view *v, struct str tenant, struct str service, uint32_t *ret,
                   size_t max);
/* For threads: map_shard and map_places on it are the two above. map_unref when done. */
const struct map *view_map_ref(const struct view *v);
/* Borrowed until the next change, with the revision of its key; NULL: none yet. */
const struct map *view_map(const struct view *v, int64_t *ret_rev);
/* A map of this version or a later one is what this process goes by from now on, also when it
 * starts again without the service. 0: none yet. */
uint64_t view_kept(const struct view *v);
/* By position, 0 to view_nodes_len() - 1, in order of names (list: of the list). */
size_t view_nodes_len(const struct view *v);
void view_node(const struct view *v, size_t i, struct view_node *ret);
bool view_node_find(const struct view *v, const char *name, struct view_node *ret);

/* `fn` after each change, with the change visible. */
void view_watch(struct view *v, void (*fn)(void *cookie), void *cookie);
void view_unwatch(struct view *v, void (*fn)(void *cookie), void *cookie);
/* Marks the cached leader of this term as stale and schedules a refresh. */
void view_suspect_leader(struct view *v, uint32_t shard, uint64_t term);

/* A peer that does not trust its coordination service any more knew a record of that term, and a
 * map of that version (0: none). If this process learnt the cluster from the service alone, lately,
 * and has nothing to compare it with, it does not believe the service while that holds less. */
void view_note_peer_state(struct view *v, uint32_t shard, uint64_t term, uint64_t map_version);
/* True if this view came from the coordination service alone and a peer has since reported newer
 * state. The caller must not act on it. */
bool view_is_stale_bootstrap(const struct view *v);

/* Grows with every change. */
uint64_t view_version(const struct view *v);
/* The coordination service has said which nodes live since this process began; true without one. */
bool view_knows_liveness(const struct view *v);
/* 32 hex digits, of the cluster this process is in; "": not known (yet, or it has none). */
const char *view_cluster_id(const struct view *v);
/* The revision of its key; 0: the service has none. */
int64_t view_cluster_rev(const struct view *v);
/* Not "": the coordination service holds another cluster, or an older state of this one. The view
 * does not follow it, and nothing may be written to it. The text says why, for the operator. */
const char *view_stranger(const struct view *v);
/* The last state of the service was believed: the view may be the ground of a write to it. False
 * also before it answered, and while its keys are read again. */
bool view_trusts(const struct view *v);
/* Grows when revisions belong to another store: revisions remembered from the old one are void. */
uint64_t view_store(const struct view *v);
/* The cluster was made while this process looked on, so no process before this one was in it. */
bool view_born(const struct view *v);
/* This node (view_opts.node) was drained, and not undrained since, as far as the data folder knows:
 * also once the map has forgotten it. */
bool view_drained(const struct view *v);
/* Why the coordination service, or the way to it, refuses us, for the operator; "": it does not. */
const char *view_why(const struct view *v);
/* Since the coordination service last answered; 0 without one. */
uint64_t view_age_ms(const struct view *v);
/* Members of an object: coordination, version, age_ms, nodes, shards with leaders. */
void view_json(const struct view *v, struct json *j);

#endif

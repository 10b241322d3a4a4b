/* SPDX-License-Identifier: Apache-2.0
 *
 * view_impl.h: what a view holds, for the files that fill it.
 */
#ifndef COMMON_CLUSTER_VIEW_VIEW_IMPL_H
#define COMMON_CLUSTER_VIEW_VIEW_IMPL_H

#include "common/base/vec.h"
#include "common/cluster/coord/keyspace.h"
#include "common/cluster/view/view.h"

enum { VIEW_WATCHERS_MAX = 64 };

struct view_slot { /* one shard */
    struct repl_record record;
    int64_t rev; /* of its key; 0: no coordination service */
    bool known;
    uint64_t told;                       /* others know a record of this term; 0: none said so */
    const char *members[RECORD_SET_MAX]; /* into record */
};
struct view_peer { /* one node */
    char name[NODE_NAME_MAX + 1];
    char addr[RPC_ADDR_MAX + 1];
    char zone[ZONE_MAX + 1];
    enum map_state state;
    bool live, mapped;
    uint64_t gone_ms; /* as in view_node */
    uint32_t methods;
    bool drained;
};
struct view_watcher {
    void (*fn)(void *cookie);
    void *cookie;
};
struct view {
    enum view_kind kind;
    char cluster[CLUSTER_ID_LEN + 1]; /* its id; "": not known */
    const struct map *map;            /* a reference; NULL before the first */
    struct view_slot **slots;         /* owned, each */
    uint32_t slots_len;
    VEC(struct view_peer) peers; /* list: in its order; else by name */
    struct map_str *index;       /* name -> position in peers, plus 1 */
    struct view_watcher watchers[VIEW_WATCHERS_MAX];
    size_t watchers_len;
    const char *node;  /* borrowed: whose view it is; NULL: a process that keeps no shards */
    bool drained;      /* view_drained */
    uint64_t told_map; /* peers know a map of this version */
    bool led_astray;   /* the state here was learnt from a service that holds too little */
    uint64_t version;
    struct view_feed *feed; /* NULL without a coordination service */
};

struct view *view_new_kind(enum view_kind kind);
/* Takes the reference. */
void view_set_map(struct view *v, const struct map *m);
/* Is the record of a term that is new here, and names this node the leader? */
bool view_is_to_lead(const struct view *v, uint32_t shard, const struct repl_record *r);
void view_set_record(struct view *v, uint32_t shard, const struct repl_record *r, int64_t rev);
void view_slots_room(struct view *v, uint32_t n); /* at least n */
/* After the peers changed. */
void view_index(struct view *v);
struct view_peer *view_peer(const struct view *v, const char *name); /* NULL: unknown */
void view_changed(struct view *v);

/* view_coord.c */
void view_feed_free(struct view_feed *f); /* NULL is fine */
int64_t view_feed_map_rev(const struct view_feed *f);
int64_t view_feed_cluster_rev(const struct view_feed *f);
uint64_t view_feed_kept(const struct view_feed *f);
bool view_feed_heard(const struct view_feed *f);
const char *view_feed_why(const struct view_feed *f);
const char *view_feed_stranger(const struct view_feed *f);
bool view_feed_trusts(const struct view_feed *f);
bool view_feed_born(const struct view_feed *f);
uint64_t view_feed_store(const struct view_feed *f);
uint64_t view_feed_age_ms(const struct view_feed *f);
uint64_t view_feed_now_ms(const struct view_feed *f);
/* How many values did not parse; *ret_why is the last one's fault, or "". */
uint64_t view_feed_bad(const struct view_feed *f, const char **ret_why);
void view_feed_told(struct view_feed *f, uint32_t shard, uint64_t term, uint64_t map_version);
void view_feed_doubt(struct view_feed *f, uint32_t shard, uint64_t term);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * view_impl.h: what a view holds, for the files that fill it.
 */
#ifndef COMMON_CLUSTER_VIEW_IMPL_H
#define COMMON_CLUSTER_VIEW_IMPL_H

#include "common/base/vec.h"
#include "common/cluster/view.h"

enum { VIEW_WATCHERS_MAX = 64 };

struct view_slot { /* one shard */
    struct repl_record record;
    int64_t rev; /* of its key; 0: no coordination service */
    bool known;
    const char *members[RECORD_SET_MAX]; /* into record */
};
struct view_peer { /* one node */
    char name[NODE_NAME_MAX + 1];
    char addr[RPC_ADDR_MAX + 1];
    char zone[ZONE_MAX + 1];
    enum map_state state;
    bool live, mapped;
};
struct view_watcher {
    void (*fn)(void *cookie);
    void *cookie;
};
struct view {
    const char *kind;
    const struct map *map; /* a reference; NULL before the first */
    struct view_slot *slots;
    uint32_t slots_len;
    VEC(struct view_peer) peers; /* list: in its order; else by name */
    struct view_watcher watchers[VIEW_WATCHERS_MAX];
    size_t watchers_len;
    uint64_t version;
    struct view_feed *feed; /* NULL without a coordination service */
};

/* Takes the reference. Slots are made anew where the number of shards differs. */
void view_set_map(struct view *v, const struct map *m);
void view_set_record(struct view *v, uint32_t shard, const struct repl_record *r, int64_t rev);
struct view_peer *view_peer(struct view *v, const char *name); /* NULL: unknown */
void view_changed(struct view *v);

/* view_coord.c */
void view_feed_free(struct view_feed *f); /* NULL is fine */
uint64_t view_feed_age_ms(const struct view_feed *f);
void view_feed_doubt(struct view_feed *f, uint32_t shard, uint64_t term);

#endif

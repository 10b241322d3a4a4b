/* SPDX-License-Identifier: Apache-2.0
 *
 * controller_impl.h: what a controller holds, for its files: what it sees (controller_seen.c), the
 * map (controller_map.c), records and the rest (controller.c).
 */
#ifndef COMMON_CLUSTER_CONTROLLER_IMPL_H
#define COMMON_CLUSTER_CONTROLLER_IMPL_H

#include "common/base/list.h"
#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/cluster/controller.h"
#include "common/cluster/keyspace.h"

struct known { /* one node */
    char name[NODE_NAME_MAX + 1];
    uint64_t gone_since_ms; /* 0: it lives */
    struct arena *arena;    /* of `progress`; NULL: it said nothing */
    struct progress progress;
};
struct control_call {
    struct list list;
    struct controller *c;
    uint32_t shard; /* CLUSTER_SHARDS_MAX: of the map, or of many */
    int64_t rev;
};
struct controller {
    struct controller_opts o;
    char *prefix; /* owned */
    struct timer *tick;
    struct coord_watch *watch; /* of states; only while it acts */
    struct map_str *known;     /* name -> struct known, owned */
    struct list calls;
    uint32_t calls_len;
    bool campaigning, map_busy;
    int64_t fence, fence_lease;   /* 0: it does not act */
    uint64_t changed_ms, version; /* of the view, when nodes came or went last */
    size_t live;
    struct name_set *wanted; /* owned; NULL: to be worked out */
    uint32_t wanted_len, wanted_of;
    uint64_t wanted_for; /* a hash of what it was worked out from */
    bool *busy;          /* owned; by shard: a call is under way */
    int64_t *tried;      /* owned; by shard: the revision that was swapped */
    uint32_t moving;
    uint64_t spread_ms;
    uint64_t resize_ms; /* since when tenants have not the size they should; 0: they have */
    char says[256];
};

static inline uint64_t controller_now_ms(const struct controller *c)
{
    return clock_mono_ms(loop_clock(c->o.loop));
}
void PRINTF(2, 3) controller_say(struct controller *c, const char *fmt, ...);
/* Holds while this controller was not deposed; `key` is the controller's. */
struct coord_compare controller_fence(const struct controller *c, const struct coord_key *key);
/* What on_called takes: of a shard, or (CLUSTER_SHARDS_MAX) of the map or of many records. */
struct control_call *controller_call(struct controller *c, uint32_t shard, int64_t rev);
void controller_on_called(void *cookie, const struct coord_reply *r);

/* NULL: there are more than there can be. */
struct known *controller_known(struct controller *c, const char *name);
/* In no particular order; start with *pos = 0. */
struct known *controller_known_next(const struct controller *c, size_t *pos);
void controller_forget(struct known *k); /* what it said */
void controller_forget_all(struct controller *c);
void controller_on_state(void *cookie, const struct coord_kv *kv);
void controller_on_states(void *cookie, const struct coord_kv *kvs, size_t n, int64_t rev);
/* NULL: the node said nothing about the shard. */
const struct progress_shard *controller_progress(const struct controller *c, const char *name,
                                                 uint32_t shard);

void controller_make_map(struct controller *c);
/* True: the map is as it should be. */
bool controller_mend_map(struct controller *c, const struct map *m, int64_t rev);
/* Nothing is to be moved any more: nor in haste. */
void controller_calm(struct controller *c, const struct map *m, int64_t rev);
void controller_spread(struct controller *c, const struct map *m, int64_t rev);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * controller_impl.h: what a controller holds, for its files: what it sees (controller_seen.c), the
 * map (controller_map.c), records and the rest (controller.c).
 */
#ifndef COMMON_CLUSTER_CONTROL_CONTROLLER_IMPL_H
#define COMMON_CLUSTER_CONTROL_CONTROLLER_IMPL_H

#include "common/base/list.h"
#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/cluster/control/controller.h"
#include "common/cluster/coord/keyspace.h"
#include "common/cluster/node/lead_note.h"
#include "common/cluster/place/reports.h"

struct known_node { /* one node */
    char name[NODE_NAME_MAX + 1];
    uint64_t gone_since_ms; /* 0: it lives */
};
struct control_call {
    struct list list;
    struct controller *c;
    uint32_t shard; /* CLUSTER_SHARDS_MAX: of the map, or of many */
    int64_t rev;
    struct lead_note note; /* of a step that names another leader */
};
struct control_lead {    /* leaders are made even: controller_lead.c */
    uint64_t looked_ms;  /* the last look */
    uint64_t filled_ms;  /* when `left` was made up last */
    uint32_t left;       /* hand-overs for evenness that may be made now */
    uint64_t *turned_ms; /* owned; by shard: of the last one; 0: none */
    int64_t *turn_rev;   /* owned; by shard: of the record that is to get another leader, or 0 */
    uint32_t uneven;     /* shards that another member should lead, also later */
};
struct control_steps {  /* controller_steps.c */
    uint64_t announced; /* version of the announced step, as last seen; 0: none was announced */
    uint64_t since_ms;  /* when it was first seen */
    size_t turn;        /* among all that may be wanted */
};
struct control_word { /* steps that were announced or aborted: kept while the process lives */
    char by[MAP_BY_MAX + 1];    /* our id since we act; "": announcements do not say it */
    uint64_t decided, given_up; /* versions: the last step that we committed; the last aborted */
};
struct controller {
    struct controller_opts o;
    char *prefix;                /* owned */
    char id[CLUSTER_ID_LEN + 1]; /* "": none is given */
    uint64_t store;              /* of the view: what revisions here are of */
    struct timer *tick;
    struct coord_watch *watch; /* of states; only while it acts */
    struct map_str *known;     /* name -> struct known_node, owned */
    struct reports *reports;
    struct list calls;
    uint32_t calls_len;
    bool campaigning, map_busy;
    int64_t fence, fence_lease;   /* 0: it does not act */
    int64_t asked_lease;          /* under which it tried to, last */
    uint64_t changed_ms, version; /* of the view, when nodes came or went last */
    size_t live;
    struct name_set *wanted; /* owned; NULL: to be worked out */
    uint32_t wanted_len, wanted_of;
    uint64_t wanted_for; /* a hash of the nodes it was worked out from */
    uint64_t wanted_ms;  /* when that was */
    struct control_lead lead;
    struct control_steps steps;
    struct control_word word;
    bool *busy;     /* owned; by shard: a call is under way */
    int64_t *tried; /* owned; by shard: the revision that was swapped */
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
/* The cookie of on_called: of a shard, or (CLUSTER_SHARDS_MAX) of the map or of many records. */
struct control_call *controller_call(struct controller *c, uint32_t shard, int64_t rev);
void controller_on_called(void *cookie, const struct coord_reply *r);

/* NULL: there are more than there can be. */
struct known_node *controller_known(struct controller *c, const char *name);
void controller_forget_all(struct controller *c);
void controller_on_state(void *cookie, const struct coord_kv *kv);
void controller_on_states(void *cookie, const struct coord_kv *kvs, size_t n, int64_t rev);

/* The nodes that may have shards, and the present places of all shards. */
struct control_look {
    struct place_node *nodes;   /* owned */
    struct place_shard *shards; /* owned */
    struct place_in in;         /* both */
};
/* False: no node may have shards. */
bool controller_look(struct controller *c, const struct map *m, struct control_look *ret);
void controller_look_end(struct control_look *look);
/* Which member should lead each shard, into `wanted`; looks every few seconds. */
void controller_lead(struct controller *c, const struct map *m);
void controller_lead_forget(struct controller *c);
/* True if the shard, whose record has this revision, is to get another leader. */
bool controller_turns(const struct controller *c, uint32_t shard, int64_t rev);
void controller_turned(struct controller *c, uint32_t shard); /* it was tried */

void controller_make_map(struct controller *c);
/* True: the cluster has an id. */
bool controller_name_cluster(struct controller *c);
/* True: the map is as it should be. */
bool controller_mend_map(struct controller *c, const struct map *m, int64_t rev);
/* All shards are in their places: ends a faster pace of moves (map.moves). */
void controller_calm(struct controller *c, const struct map *m, int64_t rev);
void controller_spread(struct controller *c, const struct map *m, int64_t rev);
/* This node is the controller now: what it announces from here on is distinct from what it
 * announced earlier. */
void controller_step_is_aborted(struct controller *c);
void controller_steps(struct controller *c, const struct map *m, int64_t rev);
/* Swapped for the one of `rev`. */
void controller_put_map(struct controller *c, const struct map *m, int64_t rev);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * controller.h: the one node that writes the map and moves shards. Every ingester has a controller;
 * the key of the controller, under a lease, says whose acts. Each of its writes compares the
 * revision at which that key was created, so a controller that was deposed without knowing it
 * writes nothing.
 *
 * It makes the map, and with it the cluster's id, once enough nodes live, takes new nodes into it,
 * names the first replicas of each shard, replaces nodes that are gone for long, empties those that
 * drain, evens leaders out, and spreads services that grow. It does each in single steps from what
 * it sees and remembers nothing, so another controller continues where this one stopped.
 *
 * Thread: the loop's.
 */
#ifndef COMMON_CLUSTER_CONTROL_CONTROLLER_H
#define COMMON_CLUSTER_CONTROL_CONTROLLER_H

#include "common/cluster/node/member.h"

struct controller_opts {
    struct loop *loop;
    struct coord *coord; /* borrowed, as the next two; they outlive this */
    struct view *view;
    struct member *member;
    const char *prefix;
    uint32_t shards, replicas; /* of a map that is yet to be made */
    uint64_t settle_ms;        /* no node came or went for so long: then the map is made */
    uint64_t replace_ms;       /* a node that is gone for so long is replaced */
    uint32_t moves_max;        /* shards on their way at once */
    uint64_t spread_bytes;     /* per second and shard of one service; 0: none is spread */
    uint64_t spread_after_ms;  /* a change of places is for profiles from about so much later */
    uint32_t tenant_shards;    /* of each tenant that the map does not name; 0: all */
    uint64_t life; /* of this process; random. 0: any controller may commit what it announces */
    const char *cluster_id; /* of a cluster that has none yet; NULL: none is given. Copied */
};
struct controller;

struct controller *controller_new(const struct controller_opts *o);
void controller_free(struct controller *c); /* NULL is fine */
bool controller_acts(const struct controller *c);
/* Promises that the step that this controller announced as `by` (map.h) in the map of that version
 * is never committed. Only this controller could commit it. ERR_CONFLICT: it may be valid already,
 * or another controller announced it. */
NODISCARD int controller_step_abort(struct controller *c, struct str by, uint64_t version,
                                    struct err *e);
/* The reason of its present wait, or its last action; text for the operator. */
const char *controller_says(const struct controller *c);
/* Shards that are not as they should be; 0 when all is done, or it does not act. */
uint32_t controller_moving(const struct controller *c);

#endif

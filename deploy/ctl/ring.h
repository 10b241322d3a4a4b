/* SPDX-License-Identifier: Apache-2.0
 *
 * ring.h: the cluster as /ring of one server has it: nodes, shards, who leads and who keeps up;
 * read, judged, and shown.
 */
#ifndef DEPLOY_CTL_RING_H
#define DEPLOY_CTL_RING_H

#include "common/base/vec.h"
#include "common/net/json_in.h"
#include "deploy/ctl/cli.h"

struct ring_node {
    struct str name, addr, zone, state; /* state: active, draining, left, joining */
    bool live;
    uint32_t shards, leads; /* counted in the records, learners as well */
};
enum ring_trouble {
    RING_FINE,
    RING_UNNAMED,    /* nobody was named yet */
    RING_LEADERLESS, /* who leads it does not live */
    RING_STARTING,   /* who leads it has not begun yet */
    RING_COPIES,     /* fewer copies live than there should be */
    RING_BEHIND,     /* a copy lacks much of the log */
};
struct ring_shard {
    uint64_t shard, term;
    struct str leader;
    bool named, established, leader_live;
    const struct json_val *members, *learners; /* arrays of names */
    const struct json_val *peers; /* of the leader, if it is whom we asked; else NULL */
    enum ring_trouble trouble;
};
/* Strings are borrowed from the document. */
struct ring {
    struct str coordination; /* none, static, etcd */
    uint64_t map_version, replicas, age_ms;
    bool unreadable; /* something in the coordination service does not parse */
    bool ready;      /* the server asked */
    bool watched;    /* false: whether nodes live nobody knows (none, static) */
    VEC(struct ring_node) nodes;
    VEC(struct ring_shard) shards;
    size_t moving; /* shards with learners, or with more members than copies */
    size_t troubles[RING_BEHIND + 1];
};
/* ERR_IO where the answer is not that of a server, or its shards are more than there can be. */
NODISCARD int ring_read(const struct cli *c, const struct json_val *root, struct ring *ret,
                        struct err *e);
void ring_deinit(struct ring *r);
bool ring_healthy(const struct ring *r);
/* NULL: unknown. */
const struct ring_node *ring_node(const struct ring *r, struct str name);
/* "3 nodes, 12 shards with 3 copies; all have a leader" */
void ring_words(const struct ring *r, struct buf *out);
void ring_text(const struct term *t, const struct ring *r, struct buf *out);
void ring_json(const struct ring *r, struct json *j);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * lead.h: this node's part in who leads: it takes shards over whose leader is gone, says when its
 * own term is established, hands shards to others, and takes changes of members back that come to
 * no end.
 *
 * Everything is a compare-and-swap of the shard's record, tried until it is done, or no longer to
 * be done: another term has come, the node is not registered any more. Nothing is told back: the
 * view changes when it worked. Which term really leads, replicas agree on among themselves.
 *
 * A leader whose process starts again must not go on in its old term (entries that it sent and did
 * not keep may be anywhere): it takes a new one by lead_give(l, shard, own name).
 *
 * Thread: the loop's.
 */
#ifndef COMMON_CLUSTER_NODE_LEAD_H
#define COMMON_CLUSTER_NODE_LEAD_H

#include "common/cluster/node/member.h"

struct lead_opts {
    struct loop *loop;
    struct coord *coord; /* borrowed, as the next two; they outlive this */
    struct view *view;
    struct member *member;
    const char *prefix;
    uint64_t seed; /* of the jitter */
    /* May this node lead the shard now (its replica is open, its disk is well)? NULL: always. */
    bool (*able)(void *cookie, uint32_t shard);
    void *cookie;
};
struct lead;

struct lead *lead_new(const struct lead_opts *o);
void lead_free(struct lead *l); /* NULL is fine */
/* The leader of this term has committed an entry of its own. */
void lead_established(struct lead *l, uint32_t shard, uint64_t term);
/* The shard gets a new term with that leader, a member. For the current leader, or for `to` itself.
 * Once per term; given up when another term comes first. */
void lead_give(struct lead *l, uint32_t shard, const char *to);
/* For a leader that cannot lead: another member that lives is to, one by chance. By chance, since
 * of any fixed turns two that cannot lead may be each other's next. Its name, good until the view
 * changes; NULL: this node does not lead, or no other one lives. */
const char *lead_pass(struct lead *l, uint32_t shard);
/* For a leader that finds no majority of the members, in a term that changed them and is not
 * established: the members of before are members again (record_next_back). They are asked in such
 * a term in any case, so without the others there is one majority less to find. This node leads, or
 * where it was none of them, one that lives: its name, as above; NULL: nothing to take back. */
const char *lead_back(struct lead *l, uint32_t shard);
/* Shards whose leader in the view is this node. */
size_t lead_count(const struct lead *l);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * lead.h: this node's part in the choice of leaders: it takes over shards whose leader is gone,
 * marks its own term as established, hands shards to other members, and undoes changes of members
 * that do not end.
 *
 * Each act is a compare-and-swap of the shard's record, retried until it is done or obsolete:
 * another term has begun, or the node is not registered any more. There is no callback: the view
 * changes when the swap worked. Which term really leads, replicas agree on among themselves.
 *
 * A leader whose process restarts must not continue in its old term (entries that it sent and did
 * not store may be on any member): it takes a new term by lead_hand_over(l, shard, own name).
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
/* Starts a new term of the shard with that leader, a member. For the current leader, or for `to`
 * itself. Once per term; dropped when another term comes first. `why` is a constant: once the
 * record says so, it is logged with the new leader. */
void lead_hand_over(struct lead *l, uint32_t shard, const char *to, const char *why);
/* For a leader that cannot lead: hands the lead to another member that lives, chosen at random,
 * since in any fixed order two members that cannot lead may be each other's next. Returns its name,
 * valid until the view changes; NULL: this node does not lead, or no other member lives. */
const char *lead_pass(struct lead *l, uint32_t shard, const char *why);
/* For a leader that finds no majority of the members, in a term that changed them and is not
 * established: makes the previous members the members again (record_undo_member_change). They must
 * be asked in such a term in any case, so without the change there is one majority less to find.
 * The new leader is this node or, if it was not a previous member, a live previous member. Returns
 * the leader's name, as above; NULL: there is no change to undo. */
const char *lead_undo_member_change(struct lead *l, uint32_t shard);
/* Shards whose leader in the view is this node. */
size_t lead_count(const struct lead *l);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * member.h: registers this node in the cluster: a key under a lease says that it lives, another key
 * how far its replicas are. The view says which shards it has (view_record; node names).
 *
 * Thread: the loop's.
 */
#ifndef COMMON_CLUSTER_NODE_MEMBER_H
#define COMMON_CLUSTER_NODE_MEMBER_H

#include "common/cluster/coord/coord.h"
#include "common/cluster/map/progress.h"
#include "common/cluster/view/view.h"

struct member_opts {
    struct loop *loop;
    struct coord *coord; /* borrowed, as the view; they outlive the member */
    struct view *view;
    const char *prefix, *name, *addr, *zone;
    uint64_t id; /* of the data folder; never changes: tells a restart from another node */
    uint64_t ttl_ms;
    /* It is in, or out and why. May be NULL. */
    void (*on_change)(void *cookie, bool in, const struct err *why);
    void *cookie;
};
struct member;

/* Begins to register as soon as the view trusts what the service holds, and again whenever the
 * lease is lost. While it does not (view_trusts) nothing is written, and the lease runs out. */
struct member *member_new(const struct member_opts *o);
/* Does not wait: the lease runs out by itself. NULL is fine. */
void member_free(struct member *m);
/* Registered, and the lease has not run out by this node's own clock. */
bool member_in(const struct member *m);
/* Why not, for people; "" when it is in. */
const char *member_why(const struct member *m);
/* Another node, of another data folder, lives by this one's name: who, and what to do; "" when none
 * does as far as known. While it lives this one is never registered. */
const char *member_rival(const struct member *m);
const char *member_name(const struct member *m);
/* Makes a compare that holds while this node is registered. False: it is not. The key is the
 * member's. */
bool member_guard(const struct member *m, struct coord_compare *ret);
int64_t member_lease(const struct member *m); /* 0: none */
/* Sent to the controller soon, and again after each loss of the lease. Copied. */
void member_report(struct member *m, const struct progress *p);
/* Gives the lease back, so that all nodes know at once; then calls `done`, also when that failed.
 * It does not register again. */
void member_leave(struct member *m, void (*done)(void *cookie), void *cookie);

#endif

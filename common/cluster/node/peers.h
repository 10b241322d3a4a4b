/* SPDX-License-Identifier: Apache-2.0
 *
 * peers.h: how many processes of one kind live. Each has a key under a lease in the coordination
 * service, and counts the keys of all.
 *
 *   <prefix>/distributor/live/<name>    this distributor lives
 *
 * The count is for shares of something: it is right after some seconds, and never 0.
 *
 * Thread: the loop's.
 */
#ifndef COMMON_CLUSTER_NODE_PEERS_H
#define COMMON_CLUSTER_NODE_PEERS_H

#include "common/cluster/coord/coord.h"
#include "common/cluster/view/view.h"
#include "common/sys/loop.h"

#define PEERS_LINGER_MS 10000 /* a smaller number counts after it has been seen for so long */

struct peers_opts {
    struct loop *loop;
    struct coord *coord; /* borrowed, as the view; they outlive the peers */
    const struct view *view;
    const char *prefix;
    const char *kind; /* "distributor" */
    uint64_t id;      /* random: this start of this process */
    uint64_t ttl_ms;  /* a process counts as gone after that */
    /* The count has changed. */
    void (*changed)(void *cookie, uint64_t n);
    void *cookie;
};
struct peers;

struct peers *peers_new(const struct peers_opts *o);
/* How many processes live, 1 and up: this process is counted, whether it is registered or not.
 * While the service is away, or its data are not this cluster's, the last number. */
uint64_t peers_count(const struct peers *p);
/* Gives the lease back, so that the others need not wait for its end. It is not registered again.
 */
void peers_leave(struct peers *p);
void peers_free(struct peers *p); /* NULL is fine */

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * relay.h: relayed calls. A caller that cannot reach the leader of a shard sends its call to
 * another ingester, which passes it on to the leader it knows and returns the answer.
 *
 * RPC_RELAY: a head of RELAY_HEAD bytes (little endian), then the call's own payload.
 *
 *   offset size field
 *    0      1   head      bytes before the payload: 12, and what a later build appends
 *    1      1   zero
 *    2      2   method    of the call: enum rpc_method
 *    4      4   shard     whose leader is meant
 *    8      4   zero
 *
 * The reply is the leader's reply, the error the leader's error. ERR_UNIMPLEMENTED also if the one
 * asked is of a build before this: callers go by what its node says of its build (hedged_call.c).
 * ERR_INPUT also if its build does not know the method. ERR_UNAVAILABLE also if it knows no leader,
 * cannot reach it, or has too much under way. Thread: the loop's.
 */
#ifndef COMMON_ROLE_ROUTE_RELAY_H
#define COMMON_ROLE_ROUTE_RELAY_H

#include "common/cluster/view/view.h"
#include "common/rpc/rpc.h"

#define RELAY_HEAD 12

struct relay_call {
    enum rpc_method method;
    uint32_t shard;
    struct str payload; /* borrowed */
};
/* The message for it; *out is made here, for a payload of any size. */
void relay_pack(const struct relay_call *c, struct buf *out);
/* ERR_INPUT: cut off, or a method that is not relayed. */
NODISCARD int relay_unpack(struct str in, struct relay_call *ret, struct err *e);

struct relay;
struct relay_opts {
    struct rpc_node *node; /* serves and calls */
    struct view *view;     /* outlives it */
    const char *self;      /* this node's name in the view; "": known by rpc_node_addr */
    /* NULL is fine. The name of the leader of the shard that this node follows, or its own, where
     * it knows that better than the view; NULL: it does not. Borrowed. */
    const char *(*follows)(void *cookie, uint32_t shard);
    void *cookie;
    struct metrics *metrics;
    size_t calls_max, bytes_max; /* under way; 0: RELAY_CALLS_MAX, RELAY_BYTES_MAX */
};
#define RELAY_CALLS_MAX 256
#define RELAY_BYTES_MAX (64 * MIB)
/* Serves RPC_RELAY from now on. */
struct relay *relay_new(const struct relay_opts *o);
void relay_free(struct relay *r); /* after its node; NULL is fine */

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_guard.h: decides which frames a port with cluster keys accepts. One guard per port, a guarded
 * link per link; they seal outgoing frames and open incoming ones. rpc_guard.c says how and why it
 * is safe. Thread: the loop's.
 */
#ifndef COMMON_RPC_RPC_GUARD_H
#define COMMON_RPC_RPC_GUARD_H

#include "common/rpc/rpc_seal.h"
#include "common/sys/env.h"

#define RPC_GUARD_WINDOW   8192 /* frames of one lane that may overtake each other */
#define RPC_GUARD_SESSIONS 4    /* runs of one peer that are open at once */

struct rpc_guard;
struct rpc_guard_link;

struct rpc_guard_opts {
    struct env *env;             /* borrowed; randomness */
    const struct rpc_keys *keys; /* borrowed; may change meanwhile */
    const char *addr;            /* where answers to this port go */
    uint64_t epoch;
    uint64_t frames_max; /* of a run and lane, then it is over; 0: 2^32 - 1 */
};
struct rpc_guard *rpc_guard_new(const struct rpc_guard_opts *o);
void rpc_guard_free(struct rpc_guard *g); /* its links are freed; NULL is fine */

/* The way to and from one address. */
struct rpc_guard_link *rpc_guard_link_new(struct rpc_guard *g, const char *addr);
void rpc_guard_link_free(struct rpc_guard_link *l); /* NULL is fine */

/* Notes the process (epoch) and the ticket from a pong to our own recent ping: from now on, frames
 * can be sealed for it. The same values again change nothing. */
void rpc_guard_bind(struct rpc_guard_link *l, uint64_t epoch, uint64_t ticket);
void rpc_guard_unbind(struct rpc_guard_link *l);
/* The epoch of the peer's process; 0: not bound, only greetings can be sealed. */
uint64_t rpc_guard_bound(const struct rpc_guard_link *l);

/* Seals a ping or a pong; to_epoch: of the node whose ping this pong answers, 0 for a ping. The
 * bytes are borrowed until the next one is sealed by this guard. */
struct str rpc_guard_seal_greeting(struct rpc_guard_link *l, uint64_t to_epoch, struct str head,
                                   struct str body);
/* Seals anything else, while bound. Uses up a number: if the frame is not sent it is not sent. */
struct str rpc_guard_seal(struct rpc_guard_link *l, enum rpc_lane lane, struct str head,
                          struct str body);

/* Opens a frame. RPC_DROP_NONE: *ret holds its bytes, borrowed until the next one is opened, and
 * *ret_seal what the envelope said, all of it true. Else why not. */
enum rpc_drop rpc_guard_open(struct rpc_guard *g, struct str in, struct str *ret,
                             struct rpc_seal *ret_seal);
/* The opened frame must agree with its envelope, else RPC_DROP_FORGED; and a pong must be for this
 * process, else RPC_DROP_EPOCH. */
enum rpc_drop rpc_guard_check(const struct rpc_guard *g, const struct rpc_seal *s,
                              const struct rpc_frame *f);

#endif

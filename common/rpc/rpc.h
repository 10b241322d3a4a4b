/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc.h: calls between roles. Requests and replies are one-way messages that carry their own
 * version, length, checksum, request id and deadline; three transports stand behind it:
 *
 *   tcp://host:port, ipc://path   nanomsg PIPELINE: one PULL per node, one PUSH per peer and class
 *   inproc://name                 the same encoded payload, moved by pointer (all-in-one)
 *   mem://name                    simulated network with delay, loss, reordering (tests)
 *
 * An rpc_node is one role instance: it serves methods under its own address and calls peers.
 * Thread: the loop's. Every call ends exactly once: reply, error, deadline or cancel. A deadline
 * that passes does not say whether the peer acted: retries need idempotent requests.
 */
#ifndef COMMON_RPC_RPC_H
#define COMMON_RPC_RPC_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/obs/metrics.h"
#include "common/sys/env.h"
#include "common/sys/loop.h"

/* Append only. */
enum rpc_method {
    RPC_WRITE = 1,
    RPC_MERGE = 2,
    RPC_TIMELINE = 3,
    RPC_LABELS = 4,
    RPC_STATUS = 5,
    RPC_METHODS = 6,
};

struct rpc_net; /* process-wide: the table of inproc names, or the simulated network */
struct rpc_node;
struct rpc_peer;
struct rpc_call; /* one request being served */

struct rpc_net *rpc_net_new(struct env *env, struct metrics *metrics);
void rpc_net_free(struct rpc_net *n);

struct rpc_node_opts {
    struct rpc_net *net;
    struct loop *loop;
    const char *listen;    /* address to serve under; "" for a node that only calls */
    const char *advertise; /* address peers answer to; NULL: the listen address */
    size_t message_max;    /* bytes of one request or reply, after reassembly of chunks */
    size_t pending_max;    /* calls in flight; one more is ERR_BUSY */
    uint32_t heartbeat_ms, dead_ms;
};
NODISCARD int rpc_node_new(const struct rpc_node_opts *o, struct rpc_node **ret, struct err *e);
/* Fails what is pending with ERR_UNAVAILABLE, closes. */
void rpc_node_free(struct rpc_node *n);
/* Stops taking requests (they get ERR_UNAVAILABLE), waits until running ones are answered and sent,
 * then calls done. */
void rpc_node_drain(struct rpc_node *n, void (*done)(void *cookie), void *cookie);

/* Found or created; heartbeats start. Lives as long as the node. */
NODISCARD int rpc_peer_get(struct rpc_node *n, const char *addr, struct rpc_peer **ret,
                           struct err *e);
bool rpc_peer_up(const struct rpc_peer *p);
const char *rpc_peer_addr(const struct rpc_peer *p);

/* err NULL = success. `reply` is borrowed for the call. */
typedef void (*rpc_done_fn)(void *cookie, struct str reply, const struct err *err);
/* Moves *payload. The done function always runs later, never inside rpc_send. Returns the id for
 * rpc_cancel. */
uint64_t rpc_send(struct rpc_peer *p, enum rpc_method method, struct buf *payload,
                  uint64_t deadline_ms /* from now */, rpc_done_fn done, void *cookie);
/* done is not called any more; the peer is told. */
void rpc_cancel(struct rpc_node *n, uint64_t id);

/* Serving: payload borrowed until rpc_reply/rpc_fail. */
typedef void (*rpc_serve_fn)(void *cookie, struct rpc_call *call, struct str payload);
void rpc_serve(struct rpc_node *n, enum rpc_method method, rpc_serve_fn fn, void *cookie);
uint64_t rpc_call_left_ms(const struct rpc_call *c);     /* until its deadline */
const bool *rpc_call_canceled(const struct rpc_call *c); /* may be polled from a pool thread */
void rpc_reply(struct rpc_call *c, struct buf *payload); /* moves */
void rpc_fail(struct rpc_call *c, const struct err *e);

#endif

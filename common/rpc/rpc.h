/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc.h: calls between roles. Requests and replies are one-way messages that carry their own
 * version, length, checksum, request id and deadline; three kinds of transport carry it:
 *
 *   tcp://host:port, ipc://path   sockets, one to listen on, two connections to each peer
 *   inproc://name                 the same encoded payload, moved by pointer (all-in-one)
 *   mem://name                    simulated network with delay, loss, reordering (rpc_mem.h)
 *
 * An rpc_node is one role instance: it serves methods under its own address and calls peers.
 * Thread: the loop's; all nodes of one rpc_net share one loop. Every call ends exactly once: reply,
 * error, deadline or cancel. An error that is not the peer's answer (ERR_TIMEOUT, ERR_UNAVAILABLE)
 * does not say whether the peer acted: retries need idempotent requests. A request is served at
 * most once.
 *
 * tcp and ipc: SIGPIPE is ignored from the first node on, for the whole process; a peer takes up to
 * four descriptors.
 */
#ifndef COMMON_RPC_RPC_H
#define COMMON_RPC_RPC_H

#include <stdatomic.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/obs/metrics.h"
#include "common/rpc/rpc_frame.h"
#include "common/rpc/rpc_keys.h"
#include "common/sys/env.h"
#include "common/sys/loop.h"
#include "common/sys/pool.h"

/* Append only. */
enum rpc_method {
    RPC_WRITE = 1,
    RPC_MERGE = 2,
    RPC_TIMELINE = 3,
    RPC_LABELS = 4,
    RPC_STATUS = 5,
    RPC_BUILD_NEXT = 6,  /* compactor: children of nodes that want building */
    RPC_BUILD_APPLY = 7, /* compactor: their sums */
    RPC_DELETE = 8,
    RPC_SPACE = 9,
    RPC_EXEMPLARS = 10,
    RPC_FUNCTIONS = 11,
    RPC_DOC = 12,          /* documents of tenants */
    RPC_ESTIMATE = 13,     /* bytes that a merge would read */
    RPC_WRITE_TOLD = 14,   /* delta write: stacks by numbers sent before */
    RPC_REPL_PREPARE = 15, /* between the replicas of a shard: common/repl */
    RPC_REPL_APPEND = 16,
    RPC_REPL_FETCH = 17,
    RPC_REPL_SNAPSHOT = 18,
    RPC_REPL_DIGEST = 19,
    RPC_LEDGER = 20,    /* counters of accepted and stored data; checks of a distributor's acks */
    RPC_RELAY = 21,     /* a call for the leader of a shard: common/role/route/relay.h */
    RPC_REPL_COPY = 22, /* a database's files to another replica */
    RPC_LEDGER_ACCEPT = 23, /* an operator accepts a difference */
    RPC_GIVE_UP = 24,       /* ingester to the controller: abort an announced change of places */
    RPC_METHODS = 25,
};

struct rpc_net; /* process-wide: the table of inproc names, or the simulated network */
struct rpc_node;
struct rpc_peer;
struct rpc_call; /* one request being served */

struct rpc_net *rpc_net_new(struct env *env, struct metrics *metrics /* may be NULL */);
void rpc_net_free(struct rpc_net *n); /* its nodes are freed; NULL is fine */
/* From now on frames over tcp and ipc are sealed, and unsealed frames refused. Borrows the keys,
 * which may change while frames flow. Call it before the first node. `optional`, while keys are
 * introduced in a running cluster: unsealed frames are accepted as well, and sent to peers that
 * answer only those. */
void rpc_net_seal(struct rpc_net *n, const struct rpc_keys *keys, bool optional);
/* The number of the cluster this process is in; 0: not known (yet). It is sent in every frame over
 * tcp and ipc; frames with another number are dropped, since an address may have belonged to
 * another cluster a moment ago, whose nodes have the same names. */
void rpc_net_cluster(struct rpc_net *n, uint64_t cluster);
/* Sets the bits (RPC_SAYS_) that this process sends to its callers in pongs. */
#define RPC_SAYS_REFUSED 1u /* the coordination service refuses its changes */
void rpc_net_say(struct rpc_net *n, uint32_t says);
struct rpc_told {
    const char *addr;
    uint32_t says;      /* may contain bits that this build does not know */
    int64_t ahead_ms;   /* its clock minus ours */
    uint64_t unsure_ms; /* bound of the error of ahead_ms */
    /* Its clock minus our monotonic clock, since our wall clock may have jumped. */
    int64_t less_mono_ms;
};
/* Pings that process from now on, as if this process called it. False: no node of this process
 * can. */
bool rpc_net_meet(const struct rpc_net *n, const char *addr);
/* Calls fn for each peer that is up and has sent its state in a pong (older builds do not). A peer
 * that two nodes of this process call is reported twice. */
void rpc_net_told(const struct rpc_net *n, void (*fn)(void *cookie, const struct rpc_told *t),
                  void *cookie);
/* Decides whether two cluster numbers that differ may work together
 * (common/cluster/view/config_fingerprint.h). 0: they may. ERR_CONFLICT: the peer's frames are
 * dropped, as without this function. ERR_CONFIG: the two exchange pings, both get the text, and
 * all other frames are refused with it: such a peer is down. */
typedef int (*rpc_judge_fn)(uint64_t mine, uint64_t theirs, struct err *e) NODISCARD;
void rpc_net_judge(struct rpc_net *n, rpc_judge_fn judge);
/* Frames refused so far for this reason. */
uint64_t rpc_net_refused(const struct rpc_net *n, enum rpc_drop why);

struct rpc_node_opts {
    struct rpc_net *net;
    struct loop *loop;
    /* Address to serve under. "" for a node that only calls: one is made up at the first peer, of
     * the peer's kind (tcp: a free port on the local address towards the peer). */
    const char *listen;
    const char *advertise; /* address peers answer to; NULL: the listen address */
    size_t message_max;    /* bytes of one request or reply, after reassembly of chunks */
    size_t pending_max;    /* calls in flight, and requests served at once; one more is ERR_BUSY */
    uint32_t heartbeat_ms, dead_ms; /* a ping each; down after so long without an answer */
    /* The fields below may be 0. */
    struct pool *pool;   /* compresses large messages; NULL: the loop does */
    size_t queue_max;    /* bytes waiting per peer and lane, then ERR_BUSY; 0: 1.25 messages */
    size_t assembly_max; /* bytes of received messages not whole yet; 0: 2 * message_max */
    size_t serving_max;  /* bytes of requests being served, then ERR_BUSY; 0: 2 * message_max */
    size_t callers_max;  /* with so many peers, calls from new ones are refused; 0: 3,072 */
    uint8_t speaks_min, speaks_max; /* frame versions; 0: all this build knows (rpc_frame.h) */
};
NODISCARD int rpc_node_new(const struct rpc_node_opts *o, struct rpc_node **ret, struct err *e);
/* Ends pending calls with ERR_UNAVAILABLE (done functions are called), and closes. Requests being
 * served may still be answered; the answers are dropped. Do not call it inside a done or serve
 * function. */
void rpc_node_free(struct rpc_node *n); /* NULL is fine */
/* Stops taking requests (they get ERR_UNAVAILABLE), waits until running ones are answered and the
 * peers have echoed that they got everything (at most twice dead_ms), then calls done, which may
 * free the node. Calls that this node makes continue. */
void rpc_node_drain(struct rpc_node *n, void (*done)(void *cookie), void *cookie);

bool rpc_node_closing(const struct rpc_node *n);     /* rpc_node_free runs: no more attempts */
const char *rpc_node_addr(const struct rpc_node *n); /* where answers go; "" while it has none */
/* True if a peer that we call has settings that conflict with ours; *e says which, and what to
 * do. */
bool rpc_node_odd(const struct rpc_node *n, struct err *e);

/* Found or created; heartbeats start. Lives as long as the node. ERR_CONFIG: the address, or of a
 * kind this node cannot call; ERR_LIMIT: too many peers. */
NODISCARD int rpc_peer_get(struct rpc_node *n, const char *addr, struct rpc_peer **ret,
                           struct err *e);
/* The same for a call now: the caller must not keep the pointer beyond this turn of the loop. A
 * peer found only by this function is forgotten after it was down and not asked for during ten
 * minutes: the addresses of a cluster change, and this node runs for years. */
NODISCARD int rpc_peer_now(struct rpc_node *n, const char *addr, struct rpc_peer **ret,
                           struct err *e);
/* Answers pings. A new peer is not up until its first answer; calls to it wait. Calls to a peer
 * that is down fail at once. */
bool rpc_peer_up(const struct rpc_peer *p);
bool rpc_peer_down(const struct rpc_peer *p);
/* Why a peer is not up, beginning with its address. */
void rpc_peer_why(const struct rpc_peer *p, struct err *e);
/* True if it is up, or may soon be, as a process that restarts: a message from it came less than
 * within_ms ago. False for a peer that answers but cannot be called. */
bool rpc_peer_returns(const struct rpc_peer *p, uint64_t within_ms);
/* Another number for each process that answered there, never 0; 0: none did yet. */
uint64_t rpc_peer_life(const struct rpc_peer *p);
const char *rpc_peer_addr(const struct rpc_peer *p);

/* err NULL = success. `reply` is borrowed for the call. */
typedef void (*rpc_done_fn)(void *cookie, struct str reply, const struct err *err);
/* Moves *payload (NULL: empty). The done function always runs later, never inside rpc_send. Returns
 * the id for rpc_cancel, never 0. ERR_LIMIT: over message_max. ERR_BUSY: pending_max or the queue.
 * ERR_UNAVAILABLE: the peer is or went down, or restarted, or is going down: err.again_s is set, as
 * it may be back soon. */
uint64_t rpc_send(struct rpc_peer *p, enum rpc_method method, struct buf *payload,
                  uint64_t deadline_ms /* from now */, rpc_done_fn done, void *cookie);
/* done is not called any more; the peer gets a cancel message. Nothing happens if the call has
 * ended already. */
void rpc_cancel(struct rpc_node *n, uint64_t id);

/* Serving: payload borrowed until rpc_reply/rpc_fail. */
typedef void (*rpc_serve_fn)(void *cookie, struct rpc_call *call, struct str payload);
void rpc_serve(struct rpc_node *n, enum rpc_method method, rpc_serve_fn fn, void *cookie);
uint64_t rpc_call_left_ms(const struct rpc_call *c); /* until its deadline */
/* Turns true when the caller canceled, restarted or its deadline passed. Other threads may poll
 * it. Valid until rpc_reply or rpc_fail. */
const atomic_bool *rpc_call_canceled(const struct rpc_call *c);
/* fn when that happens, on the loop; it may answer the call, which frees it. Not for a node that is
 * freed. */
void rpc_call_on_cancel(struct rpc_call *c, void (*fn)(void *cookie), void *cookie);
/* Serves it as if it had come as this method, with these bytes: a part of its payload. */
void rpc_call_as(struct rpc_call *c, enum rpc_method method, struct str payload);
/* Exactly one of them, once, on the loop; inside the serve function is fine. */
void rpc_reply(struct rpc_call *c, struct buf *payload); /* moves; over message_max: ERR_LIMIT */
void rpc_fail(struct rpc_call *c, const struct err *e);
/* Sends the failure now and keeps the call, which counts as canceled, and its payload until one of
 * the two above frees them: for a caller that should not wait for work that cannot be ended. */
void rpc_fail_early(struct rpc_call *c, const struct err *e);

#endif

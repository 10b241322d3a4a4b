/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_node.h: inside a node, for rpc.c, rpc_peer.c, rpc_serve.c and rpc_drain.c only.
 */
#ifndef COMMON_RPC_RPC_NODE_H
#define COMMON_RPC_RPC_NODE_H

#include <stdatomic.h>

#include "common/base/map.h"
#include "common/base/prng.h"
#include "common/base/vec.h"
#include "common/rpc/rpc.h"
#include "common/rpc/rpc_deferred.h"
#include "common/rpc/rpc_net.h"
#include "common/rpc/rpc_table.h"
#include "common/rpc/rpc_wire.h"

#define RPC_MS_NS       UINT64_C(1000000)
#define RPC_PEERS_MAX   4096
#define RPC_CALLERS_MAX 3072 /* of them; callers must not take the places of peers that we call */

/*  NEW ──first pong──> UP ──dead_ms without one──> DOWN ──pong──> UP      NEW ──dead_ms──> DOWN  */
enum rpc_peer_state { RPC_PEER_NEW, RPC_PEER_UP, RPC_PEER_DOWN };

struct rpc_peer {
    struct list link; /* in node.peers */
    struct rpc_node *node;
    char addr[RPC_ADDR_MAX + 1];
    struct rpc_link *out; /* owned */
    uint64_t token;       /* id of its pings: index in node.by_token, and a number used once */
    enum rpc_peer_state state;
    bool called;       /* by us; else it only calls us, and is forgotten when silent */
    bool kept;         /* by rpc_peer_get: never forgotten */
    uint64_t asked_ns; /* when rpc_peer_now was called last */
    bool skewed;       /* answers, but reads no version that we write */
    uint64_t odd; /* it answers by settings that do not go with ours: its cluster; 0: it does not */
    uint8_t speaks_min, speaks_max; /* of its last pong */
    uint64_t epoch;                 /* of its last pong; 0: none yet */
    uint64_t pong_ns;               /* when it came; before the first: when the peer was made */
    uint64_t ping_sent_ns;          /* when the newest ping that was answered was sent */
    uint64_t heard_ns;              /* any message from this address */
    uint64_t reset_ns;              /* when its connection was reset last */
    uint64_t pinged_ns;             /* when it was pinged last */
    char named[RPC_ADDR_MAX + 1];   /* sealed: the address that answered instead; "": none */
    struct list calls;              /* of struct rpc_out */
    size_t serving;                 /* requests of it that run here */
    uint8_t fins_left;              /* draining: bit per lane without an echo */
    bool tells;                     /* the next four are known */
    uint32_t says;                  /* rpc_net_told */
    int64_t ahead_ms, less_mono_ms;
    uint64_t unsure_ms;
};

struct rpc_call {
    uint32_t magic;
    struct list link;      /* in node.serving */
    struct rpc_node *node; /* NULL: freed before the answer came */
    struct rpc_peer *peer; /* the caller */
    uint64_t id, epoch, deadline_ns;
    uint16_t method;
    atomic_bool canceled;            /* read by other threads */
    bool failed_early;               /* answered: rpc_fail_early */
    void (*on_cancel)(void *cookie); /* NULL: not wanted */
    void *cancel_cookie;
    struct buf payload;
};

enum rpc_drain { RPC_SERVING, RPC_DRAINING, RPC_SAYING_FIN, RPC_DRAINED };

struct rpc_node {
    uint32_t magic;
    struct list of_net;
    struct rpc_node_opts o; /* strings are in the two arrays */
    char listen[RPC_ADDR_MAX + 1], advertise[RPC_ADDR_MAX + 1];
    uint64_t epoch;
    struct rpc_metrics *metrics; /* of net */
    struct prng prng;
    struct rpc_port *port;  /* NULL: a node that only calls, and has not called yet */
    enum rpc_scheme scheme; /* of port */
    bool closing;

    struct list peers;
    size_t peers_len;
    struct map_str *by_addr;
    VEC(struct rpc_peer *) by_token; /* NULL: free */
    uint64_t token_serial;
    struct timer *tick;
    uint64_t ticked_ns;

    struct rpc_table *calls;
    struct list ended;  /* of struct rpc_out whose end is due in the next round */
    struct list ending; /* those of this round: a done function may cancel them still */
    struct timer *deadline;
    uint64_t deadline_at_ns; /* what the timer is set to; UINT64_MAX: not */
    struct rpc_deferred *soon;

    struct {
        rpc_serve_fn fn;
        void *cookie;
    } methods[RPC_METHODS];
    struct list serving; /* of struct rpc_call */
    size_t serving_len, serving_bytes;

    enum rpc_drain drain;
    uint64_t drain_until_ns;
    void (*drain_done)(void *cookie);
    void *drain_cookie;
};

static inline uint64_t rpc_node_now(const struct rpc_node *n)
{
    return clock_mono_ns(loop_clock(n->o.loop));
}

/* rpc.c */
/* Ends a call that is under way, now: not inside rpc_send. */
void rpc_out_end(struct rpc_node *n, struct rpc_out *c, struct str reply, const struct err *err);
/* Opens the port under listen; advertise is where answers go. */
NODISCARD int rpc_node_open_port(struct rpc_node *n, const char *listen, const char *advertise,
                                 struct err *e);

/* rpc_peer.c */
/* The peer with this address, made if missing; `called`: by this node. */
NODISCARD int rpc_peer_find(struct rpc_node *n, const char *addr, bool called,
                            struct rpc_peer **ret, struct err *e);
void rpc_peers_free(struct rpc_node *n);
void rpc_peers_tick(struct rpc_node *n, uint64_t now_ns);
void rpc_peer_on_ping(struct rpc_node *n, struct rpc_peer *p, const struct rpc_msg *m);
void rpc_peer_on_pong(struct rpc_node *n, const struct rpc_msg *m);
/* Sends a message without a body that a caller waits for; a full queue drops it, counted. */
void rpc_peer_tell(struct rpc_peer *p, struct rpc_msg *m);
/* Why calls to a peer that is not up fail. */
void rpc_peer_say_down(const struct rpc_peer *p, uint64_t now_ns, struct err *e);

/* rpc_serve.c */
void rpc_serve_request(struct rpc_node *n, struct rpc_peer *p, struct rpc_msg *m);
void rpc_serve_cancel(struct rpc_node *n, const struct rpc_msg *m);
void rpc_serve_tick(struct rpc_node *n, uint64_t now_ns);
/* The caller of these requests restarted and does not wait for them any more. */
void rpc_serve_forget(struct rpc_node *n, const struct rpc_peer *p, uint64_t epoch);
void rpc_serve_detach(struct rpc_node *n);
void rpc_serve_refuse(struct rpc_peer *p, const struct rpc_msg *request, const struct err *e);

/* rpc_drain.c */
/* Looks whether the next state is reached; repeat: says again what got no echo. */
void rpc_drain_step(struct rpc_node *n, uint64_t now_ns, bool repeat);
void rpc_drain_on_fin(struct rpc_peer *p, const struct rpc_msg *m);
void rpc_drain_on_ack(struct rpc_peer *p, const struct rpc_msg *m);
/* True when done was called: the node may be gone. */
bool rpc_drain_finish(struct rpc_node *n);

#endif

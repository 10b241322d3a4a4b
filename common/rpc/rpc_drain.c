/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_drain: leaving without losing an answer.
 *
 *   SERVING ──rpc_node_drain──> DRAINING ──nothing runs──> SAYING_FIN ──echoes, or time──> DRAINED
 *
 * "Sent" only means that some thread has the bytes, and closing a socket throws away what it has
 * not written. So when the last answer is queued, a FIN goes down each lane of each living peer,
 * behind everything else, and the peer echoes it when it gets there. A FIN is repeated each
 * heartbeat (the simulated network loses frames), and after 2 * dead_ms we stop waiting.
 */
#include "common/rpc/rpc_node.h"

enum { ALL_LANES = (1 << RPC_LANES) - 1 };

static void say_fin(struct rpc_peer *p)
{
    for (int lane = 0; lane < RPC_LANES; lane++) {
        struct rpc_msg *m;

        if (!(p->fins_left & 1 << lane))
            continue;
        m = rpc_msg_new(RPC_FIN, (uint64_t)lane);
        m->lane = (uint8_t)lane;
        rpc_peer_tell(p, m);
    }
}

void rpc_drain_on_fin(struct rpc_peer *p, const struct rpc_msg *m)
{
    struct rpc_msg *ack = rpc_msg_new(RPC_FINACK, m->id);

    ack->to_epoch = m->epoch;
    rpc_peer_tell(p, ack);
}

void rpc_drain_on_ack(struct rpc_peer *p, const struct rpc_msg *m)
{
    if (m->id < RPC_LANES)
        p->fins_left &= (uint8_t) ~(1u << m->id);
    if (p->node->drain == RPC_SAYING_FIN)
        rpc_deferred_schedule(p->node->soon);
}

static bool all_echoed(const struct rpc_node *n)
{
    list_for (it, &n->peers) {
        const struct rpc_peer *p = container_of(it, struct rpc_peer, link);

        if (p->fins_left && p->state == RPC_PEER_UP)
            return false;
    }
    return true;
}

void rpc_drain_step(struct rpc_node *n, uint64_t now_ns, bool repeat)
{
    if (n->drain == RPC_DRAINING && n->serving_len == 0 &&
        (!n->port || n->port->ops->packing(n->port) == 0)) {
        n->drain = RPC_SAYING_FIN;
        n->drain_until_ns = now_ns + 2 * n->o.dead_ms * RPC_MS_NS;
        list_for (it, &n->peers)
            container_of(it, struct rpc_peer, link)->fins_left = ALL_LANES;
        repeat = true;
    }
    if (n->drain != RPC_SAYING_FIN)
        return;
    if (all_echoed(n) || now_ns >= n->drain_until_ns) {
        n->drain = RPC_DRAINED;
        return;
    }
    if (!repeat)
        return;
    list_for (it, &n->peers) {
        struct rpc_peer *p = container_of(it, struct rpc_peer, link);

        if (p->state == RPC_PEER_UP)
            say_fin(p);
    }
}

bool rpc_drain_finish(struct rpc_node *n)
{
    void (*done)(void *) = n->drain_done;

    if (n->drain != RPC_DRAINED || !done)
        return false;
    n->drain_done = NULL;
    done(n->drain_cookie); /* may free n */
    return true;
}

void rpc_node_drain(struct rpc_node *n, void (*done)(void *cookie), void *cookie)
{
    CHECK(n->drain == RPC_SERVING);
    n->drain = RPC_DRAINING;
    n->drain_done = done;
    n->drain_cookie = cookie;
    rpc_deferred_schedule(n->soon);
}

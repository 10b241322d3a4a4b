/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc: a node: its calls, and what becomes of each message that arrives.
 *
 *   rpc_send ──> table (id, deadline) ──> peer's link ··· reply, error ──┐
 *                   │                                                   ├──> rpc_out_end ──> done
 *                   ├── deadline timer ─────────────────────────────────┤
 *                   ├── peer goes down or restarts (rpc_peer.c) ────────┤
 *                   └── rpc_node_free ──────────────────────────────────┘    rpc_cancel: no done
 *
 * A call is in the table exactly while it is under way; the code that takes it out ends it, so it
 * ends once. A reply whose id is not in the table is stale: counted and dropped. What fails inside
 * rpc_send itself ends in the next round of the loop, from the list `ended`.
 */
#include "common/rpc/rpc.h"

#include <stdio.h>

#include "common/base/mem.h"
#include "common/rpc/rpc_check.h"
#include "common/rpc/rpc_node.h"

#define NODE_MAGIC MAGIC('R', 'P', 'C', 'N')
enum { DEADLINE_MS_MAX = 24 * 3600 * 1000, ENDED_ROUNDS_MAX = 1000 };

/* ---- the end of calls ------------------------------------------------------------------------ */

static void out_finish(struct rpc_node *n, struct rpc_out *c, struct str reply,
                       const struct err *err)
{
    rpc_metrics_call(n->metrics, c->method, err ? err->code : 0, rpc_node_now(n) - c->began_ns);
    c->done(c->cookie, reply, err);
    xfree(c->err);
    xfree(c);
}

void rpc_out_end(struct rpc_node *n, struct rpc_out *c, struct str reply, const struct err *err)
{
    rpc_table_del(n->calls, c);
    list_del(&c->link);
    out_finish(n, c, reply, err);
}

/* Sets the one timer to the earliest deadline. */
static void deadline_arm(struct rpc_node *n)
{
    const struct rpc_out *first = rpc_table_first(n->calls);
    uint64_t now_ns, at = first ? first->deadline_ns : UINT64_MAX;

    if (at >= n->deadline_at_ns)
        return; /* an early timer finds nothing and is set again */
    now_ns = rpc_node_now(n);
    n->deadline_at_ns = at;
    loop_timer_start(n->deadline, at > now_ns ? (at - now_ns + RPC_MS_NS - 1) / RPC_MS_NS : 0, 0);
}

static void on_deadline(void *cookie)
{
    struct rpc_node *n = cookie;
    uint64_t now_ns = rpc_node_now(n);
    struct rpc_out *c;

    n->deadline_at_ns = UINT64_MAX;
    while ((c = rpc_table_first(n->calls)) != NULL && c->deadline_ns <= now_ns) {
        struct err e;

        err_set(&e, ERR_TIMEOUT, "%s to %s: no reply within %" PRIu64 " ms",
                rpc_method_name(c->method), c->peer->addr,
                (c->deadline_ns - c->began_ns) / RPC_MS_NS);
        c->peer->out->ops->link_forget(c->peer->out, c->id);
        rpc_out_end(n, c, STR_NULL, &e);
    }
    deadline_arm(n);
}

static void run_ended(struct rpc_node *n)
{
    /* Those that a done function adds wait for the next round. */
    list_for (it, &n->ended) {
        list_del(it);
        list_add_tail(&n->ending, it);
    }
    while (!list_empty(&n->ending)) {
        struct rpc_out *c = container_of(n->ending.next, struct rpc_out, link);

        list_del(&c->link);
        out_finish(n, c, STR_NULL, c->err);
    }
}

static void on_soon(void *cookie)
{
    struct rpc_node *n = cookie;

    run_ended(n);
    rpc_drain_step(n, rpc_node_now(n), false);
    (void)rpc_drain_finish(n);
}

/* ---- calling --------------------------------------------------------------------------------- */

static void end_soon(struct rpc_node *n, struct rpc_out *c, const struct err *e)
{
    c->err = xmemdup(e, sizeof(*e));
    list_add_tail(&n->ended, &c->link);
    rpc_deferred_schedule(n->soon);
}

/* Into the table and onto the link; 0, or why not. */
static int out_start(struct rpc_node *n, struct rpc_out *c, struct buf *payload, struct err *e)
{
    struct rpc_peer *p = c->peer;
    size_t len = payload ? payload->len : 0;
    struct rpc_msg *m;

    if (!rpc_table_add(n->calls, c))
        return err_set(e, ERR_BUSY, "%zu calls to other nodes are under way, no more are allowed",
                       n->o.pending_max);
    m = rpc_msg_new(RPC_REQUEST, c->id);
    if (payload)
        buf_move(&m->body, payload);
    m->method = c->method;
    m->deadline_ns = c->deadline_ns;
    if (n->closing)
        err_set(e, ERR_UNAVAILABLE, "this node is shutting down");
    else if (len > n->o.message_max)
        err_set(e, ERR_LIMIT, "request of %zu bytes to %s, at most %zu", len, p->addr,
                n->o.message_max);
    else if (p->state == RPC_PEER_DOWN)
        rpc_peer_say_down(p, c->began_ns, e);
    else if (p->out->ops->link_send(p->out, m, e) == 0)
        return 0;
    rpc_table_del(n->calls, c);
    rpc_msg_free(m);
    return err_wrap(e, "%s", rpc_method_name(c->method));
}

uint64_t rpc_send(struct rpc_peer *p, enum rpc_method method, struct buf *payload,
                  uint64_t deadline_ms, rpc_done_fn done, void *cookie)
{
    struct rpc_node *n = p->node;
    struct rpc_out *c = XNEW(struct rpc_out);
    struct err e;

    CHECK(n->magic == NODE_MAGIC && done);
    CHECK(method > 0 && method < RPC_METHODS);
    list_init(&c->link);
    c->peer = p;
    c->method = (uint16_t)method;
    c->done = done;
    c->cookie = cookie;
    c->began_ns = rpc_node_now(n);
    c->deadline_ns = c->began_ns + MIN(MAX(deadline_ms, 1u), (uint64_t)DEADLINE_MS_MAX) * RPC_MS_NS;
    if (out_start(n, c, payload, &e)) {
        if (payload)
            buf_deinit(payload);
        end_soon(n, c, &e);
    } else {
        list_add_tail(&p->calls, &c->link);
        deadline_arm(n);
    }
    return c->id;
}

static struct rpc_out *list_out(const struct list *l, uint64_t id)
{
    list_for (it, l) {
        if (container_of(it, struct rpc_out, link)->id == id)
            return container_of(it, struct rpc_out, link);
    }
    return NULL;
}

void rpc_cancel(struct rpc_node *n, uint64_t id)
{
    struct rpc_out *c = rpc_table_get(n->calls, id);
    static const struct err canceled = { .code = ERR_CANCELED };

    if (c) {
        c->peer->out->ops->link_forget(c->peer->out, id);
        rpc_peer_tell(c->peer, rpc_msg_new(RPC_CANCEL, id));
        rpc_table_del(n->calls, c);
    } else {
        c = list_out(&n->ended, id);
        if (!c)
            c = list_out(&n->ending, id);
    }
    if (!c)
        return;
    list_del(&c->link);
    rpc_metrics_call(n->metrics, c->method, canceled.code, rpc_node_now(n) - c->began_ns);
    xfree(c->err);
    xfree(c);
}

/* ---- messages that arrive -------------------------------------------------------------------- */

static void on_answer(struct rpc_node *n, struct rpc_msg *m)
{
    struct rpc_out *c = rpc_table_get(n->calls, m->id);
    struct err e;

    if (!c) {
        rpc_metrics_stale(n->metrics);
        return;
    }
    if (m->kind == RPC_REPLY) {
        rpc_out_end(n, c, buf_str(&m->body), NULL);
        return;
    }
    /* A newer peer may know codes that we do not. */
    e.code = m->code < ERR_CODES ? m->code : ERR_INTERNAL;
    if (str_utf8_valid(buf_str(&m->body)) && memchr(m->body.ptr, 0, m->body.len) == NULL)
        err_set(&e, e.code, "%.*s", STR_ARG(buf_str(&m->body)));
    else
        err_set(&e, e.code, "%s: error %u without a readable text", c->peer->addr, m->code);
    e.again_s = m->again_s;
    rpc_out_end(n, c, STR_NULL, &e);
}

/* What needs an answer needs a way to its sender. */
static void on_asked(struct rpc_node *n, struct rpc_msg *m)
{
    struct rpc_peer *p;
    struct err e;

    /* A reflected ping of our own would make this node a peer of itself. */
    if ((m->epoch == n->epoch && !map_str_get(n->by_addr, str_c(m->from))) ||
        rpc_peer_find(n, m->from, false, &p, &e)) {
        rpc_metrics_drop(n->metrics, RPC_DROP_ROUTE);
        rpc_msg_free(m);
        return;
    }
    p->heard_ns = rpc_node_now(n);
    if (m->kind == RPC_REQUEST) {
        rpc_serve_request(n, p, m);
        return;
    }
    if (m->kind == RPC_PING)
        rpc_peer_on_ping(n, p, m);
    else if (m->kind == RPC_FIN)
        rpc_drain_on_fin(p, m);
    else
        rpc_drain_on_ack(p, m);
    rpc_msg_free(m);
}

static void node_on_msg(void *cookie, struct rpc_msg *m)
{
    struct rpc_node *n = cookie;

    CHECK(n->magic == NODE_MAGIC);
    switch ((enum rpc_kind)m->kind) {
    case RPC_PING:
    case RPC_REQUEST:
    case RPC_FIN:
    case RPC_FINACK:
        on_asked(n, m);
        return;
    case RPC_PONG:
        rpc_peer_on_pong(n, m);
        break;
    case RPC_REPLY:
    case RPC_ERROR:
        on_answer(n, m);
        break;
    case RPC_CANCEL:
        rpc_serve_cancel(n, m);
        break;
    }
    rpc_msg_free(m);
}

/* A message too large for us, or for the room there is: end the call on whichever side it waits. */
static void node_on_refused(void *cookie, const struct rpc_msg *m, const struct err *why)
{
    struct rpc_node *n = cookie;
    struct rpc_out *c;
    struct rpc_peer *p;
    struct err e;

    if (m->kind == RPC_REQUEST && rpc_peer_find(n, m->from, false, &p, &e) == 0)
        rpc_serve_refuse(p, m, why);
    c = m->kind == RPC_REPLY ? rpc_table_get(n->calls, m->id) : NULL;
    if (c) {
        e = *why;
        err_wrap(&e, "reply of %s", c->peer->addr);
        rpc_out_end(n, c, STR_NULL, &e);
    }
}

/* ---- life ------------------------------------------------------------------------------------ */

static const struct rpc_wire_ops *wire_of(enum rpc_scheme s)
{
    static const struct rpc_wire_ops *const ops[] = {
        [RPC_SCHEME_TCP] = &rpc_sp_ops,
        [RPC_SCHEME_IPC] = &rpc_sp_ops,
        [RPC_SCHEME_INPROC] = &rpc_inproc_ops,
        [RPC_SCHEME_MEM] = &rpc_mem_ops,
    };

    return ops[s];
}

int rpc_listen_check(const char *listen, const char *advertise, struct err *e)
{
    enum rpc_scheme scheme, answers;

    if (rpc_addr_parse(str_c(listen), &scheme, e) || rpc_addr_parse(str_c(advertise), &answers, e))
        return e->code;
    if (rpc_addr_wildcard(str_c(advertise)))
        return err_set(e, ERR_CONFIG,
                       "rpc listens on %s, which is not an address that peers can reach: configure "
                       "the address to advertise, such as tcp://10.0.0.7:9095",
                       listen);
    if (wire_of(answers) != wire_of(scheme))
        return err_set(e, ERR_CONFIG, "rpc listens on %s and cannot advertise %s", listen,
                       advertise);
    return 0;
}

int rpc_node_open_port(struct rpc_node *n, const char *listen, const char *advertise, struct err *e)
{
    enum rpc_scheme scheme;
    struct rpc_wire_opts o = {
        .net = n->o.net,
        .loop = n->o.loop,
        .pool = n->o.pool,
        .listen = listen,
        .advertise = advertise,
        .epoch = n->epoch,
        .message_max = n->o.message_max,
        .queue_max = n->o.queue_max,
        .assembly_max = n->o.assembly_max,
        .speaks_min = n->o.speaks_min,
        .speaks_max = n->o.speaks_max,
        .on_msg = node_on_msg,
        .on_refused = node_on_refused,
        .cookie = n,
    };

    if (rpc_listen_check(listen, advertise, e) || rpc_addr_parse(str_c(listen), &scheme, e))
        return e->code;
    if (wire_of(scheme)->open(&o, &n->port, e))
        return e->code;
    n->scheme = scheme;
    (void)snprintf(n->listen, sizeof(n->listen), "%s", listen);
    (void)snprintf(n->advertise, sizeof(n->advertise), "%s", advertise);
    return 0;
}

static void on_tick(void *cookie)
{
    struct rpc_node *n = cookie;
    uint64_t now_ns = rpc_node_now(n);

    rpc_serve_tick(n, now_ns);
    rpc_peers_tick(n, now_ns);
    if (n->port)
        n->port->ops->tick(n->port);
    rpc_drain_step(n, now_ns, true);
    (void)rpc_drain_finish(n);
}

static int opts_check(const struct rpc_node_opts *o, struct err *e)
{
    if (o->message_max < KIB || o->message_max > GIB)
        return err_set(e, ERR_CONFIG, "largest rpc message is %zu bytes, want 1 KiB to 1 GiB",
                       o->message_max);
    if (o->pending_max < 1 || o->pending_max > RPC_PENDING_MAX)
        return err_set(e, ERR_CONFIG, "most rpc calls under way is %zu, want 1 to %u",
                       o->pending_max, RPC_PENDING_MAX);
    if (o->heartbeat_ms < 10 || o->dead_ms < 2 * o->heartbeat_ms || o->dead_ms > 600000)
        return err_set(
            e, ERR_CONFIG,
            "rpc heartbeat of %u ms and death after %u ms: want at least 10, and between "
            "twice the heartbeat and 600000",
            o->heartbeat_ms, o->dead_ms);
    if ((o->queue_max && o->queue_max < o->message_max + 4 * KIB) ||
        (o->assembly_max && o->assembly_max < o->message_max))
        return err_set(e, ERR_CONFIG,
                       "rpc queues of %zu bytes and assembly of %zu cannot hold a message of %zu",
                       o->queue_max, o->assembly_max, o->message_max);
    if (o->speaks_min > o->speaks_max)
        return err_set(e, ERR_CONFIG, "rpc versions %u to %u", o->speaks_min, o->speaks_max);
    return 0;
}

static void defaults(struct rpc_node_opts *o)
{
    /* A message always fits, and a few more: peers are many and memory is one. */
    if (!o->queue_max)
        o->queue_max = o->message_max + o->message_max / 4;
    if (!o->assembly_max)
        o->assembly_max = 2 * o->message_max;
    if (!o->serving_max)
        o->serving_max = 2 * o->message_max;
    if (!o->speaks_max)
        o->speaks_max = RPC_FRAME_VERSION;
    if (!o->speaks_min)
        o->speaks_min = MIN(RPC_FRAME_VERSION_MIN, o->speaks_max);
}

int rpc_node_new(const struct rpc_node_opts *o, struct rpc_node **ret, struct err *e)
{
    struct env *env = o->net->env;
    struct rpc_node *n;
    uint64_t seed = 0;

    if (opts_check(o, e))
        return e->code;
    n = XNEW(struct rpc_node);
    n->magic = NODE_MAGIC;
    n->o = *o;
    defaults(&n->o);
    n->metrics = rpc_net_metrics(o->net);
    while (!n->epoch)
        env->random(env, &n->epoch, sizeof(n->epoch));
    env->random(env, &seed, sizeof(seed));
    prng_init(&n->prng, seed);
    list_init(&n->peers);
    list_init(&n->ended);
    list_init(&n->ending);
    list_init(&n->serving);
    n->by_addr = map_str_new();
    n->calls = rpc_table_new(n->o.pending_max);
    n->deadline_at_ns = UINT64_MAX;
    n->deadline = loop_timer_new(o->loop, on_deadline, n);
    n->tick = loop_timer_new(o->loop, on_tick, n);
    n->soon = rpc_deferred_new(o->loop, on_soon, n);
    n->ticked_ns = rpc_node_now(n);
    o->net->nodes++;
    list_add_tail(&o->net->all, &n->of_net);
    if (o->listen[0] &&
        rpc_node_open_port(n, o->listen, o->advertise ? o->advertise : o->listen, e)) {
        rpc_node_free(n);
        return e->code;
    }
    n->o.listen = n->listen;
    n->o.advertise = n->advertise;
    /* Nodes that start together shall not ping together. */
    loop_timer_start(n->tick, 1 + prng_below(&n->prng, n->o.heartbeat_ms), n->o.heartbeat_ms);
    *ret = n;
    return 0;
}

void rpc_node_free(struct rpc_node *n)
{
    struct rpc_out *c;
    struct err e;

    if (!n)
        return;
    CHECK(n->magic == NODE_MAGIC);
    n->closing = true;
    err_set(&e, ERR_UNAVAILABLE, "this node is shutting down");
    while ((c = rpc_table_first(n->calls)) != NULL)
        rpc_out_end(n, c, STR_NULL, &e);
    for (int i = 0; !list_empty(&n->ended); i++) {
        CHECK(i < ENDED_ROUNDS_MAX); /* a done function that always calls again */
        run_ended(n);
    }
    rpc_serve_detach(n);
    rpc_peers_free(n);
    if (n->port)
        n->port->ops->close(n->port);
    loop_timer_free(n->tick);
    loop_timer_free(n->deadline);
    rpc_deferred_free(n->soon);
    rpc_table_free(n->calls);
    map_str_free(n->by_addr);
    vec_free(&n->by_token);
    CHECK(n->o.net->nodes > 0);
    n->o.net->nodes--;
    list_del(&n->of_net);
    n->magic = 0;
    xfree(n);
}

bool rpc_node_closing(const struct rpc_node *n)
{
    return n->closing;
}

const char *rpc_node_addr(const struct rpc_node *n)
{
    return n->advertise;
}

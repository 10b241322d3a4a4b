/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_peer: the nodes this one talks to, and whether they live.
 *
 * A peer is an address with a link to it. Peers that this node calls come from rpc_peer_get and
 * stay, or from rpc_peer_now and are freed when they are down and were not asked for during
 * FORGET_MS; peers that call this node are made for the answers, and are freed when they are
 * silent.
 *
 * Life is a round trip: a ping each heartbeat, DOWN after dead_ms without a pong. Hearing a peer is
 * not enough, since the way there may be broken while the way back works. A pong counts if its ping
 * is younger than dead_ms (its body carries the time back), so a delayed pong does not make a dead
 * peer count as up. When this process itself slept (SIGSTOP, a laptop's lid), the silence is its
 * own and is not counted.
 *
 * DOWN: pending calls fail at once, the link is connected again, at once and repeatedly while the
 * state lasts, since TCP by itself waits longer and longer. A pong with another epoch: the peer
 * restarted and knows nothing of the calls it had; they fail too. Pongs are ordered by their ping,
 * so a late pong of the previous process changes nothing.
 */
#include <stdio.h>

#include "common/base/mem.h"
#include "common/base/rd.h"
#include "common/base/wr.h"
#include "common/rpc/rpc_node.h"

enum { RESET_MS_MIN = 1000, SILENT_MS_MIN = 30000, FORGET_MS = 600000, PING_AGAIN_MS = 10 };
enum { AGAIN_S = 1 }; /* a peer that is down may be back */
#define TOKEN_BITS 16

static uint64_t dead_ns(const struct rpc_node *n)
{
    return n->o.dead_ms * RPC_MS_NS;
}

/* ---- life and death -------------------------------------------------------------------------- */

void rpc_peer_tell(struct rpc_peer *p, struct rpc_msg *m)
{
    struct err e;

    if (p->out->ops->link_send(p->out, m, &e))
        rpc_msg_free(m); /* counted by the link */
}

static void peer_ping(struct rpc_peer *p, uint64_t now_ns)
{
    struct rpc_msg *m = rpc_msg_new(RPC_PING, p->token);

    wr_u64le(&m->body, now_ns);
    m->deadline_ns = now_ns + dead_ns(p->node); /* older ones are no use */
    p->pinged_ns = now_ns;
    rpc_peer_tell(p, m);
}

static void peer_goto(struct rpc_peer *p, enum rpc_peer_state to)
{
    static const uint8_t next[] = {
        [RPC_PEER_NEW] = 1 << RPC_PEER_UP | 1 << RPC_PEER_DOWN,
        [RPC_PEER_UP] = 1 << RPC_PEER_DOWN,
        [RPC_PEER_DOWN] = 1 << RPC_PEER_UP,
    };

    CHECK(next[p->state] & 1 << to);
    p->state = to;
    if (p->called)
        rpc_metrics_peer(p->node->metrics, p->addr, to == RPC_PEER_UP);
}

static void peer_reset(struct rpc_peer *p, uint64_t now_ns)
{
    p->reset_ns = now_ns;
    rpc_metrics_reset(p->node->metrics);
    p->out->ops->link_reset(p->out);
}

/* A done function may call again; those calls are new and not ours to end. */
static void fail_calls(struct rpc_peer *p, const struct err *e)
{
    struct list now;

    list_init(&now);
    list_for (it, &p->calls) {
        list_del(it);
        list_add_tail(&now, it);
    }
    while (!list_empty(&now)) {
        struct rpc_out *c = container_of(now.next, struct rpc_out, link);

        p->out->ops->link_forget(p->out, c->id);
        rpc_out_end(p->node, c, STR_NULL, e);
    }
}

/* With keys, the most likely reason is another key. */
static void say_no_answer(const struct rpc_peer *p, const struct rpc_keys *keys, struct err *e)
{
    struct buf said;

    buf_init(&said, ERR_TEXT_MAX);
    rpc_keys_say(keys, &said);
    err_set_again(e, ERR_UNAVAILABLE, AGAIN_S,
                  "%s is down: it never answered; does it run, and has it the cluster key %.*s?",
                  p->addr, STR_ARG(buf_str(&said)));
    buf_deinit(&said);
}

static bool says_odd(const struct rpc_peer *p, struct err *e)
{
    if (!p->odd || !rpc_net_judged(p->node->o.net, p->odd, e))
        return false;
    e->code = ERR_UNAVAILABLE;
    (void)err_wrap(e, "%s", p->addr);
    return true;
}

void rpc_peer_say_down(const struct rpc_peer *p, uint64_t now_ns, struct err *e)
{
    const struct rpc_node_opts *o = &p->node->o;

    if (says_odd(p, e))
        return;
    if (p->skewed)
        err_set(
            e, ERR_UNAVAILABLE,
            "%s speaks rpc versions %u to %u, this node %u to %u: upgrade one version at a time",
            p->addr, p->speaks_min, p->speaks_max, o->speaks_min, o->speaks_max);
    else if (p->epoch)
        err_set_again(e, ERR_UNAVAILABLE, AGAIN_S,
                      "%s is down: no answer to pings for %" PRIu64 " ms", p->addr,
                      (now_ns - p->pong_ns) / RPC_MS_NS);
    else if (p->named[0])
        err_set(e, ERR_UNAVAILABLE,
                "%s is down: %s answers there; call it by the address it advertises", p->addr,
                p->named);
    else if (o->net->keys && p->node->scheme != RPC_SCHEME_INPROC)
        say_no_answer(p, o->net->keys, e);
    else
        err_set_again(e, ERR_UNAVAILABLE, AGAIN_S, "%s is down: it never answered", p->addr);
}

static void peer_down(struct rpc_peer *p, uint64_t now_ns)
{
    struct err e;

    peer_goto(p, RPC_PEER_DOWN);
    rpc_peer_say_down(p, now_ns, &e);
    peer_reset(p, now_ns);
    fail_calls(p, &e);
}

/* ---- the list of peers ----------------------------------------------------------------------- */

static uint64_t token_new(struct rpc_node *n, struct rpc_peer *p)
{
    size_t at = 0;

    while (at < n->by_token.len && n->by_token.ptr[at])
        at++;
    if (at == n->by_token.len)
        vec_push(&n->by_token, p);
    n->by_token.ptr[at] = p;
    return ++n->token_serial << TOKEN_BITS | at;
}

static struct rpc_peer *peer_of_token(const struct rpc_node *n, uint64_t token)
{
    size_t at = token & ((1 << TOKEN_BITS) - 1);
    struct rpc_peer *p = at < n->by_token.len ? n->by_token.ptr[at] : NULL;

    return p && p->token == token ? p : NULL;
}

static void peer_free(struct rpc_peer *p)
{
    struct rpc_node *n = p->node;

    CHECK(list_empty(&p->calls) && p->serving == 0);
    if (p->called)
        rpc_metrics_peer_gone(n->metrics, p->addr);
    n->by_token.ptr[p->token & ((1 << TOKEN_BITS) - 1)] = NULL;
    CHECK(map_str_del(n->by_addr, str_c(p->addr)) == p);
    list_del(&p->link);
    n->peers_len--;
    p->out->ops->link_close(p->out);
    xfree(p);
}

void rpc_peers_free(struct rpc_node *n)
{
    list_for (it, &n->peers)
        peer_free(container_of(it, struct rpc_peer, link));
}

static int peer_new(struct rpc_node *n, const char *addr, bool called, struct rpc_peer **ret,
                    struct err *e)
{
    struct rpc_link *out;
    struct rpc_peer *p;
    uint64_t now_ns = rpc_node_now(n);
    size_t max = called ? RPC_PEERS_MAX : n->o.callers_max ? n->o.callers_max : RPC_CALLERS_MAX;

    if (n->peers_len >= max)
        return err_set(e, ERR_LIMIT, "no room for peer %s: %zu are known, at most %zu", addr,
                       n->peers_len, max);
    if (n->port->ops->link_open(n->port, addr, &out, e))
        return e->code;
    p = XNEW(struct rpc_peer);
    p->node = n;
    p->out = out;
    memcpy(p->addr, addr, strlen(addr));
    list_init(&p->calls);
    p->pong_ns = p->heard_ns = p->reset_ns = now_ns;
    p->token = token_new(n, p);
    list_add_tail(&n->peers, &p->link);
    n->peers_len++;
    CHECK(map_str_put(n->by_addr, str_c(p->addr), p) == NULL);
    peer_ping(p, now_ns);
    *ret = p;
    return 0;
}

/* A node that only calls gets its address now that it is known what kind. */
static int open_anonymous(struct rpc_node *n, const char *peer, struct err *e)
{
    for (int tries = 0;; tries++) {
        char addr[RPC_ADDR_MAX + 1];

        if (rpc_addr_anonymous(str_c(peer), prng_u64(&n->prng), addr, e))
            return e->code;
        if (rpc_node_open_port(n, addr, addr, e) == 0)
            return 0;
        if (tries == 8)
            return err_wrap(e, "an address of its own for a node that calls %s", peer);
    }
}

/* tcp and ipc are one kind: rpc_sp does both. */
static bool same_kind(enum rpc_scheme a, enum rpc_scheme b)
{
    bool nn_a = a == RPC_SCHEME_TCP || a == RPC_SCHEME_IPC;
    bool nn_b = b == RPC_SCHEME_TCP || b == RPC_SCHEME_IPC;

    return a == b || (nn_a && nn_b);
}

int rpc_peer_find(struct rpc_node *n, const char *addr, bool called, struct rpc_peer **ret,
                  struct err *e)
{
    struct rpc_peer *p = map_str_get(n->by_addr, str_c(addr));
    enum rpc_scheme scheme;

    if (!p) {
        if (rpc_addr_parse(str_c(addr), &scheme, e))
            return e->code;
        if (!n->port && open_anonymous(n, addr, e))
            return e->code;
        if (!same_kind(scheme, n->scheme))
            return err_set(e, ERR_CONFIG,
                           "this node's rpc address is %s: %s could not answer it; give both the "
                           "same kind",
                           n->advertise, addr);
        if (rpc_addr_wildcard(str_c(addr)))
            return err_set(e, ERR_CONFIG, "rpc peer %s: name one host", addr);
        if (peer_new(n, addr, called, &p, e))
            return e->code;
    }
    if (called && !p->called) {
        p->called = true;
        rpc_metrics_peer(n->metrics, p->addr, p->state == RPC_PEER_UP);
    }
    *ret = p;
    return 0;
}

int rpc_peer_get(struct rpc_node *n, const char *addr, struct rpc_peer **ret, struct err *e)
{
    int code = rpc_peer_find(n, addr, true, ret, e);

    if (!code)
        (*ret)->kept = true;
    return code;
}

int rpc_peer_now(struct rpc_node *n, const char *addr, struct rpc_peer **ret, struct err *e)
{
    int code = rpc_peer_find(n, addr, true, ret, e);

    if (!code)
        (*ret)->asked_ns = rpc_node_now(n);
    return code;
}

bool rpc_peer_up(const struct rpc_peer *p)
{
    return p->state == RPC_PEER_UP;
}

bool rpc_peer_down(const struct rpc_peer *p)
{
    return p->state == RPC_PEER_DOWN;
}

bool rpc_node_odd(const struct rpc_node *n, struct err *e)
{
    list_for (it, &n->peers) {
        const struct rpc_peer *p = container_of(it, struct rpc_peer, link);

        if (p->called && says_odd(p, e))
            return true;
    }
    return false;
}

void rpc_peer_why(const struct rpc_peer *p, struct err *e)
{
    if (p->state == RPC_PEER_NEW)
        err_set_again(e, ERR_UNAVAILABLE, AGAIN_S, "%s has not answered yet", p->addr);
    else
        rpc_peer_say_down(p, rpc_node_now(p->node), e);
}

bool rpc_peer_returns(const struct rpc_peer *p, uint64_t within_ms)
{
    return p->state == RPC_PEER_UP ||
           (!p->skewed && !p->odd && rpc_node_now(p->node) - p->pong_ns < within_ms * RPC_MS_NS);
}

uint64_t rpc_peer_life(const struct rpc_peer *p)
{
    return p->epoch;
}

const char *rpc_peer_addr(const struct rpc_peer *p)
{
    return p->addr;
}

/* ---- pings ----------------------------------------------------------------------------------- */

/* A pong: the ping's body, then this; builds before it end there, and skip it.
 *
 *   u64  wall clock, ms since 1970        u32  RPC_SAYS_ */
enum { TOLD_BYTES = 12 };

static void pong_tell(const struct rpc_node *n, struct buf *out)
{
    if (out->len + TOLD_BYTES > RPC_FRAME_SMALL_MAX)
        return;
    wr_u64le(out, (uint64_t)clock_wall_ms(loop_clock(n->o.loop)));
    wr_u32le(out, n->o.net->says);
}

/* Its clock was read at some time of the way there and back. */
static void pong_told(struct rpc_peer *p, struct rd *r, uint64_t way_ns)
{
    int64_t now_ms = clock_wall_ms(loop_clock(p->node->o.loop));
    uint64_t wall_ms;
    uint32_t says;

    p->tells = rd_u64le(r, &wall_ms) && rd_u32le(r, &says) && wall_ms < INT64_MAX / 2;
    if (!p->tells)
        return;
    p->unsure_ms = way_ns / RPC_MS_NS / 2 + 1;
    p->ahead_ms = (int64_t)wall_ms + (int64_t)p->unsure_ms - now_ms;
    p->less_mono_ms =
        (int64_t)wall_ms + (int64_t)p->unsure_ms - (int64_t)(rpc_node_now(p->node) / RPC_MS_NS);
    p->says = says;
}

bool rpc_net_meet(const struct rpc_net *net, const char *addr)
{
    struct rpc_peer *p;
    struct err e;

    list_for (at, &net->all) {
        struct rpc_node *n = container_of(at, struct rpc_node, of_net);

        if (n->closing || n->drain != RPC_SERVING)
            continue;
        if (strcmp(n->advertise, addr) == 0 || rpc_peer_get(n, addr, &p, &e) == 0)
            return true;
    }
    return false;
}

void rpc_net_told(const struct rpc_net *net, void (*fn)(void *cookie, const struct rpc_told *t),
                  void *cookie)
{
    list_for (at, &net->all) {
        const struct rpc_node *n = container_of(at, struct rpc_node, of_net);

        list_for (it, &n->peers) {
            const struct rpc_peer *p = container_of(it, struct rpc_peer, link);

            if (p->called && p->tells && p->state == RPC_PEER_UP && n->scheme != RPC_SCHEME_INPROC)
                fn(cookie, &(struct rpc_told){ p->addr, p->says, p->ahead_ms, p->unsure_ms,
                                               p->less_mono_ms });
        }
    }
}

void rpc_peer_on_ping(struct rpc_node *n, struct rpc_peer *p, const struct rpc_msg *m)
{
    struct rpc_msg *pong = rpc_msg_new(RPC_PONG, m->id);

    buf_add_str(&pong->body, buf_str(&m->body));
    pong_tell(n, &pong->body);
    pong->to_epoch = m->epoch;
    pong->sealed = m->sealed;
    pong->deadline_ns = rpc_node_now(n) + dead_ns(n);
    rpc_peer_tell(p, pong);
    /* Answers to a process that we do not know yet wait for its pong. */
    if (m->sealed && m->epoch != p->epoch &&
        rpc_node_now(n) >= p->pinged_ns + PING_AGAIN_MS * RPC_MS_NS)
        peer_ping(p, rpc_node_now(n));
}

static void peer_restarted(struct rpc_peer *p, uint64_t epoch)
{
    struct err e;

    rpc_serve_forget(p->node, p, epoch);
    if (!p->epoch)
        return;
    err_set_again(&e, ERR_UNAVAILABLE, AGAIN_S, "%s restarted", p->addr);
    fail_calls(p, &e);
}

void rpc_peer_on_pong(struct rpc_node *n, const struct rpc_msg *m)
{
    struct rpc_peer *p = peer_of_token(n, m->id);
    struct rd r = rd_of(buf_str(&m->body));
    uint64_t now_ns = rpc_node_now(n), sent_ns;
    bool restarted, good;
    struct err e;

    if (!p || !rd_u64le(&r, &sent_ns) || sent_ns > now_ns || sent_ns < p->ping_sent_ns ||
        now_ns - sent_ns > dead_ns(n)) {
        rpc_metrics_stale(n->metrics);
        return;
    }
    /* Tickets are for one address: frames for this one shall not reach another node. */
    if (m->sealed && strcmp(m->from, p->addr) != 0) {
        memcpy(p->named, m->from, sizeof(p->named));
        return;
    }
    p->named[0] = '\0';
    p->ping_sent_ns = sent_ns;
    p->pong_ns = p->heard_ns = now_ns;
    pong_told(p, &r, now_ns - sent_ns);
    p->speaks_min = m->speaks_min;
    p->speaks_max = m->speaks_max;
    p->skewed = m->speaks_min > n->o.speaks_max || m->speaks_max < n->o.speaks_min;
    p->odd = rpc_net_judged(n->o.net, m->cluster, &e) ? m->cluster : 0;
    restarted = p->epoch != m->epoch;
    good = !p->skewed && !p->odd;
    if (!good && p->state != RPC_PEER_DOWN)
        peer_down(p, now_ns);
    if (good) {
        p->out->ops->link_speaks(p->out, m->speaks_max);
        p->out->ops->link_bind(p->out, m);
        if (p->state != RPC_PEER_UP)
            peer_goto(p, RPC_PEER_UP);
    }
    if (restarted) {
        peer_restarted(p, m->epoch);
        p->epoch = m->epoch;
    }
}

/* True if the peer can be freed: neither side has sent anything for long. */
static bool peer_over(const struct rpc_peer *p, uint64_t now_ns)
{
    uint64_t silent_ns = MAX(10 * dead_ns(p->node), SILENT_MS_MIN * RPC_MS_NS);

    if (p->kept || p->serving > 0 || !list_empty(&p->calls) || now_ns - p->heard_ns <= silent_ns)
        return false;
    return !p->called ||
           (p->state == RPC_PEER_DOWN && now_ns - p->asked_ns > FORGET_MS * RPC_MS_NS);
}

static void peer_tick(struct rpc_peer *p, uint64_t now_ns)
{
    struct rpc_node *n = p->node;
    uint64_t reset_ns = MAX(2 * dead_ns(n), RESET_MS_MIN * RPC_MS_NS);

    if (peer_over(p, now_ns)) {
        peer_free(p);
        return;
    }
    if (now_ns - p->pong_ns > dead_ns(n)) {
        p->skewed = false; /* it does not answer at all */
        p->odd = 0;
        if (p->state != RPC_PEER_DOWN)
            peer_down(p, now_ns);
        else if (now_ns - p->reset_ns > reset_ns)
            peer_reset(p, now_ns);
    }
    peer_ping(p, now_ns);
}

void rpc_peers_tick(struct rpc_node *n, uint64_t now_ns)
{
    uint64_t gap_ns = now_ns - n->ticked_ns, due_ns = n->o.heartbeat_ms * RPC_MS_NS;
    uint64_t slept_ns = gap_ns > dead_ns(n) / 2 && gap_ns > due_ns ? gap_ns - due_ns : 0;

    n->ticked_ns = now_ns;
    list_for (it, &n->peers) {
        struct rpc_peer *p = container_of(it, struct rpc_peer, link);

        p->pong_ns = MIN(p->pong_ns + slept_ns, now_ns);
        peer_tick(p, now_ns);
    }
}

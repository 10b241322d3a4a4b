/* SPDX-License-Identifier: Apache-2.0
 *
 * heard: looks every two seconds. That clocks differ is a line in the log when it begins, every
 * AGAIN_MS while it lasts, and when it is over (at half of the bound, so that it does not flutter).
 * What a clock may be wrong by, the way of a ping, counts in its favour.
 */
#include "common/role/cluster/peer_health.h"

#include <stdio.h>

#include "common/base/mem.h"
#include "common/obs/log.h"
#include "common/role/cluster/etcd_health.h"

#define LOOK_MS  2000
#define AGAIN_MS 600000
/* With more nodes, those that are called anyway report enough. If all nodes called the same few as
 * well, these would run out of places for callers. */
#define MEET_MAX 32

struct peer_health {
    struct loop *loop;
    struct rpc_net *rpc;
    const struct view *view;
    const struct etcd_health *health; /* or NULL */
    struct timer *timer;
    struct metric_cell *skew, *refused;
    bool apart; /* said */
    uint64_t said_ms;
};

struct round {
    size_t peers, apart, refused;
    uint64_t most_ms; /* surely apart */
    int64_t ahead_ms; /* of the clock that differs most */
    char addr[RPC_ADDR_MAX + 1];
};

static uint64_t surely_ms(const struct rpc_told *t)
{
    uint64_t far = t->ahead_ms < 0 ? (uint64_t)-t->ahead_ms : (uint64_t)t->ahead_ms;

    return far > t->unsure_ms ? far - t->unsure_ms : 0;
}

static void on_told(void *cookie, const struct rpc_told *t)
{
    struct round *r = cookie;
    uint64_t far = surely_ms(t);

    r->peers++;
    r->apart += far > PEER_HEALTH_SKEW_MS;
    r->refused += (t->says & RPC_SAYS_REFUSED) != 0;
    if (far <= r->most_ms)
        return;
    r->most_ms = far;
    r->ahead_ms = t->ahead_ms;
    (void)snprintf(r->addr, sizeof(r->addr), "%s", t->addr);
}

static void say(struct peer_health *h, const struct round *r)
{
    uint64_t now = clock_mono_ms(loop_clock(h->loop));

    if (h->apart && r->most_ms < PEER_HEALTH_SKEW_MS / 2) {
        h->apart = false;
        log_info("clocks agree again", KV_U64("processes", r->peers));
    } else if (r->apart && (!h->apart || now - h->said_ms >= AGAIN_MS)) {
        h->apart = true;
        h->said_ms = now;
        log_warn("clocks of processes differ: see to their time service. If all differ, it is this "
                 "machine's",
                 KV_U64("differ", r->apart), KV_U64("of", r->peers), KV_CSTR("most", r->addr),
                 KV_I64("it_is_ahead_ms", r->ahead_ms));
    }
}

/* Connects to nodes that were not called yet, so that their state is known, too. */
static void meet(struct peer_health *h)
{
    struct view_node n;

    for (size_t i = 0; view_nodes_len(h->view) <= MEET_MAX && i < view_nodes_len(h->view); i++) {
        view_node(h->view, i, &n);
        if (n.live && n.addr[0] && !str_starts(str_c(n.addr), STR("inproc:")))
            (void)rpc_net_meet(h->rpc, n.addr);
    }
}

static bool refuses(const struct peer_health *h)
{
    return h->health && etcd_health_refuses(h->health);
}

static void on_timer(void *cookie)
{
    struct peer_health *h = cookie;
    struct round r = { 0 };

    meet(h);
    rpc_net_say(h->rpc, refuses(h) ? RPC_SAYS_REFUSED : 0);
    rpc_net_told(h->rpc, on_told, &r);
    metric_set(h->skew, (int64_t)(r.most_ms / 1000));
    metric_set(h->refused, (int64_t)r.refused + refuses(h));
    say(h, &r);
}

static struct metric_cell *gauge(struct metrics *m, const char *name, const char *help)
{
    return metric_at(metric_new(m, METRIC_GAUGE, name, help, NULL), NULL, 0);
}

struct peer_health *peer_health_new(struct loop *loop, struct rpc_net *rpc, const struct view *view,
                                    const struct etcd_health *health, struct metrics *metrics)
{
    struct peer_health *h = XNEW(struct peer_health);

    h->loop = loop;
    h->rpc = rpc;
    h->view = view;
    h->health = health;
    h->skew = gauge(metrics, "embertree_cluster_clock_skew_seconds",
                    "How far the clock of a process that this one calls is from its own, at most");
    h->refused = gauge(metrics, "embertree_cluster_refused_nodes",
                       "Known processes, this one too, whose changes the coordination service "
                       "refuses");
    h->timer = loop_timer_new(loop, on_timer, h);
    loop_timer_start(h->timer, LOOK_MS, LOOK_MS);
    return h;
}

void peer_health_free(struct peer_health *h)
{
    if (!h)
        return;
    loop_timer_free(h->timer);
    xfree(h);
}

/* ---- for /ring ------------------------------------------------------------------------------- */

static void clock_json(void *cookie, const struct rpc_told *t)
{
    struct json *j = cookie;

    json_obj(j);
    json_put_cstr(j, "addr", t->addr);
    json_put_i64(j, "ahead_ms", t->ahead_ms);
    json_put_u64(j, "unsure_ms", t->unsure_ms);
    json_obj_end(j);
}

static void refused_json(void *cookie, const struct rpc_told *t)
{
    if (t->says & RPC_SAYS_REFUSED)
        json_cstr(cookie, t->addr);
}

void peer_health_json(const struct peer_health *h, struct json *j)
{
    json_key(j, "clocks");
    json_arr(j);
    rpc_net_told(h->rpc, clock_json, j);
    json_arr_end(j);
    json_key(j, "refused");
    json_arr(j);
    rpc_net_told(h->rpc, refused_json, j);
    json_arr_end(j);
    json_put_bool(j, "refused_here", refuses(h));
}

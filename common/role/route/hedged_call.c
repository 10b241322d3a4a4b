/* SPDX-License-Identifier: Apache-2.0
 *
 * race: one or two legs, one end.
 *
 *   hedged_call_begin ──> leg 0: straight, or round where straight is dead or avoided, or no
 * leader any
 *        │            │                                                 more (route_uses_relay)
 *        │            │ good answer ────────────────────────────────> done(reply)
 *        │ late       │ error, and nothing else is under way ───────> done(error)
 *        └─> more ──> hedged_call_send_second ──> leg 1: the other way; as leg 0
 *
 * The first leg with a result ends the race; the other leg is canceled. Each leg reports what it
 * learnt of its way (peer_paths.c). If a helper does not know RPC_RELAY, or knows no leader, this
 * says nothing of the call: it counts as ERR_UNAVAILABLE, and the caller continues as if that way
 * did not exist. ERR_UNIMPLEMENTED through a helper that is known to relay calls is the answer of
 * the leader itself. All helpers are known to relay where the coordination service has answered.
 */
#include "common/role/route/hedged_call.h"

#include "common/base/mem.h"
#include "common/role/route/relay.h"
#include "common/role/route/route_impl.h"

#define MS_NS          UINT64_C(1000000)
#define AGAIN_NS       (50 * MS_NS) /* no helper was found: tries again */
#define OLD_HELPER_NS  (60000 * MS_NS)
#define SLOW_HELPER_NS (2000 * MS_NS)

static uint64_t now_ns(const struct hedged_call *c)
{
    return clock_mono_ns(loop_clock(c->o.route->o.loop));
}

/* ---- ends ----------------------------------------------------------------------------------- */

static void leg_cancel(struct hedged_call_leg *leg)
{
    if (leg->id)
        rpc_cancel(leg->race->o.route->o.node, leg->id);
    leg->id = 0;
}

static void hedged_call_stop(struct hedged_call *c)
{
    c->running = false;
    list_del(&c->link);
    leg_cancel(&c->legs[0]);
    leg_cancel(&c->legs[1]);
    way_drop(c->way);
    way_drop(c->legs[0].helper);
    way_drop(c->legs[1].helper);
}

static void hedged_call_end(struct hedged_call *c, struct str reply, const struct err *err)
{
    rpc_done_fn done = c->o.done;
    void *cookie = c->o.cookie;
    struct err *why = c->why;

    c->why = NULL;
    hedged_call_stop(c);
    done(cookie, reply, err);
    xfree(why);
}

void hedged_call_cancel(struct hedged_call *c)
{
    if (!c->running)
        return;
    xfree(c->why);
    c->why = NULL;
    hedged_call_stop(c);
}

/* ---- what a leg learnt ---------------------------------------------------------------------- */

static struct hedged_call_leg *other(struct hedged_call_leg *leg)
{
    struct hedged_call *c = leg->race;

    return leg == &c->legs[0] ? &c->legs[1] : &c->legs[0];
}

static bool is_answer(int code)
{
    return code != ERR_UNAVAILABLE && code != ERR_TIMEOUT;
}

static void learn_straight(struct hedged_call_leg *leg, int code, uint64_t now)
{
    struct hedged_call *c = leg->race;

    if (code == ERR_BUSY)
        return; /* it may be our own queue to it that is full */
    if (is_answer(code)) {
        way_answered(c->way, leg->method, now - leg->sent_ns);
        if (other(leg)->id && leg == &c->legs[1]) /* while it was avoided */
            peer_path_clear(c->way, now);
    } else if (code == ERR_TIMEOUT) {
        peer_path_strike(c->way, now);
    }
}

/* The helper is of an older build; else the leader. */
static bool not_understood(const struct hedged_call_leg *leg, int code)
{
    return code == ERR_UNIMPLEMENTED && !leg->helper->relays;
}

static void learn_round(struct hedged_call_leg *leg, int code, uint64_t now)
{
    struct hedged_call *c = leg->race;

    if (not_understood(leg, code))
        leg->helper->no_help_ns = now + OLD_HELPER_NS;
    else if (code == ERR_TIMEOUT)
        leg->helper->no_help_ns = now + SLOW_HELPER_NS;
    else if (code != ERR_UNAVAILABLE && other(leg)->id && !other(leg)->helper)
        peer_path_strike(c->way, now);
    if (code == ERR_TIMEOUT)
        peer_path_clear(c->way, now);
}

/* An answer says more than none, and the straight way more than a helper. */
static unsigned rank(const struct hedged_call_leg *leg, int code)
{
    return (is_answer(code) ? 2 : 0) + (leg->helper ? 0 : 1) + 1;
}

static void keep_why(struct hedged_call_leg *leg, const struct err *err)
{
    struct hedged_call *c = leg->race;
    struct err e = *err;

    if (leg->helper) {
        if (not_understood(leg, e.code))
            e.code = ERR_UNAVAILABLE;
        (void)err_wrap(&e, "relayed by %s", leg->helper->addr);
    }
    if (c->why && c->why_rank >= rank(leg, e.code))
        return;
    xfree(c->why);
    c->why = xmemdup(&e, sizeof(e));
    c->why_rank = rank(leg, e.code);
}

static void on_leg(void *cookie, struct str reply, const struct err *err)
{
    struct hedged_call_leg *leg = cookie;
    struct hedged_call *c = leg->race;
    int code = err ? err->code : 0;

    CHECK(c->running && leg->id);
    leg->id = 0;
    if (leg->helper)
        learn_round(leg, code, now_ns(c));
    else if (c->way)
        learn_straight(leg, code, now_ns(c));
    if (!err) {
        if (leg == &c->legs[1])
            peer_paths_count(c->o.route->ways->metrics.hedge_won);
        hedged_call_end(c, reply, NULL);
        return;
    }
    keep_why(leg, err);
    if (!other(leg)->id)
        hedged_call_end(c, STR_NULL, c->why);
}

/* ---- sending -------------------------------------------------------------------------------- */

static void leg_send(struct hedged_call_leg *leg, struct rpc_peer *to, struct way *helper,
                     enum rpc_method method, struct buf *payload)
{
    struct hedged_call *c = leg->race;
    uint64_t now = now_ns(c);
    uint64_t left_ms = c->until_ns > now ? (c->until_ns - now + MS_NS - 1) / MS_NS : 1;

    CHECK(!leg->helper);
    leg->helper = way_hold(helper);
    leg->method = (uint16_t)method;
    leg->sent_ns = now;
    if (helper) {
        struct relay_call call = { method, (uint32_t)c->o.target, buf_str(payload) };
        struct buf packed;

        relay_pack(&call, &packed);
        buf_deinit(payload);
        leg->id = rpc_send(to, RPC_RELAY, &packed, left_ms, on_leg, leg);
    } else {
        leg->id = rpc_send(to, method, payload, left_ms, on_leg, leg);
    }
}

int hedged_call_begin(struct hedged_call *c, const struct hedged_call_opts *o,
                      enum rpc_method method, struct buf *payload, struct err *e)
{
    struct route *r = o->route;
    struct rpc_peer *straight = route_peer(r, o->target, e), *to = NULL;
    struct way *helper = NULL;

    CHECK(!c->running);
    if (!straight)
        return e->code;
    *c = (struct hedged_call){ .o = *o, .running = true };
    c->legs[0].race = c->legs[1].race = c;
    list_init(&c->link);
    uint64_t now = now_ns(c);
    c->until_ns = now + o->deadline_ms * MS_NS;
    if (route_rounds(r)) {
        c->way = way_hold(peer_paths_at(r->ways, rpc_peer_addr(straight)));
        peer_paths_credit(r->ways, now);
        if (rpc_peer_down(straight) || way_avoided(c->way, now) || route_uses_relay(r, o->target))
            to = route_helper(r, o->target, method, NULL, &helper);
        if (helper)
            peer_paths_count(r->ways->metrics.relayed);
        if (o->more && r->ways->hedge_ms) {
            c->hedge_ns = now + peer_path_hedge_delay_ns(r->ways, c->way, (uint16_t)method,
                                                         o->deadline_ms * MS_NS);
            peer_paths_wait(r->ways, &c->link);
        }
    }
    leg_send(&c->legs[0], helper ? to : straight, helper, method, payload);
    return 0;
}

/* Where the second copy goes; NULL: nowhere. */
static struct rpc_peer *other_way(struct hedged_call *c, struct way **ret_helper)
{
    struct route *r = c->o.route;
    struct rpc_peer *straight;
    struct err e;

    *ret_helper = NULL;
    if (c->legs[0].helper) {
        straight = route_peer(r, c->o.target, &e);
        if (straight && !rpc_peer_down(straight))
            return straight;
    }
    return route_helper(r, c->o.target, (enum rpc_method)c->legs[0].method, c->legs[0].helper,
                        ret_helper);
}

bool hedged_call_send_second(struct hedged_call *c, enum rpc_method method, struct buf *payload)
{
    struct way *helper;
    struct rpc_peer *to;

    CHECK(c->running && !c->legs[1].id && c->legs[0].id);
    to = other_way(c, &helper);
    if (!to)
        return false;
    peer_paths_count(c->o.route->ways->metrics.hedged);
    leg_send(&c->legs[1], to, helper, method, payload);
    return true;
}

void hedged_call_tick(void *ways)
{
    struct peer_paths *w = ways;

    list_for (it, &w->waiting) {
        struct hedged_call *c = container_of(it, struct hedged_call, link);
        struct way *helper;

        uint64_t now = now_ns(c);
        if (now < c->hedge_ns)
            continue;
        if (!other_way(c, &helper)) {
            c->hedge_ns = now + AGAIN_NS;
            continue;
        }
        list_del(&c->link);
        if (hedge_budget_spend(w, now))
            c->o.more(c->o.cookie);
        else
            peer_paths_count(w->metrics.hedge_refused);
    }
    if (!list_empty(&w->waiting))
        return;
    w->ticking = false;
    loop_timer_stop(w->tick);
}

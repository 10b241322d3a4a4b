/* SPDX-License-Identifier: Apache-2.0
 *
 * route: the view (common/cluster/view/view.h) names the leader; rpc finds the peer by its address.
 * Of a list nothing ever changes, so its peers are kept in an array that needs no look-up.
 *
 * The number of shards is fixed for the cluster's life, so threads may read a copy of it.
 *
 * Where shards stay with their ingester permanently (a list, a map in a file), an ingester that
 * restarts first refuses calls, then is silent for a while, and its new process knows nothing of
 * earlier calls. rpc reports all that by err.again_s, and such a call is sent again while the
 * ingester may come back: it answers pings, or did so in the last SILENT_MS. So calls wait for a
 * dead ingester only for SILENT_MS after its death. An error that an ingester of a list returns
 * itself is final; with a map in a file it may return ERR_UNAVAILABLE while it opens its shards. A
 * call that two processes did not survive is not sent to a third: it may be the cause.
 *
 * Where shards move, a read is sent again through a fail-over, and no longer: people wait for it.
 * It ends with the reason when the shard has had no live leader, or no majority, for READ_LED_MS,
 * or when the named leader has refused it for READ_MOST_MS. A write is worth waiting for until its
 * deadline: the client would only send it again.
 */
#include "common/role/route/route.h"

#include <stdio.h>

#include "common/base/mem.h"
#include "common/role/route/hedged_call.h"
#include "common/role/route/route_impl.h"

#define AGAIN_MS_FIRST 25
#define AGAIN_MS_MOST  400
#define SILENT_MS      4000
#define REFUSES_MS     10000 /* it goes down in order for so long */
#define LIVES_MOST     2
#define MISSING_NEVER  UINT64_MAX
#define READ_LED_MS    5000  /* a fail-over takes less once the lease has ended */
#define READ_MOST_MS   15000 /* a leader may load a large shard before it serves it */
#define STRANGERS_MAX  8     /* asked for help where a shard has no followers */
#define OLD_VIEW_MS    3000

static uint64_t now_ms(const struct route *r)
{
    return clock_mono_ms(loop_clock(r->o.loop));
}

static bool is_led(const struct route *r, uint32_t shard, struct view_shard *ret)
{
    return view_shard(r->o.view, shard, ret) && ret->leader_addr[0] && ret->leader_live;
}

/* With fewer its leader, if there is one, can neither store nor answer. */
static bool has_majority(const struct route *r, const struct view_shard *s)
{
    size_t live = 0;

    for (size_t i = 0; i < s->members_len; i++) {
        struct view_node n;

        live += view_node_find(r->o.view, s->members[i], &n) && n.live;
    }
    return 2 * live > s->members_len || !s->members_len;
}

static void look_for_leaders(struct route *r)
{
    uint32_t n = view_shards(r->o.view);

    if (n != r->missing_len) {
        xfree(r->missing_ms);
        xfree(r->round);
        r->missing_ms = XNEW_ARRAY(uint64_t, MAX(n, 1u));
        r->round = XNEW_ARRAY(bool, MAX(n, 1u));
        r->missing_len = n;
        for (uint32_t i = 0; i < n; i++)
            r->missing_ms[i] = MISSING_NEVER;
    }
    for (uint32_t i = 0; i < n; i++) {
        struct view_shard s;

        if (is_led(r, i, &s) && has_majority(r, &s))
            r->missing_ms[i] = MISSING_NEVER;
        else if (r->missing_ms[i] == MISSING_NEVER)
            r->missing_ms[i] = now_ms(r);
    }
}

static void on_view(void *cookie)
{
    struct route *r = cookie;

    atomic_store(&r->shards, view_shards(r->o.view));
    if (r->moves)
        look_for_leaders(r);
}

static int greet_list(struct route *r, struct err *e)
{
    size_t n = view_nodes_len(r->o.view);

    r->peers = XNEW_ARRAY(struct rpc_peer *, n);
    for (; r->peers_len < n; r->peers_len++) {
        struct view_node node;

        view_node(r->o.view, r->peers_len, &node);
        if (rpc_peer_get(r->o.node, node.addr, &r->peers[r->peers_len], e))
            return err_wrap(e, "cluster.ingesters");
    }
    return 0;
}

int route_new(const struct route_opts *o, struct route **ret, struct err *e)
{
    struct route *r = XNEW(struct route);
    struct view_shard first;

    r->o = *o;
    r->ways = peer_paths_new(o->loop, o->hedge_ms, o->metrics, hedged_call_tick);
    r->moves = !view_ready(o->view) || !view_shard(o->view, 0, &first) || first.term > 0;
    if (!r->moves && greet_list(r, e)) {
        peer_paths_free(r->ways);
        xfree(r->peers);
        xfree(r);
        return e->code;
    }
    view_watch(o->view, on_view, r);
    on_view(r);
    *ret = r;
    return 0;
}

void route_free(struct route *r)
{
    if (!r)
        return;
    view_unwatch(r->o.view, on_view, r);
    peer_paths_free(r->ways);
    xfree(r->peers);
    xfree(r->missing_ms);
    xfree(r->round);
    xfree(r);
}

bool route_moves(const struct route *r)
{
    return r->moves;
}

uint32_t route_shards(const struct route *r)
{
    return atomic_load(&r->shards);
}

const struct map *route_map(const struct route *r)
{
    return view_ready(r->o.view) ? view_map_ref(r->o.view) : NULL;
}

size_t route_targets(const struct route *r)
{
    return r->moves ? route_shards(r) : r->peers_len;
}

size_t route_target(const struct route *r, uint32_t shard)
{
    return r->moves ? shard : shard % r->peers_len;
}

struct rpc_peer *route_peer(struct route *r, size_t target, struct err *e)
{
    struct view_shard s;
    struct rpc_peer *p;

    if (!r->moves)
        return r->peers[target];
    if (!view_shard(r->o.view, (uint32_t)target, &s) || !s.leader_addr[0]) {
        (void)err_set(e, ERR_UNAVAILABLE, "no leader of shard %zu is known", target);
        return NULL;
    }
    if (rpc_peer_now(r->o.node, s.leader_addr, &p, e)) {
        e->code = ERR_UNAVAILABLE;
        (void)err_wrap(e, "leader %s of shard %zu", s.leader, target);
        return NULL;
    }
    return p;
}

/* Calls that were under way together fail together: only the first of them changes the way. */
void route_failed(struct route *r, size_t target, bool went_round)
{
    struct view_shard s;

    if (!r->moves || !view_shard(r->o.view, (uint32_t)target, &s))
        return;
    view_suspect_leader(r->o.view, (uint32_t)target, s.term);
    if (target < r->missing_len && r->round[target] == went_round)
        r->round[target] = !went_round;
}

/* While the coordination service answers, the view knows a new leader at once. While it is away, a
 * lead that was handed over just before may be known to the followers and not here. So after a
 * failure the next call uses the other way, and later calls use the way that worked. */
bool route_uses_relay(const struct route *r, size_t target)
{
    return r->moves && target < r->missing_len && r->round[target] &&
           view_age_ms(r->o.view) >= OLD_VIEW_MS;
}

/* ---- going round ---------------------------------------------------------------------------- */

/* Returns the peer if this ingester would relay a call. A peer without a connection is connected,
 * and can be asked next time. A peer whose build is known to lack RPC_RELAY, or the method, is not
 * asked. A peer of unknown build is asked: if it refuses, it is not asked again for a while
 * (hedged_call.c). */
static struct rpc_peer *helps(struct route *r, const struct view_node *n, const char *leader,
                              enum rpc_method method, const struct way *but, struct way **ret_way)
{
    uint64_t now_ns = clock_mono_ns(loop_clock(r->o.loop));
    uint32_t newest = MAX((uint32_t)RPC_RELAY, (uint32_t)method);
    struct rpc_peer *p;
    struct err e;

    if (!n->addr[0] || strcmp(n->addr, leader) == 0 || (n->methods && n->methods <= newest) ||
        rpc_peer_now(r->o.node, n->addr, &p, &e) || !rpc_peer_up(p))
        return NULL;
    *ret_way = peer_paths_at(r->ways, n->addr);
    (*ret_way)->relays = n->methods != 0;
    return *ret_way == but || now_ns < (*ret_way)->no_help_ns ? NULL : p;
}

/* Followers first: they talk to the leader all the time. */
struct rpc_peer *route_helper(struct route *r, size_t target, enum rpc_method method,
                              const struct way *but, struct way **ret_way)
{
    size_t nodes = view_nodes_len(r->o.view), turn = r->ways->turn++;
    struct rpc_peer *p = NULL;
    struct view_shard s;
    struct view_node n;

    *ret_way = NULL;
    if (!view_shard(r->o.view, (uint32_t)target, &s) || !s.leader_addr[0])
        return NULL;
    for (size_t i = 0; !p && i < s.members_len; i++)
        if (view_node_find(r->o.view, s.members[(turn + i) % s.members_len], &n))
            p = helps(r, &n, s.leader_addr, method, but, ret_way);
    for (size_t i = 0; !p && s.members_len < 2 && i < MIN(nodes, (size_t)STRANGERS_MAX); i++) {
        view_node(r->o.view, (turn + i) % nodes, &n);
        p = helps(r, &n, s.leader_addr, method, but, ret_way);
    }
    if (!p)
        *ret_way = NULL;
    return p;
}

/* ---- questions ------------------------------------------------------------------------------ */

struct route_call {
    struct route *r;
    size_t target;
    enum rpc_method method;
    struct buf payload;
    uint64_t deadline_ms, wait_ms;
    uint64_t failed_ms; /* when it failed first */
    uint64_t life;      /* where shards stay: the process it was sent to, and how many there were */
    unsigned lives;
    rpc_done_fn done;
    void *cookie;
    struct hedged_call race; /* runs, or the timer does */
    struct timer *timer;     /* NULL: it was not needed yet */
};

static void call_free(struct route_call *c)
{
    loop_timer_free(c->timer);
    buf_deinit(&c->payload);
    xfree(c);
}

static void call_end(struct route_call *c, struct str reply, const struct err *err)
{
    rpc_done_fn done = c->done;
    void *cookie = c->cookie;

    call_free(c);
    done(cookie, reply, err);
}

/* With a map in a file shards have leaders, too, but these never change. */
static bool may_move(const struct route *r)
{
    return view_kind(r->o.view) == VIEW_COORD;
}

static void on_timer(void *cookie);

static void call_later(struct route_call *c, uint64_t wait_ms)
{
    if (!c->timer)
        c->timer = loop_timer_new(c->r->o.loop, on_timer, c);
    loop_timer_start(c->timer, wait_ms, 0);
}

static bool may_help(const struct route_call *c)
{
    const struct rpc_peer *p;
    struct err e;

    if (rpc_node_closing(c->r->o.node))
        return false;
    if (may_move(c->r))
        return true;
    p = route_peer(c->r, c->target, &e);
    return p && rpc_peer_returns(p, SILENT_MS) &&
           (c->r->moves || now_ms(c->r) - c->failed_ms < REFUSES_MS);
}

/* What only reads may run twice at once. */
static bool reads(enum rpc_method m)
{
    return m == RPC_MERGE || m == RPC_TIMELINE || m == RPC_LABELS || m == RPC_EXEMPLARS ||
           m == RPC_FUNCTIONS || m == RPC_ESTIMATE;
}

/* A read that would wait for more than a fail-over; *e is then the reason. */
static bool in_vain(const struct route_call *c, struct err *e)
{
    const struct route *r = c->r;
    uint64_t now = now_ms(r), since;
    struct view_shard s;

    if (!may_move(r) || !reads(c->method) || !view_ready(r->o.view) || c->target >= r->missing_len)
        return false;
    since = r->missing_ms[c->target];
    if (since != MISSING_NEVER && now - since >= READ_LED_MS) {
        if (is_led(r, (uint32_t)c->target, &s))
            (void)err_set(e, ERR_UNAVAILABLE,
                          "half or more of the copies of shard %zu are gone; embertreectl cluster "
                          "status names them",
                          c->target);
        else
            (void)err_set(e, ERR_UNAVAILABLE,
                          "shard %zu has no leader; embertreectl cluster status says why",
                          c->target);
        return true;
    }
    if (!c->wait_ms || now - c->failed_ms < READ_MOST_MS)
        return false;
    e->code = ERR_UNAVAILABLE;
    (void)err_wrap(e, "asked for %" PRIu64 " s", (now - c->failed_ms) / 1000);
    return true;
}

/* False: there is no time for another attempt, or no use in it. */
static bool call_waits(struct route_call *c)
{
    if (!c->wait_ms)
        c->failed_ms = now_ms(c->r);
    c->wait_ms = c->wait_ms ? MIN(c->wait_ms * 2, AGAIN_MS_MOST) : AGAIN_MS_FIRST;
    if (now_ms(c->r) + c->wait_ms >= c->deadline_ms || !may_help(c))
        return false;
    call_later(c, c->wait_ms);
    return true;
}

/* Not from here: rpc ends all calls of a peer in one go. */
static void on_reply(void *cookie, struct str reply, const struct err *err)
{
    struct route_call *c = cookie;
    struct err why;

    if (err && err->code == ERR_UNAVAILABLE && (c->r->moves || err->again_s)) {
        route_failed(c->r, c->target, hedged_call_went_round(&c->race));
        why = *err;
        if (in_vain(c, &why)) {
            call_end(c, STR_NULL, &why);
            return;
        }
        if (call_waits(c))
            return;
    }
    call_end(c, reply, err);
}

/* The transport takes what it is given. */
static void copy_payload(const struct route_call *c, struct buf *copy)
{
    buf_init(copy, c->payload.len + 1);
    (void)buf_add_str(copy, buf_str(&c->payload));
}

static void on_late(void *cookie)
{
    struct route_call *c = cookie;
    struct buf copy;

    copy_payload(c, &copy);
    if (!hedged_call_send_second(&c->race, c->method, &copy))
        buf_deinit(&copy);
}

static int call_try(struct route_call *c, struct err *e)
{
    uint64_t now = now_ms(c->r);
    struct hedged_call_opts o = { .route = c->r,
                                  .target = c->target,
                                  .deadline_ms = c->deadline_ms > now ? c->deadline_ms - now : 1,
                                  .more = reads(c->method) ? on_late : NULL,
                                  .done = on_reply,
                                  .cookie = c };
    struct buf copy;
    int code;

    copy_payload(c, &copy);
    code = hedged_call_begin(&c->race, &o, c->method, &copy, e);
    if (code)
        buf_deinit(&copy);
    return code;
}

/* It was with as many processes as one call may see end. */
static bool outlived(struct route_call *c, struct err *e)
{
    const struct rpc_peer *p = may_move(c->r) ? NULL : route_peer(c->r, c->target, e);
    uint64_t life = p ? rpc_peer_life(p) : 0;

    if (!life || life == c->life)
        return false;
    c->life = life;
    if (++c->lives <= LIVES_MOST)
        return false;
    (void)err_set(e, ERR_UNAVAILABLE, "%s restarted %d times while it was asked this",
                  rpc_peer_addr(p), LIVES_MOST);
    return true;
}

static void on_timer(void *cookie)
{
    struct route_call *c = cookie;
    struct err e;

    if (outlived(c, &e))
        call_end(c, STR_NULL, &e);
    else if (call_try(c, &e) && (in_vain(c, &e) || !call_waits(c)))
        call_end(c, STR_NULL, &e);
}

struct route_call *route_ask(struct route *r, const struct route_query *q, struct buf *payload)
{
    struct route_call *c = XNEW(struct route_call);
    struct err e;

    *c = (struct route_call){ .r = r,
                              .target = q->target,
                              .method = q->method,
                              .payload = *payload,
                              .deadline_ms = now_ms(r) + q->deadline_ms,
                              .done = q->done,
                              .cookie = q->cookie };
    buf_init(payload, 0);
    (void)outlived(c, &e); /* its first */
    if (call_try(c, &e))
        call_later(c, 1); /* done is not called from here */
    return c;
}

void route_cancel(struct route_call *c)
{
    if (!c)
        return;
    hedged_call_cancel(&c->race);
    call_free(c);
}

/* ---- readiness ------------------------------------------------------------------------------ */

bool route_ready(struct route *r, char *why, size_t why_size)
{
    struct err e;

    if (rpc_node_odd(r->o.node, &e)) {
        (void)snprintf(why, why_size, "ingester %s", e.text);
        return false;
    }
    if (!r->moves) {
        for (size_t i = 0; i < r->peers_len; i++) {
            if (rpc_peer_up(r->peers[i]))
                continue;
            rpc_peer_why(r->peers[i], &e);
            (void)snprintf(why, why_size, "ingester %s", e.text);
            return false;
        }
        return true;
    }
    if (!view_ready(r->o.view)) {
        const char *trouble = view_why(r->o.view);
        (void)snprintf(why, why_size, "the map of the cluster is not known yet%s%s",
                       trouble[0] ? ": " : "", trouble);
        return false;
    }
    bool ready = true;
    for (uint32_t i = 0; i < r->missing_len; i++) {
        struct view_shard s;

        if (!view_shard(r->o.view, i, &s) || !s.leader_addr[0]) { /* no fail-over to wait for */
            (void)snprintf(why, why_size, "shard %" PRIu32 " is not placed yet", i);
            return false;
        }
        if (r->missing_ms[i] == MISSING_NEVER || now_ms(r) - r->missing_ms[i] < r->o.patience_ms)
            continue;
        if (!is_led(r, i, &s)) {
            (void)snprintf(why, why_size, "shard %" PRIu32 " has no leader", i);
            return false;
        }
        if (ready)
            (void)snprintf(why, why_size,
                           "half or more of the copies of shard %" PRIu32 " are gone", i);
        ready = false;
    }
    return ready;
}

size_t route_up(const struct route *r, size_t *ret_all)
{
    size_t n = view_nodes_len(r->o.view), up = 0;

    if (!r->moves) {
        for (size_t i = 0; i < r->peers_len; i++)
            up += rpc_peer_up(r->peers[i]);
        *ret_all = r->peers_len;
        return up;
    }
    for (size_t i = 0; i < n; i++) {
        struct view_node node;

        view_node(r->o.view, i, &node);
        up += node.live;
    }
    *ret_all = n;
    return up;
}

static void node_json(const char *addr, bool up, struct json *j)
{
    json_obj(j);
    json_put_cstr(j, "address", addr);
    json_put_bool(j, "up", up);
    json_obj_end(j);
}

void route_json(const struct route *r, struct json *j)
{
    json_key(j, "ingesters");
    json_arr(j);
    for (size_t i = 0; !r->moves && i < r->peers_len; i++)
        node_json(rpc_peer_addr(r->peers[i]), rpc_peer_up(r->peers[i]), j);
    for (size_t i = 0; r->moves && i < view_nodes_len(r->o.view); i++) {
        struct view_node node;

        view_node(r->o.view, i, &node);
        node_json(node.addr, node.live, j);
    }
    json_arr_end(j);
}

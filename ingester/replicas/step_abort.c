/* SPDX-License-Identifier: Apache-2.0
 *
 * replicas_doubt: a change of places is announced, and etcd went away before it became valid. While
 * that is not known, leaders refuse what it is about (placement_guard.h): from its time on all
 * pushes of a service, if etcd stays away for so long.
 *
 * Only the controller that announced a step can make it valid. So nodes ask it directly to abort
 * the step. After its answer the step counts as never announced; when etcd is back the step is
 * announced again. If that controller is down as well, or tried to make the step valid and does not
 * know the result, the step stays announced, and writes are refused until etcd is back.
 *
 *   request: u64le, the version of the map that announced it; then who did (map.h, by)
 *   reply:   nothing
 */
#include "common/base/rd.h"
#include "common/base/wr.h"
#include "common/cluster/control/controller.h"
#include "common/cluster/map/map_pending.h"
#include "common/rpc/rpc.h"
#include "ingester/replicas/replicas_impl.h"
#include "ingester/shard/placement_guard.h"

#define AWAY_MS  10000 /* etcd may be slow for some seconds: then it tells by itself */
#define AGAIN_MS 2000
#define WAIT_MS  1500

static void on_answer(void *cookie, struct str reply, const struct err *err)
{
    struct replicas *rs = cookie;

    (void)reply;
    rs->doubt.call = 0;
    if (!err)
        placement_guard_give_up(rs->in->placed, rs->doubt.version);
}

/* "node-1 00f3.." */
static int ask(struct replicas *rs, const struct map_pending *next, struct err *e)
{
    ptrdiff_t blank = str_find(next->by, ' ');
    char name[NODE_NAME_MAX + 1] = { 0 };
    struct rpc_peer *peer;
    struct view_node n;
    struct buf out;

    if (blank <= 0 || blank > NODE_NAME_MAX)
        return err_set(e, ERR_INPUT, "no controller is named");
    memcpy(name, next->by.ptr, (size_t)blank);
    if (strcmp(name, rs->self) == 0)
        return controller_step_abort(rs->controller, next->by, next->version, e);
    if (!view_node_find(rs->view, name, &n) || !n.addr[0])
        return err_set(e, ERR_NOT_FOUND, "no node is called %s", name);
    if (rpc_peer_now(rs->in->node, n.addr, &peer, e))
        return e->code;
    rs->doubt.version = next->version;
    buf_init(&out, 8 + MAP_BY_MAX);
    wr_u64le(&out, next->version);
    (void)buf_add_str(&out, next->by);
    rs->doubt.call = rpc_send(peer, RPC_GIVE_UP, &out, WAIT_MS, on_answer, rs);
    return ERR_BUSY;
}

void step_abort_tick(struct replicas *rs)
{
    uint64_t now = replicas_now_ms(rs);
    const struct map_pending *next;
    const struct map *m;
    struct map_whose w;
    struct err e;
    int64_t rev;

    if (rs->doubt.call || now < rs->doubt.next_ms || view_age_ms(rs->view) < AWAY_MS)
        return;
    m = view_map(rs->view, &rev);
    if (!m || !map_pending_announced(m, &w))
        return;
    next = &map_whose_steps(m, &w)->next;
    if (!next->by.len || placement_guard_gave_up(rs->in->placed) >= next->version)
        return;
    rs->doubt.next_ms = now + AGAIN_MS;
    if (!ask(rs, next, &e))
        placement_guard_give_up(rs->in->placed, next->version);
}

static void on_give_up(void *cookie, struct rpc_call *call, struct str payload)
{
    const struct ingester *in = cookie;
    struct rd r = rd_of(payload);
    uint64_t version = 0;
    struct buf none;
    struct err e;
    int code;

    buf_init(&none, 0);
    if (!rd_u64le(&r, &version))
        code = err_set(&e, ERR_INPUT, "the request to abort a change of places is cut off");
    else if (!in->replicas || !in->replicas->controller)
        code = err_set(&e, ERR_CONFLICT, "this node is no controller");
    else
        code = controller_step_abort(in->replicas->controller, str_sub(payload, 8, payload.len),
                                     version, &e);
    if (code)
        rpc_fail(call, &e);
    else
        rpc_reply(call, &none);
}

void replicas_doubt_serve(struct ingester *in)
{
    rpc_serve(in->node, RPC_GIVE_UP, on_give_up, in);
}

void step_abort_end(struct replicas *rs)
{
    if (rs->doubt.call)
        rpc_cancel(rs->in->node, rs->doubt.call);
}

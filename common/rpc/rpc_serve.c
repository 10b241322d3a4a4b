/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_serve: requests of other nodes, from arrival to the one answer.
 *
 * A struct rpc_call belongs to the role between its serve function and rpc_reply or rpc_fail, which
 * free it. It may outlive the node: the answer then goes nowhere. `canceled` is the one field that
 * other threads read (a merge on a pool thread checks it while it works).
 *
 * Bounds: pending_max requests at once and serving_max bytes of them; over that ERR_BUSY at once,
 * so that the caller can go elsewhere.
 */
#include "common/base/mem.h"
#include "common/rpc/rpc_node.h"

#define CALL_MAGIC MAGIC('C', 'A', 'L', 'L')

/* The on_cancel callback may answer the call, and free it. */
static void cancel(struct rpc_call *c)
{
    void (*told)(void *cookie) = c->on_cancel;

    atomic_store_explicit(&c->canceled, true, memory_order_relaxed);
    c->on_cancel = NULL;
    if (told)
        told(c->cancel_cookie);
}

/* ---- answers --------------------------------------------------------------------------------- */

static struct rpc_msg *error_msg(uint64_t id, uint64_t to_epoch, const struct err *e)
{
    struct rpc_msg *m = rpc_msg_new(RPC_ERROR, id);

    m->to_epoch = to_epoch;
    m->code = (uint16_t)(e->code > 0 && e->code < ERR_CODES ? e->code : ERR_INTERNAL);
    m->again_s = e->again_s;
    buf_add_str(&m->body, str_c(e->text));
    return m;
}

void rpc_serve_refuse(struct rpc_peer *p, const struct rpc_msg *request, const struct err *e)
{
    struct rpc_msg *m = error_msg(request->id, request->epoch, e);

    m->deadline_ns = request->deadline_ns;
    rpc_metrics_served(p->node->metrics, request->method, e->code);
    rpc_peer_tell(p, m);
}

static void call_free(struct rpc_call *c)
{
    struct rpc_node *n = c->node;

    list_del(&c->link);
    if (n) {
        CHECK(n->serving_len > 0 && c->peer->serving > 0 && n->serving_bytes >= c->payload.len);
        n->serving_len--;
        n->serving_bytes -= c->payload.len;
        c->peer->serving--;
        if (n->drain != RPC_SERVING)
            rpc_deferred_schedule(n->soon);
    }
    buf_deinit(&c->payload);
    c->magic = 0;
    xfree(c);
}

/* Sends m, the call's answer; false: the queue to the caller is full. Moves m. */
static bool call_answer(struct rpc_call *c, struct rpc_msg *m, struct err *e)
{
    struct rpc_link *out = c->peer->out;

    m->to_epoch = c->epoch;
    m->deadline_ns = c->deadline_ns;
    if (out->ops->link_send(out, m, e) == 0)
        return true;
    rpc_msg_free(m);
    return false;
}

/* Counts the end of a call; false: the caller does not wait for it any more. */
static bool call_wanted(const struct rpc_call *c, int code)
{
    CHECK(c->magic == CALL_MAGIC);
    if (!c->node || c->failed_early)
        return false;
    rpc_metrics_served(c->node->metrics, c->method, c->canceled ? ERR_CANCELED : code);
    return !c->canceled;
}

void rpc_fail(struct rpc_call *c, const struct err *e)
{
    struct err full;

    if (call_wanted(c, e->code ? e->code : ERR_INTERNAL))
        (void)call_answer(c, error_msg(c->id, c->epoch, e), &full);
    call_free(c);
}

void rpc_fail_early(struct rpc_call *c, const struct err *e)
{
    struct err full;

    if (call_wanted(c, e->code ? e->code : ERR_INTERNAL))
        (void)call_answer(c, error_msg(c->id, c->epoch, e), &full);
    c->failed_early = true;
    atomic_store_explicit(&c->canceled, true, memory_order_relaxed);
    c->on_cancel = NULL;
}

void rpc_reply(struct rpc_call *c, struct buf *payload)
{
    struct rpc_msg *m;
    struct err e;

    CHECK(c->magic == CALL_MAGIC);
    if (c->node && payload->len > c->node->o.message_max) {
        err_set(&e, ERR_LIMIT, "reply of %zu bytes, at most %zu: ask for less", payload->len,
                c->node->o.message_max);
        buf_deinit(payload);
        rpc_fail(c, &e);
        return;
    }
    if (call_wanted(c, 0)) {
        m = rpc_msg_new(RPC_REPLY, c->id);
        buf_move(&m->body, payload);
        if (!call_answer(c, m, &e)) {
            err_wrap(&e, "sending the reply");
            (void)call_answer(c, error_msg(c->id, c->epoch, &e), &e);
        }
    } else {
        buf_deinit(payload);
    }
    call_free(c);
}

/* ---- requests -------------------------------------------------------------------------------- */

static int not_served(const struct rpc_node *n, uint16_t method, struct err *e)
{
    return err_set(e, ERR_UNIMPLEMENTED, "%s does not serve rpc method %u (%s)", n->advertise,
                   method, rpc_method_name(method));
}

/* Why a request cannot be taken; 0 if it can. */
static int refuse(const struct rpc_node *n, const struct rpc_msg *m, struct err *e)
{
    if (n->drain != RPC_SERVING)
        return err_set_again(e, ERR_UNAVAILABLE, 1, "%s is shutting down", n->advertise);
    if (m->method >= RPC_METHODS || !n->methods[m->method].fn)
        return not_served(n, m->method, e);
    if (n->serving_len >= n->o.pending_max)
        return err_set(e, ERR_BUSY, "%s serves %zu requests already", n->advertise, n->serving_len);
    if (n->serving_len && n->serving_bytes + m->body.len > n->o.serving_max)
        return err_set(e, ERR_BUSY, "%s holds %zu bytes of requests already, at most %zu",
                       n->advertise, n->serving_bytes, n->o.serving_max);
    return 0;
}

void rpc_serve_request(struct rpc_node *n, struct rpc_peer *p, struct rpc_msg *m)
{
    struct rpc_call *c;
    struct err e;

    if (refuse(n, m, &e)) {
        rpc_serve_refuse(p, m, &e);
        rpc_msg_free(m);
        return;
    }
    c = XNEW(struct rpc_call);
    c->magic = CALL_MAGIC;
    c->node = n;
    c->peer = p;
    c->id = m->id;
    c->epoch = m->epoch;
    c->method = m->method;
    c->deadline_ns = m->deadline_ns ? m->deadline_ns : UINT64_MAX;
    buf_init(&c->payload, SIZE_MAX);
    buf_move(&c->payload, &m->body);
    rpc_msg_free(m);
    list_add_tail(&n->serving, &c->link);
    n->serving_len++;
    n->serving_bytes += c->payload.len;
    p->serving++;
    n->methods[c->method].fn(n->methods[c->method].cookie, c, buf_str(&c->payload));
}

void rpc_serve(struct rpc_node *n, enum rpc_method method, rpc_serve_fn fn, void *cookie)
{
    CHECK(method > 0 && method < RPC_METHODS);
    n->methods[method].fn = fn;
    n->methods[method].cookie = cookie;
}

uint64_t rpc_call_left_ms(const struct rpc_call *c)
{
    uint64_t now_ns = c->node ? rpc_node_now(c->node) : c->deadline_ns;

    return c->deadline_ns > now_ns ? (c->deadline_ns - now_ns) / RPC_MS_NS : 0;
}

const atomic_bool *rpc_call_canceled(const struct rpc_call *c)
{
    CHECK(c->magic == CALL_MAGIC);
    return &c->canceled;
}

void rpc_call_on_cancel(struct rpc_call *c, void (*fn)(void *cookie), void *cookie)
{
    CHECK(c->magic == CALL_MAGIC);
    c->on_cancel = fn;
    c->cancel_cookie = cookie;
}

void rpc_call_as(struct rpc_call *c, enum rpc_method method, struct str payload)
{
    struct rpc_node *n = c->node;
    struct err e;

    CHECK(c->magic == CALL_MAGIC && n);
    if (method >= RPC_METHODS || !n->methods[method].fn) {
        (void)not_served(n, (uint16_t)method, &e);
        rpc_fail(c, &e);
        return;
    }
    c->method = (uint16_t)method;
    n->methods[method].fn(n->methods[method].cookie, c, payload);
}

/* ---- canceled calls -------------------------------------------------------------------------- */

void rpc_serve_cancel(struct rpc_node *n, const struct rpc_msg *m)
{
    list_for (it, &n->serving) {
        struct rpc_call *c = container_of(it, struct rpc_call, link);

        if (c->id == m->id && c->epoch == m->epoch && strcmp(c->peer->addr, m->from) == 0)
            cancel(c);
    }
}

void rpc_serve_forget(struct rpc_node *n, const struct rpc_peer *p, uint64_t epoch)
{
    list_for (it, &n->serving) {
        struct rpc_call *c = container_of(it, struct rpc_call, link);

        if (c->peer == p && c->epoch != epoch)
            cancel(c);
    }
}

void rpc_serve_tick(struct rpc_node *n, uint64_t now_ns)
{
    list_for (it, &n->serving) {
        struct rpc_call *c = container_of(it, struct rpc_call, link);

        if (now_ns >= c->deadline_ns)
            cancel(c);
    }
}

void rpc_serve_detach(struct rpc_node *n)
{
    list_for (it, &n->serving) {
        struct rpc_call *c = container_of(it, struct rpc_call, link);

        c->on_cancel = NULL;
        cancel(c);
        list_del(&c->link);
        c->peer->serving--;
        c->peer = NULL;
        c->node = NULL;
    }
    n->serving_len = n->serving_bytes = 0;
}

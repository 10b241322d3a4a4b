/* SPDX-License-Identifier: Apache-2.0
 *
 * relay: one hop for calls whose direct way is gone or slow.
 *
 * The caller names a shard, not an address. So a call can be sent only to an ingester that this one
 * knows by its own view, and a caller with an old view reaches the present leader. If that is this
 * node, the call is served here, as if it had come directly.
 *
 * One hop: the relayed call is an ordinary call, and RPC_RELAY itself may not be relayed. Two nodes
 * that take each other for the leader each answer "not here".
 *
 * Bounds: calls and bytes under way. Over them the answer is ERR_UNAVAILABLE, and the caller
 * continues as if that way did not exist. If the caller cancels, the relayed call is canceled; it
 * has the same deadline. The payload is not examined: a caller with the key may call the leader as
 * well.
 */
#include "common/role/route/relay.h"

#include "common/base/mem.h"
#include "common/base/rd.h"
#include "common/base/wr.h"

#define RELAY_MAGIC MAGIC('R', 'L', 'A', 'Y')

struct relay {
    uint32_t magic;
    struct relay_opts o;
    size_t calls, bytes;  /* under way */
    struct metric *ended; /* label result */
    struct metric_cell *working, *passed_bytes;
};

struct passing {
    struct relay *r;
    struct rpc_call *call;
    uint64_t id; /* of our own call */
    size_t bytes;
};

static bool may_pass(unsigned method)
{
    static const bool may[RPC_METHODS] = {
        [RPC_WRITE] = true,       [RPC_WRITE_TOLD] = true, [RPC_MERGE] = true,
        [RPC_TIMELINE] = true,    [RPC_LABELS] = true,     [RPC_BUILD_NEXT] = true,
        [RPC_BUILD_APPLY] = true, [RPC_DELETE] = true,     [RPC_SPACE] = true,
        [RPC_EXEMPLARS] = true,   [RPC_FUNCTIONS] = true,  [RPC_DOC] = true,
        [RPC_ESTIMATE] = true,    [RPC_LEDGER] = true,     [RPC_LEDGER_ACCEPT] = true,
    };

    return method < RPC_METHODS && may[method];
}

void relay_pack(const struct relay_call *c, struct buf *out)
{
    buf_init(out, RELAY_HEAD + c->payload.len + 1);
    wr_u8(out, RELAY_HEAD);
    wr_u8(out, 0);
    wr_u8(out, (uint8_t)((unsigned)c->method & 0xff));
    wr_u8(out, (uint8_t)((unsigned)c->method >> 8));
    wr_u32le(out, c->shard);
    wr_u32le(out, 0);
    buf_add_str(out, c->payload);
    CHECK(buf_ok(out));
}

int relay_unpack(struct str in, struct relay_call *ret, struct err *e)
{
    struct rd r = rd_of(in);
    uint16_t method = 0;
    uint8_t head = 0;

    if (!rd_u8(&r, &head) || !rd_skip(&r, 1) || !rd_u16le(&r, &method) ||
        !rd_u32le(&r, &ret->shard) || head < RELAY_HEAD || head > in.len)
        return err_set(e, ERR_INPUT, "a call to pass on is cut off: %zu bytes", in.len);
    if (!may_pass(method))
        return err_set(e, ERR_INPUT, "calls of rpc method %u are not passed on", method);
    ret->method = (enum rpc_method)method;
    ret->payload = str_sub(in, head, in.len);
    return 0;
}

static void count(const struct relay *r, int code)
{
    struct str result = str_c(code ? err_connect_name(code) : "ok");

    metric_add(metric_at(r->ended, &result, 1), 1);
}

static void passing_end(struct passing *p, int code)
{
    struct relay *r = p->r;

    count(r, code);
    r->calls--;
    r->bytes -= p->bytes;
    metric_set(r->working, (int64_t)r->calls);
    xfree(p);
}

static void on_reply(void *cookie, struct str reply, const struct err *err)
{
    struct passing *p = cookie;
    struct rpc_call *call = p->call;
    struct buf out;

    CHECK(p->r->magic == RELAY_MAGIC);
    rpc_call_on_cancel(call, NULL, NULL);
    passing_end(p, err ? err->code : 0);
    if (err) {
        rpc_fail(call, err);
        return;
    }
    buf_init(&out, reply.len + 1);
    (void)buf_add_str(&out, reply);
    rpc_reply(call, &out);
}

static void on_cancel(void *cookie)
{
    struct passing *p = cookie;
    struct rpc_call *call = p->call;
    struct err e;

    rpc_cancel(p->r->o.node, p->id);
    passing_end(p, ERR_CANCELED);
    (void)err_set(&e, ERR_CANCELED, "the caller gave up");
    rpc_fail(call, &e);
}

/* Too much is under way for one more of so many bytes; the first is taken, however large. */
static int full(const struct relay *r, size_t bytes, struct err *e)
{
    if (r->calls >= r->o.calls_max)
        return err_set(e, ERR_UNAVAILABLE, "%zu calls of others are being passed on already",
                       r->calls);
    if (r->calls && r->bytes + bytes > r->o.bytes_max)
        return err_set(e, ERR_UNAVAILABLE,
                       "calls being passed on hold %zu bytes already, at most %zu", r->bytes,
                       r->o.bytes_max);
    return 0;
}

static bool is_self(const struct relay *r, const struct view_shard *s)
{
    return (r->o.self[0] && strcmp(s->leader, r->o.self) == 0) ||
           strcmp(s->leader_addr, rpc_node_addr(r->o.node)) == 0;
}

/* Where its leader listens; NULL: it is this node. */
static int leader_addr(const struct relay *r, uint32_t shard, const char **ret, struct err *e)
{
    const char *name = r->o.follows ? r->o.follows(r->o.cookie, shard) : NULL;
    struct view_shard s;
    struct view_node n;

    *ret = NULL;
    if (name && r->o.self[0] && strcmp(name, r->o.self) == 0)
        return 0;
    if (name && view_node_find(r->o.view, name, &n) && n.addr[0]) {
        *ret = n.addr;
        return 0;
    }
    if (!view_shard(r->o.view, shard, &s) || !s.leader_addr[0])
        return err_set(e, ERR_UNAVAILABLE, "no leader of shard %" PRIu32 " is known here, either",
                       shard);
    if (!is_self(r, &s))
        *ret = s.leader_addr;
    return 0;
}

/* Whom to ask; *ret NULL: this node. */
static int find_leader(const struct relay *r, uint32_t shard, struct rpc_peer **ret, struct err *e)
{
    const char *addr;

    *ret = NULL;
    if (leader_addr(r, shard, &addr, e))
        return e->code;
    if (!addr)
        return 0;
    if (rpc_peer_now(r->o.node, addr, ret, e)) {
        e->code = ERR_UNAVAILABLE;
        return err_wrap(e, "leader of shard %" PRIu32 " at %s", shard, addr);
    }
    if (!rpc_peer_up(*ret)) {
        rpc_peer_why(*ret, e);
        e->code = ERR_UNAVAILABLE;
        return e->code;
    }
    return 0;
}

static void pass_on(struct relay *r, struct rpc_peer *to, const struct relay_call *c,
                    struct rpc_call *call)
{
    struct passing *p = XNEW(struct passing);
    struct buf payload;

    *p = (struct passing){ .r = r, .call = call, .bytes = c->payload.len };
    r->calls++;
    r->bytes += p->bytes;
    metric_set(r->working, (int64_t)r->calls);
    metric_add(r->passed_bytes, p->bytes);
    buf_init(&payload, c->payload.len + 1);
    (void)buf_add_str(&payload, c->payload);
    p->id = rpc_send(to, c->method, &payload, rpc_call_left_ms(call), on_reply, p);
    rpc_call_on_cancel(call, on_cancel, p);
}

static void on_relay(void *cookie, struct rpc_call *call, struct str payload)
{
    struct relay *r = cookie;
    struct relay_call c;
    struct rpc_peer *to;
    struct err e;

    CHECK(r->magic == RELAY_MAGIC);
    if (relay_unpack(payload, &c, &e) || find_leader(r, c.shard, &to, &e) ||
        (to && full(r, c.payload.len, &e))) {
        count(r, e.code);
        rpc_fail(call, &e);
    } else if (to) {
        pass_on(r, to, &c, call);
    } else {
        count(r, 0);
        rpc_call_as(call, c.method, c.payload);
    }
}

struct relay *relay_new(const struct relay_opts *o)
{
    struct relay *r = XNEW(struct relay);

    r->magic = RELAY_MAGIC;
    r->o = *o;
    if (!r->o.calls_max)
        r->o.calls_max = RELAY_CALLS_MAX;
    if (!r->o.bytes_max)
        r->o.bytes_max = RELAY_BYTES_MAX;
    r->ended =
        metric_new(o->metrics, METRIC_COUNTER, "embertree_relay_calls_total",
                   "Calls for the leader of a shard that came here, by how they ended", "result");
    r->working = metric_at(metric_new(o->metrics, METRIC_GAUGE, "embertree_relay_calls_working",
                                      "Calls of others that are being passed on", NULL),
                           NULL, 0);
    r->passed_bytes =
        metric_at(metric_new(o->metrics, METRIC_COUNTER, "embertree_relay_bytes_total",
                             "Bytes of calls passed on to leaders", NULL),
                  NULL, 0);
    rpc_serve(o->node, RPC_RELAY, on_relay, r);
    return r;
}

void relay_free(struct relay *r)
{
    if (!r)
        return;
    CHECK(r->magic == RELAY_MAGIC && r->calls == 0);
    r->magic = 0;
    xfree(r);
}

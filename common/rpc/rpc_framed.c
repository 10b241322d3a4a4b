/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_framed: one port (an ear and the senders it knows) and its links (two pipes and their
 * queues).
 *
 *   link_send ──> zstd (pool) ──> lane queue ──> chunk by chunk ──> pipe ··· ear ──> parse
 *                                    ^ no room: wait for on_room      ──> rpc_sources ──> unzstd
 * ──> on_msg
 *
 * Lanes: a large message occupies its pipe for as long as it takes, so pings and small requests
 * have a pipe of their own. The lane is chosen by size before compression; within a lane messages
 * go in order. A message gets its number when its first chunk goes, so numbers are in use for the
 * time of the transmission only (the window of rpc_reassembly.c).
 *
 * Bounds: bytes waiting per lane <= queue_max for requests and replies, and QUEUE_RESERVE more for
 * what keeps the link alive (pings, errors, cancels, fins). At most one ping waits: a peer that is
 * not there would otherwise find hundreds when it comes. A message that waits beyond its deadline
 * is dropped unsent. If the first frame of a message was sent, the rest is sent, too: the receiver
 * waits for it.
 *
 * With cluster keys (rpc_guard.c) a lane holds everything but pings and pongs back until the peer's
 * pong says how it takes frames; so pings and pongs go before waiting messages. While keys are
 * optional, a ping goes sealed and then plain, until a pong says which of both the peer reads.
 */
#include "common/rpc/rpc_framed.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/obs/log.h"
#include "common/rpc/rpc_guard.h"
#include "common/rpc/rpc_net.h"
#include "common/rpc/rpc_pack.h"
#include "common/rpc/rpc_reassembly.h"

enum { LANE_SMALL_MAX = 32 * 1024, QUEUE_RESERVE = 1 << 20, MSG_OVERHEAD = 256 };
enum { SEAL_BLINDLY = 4096 }; /* bytes; sealing more costs more than asking for room */
#define MS_NS         UINT64_C(1000000)
#define TELL_EVERY_NS (60000 * MS_NS)

struct lane {
    struct list msgs; /* of struct rpc_msg */
    size_t bytes;
    struct rpc_pipe *pipe;
    uint64_t seq;    /* of the first message, once a part of it went; else 0 */
    uint32_t offset; /* of the next byte to send */
    bool plain_too;  /* it is a ping that went sealed and now goes plain */
};

struct framed_port {
    struct rpc_port port;
    const struct rpc_pipe_ops *pipes;
    struct rpc_wire_opts o; /* strings are in the two arrays */
    char listen[RPC_ADDR_MAX + 1], advertise[RPC_ADDR_MAX + 1];
    struct rpc_metrics *metrics; /* borrowed from net */
    struct rpc_ear *ear;
    struct rpc_reassembly *sources;
    struct rpc_pack *pack_out, *pack_in;
    struct rpc_guard *guard; /* owned; NULL: frames are not sealed */
    bool plain_taken;        /* no guard, or keys are optional */
    size_t unpacking;        /* bytes of bodies being decompressed */
    bool zstd;
    uint64_t seq_floor; /* links that are gone went up to here */
    uint32_t links;     /* made so far */
    uint64_t odd_ns;    /* when a frame of another cluster was logged last; 0: never */
};

struct framed_link {
    struct rpc_link link;
    struct framed_port *port;
    uint32_t number; /* of the port's links: two may lead to one node by two names */
    uint64_t seq;    /* of the last message sent */
    uint8_t speaks;
    bool ping_waits;
    bool plain;                   /* the peer reads unsealed frames; false if ours must be sealed */
    struct rpc_guard_link *guard; /* owned; NULL without a guard */
    struct lane lanes[RPC_LANES];
    struct lane_ref {
        struct framed_link *link;
        enum rpc_lane lane;
    } refs[RPC_LANES]; /* cookies of the pipes */
};

static const struct rpc_wire_ops framed_ops;

static uint64_t port_now(const struct framed_port *p)
{
    return clock_mono_ns(loop_clock(p->o.loop));
}

/* ---- out ------------------------------------------------------------------------------------- */

/* Takes m out of its lane; the caller frees it. */
static void lane_remove(struct framed_link *l, struct lane *q, struct rpc_msg *m)
{
    if (q->msgs.next == &m->link) {
        q->seq = 0;
        q->offset = 0;
        q->plain_too = false;
    }
    if (m->kind == RPC_PING)
        l->ping_waits = false;
    CHECK(q->bytes >= m->charged);
    q->bytes -= m->charged;
    rpc_metrics_queued(l->port->metrics, -(int64_t)m->charged);
    list_del(&m->link);
}

static uint32_t left_ms(const struct rpc_msg *m, uint64_t now_ns)
{
    uint64_t left;

    if (!m->deadline_ns)
        return 0;
    left = m->deadline_ns > now_ns ? (m->deadline_ns - now_ns + MS_NS - 1) / MS_NS : 1;
    return (uint32_t)MIN(left, (uint64_t)UINT32_MAX);
}

static bool is_greeting(const struct rpc_msg *m)
{
    return m->kind == RPC_PING || m->kind == RPC_PONG;
}

/* Does the next frame of m go sealed? */
static bool goes_sealed(const struct framed_link *l, const struct lane *q, const struct rpc_msg *m)
{
    if (!l->guard)
        return false;
    if (m->kind == RPC_PING)
        return !q->plain_too;
    return m->kind == RPC_PONG ? m->sealed : !l->plain;
}

/* Waits for the peer's pong, which says how. */
static bool is_held(const struct framed_link *l, const struct rpc_msg *m)
{
    return l->guard && !is_greeting(m) && !l->plain && !rpc_guard_bound(l->guard);
}

static bool pipe_send(struct framed_link *l, struct lane *q, const struct rpc_msg *m,
                      const struct rpc_frame *f)
{
    const struct framed_port *p = l->port;
    struct str head, body = f->body;
    uint8_t bytes[RPC_FRAME_HEAD_MAX];

    if (!goes_sealed(l, q, m)) {
        head = str_n(bytes, rpc_frame_head(f, bytes));
    } else if (body.len > SEAL_BLINDLY &&
               !q->pipe->ops->room(q->pipe, sizeof(bytes) + body.len + RPC_SEAL_MORE)) {
        return false;
    } else {
        head = str_n(bytes, rpc_frame_head_bare(f, bytes));
        head = is_greeting(m) ? rpc_guard_seal_greeting(l->guard, f->to_epoch, head, body)
                              : rpc_guard_seal(l->guard, (enum rpc_lane)f->lane, head, body);
        body = STR_NULL;
    }
    if (!q->pipe->ops->send(q->pipe, head, body))
        return false;
    rpc_metrics_frame_out(p->metrics, head.len + body.len);
    return true;
}

/* One frame of m, from the lane's offset. False: the pipe has no room. */
static bool send_frame(struct framed_link *l, struct lane *q, struct rpc_msg *m, uint64_t now_ns)
{
    const struct framed_port *p = l->port;
    struct rpc_frame f = {
        .version = is_greeting(m) ? RPC_FRAME_VERSION_PING : l->speaks,
        .speaks_min = p->o.speaks_min,
        .speaks_max = p->o.speaks_max,
        .kind = m->kind,
        .flags = m->flags,
        .lane = m->lane,
        .method = m->method,
        .code = m->code,
        .epoch = p->o.epoch,
        .to_epoch = m->to_epoch,
        .seq = q->seq ? q->seq : l->seq + 1,
        .id = m->id,
        .left_ms = left_ms(m, now_ns),
        .link = l->number,
        .again_s = m->kind == RPC_ERROR ? m->again_s : 0,
        .cluster = p->o.net->cluster,
        .offset = q->offset,
        .total = u32_from(m->body.len),
        .raw = m->raw,
        .addr = str_c(p->advertise),
        .body = str_sub(buf_str(&m->body), q->offset, q->offset + RPC_FRAME_CHUNK),
    };

    if (!pipe_send(l, q, m, &f))
        return false;
    if (!q->seq)
        q->seq = ++l->seq;
    q->plain_too = m->kind == RPC_PING && l->guard && p->plain_taken && !q->plain_too &&
                   !rpc_guard_bound(l->guard);
    if (!q->plain_too)
        q->offset += (uint32_t)f.body.len;
    return true;
}

static void lane_flush(struct framed_link *l, struct lane *q)
{
    while (!list_empty(&q->msgs)) {
        struct rpc_msg *m = container_of(q->msgs.next, struct rpc_msg, link);
        uint64_t now_ns = port_now(l->port);

        if (!q->seq && m->deadline_ns && now_ns >= m->deadline_ns) {
            rpc_metrics_drop(l->port->metrics, RPC_DROP_EXPIRED);
        } else {
            if (is_held(l, m) || !send_frame(l, q, m, now_ns))
                return;
            if (q->plain_too || q->offset < m->body.len)
                continue;
        }
        lane_remove(l, q, m);
        rpc_msg_free(m);
    }
}

static void link_on_room(void *cookie)
{
    struct lane_ref *r = cookie;

    lane_flush(r->link, &r->link->lanes[r->lane]);
}

static void on_packed(void *cookie, void *tag, struct rpc_msg *m, bool ok)
{
    struct framed_link *l = tag;
    struct lane *q = &l->lanes[m->lane];

    (void)cookie;
    if (l->guard && is_greeting(m)) /* to the front, behind a message that is partly sent */
        list_add_tail(q->seq ? q->msgs.next->next : q->msgs.next, &m->link);
    else
        list_add_tail(&q->msgs, &m->link);
    if (!ok) {
        lane_remove(l, q, m);
        rpc_msg_free(m);
    } else if (q->msgs.next == &m->link) { /* else the pipe has no room and will say so */
        lane_flush(l, q);
    }
}

static int framed_link_send(struct rpc_link *link, struct rpc_msg *m, struct err *e)
{
    struct framed_link *l = container_of(link, struct framed_link, link);
    bool data = m->kind == RPC_REQUEST || m->kind == RPC_REPLY;
    size_t max = l->port->o.queue_max + (data ? 0 : QUEUE_RESERVE);
    struct lane *q;

    if (m->kind == RPC_PING && l->ping_waits) {
        rpc_msg_free(m);
        return 0;
    }
    if (m->kind != RPC_FIN)
        m->lane = data && m->body.len > LANE_SMALL_MAX ? RPC_LANE_BULK : RPC_LANE_CONTROL;
    q = &l->lanes[m->lane];
    if (q->bytes + m->body.len + MSG_OVERHEAD > max) {
        rpc_metrics_drop(l->port->metrics, RPC_DROP_QUEUE);
        return err_set(e, ERR_BUSY, "%zu bytes wait already to be sent, at most %zu", q->bytes,
                       max);
    }
    if (m->kind == RPC_PING)
        l->ping_waits = true;
    m->charged = m->body.len + MSG_OVERHEAD;
    q->bytes += m->charged;
    rpc_metrics_queued(l->port->metrics, (int64_t)m->charged);
    if (data && l->port->zstd) {
        rpc_pack_out(l->port->pack_out, m, l);
        return 0;
    }
    m->raw = u32_from(m->body.len);
    on_packed(NULL, l, m, true);
    return 0;
}

static int framed_link_open(struct rpc_port *port, const char *addr, struct rpc_link **ret,
                            struct err *e)
{
    struct framed_port *p = container_of(port, struct framed_port, port);
    struct framed_link *l = XNEW(struct framed_link);

    l->link.ops = &framed_ops;
    l->port = p;
    l->speaks = p->o.speaks_min;
    l->number = ++p->links;
    /* A peer whose link was closed and is opened again still knows our epoch and the previous
     * numbers. Builds that do not read the link's number would take numbers that begin again at 0
     * for duplicates. */
    l->seq = p->seq_floor;
    l->guard = p->guard ? rpc_guard_link_new(p->guard, addr) : NULL;
    for (size_t i = 0; i < RPC_LANES; i++) {
        list_init(&l->lanes[i].msgs);
        l->refs[i] = (struct lane_ref){ l, (enum rpc_lane)i };
    }
    for (size_t i = 0; i < RPC_LANES; i++) {
        if (p->pipes->open(p->ear, addr, link_on_room, &l->refs[i], &l->lanes[i].pipe, e)) {
            for (size_t k = 0; k < i; k++)
                p->pipes->close(l->lanes[k].pipe);
            rpc_guard_link_free(l->guard);
            xfree(l);
            return e->code;
        }
    }
    *ret = &l->link;
    return 0;
}

static void lane_clear(struct framed_link *l, struct lane *q)
{
    list_for (it, &q->msgs) {
        struct rpc_msg *m = container_of(it, struct rpc_msg, link);

        lane_remove(l, q, m);
        rpc_msg_free(m);
    }
}

static void framed_link_close(struct rpc_link *link)
{
    struct framed_link *l = container_of(link, struct framed_link, link);

    l->port->seq_floor = MAX(l->port->seq_floor, l->seq);
    rpc_pack_forget(l->port->pack_out, l);
    for (size_t i = 0; i < RPC_LANES; i++) {
        struct lane *q = &l->lanes[i];

        lane_clear(l, q);
        rpc_metrics_queued(l->port->metrics, -(int64_t)q->bytes); /* what the pool still holds */
        l->port->pipes->close(q->pipe);
    }
    rpc_guard_link_free(l->guard);
    xfree(l);
}

static void framed_link_reset(struct rpc_link *link)
{
    struct framed_link *l = container_of(link, struct framed_link, link);

    if (l->guard && l->port->plain_taken) { /* it may come back without keys */
        l->plain = false;
        rpc_guard_unbind(l->guard);
    }
    for (size_t i = 0; i < RPC_LANES; i++) {
        struct lane *q = &l->lanes[i];

        /* The rest of a message whose beginning is lost would be useless to the receiver. */
        if (q->seq) {
            struct rpc_msg *m = container_of(q->msgs.next, struct rpc_msg, link);

            lane_remove(l, q, m);
            rpc_msg_free(m);
        }
        l->port->pipes->reset(q->pipe);
    }
}

static void framed_link_speaks(struct rpc_link *link, uint8_t max)
{
    struct framed_link *l = container_of(link, struct framed_link, link);

    l->speaks = MAX(MIN(max, l->port->o.speaks_max), l->port->o.speaks_min);
}

static void framed_link_bind(struct rpc_link *link, const struct rpc_msg *pong)
{
    struct framed_link *l = container_of(link, struct framed_link, link);

    if (!l->guard)
        return;
    if (pong->sealed) {
        l->plain = false;
        rpc_guard_bind(l->guard, pong->epoch, pong->ticket);
    } else if (rpc_guard_bound(l->guard) != pong->epoch) {
        CHECK(l->port->plain_taken);
        l->plain = true;
        rpc_guard_unbind(l->guard);
    }
    for (size_t i = 0; i < RPC_LANES; i++)
        lane_flush(l, &l->lanes[i]);
}

static void framed_link_forget(struct rpc_link *link, uint64_t id)
{
    struct framed_link *l = container_of(link, struct framed_link, link);

    rpc_pack_forget_id(l->port->pack_out, l, id);
    for (size_t i = 0; i < RPC_LANES; i++) {
        struct lane *q = &l->lanes[i];

        list_for (it, &q->msgs) {
            struct rpc_msg *m = container_of(it, struct rpc_msg, link);

            if (m->id == id && m->kind == RPC_REQUEST) {
                lane_remove(l, q, m);
                rpc_msg_free(m);
            }
        }
    }
}

static size_t framed_link_queued(struct rpc_link *link)
{
    struct framed_link *l = container_of(link, struct framed_link, link);

    return l->lanes[RPC_LANE_CONTROL].bytes + l->lanes[RPC_LANE_BULK].bytes;
}

/* ---- in -------------------------------------------------------------------------------------- */

static void port_refuse(struct framed_port *p, const struct rpc_msg *m, enum rpc_drop why)
{
    struct err e;

    rpc_metrics_drop(p->metrics, why);
    if (why == RPC_DROP_OVERSIZE)
        err_set(&e, ERR_LIMIT, "message of %u bytes, at most %zu are taken", m->raw,
                p->o.message_max);
    else if (why == RPC_DROP_BUDGET)
        err_set(&e, ERR_BUSY, "no room to put together a message of %u bytes", m->raw);
    else if (why == RPC_DROP_UNPACK)
        err_set(&e, ERR_CORRUPT, "a compressed message of %u bytes does not decompress", m->raw);
    else
        return;
    p->o.on_refused(p->o.cookie, m, &e);
}

static void on_unpacked(void *cookie, void *tag, struct rpc_msg *m, bool ok)
{
    struct framed_port *p = cookie;

    (void)tag;
    CHECK(p->unpacking >= m->charged);
    p->unpacking -= m->charged;
    m->charged = 0;
    if (ok) {
        p->o.on_msg(p->o.cookie, m);
        return;
    }
    port_refuse(p, m, RPC_DROP_UNPACK);
    rpc_msg_free(m);
}

static void port_take(struct framed_port *p, struct rpc_msg *m)
{
    if (m->flags & RPC_FLAG_ZSTD) {
        /* Many small bodies that each promise to become large ones. */
        if (p->unpacking && m->raw > p->o.assembly_max - p->unpacking) {
            port_refuse(p, m, RPC_DROP_BUDGET);
            rpc_msg_free(m);
            return;
        }
        m->charged = m->raw;
        p->unpacking += m->charged;
    }
    rpc_pack_in(p->pack_in, m);
}

/* Decodes received bytes as a frame. Only the envelope is read before the frame is
 * authenticated. */
static enum rpc_drop port_parse(struct framed_port *p, struct str bytes, struct rpc_frame *ret,
                                struct rpc_seal *ret_seal)
{
    uint8_t min = p->o.speaks_min, max = p->o.speaks_max;
    enum rpc_drop why;
    struct err e;

    ret_seal->cls = 0;
    if (!rpc_seal_is(bytes)) {
        if (!p->plain_taken)
            return RPC_DROP_UNSEALED;
        (void)!rpc_frame_parse(bytes, min, max, ret, &why, &e);
        return why;
    }
    if (!p->guard)
        return RPC_DROP_KEY;
    why = rpc_guard_open(p->guard, bytes, &bytes, ret_seal);
    if (why == RPC_DROP_NONE && rpc_frame_parse_bare(bytes, min, max, ret, &why, &e) == 0)
        why = rpc_guard_check(p->guard, ret_seal, ret);
    return why;
}

static void tell_odd(struct framed_port *p, const struct rpc_frame *f, const struct err *why)
{
    uint64_t now_ns = port_now(p);
    char theirs[17];

    if (p->odd_ns && now_ns - p->odd_ns < TELL_EVERY_NS)
        return;
    p->odd_ns = now_ns;
    (void)snprintf(theirs, sizeof(theirs), "%016" PRIx64, f->cluster);
    if (why->code == ERR_CONFIG)
        log_error("a process has other settings, and its calls are refused",
                  KV_STR("from", f->addr), KV_CSTR("why", why->text));
    else
        log_error("a process of another cluster takes this address for one of its own; nothing it "
                  "says is taken. Tell it the address that its peer has now, and give each cluster "
                  "keys of its own (cluster.key_file)",
                  KV_STR("from", f->addr), KV_CSTR("its_cluster", theirs));
}

/* Of a process that does not go with us. Of one with other settings greetings and refusals are
 * taken: by those both sides know what differs. */
static bool is_of_others(struct framed_port *p, const struct rpc_frame *f)
{
    struct rpc_msg *m;
    struct err e;
    int code = rpc_net_judged(p->o.net, f->cluster, &e);

    if (!code)
        return false;
    tell_odd(p, f, &e);
    if (code == ERR_CONFIG && (f->kind == RPC_PING || f->kind == RPC_PONG || f->kind == RPC_ERROR))
        return false;
    if (code == ERR_CONFIG && f->kind == RPC_REQUEST && f->offset == 0) {
        e.code = ERR_UNAVAILABLE;
        (void)err_wrap(&e, "%.*s", STR_ARG(f->addr));
        m = rpc_msg_of_frame(f, port_now(p));
        p->o.on_refused(p->o.cookie, m, &e);
        rpc_msg_free(m);
    }
    return true;
}

static bool port_on_frame(void *cookie, struct str bytes)
{
    struct framed_port *p = cookie;
    uint64_t now_ns = port_now(p);
    struct rpc_msg *m = NULL;
    struct rpc_seal seal;
    struct rpc_frame f;
    enum rpc_drop why;

    rpc_metrics_frame_in(p->metrics, bytes.len);
    why = port_parse(p, bytes, &f, &seal);
    if (why == RPC_DROP_NONE && is_of_others(p, &f))
        why = RPC_DROP_CLUSTER;
    if (why != RPC_DROP_NONE) {
        rpc_metrics_drop(p->metrics, why);
        return false;
    }
    why = f.to_epoch && f.to_epoch != p->o.epoch ? RPC_DROP_EPOCH
                                                 : rpc_reassembly_add(p->sources, &f, now_ns, &m);
    if (why != RPC_DROP_NONE) {
        m = rpc_msg_of_frame(&f, now_ns);
        port_refuse(p, m, why);
        rpc_msg_free(m);
    } else if (m) {
        m->sealed = seal.cls != 0;
        m->ticket = seal.cls ? seal.ticket : 0;
        port_take(p, m);
    }
    return true;
}

/* ---- the port -------------------------------------------------------------------------------- */

static void framed_close(struct rpc_port *port)
{
    struct framed_port *p = container_of(port, struct framed_port, port);

    if (p->ear)
        p->pipes->ear_close(p->ear);
    rpc_pack_free(p->pack_in);
    rpc_pack_free(p->pack_out);
    rpc_reassembly_free(p->sources);
    rpc_guard_free(p->guard);
    xfree(p);
}

static void framed_tick(struct rpc_port *port)
{
    struct framed_port *p = container_of(port, struct framed_port, port);
    size_t expired = rpc_reassembly_tick(p->sources, port_now(p));

    for (size_t i = 0; i < expired; i++)
        rpc_metrics_drop(p->metrics, RPC_DROP_INCOMPLETE);
}

static size_t framed_packing(struct rpc_port *port)
{
    struct framed_port *p = container_of(port, struct framed_port, port);

    return rpc_pack_running(p->pack_out);
}

static const struct rpc_wire_ops framed_ops = {
    .close = framed_close,
    .tick = framed_tick,
    .packing = framed_packing,
    .link_open = framed_link_open,
    .link_close = framed_link_close,
    .link_reset = framed_link_reset,
    .link_speaks = framed_link_speaks,
    .link_bind = framed_link_bind,
    .link_send = framed_link_send,
    .link_forget = framed_link_forget,
    .link_queued = framed_link_queued,
};

int rpc_framed_open(const struct rpc_pipe_ops *pipes, bool zstd, const struct rpc_wire_opts *o,
                    struct rpc_port **ret, struct err *e)
{
    struct framed_port *p = XNEW(struct framed_port);

    CHECK(strlen(o->listen) <= RPC_ADDR_MAX && strlen(o->advertise) <= RPC_ADDR_MAX);
    p->port.ops = &framed_ops;
    p->pipes = pipes;
    p->zstd = zstd;
    p->o = *o;
    memcpy(p->listen, o->listen, strlen(o->listen));
    memcpy(p->advertise, o->advertise, strlen(o->advertise));
    p->o.listen = p->listen;
    p->o.advertise = p->advertise;
    p->metrics = rpc_net_metrics(o->net);
    p->plain_taken = !o->net->keys || o->net->keys_optional;
    if (o->net->keys)
        p->guard = rpc_guard_new(&(struct rpc_guard_opts){
            .env = o->net->env,
            .keys = o->net->keys,
            .addr = p->advertise,
            .epoch = o->epoch,
            .frames_max = o->net->keys_frames_max,
        });
    p->sources = rpc_reassembly_new(o->message_max, o->assembly_max);
    p->pack_out = rpc_pack_new(o->loop, o->pool, on_packed, p);
    p->pack_in = rpc_pack_new(o->loop, o->pool, on_unpacked, p);
    const struct rpc_ear_opts ear = {
        .net = o->net, .loop = o->loop, .listen = p->listen, .on_frame = port_on_frame, .cookie = p
    };
    if (pipes->ear_open(&ear, &p->ear, e)) {
        framed_close(&p->port);
        return e->code;
    }
    *ret = &p->port;
    return 0;
}

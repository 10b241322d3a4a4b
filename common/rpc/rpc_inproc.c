/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_inproc: nodes of one process. A message is moved by pointer: no frame, no compression, no
 * checksum, and none is lost, repeated or reordered.
 *
 *   link_send ──> box of the name (list) ──next round of the loop──> on_msg of the listener
 *
 * Delivery never happens inside link_send, so a reply cannot arrive before the call returns, as
 * over a network. A box exists as soon as a node calls the name; like a socket it keeps messages
 * sent before the listener comes, within queue_max per link. Messages that a listener has not taken
 * when it closes are lost, as with a process that dies.
 *
 * All nodes of one rpc_net live on one loop (CHECKed): there is no lock here.
 */
#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/rpc/rpc_deferred.h"
#include "common/rpc/rpc_net.h"
#include "common/rpc/rpc_wire.h"

enum { MESSAGES_PER_ROUND = 64, QUEUE_RESERVE = 1 << 20, MSG_OVERHEAD = 256 };

struct box {
    char name[RPC_ADDR_MAX + 1];
    struct rpc_inproc *all;
    struct inproc_port *port; /* NULL: no node listens */
    struct list items;        /* of struct item */
    size_t links;
};

struct item {
    struct list link;         /* in box.items */
    struct inproc_link *from; /* NULL: closed */
    struct rpc_msg *msg;      /* owned */
    size_t charged;
};

struct rpc_inproc {
    struct map_str *boxes; /* of struct box, owned */
    struct loop *loop;     /* of all ports */
};

struct inproc_port {
    struct rpc_port port;
    struct rpc_wire_opts o;
    char advertise[RPC_ADDR_MAX + 1];
    struct rpc_metrics *metrics;
    struct box *box;
    struct rpc_deferred *soon;
};

struct inproc_link {
    struct rpc_link link;
    struct inproc_port *port;
    struct box *box; /* of the peer */
    size_t bytes;    /* waiting there */
    bool ping_waits;
};

static const struct rpc_wire_ops inproc_link_ops;

struct rpc_inproc *rpc_inproc_new(void)
{
    struct rpc_inproc *p = XNEW(struct rpc_inproc);

    p->boxes = map_str_new();
    return p;
}

void rpc_inproc_free(struct rpc_inproc *p)
{
    CHECK(map_str_len(p->boxes) == 0);
    map_str_free(p->boxes);
    xfree(p);
}

static struct box *box_get(struct rpc_inproc *all, const char *name)
{
    struct box *b = map_str_get(all->boxes, str_c(name));

    if (b)
        return b;
    b = XNEW(struct box);
    CHECK(strlen(name) <= RPC_ADDR_MAX);
    memcpy(b->name, name, strlen(name));
    b->all = all;
    list_init(&b->items);
    CHECK(map_str_put(all->boxes, str_c(b->name), b) == NULL);
    return b;
}

/* Takes an item out; its message is the caller's. */
static struct rpc_msg *item_take(struct item *i)
{
    struct rpc_msg *m = i->msg;

    if (i->from) {
        CHECK(i->from->bytes >= i->charged);
        i->from->bytes -= i->charged;
        if (m->kind == RPC_PING)
            i->from->ping_waits = false;
    }
    list_del(&i->link);
    xfree(i);
    return m;
}

static void box_put(struct box *b)
{
    if (b->port || b->links)
        return;
    CHECK(list_empty(&b->items));
    CHECK(map_str_del(b->all->boxes, str_c(b->name)) == b);
    xfree(b);
}

/* ---- listening ------------------------------------------------------------------------------- */

static void port_deliver(void *cookie)
{
    struct inproc_port *p = cookie;
    uint64_t now_ns = clock_mono_ns(loop_clock(p->o.loop));

    for (int i = 0; i < MESSAGES_PER_ROUND && !list_empty(&p->box->items); i++) {
        struct rpc_msg *m = item_take(container_of(p->box->items.next, struct item, link));
        bool late = m->deadline_ns && now_ns >= m->deadline_ns;

        if (late || (m->to_epoch && m->to_epoch != p->o.epoch)) {
            rpc_metrics_drop(p->metrics, late ? RPC_DROP_EXPIRED : RPC_DROP_EPOCH);
            rpc_msg_free(m);
        } else if (m->body.len > p->o.message_max) {
            struct err e;

            rpc_metrics_drop(p->metrics, RPC_DROP_OVERSIZE);
            err_set(&e, ERR_LIMIT, "message of %zu bytes, at most %zu are taken", m->body.len,
                    p->o.message_max);
            p->o.on_refused(p->o.cookie, m, &e);
            rpc_msg_free(m);
        } else {
            p->o.on_msg(p->o.cookie, m);
        }
    }
    if (!list_empty(&p->box->items))
        rpc_deferred_schedule(p->soon);
}

static void inproc_close(struct rpc_port *port)
{
    struct inproc_port *p = container_of(port, struct inproc_port, port);

    list_for (it, &p->box->items)
        rpc_msg_free(item_take(container_of(it, struct item, link)));
    p->box->port = NULL;
    box_put(p->box);
    rpc_deferred_free(p->soon);
    xfree(p);
}

static void inproc_tick(struct rpc_port *port)
{
    (void)port;
}

static size_t inproc_packing(struct rpc_port *port)
{
    (void)port;
    return 0;
}

static int inproc_open(const struct rpc_wire_opts *o, struct rpc_port **ret, struct err *e)
{
    struct inproc_port *p;
    struct box *b;

    if (!o->net->inproc)
        o->net->inproc = rpc_inproc_new();
    if (map_str_len(o->net->inproc->boxes) == 0)
        o->net->inproc->loop = o->loop;
    CHECK(o->net->inproc->loop == o->loop);
    b = box_get(o->net->inproc, o->listen);
    if (b->port)
        return err_set(e, ERR_CONFIG, "%s is taken: a node of this process listens there",
                       o->listen);
    p = XNEW(struct inproc_port);
    p->port.ops = &inproc_link_ops;
    p->o = *o;
    CHECK(strlen(o->advertise) <= RPC_ADDR_MAX);
    memcpy(p->advertise, o->advertise, strlen(o->advertise));
    p->metrics = rpc_net_metrics(o->net);
    p->box = b;
    p->soon = rpc_deferred_new(o->loop, port_deliver, p);
    b->port = p;
    if (!list_empty(&b->items))
        rpc_deferred_schedule(p->soon);
    *ret = &p->port;
    return 0;
}

/* ---- calling --------------------------------------------------------------------------------- */

static int inproc_link_open(struct rpc_port *port, const char *addr, struct rpc_link **ret,
                            struct err *e)
{
    struct inproc_link *l = XNEW(struct inproc_link);

    (void)e;
    l->link.ops = &inproc_link_ops;
    l->port = container_of(port, struct inproc_port, port);
    l->box = box_get(l->port->box->all, addr);
    l->box->links++;
    *ret = &l->link;
    return 0;
}

/* Drops messages that this link sent and the listener has not taken: all, or only requests with
 * this id. */
static void link_clear(struct inproc_link *l, bool all, uint64_t id)
{
    list_for (it, &l->box->items) {
        struct item *i = container_of(it, struct item, link);

        if (i->from == l && (all || (i->msg->id == id && i->msg->kind == RPC_REQUEST)))
            rpc_msg_free(item_take(i));
    }
}

static void inproc_link_close(struct rpc_link *link)
{
    struct inproc_link *l = container_of(link, struct inproc_link, link);

    /* While a node listens its messages stay in the box: only the link's account is freed. */
    if (!l->box->port)
        link_clear(l, true, 0);
    list_for (it, &l->box->items) {
        struct item *i = container_of(it, struct item, link);

        if (i->from == l)
            i->from = NULL;
    }
    l->box->links--;
    box_put(l->box);
    xfree(l);
}

static void inproc_link_reset(struct rpc_link *link)
{
    struct inproc_link *l = container_of(link, struct inproc_link, link);

    if (!l->box->port)
        link_clear(l, true, 0);
}

static void inproc_link_speaks(struct rpc_link *link, uint8_t max)
{
    (void)link;
    (void)max;
}

static int inproc_link_send(struct rpc_link *link, struct rpc_msg *m, struct err *e)
{
    struct inproc_link *l = container_of(link, struct inproc_link, link);
    const struct rpc_wire_opts *o = &l->port->o;
    bool data = m->kind == RPC_REQUEST || m->kind == RPC_REPLY;
    size_t charged = m->body.len + MSG_OVERHEAD;
    struct item *i;

    if (m->kind == RPC_PING && l->ping_waits) {
        rpc_msg_free(m);
        return 0;
    }
    if (l->bytes + charged > o->queue_max + (data ? 0 : QUEUE_RESERVE)) {
        rpc_metrics_drop(l->port->metrics, RPC_DROP_QUEUE);
        return err_set(e, ERR_BUSY, "%zu bytes wait already to be sent, at most %zu", l->bytes,
                       o->queue_max);
    }
    m->epoch = o->epoch;
    m->speaks_min = o->speaks_min;
    m->speaks_max = o->speaks_max;
    memcpy(m->from, l->port->advertise, sizeof(m->from));
    if (m->kind == RPC_PING)
        l->ping_waits = true;
    i = XNEW(struct item);
    i->from = l;
    i->msg = m;
    i->charged = charged;
    l->bytes += charged;
    list_add_tail(&l->box->items, &i->link);
    if (l->box->port)
        rpc_deferred_schedule(l->box->port->soon);
    return 0;
}

/* Within a process no key has to be proven. */
static void inproc_link_bind(struct rpc_link *link, const struct rpc_msg *pong)
{
    (void)link, (void)pong;
}

static void inproc_link_forget(struct rpc_link *link, uint64_t id)
{
    link_clear(container_of(link, struct inproc_link, link), false, id);
}

static size_t inproc_link_queued(struct rpc_link *link)
{
    return container_of(link, struct inproc_link, link)->bytes;
}

static const struct rpc_wire_ops inproc_link_ops = {
    .close = inproc_close,
    .tick = inproc_tick,
    .packing = inproc_packing,
    .link_open = inproc_link_open,
    .link_close = inproc_link_close,
    .link_reset = inproc_link_reset,
    .link_speaks = inproc_link_speaks,
    .link_bind = inproc_link_bind,
    .link_send = inproc_link_send,
    .link_forget = inproc_link_forget,
    .link_queued = inproc_link_queued,
};
const struct rpc_wire_ops rpc_inproc_ops = { .open = inproc_open };

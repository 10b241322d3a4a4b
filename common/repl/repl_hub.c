/* SPDX-License-Identifier: Apache-2.0
 *
 * repl_hub: the messages of all replicas of a process over one rpc_node. A request of the protocol
 * is an rpc, its answer the reply: late, lost and doubled ones are the protocol's to cope with, so
 * nothing is sent again here.
 *
 * A request that came in is remembered under a number until it is answered, with the fsync it waits
 * for. Where no replica takes it, it ends at once: a node that opens a hundred replicas one after
 * the other gets messages from as many leaders meanwhile, ten times a second each, and their memory
 * would leave no room for other requests. A request without an answer ends with its deadline; if
 * there are too many, the oldest ends.
 */
#include <stdio.h>

#include "common/base/mem.h"
#include "common/repl/copy.h"
#include "common/repl/digest.h"
#include "common/repl/repl_job.h"
#include "common/repl/repl_node_impl.h"
#include "common/repl/snapshot.h"

#define CALL_MS       5000
#define SERVED_MAX    2048 /* half of what an rpc node serves at once (cluster.rpc_pending_max) */
#define MESSAGE_BYTES (64 * MIB)

struct call { /* ours */
    struct list link;
    struct repl_hub *h;
    uint32_t shard;
    uint64_t id;
};
struct served {
    struct list link;
    uint64_t ref;
    struct rpc_call *call;
};

struct repl_node *repl_hub_node(struct repl_hub *h, uint32_t shard)
{
    list_for (it, &h->nodes) {
        struct repl_node *n = container_of(it, struct repl_node, link);
        if (n->o.shard == shard && !n->stopping)
            return n;
    }
    return NULL;
}

/* Opened, and not silent: silence is what the protocol wants of it, so an error is as good. */
static bool takes(const struct repl_node *n)
{
    return n && !n->failed && !replica_state(n->r).silent;
}

bool hub_accepts(const struct repl_hub *h, const struct repl_node *n, uint64_t term, uint64_t known)
{
    struct repl_known k;

    if (!h->o.known || !h->o.known(h->o.cookie, n->o.shard, &k))
        return true;
    known = MAX(known, MAX(k.term, replica_record_of(replica_state(n->r).term)));
    return replica_record_of(term) <= known;
}

/* For a term that is not followed: gives no promise, and sends why (hub_send). */
static void refuse_term(struct repl_hub *h, const struct repl_node *n, const struct repl_msg *m)
{
    struct repl_msg reply = { .kind = m->kind == REPL_PREPARE ? REPL_PREPARED : REPL_APPENDED,
                              .shard = m->shard,
                              .ref = m->ref,
                              .seq = m->seq,
                              .round = m->round,
                              .term = replica_state(n->r).term };

    (void)snprintf(reply.from, sizeof(reply.from), "%s", n->o.self);
    hub_send(h, m->from, &reply);
}

/* In the term of a known record only its leader leads: another leader was named by a service that
 * had lost that record. */
static bool is_anothers(const struct repl_node *n, const struct repl_msg *m)
{
    struct replica_state st = replica_state(n->r);

    if (strcmp(m->from, n->o.self) == 0)
        return false;
    if (st.role != REPLICA_FOLLOWER && replica_record_of(m->term) == replica_record_of(st.term))
        return true; /* ours */
    return st.leader[0] && replica_record_of(m->term) == st.record_term &&
           strcmp(m->from, st.leader) != 0;
}

static void take(struct repl_hub *h, struct repl_node *n, const struct repl_msg *m)
{
    bool asks = m->kind == REPL_PREPARE || m->kind == REPL_APPEND;

    if (asks && (is_anothers(n, m) || !hub_accepts(h, n, m->term, m->known_term)))
        refuse_term(h, n, m);
    else
        node_message(n, m);
}

/* False: no replica here takes it; *e says why. */
static bool deliver(struct repl_hub *h, struct str bytes, uint32_t shard, uint64_t ref,
                    struct err *e)
{
    struct repl_msg m;
    struct repl_node *n;

    if (repl_msg_read(bytes, &m, e)) {
        metric_add(h->m_bad, 1);
        return false;
    }
    m.ref = ref;
    if ((m.known_term || m.known_map) && h->o.told)
        h->o.told(h->o.cookie, m.shard, &(struct repl_known){ m.known_term, m.known_map });
    n = repl_hub_node(h, m.shard);
    bool taken = takes(n) && (shard == UINT32_MAX || shard == m.shard);
    if (taken)
        take(h, n, &m);
    else
        (void)err_set(e, ERR_UNAVAILABLE, "no replica of shard %" PRIu32 " is here", m.shard);
    repl_msg_free(&m);
    return taken;
}

/* ---- requests of others ---- */

static void served_end(struct repl_hub *h, struct served *s)
{
    list_del(&s->link);
    h->served_len--;
    xfree(s);
}

static void served_fail(struct repl_hub *h, struct served *s, const struct err *why)
{
    rpc_fail(s->call, why);
    served_end(h, s);
}

static void on_request(void *cookie, struct rpc_call *call, struct str payload)
{
    struct repl_hub *h = cookie;
    struct served *s;
    struct err e;

    if (h->served_len == SERVED_MAX) {
        (void)err_set(&e, ERR_BUSY, "%d newer messages of replicas wait for their answers",
                      SERVED_MAX);
        served_fail(h, container_of(h->served.next, struct served, link), &e);
    }
    s = XNEW(struct served);
    s->call = call;
    s->ref = ++h->last_ref;
    list_add_tail(&h->served, &s->link);
    h->served_len++;
    if (!deliver(h, payload, UINT32_MAX, s->ref, &e))
        served_fail(h, s, &e);
}

static void answer(struct repl_hub *h, const struct repl_msg *m, struct buf *payload)
{
    list_for (it, &h->served) {
        struct served *s = container_of(it, struct served, link);
        if (s->ref != m->ref)
            continue;
        rpc_reply(s->call, payload);
        served_end(h, s);
        return;
    }
    buf_deinit(payload);
}

static void forget_late(struct repl_hub *h)
{
    list_for (it, &h->served) {
        struct served *s = container_of(it, struct served, link);
        struct err e;
        if (rpc_call_left_ms(s->call) > 0 &&
            !atomic_load_explicit(rpc_call_canceled(s->call), memory_order_relaxed))
            continue;
        (void)err_set(&e, ERR_TIMEOUT, "the replica did not answer in time");
        served_fail(h, s, &e);
    }
}

/* ---- ours ---- */

static void on_reply(void *cookie, struct str reply, const struct err *err)
{
    struct call *c = cookie;
    struct repl_hub *h = c->h;
    uint32_t shard = c->shard;
    struct err e;

    list_del(&c->link);
    xfree(c);
    if (!err)
        (void)deliver(h, reply, shard, 0, &e);
}

struct rpc_peer *repl_hub_peer(struct repl_hub *h, const char *name)
{
    const char *addr = h->o.addr(h->o.cookie, name);
    struct rpc_peer *peer;
    struct err e;

    return addr && rpc_peer_now(h->o.rpc, addr, &peer, &e) == 0 ? peer : NULL;
}

static void request(struct repl_hub *h, const char *to, const struct repl_msg *m,
                    struct buf *payload)
{
    enum rpc_method method = m->kind == REPL_PREPARE  ? RPC_REPL_PREPARE
                             : m->kind == REPL_APPEND ? RPC_REPL_APPEND
                                                      : RPC_REPL_FETCH;
    struct rpc_peer *peer = repl_hub_peer(h, to);
    struct call *c;

    if (!peer) {
        buf_deinit(payload);
        return;
    }
    c = XNEW(struct call);
    *c = (struct call){ .h = h, .shard = m->shard };
    list_add_tail(&h->calls, &c->link);
    metric_add(h->m_sent, 1);
    metric_add(h->m_sent_bytes, payload->len);
    c->id = rpc_send(peer, method, payload, CALL_MS, on_reply, c);
}

void hub_send(struct repl_hub *h, const char *to, const struct repl_msg *m)
{
    struct repl_msg with = *m;
    struct repl_known k;
    struct buf payload;

    if (h->o.known && h->o.known(h->o.cookie, m->shard, &k)) {
        with.known_term = k.term;
        with.known_map = k.map;
    }
    buf_init(&payload, MESSAGE_BYTES);
    repl_msg_write(&with, &payload);
    CHECK(buf_ok(&payload));
    if (m->kind == REPL_PREPARE || m->kind == REPL_APPEND || m->kind == REPL_FETCH)
        request(h, to, m, &payload);
    else
        answer(h, m, &payload);
}

/* ---- life ---- */

static void on_timer(void *cookie)
{
    struct repl_hub *h = cookie;

    h->digest_room = h->o.digest_rate / 1000 * TICK_MS;
    list_for (it, &h->nodes)
        node_tick(container_of(it, struct repl_node, link));
    forget_late(h);
}

static struct metric_cell *counter(struct repl_hub *h, const char *name, const char *help)
{
    return metric_at(metric_new(h->o.metrics, METRIC_COUNTER, name, help, NULL), NULL, 0);
}

struct repl_hub *repl_hub_new(const struct repl_hub_opts *o)
{
    struct repl_hub *h = XNEW(struct repl_hub);

    h->o = *o;
    h->o.digest_rate = o->digest_rate ? o->digest_rate : 40 * MIB;
    list_init(&h->nodes);
    list_init(&h->calls);
    list_init(&h->served);
    list_init(&h->jobs_waiting);
    h->m_sent = counter(h, "embertree_repl_messages_total", "Messages to other replicas");
    h->m_sent_bytes = counter(h, "embertree_repl_message_bytes_total", "Bytes of these messages");
    h->m_bad = counter(h, "embertree_repl_bad_messages_total",
                       "Messages of other replicas that could not be read");
    h->m_digests = counter(h, "embertree_repl_digests_total", "Databases summed up to be compared");
    h->m_differences = counter(h, "embertree_repl_differences_total",
                               "Replicas found to hold other rows than their leader");
    h->m_copy_sent = counter(h, "embertree_repl_copy_sent_bytes_total",
                             "Bytes of databases sent to other replicas as files");
    h->m_copy_taken = counter(h, "embertree_repl_copy_taken_bytes_total",
                              "Bytes of databases that came in as files");
    h->m_copies =
        counter(h, "embertree_repl_copies_total", "Databases that came in as files, complete");
    rpc_serve(o->rpc, RPC_REPL_PREPARE, on_request, h);
    rpc_serve(o->rpc, RPC_REPL_APPEND, on_request, h);
    rpc_serve(o->rpc, RPC_REPL_FETCH, on_request, h);
    rpc_serve(o->rpc, RPC_REPL_SNAPSHOT, repl_snapshot_serve, h);
    rpc_serve(o->rpc, RPC_REPL_DIGEST, repl_digest_serve, h);
    rpc_serve(o->rpc, RPC_REPL_COPY, repl_copy_serve, h);
    h->timer = loop_timer_new(o->loop, on_timer, h);
    loop_timer_start(h->timer, TICK_MS, TICK_MS);
    return h;
}

void repl_hub_log_bytes(struct repl_hub *h, uint64_t bytes_max)
{
    h->o.log_bytes = bytes_max;
    cache_trim_all(h);
}

uint64_t repl_hub_log_used(const struct repl_hub *h)
{
    uint64_t bytes = h->log_bytes;

    list_for (it, &h->nodes)
        bytes += container_of(it, struct repl_node, link)->apply_flight;
    return bytes;
}

static void refuse(void *cookie, struct rpc_call *call, struct str payload)
{
    struct err e;

    (void)cookie, (void)payload;
    (void)err_set(&e, ERR_UNAVAILABLE, "this node keeps no replicas any more");
    rpc_fail(call, &e);
}

void repl_hub_free(struct repl_hub *h)
{
    if (!h)
        return;
    CHECK(list_empty(&h->nodes));
    rpc_serve(h->o.rpc, RPC_REPL_PREPARE, refuse, NULL);
    rpc_serve(h->o.rpc, RPC_REPL_APPEND, refuse, NULL);
    rpc_serve(h->o.rpc, RPC_REPL_FETCH, refuse, NULL);
    rpc_serve(h->o.rpc, RPC_REPL_SNAPSHOT, refuse, NULL);
    rpc_serve(h->o.rpc, RPC_REPL_DIGEST, refuse, NULL);
    rpc_serve(h->o.rpc, RPC_REPL_COPY, refuse, NULL);
    list_for (it, &h->calls) {
        struct call *c = container_of(it, struct call, link);
        rpc_cancel(h->o.rpc, c->id);
        list_del(it);
        xfree(c);
    }
    list_for (it, &h->served) {
        struct served *s = container_of(it, struct served, link);
        struct err e;
        (void)err_set(&e, ERR_UNAVAILABLE, "this node keeps no replicas any more");
        served_fail(h, s, &e);
    }
    loop_timer_free(h->timer);
    repl_job_free(h);
    xfree(h);
}

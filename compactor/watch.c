/* SPDX-License-Identifier: Apache-2.0
 *
 * watch: one record per ingester, at most one question to each on its way. A question ends exactly
 * once: with an answer, an error, its deadline, or a cancel when the watch is freed.
 */
#include "compactor/watch.h"

#include <stdio.h>

#include "common/base/arena.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/obs/log.h"
#include "proto/query.pb-c.h"

#define ANSWER_BYTES (64 * KIB)

struct peer {
    struct watch *watch;
    struct rpc_peer *rpc; /* the node's */
    uint64_t call;        /* on its way; 0: none */
    bool asked;           /* a question has ended */
    bool answered;        /* the last one, with an answer */
    bool ready, lagging;
    uint64_t applied, raw_rows, lag_ms, shards;
    char why[ERR_TEXT_MAX + 128]; /* why it is not fine */
    struct metric_cell *m_up, *m_ready, *m_applied, *m_raw_rows, *m_lag;
};

struct watch {
    struct watch_opts o;
    struct timer *timer;
    struct metric_cell *m_errors, *m_checks;
    VEC(struct peer *) peers; /* owned; new ones come, none goes */
};

static void peer_failed(struct peer *p, const struct err *e)
{
    if (p->answered || !p->asked)
        log_warn("an ingester does not answer", KV_CSTR("ingester", rpc_peer_addr(p->rpc)),
                 KV_ERR(e));
    p->answered = p->ready = false;
    p->asked = true;
    (void)snprintf(p->why, sizeof(p->why), "ingester %.100s does not answer: %s",
                   rpc_peer_addr(p->rpc), e->text);
    metric_add(p->watch->m_errors, 1);
}

static void peer_took(struct peer *p, const Embertree__StatusReply *r)
{
    bool lagging = r->seal_lag_ms > p->watch->o.lag_warn_ms;

    if (!p->answered)
        log_info("ingester answers", KV_CSTR("ingester", rpc_peer_addr(p->rpc)),
                 KV_U64("shards", r->shards), KV_U64("seal_log_entries", r->applied));
    if (lagging && !p->lagging)
        log_warn("sealing is behind", KV_CSTR("ingester", rpc_peer_addr(p->rpc)),
                 KV_U64("lag_ms", r->seal_lag_ms), KV_U64("raw_rows", r->raw_rows));
    p->asked = p->answered = true;
    p->ready = r->ready;
    p->lagging = lagging;
    p->applied = r->applied;
    p->raw_rows = r->raw_rows;
    p->lag_ms = r->seal_lag_ms;
    p->shards = r->shards;
    (void)snprintf(p->why, sizeof(p->why), "%.*s", (int)MIN(r->reason.len, (size_t)ERR_TEXT_MAX),
                   r->reason.data ? (const char *)(const void *)r->reason.data : "");
}

static void peer_metrics(const struct peer *p)
{
    metric_set(p->m_up, p->answered);
    metric_set(p->m_ready, p->ready);
    metric_set(p->m_applied, (int64_t)p->applied);
    metric_set(p->m_raw_rows, (int64_t)p->raw_rows);
    metric_set(p->m_lag, (int64_t)(p->lag_ms / 1000));
}

static void *answer_alloc(void *a, size_t size)
{
    return arena_alloc(a, size);
}

static void answer_free(void *a, void *p)
{
    (void)a;
    (void)p;
}

static void on_answer(void *cookie, struct str reply, const struct err *err)
{
    struct peer *p = cookie;
    struct arena *a = arena_new(ANSWER_BYTES);
    ProtobufCAllocator allocator = { answer_alloc, answer_free, a };
    const Embertree__StatusReply *r = NULL;
    struct err bad;

    p->call = 0;
    if (!err) {
        r = embertree__status_reply__unpack(&allocator, reply.len,
                                            (const uint8_t *)(const void *)reply.ptr);
        if (!r)
            (void)err_set(&bad, ERR_CORRUPT, "%zu bytes are no StatusReply", reply.len);
    }
    if (r)
        peer_took(p, r);
    else
        peer_failed(p, err ? err : &bad);
    peer_metrics(p);
    arena_free(a);
}

static struct metric_cell *peer_gauge(struct metrics *m, const char *addr, const char *name,
                                      const char *help)
{
    struct str label = str_c(addr);

    return metric_at(metric_new(m, METRIC_GAUGE, name, help, "ingester", NULL, 0), &label, 1);
}

static int peer_init(struct peer *p, struct watch *w, const char *addr, struct err *e)
{
    struct metrics *m = w->o.metrics;
    int code = rpc_peer_get(w->o.node, addr, &p->rpc, e);

    if (code)
        return err_wrap(e, "cluster.ingesters: %s", addr);
    p->watch = w;
    (void)snprintf(p->why, sizeof(p->why), "waiting for ingester %.100s", addr);
    p->m_up = peer_gauge(m, addr, "embertree_compactor_ingester_up",
                         "1 if the ingester answered when last asked");
    p->m_ready = peer_gauge(m, addr, "embertree_compactor_ingester_ready",
                            "1 if the ingester said that it takes writes");
    p->m_applied = peer_gauge(m, addr, "embertree_compactor_seal_log_entries",
                              "Length of the ingester's seal logs");
    p->m_raw_rows = peer_gauge(m, addr, "embertree_compactor_raw_rows",
                               "Raw rows the ingester has not sealed yet");
    p->m_lag = peer_gauge(m, addr, "embertree_compactor_seal_lag_seconds",
                          "How long the ingester has been behind with sealing");
    return 0;
}

static bool is_known(const struct watch *w, const char *addr)
{
    vec_for (i, &w->peers)
        if (str_eq(str_c(rpc_peer_addr(w->peers.ptr[i]->rpc)), str_c(addr)))
            return true;
    return false;
}

static int add_nodes(struct watch *w, struct err *e)
{
    for (size_t i = 0; i < view_nodes_len(w->o.view); i++) {
        struct view_node n;

        view_node(w->o.view, i, &n);
        if (n.state == MAP_LEFT || !n.addr[0] || is_known(w, n.addr))
            continue;
        struct peer *p = XNEW(struct peer);
        if (peer_init(p, w, n.addr, e)) {
            xfree(p);
            return e->code;
        }
        vec_push(&w->peers, p);
    }
    return 0;
}

static void look_for_nodes(struct watch *w)
{
    struct err e;

    if (add_nodes(w, &e))
        log_warn("an ingester cannot be asked how it is", KV_ERR(&e));
}

static void on_timer(void *cookie)
{
    struct watch *w = cookie;

    look_for_nodes(w);
    for (size_t i = 0; i < w->peers.len; i++) {
        struct peer *p = w->peers.ptr[i];
        struct buf empty; /* StatusRequest has no fields */

        if (p->call)
            continue;
        buf_init(&empty, 16);
        metric_add(w->m_checks, 1);
        p->call = rpc_send(p->rpc, RPC_STATUS, &empty, w->o.interval_ms, on_answer, p);
    }
}

int watch_new(const struct watch_opts *o, struct watch **ret, struct err *e)
{
    struct watch *w = XNEW(struct watch);

    w->o = *o;
    w->m_checks =
        metric_at(metric_new(o->metrics, METRIC_COUNTER, "embertree_compactor_checks_total",
                             "Questions to ingesters", NULL, NULL, 0),
                  NULL, 0);
    w->m_errors =
        metric_at(metric_new(o->metrics, METRIC_COUNTER, "embertree_compactor_check_errors_total",
                             "Questions to ingesters that failed", NULL, NULL, 0),
                  NULL, 0);
    if (add_nodes(w, e)) {
        watch_free(w);
        return e->code;
    }
    w->timer = loop_timer_new(o->loop, on_timer, w);
    loop_timer_start(w->timer, 0, o->interval_ms);
    *ret = w;
    return 0;
}

void watch_free(struct watch *w)
{
    if (!w)
        return;
    loop_timer_free(w->timer);
    vec_for (i, &w->peers) {
        if (w->peers.ptr[i]->call)
            rpc_cancel(w->o.node, w->peers.ptr[i]->call);
        xfree(w->peers.ptr[i]);
    }
    vec_free(&w->peers);
    xfree(w);
}

bool watch_ready(const struct watch *w, const char **ret_why)
{
    struct view_shard first;
    bool moves = !view_shard(w->o.view, 0, &first) || first.term > 0;
    size_t answered = 0;

    *ret_why = "no ingester is known yet";
    vec_for (i, &w->peers) {
        if (w->peers.ptr[i]->answered)
            answered++;
        else
            *ret_why = w->peers.ptr[i]->why;
    }
    return answered > 0 && (moves || answered == w->peers.len);
}

void watch_ring(const struct watch *w, struct json *j)
{
    json_key(j, "peers");
    json_arr(j);
    for (size_t i = 0; i < w->peers.len; i++) {
        const struct peer *p = w->peers.ptr[i];

        json_obj(j);
        json_key(j, "address");
        json_cstr(j, rpc_peer_addr(p->rpc));
        json_key(j, "up");
        json_bool(j, p->answered);
        json_key(j, "ready");
        json_bool(j, p->ready);
        json_key(j, "why");
        json_cstr(j, p->why);
        json_key(j, "sealLogEntries");
        json_u64(j, p->applied);
        json_key(j, "rawRows");
        json_u64(j, p->raw_rows);
        json_key(j, "sealLagMs");
        json_u64(j, p->lag_ms);
        json_obj_end(j);
    }
    json_arr_end(j);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * watch: one record per ingester of the map, at most one question to each on its way. A question
 * ends exactly once: with an answer, an error, its deadline, or a cancel when the ingester has left
 * the map or the watch is freed. An ingester that has left is forgotten together with its gauges:
 * addresses change, and the gauge of an unused address would stay "down" permanently.
 */
#include "compactor/ingester_poll.h"

#include <stdio.h>

#include "common/base/arena.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/obs/log.h"
#include "proto/query.pb-c.h"

#define ANSWER_BYTES (64 * KIB)

enum gauge { UP, READY, APPLIED, RAW_ROWS, LAG, GAUGES };

static const char *const gauge_names[GAUGES][2] = {
    [UP] = { "embertree_compactor_ingester_up", "1 if the ingester answered when last asked" },
    [READY] = { "embertree_compactor_ingester_ready",
                "1 if the ingester said that it takes writes" },
    [APPLIED] = { "embertree_compactor_seal_log_entries", "Length of the ingester's seal logs" },
    [RAW_ROWS] = { "embertree_compactor_raw_rows", "Raw rows the ingester has not sealed yet" },
    [LAG] = { "embertree_compactor_seal_lag_seconds",
              "How long the ingester has been behind with sealing" },
};

struct peer {
    struct ingester_poll *watch;
    char addr[RPC_ADDR_MAX + 1];
    uint64_t call; /* on its way; 0: none */
    bool asked;    /* a question has ended */
    bool answered; /* the last one, with an answer */
    bool ready, lagging;
    uint64_t applied, raw_rows, lag_ms, shards;
    char why[ERR_TEXT_MAX + 128]; /* why it is not fine */
    struct metric_cell *cells[GAUGES];
};

struct ingester_poll {
    struct ingester_poll_opts o;
    struct timer *timer;
    struct metric_cell *m_errors, *m_checks;
    struct metric *gauges[GAUGES]; /* by address */
    VEC(struct peer *) peers;      /* owned; those of the view */
};

static void peer_failed(struct peer *p, const struct err *e)
{
    if (p->answered || !p->asked)
        log_warn("an ingester does not answer", KV_CSTR("ingester", p->addr), KV_ERR(e));
    p->answered = p->ready = false;
    p->asked = true;
    (void)snprintf(p->why, sizeof(p->why), "ingester %.100s does not answer: %s", p->addr, e->text);
    metric_add(p->watch->m_errors, 1);
}

static void peer_took(struct peer *p, const Embertree__StatusReply *r)
{
    bool lagging = r->seal_lag_ms > p->watch->o.lag_warn_ms;

    if (!p->answered)
        log_info("ingester answers", KV_CSTR("ingester", p->addr), KV_U64("shards", r->shards),
                 KV_U64("seal_log_entries", r->applied));
    if (lagging && !p->lagging)
        log_warn("sealing is behind", KV_CSTR("ingester", p->addr),
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
    metric_set(p->cells[UP], p->answered);
    metric_set(p->cells[READY], p->ready);
    metric_set(p->cells[APPLIED], (int64_t)p->applied);
    metric_set(p->cells[RAW_ROWS], (int64_t)p->raw_rows);
    metric_set(p->cells[LAG], (int64_t)(p->lag_ms / 1000));
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

static int peer_init(struct peer *p, struct ingester_poll *w, const char *addr, struct err *e)
{
    struct str label = str_c(addr);
    struct rpc_peer *rpc;

    if (rpc_peer_now(w->o.node, addr, &rpc, e))
        return err_wrap(e, "cluster.ingesters: %s", addr);
    p->watch = w;
    (void)snprintf(p->addr, sizeof(p->addr), "%s", addr);
    (void)snprintf(p->why, sizeof(p->why), "waiting for ingester %.100s", addr);
    for (size_t i = 0; i < GAUGES; i++)
        p->cells[i] = metric_at(w->gauges[i], &label, 1);
    return 0;
}

static void peer_end(struct peer *p)
{
    if (p->call)
        rpc_cancel(p->watch->o.node, p->call);
    xfree(p);
}

static bool in_map(const struct ingester_poll *w, const char *addr)
{
    for (size_t i = 0; i < view_nodes_len(w->o.view); i++) {
        struct view_node n;

        view_node(w->o.view, i, &n);
        if (n.state != MAP_LEFT && strcmp(n.addr, addr) == 0)
            return true;
    }
    return false;
}

static void drop_nodes(struct ingester_poll *w)
{
    size_t kept = 0;

    vec_for (i, &w->peers) {
        struct peer *p = w->peers.ptr[i];
        struct str label = str_c(p->addr);

        if (in_map(w, p->addr)) {
            w->peers.ptr[kept++] = p;
            continue;
        }
        log_info("an ingester is asked no more: it has left", KV_CSTR("ingester", p->addr));
        for (size_t k = 0; k < GAUGES; k++)
            metric_forget(w->gauges[k], &label, 1);
        peer_end(p);
    }
    w->peers.len = kept;
}

static bool is_known(const struct ingester_poll *w, const char *addr)
{
    vec_for (i, &w->peers)
        if (strcmp(w->peers.ptr[i]->addr, addr) == 0)
            return true;
    return false;
}

static int add_nodes(struct ingester_poll *w, struct err *e)
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

static void look_for_nodes(struct ingester_poll *w)
{
    struct err e;

    drop_nodes(w);
    if (add_nodes(w, &e))
        log_warn("an ingester cannot be asked how it is", KV_ERR(&e));
}

static void peer_ask(struct peer *p)
{
    struct ingester_poll *w = p->watch;
    struct rpc_peer *rpc;
    struct buf empty; /* StatusRequest has no fields */
    struct err e;

    metric_add(w->m_checks, 1);
    if (rpc_peer_now(w->o.node, p->addr, &rpc, &e)) {
        peer_failed(p, &e);
        peer_metrics(p);
        return;
    }
    buf_init(&empty, 16);
    p->call = rpc_send(rpc, RPC_STATUS, &empty, w->o.interval_ms, on_answer, p);
}

static void on_timer(void *cookie)
{
    struct ingester_poll *w = cookie;

    look_for_nodes(w);
    vec_for (i, &w->peers)
        if (!w->peers.ptr[i]->call)
            peer_ask(w->peers.ptr[i]);
}

int ingester_poll_new(const struct ingester_poll_opts *o, struct ingester_poll **ret, struct err *e)
{
    struct ingester_poll *w = XNEW(struct ingester_poll);

    w->o = *o;
    w->m_checks =
        metric_at(metric_new(o->metrics, METRIC_COUNTER, "embertree_compactor_checks_total",
                             "Questions to ingesters", NULL),
                  NULL, 0);
    w->m_errors =
        metric_at(metric_new(o->metrics, METRIC_COUNTER, "embertree_compactor_check_errors_total",
                             "Questions to ingesters that failed", NULL),
                  NULL, 0);
    for (size_t i = 0; i < GAUGES; i++)
        w->gauges[i] =
            metric_new(o->metrics, METRIC_GAUGE, gauge_names[i][0], gauge_names[i][1], "ingester");
    if (add_nodes(w, e)) {
        ingester_poll_free(w);
        return e->code;
    }
    w->timer = loop_timer_new(o->loop, on_timer, w);
    loop_timer_start(w->timer, 0, o->interval_ms);
    *ret = w;
    return 0;
}

void ingester_poll_free(struct ingester_poll *w)
{
    if (!w)
        return;
    loop_timer_free(w->timer);
    vec_for (i, &w->peers)
        peer_end(w->peers.ptr[i]);
    vec_free(&w->peers);
    xfree(w);
}

bool ingester_poll_ready(const struct ingester_poll *w, const char **ret_why)
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
    bool ready = answered > 0 && (moves || answered == w->peers.len);
    if (ready) /* where it serves it would be a note: role.h */
        *ret_why = NULL;
    return ready;
}

void ingester_poll_ring(const struct ingester_poll *w, struct json *j)
{
    json_key(j, "peers");
    json_arr(j);
    for (size_t i = 0; i < w->peers.len; i++) {
        const struct peer *p = w->peers.ptr[i];

        json_obj(j);
        json_put_cstr(j, "address", p->addr);
        json_put_bool(j, "up", p->answered);
        json_put_bool(j, "ready", p->ready);
        json_put_cstr(j, "why", p->why);
        json_put_u64(j, "sealLogEntries", p->applied);
        json_put_u64(j, "rawRows", p->raw_rows);
        json_put_u64(j, "sealLagMs", p->lag_ms);
        json_obj_end(j);
    }
    json_arr_end(j);
}

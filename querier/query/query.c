/* SPDX-License-Identifier: Apache-2.0
 *
 * query.c: one request from its arrival to its reply.
 *
 *                            ┌─────────────(all calls ended)────────────┐
 *                            v                                          │
 *   begin ─> TURN (waits) ─> STEP (pool) ──(asked ingesters)──> CALLS (loop waits)
 *             │                                   │
 *             ├──(wrote its reply)──> reply ──> freed
 *             └──(error, deadline)──> error reply ──> freed   <──(error, client gone)
 *
 * The loop only moves messages: parsing, decoding, merging and rendering are steps and run on the
 * pool. Everything a query holds is reserved from one budget before it is allocated, so that many
 * queries end in 503 and not in the kernel's hands, and one large query in a clear 400.
 *
 * A query goes by one map of the cluster. Where an ingester says that it is too old (ERR_CONFLICT:
 * there may be places that it does not know), the query begins again from its first step by the
 * next map, once that is here; twice at most, and not if it was answered in part already, works in
 * the background, or has asked what is no read.
 *
 * If the client disconnects, calls in flight are canceled at once; a step that runs polls a flag,
 * and its result is dropped.
 *
 * Thread: the loop's, except query_on_work.
 */
#include "querier/query/query.h"

#include <stdio.h>

#include "common/base/mem.h"
#include "common/obs/log.h"

#define QUERY_MAGIC     MAGIC('q', 'r', 'y', ' ')
#define ARENA_BYTES_MAX (4 * MIB)
#define CALLS_MAX       2048 /* at least, and */
#define CALLS_OF_TARGET 4    /* so many of each target: two tenants, tree and timeline */
#define MARGIN_MIN_MS   5    /* kept back from an ingester's deadline for our own work */
#define MARGIN_MAX_MS   250
#define AGAIN_MAX       2
#define LOOK_MS         20                   /* for a newer map */
#define LOOK_MOST_NS    UINT64_C(3000000000) /* a change is heard in less, or not at all */

/* ---- the end ----------------------------------------------------------------------------------*/

static uint64_t now_ns(const struct query *q)
{
    return clock_mono_ns(q->qr->ctx->env->clock);
}

/* What its steps have made. */
static void query_drop(struct query *q)
{
    fanout_calls_deinit(q->calls.ptr, q->calls.len);
    vec_free(&q->calls);
    if (q->doc)
        q->doc_free(q->doc);
    query_stream_free(q);
    buf_deinit(&q->out);
    buf_deinit(&q->message);
    arena_free(q->data);
    arena_free(q->arena);
    map_unref(q->map);
}

static void query_free(struct query *q)
{
    query_drop(q);
    if (q->identity)
        record_key_unref(q->identity);
    loop_timer_free(q->wait);
    q->magic = 0;
    xfree(q);
}

static void log_failure(const struct query *q)
{
    uint64_t request = q->http ? q->http->id : 0;

    if (q->err.code == ERR_INTERNAL || q->err.code == ERR_CORRUPT || q->err.code == ERR_IO)
        log_error("query failed", KV_CSTR("route", q->route->path), KV_U64("request", request),
                  KV_ERR(&q->err));
    else if (q->err.code == ERR_UNAVAILABLE || q->err.code == ERR_TIMEOUT)
        log_warn("query failed", KV_CSTR("route", q->route->path), KV_U64("request", request),
                 KV_ERR(&q->err));
}

void query_reply_headers(struct query *q)
{
    char text[ERR_TEXT_MAX + 64];
    int n;

    if (q->missing.missing) {
        n = snprintf(text, sizeof(text), "%zu of %zu ingesters missing", q->missing.missing,
                     q->missing.asked);
        http_reply_header(q->http, "X-Embertree-Partial", str_n(text, (size_t)n));
        metric_add(q->qr->metrics.partial, 1);
    }
    if (q->saturated)
        http_reply_header(q->http, "X-Embertree-Saturated", STR("true"));
    if (q->overflow) {
        n = snprintf(text, sizeof(text), "%" PRIu64, q->overflow);
        http_reply_header(q->http, "X-Embertree-Overflow", str_n(text, (size_t)n));
    }
    if (q->notice.len) /* the text has names of others: it is in the JSON */
        http_reply_header(q->http, "X-Embertree-Notice", STR("several-collectors"));
    if (q->truncated)
        http_reply_header(q->http, "X-Embertree-Truncated", STR("true"));
    if (q->bounds_end_ms) {
        n = snprintf(text, sizeof(text), "%" PRId64 "-%" PRId64, q->bounds_start_ms,
                     q->bounds_end_ms);
        http_reply_header(q->http, "X-Embertree-Bounds", str_n(text, (size_t)n));
    }
    if (q->attachment) {
        n = snprintf(text, sizeof(text), "attachment; filename=\"%s\"", q->attachment);
        http_reply_header(q->http, "Content-Disposition", str_n(text, (size_t)n));
    }
    if (q->policy)
        http_reply_header(q->http, "Content-Security-Policy", str_c(q->policy));
    if (!q->route->connect)
        http_reply_header(q->http, "X-Content-Type-Options", STR("nosniff"));
}

static void reply(struct query *q)
{
    if (q->stream.began) {
        query_stream_end(q);
        return;
    }
    if (q->err.code == 0) {
        query_reply_headers(q);
        if (q->route->connect)
            svc_reply(&q->call, &q->out);
        else
            http_reply(q->http, q->status ? q->status : 200, q->content_type, &q->out);
    } else if (q->route->connect) {
        svc_reply_err(&q->call, &q->err);
    } else {
        http_reply_err(q->http, &q->err);
    }
}

void query_end(struct query *q)
{
    struct querier *qr = q->qr;

    CHECK(!q->fanout);
    if (q->err.code)
        log_failure(q);
    if (q->http)
        reply(q);
    else
        q->ending->end(q);
    if (q->async)
        q->ending->release(q);
    querier_metrics_ended(&qr->metrics, q->route->path, q->err.code,
                          (double)(now_ns(q) - q->began_ns) / 1e9);
    if (q->held)
        query_give(q, q->held);
    tenant_queue_leave(qr->turns, &q->turn, q->went_ns ? (now_ns(q) - q->went_ns) / 1000 : 0);
    query_free(q);
    qr->on_query_ended(qr);
}

/* ---- steps and calls --------------------------------------------------------------------------*/

static void query_on_work(void *cookie);
static void query_on_worked(void *cookie);

static bool canceled(const struct query *q)
{
    return atomic_load_explicit(&q->cancel, memory_order_relaxed);
}

void query_run_step(struct query *q)
{
    struct pool *pool = q->qr->ctx->pool;

    if (!pool_submit_for(pool, pool_tenant(pool, q->tenants[0]), q->qr->ctx->loop, query_on_work,
                         query_on_worked, q)) {
        err_set(&q->err, ERR_BUSY, "too many jobs wait for a processor");
        query_end(q);
    }
}

static void query_on_work(void *cookie)
{
    struct query *q = cookie;
    query_step_fn step = q->step, before = q->before;

    CHECK(q->magic == QUERY_MAGIC && step);
    q->step = q->before = NULL;
    if (canceled(q))
        err_set(&q->err, ERR_CANCELED, "the client went away");
    else if ((!before || before(q, &q->err) == 0) && step(q, &q->err) == 0)
        err_clear(&q->err); /* what was tried on the way may have left its mark */
}

static int on_fanout_take(void *cookie, size_t bytes, struct err *e)
{
    struct query *q = cookie;

    metric_add(q->qr->metrics.reply_bytes, bytes);
    return query_take(q, bytes, e);
}

/* ---- by another map */

static bool may_begin_again(const struct query *q)
{
    return q->http && q->map && !q->acted && !q->async_ask && !q->stream.next &&
           q->map_retries < AGAIN_MAX;
}

static int query_plan(struct query *q, struct err *e);

/* As after query_prepare: what came with the request stays, and what it took of its time. */
static void query_begin_again(struct query *q)
{
    log_debug("a query begins again by a newer map", KV_CSTR("route", q->route->path),
              KV_U64("map", q->map->version));
    query_drop(q);
    if (q->held)
        query_give(q, q->held);
    memset(&q->calls, 0, sizeof(q->calls));
    memset(&q->stream, 0, sizeof(q->stream));
    q->arena = arena_new(ARENA_BYTES_MAX);
    q->data = NULL;
    q->doc = q->state = NULL;
    q->step = q->route->first;
    q->before = NULL;
    q->missing = (struct fanout_missing){ 0 };
    buf_init(&q->out, 0);
    buf_init(&q->message, 0);
    q->status = 0;
    q->content_type = "application/json";
    q->attachment = q->policy = NULL;
    q->saturated = q->overflow = 0;
    q->truncated = false;
    q->notice = STR("");
    q->collectors = 0;
    q->collectors_apart = 0;
    q->bounds_start_ms = q->bounds_end_ms = 0;
    q->map_retries++;
    metric_add(q->qr->metrics.again, 1);
    err_clear(&q->err);
    if (query_plan(q, &q->err))
        query_end(q);
    else
        query_run_step(q);
}

/* An ingester refused our map as too old. Waits up to LOOK_MOST_NS for a newer one, then begins the
 * query again. */
static void on_look(void *cookie)
{
    struct query *q = cookie;
    const struct map *now = route_map(q->qr->route);
    bool newer = now && now->version > q->map->version;

    CHECK(q->magic == QUERY_MAGIC && q->looks);
    map_unref(now);
    if (!newer && now_ns(q) < MIN(q->deadline_ns, q->looks_ns + LOOK_MOST_NS))
        return;
    q->looks = false;
    loop_timer_free(q->wait);
    q->wait = NULL;
    if (newer || q->allow_partial) {
        q->map_retries = newer ? q->map_retries : AGAIN_MAX; /* without those who refuse, for the
        last time */
        query_begin_again(q);
        return;
    }
    q->err.code = ERR_UNAVAILABLE;
    query_end(q);
}

static void query_look(struct query *q)
{
    q->looks = true;
    q->looks_ns = now_ns(q);
    q->wait = loop_timer_new(q->qr->ctx->loop, on_look, q);
    loop_timer_start(q->wait, 1, LOOK_MS);
}

static void on_fanout_done(void *cookie, const struct err *err)
{
    struct query *q = cookie;

    CHECK(q->magic == QUERY_MAGIC);
    q->fanout = NULL;
    if (err)
        q->err = *err;
    vec_for (i, &q->calls)
        if (q->calls.ptr[i].err.code)
            querier_metrics_ingester_error(&q->qr->metrics, q->calls.ptr[i].err.code);
    if (!err) {
        struct fanout_missing m =
            fanout_missing_of(q->calls.ptr, q->calls.len, route_targets(q->qr->route));
        if (m.missing > q->missing.missing)
            q->missing = m;
        query_run_step(q);
        return;
    }
    if (err->code == ERR_CONFLICT && !q->acted) {
        if (may_begin_again(q)) {
            query_look(q);
            return;
        }
        q->err.code = ERR_UNAVAILABLE; /* a later one may be luckier */
    }
    query_end(q);
}

static bool is_read(enum rpc_method m)
{
    return m == RPC_MERGE || m == RPC_TIMELINE || m == RPC_LABELS || m == RPC_EXEMPLARS ||
           m == RPC_FUNCTIONS || m == RPC_ESTIMATE || m == RPC_SPACE || m == RPC_LEDGER;
}

static void query_start_calls(struct query *q)
{
    uint64_t now = now_ns(q);

    if (now >= q->deadline_ns) {
        err_set(&q->err, ERR_TIMEOUT, "the query waited until its deadline was over");
        query_end(q);
        return;
    }
    vec_for (i, &q->calls)
        q->acted |= !is_read(q->calls.ptr[i].method);
    uint64_t left_ms = (q->deadline_ns - now) / 1000000;
    uint64_t margin = MAX(MARGIN_MIN_MS, MIN(left_ms / 20, MARGIN_MAX_MS));
    struct fanout_opts o = { .route = q->qr->route,
                             .calls = q->calls.ptr,
                             .len = q->calls.len,
                             .deadline_ms = left_ms > 2 * margin ? left_ms - margin : left_ms + 1,
                             .ingesters = route_targets(q->qr->route),
                             .allow_partial = q->allow_partial,
                             .again = may_begin_again(q),
                             .take = on_fanout_take,
                             .done = on_fanout_done,
                             .cookie = q };
    q->fanout = fanout_start(&o);
}

static void query_on_worked(void *cookie)
{
    struct query *q = cookie;

    CHECK(q->magic == QUERY_MAGIC);
    if (!q->err.code && canceled(q))
        err_set(&q->err, ERR_CANCELED, "the client went away");
    if (!q->err.code && q->async_ask && q->ending->on_loop(q, &q->err) == 0)
        err_clear(&q->err);
    if (!q->err.code && query_stream_send(q))
        return;
    if (q->err.code || !q->step)
        query_end(q);
    else if (q->calls.len)
        query_start_calls(q);
    else
        query_run_step(q); /* asked nothing */
}

/* ---- its turn ---------------------------------------------------------------------------------*/

static void query_go(void *cookie)
{
    struct query *q = cookie;

    CHECK(q->magic == QUERY_MAGIC);
    loop_timer_free(q->wait);
    q->wait = NULL;
    q->went_ns = now_ns(q);
    map_unref(q->map); /* it may have waited for long */
    q->map = route_map(q->qr->route);
    query_run_step(q);
}

static void on_waited(void *cookie)
{
    struct query *q = cookie;

    err_set(&q->err, ERR_TIMEOUT, "the query waited for its turn until its deadline was over");
    query_end(q);
}

/* May have ended the query when it returns. */
static void query_enter(struct query *q)
{
    struct querier *qr = q->qr;
    bool waits;

    q->turn.go = query_go;
    q->turn.cookie = q;
    if (tenant_queue_enter(qr->turns, q->tenants[0], &q->turn, &waits, &q->err)) {
        query_end(q);
    } else if (waits) {
        uint64_t left_ms = (q->deadline_ns - q->began_ns) / 1000000;
        q->wait = loop_timer_new(qr->ctx->loop, on_waited, q);
        loop_timer_start(q->wait, MAX(left_ms, 1), 0);
    }
}

/* ---- the begin --------------------------------------------------------------------------------*/

static void on_gone(struct http_req *r)
{
    struct query *q = r->cookie;

    CHECK(q->magic == QUERY_MAGIC);
    atomic_store_explicit(&q->cancel, true, memory_order_relaxed);
    metric_add(q->qr->metrics.gone, 1);
    if (!q->fanout && !tenant_queue_waits(&q->turn) && !q->stream.waits && !q->looks)
        return; /* on the pool: query_on_worked sees it */
    fanout_cancel(q->fanout);
    q->fanout = NULL;
    err_set(&q->err, ERR_CANCELED, "the client went away");
    query_end(q);
}

static int query_plan(struct query *q, struct err *e)
{
    const struct route *route = q->qr->route;

    q->calls_max = MAX(CALLS_MAX, CALLS_OF_TARGET * route_targets(route));
    q->map = route_map(route);
    if (route_moves(route))
        return plan_targets_each(route_shards(route), q->arena, &q->targets, e);
    return plan_targets(route_shards(route), route_targets(route), q->arena, &q->targets, e);
}

static int query_prepare(struct query *q, struct err *e)
{
    struct querier *qr = q->qr;
    struct str partial;
    uint64_t timeout_ms = qr->conf->timeout_ms;

    if (qr->draining)
        return err_set(e, ERR_UNAVAILABLE, "shutting down");
    if (role_memory_check(qr->ctx, e))
        return e->code;
    if (q->http->body.len > q->route->body_max)
        return err_set(e, ERR_TOO_LARGE, "the body has %zu bytes, at most %zu are taken here",
                       q->http->body.len, q->route->body_max);
    if (q->route->connect)
        timeout_ms = svc_left_ms(&q->call, timeout_ms);
    q->deadline_ns = q->began_ns + timeout_ms * 1000000;
    if (tenant_of(q->http, qr->ctx->tenancy, QUERY_TENANTS_MAX, q->tenants, &q->tenants_len, e))
        return e->code;
    partial = http_header(q->http, "X-Embertree-Allow-Partial");
    if (!partial.len)
        (void)http_param(q->http, "allow_partial", &partial);
    q->allow_partial = str_eqc(partial, "1") || str_eqc(partial, "true");
    return query_plan(q, e);
}

void query_on_http(struct http_req *r)
{
    const struct querier_route *qroute = r->route_cookie;
    struct querier *qr = qroute->querier;
    struct svc_call call = { 0 };

    CHECK(qr->magic == QUERIER_MAGIC);
    if (qroute->route->connect && !svc_accept(r, SVC_PROTO | SVC_JSON, &call))
        return; /* answered */
    struct query *q = XNEW(struct query);
    *q = (struct query){ .magic = QUERY_MAGIC,
                         .qr = qr,
                         .route = qroute->route,
                         .http = r,
                         .identity = r->identity ? record_key_ref(r->identity) : NULL,
                         .call = call,
                         .arena = arena_new(ARENA_BYTES_MAX),
                         .step = qroute->route->first,
                         .began_ns = clock_mono_ns(qr->ctx->env->clock),
                         .content_type = "application/json" };
    buf_init(&q->out, 0);
    buf_init(&q->message, 0);
    qr->running++;
    r->cookie = q;
    if (query_prepare(q, &q->err)) {
        query_end(q);
        return;
    }
    r->on_gone = on_gone;
    query_enter(q);
}

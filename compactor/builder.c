/* SPDX-License-Identifier: Apache-2.0
 *
 * builder: one small state machine per shard, and a few turns that go round among them.
 *
 *   REST ── its time has come ──> READY ── a turn is free ──> ASKING ── job ──> MERGING ──> SENDING
 *     ^                             (in order of arrival)       │ nothing due, error   pool  │
 *     └─────────────────────────────────────────────────────────┴────────────────────────────┘
 *
 * The ingester chooses the node that is built next (lowest level first, oldest first, tenants in
 * turn); the compactor asks the shard next that has rested longest. After a job that took d a shard
 * rests d * (100 - share) / share, so that its data are read or written for builds at most `share`
 * percent of the time; with nothing due it rests for `interval`, or as long as the ingester asked
 * for.
 *
 * Nothing is remembered between jobs but figures: whatever is lost is given again by the ingester,
 * so every error has the same answer, a rest, and a start from scratch is no different from going
 * on. A lost reply of APPLY may mean that the sums were written: the next NEXT tells.
 *
 * Where compactors share the shards (claims.h), a shard that belongs to another compactor is IDLE;
 * all requests for a shard of this one carry its fence.
 *
 * Memory: at most jobs_max jobs. A job is asked for with as many bytes of rows as let its message,
 * its rows, its sums and the decoded rows of one series fit into its part of memory_bytes.
 *
 * Threads: the loop; while MERGING the job belongs to the pool.
 */
#include "compactor/builder.h"

#include <stdio.h>

#include "common/base/list.h"
#include "common/base/mem.h"
#include "common/obs/log.h"
#include "common/role/core/memory.h"
#include "compactor/build_msg.h"

#define BUILDER_MAGIC MAGIC('b', 'l', 'd', 'r')
#define SHARDS_MAX    65536
#define REST_MAX_MS   60000
#define PAUSE_MS      500
#define LOOK_MS       200
#define OLD_REST_MS   60000 /* an ingester that knows no builds is asked again after this */
/* Of a job's memory one part is rows: the rest is its message, a copy, sums, decoded entries. */
#define JOB_PARTS     8
#define JOB_BYTES_MIN (16 * KIB)
#define REQUEST_BYTES (16 * KIB)

enum site_state { SITE_REST, SITE_READY, SITE_ASKING, SITE_MERGING, SITE_SENDING, SITE_IDLE };

/* A shard, as we see it. */
struct site {
    struct builder *b;
    uint32_t shard;
    enum site_state state;
    struct timer *timer;     /* REST */
    struct list link;        /* READY */
    struct route_call *call; /* ASKING, SENDING */
    uint64_t began_ns;       /* of the turn */
    bool ours;               /* else it is IDLE after this turn */
    bool void_turn;          /* MERGING: the shard is another compactor's by now */
    uint64_t fence;          /* of the turn; 0: shards are not shared */

    /* The job. */
    struct buf payload; /* the job as received; then the sums to send */
    struct arena *arena;
    struct build_given given;
    struct build_result result;
    uint64_t written;
    struct err err;

    /* Figures. */
    bool lagging, failing;
    uint64_t due, oldest_ms, jobs, nodes, failures;
    char why[ERR_TEXT_MAX];
};

struct builder {
    uint32_t magic;
    struct builder_opts o;
    struct site *sites; /* owned */
    size_t sites_len;
    struct list ready;
    struct timer *pause; /* until memory may be back */
    struct timer *look;  /* until the number of shards is known */
    size_t turns;        /* sites that are neither at rest nor ready */
    size_t merging;
    bool draining;
    void (*drained)(void *cookie);
    void *drained_cookie;
    struct metric_cell *m_nodes[KEY_LEVELS], *m_jobs, *m_read, *m_written, *m_rows;
    struct metric_cell *m_due, *m_lag, *m_merge_seconds, *m_job_seconds;
    struct metric *m_failures;
};

static void turns_start(struct builder *b);

/* ---- figures -------------------------------------------------------------------------------- */

static void show(struct site *st)
{
    struct builder *b = st->b;
    uint64_t due = 0, lag = 0;
    bool lagging = st->oldest_ms > b->o.lag_warn_ms;

    for (size_t i = 0; i < b->sites_len; i++) {
        due += b->sites[i].due;
        lag = MAX(lag, b->sites[i].oldest_ms);
    }
    metric_set(b->m_due, (int64_t)due);
    metric_set(b->m_lag, (int64_t)(lag / 1000));
    if (lagging && !st->lagging)
        log_warn("building coarse levels is behind; answers stay exact and cost more",
                 KV_U64("shard", st->shard), KV_U64("oldest_ms", st->oldest_ms),
                 KV_U64("nodes_due", st->due));
    if (!lagging && st->lagging)
        log_info("building coarse levels has caught up", KV_U64("shard", st->shard));
    st->lagging = lagging;
}

static void job_clear(struct site *st)
{
    build_given_deinit(&st->given);
    st->given = (struct build_given){ 0 };
    build_result_deinit(&st->result);
    st->result = (struct build_result){ 0 };
    arena_free(st->arena);
    st->arena = NULL;
    buf_deinit(&st->payload);
    buf_init(&st->payload, st->b->o.message_max);
}

static bool in_turn(const struct site *st)
{
    return st->state == SITE_ASKING || st->state == SITE_MERGING || st->state == SITE_SENDING;
}

/* ---- a turn ends ---------------------------------------------------------------------------- */

static void on_rested(void *cookie)
{
    struct site *st = cookie;

    CHECK(st->state == SITE_REST);
    st->state = SITE_READY;
    list_add_tail(&st->b->ready, &st->link);
    turns_start(st->b);
}

static void turn_end(struct site *st, uint64_t rest_ms)
{
    struct builder *b = st->b;

    CHECK(in_turn(st) && b->turns > 0);
    job_clear(st);
    st->state = st->ours ? SITE_REST : SITE_IDLE;
    b->turns--;
    if (b->draining)
        return;
    if (!st->ours) {
        turns_start(b);
        return;
    }
    loop_timer_start(st->timer, MIN(rest_ms, REST_MAX_MS), 0);
    turns_start(b);
}

static void turn_failed(struct site *st, const struct err *e)
{
    struct builder *b = st->b;
    struct str reason = str_c(err_name(e->code));

    metric_add(metric_at(b->m_failures, &reason, 1), 1);
    st->failures++;
    (void)snprintf(st->why, sizeof(st->why), "%s", e->text);
    if (!st->failing)
        log_warn("a coarse node was not built; it is tried again", KV_U64("shard", st->shard),
                 KV_ERR(e));
    st->failing = true;
    turn_end(st, e->code == ERR_UNIMPLEMENTED ? OLD_REST_MS : b->o.interval_ms);
}

/* Rest after work, so that builds have their share of the time and not more. */
static uint64_t rest_ms(const struct site *st)
{
    const struct builder *b = st->b;
    uint64_t took_ms = (clock_mono_ns(b->o.clock) - st->began_ns) / 1000000;

    return took_ms * (100 - b->o.share) / b->o.share;
}

static struct route_call *site_ask(struct site *st, enum rpc_method method, struct buf *payload,
                                   rpc_done_fn done)
{
    const struct builder_opts *o = &st->b->o;

    return route_ask(o->route,
                     &(struct route_query){ .target = route_target(o->route, st->shard),
                                            .method = method,
                                            .deadline_ms = o->timeout_ms,
                                            .done = done,
                                            .cookie = st },
                     payload);
}

/* ---- SENDING -------------------------------------------------------------------------------- */

static void on_applied(void *cookie, struct str reply, const struct err *err)
{
    struct site *st = cookie;
    struct builder *b = st->b;
    struct build_applied done;
    struct err e;

    st->call = NULL;
    if (err)
        e = *err;
    if (err || build_applied_unpack(reply, &done, &e)) {
        turn_failed(st, &e);
        return;
    }
    st->jobs++;
    metric_add(b->m_jobs, 1);
    metric_add(b->m_rows, done.rows);
    metric_add(b->m_written, done.bytes);
    metric_observe(b->m_job_seconds, (double)(clock_mono_ns(b->o.clock) - st->began_ns) / 1e9);
    if (st->given.job.last) {
        st->nodes++;
        metric_add(b->m_nodes[st->given.job.node.level], 1);
        log_debug("coarse node built", KV_U64("shard", st->shard),
                  KV_U64("tenant", st->given.job.node.m.tenant),
                  KV_U64("scope", st->given.job.node.m.scope),
                  KV_U64("level", st->given.job.node.level), KV_U64("slot", st->given.job.node.t),
                  KV_U64("parts", st->given.part + 1));
    }
    if (st->failing)
        log_info("coarse nodes are built again", KV_U64("shard", st->shard));
    st->failing = false;
    st->why[0] = 0;
    turn_end(st, rest_ms(st));
}

static void send_sums(struct site *st)
{
    st->state = SITE_SENDING;
    st->call = site_ask(st, RPC_BUILD_APPLY, &st->payload, on_applied);
}

/* ---- MERGING: pool thread ------------------------------------------------------------------- */

static int merge(struct site *st, struct err *e)
{
    struct buf out;
    int rc = build_given_unpack(buf_str(&st->payload), st->arena, &st->given, e);

    if (rc || !st->given.id)
        return rc;
    rc = build_merge(&st->given.job, st->arena, &st->result, e);
    if (rc)
        return rc;
    buf_init(&out, st->b->o.message_max);
    struct build_sent sent = { st->shard, st->given.id, st->fence };
    rc = build_apply_pack(&sent, &st->result, st->arena, &out, &st->written, e);
    buf_deinit(&st->payload);
    buf_init(&st->payload, st->b->o.message_max);
    buf_move(&st->payload, &out);
    buf_deinit(&out);
    return rc;
}

static void merge_work(void *cookie)
{
    struct site *st = cookie;
    uint64_t began = clock_mono_ns(st->b->o.clock);

    st->arena = arena_new(4 * st->b->o.message_max);
    st->err.code = merge(st, &st->err);
    if (st->given.id)
        metric_observe(st->b->m_merge_seconds,
                       (double)(clock_mono_ns(st->b->o.clock) - began) / 1e9);
}

static void merge_done(void *cookie)
{
    struct site *st = cookie;
    struct builder *b = st->b;

    CHECK(b->magic == BUILDER_MAGIC && st->state == SITE_MERGING);
    b->merging--;
    if (!st->err.code || st->given.id) {
        st->due = st->given.due;
        st->oldest_ms = st->given.oldest_ms;
        show(st);
    }
    if (b->draining || st->void_turn) {
        st->void_turn = false;
        turn_end(st, 0);
        if (b->draining && b->merging == 0 && b->drained)
            loop_post(b->o.loop, b->drained, b->drained_cookie);
        return;
    }
    if (st->err.code) {
        turn_failed(st, &st->err);
        return;
    }
    if (!st->given.id) {
        turn_end(st, st->given.wait_ms && !st->given.due ? b->o.interval_ms : st->given.wait_ms);
        return;
    }
    metric_add(b->m_read, st->given.bytes);
    send_sums(st);
}

/* ---- ASKING --------------------------------------------------------------------------------- */

static void on_given(void *cookie, struct str reply, const struct err *err)
{
    struct site *st = cookie;
    struct err e;

    st->call = NULL;
    if (err) {
        turn_failed(st, err);
        return;
    }
    st->state = SITE_MERGING;
    st->err = (struct err){ 0 };
    if (!buf_add_str(&st->payload, reply)) {
        (void)err_set(&e, ERR_LIMIT, "a job of %zu bytes is over %zu", reply.len, st->payload.max);
        turn_failed(st, &e);
    } else if (!pool_submit(st->b->o.pool, st->b->o.loop, merge_work, merge_done, st)) {
        (void)err_set(&e, ERR_BUSY, "too many jobs wait for a processor");
        turn_failed(st, &e);
    } else {
        st->b->merging++;
    }
}

static void turn_start(struct site *st)
{
    struct builder *b = st->b;
    struct build_next n = { .shard = st->shard, .compactor = b->o.id, .fence = st->fence };
    struct buf request;

    n.bytes_max = MAX(b->o.memory_bytes / b->o.jobs_max / JOB_PARTS, JOB_BYTES_MIN);
    n.bytes_max = MIN(n.bytes_max, b->o.message_max / 4);
    st->state = SITE_ASKING;
    st->began_ns = clock_mono_ns(b->o.clock);
    buf_init(&request, REQUEST_BYTES);
    build_next_pack(&n, &request);
    st->call = site_ask(st, RPC_BUILD_NEXT, &request, on_given);
}

static void turns_start(struct builder *b)
{
    if (!list_empty(&b->ready) && memory_refuses(b->o.memory)) {
        loop_timer_start(b->pause, PAUSE_MS, 0);
        return;
    }
    while (!b->draining && b->turns < b->o.jobs_max && !list_empty(&b->ready)) {
        struct site *st = container_of(b->ready.next, struct site, link);

        list_del(&st->link);
        b->turns++;
        turn_start(st);
    }
}

/* ---- life ----------------------------------------------------------------------------------- */

#define NAME(thing) "embertree_compactor_" thing

static const double SECONDS[] = { 0.0001, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5, 30 };

static struct metric_cell *cell(struct metrics *m, enum metric_kind kind, const char *name,
                                const char *help)
{
    struct metric *all =
        kind == METRIC_HISTOGRAM
            ? metric_new_histogram(m, name, help, NULL, SECONDS, ARRAY_LEN(SECONDS))
            : metric_new(m, kind, name, help, NULL);

    return metric_at(all, NULL, 0);
}

static void metrics_init(struct builder *b)
{
    static const char *const levels[KEY_LEVELS] = { "10s", "1m", "10m", "1h",
                                                    "6h",  "1d", "8d",  "64d" };
    struct metrics *m = b->o.metrics;
    struct metric *nodes = metric_new(m, METRIC_COUNTER, NAME("nodes_built_total"),
                                      "Nodes of coarse levels built", "level");

    for (size_t i = 3; i < KEY_LEVELS; i++) {
        struct str label = str_c(levels[i]);

        b->m_nodes[i] = metric_at(nodes, &label, 1);
    }
    b->m_jobs =
        cell(m, METRIC_COUNTER, NAME("build_jobs_total"), "Parts of nodes merged and written");
    b->m_read = cell(m, METRIC_COUNTER, NAME("build_read_bytes_total"), "Bytes of children merged");
    b->m_written =
        cell(m, METRIC_COUNTER, NAME("build_written_bytes_total"), "Bytes of sums written");
    b->m_rows = cell(m, METRIC_COUNTER, NAME("build_rows_total"), "Sums written");
    b->m_due = cell(m, METRIC_GAUGE, NAME("build_nodes_due"), "Coarse nodes that wait to be built");
    b->m_lag = cell(m, METRIC_GAUGE, NAME("build_lag_seconds"),
                    "How long the oldest of them has been due");
    b->m_merge_seconds = cell(m, METRIC_HISTOGRAM, NAME("merge_seconds"),
                              "Decoding, adding and encoding of one part");
    b->m_job_seconds =
        cell(m, METRIC_HISTOGRAM, NAME("build_job_seconds"), "One part, from question to answer");
    b->m_failures = metric_new(m, METRIC_COUNTER, NAME("build_failures_total"),
                               "Parts that were not built, by the error", "reason");
}

static void on_pause_end(void *cookie)
{
    turns_start(cookie);
}

/* What the jobs that are under way may hold. */
static uint64_t memory_used(void *cookie)
{
    const struct builder *b = cookie;

    return b->turns * (b->o.memory_bytes / b->o.jobs_max);
}

static void site_init(struct site *st, struct builder *b, uint32_t shard, uint32_t shards)
{
    *st = (struct site){ .b = b, .shard = shard };
    buf_init(&st->payload, b->o.message_max);
    st->timer = loop_timer_new(b->o.loop, on_rested, st);
    st->ours = !b->o.claimed;
    st->state = st->ours ? SITE_REST : SITE_IDLE;
    /* Not all at the same moment. */
    if (st->ours)
        loop_timer_start(st->timer, b->o.interval_ms * shard / shards, 0);
}

bool builder_own(struct builder *b, uint32_t shard, uint64_t fence)
{
    struct site *st = shard < b->sites_len ? &b->sites[shard] : NULL;

    CHECK(b->o.claimed && fence);
    if (b->draining || !st || st->state != SITE_IDLE)
        return false; /* its last turn is not over yet */
    st->ours = true;
    st->fence = fence;
    st->state = SITE_READY;
    list_add_tail(&b->ready, &st->link);
    turns_start(b);
    return true;
}

bool builder_leave(struct builder *b, uint32_t shard)
{
    struct site *st = shard < b->sites_len ? &b->sites[shard] : NULL;

    if (!st)
        return true;
    st->ours = false;
    if (st->state == SITE_READY)
        list_del(&st->link);
    if (st->state == SITE_REST)
        loop_timer_stop(st->timer);
    if (st->state == SITE_READY || st->state == SITE_REST)
        st->state = SITE_IDLE;
    if (st->state == SITE_IDLE) {
        st->due = st->oldest_ms = 0;
        show(st);
    }
    return st->state == SITE_IDLE;
}

void builder_lose(struct builder *b, uint32_t shard)
{
    if (builder_leave(b, shard))
        return;
    struct site *st = &b->sites[shard];
    if (st->call) {
        route_cancel(st->call);
        st->call = NULL;
        turn_end(st, 0);
        (void)builder_leave(b, shard);
    } else {
        st->void_turn = true;
    }
}

/* The shards of the cluster, as soon as their number is known; it never changes then. */
static void look_for_shards(void *cookie)
{
    struct builder *b = cookie;
    uint32_t n = route_shards(b->o.route);

    if (!n) {
        loop_timer_start(b->look, LOOK_MS, 0);
        return;
    }
    n = MIN(n, (uint32_t)SHARDS_MAX);
    b->sites = XNEW_ARRAY(struct site, n);
    for (; b->sites_len < n; b->sites_len++)
        site_init(&b->sites[b->sites_len], b, (uint32_t)b->sites_len, n);
}

struct builder *builder_new(const struct builder_opts *o)
{
    struct builder *b = XNEW(struct builder);

    CHECK(o->share >= 1 && o->share <= 100 && o->jobs_max > 0);
    b->magic = BUILDER_MAGIC;
    b->o = *o;
    list_init(&b->ready);
    b->pause = loop_timer_new(o->loop, on_pause_end, b);
    b->look = loop_timer_new(o->loop, look_for_shards, b);
    metrics_init(b);
    look_for_shards(b);
    if (o->memory)
        memory_watch(o->memory, MEMORY_BUILDS, memory_used, b);
    return b;
}

void builder_drain(struct builder *b, void (*done)(void *cookie), void *cookie)
{
    CHECK(b->magic == BUILDER_MAGIC && !b->draining);
    b->draining = true;
    loop_timer_stop(b->pause);
    loop_timer_stop(b->look);
    for (size_t i = 0; i < b->sites_len; i++) {
        struct site *st = &b->sites[i];

        loop_timer_stop(st->timer);
        if (!st->call)
            continue;
        route_cancel(st->call);
        st->call = NULL;
        turn_end(st, 0);
    }
    b->drained = done;
    b->drained_cookie = cookie;
    if (b->merging == 0)
        loop_post(b->o.loop, done, cookie);
}

void builder_free(struct builder *b)
{
    if (!b)
        return;
    CHECK(b->magic == BUILDER_MAGIC && b->merging == 0);
    if (b->o.memory)
        memory_forget(b->o.memory, b);
    loop_timer_free(b->pause);
    loop_timer_free(b->look);
    for (size_t i = 0; i < b->sites_len; i++) {
        struct site *st = &b->sites[i];

        route_cancel(st->call);
        loop_timer_free(st->timer);
        job_clear(st);
        buf_deinit(&st->payload);
    }
    xfree(b->sites);
    b->magic = 0;
    xfree(b);
}

void builder_ring(const struct builder *b, struct json *j)
{
    static const char *const states[] = { "rest",    "ready",   "asking",
                                          "merging", "sending", "elsewhere" };
    const struct rpc_peer *peer;
    struct err e;

    json_key(j, "shards");
    json_arr(j);
    for (size_t i = 0; i < b->sites_len; i++) {
        const struct site *st = &b->sites[i];

        json_obj(j);
        json_put_u64(j, "shard", st->shard);
        json_key(j, "ingester");
        peer = route_peer(b->o.route, route_target(b->o.route, st->shard), &e);
        json_cstr(j, peer ? rpc_peer_addr(peer) : "");
        json_put_cstr(j, "state", states[st->state]);
        json_put_u64(j, "fence", st->ours ? st->fence : 0);
        json_put_u64(j, "nodesDue", st->due);
        json_put_u64(j, "oldestMs", st->oldest_ms);
        json_put_u64(j, "jobs", st->jobs);
        json_put_u64(j, "nodesBuilt", st->nodes);
        json_put_u64(j, "failures", st->failures);
        json_put_cstr(j, "why", st->why);
        json_obj_end(j);
    }
    json_arr_end(j);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_read: a queue of queries in front of the pool.
 *
 *   loop: waiting (FIFO) ──(memory for it is free)──> pool: read_run ──> loop: reply, next
 *
 * What a query may use at most (its builder of stacks, its arena, its reply) is taken from the
 * share of queries before it starts; so a flood of heavy queries waits instead of eating the memory
 * of writes. The queue is bounded, and a query whose caller gave up is dropped when its turn comes.
 * A single query always runs, however small the share.
 */
#include "ingester/rpc_read.h"

#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/role/memory.h"
#include "ingester/read_run.h"

#define READ_MAGIC    MAGIC('i', 'r', 'd', ' ')
#define REQUEST_BYTES (64 * KIB) /* to decode a request, beside 24 times its size */
#define LIST_BYTES    (16 * MIB) /* arena of a timeline or a list of labels */
#define ANSWER_MIN    (16 * MIB)

struct reads {
    struct list waiting; /* of struct read */
    size_t waiting_len, running;
    struct budget bytes;
    uint64_t stacks_max; /* of one query */
};

struct read {
    uint32_t magic;
    struct ingester *in;
    struct rpc_call *call;
    struct str payload; /* the call's */
    enum rpc_method method;
    struct list link;
    uint64_t began_ns, deadline_ns;
    uint64_t held;
    uint64_t disk_free, disk_reserve; /* when it came */
    struct buf reply;
    uint64_t rows;
    struct err err;
};

static const char *method_name(enum rpc_method m)
{
    return m == RPC_MERGE       ? "merge"
           : m == RPC_TIMELINE  ? "timeline"
           : m == RPC_FUNCTIONS ? "functions"
           : m == RPC_EXEMPLARS ? "exemplars"
           : m == RPC_SPACE     ? "space"
           : m == RPC_ESTIMATE  ? "estimate"
                                : "labels";
}

/* ---- work: pool thread ---------------------------------------------------------------------- */

/* The stores a query asks for: those named that live here, or all. */
static size_t pick_stores(const struct ingester *in, const struct read_msg *m,
                          struct store *ret[SHARDS_MAX])
{
    size_t n = 0;

    for (size_t i = 0; i < in->shards_len; i++) {
        bool wanted = m->shards_len == 0;

        for (size_t k = 0; k < m->shards_len && !wanted; k++)
            wanted = m->shards[k] == shard_number(in->shards[i]);
        if (wanted)
            ret[n++] = shard_store(in->shards[i]);
    }
    return n;
}

static int run(struct read *r, struct arena *a, struct read_msg *m, struct err *e)
{
    struct store *stores[SHARDS_MAX];
    struct read_source src = {
        .stores = stores,
        .stacks_bytes_max = r->in->reads->stacks_max,
        .reply_bytes_max = r->in->ctx->cluster->rpc_message_bytes_max,
        .exemplars_max = (size_t)r->in->exemplars->list_max,
        .disk_free = r->disk_free,
        .disk_reserve = r->disk_reserve,
        .cancel = rpc_call_canceled(r->call),
    };
    int code = read_msg_decode(r->method, r->payload, a, m, e);

    if (code)
        return err_wrap(e, "%s request", method_name(r->method));
    src.len = pick_stores(r->in, m, stores);
    return read_run(m, &src, a, &r->reply, &r->rows, e);
}

static void read_work(void *cookie)
{
    struct read *r = cookie;
    struct arena *a =
        arena_new(REQUEST_BYTES + 24 * r->payload.len + (r->method == RPC_MERGE ? 0 : LIST_BYTES));
    struct read_msg m = { .method = r->method };

    CHECK(r->magic == READ_MAGIC);
    if (run(r, a, &m, &r->err))
        buf_deinit(&r->reply);
    else
        err_clear(&r->err); /* what was tried on the way may have left its mark */
    read_msg_deinit(&m);
    arena_free(a);
}

/* ---- queue: loop ---------------------------------------------------------------------------- */

static void reads_start(struct ingester *in);

static void read_end(struct read *r)
{
    struct ingester *in = r->in;
    struct str method = str_c(method_name(r->method));
    double seconds = (double)(clock_mono_ns(in->ctx->env->clock) - r->began_ns) / 1e9;

    metric_observe(metric_at(in->metrics.read_seconds, &method, 1), seconds);
    if (r->err.code) {
        ingester_refused(&in->metrics, r->err.code);
        rpc_fail(r->call, &r->err);
    } else {
        metric_add(in->metrics.reads, 1);
        metric_add(in->metrics.read_rows, r->rows);
        rpc_reply(r->call, &r->reply);
    }
    buf_deinit(&r->reply);
    r->magic = 0;
    xfree(r);
    metric_set(in->metrics.reads_pending, (int64_t)(in->reads->waiting_len + in->reads->running));
}

static void read_done(void *cookie)
{
    struct read *r = cookie;
    struct ingester *in = r->in;

    in->reads->running--;
    budget_give(&in->reads->bytes, r->held);
    read_end(r);
    reads_start(in);
}

/* False while the next query has to wait for memory. Once submitted it is the pool's. */
static bool read_start(struct ingester *in, struct read *r)
{
    struct reads *rs = in->reads;
    bool stacks = r->method != RPC_TIMELINE && r->method != RPC_LABELS && r->method != RPC_ESTIMATE;
    uint64_t need = stacks ? 2 * rs->stacks_max : LIST_BYTES;
    uint64_t now = clock_mono_ns(in->ctx->env->clock);
    int code = 0;

    if (__atomic_load_n(rpc_call_canceled(r->call), __ATOMIC_RELAXED))
        code = err_set(&r->err, ERR_CANCELED, "the caller gave up");
    else if (now > r->deadline_ns)
        code = err_set(&r->err, ERR_TIMEOUT, "the query waited %" PRIu64 " ms for its turn",
                       (now - r->began_ns) / 1000000);
    else if (budget_take(&rs->bytes, need))
        r->held = need;
    else if (rs->running > 0)
        return false;
    list_del(&r->link);
    rs->waiting_len--;
    if (!code && pool_submit(in->ctx->pool, in->ctx->loop, read_work, read_done, r)) {
        rs->running++;
        return true;
    }
    if (!code)
        (void)err_set(&r->err, ERR_BUSY, "too many jobs wait for a processor");
    budget_give(&rs->bytes, r->held);
    read_end(r);
    return true;
}

static void reads_start(struct ingester *in)
{
    while (!list_empty(&in->reads->waiting)) {
        struct read *r = container_of(in->reads->waiting.next, struct read, link);

        if (!read_start(in, r))
            return;
    }
}

static void on_read(struct ingester *in, enum rpc_method method, struct rpc_call *call,
                    struct str payload)
{
    struct reads *rs = in->reads;
    struct read *r;

    CHECK(in->magic == INGESTER_MAGIC);
    struct err e;

    if (rs->waiting_len + rs->running >= in->conf->reads_max)
        (void)err_set(&e, ERR_BUSY, "%zu queries run or wait already", in->conf->reads_max);
    else if (!role_memory_check(in->ctx, &e))
        err_clear(&e);
    if (e.code) {
        ingester_refused(&in->metrics, e.code);
        rpc_fail(call, &e);
        return;
    }
    r = XNEW(struct read);
    r->magic = READ_MAGIC;
    r->in = in;
    r->call = call;
    r->payload = payload;
    r->method = method;
    disk_room(in->disk, &r->disk_free, &r->disk_reserve);
    r->began_ns = clock_mono_ns(in->ctx->env->clock);
    r->deadline_ns = r->began_ns + rpc_call_left_ms(call) * UINT64_C(1000000);
    list_add_tail(&rs->waiting, &r->link);
    rs->waiting_len++;
    metric_set(in->metrics.reads_pending, (int64_t)(rs->waiting_len + rs->running));
    reads_start(in);
}

static void on_merge(void *cookie, struct rpc_call *call, struct str payload)
{
    on_read(cookie, RPC_MERGE, call, payload);
}

static void on_timeline(void *cookie, struct rpc_call *call, struct str payload)
{
    on_read(cookie, RPC_TIMELINE, call, payload);
}

static void on_exemplars(void *cookie, struct rpc_call *call, struct str payload)
{
    on_read(cookie, RPC_EXEMPLARS, call, payload);
}

static void on_labels(void *cookie, struct rpc_call *call, struct str payload)
{
    on_read(cookie, RPC_LABELS, call, payload);
}

static void on_functions(void *cookie, struct rpc_call *call, struct str payload)
{
    on_read(cookie, RPC_FUNCTIONS, call, payload);
}

static void on_estimate(void *cookie, struct rpc_call *call, struct str payload)
{
    on_read(cookie, RPC_ESTIMATE, call, payload);
}

static void on_space(void *cookie, struct rpc_call *call, struct str payload)
{
    on_read(cookie, RPC_SPACE, call, payload);
}

/* ---- life ----------------------------------------------------------------------------------- */

/* Builders may hold twice what they are charged, so one gets a quarter of the share at most. */
static uint64_t stacks_max(const struct ingester *in, uint64_t share)
{
    uint64_t max = in->conf->answer_bytes_max;

    if (max == 0)
        max = MIN(share / 4, 4 * in->ctx->cluster->rpc_message_bytes_max);
    return MAX(max, ANSWER_MIN);
}

void rpc_read_serve(struct ingester *in)
{
    uint64_t share = memory_share(in->ctx->memory_limit, MEMORY_READS);

    in->reads = XNEW(struct reads);
    list_init(&in->reads->waiting);
    budget_init(&in->reads->bytes, share);
    memory_watch_budget(in->ctx->memory, MEMORY_READS, &in->reads->bytes);
    in->reads->stacks_max = stacks_max(in, share);
    rpc_serve(in->node, RPC_MERGE, on_merge, in);
    rpc_serve(in->node, RPC_TIMELINE, on_timeline, in);
    rpc_serve(in->node, RPC_LABELS, on_labels, in);
    rpc_serve(in->node, RPC_FUNCTIONS, on_functions, in);
    rpc_serve(in->node, RPC_EXEMPLARS, on_exemplars, in);
    rpc_serve(in->node, RPC_SPACE, on_space, in);
    rpc_serve(in->node, RPC_ESTIMATE, on_estimate, in);
}

bool rpc_read_idle(const struct ingester *in)
{
    return !in->reads || in->reads->waiting_len + in->reads->running == 0;
}

bool rpc_read_waiting(const struct ingester *in)
{
    return in->reads && in->reads->waiting_len > 0;
}

void rpc_read_free(struct ingester *in)
{
    if (!in->reads)
        return;
    CHECK(rpc_read_idle(in));
    memory_forget(in->ctx->memory, &in->reads->bytes);
    xfree(in->reads);
    in->reads = NULL;
}

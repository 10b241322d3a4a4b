/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_read: a queue of queries in front of the pool.
 *
 *   loop: waiting, by tenant ──(its turn, memory for it is free)──> pool: read_run ──> loop: reply
 *
 * What a query may use at most (its builder of stacks, its arena, its reply) is taken from the
 * share of queries before it starts; so a flood of heavy queries waits instead of eating the memory
 * of writes. The queue is bounded, and a query whose caller gave up is dropped when its turn comes.
 * A single query always runs, however small the share; those that wait for the cold tier not
 * counted.
 *
 * An answer keeps its own bytes of that share until it is known that this node still leads: where
 * no majority answers, that takes seconds, and answers pile up.
 *
 * A query that meets rows in the cold tier waits for the object store on its thread. As many as
 * half of the processors, or of the memory, do that at once (far_max). A query that meets such rows
 * without a place (shard/read_load.h) leaves its thread and restarts when it gets a place. So
 * queries that need nothing from the object store continue while it hangs. The deadline of a query
 * ends its request to the object store, too.
 *
 * Tenants take turns by the time their queries took (common/sys/fair.h), and one tenant's queries
 * leave room for a heavy one of another's: whatever it piles up, others find it done in the time it
 * would have taken anyway, give or take one query. Requests begin with their tenant, so that it is
 * read without decoding.
 */
#include "ingester/read/rpc_read.h"

#include "common/base/list.h"
#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/role/core/memory.h"
#include "common/store/kv/cold_read.h"
#include "common/sys/fair.h"
#include "ingester/read/read_run.h"
#include "ingester/replicas/replicas.h"
#include "ingester/shard/placement_guard.h"
#include "ingester/shard/read_load.h"
#include "ingester/shard/shards.h"

#define READ_MAGIC    MAGIC('i', 'r', 'd', ' ')
#define REQUEST_BYTES (64 * KIB) /* to decode a request, beside 24 times its size */
#define LIST_BYTES    (16 * MIB) /* arena of a timeline or a list of labels */
#define ANSWER_MIN    (16 * MIB)

#define GUESS_US 10000    /* a query takes */
#define DEBT_US  60000000 /* what one long query costs its tenant, at most */

struct reads {
    struct fair *fair; /* of struct read */
    struct budget bytes;
    uint64_t stacks_max;        /* of one query */
    size_t confirming;          /* that are answered as soon as we know that we lead, or do not */
    _Atomic uint32_t far_reads; /* queries that hold a place of read_load.h */
    struct list far_waiting;    /* queries that need one */
    size_t far_waiting_len;
};

struct read {
    uint32_t magic;
    struct ingester *in;
    struct rpc_call *call;
    struct str payload; /* the call's */
    enum rpc_method method;
    uint64_t tenant;       /* its number */
    struct fair_item item; /* its weight: the memory it needs */
    uint64_t began_ns, ran_ns, deadline_ns;
    uint64_t held;
    uint64_t disk_free, disk_reserve; /* when it came */
    struct shard *shards[SHARDS_MAX]; /* held from the beginning of the work to the answer */
    size_t shards_len;
    struct buf reply;
    uint64_t rows;
    struct cold_read reach;
    bool far;             /* holds a place of far_max */
    struct list far_link; /* far_waiting */
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
           : m == RPC_LEDGER    ? "ledger"
                                : "labels";
}

/* ---- work: pool thread ---------------------------------------------------------------------- */

/* The shards a query asks for: those named, which must be here, or all. */
static int pick_stores(struct read *r, const struct read_msg *m, struct store *ret[SHARDS_MAX],
                       struct err *e)
{
    int n = shards_get_all(r->in->shards, m->shards, m->shards_len, r->shards, e);

    if (n < 0)
        return e->code;
    r->shards_len = (size_t)n;
    for (size_t i = 0; i < r->shards_len; i++)
        ret[i] = shard_store(r->shards[i]);
    return 0;
}

static int run(struct read *r, struct arena *a, struct read_msg *m, struct err *e)
{
    struct store *stores[SHARDS_MAX];
    uint32_t numbers[SHARDS_MAX];
    struct read_source src = {
        .stores = stores,
        .numbers = numbers,
        .auditor = r->in->auditor,
        .stacks_bytes_max = r->in->reads->stacks_max,
        .reply_bytes_max = r->in->ctx->cluster->rpc_message_bytes_max,
        .exemplars_max = (size_t)r->in->exemplars->list_max,
        .disk_free = r->disk_free,
        .disk_reserve = r->disk_reserve,
        .node_id = r->in->ctx->node_id,
        .node = str_c(r->in->ctx->node ? r->in->ctx->node : ""),
        .cancel = rpc_call_canceled(r->call),
    };
    int code = read_msg_decode(r->method, r->payload, a, m, e);

    if (code)
        return err_wrap(e, "%s request", method_name(r->method));
    if (placement_guard_read(r->in->placed, m->map_version, e))
        return e->code;
    if (pick_stores(r, m, stores, e))
        return e->code;
    src.len = r->shards_len;
    for (size_t i = 0; i < src.len; i++)
        numbers[i] = shard_number(r->shards[i]);
    return read_run(m, &src, a, &r->reply, &r->rows, e);
}

static void far_set(struct read *r, bool far)
{
    if (r->far != far)
        (void)atomic_fetch_add(&r->in->reads->far_reads, far ? 1u : UINT32_MAX);
    r->far = far;
}

static void reads_start(struct ingester *in);

static void on_far(void *cookie)
{
    reads_start(cookie);
}

/* Pool thread. Others may begin now, over the share. */
static bool far_enter(void *cookie)
{
    struct read *r = cookie;

    if (!read_load_far_enter(r->in->read_load))
        return false;
    far_set(r, true);
    loop_post(r->in->ctx->loop, on_far, r->in); /* before the end of this one is posted */
    return true;
}

static void read_work(void *cookie)
{
    struct read *r = cookie;
    struct arena *a =
        arena_new(REQUEST_BYTES + 24 * r->payload.len + (r->method == RPC_MERGE ? 0 : LIST_BYTES));
    struct read_msg m = { .method = r->method };

    CHECK(r->magic == READ_MAGIC);
    r->reach = (struct cold_read){
        .deadline_ms = r->deadline_ns / 1000000, .enter = far_enter, .cookie = r, .entered = r->far
    };
    (void)cold_read_policy_set(&r->reach);
    if (run(r, a, &m, &r->err) || r->reach.refused)
        buf_deinit(&r->reply);
    else
        err_clear(&r->err); /* what was tried on the way may have left its mark */
    (void)cold_read_policy_set(NULL);
    read_msg_deinit(&m);
    arena_free(a);
}

/* ---- queue: loop ---------------------------------------------------------------------------- */

static size_t reads_pending(const struct reads *rs)
{
    return fair_waiting(rs->fair) + fair_running(rs->fair) + rs->far_waiting_len + rs->confirming;
}

static void read_end(struct read *r)
{
    struct ingester *in = r->in;
    struct str method = str_c(method_name(r->method));
    double seconds = (double)(clock_mono_ns(in->ctx->env->clock) - r->began_ns) / 1e9;

    budget_release(&in->reads->bytes, r->held);
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
    shards_put_all(in->shards, r->shards, r->shards_len);
    r->magic = 0;
    xfree(r);
    metric_set(in->metrics.reads_pending, (int64_t)reads_pending(in->reads));
}

/* What was read may be old if another one leads by now. */
static void read_confirmed(void *cookie, const struct err *e)
{
    struct read *r = cookie;
    struct ingester *in = r->in;

    in->reads->confirming--;
    if (e)
        r->err = *e;
    read_end(r);
    reads_start(in);
}

/* Puts a query into the queue again, now with a place for the cold tier. */
static void far_again(struct read *r)
{
    struct reads *rs = r->in->reads;

    list_del(&r->far_link);
    rs->far_waiting_len--;
    far_set(r, true);
    if (fair_push(rs->fair, r->tenant, GUESS_US, &r->item))
        return;
    (void)err_set(&r->err, ERR_RATE, "too many queries of this tenant wait already");
    far_set(r, false);
    read_load_far_release(r->in->read_load);
    read_end(r);
}

/* Passes a place to the next query that waits for one, or releases it. */
static void far_leave(struct ingester *in)
{
    struct reads *rs = in->reads;

    if (list_empty(&rs->far_waiting))
        read_load_far_release(in->read_load);
    else
        far_again(container_of(rs->far_waiting.next, struct read, far_link));
}

/* Work that is not a query leaves its place (read_load_far_leave). */
static void on_far_left(void *cookie)
{
    struct ingester *in = cookie;

    far_leave(in);
    reads_start(in);
}

/* The query met remote rows, and all places are taken: it leaves its thread and waits for a
 * place. */
static void far_wait(struct read *r)
{
    struct reads *rs = r->in->reads;

    metric_add(r->in->metrics.reads_far, 1);
    shards_put_all(r->in->shards, r->shards, r->shards_len);
    r->shards_len = 0;
    r->rows = 0;
    err_clear(&r->err);
    list_add_tail(&rs->far_waiting, &r->far_link);
    rs->far_waiting_len++;
    if (read_load_far_enter(r->in->read_load)) /* a place became free in between */
        far_again(r);
}

/* Of what it set aside only what its answer takes. */
static void hold_answer(struct read *r)
{
    uint64_t answer = r->reach.refused ? 0 : MIN(r->held, r->reply.cap);

    budget_release(&r->in->reads->bytes, r->held - answer);
    r->held = answer;
}

static void read_done(void *cookie)
{
    struct read *r = cookie;
    struct ingester *in = r->in;
    uint64_t took_ns = clock_mono_ns(in->ctx->env->clock) - r->ran_ns;

    fair_done(in->reads->fair, &r->item, took_ns / 1000 + 1);
    hold_answer(r);
    if (r->far) {
        far_set(r, false);
        far_leave(in);
    }
    if (r->reach.refused) {
        far_wait(r);
    } else if (in->replicas && r->shards_len) {
        in->reads->confirming++;
        replicas_confirm(in->replicas, r->shards, r->shards_len, read_confirmed, r);
    } else {
        read_end(r);
    }
    reads_start(in);
}

/* It ends before it ran with its place. */
static void far_drop(struct read *r)
{
    if (!r->far)
        return;
    far_set(r, false);
    far_leave(r->in);
}

/* False while the next query has to wait for memory. Once submitted it is the pool's. */
static bool read_start(struct ingester *in, struct read *r)
{
    struct reads *rs = in->reads;
    struct pool *pool = in->ctx->pool;
    uint64_t now = clock_mono_ns(in->ctx->env->clock);
    int code = 0;

    if (atomic_load_explicit(rpc_call_canceled(r->call), memory_order_relaxed))
        code = err_set(&r->err, ERR_CANCELED, "the caller gave up");
    else if (now > r->deadline_ns)
        code = err_set(&r->err, ERR_TIMEOUT, "the query waited %" PRIu64 " ms for its turn",
                       (now - r->began_ns) / 1000000);
    else if (budget_reserve(&rs->bytes, r->item.weight))
        r->held = r->item.weight;
    else if (fair_running(rs->fair) > atomic_load(&rs->far_reads))
        return false;
    if (code) {
        fair_drop(rs->fair, &r->item);
        far_drop(r);
        read_end(r);
        return true;
    }
    fair_take(rs->fair, &r->item);
    r->ran_ns = now;
    if (pool_submit_for(pool, r->tenant, in->ctx->loop, read_work, read_done, r))
        return true;
    (void)err_set(&r->err, ERR_BUSY, "too many jobs wait for a processor");
    fair_done(rs->fair, &r->item, 0);
    far_drop(r);
    read_end(r);
    return true;
}

static void reads_start(struct ingester *in)
{
    struct fair_item *i;

    while ((i = fair_next(in->reads->fair)))
        if (!read_start(in, container_of(i, struct read, item)))
            return;
}

/* What it may use at most. With several tenants at most half of the share counts, so that also
 * where memory is small (a heavy query needs 32 MiB) two of them can run, one of each. */
static uint64_t need_of(const struct ingester *in, enum rpc_method method)
{
    const struct reads *rs = in->reads;
    bool lists = method == RPC_TIMELINE || method == RPC_LABELS || method == RPC_ESTIMATE ||
                 method == RPC_LEDGER;
    uint64_t need = lists ? LIST_BYTES : 2 * rs->stacks_max;

    return in->ctx->tenancy->multi ? MIN(need, rs->bytes.max / 2) : need;
}

struct str read_tenant(struct str payload)
{
    size_t at = 1, len = 0;

    if (payload.len < 2 || payload.ptr[0] != '\x0a') /* field 1, bytes */
        return STR_NULL;
    for (unsigned shift = 0; at < payload.len && shift < 28; shift += 7) {
        unsigned char c = (unsigned char)payload.ptr[at++];
        len |= (size_t)(c & 0x7f) << shift;
        if (c < 0x80)
            return len <= payload.len - at ? str_sub(payload, at, at + len) : STR_NULL;
    }
    return STR_NULL;
}

/* NULL with *e: it is refused. */
static struct read *read_new(struct ingester *in, enum rpc_method method, struct rpc_call *call,
                             struct str payload, struct err *e)
{
    struct reads *rs = in->reads;
    uint64_t tenant = pool_tenant(in->ctx->pool, read_tenant(payload));
    struct read *r;

    if (reads_pending(rs) >= in->conf->reads_max) {
        (void)err_set(e, ERR_BUSY, "%zu queries run or wait already", reads_pending(rs));
        return NULL;
    }
    if (role_memory_check(in->ctx, e))
        return NULL;
    r = XNEW(struct read);
    *r = (struct read){ .magic = READ_MAGIC,
                        .in = in,
                        .call = call,
                        .payload = payload,
                        .method = method,
                        .tenant = tenant,
                        .item = { .weight = need_of(in, method) } };
    if (fair_push(rs->fair, tenant, GUESS_US, &r->item))
        return r;
    (void)err_set(e, ERR_RATE,
                  "%" PRIu64 " queries of this tenant wait already (ingester.reads_tenant_max)",
                  in->conf->reads_tenant_max);
    xfree(r);
    return NULL;
}

static void on_read(struct ingester *in, enum rpc_method method, struct rpc_call *call,
                    struct str payload)
{
    struct err e;
    struct read *r;

    CHECK(in->magic == INGESTER_MAGIC);
    r = read_new(in, method, call, payload, &e);
    if (!r) {
        ingester_refused(&in->metrics, e.code);
        rpc_fail(call, &e);
        return;
    }
    disk_room(in->disk, &r->disk_free, &r->disk_reserve);
    r->began_ns = clock_mono_ns(in->ctx->env->clock);
    r->deadline_ns = r->began_ns + rpc_call_left_ms(call) * UINT64_C(1000000);
    metric_set(in->metrics.reads_pending, (int64_t)reads_pending(in->reads));
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

static void on_ledger(void *cookie, struct rpc_call *call, struct str payload)
{
    on_read(cookie, RPC_LEDGER, call, payload);
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

/* One tenant's queries leave room for one of another's. */
static struct fair *new_queue(const struct ingester *in, uint64_t share)
{
    uint64_t heavy = need_of(in, RPC_MERGE);
    struct fair_opts o = { .waiting_max = in->conf->reads_tenant_max, .debt_max = DEBT_US };

    if (in->ctx->tenancy->multi)
        o.weight_max = share - heavy;
    return fair_new(&o);
}

/* Half of the processors, and of the memory. */
static uint32_t far_max(const struct ingester *in, uint64_t share)
{
    uint64_t heavy = MAX(need_of(in, RPC_MERGE), UINT64_C(1));

    return (uint32_t)MAX(MIN((uint64_t)pool_cores(in->ctx->pool) / 2, share / heavy / 2),
                         UINT64_C(1));
}

void rpc_read_serve(struct ingester *in)
{
    uint64_t share = memory_share(in->ctx->memory_limit, MEMORY_READS);

    in->reads = XNEW(struct reads);
    budget_init(&in->reads->bytes, share);
    memory_watch_budget(in->ctx->memory, MEMORY_READS, &in->reads->bytes);
    in->reads->stacks_max = stacks_max(in, share);
    in->reads->fair = new_queue(in, share);
    list_init(&in->reads->far_waiting);
    read_load_begin(in->read_load, &(struct read_load_queue){ .queue = in->reads->fair,
                                                              .far_max = far_max(in, share),
                                                              .far_left = on_far_left,
                                                              .cookie = in });
    rpc_serve(in->node, RPC_MERGE, on_merge, in);
    rpc_serve(in->node, RPC_TIMELINE, on_timeline, in);
    rpc_serve(in->node, RPC_LABELS, on_labels, in);
    rpc_serve(in->node, RPC_FUNCTIONS, on_functions, in);
    rpc_serve(in->node, RPC_EXEMPLARS, on_exemplars, in);
    rpc_serve(in->node, RPC_SPACE, on_space, in);
    rpc_serve(in->node, RPC_LEDGER, on_ledger, in);
    rpc_serve(in->node, RPC_ESTIMATE, on_estimate, in);
}

bool rpc_read_idle(const struct ingester *in)
{
    return !in->reads || reads_pending(in->reads) == 0;
}

void rpc_read_free(struct ingester *in)
{
    if (!in->reads)
        return;
    CHECK(rpc_read_idle(in));
    memory_forget(in->ctx->memory, &in->reads->bytes);
    read_load_end(in->read_load);
    fair_free(in->reads->fair);
    xfree(in->reads);
    in->reads = NULL;
}

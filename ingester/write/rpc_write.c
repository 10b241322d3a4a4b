/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_write: from the frame to the shard and back.
 *
 *   loop: admit ──> pool: decode, check ──> shard (shard.c) ──> loop: reply
 *
 * A small message is decoded right on the loop: that takes less time than waking a pool thread.
 *
 * Admission: a number of requests and a budget of bytes, for the payload on arrival and for what
 * decoding it took, each with a share per tenant (writers.h); a single request is always admitted,
 * however large. The payload is borrowed from the call until the reply. A refused write was not
 * looked at: the distributor may retry it.
 *
 * With several tenants they take turns at decoding (common/sys/pool.h), except for small messages,
 * and in the queue of the shard (shard.c).
 */
#include "ingester/write/rpc_write.h"

#include "common/base/mem.h"
#include "ingester/replicas/store_recovery.h"
#include "ingester/shard/placement_guard.h"
#include "ingester/shard/shards.h"
#include "ingester/shard/top_services.h"
#include "ingester/write/write_msg.h"
#include "ingester/write/writers.h"

#define WRITE_MAGIC     MAGIC('i', 'w', 'r', 't')
#define REPLY_BYTES_MAX KIB
#define SMALL_BYTES     (8 * KIB) /* decoded in some 5 us, about what waking a thread costs */

struct write {
    uint32_t magic;
    struct list link; /* the ingester's */
    struct ingester *in;
    struct rpc_call *call;
    struct str payload; /* the call's */
    struct writer *writer;
    size_t held;      /* bytes taken from the budget */
    bool alone;       /* over the budget, admitted because there was no other */
    bool told;        /* by RPC_WRITE_TOLD */
    bool sent;        /* to the shard: set before, by the pool thread */
    bool answered;    /* also early: rpc_write_disk_hangs */
    uint32_t holders; /* the pool's job and the answer; freed when both are over */
    struct arena *arena;
    struct write_msg msg;
    struct shard *shard; /* held from decoding to the end */
    struct shard_write sw;
};

/* Returns ERR_UNAVAILABLE where another member may lead soon: the distributor tries again. Without
 * copies no other node can take the write, and ERR_BUSY is sent to the client at once. */
static int hangs_code(const struct ingester *in)
{
    return in->moves ? ERR_UNAVAILABLE : ERR_BUSY;
}

int rpc_write_accepting(const struct ingester *in, struct err *e)
{
    if (in->draining)
        return err_set(e, ERR_UNAVAILABLE, "the ingester is stopping");
    for (size_t i = 0; !in->moves && i < shards_len(in->shards); i++) {
        const struct shard *s = shards_at(in->shards, i);
        if (s && shard_read_only(s))
            return store_recovery_reason(in, i, e);
    }
    if (disk_watch_check(in->disk_watch, hangs_code(in), e))
        return e->code;
    return disk_check(in->disk, e);
}

/* What waits behind a disk that hangs cannot be taken back: it is stored when the disk answers, and
 * what its caller sends again is then known by its write ids. */
void rpc_write_disk_hangs(struct ingester *in)
{
    struct err e;

    (void)disk_watch_check(in->disk_watch, hangs_code(in), &e);
    list_for (it, &in->writes) {
        struct write *w = container_of(it, struct write, link);

        CHECK(w->magic == WRITE_MAGIC);
        if (w->answered)
            continue;
        w->answered = true;
        ingester_refused(&in->metrics, e.code);
        rpc_fail_early(w->call, &e);
    }
}

/* The answer may overtake the end of the job that sent the write on: the last one frees. Only then
 * the write counts as over, so that a drained ingester has no job left inside a shard's inbox. */
static void write_drop(struct write *w)
{
    struct ingester *in = w->in;

    if (--w->holders > 0)
        return;
    list_del(&w->link);
    in->writes_pending--;
    metric_set(in->metrics.writes_pending, (int64_t)in->writes_pending);
    shards_put(in->shards, w->shard);
    arena_free(w->arena);
    w->magic = 0;
    xfree(w);
}

/* Loop: the answer to every write. */
static void write_end(struct write *w)
{
    struct ingester *in = w->in;

    w->answered = true;
    if (w->sw.err.code) {
        if (w->sw.err.code != ERR_NOT_FOUND) /* it comes again at once, with its stacks */
            ingester_refused(&in->metrics, w->sw.err.code);
        rpc_fail(w->call, &w->sw.err);
    } else {
        struct buf reply;

        buf_init(&reply, REPLY_BYTES_MAX);
        write_reply_pack(&w->sw.result, &reply);
        CHECK(buf_ok(&reply));
        if (in->busy)
            top_services_add(in->busy, w->msg.write.tenant, w->msg.write.service, w->payload.len);
        metric_add(in->metrics.writes, 1);
        metric_add(in->metrics.series, w->sw.result.stored);
        metric_add(in->metrics.duplicates, w->sw.result.duplicates);
        metric_add(in->metrics.exemplars, w->sw.result.exemplars);
        metric_add(in->metrics.overflow, w->sw.result.overflow);
        metric_add(in->metrics.exemplars_left_out, w->sw.result.exemplars_left_out);
        rpc_reply(w->call, &reply);
    }
    writers_leave(w->writer, w->held);
    metric_set(in->metrics.write_pending_bytes, (int64_t)in->write_bytes.used);
    write_drop(w);
}

static void on_shard_done(struct shard_write *sw)
{
    struct write *w = container_of(sw, struct write, sw);

    CHECK(w->magic == WRITE_MAGIC);
    write_end(w);
}

static void on_worked(void *cookie)
{
    struct write *w = cookie;

    CHECK(w->magic == WRITE_MAGIC);
    if (!w->sent)
        write_end(w);
    write_drop(w);
}

/* Pool thread. */
static int write_decode(struct write *w, struct err *e)
{
    int code;

    w->arena = arena_new(write_msg_arena_bytes(w->payload.len));
    code = write_msg_decode(w->payload, w->told, w->arena, &w->msg, e);
    if (code)
        return code;
    if (placement_guard_check(w->in->placed, w->msg.shard, &w->msg.write, w->msg.map_version, e))
        return e->code;
    w->shard = shards_get(w->in->shards, w->msg.shard, e);
    if (!w->shard)
        return e->code;
    if (atomic_load_explicit(rpc_call_canceled(w->call), memory_order_relaxed))
        return err_set(e, ERR_CANCELED, "the caller gave up");
    if (w->alone)
        return 0;
    if (writers_more(w->writer, w->held, arena_used(w->arena), e))
        return e->code;
    w->held += arena_used(w->arena);
    return 0;
}

static void write_work(void *cookie)
{
    struct write *w = cookie;

    CHECK(w->magic == WRITE_MAGIC);
    if (write_decode(w, &w->sw.err))
        return;
    err_clear(&w->sw.err);
    w->sw.write = w->msg.write;
    w->sent = true;
    shard_send(w->shard, &w->sw);
}

static int admit(struct write *w, struct err *e)
{
    struct ingester *in = w->in;
    int code = rpc_write_accepting(in, e);

    if (code)
        return code;
    if (role_memory_check(in->ctx, e))
        return e->code;
    if (in->writes_pending >= in->conf->writes_max)
        return err_set(e, ERR_BUSY, "%zu writes wait for the disk already", in->writes_pending);
    struct str tenant = in->ctx->tenancy->multi ? write_msg_tenant(w->payload) : STR_NULL;
    if (tenant.len)
        w->sw.tenant = pool_tenant_writes(in->ctx->pool, tenant);
    w->held = w->payload.len;
    code = writers_enter(in->writers, tenant, w->held, &w->writer, e);
    if (code != ERR_BUSY || in->writes_pending > 0)
        return code;
    w->held = 0;
    w->alone = true;
    return writers_enter(in->writers, tenant, 0, &w->writer, e);
}

static bool to_pool(struct write *w)
{
    const struct role_ctx *ctx = w->in->ctx;

    return w->sw.tenant
               ? pool_submit_for(ctx->pool, w->sw.tenant, ctx->loop, write_work, on_worked, w)
               : pool_submit(ctx->pool, ctx->loop, write_work, on_worked, w);
}

static void serve(struct ingester *in, bool told, struct rpc_call *call, struct str payload)
{
    struct write *w = XNEW(struct write);
    struct err e;

    CHECK(in->magic == INGESTER_MAGIC);
    w->magic = WRITE_MAGIC;
    w->in = in;
    w->call = call;
    w->payload = payload;
    w->told = told;
    w->sw.done = on_shard_done;
    w->sw.deadline_mono_ns =
        clock_mono_ns(in->ctx->env->clock) + rpc_call_left_ms(call) * UINT64_C(1000000);
    if (admit(w, &e)) {
        ingester_refused(&in->metrics, e.code);
        rpc_fail(call, &e);
        xfree(w);
        return;
    }
    list_add_tail(&in->writes, &w->link);
    in->writes_pending++;
    metric_set(in->metrics.writes_pending, (int64_t)in->writes_pending);
    metric_add(in->metrics.write_bytes, payload.len);
    w->holders = 2;
    if (payload.len <= SMALL_BYTES) {
        write_work(w);
        on_worked(w);
    } else if (!to_pool(w)) {
        (void)err_set(&w->sw.err, ERR_BUSY, "too many jobs wait for a processor");
        on_worked(w);
    }
}

static void on_write(void *cookie, struct rpc_call *call, struct str payload)
{
    serve(cookie, false, call, payload);
}

static void on_write_told(void *cookie, struct rpc_call *call, struct str payload)
{
    serve(cookie, true, call, payload);
}

void rpc_write_serve(struct ingester *in)
{
    list_init(&in->writes);
    rpc_serve(in->node, RPC_WRITE_TOLD, on_write_told, in);
    rpc_serve(in->node, RPC_WRITE, on_write, in);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_build: coarse nodes are merged elsewhere, and believed only if they prove themselves.
 *
 *   NEXT   loop ─> queue ─> pool: a view, the next due node, rows of its children ─> reply
 *                                  └─ sums of each series stay here: `expect`
 *   APPLY  loop ─> pool: unpack ─> loop: is this the job? ─> shard thread: check, write ─> reply
 *
 *     FREE ── NEXT ──> READING ──> GIVEN ── APPLY ──> APPLYING ──> FREE
 *       ^                 │ nothing due  │ time is up, or asked again
 *       └─────────────────┴──────────────┘
 *
 * A shard has one job out at most. What is lost on the way, in either direction, costs time only:
 * the node keeps its mark and is not read by queries until it is whole, so its job is given again,
 * to the same compactor as soon as it asks, to another one when the time is up. A sum that comes
 * back is written if and only if total, writes and F of each row are those of the children that
 * were given out, so a compactor that is broken, old or not ours cannot falsify anything but by a
 * collision of F, which it would have to look for (common/store/README.md).
 *
 * Where compactors share the shards (compactor/claims.h) every question bears the fence of a claim,
 * larger for each new claim (compactor_fence.h). A newer one takes over at once, and what an older
 * one still asks or sends is refused. The newest fence is remembered here only, not in the
 * database: after a restart, or on another leader, no job is out that an older claim could bring
 * back, and if such a one asks first, what it does is proven like everything, and void as soon as
 * the newer one asks.
 *
 * Memory: the rows of one job while they are read and sent, since one pool thread reads for all
 * shards at a time, and per shard the sums of its job: 48 bytes for each series of it.
 *
 * Queries and writes come first: nothing is given out while queries wait for their turn or sealing
 * is behind; the shard thread only compares and writes, at most one job a turn.
 *
 * Threads: everything here is the loop's, but what a pool job or a task of the shard thread was
 * given, which it has alone while the state says READING or APPLYING.
 */
#include "ingester/build/rpc_build_impl.h"

#include <stdlib.h>

#include "common/base/mem.h"
#include "common/store/build/build.h"
#include "ingester/base/unpack.h"
#include "ingester/shard/read_load.h"
#include "proto/build.pb-c.h"

#define VERSION        1
#define BYTES_MIN      (4 * KIB)
#define BYTES_DEFAULT  MIB
#define REQUEST_BYTES  (16 * KIB)
#define SEAL_BEHIND_MS 30000
#define BUSY_WAIT_MS   100

struct apply {
    struct shard_task task;
    struct ingester *in;
    struct rpc_call *call;
    struct str payload; /* the call's */
    struct site *site;
    struct shard *shard; /* held; NULL: not yet */
    struct arena *arena;
    const Embertree__BuildApplyRequest *msg;
    struct build_result result;
    uint64_t bytes;
    struct err err;
};

/* The site of a shard that is served here, with the shard held; NULL: it is not. */
static struct site *site_get(struct ingester *in, uint32_t number, struct err *e)
{
    struct shard *s = shards_get(in->shards, number, e);

    if (!s)
        return NULL;
    struct site *st = &in->builds->sites[shards_place(in->shards, number)];
    st->shard = s;
    return st;
}

/* ---- NEXT: loop ----------------------------------------------------------------------------- */

static void next_start(struct ingester *in);

static void next_end(struct next *n)
{
    if (n->err.code) {
        ingester_refused(&n->in->metrics, n->err.code);
        rpc_fail(n->call, &n->err);
    } else {
        rpc_reply(n->call, &n->reply);
    }
    buf_deinit(&n->reply);
    shards_put(n->in->shards, n->shard);
    n->in->builds->running--;
    xfree(n);
}

static void next_done(void *cookie)
{
    struct next *n = cookie;
    struct ingester *in = n->in;
    struct site *st = n->site;

    CHECK(st->state == SITE_READING);
    if (n->far)
        read_load_far_leave(in->read_load);
    st->state = SITE_FREE;
    st->due_shown = n->due;
    st->oldest_shown = n->oldest_ms;
    if (n->err.code && st->has_node)
        build_skip(in, st, &n->err);
    if (!n->err.code && n->found) {
        st->state = SITE_GIVEN;
        st->given_ns = build_now_ns(in);
        st->compactor = n->compactor;
        st->job_fence = n->fence;
        st->jobs++;
        metric_add(in->metrics.build_jobs, 1);
    }
    in->builds->reading = false;
    next_end(n);
    next_start(in);
}

static bool is_fenced(struct ingester *in, struct site *st, uint64_t fence, struct err *e)
{
    return compactor_fence_check(&st->claimed, &in->builds->claims, shard_number(st->shard), fence,
                                 in->conf->build_timeout_ms, e) != 0;
}

static void refused_fenced(struct ingester *in, struct site *st)
{
    st->fenced++;
    metric_add(in->metrics.build_fenced, 1);
}

static void next_refuse(struct next *n)
{
    refused_fenced(n->in, n->site);
    next_end(n);
}

/* True if the compactor must wait: another one has the job, or queries or seals come first. */
static bool must_wait(struct next *n)
{
    const struct site *st = n->site;
    uint64_t out_ms = (build_now_ns(n->in) - st->given_ns) / 1000000;

    /* The compactor that has the job has lost the shard. */
    bool newer = n->fence && n->fence != st->job_fence;

    if (st->state == SITE_READING || st->state == SITE_APPLYING)
        n->wait_ms = BUSY_WAIT_MS;
    else if (st->state == SITE_GIVEN && st->compactor != n->compactor && !newer &&
             out_ms < n->in->conf->build_timeout_ms)
        n->wait_ms = n->in->conf->build_timeout_ms - out_ms;
    else if (shard_state(st->shard)->seal_lag_ms > SEAL_BEHIND_MS ||
             read_load_waiting(n->in->read_load))
        n->wait_ms = BUSY_WAIT_MS;
    return n->wait_ms > 0;
}

static void next_wait(struct next *n)
{
    struct arena *a = arena_new(REQUEST_BYTES);

    n->due = n->site->due_shown;
    n->oldest_ms = n->site->oldest_shown;

    buf_init(&n->reply, REQUEST_BYTES);
    n->err.code = build_pack_next(n, 0, NULL, a, &n->err);
    arena_free(a);
    next_end(n);
}

static void next_start(struct ingester *in)
{
    struct builds *b = in->builds;

    while (!b->reading && !list_empty(&b->waiting)) {
        struct next *n = container_of(b->waiting.next, struct next, link);

        list_del(&n->link);
        if (is_fenced(in, n->site, n->fence, &n->err)) {
            next_refuse(n);
            continue;
        }
        if (must_wait(n)) {
            next_wait(n);
            continue;
        }
        build_job_deinit(&n->site->expect);
        n->site->expect = (struct build_job){ 0 };
        n->site->state = SITE_READING;
        n->site->job = ++b->last_job;
        if (pool_submit(in->ctx->pool, in->ctx->loop, build_next_work, next_done, n)) {
            b->reading = true;
            return;
        }
        n->site->state = SITE_FREE;
        n->wait_ms = BUSY_WAIT_MS;
        next_wait(n);
    }
}

static void on_next(void *cookie, struct rpc_call *call, struct str payload)
{
    struct ingester *in = cookie;
    struct arena *a = arena_new(REQUEST_BYTES + 24 * MIN(payload.len, REQUEST_BYTES));
    ProtobufCAllocator allocator = unpack_allocator(a);
    const Embertree__BuildNextRequest *r;
    struct site *st = NULL;
    struct err e = { 0 };
    struct next *n;

    CHECK(in->magic == INGESTER_MAGIC);
    r = embertree__build_next_request__unpack(&allocator, payload.len,
                                              (const uint8_t *)(const void *)payload.ptr);
    if (!r)
        (void)unpack_failed("BuildNextRequest", payload, a, &e);
    else if (r->version != VERSION)
        (void)err_set(&e, ERR_UNIMPLEMENTED,
                      "builds of version %" PRIu32 " are asked for, this is %d", r->version,
                      VERSION);
    else
        st = site_get(in, r->shard, &e);
    if (!st) {
        ingester_refused(&in->metrics, e.code);
        rpc_fail(call, &e);
        arena_free(a);
        return;
    }
    n = XNEW(struct next);
    *n = (struct next){ .in = in,
                        .call = call,
                        .site = st,
                        .shard = st->shard,
                        .compactor = r->compactor,
                        .fence = r->fence };
    n->bytes_max = r->bytes_max ? (size_t)MIN(r->bytes_max, (uint64_t)SIZE_MAX) : BYTES_DEFAULT;
    n->bytes_max = MIN(MAX(n->bytes_max, BYTES_MIN), in->ctx->cluster->rpc_message_bytes_max / 2);
    arena_free(a);
    in->builds->running++;
    list_add_tail(&in->builds->waiting, &n->link);
    next_start(in);
}

/* ---- APPLY ---------------------------------------------------------------------------------- */

static void apply_end(struct apply *p)
{
    Embertree__BuildApplyReply r = EMBERTREE__BUILD_APPLY_REPLY__INIT;
    struct ingester *in = p->in;
    struct buf out;

    if (p->err.code) {
        ingester_refused(&in->metrics, p->err.code);
        rpc_fail(p->call, &p->err);
    } else {
        char *room;

        r.rows = p->result.rows.len;
        r.bytes = p->bytes;
        r.node_done = !p->site->has_node;
        buf_init(&out, REQUEST_BYTES);
        room = buf_room(&out, embertree__build_apply_reply__get_packed_size(&r));
        CHECK(room);
        out.len += embertree__build_apply_reply__pack(&r, (uint8_t *)(void *)room);
        rpc_reply(p->call, &out);
    }
    build_result_deinit(&p->result);
    arena_free(p->arena);
    shards_put(in->shards, p->shard);
    in->builds->running--;
    xfree(p);
}

static void apply_run(struct shard_task *t, struct store *s)
{
    struct apply *p = container_of(t, struct apply, task);

    p->err.code = store_build_apply(s, &p->site->expect, &p->result, &p->err);
}

static void apply_done(struct shard_task *t)
{
    struct apply *p = container_of(t, struct apply, task);
    struct site *st = p->site;

    CHECK(st->state == SITE_APPLYING);
    st->state = SITE_FREE;
    if (p->err.code == ERR_NOT_FOUND) {
        st->has_node = false; /* dirtied since it was read, or gone: it becomes due again */
    } else if (p->err.code) {
        build_skip(p->in, st, &p->err);
    } else {
        st->applied++;
        metric_add(p->in->metrics.build_rows, p->result.rows.len);
        metric_add(p->in->metrics.build_bytes, p->bytes);
        st->has_node = !st->expect.last;
        st->cursor = st->next;
        st->part++;
    }
    apply_end(p);
}

static void apply_unpack(void *cookie)
{
    struct apply *p = cookie;
    ProtobufCAllocator allocator = unpack_allocator(p->arena);

    p->msg = embertree__build_apply_request__unpack(&allocator, p->payload.len,
                                                    (const uint8_t *)(const void *)p->payload.ptr);
    if (!p->msg) {
        (void)unpack_failed("BuildApplyRequest", p->payload, p->arena, &p->err);
        return;
    }
    for (size_t i = 0; i < p->msg->n_rows; i++) {
        const Embertree__BuildRow *r = p->msg->rows[i];
        struct build_row row = {
            .cf = (enum kv_cf)r->cf, .id = r->id, .t = r->t, .bytes = unpack_str(r->value)
        };

        if (r->cf >= KV_CFS) {
            (void)err_set(&p->err, ERR_INPUT, "row %zu is of column family %" PRIu32, i, r->cf);
            return;
        }
        p->bytes += row.bytes.len;
        vec_push(&p->result.rows, row);
    }
}

static void apply_unpacked(void *cookie)
{
    struct apply *p = cookie;
    struct site *st = NULL;

    if (!p->err.code && p->msg->version != VERSION)
        (void)err_set(&p->err, ERR_UNIMPLEMENTED, "builds of version %" PRIu32 ", this is %d",
                      p->msg->version, VERSION);
    if (!p->err.code)
        st = site_get(p->in, p->msg->shard, &p->err);
    p->shard = st ? st->shard : NULL;
    if (!p->err.code && is_fenced(p->in, st, p->msg->fence, &p->err))
        refused_fenced(p->in, st);
    if (!p->err.code &&
        (st->state != SITE_GIVEN || st->job != p->msg->job || st->job_fence != p->msg->fence))
        (void)err_set(&p->err, ERR_NOT_FOUND,
                      "job %" PRIu64
                      " is not out: it took too long, or the ingester was restarted; "
                      "it is given again",
                      p->msg->job);
    if (p->err.code) {
        apply_end(p);
        return;
    }
    p->site = st;
    p->task = (struct shard_task){ .run = apply_run, .done = apply_done };
    st->state = SITE_APPLYING;
    shard_run(st->shard, &p->task);
}

static void on_apply(void *cookie, struct rpc_call *call, struct str payload)
{
    struct ingester *in = cookie;
    struct apply *p = XNEW(struct apply);

    CHECK(in->magic == INGESTER_MAGIC);
    *p = (struct apply){ .in = in, .call = call, .payload = payload };
    p->arena = arena_new(REQUEST_BYTES + 24 * payload.len);
    in->builds->running++;
    if (pool_submit(in->ctx->pool, in->ctx->loop, apply_unpack, apply_unpacked, p))
        return;
    (void)err_set(&p->err, ERR_BUSY, "too many jobs wait for a processor");
    apply_end(p);
}

/* ---- life ----------------------------------------------------------------------------------- */

static void site_deinit(struct site *st)
{
    compactor_fence_clear(&st->claimed);
    build_job_deinit(&st->expect);
    vec_free(&st->due.at);
    vec_free(&st->skipped);
    *st = (struct site){ 0 };
}

/* The shard was closed: a job that is out is not waited for. */
static void on_closed(void *cookie, uint32_t number)
{
    struct ingester *in = cookie;
    struct site *st = &in->builds->sites[shards_place(in->shards, number)];

    CHECK(st->state == SITE_FREE || st->state == SITE_GIVEN);
    site_deinit(st);
}

/* Fences of claims come from another store from now on, and may be lower than before. */
static void on_coord_replaced(void *cookie)
{
    const struct ingester *in = cookie;

    for (size_t i = 0; i < SHARDS_MAX; i++)
        compactor_fence_clear(&in->builds->sites[i].claimed);
}

void rpc_build_serve(struct ingester *in)
{
    struct builds *b = XNEW(struct builds);
    uint64_t first;

    /* An ingester that was restarted must not take an old job for one of its own. */
    in->ctx->env->random(in->ctx->env, &first, sizeof(first));
    b->last_job = first >> 1;
    list_init(&b->waiting);
    b->claims = (struct compactor_fence_opts){ .coord = in->ctx->coord,
                                               .view = in->ctx->view,
                                               .prefix = in->ctx->cluster->etcd_prefix,
                                               .clock = in->ctx->env->clock };
    b->hook = (struct shard_hook){ .closed = on_closed,
                                   .coord_replaced = on_coord_replaced,
                                   .cookie = in };
    list_add_tail(&in->hooks, &b->hook.link);
    in->builds = b;
    rpc_serve(in->node, RPC_BUILD_NEXT, on_next, in);
    rpc_serve(in->node, RPC_BUILD_APPLY, on_apply, in);
}

bool rpc_build_idle(const struct ingester *in)
{
    return !in->builds || in->builds->running == 0;
}

void rpc_build_free(struct ingester *in)
{
    if (!in->builds)
        return;
    CHECK(rpc_build_idle(in));
    list_del(&in->builds->hook.link);
    for (size_t i = 0; i < SHARDS_MAX; i++)
        site_deinit(&in->builds->sites[i]);
    xfree(in->builds);
    in->builds = NULL;
}

void rpc_build_ring(const struct ingester *in, size_t place, struct json *j)
{
    const struct site *st = &in->builds->sites[place];

    json_put_u64(j, "buildNodesDue", st->due_shown);
    json_put_u64(j, "buildOldestMs", st->oldest_shown);
    json_put_u64(j, "buildJobs", st->jobs);
    json_put_u64(j, "buildJobsApplied", st->applied);
    json_put_u64(j, "buildJobsFailed", st->failed);
    json_put_u64(j, "buildFence", st->claimed.fence);
    json_put_u64(j, "buildJobsFenced", st->fenced);
}

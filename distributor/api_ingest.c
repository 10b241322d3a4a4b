/* SPDX-License-Identifier: Apache-2.0
 *
 * api_ingest: one push, from its HTTP request to the ack of an fsync.
 *
 *   loop   CHECK ──> pool   DECODE ──> loop   SEND ──> ingester ──> loop   200
 *            │                 │                ^                    │
 *            └─ 4xx, 503       └─ 4xx           └── again: PACK <────┘ down, or no answer in time
 *
 * The 200 leaves only after the ingester said that the push is on disk. If it does not say so in
 * attempt_ms, the same bytes are sent again, under the same write ids, until ack_ms is over: a
 * write that was stored although its answer got lost is then counted once. What was decoded is
 * kept until the answer, since the transport takes the packed bytes with it.
 *
 * Memory: before decoding a push sets aside what bodies of its size usually need, afterwards what
 * it really holds; over the budget it is refused with 503. While it is decoded it may pass that, up
 * to decode_bytes, which at most as many pushes can do at once as the pool has threads.
 *
 * Threads: fields are the loop's, but for the time between pool_submit and the done call.
 */
#include "distributor/api_ingest.h"

#include "common/base/mem.h"
#include "common/base/wr.h"
#include "common/model/shard.h"
#include "distributor/formats/formats.h"
#include "distributor/pack.h"
#include "distributor/state.h"
#include "proto/ingest.pb-c.h"

#define JOB_MAGIC      MAGIC('p', 'u', 's', 'h')
#define KEY_BYTES_MAX  255
#define WORK_FACTOR    4 /* memory while a push is in work : its unzipped size, honest ones */
#define WORK_LEAST     (64 * KIB)
#define GZIP_GUESS     8 /* unzipped : zipped, where the trailer does not say more */
#define RETRY_MS_FIRST 50
#define RETRY_MS_MOST  1000

struct job {
    uint32_t magic;
    struct distributor *d;
    struct http_req *req; /* not answered yet */
    struct tenant *tenant;
    struct ingest in;
    struct limits limits;
    struct str key; /* Idempotency-Key, or {NULL, 0} */

    size_t reserved;               /* of d->memory */
    uint64_t deadline_ms, sent_ns; /* monotonic */
    uint64_t retry_ms;
    struct timer *timer; /* between attempts, else NULL */

    /* Written on the pool. */
    struct arena *arena;
    struct push push;
    bool has_push;
    struct leaves leaves;
    struct write_base write_base;
    uint32_t shard;
    struct buf packed;
    uint64_t decode_ns;
    struct err err; /* code 0: fine */
};

/* ---- the end: exactly one of them ----------------------------------------------------------- */

static void job_free(struct job *j)
{
    struct distributor *d = j->d;

    if (j->has_push)
        push_deinit(&j->push);
    arena_free(j->arena);
    buf_deinit(&j->packed);
    loop_timer_free(j->timer);
    budget_give(&d->memory, j->reserved);
    metric_move(d->metrics.working_bytes, -(int64_t)j->reserved);
    tenant_leave(j->tenant);
    j->magic = 0;
    xfree(j);
    distributor_left(d);
}

static void job_fail(struct job *j, const struct err *e)
{
    struct http_req *req = j->req;

    distributor_refused(&j->d->metrics, e->code);
    http_reply_err(req, e);
    job_free(j);
}

static void job_ok(struct job *j)
{
    const struct distributor_metrics *m = &j->d->metrics;

    for (enum push_drop p = 0; p < PUSH_DROPS; p++)
        if (j->push.drops[p])
            metric_add(m->drops[p], j->push.drops[p]);
    metric_add(m->pushes, 1);
    metric_add(m->body_bytes, j->req->body.len);
    http_reply(j->req, 200, NULL, NULL);
    job_free(j);
}

/* ---- decode and pack: pool ------------------------------------------------------------------ */

static int job_pack(struct job *j, struct err *e)
{
    struct packing in = {
        .tenant = j->tenant->name,
        .shard = j->shard,
        .received_ms = clock_wall_ms(j->d->ctx->env->clock),
        .push = &j->push,
        .leaves = &j->leaves,
        .secret = &j->tenant->secret,
        .write_base = &j->write_base,
    };

    buf_reset(&j->packed);
    return pack_write(&in, &j->packed, e);
}

/* What the URL says about the time is wrong or right without decoding anything. */
static int early_window(const struct job *j, const struct window_accept *accept, struct err *e)
{
    struct window w;

    return j->in.has_from || j->in.has_until ? window_of(&j->in, &j->push, accept, &w, e) : 0;
}

static int job_decode(struct job *j, struct buf *plain, struct err *e)
{
    struct distributor *d = j->d;
    struct inflate_limits inflate = limits_inflate(&j->limits);
    struct window_accept accept = { .now_ms = clock_wall_ms(d->ctx->env->clock),
                                    .past_ms = d->conf->past_ms,
                                    .future_ms = d->conf->future_ms };
    struct window w;
    struct str body;
    uint64_t seed;

    d->ctx->env->random(d->ctx->env, &seed, sizeof(seed));
    push_init(&j->push, j->arena, &j->limits, seed);
    j->has_push = true;
    if (early_window(j, &accept, e) || http_body_plain(j->req, &inflate, plain, &body, e) ||
        formats_decode(&j->in, body, &j->limits, accept.now_ms, &j->push, e) ||
        window_of(&j->in, &j->push, &accept, &w, e))
        return e->code;
    if (j->push.series_len == 0)
        return 0;
    if (!leaves_of(&w, (size_t)j->limits.leaves, j->arena, &j->leaves))
        return push_full(&j->push, e);
    j->write_base = write_base_of(&j->tenant->secret, j->key, &j->in, &j->push, body, d->ctx->env);
    j->shard = shard_of(j->tenant->name, j->push.service, (uint32_t)d->ctx->cluster->shards);
    return job_pack(j, e);
}

static void job_decode_work(void *cookie)
{
    struct job *j = cookie;
    const struct clock *clock = j->d->ctx->env->clock;
    uint64_t began = clock_mono_ns(clock);
    struct buf plain;

    CHECK(j->magic == JOB_MAGIC);
    buf_init(&plain, (size_t)j->limits.inflated_bytes);
    if (job_decode(j, &plain, &j->err) == 0)
        err_clear(&j->err);
    buf_deinit(&plain);
    j->decode_ns = clock_mono_ns(clock) - began;
}

static void job_pack_work(void *cookie)
{
    struct job *j = cookie;

    CHECK(j->magic == JOB_MAGIC);
    if (job_pack(j, &j->err) == 0)
        err_clear(&j->err);
}

/* ---- send, and send again: loop ------------------------------------------------------------- */

static void job_send(void *cookie);

static uint64_t job_now_ms(const struct job *j)
{
    return clock_mono_ms(j->d->ctx->env->clock);
}

static void job_retry(void *cookie)
{
    struct job *j = cookie;
    const struct role_ctx *ctx = j->d->ctx;
    struct err e;

    CHECK(j->magic == JOB_MAGIC);
    metric_add(j->d->metrics.retries, 1);
    if (!pool_submit(ctx->pool, ctx->loop, job_pack_work, job_send, j)) {
        (void)err_set(&e, ERR_BUSY, "too many pushes wait for a thread; try again");
        job_fail(j, &e);
    }
}

/* No answer does not mean no write: only the same ids make another attempt harmless. */
static void job_unanswered(struct job *j, const struct err *why)
{
    uint64_t now = job_now_ms(j);
    struct err e = *why;

    if (now + j->retry_ms >= j->deadline_ms || j->req->gone || j->d->closing) {
        e.code = ERR_UNAVAILABLE;
        (void)err_wrap(&e, "not stored in %" PRIu64 " ms, try again", j->d->conf->ack_ms);
        job_fail(j, &e);
        return;
    }
    if (!j->timer)
        j->timer = loop_timer_new(j->d->ctx->loop, job_retry, j);
    /* Half to all of it: many pushes must not come back at one instant. */
    uint64_t jitter;
    j->d->ctx->env->random(j->d->ctx->env, &jitter, sizeof(jitter));
    loop_timer_start(j->timer, j->retry_ms / 2 + jitter % (j->retry_ms / 2 + 1), 0);
    j->retry_ms = MIN(j->retry_ms * 2, RETRY_MS_MOST);
}

static void job_acked(struct job *j, struct str reply)
{
    const struct distributor_metrics *m = &j->d->metrics;
    Embertree__WriteReply *r =
        embertree__write_reply__unpack(NULL, reply.len, (const uint8_t *)(const void *)reply.ptr);
    struct err e;

    if (!r) {
        (void)err_set(&e, ERR_INTERNAL, "the ingester's answer cannot be decoded");
        job_fail(j, &e);
        return;
    }
    metric_observe(m->ack_seconds,
                   (double)(clock_mono_ns(j->d->ctx->env->clock) - j->sent_ns) / 1e9);
    metric_add(m->series, r->stored);
    metric_add(m->duplicates, r->duplicates);
    metric_add(m->samples, j->push.samples);
    embertree__write_reply__free_unpacked(r, NULL);
    job_ok(j);
}

static void job_on_reply(void *cookie, struct str reply, const struct err *err)
{
    struct job *j = cookie;

    CHECK(j->magic == JOB_MAGIC);
    if (!err)
        job_acked(j, reply);
    else if (err->code == ERR_UNAVAILABLE || err->code == ERR_TIMEOUT)
        job_unanswered(j, err);
    else
        job_fail(j, err);
}

static void job_send(void *cookie)
{
    struct job *j = cookie;
    uint64_t now = job_now_ms(j);

    CHECK(j->magic == JOB_MAGIC);
    if (j->err.code) {
        job_fail(j, &j->err);
        return;
    }
    uint64_t left = j->deadline_ms > now ? j->deadline_ms - now : 1;
    j->sent_ns = clock_mono_ns(j->d->ctx->env->clock);
    metric_add(j->d->metrics.sent_bytes, j->packed.len);
    rpc_send(distributor_peer(j->d, j->shard), RPC_WRITE, &j->packed,
             MIN(left, j->d->conf->attempt_ms), job_on_reply, j);
}

/* Exchanges what was set aside for what the decoded push holds until its ack. One that needs more
 * than all pushes may hold is told so, instead of to try again for ever. */
static int job_resize(struct job *j, struct err *e)
{
    size_t holds = arena_used(j->arena) + stacks_bytes(&j->push.stacks) + j->packed.cap;

    if (holds > j->d->memory.max)
        return err_set(e, ERR_LIMIT,
                       "decoded, this push takes %zu MiB; all pushes together may hold %zu MiB "
                       "(distributor.in_flight_bytes)",
                       holds / MIB, j->d->memory.max / MIB);
    if (holds > j->reserved && !budget_take(&j->d->memory, holds - j->reserved))
        return err_set(e, ERR_BUSY,
                       "pushes in work hold all the memory they may "
                       "(distributor.in_flight_bytes); try again");
    if (holds < j->reserved)
        budget_give(&j->d->memory, j->reserved - holds);
    metric_move(j->d->metrics.working_bytes, (int64_t)holds - (int64_t)j->reserved);
    j->reserved = holds;
    return 0;
}

static void job_decoded(void *cookie)
{
    struct job *j = cookie;
    struct err e;

    CHECK(j->magic == JOB_MAGIC);
    metric_observe(j->d->metrics.decode_seconds, (double)j->decode_ns / 1e9);
    if (j->err.code) {
        job_fail(j, &j->err);
    } else if (j->push.series_len == 0) {
        metric_add(j->d->metrics.empty, 1);
        job_ok(j);
    } else if (job_resize(j, &e)) {
        job_fail(j, &e);
    } else {
        job_send(j);
    }
}

/* ---- the request: loop ---------------------------------------------------------------------- */

static void raw_of(const struct http_req *r, struct ingest_raw *raw)
{
    const struct {
        const char *name;
        struct str *to;
    } params[] = {
        { "name", &raw->name },        { "from", &raw->from },
        { "until", &raw->until },      { "sampleRate", &raw->sample_rate },
        { "spyName", &raw->spy_name }, { "format", &raw->format },
    };

    for (size_t i = 0; i < ARRAY_LEN(params); i++)
        if (!http_param(r, params[i].name, params[i].to))
            *params[i].to = STR_NULL;
    raw->content_type = http_header(r, "Content-Type");
}

/* A guess at the memory a body will take. The size in a gzip trailer is the sender's word: it can
 * only make us set more aside, and only up to what may come out at all. */
static size_t guess_memory(const struct job *j)
{
    struct str body = j->req->body;
    uint64_t plain = body.len;

    if (gzip_sniff(body)) {
        plain = (uint64_t)body.len * GZIP_GUESS;
        if (body.len >= 18)
            plain = MAX(plain, get_u32le(body.ptr + body.len - 4));
        plain = MIN(plain, j->limits.inflated_bytes);
    }
    /* Never more than half of what there is: a body that claims more than the server has is looked
     * at as well, or it would be told to come again for ever. */
    return (size_t)MIN(WORK_LEAST + MIN(plain * WORK_FACTOR, j->limits.decode_bytes),
                       MAX(j->d->memory.max / 2, WORK_LEAST));
}

static int job_admit(struct job *j, struct err *e)
{
    struct distributor *d = j->d;
    size_t want = guess_memory(j);

    if (!budget_take(&d->memory, want))
        return err_set(e, ERR_BUSY,
                       "pushes in work hold all the memory they may "
                       "(distributor.in_flight_bytes); try again");
    j->reserved = want;
    metric_move(d->metrics.working_bytes, (int64_t)want);
    j->arena = arena_new((size_t)j->limits.decode_bytes);
    /* Like the stacks, the message refers to what is in the body: it cannot be much larger. */
    buf_init(&j->packed, d->ctx->cluster->rpc_message_bytes_max);
    if (!pool_submit(d->ctx->pool, d->ctx->loop, job_decode_work, job_decoded, j))
        return err_set(e, ERR_BUSY, "too many pushes wait for a thread; try again");
    return 0;
}

static int check_request(struct distributor *d, const struct http_req *r, struct str *ret_tenant,
                         struct ingest *ret_in, struct err *e)
{
    struct str key = http_header(r, "Idempotency-Key");
    struct ingest_raw raw;
    size_t one;

    if (d->draining)
        return err_set(e, ERR_UNAVAILABLE, "this server is going down; try another one");
    if (role_memory_check(d->ctx, e))
        return e->code;
    if (tenant_of(r, d->ctx->tenancy, 1, ret_tenant, &one, e))
        return e->code;
    if (key.len > KEY_BYTES_MAX)
        return err_set(e, ERR_INPUT, "Idempotency-Key has %zu bytes, at most %d", key.len,
                       KEY_BYTES_MAX);
    raw_of(r, &raw);
    return ingest_parse(&raw, &d->limits, clock_wall_ms(d->ctx->env->clock), r->arena, ret_in, e);
}

static void on_ingest(struct http_req *r)
{
    struct distributor *d = r->route_cookie;
    uint64_t now_ms = clock_mono_ms(d->ctx->env->clock);
    struct tenant *tenant = NULL;
    struct ingest in;
    struct str name;
    struct err e;

    if (check_request(d, r, &name, &in, &e) ||
        tenant_enter(d->tenants, name, r->body.len, now_ms, &tenant, &e)) {
        distributor_refused(&d->metrics, e.code);
        http_reply_err(r, &e);
        return;
    }
    struct job *j = XNEW(struct job);
    *j = (struct job){ .magic = JOB_MAGIC,
                       .d = d,
                       .req = r,
                       .tenant = tenant,
                       .in = in,
                       .limits = d->limits,
                       .key = http_header(r, "Idempotency-Key"),
                       .deadline_ms = now_ms + d->conf->ack_ms,
                       .retry_ms = RETRY_MS_FIRST };
    struct str format = str_c(format_name(in.format));
    metric_add(metric_at(d->metrics.requests, &format, 1), 1);
    d->working++;
    metric_set(d->metrics.working, (int64_t)d->working);
    if (job_admit(j, &e))
        job_fail(j, &e);
}

void api_ingest_routes(struct distributor *d)
{
    size_t body_max = (size_t)d->ctx->common->body_bytes_max;

    http_route(d->ctx->http, HTTP_POST, "/ingest", body_max, on_ingest, d);
    http_route(d->ctx->http, HTTP_POST, "/pyroscope/ingest", body_max, on_ingest, d);
}

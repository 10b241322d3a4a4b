/* SPDX-License-Identifier: Apache-2.0
 *
 * api_ingest: from the request to the 200.
 *
 *   loop   on_ingest    may it come in? tenant, parameters, bounds, memory ──no──> 4xx, 503
 *   pool   push_work    unzip, decode, time, write ids, pack ───────────────err──> 400
 *   loop   push_done    nothing to store ────────────────────────────────────────> 200
 *          write_start  send to the ingester, again if need be ─────────────err──> 503
 *          push_stored  fsynced there ───────────────────────────────────────────> 200, empty body
 *
 * The 200 is the promise that the push is stored; nothing answers it earlier. A client that hangs
 * up is served to the end all the same: it looks like one that only closed its sending side, and
 * what was decoded already may as well be stored (once: the write id sees to it).
 *
 * Memory. A push takes about four times its unzipped size while it is in work. That is estimated
 * and set aside before anything is unzipped (budget in_flight, 503 when it is used up), put right
 * once the real size is known, and bounded for a hostile body by limits.decode_bytes.
 */
#include "distributor/api_ingest.h"

#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/base/wr.h"
#include "common/obs/log.h"
#include "distributor/formats/formats.h"
#include "distributor/pack.h"
#include "distributor/write.h"

#define PUSH_MAGIC    MAGIC('P', 'U', 'S', 'H')
#define KEY_BYTES_MAX 255
#define WORK_FACTOR   4 /* memory of decoding : unzipped bytes, honest profiles */
#define WORK_LEAST    (64 * KIB)
#define GZIP_GUESS    8 /* unzipped : zipped, where the trailer does not say more */

struct push_req {
    uint32_t magic;
    struct distributor *d;
    struct http_req *req; /* alive until it is replied to */
    struct tenant *tenant;
    struct ingest in;
    struct str key; /* Idempotency-Key */
    uint64_t began_ns;
    int64_t now_ms;
    size_t charged; /* of d->in_flight */
    /* made on the pool */
    struct arena *arena;
    struct push push;
    struct window window;
    struct leaves leaves;
    struct write_base write_base;
    uint32_t shard;
    struct buf message;
    size_t body_bytes, inflated_bytes;
    uint64_t decode_ns;
    struct err err;
    struct write write;
};

/* ---- on the pool ------------------------------------------------------------------------------ */

static int push_pack(void *cookie, struct buf *out, struct err *e)
{
    struct push_req *p = cookie;
    struct packing packing = {
        .tenant = p->tenant->name,
        .shard = p->shard,
        .received_ms = p->now_ms,
        .push = &p->push,
        .leaves = &p->leaves,
        .secret = &p->tenant->secret,
        .write_base = &p->write_base,
    };

    return pack_write(&packing, out, e);
}

static int push_decode(struct push_req *p, struct str body, struct err *e)
{
    const struct distributor *d = p->d;
    const struct window_accept accept = { p->now_ms, d->conf->past_ms, d->conf->future_ms };

    /* What the URL says about time needs no decoding to be wrong. */
    if ((p->in.has_from || p->in.has_until) && window_of(&p->in, &p->push, &accept, &p->window, e))
        return e->code;
    if (formats_decode(&p->in, body, &d->limits, p->now_ms, &p->push, e) ||
        window_of(&p->in, &p->push, &accept, &p->window, e))
        return e->code;
    if (!p->push.series_len)
        return 0;
    if (!leaves_of(&p->window, (size_t)d->limits.leaves, p->arena, &p->leaves))
        return push_full(&p->push, e);
    p->shard = shard_of(p->tenant->name, p->push.service, (uint32_t)d->ctx->cluster->shards);
    p->write_base = write_base_of(&p->tenant->secret, p->key, &p->in, &p->push, body, d->ctx->env);
    return push_pack(p, &p->message, e);
}

static void push_work(void *cookie)
{
    struct push_req *p = cookie;
    const struct inflate_limits inflate = limits_inflate(&p->d->limits);
    const struct clock *clock = p->d->ctx->env->clock;
    uint64_t began = clock_mono_ns(clock);
    struct str body;
    struct buf tmp;

    buf_init(&tmp, (size_t)p->d->limits.inflated_bytes);
    if (!http_body_plain(p->req, &inflate, &tmp, &body, &p->err)) {
        p->inflated_bytes = body.len;
        (void)push_decode(p, body, &p->err); /* the code stands in p->err */
    }
    buf_deinit(&tmp);
    p->decode_ns = clock_mono_ns(clock) - began;
}

/* ---- the end of a push ------------------------------------------------------------------------ */

static void push_free(struct push_req *p)
{
    struct distributor *d = p->d;

    CHECK(p->magic == PUSH_MAGIC);
    metric_observe(d->metrics.push_seconds,
                   (double)(clock_mono_ns(d->ctx->env->clock) - p->began_ns) / 1e9);
    push_deinit(&p->push);
    arena_free(p->arena);
    buf_deinit(&p->message);
    budget_give(&d->in_flight, p->charged);
    tenants_leave(d->tenants, p->tenant);
    p->magic = 0;
    xfree(p);
    metric_set(d->metrics.in_flight, (int64_t)--d->pushes);
    metric_set(d->metrics.in_flight_bytes, (int64_t)d->in_flight.used);
    if (d->draining && d->pushes == 0 && d->drained)
        d->drained(d->drained_cookie);
}

static void reject(const struct distributor *d, struct http_req *r, const struct err *e)
{
    distributor_count_reject(&d->metrics, e->code);
    if (err_http_status(e->code) >= 500)
        log_warn("push refused", KV_CSTR("peer", r->peer), KV_U64("request", r->id), KV_ERR(e));
    else
        log_debug("push refused", KV_CSTR("peer", r->peer), KV_U64("request", r->id), KV_ERR(e));
    http_reply_err(r, e);
}

static void push_fail(struct push_req *p, const struct err *e)
{
    reject(p->d, p->req, e);
    push_free(p);
}

static void push_ok(struct push_req *p)
{
    http_reply(p->req, 200, NULL, NULL);
    push_free(p);
}

static void push_stored(void *cookie, uint64_t duplicates, const struct err *e)
{
    struct push_req *p = cookie;
    const struct distributor_metrics *m = &p->d->metrics;

    CHECK(p->magic == PUSH_MAGIC);
    if (e) {
        push_fail(p, e);
        return;
    }
    metric_add(m->profiles, 1);
    metric_add(m->series, p->push.series_len);
    metric_add(m->duplicates, duplicates);
    push_ok(p);
}

/* What the push holds now, instead of the guess. Over the budget is not an error any more: the
 * memory is there already, and the next push is refused. */
static void recharge(struct push_req *p)
{
    struct distributor *d = p->d;
    size_t held =
        WORK_LEAST + arena_used(p->arena) + 2 * stacks_bytes(&p->push.stacks) + p->message.cap;

    if (held < p->charged) {
        budget_give(&d->in_flight, p->charged - held);
        p->charged = held;
    } else if (budget_take(&d->in_flight, held - p->charged)) {
        p->charged = held;
    }
    metric_set(d->metrics.in_flight_bytes, (int64_t)d->in_flight.used);
}

static void push_done(void *cookie)
{
    struct push_req *p = cookie;
    struct distributor *d = p->d;

    CHECK(p->magic == PUSH_MAGIC);
    metric_observe(d->metrics.decode_seconds, (double)p->decode_ns / 1e9);
    metric_add(d->metrics.body_bytes, p->body_bytes);
    if (p->err.code) {
        push_fail(p, &p->err);
        return;
    }
    metric_add(d->metrics.samples, p->push.samples);
    distributor_count_drops(&d->metrics, &p->push);
    if (!p->push.series_len) {
        metric_add(d->metrics.empty, 1);
        push_ok(p);
        return;
    }
    recharge(p);
    p->write = (struct write){ .d = d,
                               .shard = p->shard,
                               .deadline_ns = p->began_ns + d->conf->ack_ms * 1000000,
                               .pack = push_pack,
                               .done = push_stored,
                               .cookie = p };
    write_start(&p->write, &p->message);
}

/* ---- the beginning ---------------------------------------------------------------------------- */

static struct str param(const struct http_req *r, const char *name)
{
    struct str v = STR_NULL;

    return http_param(r, name, &v) ? v : STR_NULL;
}

/* A guess at the memory a body will take. The size in a gzip trailer is the sender's word: it can
 * only make us set more aside, and only up to what may come out at all. */
static size_t guess_memory(const struct distributor *d, const struct http_req *r)
{
    struct str body = r->body;
    uint64_t plain = body.len;

    if (gzip_sniff(body) || http_header(r, "Content-Encoding").len) {
        plain = (uint64_t)body.len * GZIP_GUESS;
        if (body.len >= 18)
            plain = MAX(plain, get_u32le(body.ptr + body.len - 4));
        plain = MIN(plain, d->limits.inflated_bytes);
    }
    return WORK_LEAST + MIN((size_t)plain * WORK_FACTOR, (size_t)d->limits.decode_bytes);
}

static int check_open(const struct distributor *d, struct err *e)
{
    if (d->draining)
        return err_set(e, ERR_UNAVAILABLE, "this server is shutting down");
    if (role_memory_high(d->ctx))
        return err_set(e, ERR_BUSY, "this server is near its memory limit");
    return 0;
}

static int read_request(const struct distributor *d, struct push_req *p, struct err *e)
{
    const struct http_req *r = p->req;
    const struct ingest_raw raw = {
        .name = param(r, "name"),
        .from = param(r, "from"),
        .until = param(r, "until"),
        .sample_rate = param(r, "sampleRate"),
        .spy_name = param(r, "spyName"),
        .format = param(r, "format"),
        .content_type = http_header(r, "Content-Type"),
    };

    p->key = http_header(r, "Idempotency-Key");
    if (p->key.len > KEY_BYTES_MAX)
        return err_set(e, ERR_INPUT, "Idempotency-Key has %zu bytes, at most %d", p->key.len,
                       KEY_BYTES_MAX);
    return ingest_parse(&raw, &d->limits, p->now_ms, r->arena, &p->in, e);
}

/* Who it is, and whether there is room. What was taken is given back on failure. */
static int admit(struct distributor *d, struct push_req *p, struct err *e)
{
    size_t memory = guess_memory(d, p->req), len;
    struct str tenant;

    if (check_open(d, e) || tenant_of(p->req, d->ctx->tenancy, 1, &tenant, &len, e) ||
        read_request(d, p, e) || tenants_enter(d->tenants, tenant, p->req->body.len, &p->tenant, e))
        return e->code;
    metric_set(d->metrics.tenants, (int64_t)tenants_len(d->tenants));
    if (!budget_take(&d->in_flight, memory)) {
        tenants_leave(d->tenants, p->tenant);
        return err_set(e, ERR_BUSY, "pushes in work use up the memory set aside for them");
    }
    p->charged = memory;
    return 0;
}

static void on_ingest(struct http_req *r)
{
    struct distributor *d = r->route_cookie;
    struct push_req *p = XNEW(struct push_req);
    struct err e;

    CHECK(d->magic == DISTRIBUTOR_MAGIC);
    *p = (struct push_req){ .magic = PUSH_MAGIC,
                            .d = d,
                            .req = r,
                            .began_ns = clock_mono_ns(d->ctx->env->clock),
                            .now_ms = clock_wall_ms(d->ctx->env->clock),
                            .body_bytes = r->body.len };
    if (admit(d, p, &e)) {
        xfree(p);
        reject(d, r, &e);
        return;
    }
    distributor_count_request(&d->metrics, p->in.format);
    p->arena = arena_new((size_t)d->limits.decode_bytes);
    push_init(&p->push, p->arena, &d->limits, d->seed);
    buf_init(&p->message, (size_t)d->ctx->cluster->rpc_message_bytes_max);
    metric_set(d->metrics.in_flight, (int64_t)++d->pushes);
    if (!pool_submit(d->ctx->pool, d->ctx->loop, push_work, push_done, p)) {
        err_set(&e, ERR_BUSY, "too many pushes wait to be decoded");
        push_fail(p, &e);
    }
}

void api_ingest_routes(struct distributor *d)
{
    static const char *const paths[] = { "/ingest", "/pyroscope/ingest" };

    if (!d->ctx->http)
        return; /* simulation drives the role without HTTP */
    for (size_t i = 0; i < ARRAY_LEN(paths); i++)
        http_route(d->ctx->http, HTTP_POST, paths[i], (size_t)d->ctx->common->body_bytes_max,
                   on_ingest, d);
}

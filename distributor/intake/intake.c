/* SPDX-License-Identifier: Apache-2.0
 *
 * intake: one request, from its body to the acks of an fsync.
 *
 *   loop   START ──> pool  DECODE ──> loop  SEND, up to LANES at once ──> ingester ──> ack: row
 *            │         │                     ^                               │
 *            └─ error  └─ error: done        └── again: PACK <───────────────┘ down, or no answer
 *
 * A row is stored only after the ingester said that the push is on disk. If it does not say so in
 * attempt_ms, the same bytes are sent again, under the same write ids, until ack_ms is over: a
 * write that was stored although its answer got lost is then counted once. What was decoded is kept
 * until the answer, since the transport takes the packed bytes with it.
 *
 * An attempt is a race (common/role/route/hedged_call.h): where the ingester is late, the push is
 * packed once more, with its stacks and the same write ids, and goes by another way as well. While
 * the pool does that, the push is the pool's, and an answer that comes waits.
 *
 * Memory: before decoding a request sets aside what bodies of its size usually need, afterwards
 * what it really holds; over the budget it is refused. While it is decoded it may pass that, up to
 * decode_bytes, which at most as many requests can do at once as the pool has threads.
 *
 * If a client disconnects while its pushes are being stored, they are stored, but not tried again.
 * A client that only closed its sending side looks the same.
 */
#include "distributor/intake/intake.h"

#include <stdio.h>

#include "common/base/mem.h"
#include "common/base/wr.h"
#include "common/identity/scope.h"
#include "distributor/base/tokens.h"
#include "distributor/intake/intake_impl.h"
#include "distributor/send/ack_audit.h"
#include "distributor/send/pack.h"
#include "distributor/send/symbol_sessions.h"

#define KEY_BYTES_MAX  255
#define LANES          8
#define WORK_FACTOR    4 /* memory while a push is in work : its unzipped size, honest ones */
#define WORK_LEAST     (64 * KIB)
#define GZIP_GUESS     8 /* unzipped : zipped, where the trailer does not say more */
#define RETRY_MS_FIRST 50
#define QUEUE_SHARE    4 /* of ack_timeout a tenant may wait for its turn, one in so many */
#define RETRY_MS_MOST  1000

static uint64_t now_ms(const struct intake *k)
{
    return clock_mono_ms(k->d->ctx->env->clock);
}

/* ---- the end -------------------------------------------------------------------------------- */

static void intake_free(struct intake *k)
{
    struct distributor *d = k->d;

    vec_for (i, &k->pushes)
        intake_push_free(k->pushes.ptr[i]);
    map_unref(k->map);
    share_give(k->tenant->share, &d->memory, k->reserved);
    metric_move(d->metrics.working_bytes, -(int64_t)k->reserved);
    tenant_leave(k->tenant);
    rules_drop(&k->rules);
    intake_give(k);
    distributor_left(d);
}

void intake_add_drops(struct intake *k, const struct push *push)
{
    bool any = false;

    for (enum push_drop i = 0; i < PUSH_DROPS; i++) {
        any = any || push->drops[i];
        k->drops[i] += push->drops[i];
    }
    if (any && !k->drops_service[0])
        (void)snprintf(k->drops_service, sizeof(k->drops_service), "%.*s", STR_ARG(push->service));
}

/* Fetched, imported, or sent by an agent that shows no headers: the log says it, too. */
static void count_drops(struct intake *k)
{
    const struct left_out_of of = { k->o.format, k->tenant->name, str_c(k->drops_service) };

    for (enum push_drop i = 0; i < PUSH_DROPS; i++)
        if (k->drops[i])
            metric_add(k->d->metrics.drops[i], k->drops[i]);
    if (!k->o.http || str_eqc(str_c(k->o.format), "parca"))
        left_out_log(&k->d->said, &of, k->drops, clock_mono_ms(k->d->ctx->env->clock));
}

static bool is_wrong(const struct err *e)
{
    return e->code == ERR_INPUT || e->code == ERR_LIMIT || e->code == ERR_TOO_LARGE ||
           e->code == ERR_CONFLICT;
}

/* Nothing of it was stored: it failed before anything was sent, or all was wrong or over a limit.
 * What comes again would otherwise use up ingest_limits without anything being stored. */
static bool nothing_stored(const struct intake *k, const struct err *err)
{
    if (err)
        return true;
    vec_for (i, &k->rows)
        if (k->rows.ptr[i].outcome != INTAKE_REJECTED ||
            (!is_wrong(k->rows.ptr[i].err) && k->rows.ptr[i].err->code != ERR_RATE))
            return false;
    return k->rows.len > 0;
}

/* err: the request as a whole, or NULL. */
static void intake_end(struct intake *k, const struct err *err)
{
    struct distributor_metrics *m = &k->d->metrics;
    const char *peer = k->o.http ? k->o.http->peer : NULL;
    struct intake_result r = { .err = err,
                               .rejected = k->rejected_more,
                               .series = k->series,
                               .duplicates = k->duplicates,
                               .samples = k->samples,
                               .left_out = k->drops };

    if (nothing_stored(k, err) && !k->o.entered)
        tenant_refund(k->tenant, k->o.body.len);
    if (err) {
        distributor_refused(m, err, peer);
        rules_refused(k->d->rules, k->rules.label, err, 1, k->o.body.len);
    } else {
        r.rows = k->rows.ptr;
        r.rows_len = k->rows.len;
        count_drops(k);
        metric_add(m->body_bytes, k->o.body.len);
    }
    for (size_t i = 0; i < r.rows_len; i++) {
        const struct intake_row *row = &r.rows[i];
        if (row->outcome == INTAKE_REJECTED) {
            r.rejected += row->profiles;
            distributor_refused(m, row->err, peer);
        } else {
            r.stored += row->outcome == INTAKE_STORED;
            r.empty += row->outcome == INTAKE_EMPTY;
        }
    }
    metric_add(m->pushes, r.stored + r.empty);
    metric_add(m->empty, r.empty);
    k->o.done(k->o.cookie, &r);
    intake_free(k);
}

/* ---- send, and send again ------------------------------------------------------------------- */

static void push_send(void *cookie);

/* Starts what may start, ends the request after its last push. May be called from inside itself. */
static void intake_pump(struct intake *k)
{
    if (k->pumping)
        return;
    k->pumping = true;
    while (k->running < LANES && k->next < k->pushes.len) {
        struct intake_push *p = k->pushes.ptr[k->next];
        p->at = k->next++;
        k->running++;
        push_send(p);
    }
    k->pumping = false;
    if (k->running == 0)
        intake_end(k, NULL);
}

/* Its memory is not needed any more; the row says how it went. */
static void push_over(struct intake_push *p)
{
    struct intake *k = p->k;

    k->pushes.ptr[p->at] = NULL;
    intake_push_free(p);
    k->running--;
    intake_pump(k);
}

/* Each of its series may be in the shard by an attempt whose result is unknown. */
static void push_doubt(const struct intake_push *p, bool acked)
{
    const struct intake *k = p->k;
    struct ledger_write w = { p->shard, p->epoch, k->tenant->name };
    uint8_t id[WRITE_ID_BYTES];

    for (size_t i = 0; k->d->book && i < p->push.series_len; i++) {
        write_id(&k->tenant->secret, &p->write_base, &p->push.series[i], id);
        ledger_doubt(k->d->book, &w, id, acked);
    }
}

static void push_counted(const struct intake_push *p, uint64_t stored, uint64_t duplicates)
{
    struct ledger_write w = { p->shard, p->epoch, p->k->tenant->name };

    if (!duplicates)
        ack_audit_add(p->k->d->book, &w, &p->acks);
    else if (p->unsure || stored)
        push_doubt(p, true);
    /* else it was there before our first attempt: another distributor stored it */
}

static void push_fail(struct intake_push *p, const struct err *why)
{
    if (p->unsure)
        push_doubt(p, false);
    /* A share of the ingester, a key used twice: counted like refusals of this process. */
    if (why->code == ERR_RATE || why->code == ERR_CONFLICT)
        rules_refused(p->k->d->rules, p->k->rules.label, why, 1, 0);
    intake_reject(p->k, p->row, why);
    push_over(p);
}

/* It cannot be sent another time. Where an earlier attempt may have stored it, the sender must ask
 * again: its push comes with the same write ids, and its stacks by number, as at first. */
static void push_unpacked(struct intake_push *p)
{
    struct err e = p->err;

    if (p->unsure && e.code != ERR_TIMEOUT && e.code != ERR_UNAVAILABLE) {
        e.code = ERR_UNAVAILABLE;
        (void)err_wrap(&e, "not known to be stored, and cannot be sent again from here, try again");
    }
    push_fail(p, &e);
}

static void push_pack_work(void *cookie)
{
    struct intake_push *p = cookie;

    CHECK(p->magic == INTAKE_PUSH_MAGIC);
    if (intake_pack(p, &p->err) == 0)
        err_clear(&p->err);
}

static void push_retry(void *cookie)
{
    struct intake_push *p = cookie;
    struct err e;

    CHECK(p->magic == INTAKE_PUSH_MAGIC);
    metric_add(p->k->d->metrics.retries, 1);
    if (p->err.code) {
        push_unpacked(p);
        return;
    }
    if (!distributor_submit(p->k->d, p->k->tenant, push_pack_work, push_send, p)) {
        (void)err_set(&e, ERR_BUSY, "too many pushes wait for a thread; try again");
        push_fail(p, &e);
    }
}

/* Whether time is left is asked as for another attempt: a client that gave too little for one has
 * set the limit. */
static void push_too_late(const struct intake_push *p, struct err *e)
{
    if (p->k->client_deadline && !p->k->d->closing &&
        now_ms(p->k) + p->retry_ms >= p->k->deadline_ms) {
        e->code = ERR_TIMEOUT;
        (void)err_wrap(e, "not stored within the timeout of the request");
    } else {
        e->code = ERR_UNAVAILABLE;
        (void)err_wrap(e, "not stored in %" PRIu64 " ms, try again", p->k->d->conf->ack_ms);
    }
}

/* No answer does not mean no write: only the same ids make another attempt harmless. */
static void push_unanswered(struct intake_push *p, const struct err *why)
{
    struct intake *k = p->k;
    struct env *env = k->d->ctx->env;
    struct err e = *why;
    uint64_t jitter;

    if (now_ms(k) + p->retry_ms >= k->deadline_ms || (k->o.http && k->o.http->gone) ||
        k->d->closing) {
        push_too_late(p, &e);
        push_fail(p, &e);
        return;
    }
    if (!p->timer)
        p->timer = loop_timer_new(k->d->ctx->loop, push_retry, p);
    /* Half to all of it: many pushes must not come back at one instant. */
    env->random(env, &jitter, sizeof(jitter));
    loop_timer_start(p->timer, p->retry_ms / 2 + jitter % (p->retry_ms / 2 + 1), 0);
    p->retry_ms = MIN(p->retry_ms * 2, RETRY_MS_MOST);
}

static void push_kept(void *cookie)
{
    struct intake_push *p = cookie;

    CHECK(p->magic == INTAKE_PUSH_MAGIC);
    push_over(p);
}

static void push_acked(struct intake_push *p, struct str reply)
{
    struct intake *k = p->k;
    const struct distributor_metrics *m = &k->d->metrics;
    struct write_reply r;
    struct err e;

    if (pack_reply_read(reply, &r, &e)) {
        push_fail(p, &e);
        return;
    }
    metric_observe(m->ack_seconds,
                   (double)(clock_mono_ns(k->d->ctx->env->clock) - p->sent_ns) / 1e9);
    metric_add(m->series, r.stored);
    metric_add(m->duplicates, r.duplicates);
    metric_add(m->samples, p->push.samples);
    k->series += r.stored;
    k->duplicates += r.duplicates;
    k->samples += p->push.samples;
    if (p->told && r.learnt)
        symbol_sessions_understood(k->d->knowns, p->push.known, &p->push.known_upto);
    push_counted(p, r.stored, r.duplicates);
    intake_add_drops(k, &p->push);
    /* What was refused is a part of the same push: it is sent again, and this one known then. */
    if (k->rows.ptr[p->row].outcome != INTAKE_REJECTED)
        k->rows.ptr[p->row].outcome = INTAKE_STORED;
    if (p->kept) {
        const struct intake_tap *tap = k->d->tap;
        void *kept = p->kept;
        p->kept = NULL;
        tap->stored(tap->cookie, kept, push_kept, p);
        return;
    }
    push_over(p);
}

/* Nothing was stored: another time, with the stacks, at once. */
static void push_not_known(struct intake_push *p)
{
    struct distributor *d = p->k->d;

    metric_add(d->metrics.told_refused, 1);
    if (p->push.known)
        symbol_sessions_refused(d->knowns, p->push.known, now_ms(p->k));
    push_retry(p);
}

static void push_answer(struct intake_push *p, struct str reply, const struct err *err)
{
    if (err && err->code != ERR_NOT_FOUND && err->code != ERR_UNIMPLEMENTED)
        p->unsure = true;
    if (!err)
        push_acked(p, reply);
    else if (p->by_number && (err->code == ERR_NOT_FOUND || err->code == ERR_UNIMPLEMENTED))
        push_not_known(p);
    else if (err->code == ERR_UNAVAILABLE || err->code == ERR_TIMEOUT) {
        route_failed(p->k->d->route, route_target(p->k->d->route, p->shard),
                     hedged_call_went_round(&p->race));
        push_unanswered(p, err);
    } else
        push_fail(p, err);
}

static void push_on_reply(void *cookie, struct str reply, const struct err *err)
{
    struct intake_push *p = cookie;

    CHECK(p->magic == INTAKE_PUSH_MAGIC && p->k->magic == INTAKE_MAGIC);
    if (!p->packing) {
        push_answer(p, reply, err);
        return;
    }
    p->over_early = true;
    buf_init(&p->early, reply.len + 1);
    (void)buf_add_str(&p->early, reply);
    p->early_err = err ? xmemdup(err, sizeof(*err)) : NULL;
}

/* ---- a second copy -------------------------------------------------------------------------- */

static void push_packed_again(void *cookie)
{
    struct intake_push *p = cookie;

    CHECK(p->magic == INTAKE_PUSH_MAGIC);
    p->packing = false;
    if (p->over_early) {
        struct buf reply = p->early;
        struct err *why = p->early_err;

        p->over_early = false;
        push_answer(p, buf_str(&reply), why);
        buf_deinit(&reply);
        xfree(why);
        return;
    }
    size_t bytes = p->packed.len;
    if (p->err.code || p->k->d->closing ||
        !hedged_call_send_second(&p->race, RPC_WRITE, &p->packed))
        return;
    p->unsure = true; /* whichever of the two is answered: the other may have stored it */
    metric_add(p->k->d->metrics.sent_bytes, bytes);
}

static void push_late(void *cookie)
{
    struct intake_push *p = cookie;

    CHECK(p->magic == INTAKE_PUSH_MAGIC && !p->packing);
    p->packing = distributor_submit(p->k->d, p->k->tenant, push_pack_work, push_packed_again, p);
}

static void push_send(void *cookie)
{
    struct intake_push *p = cookie;
    struct intake *k = p->k;
    struct distributor *d = k->d;
    uint64_t now = now_ms(k);

    CHECK(p->magic == INTAKE_PUSH_MAGIC && k->magic == INTAKE_MAGIC);
    if (!p->err.code && (now >= k->deadline_ms || d->closing)) {
        (void)err_set(&p->err, ERR_TIMEOUT, "there was no time left to store it");
        push_too_late(p, &p->err);
    }
    if (p->err.code) {
        push_unpacked(p);
        return;
    }
    uint64_t left = k->deadline_ms > now ? k->deadline_ms - now : 1;
    p->sent_ns = clock_mono_ns(d->ctx->env->clock);
    size_t bytes = p->packed.len;
    struct hedged_call_opts o = { .route = d->route,
                                  .target = route_target(d->route, p->shard),
                                  .deadline_ms = MIN(left, d->conf->attempt_ms),
                                  .more = push_late,
                                  .done = push_on_reply,
                                  .cookie = p };
    if (hedged_call_begin(&p->race, &o, p->told ? RPC_WRITE_TOLD : RPC_WRITE, &p->packed,
                          &p->err)) {
        struct err why = p->err;
        err_clear(&p->err);
        push_unanswered(p, &why);
        return;
    }
    p->by_number = p->told;
    metric_add(d->metrics.sent_bytes, bytes);
    metric_add(d->metrics.told, p->told);
}

/* ---- decoded -------------------------------------------------------------------------------- */

/* Replaces the estimate that was reserved by the bytes that the decoded pushes hold until their
 * acks. A request that needs more than all pushes may hold is refused for good, since a retry could
 * never succeed. */
static int intake_resize(struct intake *k, struct err *e)
{
    struct budget *b = &k->d->memory;
    size_t holds = k->holds + arena_used(k->arena);

    if (holds > b->max)
        return err_set(e, ERR_LIMIT,
                       "decoded, this push takes %zu MiB; all pushes together may hold %zu MiB "
                       "(distributor.in_flight_bytes)",
                       holds / MIB, b->max / MIB);
    if (holds > k->reserved &&
        distributor_reserve(k->d, k->tenant, k->reserved, holds - k->reserved, e))
        return e->code;
    if (holds < k->reserved)
        share_give(k->tenant->share, b, k->reserved - holds);
    metric_move(k->d->metrics.working_bytes, (int64_t)holds - (int64_t)k->reserved);
    k->reserved = holds;
    return 0;
}

static int waited_long(uint64_t ms, struct err *e)
{
    return err_set(e, ERR_RATE,
                   "in_flight_limit: a push of this tenant has waited for a processor for %" PRIu64
                   " ms, behind other pushes of it; send fewer at once and try again",
                   ms);
}

static void intake_decode_work(void *cookie)
{
    struct intake *k = cookie;
    const struct clock *clock = k->d->ctx->env->clock;
    uint64_t began = clock_mono_ns(clock);

    CHECK(k->magic == INTAKE_MAGIC);
    if (k->tenant->share && began / 1000000 - k->began_ms > k->d->conf->ack_ms / 2)
        (void)waited_long(began / 1000000 - k->began_ms, &k->err);
    else
        intake_decode(k);
    k->decode_ns = clock_mono_ns(clock) - began;
}

static void intake_decoded(void *cookie)
{
    struct intake *k = cookie;

    CHECK(k->magic == INTAKE_MAGIC);
    metric_observe(k->d->metrics.decode_seconds, (double)k->decode_ns / 1e9);
    list_del(&k->undecoded);
    if (k->err.code || intake_resize(k, &k->err)) {
        intake_end(k, &k->err);
        return;
    }
    vec_for (i, &k->pushes)
        k->pushes.ptr[i]->retry_ms = RETRY_MS_FIRST;
    intake_pump(k);
}

/* ---- the start ------------------------------------------------------------------------------ */

/* A guess at the memory a body will take. The size in a gzip trailer is the sender's word: it can
 * only make us set more aside, and only up to what may come out at all. */
static size_t guess_memory(const struct intake *k)
{
    struct str body = k->o.body;
    uint64_t plain = body.len;

    if (k->o.grows) {
        plain = MIN((uint64_t)body.len * k->o.grows, k->limits.inflated_bytes);
    } else if (gzip_sniff(body)) {
        plain = (uint64_t)body.len * GZIP_GUESS;
        if (body.len >= 18)
            plain = MAX(plain, get_u32le(body.ptr + body.len - 4));
        plain = MIN(plain, k->limits.inflated_bytes);
    }
    /* Never more than half of the budget: a body that claims more than the server has is decoded,
     * too; otherwise each of its retries would be refused. */
    return (size_t)MIN(WORK_LEAST + MIN(plain * WORK_FACTOR, k->limits.decode_bytes),
                       MAX(k->d->memory.max / 2, WORK_LEAST));
}

static int knows_shards(const struct distributor *d, struct err *e)
{
    return route_shards(d->route)
               ? 0
               : err_set(e, ERR_UNAVAILABLE, "the map of the cluster is not known yet; try again");
}

int intake_check(struct distributor *d, const struct http_req *r, struct str *ret_tenant,
                 struct err *e)
{
    struct str key = http_header(r, "Idempotency-Key"), named = STR_NULL;
    size_t one;

    if (d->draining)
        return err_set(e, ERR_UNAVAILABLE, "this server is going down; try another one");
    if (role_memory_check(d->ctx, e) || knows_shards(d, e))
        return e->code;
    *ret_tenant = STR_NULL;
    /* Where callers have an identity, its tenant was decided as the request came in, by the token,
     * too (on_token in distributor.c). */
    bool by_token = d->tokens && !r->identity && d->ctx->tenancy->multi;
    if (by_token && http_header_once(r, "X-Scope-OrgID", &named, e))
        return e->code;
    if (by_token && !named.len)
        *ret_tenant = tokens_tenant(d->tokens, r);
    if (!ret_tenant->ptr && tenant_of(r, d->ctx->tenancy, 1, ret_tenant, &one, e))
        return e->code;
    if (key.len > KEY_BYTES_MAX)
        return err_set(e, ERR_INPUT, "Idempotency-Key has %zu bytes, at most %d", key.len,
                       KEY_BYTES_MAX);
    return 0;
}

/* A tenant whose bodies wait long for a thread sends more than its share of the processors.
 * Requests beyond that are refused at once: if accepted, they would wait until ack_timeout is over,
 * be refused with 503, and their bodies would have been decoded for nothing. Time at an ingester
 * does not count, which may be down for a while. */
static int queue_check(const struct intake *k, uint64_t now, struct err *e)
{
    const struct list *waiting = &k->tenant->undecoded;

    if (!k->tenant->share || list_empty(waiting))
        return 0;
    const struct intake *oldest = container_of(waiting->next, struct intake, undecoded);
    uint64_t waits = now - oldest->began_ms;
    if (waits <= k->d->conf->ack_ms / QUEUE_SHARE)
        return 0;
    return waited_long(waits, e);
}

static int intake_admit(struct intake *k, uint64_t now, struct err *e)
{
    struct distributor *d = k->d;
    const struct key_record *who = k->o.http ? k->o.http->identity : k->o.identity;
    size_t want = guess_memory(k);

    if (scope_set(who, k->tenant->name, k->arena, &k->set, e))
        return e->code;
    if (queue_check(k, now, e) || distributor_reserve(d, k->tenant, 0, want, e))
        return e->code;
    k->reserved = want;
    metric_move(d->metrics.working_bytes, (int64_t)want);
    k->began_ms = now;
    list_add_tail(&k->tenant->undecoded, &k->undecoded);
    if (distributor_submit(d, k->tenant, intake_decode_work, intake_decoded, k))
        return 0;
    list_del(&k->undecoded);
    return err_set(e, ERR_BUSY, "too many pushes wait for a thread; try again");
}

static unsigned hops_of(const struct http_req *r)
{
    uint64_t n;

    return str_u64(http_header(r, INTAKE_HOPS_HEADER), &n) ? (unsigned)MIN(n, UINT32_MAX) : 0;
}

/* Rates come first: what is over one is 429 even if it is wrong as well. */
static int intake_enter(struct distributor *d, const struct intake_opts *o, struct str name,
                        struct rules_hold *h, struct tenant **ret, struct err *e)
{
    uint64_t most;
    int rc;

    rules_hold(d->rules, name, h);
    if (rules_off(h, e)) {
        rules_refused(d->rules, h->label, e, 1, o->body.len);
        rules_drop(h);
        return e->code;
    }
    if (o->entered) {
        tenant_enter_again(o->entered);
        *ret = o->entered;
        return 0;
    }
    most = h->policy->body_bytes;
    rc = tenant_enter(d->tenants, name, o->body.len, clock_mono_ms(d->ctx->env->clock), ret, e);
    if (!rc && most && o->body.len > most) {
        tenant_refund(*ret, o->body.len);
        tenant_leave(*ret);
        rc = err_set(e, ERR_TOO_LARGE,
                     "body_size_limit_exceeded: a body of %zu bytes, at most %" PRIu64
                     " (ingestion_body_limit_mb in distributor.overrides_file)",
                     o->body.len, most);
    }
    if (rc) {
        rules_refused(d->rules, h->label, e, 1, o->body.len);
        rules_drop(h);
    }
    return rc;
}

int intake_start(struct distributor *d, const struct intake_opts *o, struct err *e)
{
    struct str name = o->tenant, format = str_c(o->format);
    uint64_t now = clock_mono_ms(d->ctx->env->clock);
    struct tenant *tenant = NULL;
    struct rules_hold rules;

    CHECK(o->http || o->tenant.ptr);
    if ((name.ptr ? knows_shards(d, e) : intake_check(d, o->http, &name, e)) ||
        intake_enter(d, o, name, &rules, &tenant, e)) {
        distributor_refused(&d->metrics, e, o->http ? o->http->peer : NULL);
        return e->code;
    }
    struct intake *k = intake_take(d);
    k->o = *o;
    k->tenant = tenant;
    k->limits = rules.policy->limits;
    k->rules = rules;
    k->map = route_map(d->route);
    k->key = o->http ? http_header(o->http, "Idempotency-Key") : o->key;
    k->hops = o->http ? hops_of(o->http) : 0;
    k->client_deadline = o->left_ms && o->left_ms < d->conf->ack_ms;
    k->deadline_ms = now + (k->client_deadline ? o->left_ms : d->conf->ack_ms);
    metric_add(metric_at(d->metrics.requests, &format, 1), 1);
    d->working++;
    metric_set(d->metrics.working, (int64_t)d->working);
    if (intake_admit(k, now, e)) {
        if (!o->entered)
            tenant_refund(tenant, o->body.len);
        rules_refused(d->rules, k->rules.label, e, 1, o->body.len);
        distributor_refused(&d->metrics, e, o->http ? o->http->peer : NULL);
        intake_free(k);
        return e->code;
    }
    return 0;
}

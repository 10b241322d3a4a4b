/* SPDX-License-Identifier: Apache-2.0
 *
 * api_import: old data, and what other servers forward: a body of WriteRequests, each behind its
 * length as a varint, the whole as it is or in gzip or zstd.
 *
 *   loop  CHECK ─> pool  INFLATE ─> loop ─> lane 1..4:  pool  CHECK, PACK ─> loop  SEND ─> ack
 *                                              ^                               │   ^      │
 *                                              └────────── next message ───────│───┴ again┘
 *                                                                              v
 *                                                      last one acked: 200 with what was stored
 *
 * The 200 says that all messages are on disk, and counts them. Any error says which message, why,
 * and how many were stored; messages in flight are still stored. Since ids come from
 * the data (import_msg.c) the whole body may simply be sent again: what was stored is a duplicate
 * then, for as long as write ids are remembered (ingester.write_id_horizon).
 *
 * Where the tenant has rules or a limit of series, or something is forwarded, a message does not go
 * as it is, but slot by slot through the intake, PART of them at a time, as if profilers had sent
 * them (import_push.c). That costs more, and finds the same rules as every other way in.
 *
 * Bounds: the body, its inflated size, messages per body, and per message what a push may have
 * (series, samples, labels, frames, symbols). Memory is set aside like that of pushes: the body,
 * and a few times the largest message for each lane.
 */
#include "distributor/api/api_import.h"

#include <stdio.h>

#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/base/wr.h"
#include "common/identity/scope.h"
#include "common/role/route/hedged_call.h"
#include "distributor/api/import_push.h"
#include "distributor/base/left_out.h"
#include "distributor/base/state.h"
#include "distributor/intake/intake.h"
#include "distributor/rules/rules.h"
#include "distributor/send/ack_audit.h"
#include "distributor/send/pack.h"

#define JOB_MAGIC      MAGIC('i', 'm', 'p', 'o')
#define LANES          4
#define LANE_FACTOR    6 /* memory of a lane : its largest message */
#define INFLATE_GUESS  8
#define PART           64 /* slots of a message through the intake at once */
#define RETRY_MS_FIRST 50
#define RETRY_MS_MOST  1000

struct job;
struct lane_id {
    uint8_t wid[WRITE_ID_BYTES];
};
struct lane {
    struct job *job;
    size_t message; /* under way */
    struct timer *timer;
    uint64_t deadline_ms, retry_ms, sent_ns;
    struct import_count count;
    size_t part;    /* slots that are stored, where the message goes slot by slot */
    size_t place;   /* parts of it that are stored, where its series have several shards */
    uint32_t epoch; /* ack_audit.h: the same for all attempts */
    bool unsure;    /* an attempt of the part was not answered: it may have been stored */
    /* Written on the pool. */
    struct arena *arena;
    struct buf packed;
    struct import_opened opened;
    struct import_pushes *pushes;
    VEC(struct lane_id) ids; /* of the part that is packed */
    struct err err;
    struct hedged_call race; /* the loop's */
};
struct job {
    uint32_t magic;
    struct distributor *d;
    struct http_req *req;
    struct tenant *tenant;
    struct rules_hold rules;
    struct labels set;     /* by the identity, on every series */
    bool judged;           /* slot by slot, through the intake */
    const struct map *map; /* a reference */
    uint32_t node_slots;
    size_t reserved; /* of d->memory */
    struct lane lanes[LANES];
    size_t lanes_len, running;
    size_t next; /* message */
    size_t acked;
    uint64_t stored, duplicates, profiles, samples;
    uint64_t left_out[PUSH_DROPS];
    struct err err; /* the first one */
    /* Written on the pool. */
    struct arena *arena;
    struct buf plain;
    struct str body;
    struct import_frames frames;
    struct err inflate_err;
};

/* ---- the end -------------------------------------------------------------------------------- */

static void job_free(struct job *j)
{
    struct distributor *d = j->d;

    for (size_t i = 0; i < LANES; i++) {
        arena_free(j->lanes[i].arena);
        buf_deinit(&j->lanes[i].packed);
        vec_free(&j->lanes[i].ids);
        loop_timer_free(j->lanes[i].timer);
    }
    arena_free(j->arena);
    buf_deinit(&j->plain);
    share_give(j->tenant->share, &d->memory, j->reserved);
    metric_move(d->metrics.working_bytes, -(int64_t)j->reserved);
    tenant_leave(j->tenant);
    rules_drop(&j->rules);
    map_unref(j->map);
    j->magic = 0;
    xfree(j);
    distributor_left(d);
}

static void job_fail(struct job *j, const struct err *e)
{
    struct http_req *req = j->req;
    char done[24];

    (void)snprintf(done, sizeof(done), "%zu", j->acked);
    if (!j->acked && !j->stored)
        tenant_refund(j->tenant, req->body.len);
    distributor_refused(&j->d->metrics, e, req->peer);
    http_reply_header(req, "X-Embertree-Stored-Messages", str_c(done));
    http_reply_err(req, e);
    job_free(j);
}

static void job_ok(struct job *j)
{
    const struct {
        const char *name;
        uint64_t value;
    } counts[] = { { "messages", j->acked },
                   { "profiles", j->profiles },
                   { "samples", j->samples },
                   { "stored_series", j->stored },
                   { "duplicate_series", j->duplicates } };
    struct buf text;
    struct json json;

    buf_init(&text, 4096);
    json_init(&json, &text);
    json_obj(&json);
    for (size_t i = 0; i < ARRAY_LEN(counts); i++)
        json_put_u64(&json, counts[i].name, counts[i].value);
    json_key(&json, "left_out");
    left_out_json(j->left_out, &json);
    json_obj_end(&json);
    buf_add_c(&text, '\n');
    metric_add(j->d->metrics.body_bytes, j->req->body.len);
    http_reply(j->req, 200, "application/json", &text);
    buf_deinit(&text);
    job_free(j);
}

static void job_end(struct job *j)
{
    struct err e = j->err;

    if (!e.code && j->acked < j->frames.len) /* the client went away */
        (void)err_set(&e, ERR_CANCELED, "stopped");
    if (!e.code) {
        job_ok(j);
        return;
    }
    (void)err_wrap(&e, "%zu of %zu messages are stored", j->acked, j->frames.len);
    job_fail(j, &e);
}

/* ---- a lane: one message after the other ---------------------------------------------------- */

static void lane_next(struct lane *l);
static void lane_send(void *cookie);

static uint64_t now_ms(const struct job *j)
{
    return clock_mono_ms(j->d->ctx->env->clock);
}

/* ---- the ledger: does what was acked come true? ---------------------------------------------- */

static void lane_keep_ids(struct lane *l)
{
    size_t n = l->opened.parts[l->place].len;

    l->ids.len = 0;
    for (size_t i = 0; l->job->d->book && i < n; i++) {
        struct lane_id id;
        memcpy(id.wid, import_write_id(&l->opened, l->place, i), WRITE_ID_BYTES);
        vec_push(&l->ids, id);
    }
}

static void lane_doubt(const struct lane *l, bool acked)
{
    struct ledger_write w = { l->count.shard, l->epoch, l->job->tenant->name };

    vec_for (i, &l->ids)
        ledger_doubt(l->job->d->book, &w, l->ids.ptr[i].wid, acked);
}

static void lane_counted(struct lane *l, uint64_t stored, uint64_t duplicates)
{
    struct ledger_write w = { l->count.shard, l->epoch, l->job->tenant->name };
    struct acks all = { 0 };

    vec_for (i, &l->ids)
        acks_add(&all, l->ids.ptr[i].wid);
    if (!duplicates)
        ack_audit_add(l->job->d->book, &w, &all);
    else if (l->unsure || stored)
        lane_doubt(l, true);
    /* else it was there before we tried */
    l->unsure = false;
}

/* --------------------------------------------------------------------------------------------- */

static void lane_fail(struct lane *l, const struct err *why)
{
    struct job *j = l->job;

    if (l->unsure)
        lane_doubt(l, false);
    l->unsure = false;
    if (!j->err.code) {
        j->err = *why;
        (void)err_wrap(&j->err, "message %zu", l->message);
    }
    lane_next(l);
}

static void lane_work(void *cookie)
{
    struct lane *l = cookie;
    struct job *j = l->job;
    const struct distributor *d = j->d;
    struct import_opts o = {
        .tenant = j->tenant->name,
        .set = &j->set,
        .secret = &j->tenant->secret,
        .limits = &j->rules.policy->limits,
        .accept = { .now_ms = clock_wall_ms(d->ctx->env->clock),
                    .past_ms = j->rules.policy->past_ms,
                    .future_ms = j->rules.policy->future_ms },
        .node_slots = j->node_slots,
        .shards = j->map->shards,
        .map = j->map,
        .distributor = ledger_distributor(d->book),
        .epoch = l->epoch,
    };

    CHECK(j->magic == JOB_MAGIC);
    arena_reset(l->arena);
    buf_reset(&l->packed);
    if (import_open(j->frames.at[l->message], &o, l->arena, &l->opened, &l->err) == 0 &&
        (j->judged ? import_pushes_new(&l->opened, l->arena, &l->pushes, &l->err)
                   : import_pack(&l->opened, l->place, &l->packed, &l->err)) == 0)
        err_clear(&l->err);
    if (l->err.code)
        return;
    l->count = l->opened.count;
    l->count.shard = l->opened.parts[j->judged ? 0 : l->place].shard;
    if (!j->judged)
        lane_keep_ids(l);
}

static void lane_submit(void *cookie)
{
    struct lane *l = cookie;
    struct err e;

    if (distributor_submit(l->job->d, l->job->tenant, lane_work, lane_send, l))
        return;
    (void)err_set(&e, ERR_BUSY, "too much waits for a thread; try again");
    lane_fail(l, &e);
}

/* No answer does not mean no write: only the same ids make another attempt harmless. */
static void lane_unanswered(struct lane *l, const struct err *why)
{
    struct job *j = l->job;
    struct err e = *why;
    uint64_t jitter;

    if (now_ms(j) + l->retry_ms >= l->deadline_ms || j->req->gone || j->d->closing) {
        e.code = ERR_UNAVAILABLE;
        (void)err_wrap(&e, "not stored in %" PRIu64 " ms, try again", j->d->conf->ack_ms);
        lane_fail(l, &e);
        return;
    }
    metric_add(j->d->metrics.retries, 1);
    if (!l->timer)
        l->timer = loop_timer_new(j->d->ctx->loop, lane_submit, l);
    j->d->ctx->env->random(j->d->ctx->env, &jitter, sizeof(jitter));
    loop_timer_start(l->timer, l->retry_ms / 2 + jitter % (l->retry_ms / 2 + 1), 0);
    l->retry_ms = MIN(l->retry_ms * 2, RETRY_MS_MOST);
}

static void lane_acked(struct lane *l, struct str reply)
{
    struct write_reply r;
    const struct distributor_metrics *m = &l->job->d->metrics;
    struct job *j = l->job;
    struct err e;

    if (pack_reply_read(reply, &r, &e)) {
        lane_fail(l, &e);
        return;
    }
    metric_observe(m->ack_seconds,
                   (double)(clock_mono_ns(j->d->ctx->env->clock) - l->sent_ns) / 1e9);
    metric_add(m->series, r.stored);
    metric_add(m->duplicates, r.duplicates);
    j->stored += r.stored;
    j->duplicates += r.duplicates;
    lane_counted(l, r.stored, r.duplicates);
    if (++l->place < l->opened.parts_len) {
        l->retry_ms = RETRY_MS_FIRST;
        lane_submit(l);
        return;
    }
    metric_add(m->pushes, 1);
    metric_add(m->samples, l->count.samples);
    j->profiles += l->count.profiles;
    j->samples += l->count.samples;
    j->acked++;
    lane_next(l);
}

static void lane_on_reply(void *cookie, struct str reply, const struct err *err)
{
    struct lane *l = cookie;

    CHECK(l->job->magic == JOB_MAGIC);
    l->unsure |= err != NULL;
    if (!err)
        lane_acked(l, reply);
    else if (err->code == ERR_UNAVAILABLE || err->code == ERR_TIMEOUT || err->code == ERR_BUSY) {
        route_failed(l->job->d->route, route_target(l->job->d->route, l->count.shard),
                     hedged_call_went_round(&l->race));
        lane_unanswered(l, err);
    } else {
        lane_fail(l, err);
    }
}

/* ---- or slot by slot ------------------------------------------------------------------------ */

static size_t part_len(const struct lane *l)
{
    size_t most = MIN((size_t)PART, (size_t)l->job->d->conf->request_profiles);

    return MIN(most, import_pushes_len(l->pushes) - l->part);
}

static int part_decode(void *cookie, const struct batch_sink *sink, struct err *e)
{
    struct lane *l = cookie;

    return import_pushes_run(l->pushes, l->part, part_len(l), sink, e);
}

static void lane_part(struct lane *l);

static void part_done(void *cookie, const struct intake_result *r)
{
    struct lane *l = cookie;
    struct job *j = l->job;
    struct err e;

    CHECK(j->magic == JOB_MAGIC);
    j->stored += r->series;
    j->duplicates += r->duplicates;
    j->profiles += r->stored + r->empty;
    j->samples += r->samples;
    for (enum push_drop i = 0; i < PUSH_DROPS; i++)
        j->left_out[i] += r->left_out[i];
    if (intake_error(r, NULL, NULL, &e)) {
        lane_fail(l, &e);
        return;
    }
    l->part += part_len(l);
    lane_part(l);
}

static void lane_part(struct lane *l)
{
    struct job *j = l->job;
    const struct intake_opts o = { .tenant = j->tenant->name,
                                   .entered = j->tenant,
                                   .identity = j->req->identity,
                                   .format = "import_part",
                                   .decode = part_decode,
                                   .done = part_done,
                                   .cookie = l };
    struct err e;

    if (l->part == import_pushes_len(l->pushes)) {
        j->acked++;
        lane_next(l);
    } else if (j->req->gone || j->d->closing) {
        (void)err_set(&e, ERR_CANCELED, "stopped");
        lane_fail(l, &e);
    } else if (intake_start(j->d, &o, &e)) {
        lane_fail(l, &e);
    }
}

/* --------------------------------------------------------------------------------------------- */

static void lane_send(void *cookie)
{
    struct lane *l = cookie;
    struct job *j = l->job;
    uint64_t now = now_ms(j);
    struct err e;

    CHECK(j->magic == JOB_MAGIC);
    if (l->err.code) {
        rules_refused(j->d->rules, j->rules.label, &l->err, 1, j->frames.at[l->message].len);
        lane_fail(l, &l->err);
        return;
    }
    if (j->judged) {
        lane_part(l);
        return;
    }
    l->sent_ns = clock_mono_ns(j->d->ctx->env->clock);
    struct hedged_call_opts o = {
        .route = j->d->route,
        .target = route_target(j->d->route, l->count.shard),
        .deadline_ms = MIN(l->deadline_ms > now ? l->deadline_ms - now : 1, j->d->conf->attempt_ms),
        .done = lane_on_reply,
        .cookie = l,
    };
    size_t bytes = l->packed.len;
    if (hedged_call_begin(&l->race, &o, RPC_WRITE, &l->packed, &e))
        lane_unanswered(l, &e);
    else
        metric_add(j->d->metrics.sent_bytes, bytes);
}

static void lane_next(struct lane *l)
{
    struct job *j = l->job;

    if (j->err.code || j->req->gone || j->next == j->frames.len) {
        if (--j->running == 0)
            job_end(j);
        return;
    }
    l->message = j->next++;
    l->part = l->place = 0;
    l->epoch = ledger_epoch(j->d->book);
    l->deadline_ms = now_ms(j) + j->d->conf->ack_ms;
    l->retry_ms = RETRY_MS_FIRST;
    lane_submit(l);
}

/* ---- the body ------------------------------------------------------------------------------- */

static int reserve(struct job *j, size_t want, struct err *e)
{
    struct budget *b = &j->d->memory;

    want = MIN(want,
               b->max / 2); /* a body that never fits is judged by its limits, not told to wait */
    if (want > j->reserved &&
        distributor_reserve(j->d, j->tenant, j->reserved, want - j->reserved, e))
        return e->code;
    if (want < j->reserved)
        share_give(j->tenant->share, b, j->reserved - want);
    metric_move(j->d->metrics.working_bytes, (int64_t)want - (int64_t)j->reserved);
    j->reserved = want;
    return 0;
}

static void job_inflate_work(void *cookie)
{
    struct job *j = cookie;
    struct inflate_limits l = limits_inflate(&j->rules.policy->limits);

    CHECK(j->magic == JOB_MAGIC);
    if (!http_body_plain(j->req, &l, &j->plain, &j->body, &j->inflate_err) &&
        !import_frames(j->body, j->arena, &j->frames, &j->inflate_err))
        err_clear(&j->inflate_err);
}

static void job_inflated(void *cookie)
{
    struct job *j = cookie;
    size_t one = MAX(j->frames.largest, 4 * KIB) * LANE_FACTOR;
    size_t lanes = MIN(j->frames.len, LANES);
    struct err e = j->inflate_err;

    CHECK(j->magic == JOB_MAGIC);
    if (e.code || (reserve(j, j->plain.cap + lanes * one, &e) &&
                   (lanes <= 1 || reserve(j, j->plain.cap + (lanes = 1) * one, &e)))) {
        rules_refused(j->d->rules, j->rules.label, &e, 1, j->req->body.len);
        job_fail(j, &e);
        return;
    }
    if (!lanes) {
        job_ok(j);
        return;
    }
    j->running = j->lanes_len = lanes;
    for (size_t i = 0; i < lanes; i++) {
        struct lane *l = &j->lanes[i];
        l->job = j;
        l->arena = arena_new((size_t)MIN(import_arena_bytes(j->frames.largest),
                                         j->rules.policy->limits.decode_bytes));
        buf_init(&l->packed, j->d->ctx->cluster->rpc_message_bytes_max);
    }
    /* The last lane may end the job at once: nothing of it is touched afterwards. */
    for (size_t i = 0; i < lanes; i++)
        lane_next(&j->lanes[i]);
}

static int check_request(struct distributor *d, const struct http_req *r, struct str *ret_tenant,
                         uint32_t *ret_slots, struct err *e)
{
    struct str level = STR("");

    if (intake_check(d, r, ret_tenant, e))
        return e->code;
    (void)http_param(r, "level", &level);
    return import_level(level, ret_slots, e);
}

/* As intake_enter: rates, then the size of the body. */
static int enter(struct distributor *d, const struct http_req *r, struct str name,
                 struct rules_hold *h, struct tenant **ret, struct err *e)
{
    uint64_t now = clock_mono_ms(d->ctx->env->clock);

    rules_hold(d->rules, name, h);
    int rc = rules_off(h, e) ? e->code : tenant_enter(d->tenants, name, r->body.len, now, ret, e);
    if (!rc && h->policy->body_bytes && r->body.len > h->policy->body_bytes) {
        tenant_refund(*ret, r->body.len);
        tenant_leave(*ret);
        rc = err_set(e, ERR_TOO_LARGE,
                     "body_size_limit_exceeded: a body of %zu bytes, at most %" PRIu64
                     " (ingestion_body_limit_mb in distributor.overrides_file)",
                     r->body.len, h->policy->body_bytes);
    }
    if (rc) {
        rules_refused(d->rules, h->label, e, 1, r->body.len);
        rules_drop(h);
    }
    return rc;
}

static void on_import(struct http_req *r)
{
    struct distributor *d = r->route_cookie;
    struct str name, format = STR("import");
    struct tenant *tenant = NULL;
    struct rules_hold rules;
    uint32_t slots;
    struct err e;

    if (check_request(d, r, &name, &slots, &e) || enter(d, r, name, &rules, &tenant, &e)) {
        distributor_refused(&d->metrics, &e, r->peer);
        http_reply_err(r, &e);
        return;
    }
    struct job *j = XNEW(struct job);
    *j = (struct job){ .magic = JOB_MAGIC,
                       .d = d,
                       .req = r,
                       .tenant = tenant,
                       .rules = rules,
                       .judged = d->tap || rules_any(&rules),
                       .map = route_map(d->route),
                       .node_slots = slots };
    metric_add(metric_at(d->metrics.requests, &format, 1), 1);
    d->working++;
    metric_set(d->metrics.working, (int64_t)d->working);
    j->arena = arena_new(4 * MIB);
    buf_init(&j->plain, (size_t)rules.policy->limits.inflated_bytes);
    bool coded = http_header(r, "Content-Encoding").len > 0;
    size_t guess =
        coded ? (size_t)MIN(r->body.len * INFLATE_GUESS, rules.policy->limits.inflated_bytes) : 0;
    if (scope_set(r->identity, j->tenant->name, j->arena, &j->set, &e) || reserve(j, guess, &e)) {
        job_fail(j, &e);
    } else if (!distributor_submit(d, j->tenant, job_inflate_work, job_inflated, j)) {
        (void)err_set(&e, ERR_BUSY, "too much waits for a thread; try again");
        job_fail(j, &e);
    }
}

void api_import_routes(struct distributor *d)
{
    http_route(d->ctx->http, HTTP_POST, "/api/v1/import", (size_t)d->ctx->common->body_bytes_max,
               on_import, d);
}

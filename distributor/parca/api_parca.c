/* SPDX-License-Identifier: Apache-2.0
 *
 * api_parca: Parca's write service over Connect, gRPC and gRPC-Web.
 *
 *   WriteRaw, WriteArrow    message ─> intake ─> {}      in JSON, too
 *   Write                   samples ─> keep, ask (pool) ─> ids to the client
 *                           stacks  ─> intake of both ─> end
 *                           end instead of stacks: fine if nothing was asked for
 *
 * Of a Write the first message is copied and charged until the second one has come. Thread: the
 * loop's, but for decode and ask.
 *
 * Protocol: parca-dev/parca at 3b5647cd9e2a (proto/WIRE.md, "Parca write service").
 */
#include "distributor/parca/api_parca.h"

#include "common/base/mem.h"
#include "common/base/rd.h"
#include "common/base/wr.h"
#include "common/cluster/node/peers.h"
#include "common/net/svc/svc.h"
#include "distributor/base/left_out.h"
#include "distributor/base/state.h"
#include "distributor/intake/intake.h"
#include "distributor/parca/parca_json.h"
#include "distributor/parca/parca_labels.h"
#include "distributor/parca/parca_raw.h"
#include "distributor/parca/parca_since.h"
#include "distributor/rules/rules.h"

#define SERVICE    "/parca.profilestore.v1alpha1.ProfileStoreService/"
#define GROWS      6 /* memory in work : message, whose buffers are compressed */
#define ASK_BYTES  (16 * MIB)
#define CALL_MAGIC MAGIC('p', 'a', 'r', 'c')

static struct parca_opts opts_of(const struct distributor *d)
{
    struct parca_opts o = { .drop_labels = d->conf->parca_drop_labels };

    d->ctx->env->random(d->ctx->env, &o.seed, sizeof(o.seed));
    return o;
}

/* The one field of a request that has a single one: bytes, number 1. */
static int only_field(struct str message, struct str *ret, struct err *e)
{
    struct rd r = rd_of(message);
    struct pb_field f;
    int got;

    *ret = STR("");
    while ((got = rd_pb(&r, &f)) > 0)
        if (f.number == 1 && f.wire == 2)
            *ret = f.bytes;
    return got == 0 ? 0 : err_set(e, ERR_INPUT, "the message is no protobuf");
}

/* ---- one message each way ---------------------------------------------------------------------
 */

struct unary { /* in the request's arena */
    struct svc_call *call;
    const struct distributor *d;
    bool arrow;
    struct parca_turn turn; /* since NULL: nothing is remembered */
};

static int json_message(const struct unary *u, const struct inflate_limits *l, struct buf *out,
                        struct str *ret, struct err *e)
{
    struct json_doc *doc;

    if (svc_message_json(u->call, l, &doc, e))
        return e->code;
    int rc =
        parca_json_read(json_root(doc), u->arrow ? &parca_write_arrow : &parca_write_raw, out, e);
    json_doc_free(doc);
    *ret = buf_str(out);
    return rc;
}

static int unary_decode(void *cookie, const struct batch_sink *sink, struct err *e)
{
    struct unary *u = cookie;
    const struct inflate_limits l = limits_inflate(sink->limits);
    struct parca_opts o = opts_of(u->d);
    struct str message, body;
    struct buf tmp;

    o.turn = u->turn.since ? &u->turn : NULL;
    buf_init(&tmp, (size_t)sink->limits->inflated_bytes);
    int rc = u->call->codec == SVC_JSON ? json_message(u, &l, &tmp, &message, e)
                                        : svc_message(u->call, &l, &tmp, &message, e);
    if (!rc && u->arrow)
        rc = only_field(message, &body, e) || parca_arrow_push(body, &o, sink, e) ? e->code : 0;
    else if (!rc)
        rc = parca_raw_push(message, &o, sink, e);
    buf_deinit(&tmp);
    return rc;
}

static void unary_done(void *cookie, const struct intake_result *r)
{
    struct unary *u = cookie;
    struct err e;

    parca_turn_end(&u->turn, r);
    if (intake_error(r, NULL, NULL, &e)) {
        svc_reply_err(u->call, &e);
        return;
    }
    left_out_tell(u->call->r, r->left_out);
    svc_reply(u->call, NULL);
}

/* No other distributor can have stored what came before. */
static bool is_alone(const struct distributor *d)
{
    return (d->peers ? peers_count(d->peers) : MAX(d->conf->limits_of, 1)) == 1;
}

/* Whose profiles they are must be known before they are decoded. */
static int begin_turn(struct unary *u, struct intake_opts *o, struct err *e)
{
    struct distributor *d = u->call->cookie;
    struct str tenant;

    if (u->arrow || !d->parca_since)
        return 0;
    if (intake_check(d, o->http, &tenant, e)) {
        distributor_refused(&d->metrics, e, o->http->peer);
        return e->code;
    }
    o->tenant = arena_strdup(o->http->arena, tenant);
    CHECK(o->tenant.ptr); /* names of tenants are short, and the arena is nearly empty */
    u->turn =
        (struct parca_turn){ .since = d->parca_since, .tenant = o->tenant, .alone = is_alone(d) };
    return 0;
}

static void on_unary(struct svc_call *c, bool arrow)
{
    struct distributor *d = c->cookie;
    struct unary *u = ARENA_NEW(c->r->arena, struct unary);
    struct intake_opts o = { .http = c->r,
                             .format = "parca",
                             .body = c->r->body,
                             .grows = GROWS,
                             .decode = unary_decode,
                             .done = unary_done,
                             .cookie = u };
    struct err e;

    CHECK(u); /* the arena is still empty */
    *u = (struct unary){ .call = c, .d = d, .arrow = arrow };
    if (c->deadline_ms != SVC_FOREVER)
        o.left_ms = MAX(svc_left_ms(c, UINT64_MAX), 1);
    if (begin_turn(u, &o, &e) || intake_start(d, &o, &e))
        svc_reply_err(c, &e);
}

static void on_write_raw(struct svc_call *c)
{
    on_unary(c, false);
}

static void on_write_arrow(struct svc_call *c)
{
    on_unary(c, true);
}

/* ---- Write ------------------------------------------------------------------------------------
 */

struct two_phase {
    uint32_t magic;
    struct svc_call *call;
    struct distributor *d;
    struct str name;       /* of the tenant; the request's */
    struct tenant *tenant; /* entered with the first message; NULL before it */
    struct buf kept;       /* the first message's record */
    size_t reserved;       /* of d->memory, for it */
    struct str samples;    /* in it */
    struct str stacks;     /* in the second message, until svc_next */
    struct buf ask;        /* the answer to the first */
    size_t asked;          /* ids in it */
    struct err err;        /* of asking */
    bool began;            /* the first message has come */
};

static void two_end(struct two_phase *t, const struct err *e)
{
    struct svc_call *c = t->call;
    struct err why = { 0 };

    if (e)
        why = *e; /* which may be in t */
    if (t->tenant) {
        share_give(t->tenant->share, &t->d->memory, t->reserved);
        tenant_leave(t->tenant);
    }
    buf_deinit(&t->kept);
    buf_deinit(&t->ask);
    t->magic = 0;
    xfree(t);
    svc_end(c, e ? &why : NULL);
}

static void ask_work(void *cookie)
{
    struct two_phase *t = cookie;
    struct buf stream;
    uint64_t seed;

    CHECK(t->magic == CALL_MAGIC);
    t->d->ctx->env->random(t->d->ctx->env, &seed, sizeof(seed));
    buf_init(&stream, ASK_BYTES);
    if (parca_samples_ask(t->samples, &t->d->limits, seed, &stream, &t->asked, &t->err) == 0) {
        err_clear(&t->err);
        wr_u8(&t->ask, 1 << 3 | 2);
        wr_varint(&t->ask, stream.len);
        buf_add_str(&t->ask, buf_str(&stream));
    }
    buf_deinit(&stream);
}

static void ask_done(void *cookie)
{
    struct two_phase *t = cookie;

    CHECK(t->magic == CALL_MAGIC);
    if (t->err.code) {
        two_end(t, &t->err);
        return;
    }
    svc_send(t->call, &t->ask);
    svc_next(t->call);
}

static int two_decode(void *cookie, const struct batch_sink *sink, struct err *e)
{
    const struct two_phase *t = cookie;
    const struct parca_opts o = opts_of(t->d);

    return parca_samples_push(t->samples, t->stacks, &o, sink, e);
}

static void two_done(void *cookie, const struct intake_result *r)
{
    struct two_phase *t = cookie;
    struct err e;

    CHECK(t->magic == CALL_MAGIC);
    int rc = intake_error(r, NULL, NULL, &e);
    if (!rc && t->call->protocol == SVC_GRPC)
        left_out_trail(t->call->r, r->left_out);
    two_end(t, rc ? &e : NULL);
}

/* The first half is a push like any other: it counts for the rate of its tenant, holds a part of
 * its share, and waits for its turn. The second half does so by intake_start. */
static int enter_samples(struct two_phase *t, struct str record, struct err *e)
{
    struct distributor *d = t->d;
    struct rules_hold rules;
    uint64_t now = clock_mono_ms(d->ctx->env->clock);

    rules_hold(d->rules, t->name, &rules);
    int rc = rules_off(&rules, e)
                 ? e->code
                 : tenant_enter(d->tenants, t->name, record.len, now, &t->tenant, e);
    if (!rc)
        rc = distributor_reserve(d, t->tenant, 0, record.len, e);
    if (rc) {
        rules_refused(d->rules, rules.label, e, 1, record.len);
        distributor_refused(&d->metrics, e, t->call->r->peer);
    } else {
        t->reserved = record.len;
    }
    rules_drop(&rules);
    return rc;
}

static int take_samples(struct two_phase *t, struct str record, struct err *e)
{
    if (enter_samples(t, record, e))
        return e->code;
    buf_init(&t->kept, record.len + 1);
    buf_add_str(&t->kept, record);
    t->samples = buf_str(&t->kept);
    t->began = true;
    if (!distributor_submit(t->d, t->tenant, ask_work, ask_done, t))
        return err_set(e, ERR_BUSY, "too many pushes wait for a thread; try again");
    return 0;
}

static int take_stacks(struct two_phase *t, struct str record, struct err *e)
{
    struct intake_opts o = { .http = t->call->r,
                             .format = "parca",
                             .body = record,
                             .grows = GROWS,
                             .decode = two_decode,
                             .done = two_done,
                             .cookie = t };

    t->stacks = record;
    if (t->call->deadline_ms != SVC_FOREVER)
        o.left_ms = MAX(svc_left_ms(t->call, UINT64_MAX), 1);
    return intake_start(t->d, &o, e);
}

static void two_on_message(struct svc_call *c, struct str message)
{
    struct two_phase *t = c->user;
    struct str record;
    struct err e;

    CHECK(t->magic == CALL_MAGIC);
    if (only_field(message, &record, &e) ||
        (t->began ? take_stacks(t, record, &e) : take_samples(t, record, &e)))
        two_end(t, &e);
}

static void two_on_end(struct svc_call *c)
{
    struct two_phase *t = c->user;
    struct err e;

    (void)err_set(&e, ERR_INPUT,
                  "the stream ended before the stacks of %zu ids came: nothing of it is stored",
                  t->asked);
    two_end(t, t->asked ? &e : NULL);
}

static void two_on_gone(struct svc_call *c, const struct err *why)
{
    two_end(c->user, why);
}

static void on_write(struct svc_call *c)
{
    struct distributor *d = c->cookie;
    struct two_phase *t = XNEW(struct two_phase);
    struct err e;

    t->magic = CALL_MAGIC;
    t->call = c;
    t->d = d;
    buf_init(&t->ask, ASK_BYTES + 16);
    c->user = t;
    c->on_message = two_on_message;
    c->on_end = two_on_end;
    c->on_gone = two_on_gone;
    if (intake_check(d, c->r, &t->name, &e))
        two_end(t, &e);
}

void api_parca_routes(struct distributor *d)
{
    size_t body_max = (size_t)d->ctx->common->body_bytes_max;
    struct http_server *s = d->ctx->http;

    svc_service(s, SERVICE "*");
    svc_route(s, SERVICE "WriteRaw", SVC_PROTO | SVC_JSON, body_max, on_write_raw, d);
    svc_route(s, SERVICE "WriteArrow", SVC_PROTO | SVC_JSON, body_max, on_write_arrow, d);
    svc_route_stream(s, SERVICE "Write", SVC_PROTO, body_max, on_write, d);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * api_ledger_accept: a person accepts what differs in the ledger of a tenant, in all shards or one:
 * ?tenant=T&shard=N&by=WHO&reason=WHY. Every shard must answer; what one of them did before another
 * failed is done, and does nothing when it is asked again.
 */
#include "querier/api/tenant/api_ledger.h"
#include "querier/query/ask_all_shards.h"

#include "common/base/size.h"
#include "proto/ledger.pb-c.h"

static ProtobufCBinaryData bytes_of(struct str s)
{
    return (ProtobufCBinaryData){ s.len, (uint8_t *)(uintptr_t)s.ptr };
}

static int reply(struct query *q, struct err *e)
{
    Embertree__LedgerAcceptReply s = EMBERTREE__LEDGER_ACCEPT_REPLY__INIT;
    const struct str *tenant = q->state;
    struct json j;

    vec_for (i, &q->calls) {
        const struct fanout_call *c = &q->calls.ptr[i];
        const Embertree__LedgerAcceptReply *m =
            ask_all_shards_answer(q, c, &embertree__ledger_accept_reply__descriptor,
                                  ASK_ALL_SHARDS_COST * c->reply.len, e);
        if (!m)
            return e->code;
        s.places += m->places;
        s.services += m->services;
        s.lost += m->lost;
        s.doubled += m->doubled;
        s.more += m->more;
        s.unseen += m->unseen;
    }
    query_json(q, &j);
    json_obj(&j);
    json_put_str(&j, "tenant", *tenant);
    json_put_u64(&j, "places", s.places);
    json_put_u64(&j, "services", s.services);
    json_put_u64(&j, "missing", s.lost);
    json_put_u64(&j, "surplus", s.doubled);
    json_put_u64(&j, "servicesLeft", s.more);
    json_put_u64(&j, "shardsNotAudited", s.unseen);
    json_obj_end(&j);
    return query_out_end(q, e);
}

/* With several tenants it is the caller's; else any may be named. */
static int read_tenant(struct query *q, struct str *ret, struct err *e)
{
    struct str named = STR_NULL;

    (void)http_param(q->http, "tenant", &named);
    if (q->tenants_len != 1)
        return err_set(e, ERR_INPUT, "the ledger of one tenant at a time");
    if (q->qr->ctx->tenancy->multi && named.len && !str_eq(named, q->tenants[0]))
        return err_set(e, ERR_INPUT, "tenant %.*s is not that of the request", STR_ARG(named));
    *ret = named.len ? named : q->tenants[0];
    return 0;
}

/* One shard instead of all. */
static int read_shard(struct query *q, struct err *e)
{
    struct str text = STR_NULL;
    uint64_t n;

    if (!http_param(q->http, "shard", &text))
        return 0;
    if (!str_u64(text, &n) || n >= route_shards(q->qr->route))
        return err_set(e, ERR_INPUT, "shard %.*s: there are %" PRIu32, STR_ARG(text),
                       route_shards(q->qr->route));
    uint32_t *one = ARENA_NEW(q->arena, uint32_t);
    if (!one)
        return err_set(e, ERR_LIMIT, "no room");
    *one = (uint32_t)n;
    const struct plan_some some = { one, 1, route_targets(q->qr->route),
                                    route_moves(q->qr->route) };
    return plan_targets_some(&some, q->arena, &q->targets, e);
}

int api_ledger_accept(struct query *q, struct err *e)
{
    Embertree__LedgerAcceptRequest m = EMBERTREE__LEDGER_ACCEPT_REQUEST__INIT;
    struct str who = STR_NULL, reason = STR_NULL;
    struct str *tenant = ARENA_NEW(q->arena, struct str);

    if (!tenant)
        return err_set(e, ERR_LIMIT, "no room");
    (void)http_param(q->http, "by", &who);
    (void)http_param(q->http, "reason", &reason);
    if (!str_trim(who).len || !str_trim(reason).len)
        return err_set(e, ERR_INPUT, "by= and reason= say who accepts it, and why");
    if (read_tenant(q, tenant, e) || read_shard(q, e))
        return e->code;
    m.tenant = bytes_of(*tenant);
    m.who = bytes_of(str_trim(who));
    m.reason = bytes_of(str_trim(reason));
    q->allow_partial = false;
    q->state = tenant;
    q->step = reply;
    const struct ask_all_message ask = { &m.base, &m.shards, &m.n_shards, 64 * KIB };
    return ask_all(q, RPC_LEDGER_ACCEPT, &ask, e);
}

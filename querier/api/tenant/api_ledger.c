/* SPDX-License-Identifier: Apache-2.0
 *
 * api_ledger: asks every ingester for the rows of its shards, adds those of a tenant, prints.
 *
 * With several tenants a caller gets its own row only; with one, the caller is the operator.
 */
#include "querier/api/tenant/api_ledger.h"

#include <stdlib.h>

#include "common/base/mem.h"
#include "common/base/size.h"
#include "proto/ledger.pb-c.h"
#include "querier/query/ask_all_shards.h"

#define REQUEST_MAX    (64 * KIB)
#define FINDINGS_SHOWN 100
#define ACCEPTED_SHOWN 1000

typedef VEC(const Embertree__LedgerTenant *) ledger_rows;

static struct str name_of(const Embertree__LedgerTenant *t)
{
    return str_n(t->tenant.data, t->tenant.len);
}

static int by_name(const void *a, const void *b)
{
    return str_cmp(name_of(*(const Embertree__LedgerTenant *const *)a),
                   name_of(*(const Embertree__LedgerTenant *const *)b));
}

static int read_replies(struct query *q, ledger_rows *ret, struct err *e)
{
    vec_for (i, &q->calls) {
        const struct fanout_call *c = &q->calls.ptr[i];

        if (c->err.code)
            continue;
        const Embertree__LedgerReply *m = ask_all_shards_answer(
            q, c, &embertree__ledger_reply__descriptor, ASK_ALL_SHARDS_COST * c->reply.len, e);
        if (!m)
            return e->code;
        for (size_t k = 0; k < m->n_tenants; k++)
            vec_push(ret, m->tenants[k]);
    }
    if (ret->len)
        qsort(ret->ptr, ret->len, sizeof(*ret->ptr), by_name);
    return 0;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void put_findings(const Embertree__LedgerTenant *const *rows, size_t n, struct json *j)
{
    size_t shown = 0;

    json_key(j, "findings");
    json_arr(j);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < rows[i]->n_findings && shown < FINDINGS_SHOWN; k++, shown++)
            json_str(j, str_n(rows[i]->findings[k].data, rows[i]->findings[k].len));
    json_arr_end(j);
}

static void put_accepted(const Embertree__LedgerTenant *const *rows, size_t n, struct json *j)
{
    size_t shown = 0;

    json_key(j, "acceptedDifferences");
    json_arr(j);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < rows[i]->n_written_off && shown < ACCEPTED_SHOWN; k++, shown++) {
            const Embertree__LedgerAccepted *x = rows[i]->written_off[k];
            json_obj(j);
            json_put_i64(j, "at", x->at_ms);
            json_put_str(j, "by", str_n(x->who.data, x->who.len));
            json_put_str(j, "reason", str_n(x->reason.data, x->reason.len));
            json_put_str(j, "service", str_n(x->service.data, x->service.len));
            json_put_u64(j, "shard", x->shard);
            json_put_u64(j, "places", x->places);
            json_put_u64(j, "missing", x->lost);
            json_put_u64(j, "surplus", x->doubled);
            json_obj_end(j);
        }
    json_arr_end(j);
}

/* Rows of one tenant; how much differs. */
static uint64_t put_tenant(const Embertree__LedgerTenant *const *rows, size_t n, struct json *j)
{
    Embertree__LedgerTenant s = EMBERTREE__LEDGER_TENANT__INIT;

    for (size_t i = 0; i < n; i++) {
        const Embertree__LedgerTenant *x = rows[i];
        s.accepted += x->accepted;
        s.duplicates += x->duplicates;
        s.sealed += x->sealed;
        s.raw += x->raw;
        s.expired += x->expired;
        s.deleted += x->deleted;
        s.stored += x->stored;
        s.since_ms = MAX(s.since_ms, x->since_ms);
        s.adopting += x->adopting;
        s.audited += x->audited;
        s.must += x->must;
        s.queryable += x->queryable;
        s.difference += x->difference;
        s.lost += x->lost;
        s.doubled += x->doubled;
        s.skipped += x->skipped;
        /* As old as the oldest; a shard that was not audited yet makes it unknown. */
        s.audited_ms = i ? MIN(s.audited_ms, x->audited_ms) : x->audited_ms;
    }
    json_obj(j);
    json_put_str(j, "tenant", name_of(rows[0]));
    json_put_u64(j, "accepted", s.accepted);
    json_put_u64(j, "duplicates", s.duplicates);
    json_put_u64(j, "stored", s.stored);
    json_put_u64(j, "sealed", s.sealed);
    json_put_u64(j, "unsealed", s.raw);
    json_put_u64(j, "expired", s.expired);
    json_put_u64(j, "deleted", s.deleted);
    json_put_i64(j, "since", s.since_ms);
    json_put_u64(j, "notCountedYet", s.adopting);
    json_key(j, "audit");
    json_obj(j);
    json_put_i64(j, "at", s.audited_ms);
    json_put_u64(j, "services", s.audited);
    json_put_u64(j, "waitingForDeletes", s.skipped);
    json_put_u64(j, "stored", s.must);
    json_put_u64(j, "queryable", s.queryable);
    json_put_u64(j, "missing", s.lost);
    json_put_u64(j, "surplus", s.doubled);
    json_put_u64(j, "difference", s.difference);
    put_findings(rows, n, j);
    json_obj_end(j);
    put_accepted(rows, n, j);
    json_obj_end(j);
    return s.difference;
}

static int reply(struct query *q, struct err *e)
{
    ledger_rows rows = { 0 };
    uint64_t difference = 0;
    struct json j;
    int rc = read_replies(q, &rows, e);

    if (!rc) {
        query_json(q, &j);
        json_obj(&j);
        json_key(&j, "tenants");
        json_arr(&j);
        for (size_t i = 0, end; i < rows.len; i = end) {
            for (end = i + 1;
                 end < rows.len && str_eq(name_of(rows.ptr[i]), name_of(rows.ptr[end]));)
                end++;
            difference += put_tenant(&rows.ptr[i], end - i, &j);
        }
        json_arr_end(&j);
        json_put_u64(&j, "difference", difference);
        json_put_u64(&j, "missingIngesters", q->missing.missing);
        json_obj_end(&j);
        rc = query_out_end(q, e);
    }
    vec_free(&rows);
    return rc;
}

int api_ledger(struct query *q, struct err *e)
{
    Embertree__LedgerRequest m = EMBERTREE__LEDGER_REQUEST__INIT;

    if (q->qr->ctx->tenancy->multi) {
        if (q->tenants_len != 1)
            return err_set(e, ERR_INPUT, "the ledger of one tenant at a time");
        m.tenant.len = q->tenants[0].len;
        m.tenant.data = (uint8_t *)(uintptr_t)q->tenants[0].ptr;
    }
    q->step = reply;
    const struct ask_all_message ask = { &m.base, &m.shards, &m.n_shards, REQUEST_MAX };
    return ask_all(q, RPC_LEDGER, &ask, e);
}

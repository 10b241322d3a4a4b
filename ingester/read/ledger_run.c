/* SPDX-License-Identifier: Apache-2.0
 *
 * ledger_run: answers RPC_LEDGER from the shards of this process: rows of the ledger and what the
 * auditor found last, packed. It runs in the queue of rpc_read.c, as every query does.
 *
 * The rows are read now; the figures of the auditor are those of its last visit. So `must` and
 * `queryable`, both the auditor's, may be compared with each other, but not with the rows.
 * Thread: any; a view of each store at a time.
 */
#include "ingester/read/ledger_run.h"

#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/store/ledger/acks.h"
#include "common/store/ledger/ledger.h"
#include "ingester/background/auditor.h"
#include "ingester/base/unpack.h"
#include "proto/ledger.pb-c.h"

#define TENANTS_MAX  10000
#define FINDINGS_MAX 8
#define ACCEPTED_MAX 200 /* of a tenant */

int ledger_decode(struct str payload, struct arena *a, struct read_msg *ret, struct err *e)
{
    ProtobufCAllocator allocator = unpack_allocator(a);
    const Embertree__LedgerRequest *in = embertree__ledger_request__unpack(
        &allocator, payload.len, (const uint8_t *)(const void *)payload.ptr);

    if (!in)
        return unpack_failed("LedgerRequest", payload, a, e);
    ret->ledger = in->distributor ? in : NULL;
    if (ret->ledger && !in->n_shards)
        return err_set(e, ERR_INPUT, "acks are those of some shards, and none is named");
    return read_take_head(&(struct read_head){ in->shards, in->n_shards, .tenant = in->tenant },
                          ret, e);
}

/* ---- tenants ---- */

struct row {
    Embertree__LedgerTenant m;
    ProtobufCBinaryData findings[FINDINGS_MAX];
};
struct gather {
    const struct read_source *src;
    struct store_view *v;
    uint32_t shard;
    struct arena *a;
    struct map_str *rows; /* struct row, in the arena */
    VEC(Embertree__LedgerTenant *) all;
    Embertree__LedgerTenant *accepted_of; /* add_accepted's */
};

static struct row *row_of(struct gather *g, struct str tenant, struct err *e)
{
    struct row *r = map_str_get(g->rows, tenant);

    if (r)
        return r;
    r = ARENA_NEW(g->a, struct row);
    struct str name = arena_strdup(g->a, tenant);
    if (!r || !name.ptr || g->all.len >= TENANTS_MAX) {
        (void)err_set(e, ERR_LIMIT, "the ledger has over %zu tenants: ask for one", g->all.len);
        return NULL;
    }
    *r = (struct row){ 0 };
    embertree__ledger_tenant__init(&r->m);
    r->m.tenant = pack_str(name);
    r->m.findings = r->findings;
    (void)map_str_put(g->rows, name, r);
    vec_push(&g->all, &r->m);
    return r;
}

static int add_audited(struct gather *g, struct row *r, const struct audited *x, struct err *e)
{
    Embertree__LedgerTenant *m = &r->m;

    m->audited += x->services;
    m->skipped += x->skipped;
    m->must += x->must;
    m->queryable += x->found;
    m->difference += x->difference;
    m->lost += x->lost;
    m->doubled += x->doubled;
    if (x->at_ms)
        m->audited_ms = m->audited_ms ? MIN(m->audited_ms, x->at_ms) : x->at_ms;
    for (size_t i = 0; i < x->texts_len && m->n_findings < FINDINGS_MAX; i++) {
        struct str text = arena_strdup(g->a, str_c(x->texts[i]));
        if (!text.ptr)
            return err_set(e, ERR_LIMIT, "the ledger takes more memory than a list may");
        r->findings[m->n_findings++] = pack_str(text);
    }
    return 0;
}

/* What one person accepted of one service at one time is one. */
static Embertree__LedgerAccepted *accepted_of(struct gather *g, Embertree__LedgerTenant *m,
                                              const struct ledger_accepted *x)
{
    for (size_t i = m->n_written_off; i > 0; i--) {
        Embertree__LedgerAccepted *at = m->written_off[i - 1];
        if (at->shard == g->shard && at->at_ms == x->at_ms &&
            str_eq(unpack_str(at->service), x->service) && str_eq(unpack_str(at->who), x->who) &&
            str_eq(unpack_str(at->reason), x->reason))
            return at;
    }
    if (!m->written_off)
        m->written_off = ARENA_ARRAY(g->a, Embertree__LedgerAccepted *, ACCEPTED_MAX);
    Embertree__LedgerAccepted *at = ARENA_NEW(g->a, Embertree__LedgerAccepted);
    struct str who = arena_strdup(g->a, x->who), reason = arena_strdup(g->a, x->reason);
    struct str service = arena_strdup(g->a, x->service);
    if (!m->written_off || !at || !who.ptr || !reason.ptr || !service.ptr)
        return NULL;
    embertree__ledger_accepted__init(at);
    at->at_ms = x->at_ms;
    at->shard = g->shard;
    at->who = pack_str(who);
    at->reason = pack_str(reason);
    at->service = pack_str(service);
    m->written_off[m->n_written_off++] = at;
    return at;
}

/* Of very many the newest are not told, but their sums are in the last one. */
static int add_accepted(void *cookie, const struct ledger_accepted *x, struct err *e)
{
    struct gather *g = cookie;
    Embertree__LedgerTenant *m = g->accepted_of;
    Embertree__LedgerAccepted *at = m->n_written_off < ACCEPTED_MAX
                                        ? accepted_of(g, m, x)
                                        : m->written_off[m->n_written_off - 1];

    if (!at)
        return err_set(e, ERR_LIMIT, "the ledger takes more memory than a list may");
    at->places++;
    at->lost += x->lost;
    at->doubled += x->doubled;
    return 0;
}

static int add_tenant(void *cookie, struct str tenant, struct err *e)
{
    struct gather *g = cookie;
    struct ledger_tenant t;
    struct audited x = { 0 };
    int rc = store_ledger(g->v, tenant, &t, e);

    if (rc == ERR_NOT_FOUND)
        return 0;
    struct row *r = rc ? NULL : row_of(g, tenant, e);
    if (!r)
        return e->code;
    Embertree__LedgerTenant *m = &r->m;
    m->accepted += t.accepted;
    m->duplicates += t.duplicates;
    m->sealed += t.sealed;
    m->raw += t.raw;
    m->expired += t.expired;
    m->deleted += t.deleted;
    m->stored += t.stored;
    m->since_ms = MAX(m->since_ms, t.since_ms);
    m->adopting += t.adopting;
    g->accepted_of = m;
    if (store_ledger_accepted(g->v, tenant, add_accepted, g, e))
        return e->code;
    if (g->src->auditor)
        auditor_tenant(g->src->auditor, g->shard, tenant, &x);
    return add_audited(g, r, &x, e);
}

static int pack(Embertree__LedgerReply *r, struct buf *out, struct err *e)
{
    uint8_t *p = reply_room(out, embertree__ledger_reply__get_packed_size(r), e);

    if (!p)
        return e->code;
    out->len += embertree__ledger_reply__pack(r, p);
    return 0;
}

/* ---- acks ---- */

static int answer(struct store_view *v, uint64_t distributor, const Embertree__LedgerAsk *ask,
                  struct arena *a, Embertree__LedgerAcks *ret, struct err *e)
{
    struct str tenant = unpack_str(ask->tenant);
    struct acks acks;

    embertree__ledger_acks__init(ret);
    if (store_acks(v, distributor, ask->epoch, tenant, &acks, e))
        return e->code;
    ret->count = acks.count;
    ret->high = acks.high;
    ret->low = acks.low;
    ret->known = ARENA_ARRAY(a, protobuf_c_boolean, ask->n_write_ids + 1);
    if (!ret->known)
        return err_set(e, ERR_LIMIT, "%zu write ids are too many", ask->n_write_ids);
    for (size_t i = 0; i < ask->n_write_ids; i++) {
        bool known = false;
        if (ask->write_ids[i].len != 16)
            return err_set(e, ERR_INPUT, "a write id of %zu bytes", ask->write_ids[i].len);
        if (store_acks_known(v, tenant, ask->write_ids[i].data, &known, e))
            return e->code;
        ret->known[ret->n_known++] = known;
    }
    return 0;
}

/* The place of the shard that a question is about, in src. */
static int place_of(const Embertree__LedgerRequest *in, const struct read_source *src, uint32_t ask,
                    size_t *ret, struct err *e)
{
    uint32_t shard =
        in->n_shards == 1 ? in->shards[0] : ask; /* with one shard, ask->shard may be unset */

    for (size_t i = 0; i < src->len; i++)
        if (src->numbers[i] == shard) {
            *ret = i;
            return 0;
        }
    return err_set(e, ERR_INPUT,
                   "a question about shard %" PRIu32 ", which is not one of those named", shard);
}

/* Questions about acks, and their answers. */
struct asked {
    const Embertree__LedgerRequest *in;
    struct arena *a;
    size_t *places;             /* of each question: which of the stores it is about */
    Embertree__LedgerAcks *ret; /* of each question */
    int64_t deleted_ms;         /* of the store that was answered for last */
};

/* Answers all questions about the store at one place, in one view. */
static int answer_shard(struct asked *q, struct store *s, size_t place, struct err *e)
{
    struct store_view *v = store_view_get(s);
    int rc = store_acks_deleted(v, &q->deleted_ms, e);

    for (size_t i = 0; !rc && i < q->in->n_asks; i++) {
        if (q->places[i] != place)
            continue;
        rc = answer(v, q->in->distributor, q->in->asks[i], q->a, &q->ret[i], e);
        q->ret[i].deleted_ms = q->deleted_ms;
    }
    store_view_put(v);
    return rc;
}

static int run_acks(const Embertree__LedgerRequest *in, const struct read_source *src,
                    struct arena *a, struct buf *out, struct err *e)
{
    Embertree__LedgerReply r = EMBERTREE__LEDGER_REPLY__INIT;
    struct asked q = { .in = in,
                       .a = a,
                       .places = ARENA_ARRAY(a, size_t, in->n_asks + 1),
                       .ret = ARENA_ARRAY(a, Embertree__LedgerAcks, in->n_asks + 1) };
    int rc = 0;

    r.acks = ARENA_ARRAY(a, Embertree__LedgerAcks *, in->n_asks + 1);
    if (!q.ret || !q.places || !r.acks)
        return err_set(e, ERR_LIMIT, "%zu questions are too many", in->n_asks);
    for (size_t i = 0; !rc && i < in->n_asks; i++) {
        rc = place_of(in, src, in->asks[i]->shard, &q.places[i], e);
        r.acks[r.n_acks++] = &q.ret[i];
    }
    for (size_t i = 0; !rc && i < src->len; i++)
        rc = answer_shard(&q, src->stores[i], i, e);
    r.deleted_ms = q.deleted_ms;
    r.shards = (uint32_t)src->len;
    return rc ? rc : pack(&r, out, e);
}

int ledger_run(const struct read_msg *m, const struct read_source *src, struct arena *a,
               struct buf *out, struct err *e)
{
    Embertree__LedgerReply r = EMBERTREE__LEDGER_REPLY__INIT;
    struct gather g = { .src = src, .a = a, .rows = map_str_new() };
    int rc = 0;

    if (m->ledger) {
        map_str_free(g.rows);
        return run_acks(m->ledger, src, a, out, e);
    }
    for (size_t i = 0; i < src->len && !rc; i++) {
        g.v = store_view_get(src->stores[i]);
        g.shard = src->numbers[i];
        rc = m->query.tenant.len ? add_tenant(&g, m->query.tenant, e)
                                 : store_ledger_tenants(g.v, add_tenant, &g, e);
        store_view_put(g.v);
    }
    r.tenants = g.all.ptr;
    r.n_tenants = g.all.len;
    r.shards = (uint32_t)src->len;
    if (!rc)
        rc = pack(&r, out, e);
    vec_free(&g.all);
    map_str_free(g.rows);
    return rc;
}

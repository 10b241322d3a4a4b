/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_accept: a person's word that what is lost is lost.
 *
 *   loop: unpack, ask the auditor which services differ ──> pool: walk them, in steps
 *     ──> each shard's thread: store_ledger_accept, one batch ──> loop: reply, the metric falls
 *
 * Only differences that the auditor has shown are accepted, so an operator accepts only what could
 * be seen; their present values count, since the walk and the batch must agree. A second request
 * changes nothing: accepted rows do not differ any more. A new leader of a shard has not shown any
 * difference yet. The reply says so (`unseen`), since that does not mean "nothing differs".
 *
 * One at a time, the others wait in a row: where shards move a querier asks for each by itself, all
 * at once.
 */
#include "ingester/admin/rpc_accept.h"

#include "common/base/mem.h"
#include "common/obs/log.h"
#include "common/store/kv/cold_read.h"
#include "common/store/ledger/ledger.h"
#include "ingester/admin/accept_msg.h"
#include "ingester/background/auditor.h"
#include "ingester/shard/shards.h"
#include "proto/ledger.pb-c.h"

#define ACCEPT_MAGIC MAGIC('i', 'a', 'c', 'c')
#define STEP_ROWS    4096
#define DEEP_ROWS    50000 /* as the auditor's */
#define WAITING_MAX  (4 * SHARDS_MAX)

struct accepts {
    struct list row; /* of struct accept; the first one is at work */
    size_t len;
    bool working;
};

struct accept;
struct part { /* one shard of it */
    struct shard_task task;
    struct accept *c;
    struct shard *held; /* until the answer */
    struct audited seen;
    struct store_view *view;
    struct ledger_audit *audits[AUDITED_SCOPES];
    size_t len;  /* of audits: the last one is at work */
    size_t next; /* of seen.scopes */
    bool done;   /* the last one */
    bool looked; /* the auditor was there, or it was looked whether there is anything */
    bool unseen; /* there are rows, and the auditor was not there */
    size_t rows;
    struct err err;
};
struct accept {
    uint32_t magic;
    struct list link; /* accepts.row */
    struct ingester *in;
    struct rpc_call *call;
    struct str payload; /* the call's */
    struct arena *arena;
    struct accept_msg m; /* in the arena */
    struct part parts[SHARDS_MAX];
    size_t parts_len, at, pending;
    struct err err;
};

/* ---- the answer ------------------------------------------------------------------------------ */

static void reply(struct accept *c)
{
    Embertree__LedgerAcceptReply r = EMBERTREE__LEDGER_ACCEPT_REPLY__INIT;
    struct buf out;

    for (size_t i = 0; i < c->parts_len; i++) {
        const struct part *p = &c->parts[i];
        r.places += p->rows;
        r.more += p->seen.scopes_more;
        r.unseen += p->unseen;
        for (size_t k = 0; k < p->len; k++) {
            const struct ledger_result *x = ledger_audit_result(p->audits[k]);
            r.services += x->difference > 0;
            r.lost += x->lost;
            r.doubled += x->doubled;
        }
    }
    buf_init(&out, KIB);
    char *to = buf_room(&out, embertree__ledger_accept_reply__get_packed_size(&r) + 1);
    CHECK(to);
    out.len += embertree__ledger_accept_reply__pack(&r, (uint8_t *)(void *)to);
    rpc_reply(c->call, &out);
}

/* The next one's turn is its caller's to give: turn. */
static void end(struct accept *c)
{
    struct ingester *in = c->in;

    for (size_t i = 0; i < c->parts_len && !c->err.code; i++)
        if (c->parts[i].err.code) {
            c->err = c->parts[i].err;
            (void)err_wrap(&c->err, "shard %" PRIu32, shard_number(c->parts[i].held));
        }
    if (c->err.code) {
        ingester_refused(&in->metrics, c->err.code);
        rpc_fail(c->call, &c->err);
    } else {
        reply(c);
    }
    for (size_t i = 0; i < c->parts_len; i++) {
        struct part *p = &c->parts[i];
        for (size_t k = 0; k < p->len; k++)
            ledger_audit_free(p->audits[k]);
        if (p->view)
            store_view_put(p->view);
        shards_put(in->shards, p->held);
    }
    arena_free(c->arena);
    list_del(&c->link);
    in->accepts->len--;
    in->accepts->working = false;
    c->magic = 0;
    xfree(c);
}

/* ---- writing it down: each shard's thread ---------------------------------------------------- */

static void on_shard(struct shard_task *t, struct store *s)
{
    struct part *p = container_of(t, struct part, task);
    const struct ledger_accept x = {
        .audits = p->audits, .audits_len = p->len, .who = p->c->m.who, .reason = p->c->m.reason
    };

    if (store_ledger_accept(s, &x, &p->rows, &p->err) == 0)
        err_clear(&p->err);
}

static void turn(struct accepts *a);

static void on_shard_done(struct shard_task *t)
{
    struct part *p = container_of(t, struct part, task);
    struct accept *c = p->c;
    struct accepts *row = c->in->accepts;
    struct str tenant = c->m.tenant;

    CHECK(c->magic == ACCEPT_MAGIC);
    if (!p->err.code) {
        if (p->rows)
            log_warn("a difference of the ledger was accepted",
                     KV_U64("shard", shard_number(p->held)), KV_STR("tenant", tenant),
                     KV_U64("places", p->rows), KV_STR("by", c->m.who),
                     KV_STR("reason", c->m.reason));
        auditor_accepted(c->in->auditor, shard_number(p->held), tenant);
    }
    if (--c->pending == 0)
        end(c);
    turn(row);
}

static void write_down(struct accept *c)
{
    c->pending = 1;
    for (size_t i = 0; i < c->parts_len; i++) {
        struct part *p = &c->parts[i];
        if (!p->len)
            continue;
        c->pending++;
        p->task = (struct shard_task){ .run = on_shard, .done = on_shard_done };
        shard_run(p->held, &p->task);
    }
    if (--c->pending == 0)
        end(c);
}

/* ---- looking again: pool --------------------------------------------------------------------- */

/* Has the tenant anything here, where the auditor was not yet? */
static int look(struct part *p, struct err *e)
{
    struct ledger_tenant t;
    int rc = store_ledger(p->view, p->c->m.tenant, &t, e);

    p->unseen = !rc && t.stored > 0;
    p->looked = true;
    return rc == ERR_NOT_FOUND ? 0 : rc;
}

/* The next service of the part, or some rows of the one at work. */
static int walk(struct part *p, struct err *e)
{
    const struct audited *x = &p->seen;
    struct ledger_audit *a = NULL;

    if (!p->view)
        p->view = store_view_get(shard_store(p->held));
    if (!p->looked)
        return look(p, e);
    if (p->len && !p->done)
        return store_ledger_audit(p->audits[p->len - 1], STEP_ROWS, DEEP_ROWS, &p->done, e);
    int rc = store_ledger_of(p->view, x->tenant, x->scopes[p->next++], &a, e);
    if (!rc && a) {
        p->audits[p->len++] = a;
        p->done = false;
    }
    return rc;
}

static bool walked(const struct part *p)
{
    return p->looked && p->next == p->seen.scopes_len && (!p->len || p->done);
}

static void walk_work(void *cookie)
{
    struct accept *c = cookie;
    struct part *p = &c->parts[c->at];
    struct cold_read reach = { .local = true };
    struct cold_read *before = cold_read_policy_set(&reach);

    CHECK(c->magic == ACCEPT_MAGIC);
    if (!walk(p, &p->err))
        err_clear(&p->err);
    (void)cold_read_policy_set(before);
}

static void step(struct accept *c);

static void on_walked(void *cookie)
{
    struct accept *c = cookie;
    struct accepts *row = c->in->accepts;

    CHECK(c->magic == ACCEPT_MAGIC);
    step(c);
    turn(row);
}

static void step(struct accept *c)
{
    while (c->at < c->parts_len && !c->parts[c->at].err.code && walked(&c->parts[c->at]))
        c->at++;
    if (c->in->draining)
        (void)err_set(&c->err, ERR_UNAVAILABLE, "the ingester is stopping");
    else if (atomic_load_explicit(rpc_call_canceled(c->call), memory_order_relaxed))
        (void)err_set(&c->err, ERR_CANCELED, "the caller gave up");
    if (c->err.code || (c->at < c->parts_len && c->parts[c->at].err.code)) {
        end(c);
    } else if (c->at == c->parts_len) {
        write_down(c);
    } else if (!pool_submit(c->in->ctx->pool, c->in->ctx->loop, walk_work, on_walked, c)) {
        (void)err_set(&c->err, ERR_BUSY, "too many jobs wait for a processor");
        end(c);
    }
}

/* ---- requests: loop -------------------------------------------------------------------------- */

static int start(struct accept *c, struct err *e)
{
    struct shard *all[SHARDS_MAX];

    if (accept_msg_decode(c->payload, c->arena, &c->m, e))
        return e->code;
    if (!c->in->auditor)
        return err_set(e, ERR_UNIMPLEMENTED, "this ingester has no auditor");
    int n = shards_get_all(c->in->shards, c->m.shards, c->m.shards_len, all, e);
    if (n < 0)
        return e->code;
    c->parts_len = (size_t)n;
    for (size_t i = 0; i < c->parts_len; i++) {
        struct part *p = &c->parts[i];
        p->c = c;
        p->held = all[i];
        auditor_tenant(c->in->auditor, shard_number(all[i]), c->m.tenant, &p->seen);
        p->looked = p->seen.at_ms != 0;
    }
    return 0;
}

static void turn(struct accepts *a)
{
    struct err e;

    while (!a->working && !list_empty(&a->row)) {
        struct accept *c = container_of(a->row.next, struct accept, link);

        a->working = true;
        c->arena = arena_new(accept_msg_arena_bytes(c->payload.len));
        if (start(c, &e)) {
            c->err = e;
            end(c);
        } else {
            step(c);
        }
    }
}

static void on_accept(void *cookie, struct rpc_call *call, struct str payload)
{
    struct ingester *in = cookie;
    struct err e;

    CHECK(in->magic == INGESTER_MAGIC);
    if (in->accepts->len >= WAITING_MAX || in->draining) {
        (void)err_set(&e, ERR_BUSY, "%zu accept differences here already; try again",
                      in->accepts->len);
        ingester_refused(&in->metrics, e.code);
        rpc_fail(call, &e);
        return;
    }
    struct accept *c = XNEW(struct accept);
    *c = (struct accept){ .magic = ACCEPT_MAGIC, .in = in, .call = call, .payload = payload };
    list_add_tail(&in->accepts->row, &c->link);
    in->accepts->len++;
    turn(in->accepts);
}

void rpc_accept_serve(struct ingester *in)
{
    in->accepts = XNEW(struct accepts);
    list_init(&in->accepts->row);
    rpc_serve(in->node, RPC_LEDGER_ACCEPT, on_accept, in);
}

bool rpc_accept_idle(const struct ingester *in)
{
    return !in->accepts || list_empty(&in->accepts->row);
}

void rpc_accept_free(struct ingester *in)
{
    CHECK(rpc_accept_idle(in));
    xfree(in->accepts);
    in->accepts = NULL;
}

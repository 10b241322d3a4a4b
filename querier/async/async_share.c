/* SPDX-License-Identifier: Apache-2.0
 *
 * async_share: each write is a call of its own; its `done` is called when it ended, with or without
 * success.
 *
 * A call that timed out may still be carried out, and late: after the call that followed it. So "in
 * progress" is a document that must be new, and a late one is refused. Otherwise other queriers
 * would see a query that ended as in progress, and in the end as lost.
 */
#include "querier/async/async_share.h"

#include "common/base/mem.h"
#include "common/base/rd.h"
#include "common/base/wr.h"
#include "common/model/shard.h"
#include "common/obs/log.h"
#include "common/store/delete/tenant_doc.h"
#include "proto/doc.pb-c.h"

#define CALL_MS       5000
#define SWEEP_EVERY_S 60
#define COST_PER_BYTE 3    /* of a decoded reply: text in the arena, once */
#define SCOPED        0x80 /* of a status: a fingerprint follows */

enum doc_op { DOC_GET, DOC_LIST, DOC_PUT, DOC_DELETE }; /* travels */

struct share {
    struct querier *qr;
    struct list calls; /* of struct share_call */
    uint64_t swept_ns;
};
struct share_call {
    struct list link;
    struct share *share;
    struct route_call *call;
    void (*done)(void *cookie);
    void *cookie;
    char *tenant; /* owned; of a sweep, else NULL */
    uint64_t keep_ms;
};

static ProtobufCBinaryData out_str(struct str s)
{
    return (ProtobufCBinaryData){ .len = s.len, .data = (uint8_t *)(uintptr_t)s.ptr };
}

static struct str in_str(ProtobufCBinaryData b)
{
    return str_n(b.data, b.len);
}

struct share *share_new(struct querier *qr)
{
    struct share *s = XNEW(struct share);

    s->qr = qr;
    list_init(&s->calls);
    return s;
}

static void call_free(struct share_call *c)
{
    list_del(&c->link);
    xfree(c->tenant);
    xfree(c);
}

void share_free(struct share *s)
{
    if (!s)
        return;
    while (!list_empty(&s->calls)) {
        struct share_call *c = container_of(s->calls.next, struct share_call, link);
        route_cancel(c->call);
        call_free(c);
    }
    xfree(s);
}

/* Packs the request with its shard; returns the target that has the shard. */
static size_t pack(const struct querier *qr, struct str tenant, Embertree__DocRequest *r,
                   struct buf *out)
{
    r->tenant = out_str(tenant);
    r->kind = DOC_RESULT;
    r->shard = shard_of(tenant, STR(""), MAX(route_shards(qr->route), 1u));
    size_t size = embertree__doc_request__get_packed_size(r);
    buf_init(out, size);
    char *p = buf_room(out, size);
    CHECK(p);
    out->len += embertree__doc_request__pack(r, (uint8_t *)(void *)p);
    return route_target(qr->route, r->shard);
}

static struct share_call *start(struct share *s, struct str tenant, Embertree__DocRequest *r,
                                rpc_done_fn done)
{
    struct share_call *c = XNEW(struct share_call);
    struct buf payload;
    size_t target = pack(s->qr, tenant, r, &payload);

    c->share = s;
    list_init(&c->link);
    list_add_tail(&s->calls, &c->link);
    c->call = route_ask(s->qr->route,
                        &(struct route_query){ .target = target,
                                               .method = RPC_DOC,
                                               .deadline_ms = CALL_MS,
                                               .done = done,
                                               .cookie = c },
                        &payload);
    return c;
}

static void on_done(void *cookie, struct str reply, const struct err *err)
{
    struct share_call *c = cookie;
    void (*done)(void *cookie) = c->done;
    void *who = c->cookie;

    (void)reply;
    if (err && err->code != ERR_NOT_FOUND)
        log_debug("a background query is known to its querier only", KV_ERR(err));
    call_free(c);
    if (done)
        done(who);
}

/* The scope of a query without an identity. */
static const uint8_t unscoped[SCOPE_BYTES];

static bool is_scoped(const uint8_t *scope)
{
    return memcmp(scope, unscoped, SCOPE_BYTES) != 0;
}

void share_put(struct share *s, struct str tenant, struct str id, const struct shared *what,
               void (*done)(void *cookie), void *cookie)
{
    Embertree__DocRequest r = EMBERTREE__DOC_REQUEST__INIT;
    struct shared x = *what;
    struct buf meta;

    if (x.result.len > DOC_BODY_MAX) {
        x.status = ASYNC_FAILURE;
        x.error = STR("the result has over 16 MiB: only the querier that was asked first has it");
        x.result = STR("");
    }
    buf_init(&meta, 1 + SCOPE_BYTES + ERR_TEXT_MAX);
    wr_u8(&meta, (uint8_t)(x.status | (is_scoped(x.scope) ? SCOPED : 0)));
    if (is_scoped(x.scope))
        buf_add(&meta, x.scope, SCOPE_BYTES);
    buf_add_str(&meta, str_sub(x.error, 0, ERR_TEXT_MAX));
    CHECK(buf_ok(&meta));
    r.op = DOC_PUT;
    r.id = out_str(id);
    r.meta = out_str(buf_str(&meta));
    r.body = out_str(x.result);
    r.seen = x.status == ASYNC_IN_PROGRESS ? 0 : DOC_ANY_REVISION;
    r.docs_max = SHARE_DOCS_MAX;
    r.bytes_max = (uint64_t)SHARE_DOCS_MAX * DOC_BODY_MAX;
    struct share_call *c = start(s, tenant, &r, on_done);
    c->done = done;
    c->cookie = cookie;
    buf_deinit(&meta);
}

void share_delete(struct share *s, struct str tenant, struct str id)
{
    Embertree__DocRequest r = EMBERTREE__DOC_REQUEST__INIT;

    r.op = DOC_DELETE;
    r.id = out_str(id);
    (void)start(s, tenant, &r, on_done);
}

static void on_listed(void *cookie, struct str reply, const struct err *err)
{
    struct share_call *c = cookie;
    int64_t now = clock_wall_ms(c->share->qr->ctx->env->clock);
    Embertree__DocReply *m = err ? NULL
                                 : embertree__doc_reply__unpack(
                                       NULL, reply.len, (const uint8_t *)(const void *)reply.ptr);

    for (size_t i = 0; m && i < m->n_docs; i++)
        if (m->docs[i]->updated_ms + (int64_t)c->keep_ms < now)
            share_delete(c->share, str_c(c->tenant), in_str(m->docs[i]->id));
    if (m)
        embertree__doc_reply__free_unpacked(m, NULL);
    call_free(c);
}

void share_sweep(struct share *s, struct str tenant, uint64_t keep_ms)
{
    Embertree__DocRequest r = EMBERTREE__DOC_REQUEST__INIT;
    uint64_t now = clock_mono_ns(s->qr->ctx->env->clock);
    struct share_call *c;

    if (s->swept_ns && now - s->swept_ns < SWEEP_EVERY_S * UINT64_C(1000000000))
        return;
    s->swept_ns = now;
    r.op = DOC_LIST;
    r.max = DOC_LIST_MAX;
    c = start(s, tenant, &r, on_listed);
    c->keep_ms = keep_ms;
    c->tenant = xmalloc(tenant.len + 1);
    memcpy(c->tenant, tenant.ptr, tenant.len);
    c->tenant[tenant.len] = '\0';
}

/* ---- what others wrote ------------------------------------------------------------------------*/

NODISCARD int share_ask(struct query *q, struct str id, struct err *e)
{
    Embertree__DocRequest r = EMBERTREE__DOC_REQUEST__INIT;
    struct fanout_call c = { .method = RPC_DOC };

    if (id.len == 0 || id.len > DOC_ID_MAX || str_find(id, '\0') >= 0)
        return err_set(e, ERR_NOT_FOUND, "there is no such query");
    r.op = DOC_GET;
    r.id = out_str(id);
    query_calls_reset(q);
    c.ingester = pack(q->qr, q->tenants[0], &r, &c.payload);
    buf_init(&c.reply, 0);
    vec_push(&q->calls, c);
    q->allow_partial = false;
    return 0;
}

static void *arena_take(void *cookie, size_t n)
{
    return arena_alloc(cookie, n);
}

static void arena_leave(void *cookie, void *p)
{
    (void)cookie, (void)p;
}

static bool read_meta(struct str meta, const uint8_t **ret_scope, struct shared *ret)
{
    struct rd r = rd_of(meta);
    struct str scope = { (const char *)unscoped, SCOPE_BYTES };
    uint8_t status;

    if (!rd_u8(&r, &status) || (status & SCOPED && !rd_bytes(&r, SCOPE_BYTES, &scope)))
        return false;
    *ret_scope = (const uint8_t *)scope.ptr;
    ret->status = (enum async_status)(status & ~SCOPED);
    return ret->status <= ASYNC_FAILURE && rd_bytes(&r, rd_left(&r), &ret->error);
}

NODISCARD int share_read(struct query *q, struct str id, const uint8_t *scope, struct shared *ret,
                         struct err *e)
{
    struct fanout_call *c = &q->calls.ptr[0];

    CHECK(q->calls.len == 1);
    if (query_take(q, COST_PER_BYTE * c->reply.len, e))
        return e->code;
    if (!q->data)
        q->data = arena_new(q->qr->query_bytes_max);
    ProtobufCAllocator alloc = { arena_take, arena_leave, q->data };
    const Embertree__DocReply *m = embertree__doc_reply__unpack(
        &alloc, c->reply.len, (const uint8_t *)(const void *)c->reply.ptr);
    *ret = (struct shared){ 0 };
    if (!m || m->n_docs != 1 || !read_meta(in_str(m->docs[0]->meta), &ret->scope, ret))
        return err_set(e, ERR_CORRUPT, "a shared result of ingester %zu cannot be read",
                       c->ingester);
    /* Word by word what an ingester says of a document that is not there. */
    if (memcmp(ret->scope, scope, SCOPE_BYTES) != 0)
        return err_set(e, ERR_NOT_FOUND, "%s %zu: there is no \"%.*s\"",
                       route_moves(q->qr->route) ? "shard" : "ingester", c->ingester, STR_ARG(id));
    ret->result = in_str(m->docs[0]->body);
    ret->updated_ms = m->docs[0]->updated_ms;
    return 0;
}

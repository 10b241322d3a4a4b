/* SPDX-License-Identifier: Apache-2.0
 *
 * docs.c: one RPC_DOC to the ingester that has the tenant's home shard, and its reply.
 *
 * A document has one home, so a question is never partial: allow_partial is switched off. Writes
 * send the revision that was seen, and the ingester refuses them with ERR_CONFLICT or ERR_EXISTS if
 * the document has another. Replies are decoded into q->data.
 */
#include "querier/query/docs.h"

#include "common/model/shard.h"
#include "proto/doc.pb-c.h"

#define COST_PER_BYTE 16 /* of a decoded reply */

enum doc_op { DOC_GET, DOC_LIST, DOC_PUT, DOC_DELETE }; /* travels */

/* ---- questions --------------------------------------------------------------------------------*/

static ProtobufCBinaryData out_str(struct str s)
{
    return (ProtobufCBinaryData){ .len = s.len, .data = (uint8_t *)(uintptr_t)s.ptr };
}

static int ask(struct query *q, Embertree__DocRequest *r, struct err *e)
{
    const struct querier *qr = q->qr;

    if (q->tenants_len != 1)
        return err_set(e, ERR_INPUT, "this is of one tenant, X-Scope-OrgID names %zu",
                       q->tenants_len);
    r->tenant = out_str(q->tenants[0]);
    r->shard = shard_of(q->tenants[0], STR(""), MAX(route_shards(qr->route), 1u));
    size_t home = route_target(qr->route, r->shard),
           size = embertree__doc_request__get_packed_size(r);
    struct fanout_call c = { .ingester = home, .method = RPC_DOC };
    query_calls_reset(q);
    buf_init(&c.payload, size);
    buf_init(&c.reply, 0);
    char *p = buf_room(&c.payload, size);
    CHECK(p);
    c.payload.len += embertree__doc_request__pack(r, (uint8_t *)(void *)p);
    vec_push(&q->calls, c);
    q->allow_partial = false;
    return 0;
}

NODISCARD int docs_ask_list(struct query *q, enum doc_kind kind, struct err *e)
{
    return docs_ask_page(q, kind, STR(""), e);
}

NODISCARD int docs_ask_page(struct query *q, enum doc_kind kind, struct str after, struct err *e)
{
    Embertree__DocRequest r = EMBERTREE__DOC_REQUEST__INIT;

    r.op = DOC_LIST;
    r.kind = kind;
    r.id = out_str(after);
    r.max = DOC_LIST_MAX;
    return ask(q, &r, e);
}

NODISCARD int docs_ask_put(struct query *q, enum doc_kind kind, const struct docs_item *item,
                           uint64_t seen, uint64_t docs_max, struct err *e)
{
    Embertree__DocRequest r = EMBERTREE__DOC_REQUEST__INIT;

    r.op = DOC_PUT;
    r.kind = kind;
    r.id = out_str(item->id);
    r.meta = out_str(item->meta);
    r.seen = seen;
    r.docs_max = docs_max;
    r.bytes_max = DOC_BODY_MAX;
    return ask(q, &r, e);
}

static int ask_delete(struct query *q, enum doc_kind kind, struct str id, bool gone_ok,
                      struct err *e)
{
    Embertree__DocRequest r = EMBERTREE__DOC_REQUEST__INIT;

    r.op = DOC_DELETE;
    r.kind = kind;
    r.id = out_str(id);
    r.gone_ok = gone_ok;
    return ask(q, &r, e);
}

NODISCARD int docs_ask_delete(struct query *q, enum doc_kind kind, struct str id, struct err *e)
{
    return ask_delete(q, kind, id, false, e);
}

NODISCARD int docs_ask_drop(struct query *q, enum doc_kind kind, struct str id, struct err *e)
{
    return ask_delete(q, kind, id, true, e);
}

/* ---- the answer -------------------------------------------------------------------------------*/

/* protobuf-c's allocations come from the query's arena of replies. */
static void *arena_take(void *cookie, size_t n)
{
    return arena_alloc(cookie, n);
}

static void arena_leave(void *cookie, void *p)
{
    (void)cookie, (void)p;
}

static struct str in_str(ProtobufCBinaryData b)
{
    return str_n(b.data, b.len);
}

NODISCARD int docs_list(struct query *q, struct docs *ret, struct err *e)
{
    CHECK(q->calls.len == 1);
    struct fanout_call *c = &q->calls.ptr[0];

    if (query_take(q, COST_PER_BYTE * c->reply.len, e))
        return e->code;
    ProtobufCAllocator alloc = { arena_take, arena_leave, query_data(q) };
    const Embertree__DocReply *m = embertree__doc_reply__unpack(
        &alloc, c->reply.len, (const uint8_t *)(const void *)c->reply.ptr);
    struct docs_item *items = m ? ARENA_ARRAY(q->data, struct docs_item, m->n_docs + 1) : NULL;
    if (!items)
        return err_set(e, ERR_CORRUPT, "reply of ingester %zu cannot be read", c->ingester);
    for (size_t i = 0; i < m->n_docs; i++)
        items[i] = (struct docs_item){ in_str(m->docs[i]->id), in_str(m->docs[i]->meta),
                                       m->docs[i]->revision };
    *ret = (struct docs){ items, m->n_docs, m->more };
    return 0;
}

const struct docs_item *docs_find(const struct docs *d, struct str id)
{
    for (size_t i = 0; i < d->len; i++)
        if (str_eq(d->at[i].id, id))
            return &d->at[i];
    return NULL;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_doc: one document at a time.
 *
 *   get, list    loop: unpack ─> pool: a view ─> loop: reply
 *   put, delete  loop: unpack ─> the shard's thread, an fsynced batch ─> loop: reply
 *
 * A delete that finds nothing wrote nothing, so what it says is confirmed as a read is: one who was
 * deposed and does not know yet may lack what was put since.
 *
 * At most DOCS_AT_WORK calls at once, each with a request and a reply of at most a document: that
 * bounds the memory.
 */
#include "ingester/admin/rpc_doc.h"

#include "common/base/mem.h"
#include "common/store/delete/tenant_doc.h"
#include "ingester/base/disk.h"
#include "ingester/base/unpack.h"
#include "ingester/replicas/replicas.h"
#include "ingester/shard/shards.h"
#include "proto/doc.pb-c.h"

#define DOC_MAGIC    MAGIC('i', 'd', 'o', 'c')
#define DOCS_AT_WORK 8
#define ARENA_MAX    (DOC_BODY_MAX + 4 * MIB)
#define REPLY_MAX    (DOC_BODY_MAX + 2 * MIB)

enum op { OP_GET, OP_LIST, OP_PUT, OP_DELETE };

struct doc_call {
    uint32_t magic;
    struct ingester *in;
    struct rpc_call *call;
    struct arena *arena;
    struct shard *shard; /* held */
    struct shard_task task;
    enum op op;
    struct doc_name name;
    const Embertree__DocRequest *request; /* in the arena */
    struct doc doc;
    struct doc_list list;
    struct err err;
};

static void put_doc(const struct doc *d, Embertree__Doc *ret)
{
    embertree__doc__init(ret);
    ret->id = pack_str(d->id);
    ret->created_ms = d->created_ms;
    ret->updated_ms = d->updated_ms;
    ret->revision = d->revision;
    ret->bytes = d->bytes;
    ret->meta = pack_str(d->meta);
    ret->body = pack_str(d->body);
}

static void pack_reply(const struct doc_call *d, struct buf *out)
{
    Embertree__DocReply r = EMBERTREE__DOC_REPLY__INIT;
    size_t n = d->op == OP_LIST ? d->list.at.len : d->op != OP_DELETE;
    Embertree__Doc *all = xcalloc(n + 1, sizeof(*all));
    Embertree__Doc **at = xcalloc(n + 1, sizeof(*at));

    for (size_t i = 0; i < n; i++) {
        put_doc(d->op == OP_LIST ? &d->list.at.ptr[i] : &d->doc, &all[i]);
        at[i] = &all[i];
    }
    r.docs = at;
    r.n_docs = n;
    r.more = d->list.more;
    buf_init(out, REPLY_MAX);
    char *p = buf_room(out, embertree__doc_reply__get_packed_size(&r));
    if (p)
        out->len += embertree__doc_reply__pack(&r, (uint8_t *)(void *)p);
    xfree(all);
    xfree(at);
}

static void end(void *cookie)
{
    struct doc_call *d = cookie;
    struct ingester *in = d->in;
    struct buf reply;

    CHECK(d->magic == DOC_MAGIC);
    if (!d->err.code) {
        pack_reply(d, &reply);
        if (buf_ok(&reply))
            rpc_reply(d->call, &reply);
        else
            (void)err_set(&d->err, ERR_LIMIT, "the list of documents has over %zu bytes",
                          (size_t)REPLY_MAX);
    }
    if (d->err.code) {
        ingester_refused(&in->metrics, d->err.code);
        rpc_fail(d->call, &d->err);
    }
    shards_put(in->shards, d->shard);
    doc_list_deinit(&d->list);
    arena_free(d->arena);
    in->docs_running--;
    d->magic = 0;
    xfree(d);
}

/* ---- reading: pool --------------------------------------------------------------------------- */

static void look(void *cookie)
{
    struct doc_call *d = cookie;
    struct store_view *v = store_view_get(shard_store(d->shard));
    int rc = d->op == OP_GET
                 ? store_doc_get(v, &d->name, d->arena, &d->doc, &d->err)
                 : store_doc_list(v, &d->name, d->request->max, d->arena, &d->list, &d->err);

    store_view_put(v);
    if (!rc)
        err_clear(&d->err);
}

static void confirmed(void *cookie, const struct err *e)
{
    struct doc_call *d = cookie;

    if (e)
        d->err = *e;
    end(d);
}

/* Loop. */
static void looked(void *cookie)
{
    struct doc_call *d = cookie;

    if (d->in->replicas)
        replicas_confirm(d->in->replicas, &d->shard, 1, confirmed, d);
    else
        end(d);
}

/* ---- writing: the shard's thread ------------------------------------------------------------- */

static void write_doc(struct shard_task *t, struct store *s)
{
    struct doc_call *d = container_of(t, struct doc_call, task);
    const struct doc_put put = {
        .name = d->name,
        .meta = unpack_str(d->request->meta),
        .body = unpack_str(d->request->body),
        .seen = d->request->seen,
        .limits = { .docs = d->request->docs_max, .bytes = d->request->bytes_max },
    };
    int rc = d->op == OP_DELETE ? store_doc_delete(s, &d->name, &d->err)
                                : store_doc_put(s, &put, &d->doc, &d->err);

    if (!rc)
        err_clear(&d->err);
}

static void on_written(struct shard_task *t)
{
    struct doc_call *d = container_of(t, struct doc_call, task);

    if (d->op != OP_DELETE || d->err.code != ERR_NOT_FOUND) {
        end(d);
        return;
    }
    if (d->request->gone_ok)
        err_clear(&d->err);
    looked(d);
}

/* ---- requests: loop -------------------------------------------------------------------------- */

static int take(struct doc_call *d, struct str payload, struct err *e)
{
    ProtobufCAllocator alloc = unpack_allocator(d->arena);

    d->request = embertree__doc_request__unpack(&alloc, payload.len,
                                                (const uint8_t *)(const void *)payload.ptr);
    if (!d->request)
        return unpack_failed("document request", payload, d->arena, e);
    if (d->request->op > OP_DELETE)
        return err_set(e, ERR_UNIMPLEMENTED, "documents have no operation %" PRIu32,
                       d->request->op);
    d->op = (enum op)d->request->op;
    d->name = (struct doc_name){ .tenant = unpack_str(d->request->tenant),
                                 .kind = (enum doc_kind)d->request->kind,
                                 .id = unpack_str(d->request->id) };
    d->shard = shards_get(d->in->shards, d->request->shard, e);
    return d->shard ? 0 : e->code;
}

static int start(struct doc_call *d, struct str payload, struct err *e)
{
    struct ingester *in = d->in;

    if (in->draining)
        return err_set(e, ERR_UNAVAILABLE, "the ingester is stopping");
    if (in->docs_running > DOCS_AT_WORK)
        return err_set(e, ERR_BUSY, "%d documents are at work already", DOCS_AT_WORK);
    d->arena = arena_new(ARENA_MAX);
    if (take(d, payload, e))
        return e->code;
    if (d->op >= OP_PUT && shard_state(d->shard)->read_only)
        return err_set(e, ERR_UNAVAILABLE, "shard %" PRIu32 " is read-only", d->request->shard);
    if (d->op == OP_PUT && disk_check(in->disk, e))
        return e->code;
    if (d->op == OP_PUT || d->op == OP_DELETE) {
        d->task = (struct shard_task){ .run = write_doc, .done = on_written };
        shard_run(d->shard, &d->task);
        return 0;
    }
    if (!pool_submit(in->ctx->pool, in->ctx->loop, look, looked, d))
        return err_set(e, ERR_BUSY, "too many jobs wait for a processor");
    return 0;
}

static void on_doc(void *cookie, struct rpc_call *call, struct str payload)
{
    struct ingester *in = cookie;
    struct doc_call *d = XNEW(struct doc_call);
    struct err e;

    CHECK(in->magic == INGESTER_MAGIC);
    *d = (struct doc_call){ .magic = DOC_MAGIC, .in = in, .call = call };
    in->docs_running++;
    if (start(d, payload, &e)) {
        d->err = e;
        end(d);
    }
}

void rpc_doc_serve(struct ingester *in)
{
    rpc_serve(in->node, RPC_DOC, on_doc, in);
}

bool rpc_doc_idle(const struct ingester *in)
{
    return in->docs_running == 0;
}

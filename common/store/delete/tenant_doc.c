/* SPDX-License-Identifier: Apache-2.0
 *
 * tenant_doc: reads and writes the documents that tenant_doc.h describes.
 *
 * The head and all chunks of a document change in one batch, so a reader with a snapshot sees a
 * document whole or not at all; chunks that a shorter body no longer needs leave in the same batch.
 * A put whose answer was lost may come again: if the stored document is what the put would write,
 * it counts as done. The number and the bytes of a kind are bounded for each tenant and counted
 * before each write.
 *
 * Threads: writes on the shard's thread; reads on any, in a view.
 */
#include "common/store/delete/tenant_doc.h"

#include "common/base/mem.h"
#include "common/base/rd.h"
#include "common/base/wr.h"
#include "common/store/state/commit.h"
#include "common/store/state/store_impl.h"
#include "common/store/state/view.h"
#include "common/store/store.h"

#define VERSION  1
#define HEAD_LEN 33
#define KEY_MAX  (1 + 255 + 2 + DOC_ID_MAX + 5)

/* ---- keys and rows --------------------------------------------------------------------------- */

struct doc_key {
    size_t len;
    char b[KEY_MAX];
};

static struct str key_of(const struct doc_key *k)
{
    return str_n(k->b, k->len);
}

static void put(struct doc_key *k, const void *p, size_t n)
{
    CHECK(n <= sizeof(k->b) - k->len);
    if (n)
        memcpy(k->b + k->len, p, n);
    k->len += n;
}

static void put_byte(struct doc_key *k, unsigned byte)
{
    char c = (char)byte;

    put(k, &c, 1);
}

/* Up to the kind: all documents of it. */
static void key_kind(struct doc_key *k, enum key_table table, const struct doc_name *n)
{
    k->len = 0;
    put_byte(k, table);
    put(k, n->tenant.ptr, n->tenant.len);
    put_byte(k, 0);
    put_byte(k, n->kind);
}

static void key_doc(struct doc_key *k, const struct doc_name *n)
{
    key_kind(k, KEY_DOC, n);
    put(k, n->id.ptr, n->id.len);
}

static void key_chunk(struct doc_key *k, const struct doc_name *n, uint32_t chunk)
{
    char number[4];

    key_kind(k, KEY_DOC_CHUNK, n);
    put(k, n->id.ptr, n->id.len);
    put_byte(k, 0);
    put_u32be(number, chunk);
    put(k, number, sizeof(number));
}

static int check_name(const struct doc_name *n, bool id, struct err *e)
{
    if (!n->tenant.len || n->tenant.len > 255 || str_find(n->tenant, '\0') >= 0)
        return err_set(e, ERR_INPUT, "a document needs a tenant");
    if (n->kind < DOC_PROFILE || n->kind > DOC_KIND_LAST)
        return err_set(e, ERR_INPUT, "documents have no kind %d", (int)n->kind);
    if (n->id.len > DOC_ID_MAX || (id && !n->id.len) || str_find(n->id, '\0') >= 0)
        return err_set(e, ERR_INPUT, "the id of a document has 1 to %d bytes, not %zu", DOC_ID_MAX,
                       n->id.len);
    return 0;
}

bool doc_row_read(struct str row, struct doc *d)
{
    struct rd r = rd_of(row);
    uint8_t version = 0;
    uint64_t created, updated;

    if (!rd_u8(&r, &version) || version != VERSION || !rd_u64be(&r, &created) ||
        !rd_u64be(&r, &updated) || !rd_u64be(&r, &d->revision) || !rd_u64be(&r, &d->bytes) ||
        d->bytes > DOC_BODY_MAX)
        return false;
    d->created_ms = (int64_t)created;
    d->updated_ms = (int64_t)updated;
    d->meta = str_sub(row, HEAD_LEN, row.len);
    return true;
}

static int damaged(struct err *e)
{
    return err_set(e, ERR_CORRUPT, "the row of a document is damaged");
}

size_t doc_chunks(uint64_t bytes)
{
    return (size_t)((bytes + DOC_CHUNK - 1) / DOC_CHUNK);
}

/* ---- reading --------------------------------------------------------------------------------- */

static int load(struct kv *kv, const struct kv_snap *snap, const struct doc_name *n,
                struct buf *row, struct doc *ret, struct err *e)
{
    struct doc_key k;

    key_doc(&k, n);
    int rc = kv_get(kv, snap, KV_META, key_of(&k), row, e);
    if (rc == ERR_NOT_FOUND)
        return err_set(e, ERR_NOT_FOUND, "there is no \"%.*s\"", STR_ARG(n->id));
    if (rc)
        return rc;
    *ret = (struct doc){ .id = n->id };
    return doc_row_read(buf_str(row), ret) ? 0 : damaged(e);
}

static int load_body(struct store_view *v, const struct doc_name *n, struct doc *d, char *to,
                     struct err *e)
{
    const size_t chunks = doc_chunks(d->bytes);
    struct doc_key k;
    struct buf chunk;
    size_t at = 0;
    int rc = 0;

    buf_init(&chunk, DOC_CHUNK);
    for (uint32_t i = 0; i < chunks && !rc; i++) {
        key_chunk(&k, n, i);
        rc = kv_get(v->kv, v->snap, KV_META, key_of(&k), &chunk, e);
        if (rc == ERR_NOT_FOUND || (!rc && chunk.len != MIN(DOC_CHUNK, d->bytes - at)))
            rc = err_set(e, ERR_CORRUPT, "part %" PRIu32 " of \"%.*s\" is missing or too short", i,
                         STR_ARG(n->id));
        if (rc)
            break;
        memcpy(to + at, chunk.ptr, chunk.len);
        at += chunk.len;
    }
    buf_deinit(&chunk);
    return rc;
}

int store_doc_get(struct store_view *v, const struct doc_name *n, struct arena *a, struct doc *ret,
                  struct err *e)
{
    struct buf row;
    char *body = NULL;

    if (check_name(n, true, e))
        return e->code;
    buf_init(&row, HEAD_LEN + DOC_META_MAX);
    int rc = load(v->kv, v->snap, n, &row, ret, e);
    if (!rc) {
        ret->meta = arena_strdup(a, ret->meta);
        body = arena_alloc(a, (size_t)ret->bytes + 1);
        if (!ret->meta.ptr || !body)
            rc = err_set(e, ERR_LIMIT, "\"%.*s\" does not fit the memory of the request",
                         STR_ARG(n->id));
    }
    if (!rc)
        rc = load_body(v, n, ret, body, e);
    ret->body = str_n(body, (size_t)ret->bytes);
    buf_deinit(&row);
    return rc;
}

static int list_row(struct arena *a, struct str id, struct str row, struct doc_list *ret,
                    struct err *e)
{
    struct doc d = { .id = arena_strdup(a, id) };

    if (!doc_row_read(row, &d))
        return damaged(e);
    d.meta = arena_strdup(a, d.meta);
    if (!d.id.ptr || !d.meta.ptr)
        return err_set(e, ERR_LIMIT, "the list does not fit the memory of the request");
    vec_push(&ret->at, d);
    return 0;
}

int store_doc_list(struct store_view *v, const struct doc_name *n, size_t max, struct arena *a,
                   struct doc_list *ret, struct err *e)
{
    const size_t head = 1 + n->tenant.len + 2;
    struct doc_key from, to;
    int rc = 0;

    if (check_name(n, false, e))
        return e->code;
    key_doc(&from, n);
    if (n->id.len)
        put_byte(&from, 0); /* behind it */
    key_kind(&to, KEY_DOC, n);
    to.b[to.len - 1]++;
    struct kv_iter *it = kv_iter_new(v->kv, v->snap, KV_META, key_of(&from), key_of(&to));
    for (; kv_iter_valid(it) && !rc; kv_iter_next(it)) {
        struct str key = kv_iter_key(it);
        if (ret->at.len >= MIN(max, DOC_LIST_MAX)) {
            ret->more = true;
            break;
        }
        rc = list_row(a, str_sub(key, head, key.len), kv_iter_value(it), ret, e);
    }
    if (!rc)
        rc = kv_iter_status(it, e);
    kv_iter_free(it);
    return rc;
}

void doc_list_deinit(struct doc_list *l)
{
    vec_free(&l->at);
}

/* ---- writing: the shard's thread ------------------------------------------------------------- */

/* What the tenant has of this kind, without document n->id. */
static int count(struct store *s, const struct doc_name *n, uint64_t *ret_docs, uint64_t *ret_bytes,
                 struct err *e)
{
    const size_t head = 1 + n->tenant.len + 2;
    struct doc_key from, to;
    int rc = 0;

    key_kind(&from, KEY_DOC, n);
    to = from;
    to.b[to.len - 1]++;
    *ret_docs = *ret_bytes = 0;
    struct kv_iter *it = kv_iter_new(s->kv, NULL, KV_META, key_of(&from), key_of(&to));
    for (; kv_iter_valid(it) && !rc; kv_iter_next(it)) {
        struct str key = kv_iter_key(it);
        struct doc d;
        if (str_eq(str_sub(key, head, key.len), n->id))
            continue;
        if (!doc_row_read(kv_iter_value(it), &d))
            rc = damaged(e);
        else
            *ret_bytes += d.bytes + d.meta.len;
        ++*ret_docs;
    }
    if (!rc)
        rc = kv_iter_status(it, e);
    kv_iter_free(it);
    return rc;
}

static int check_room(struct store *s, const struct doc_name *n, uint64_t bytes,
                      const struct doc_limits *l, struct err *e)
{
    uint64_t docs, has;

    if (count(s, n, &docs, &has, e))
        return e->code;
    if (docs >= l->docs)
        return err_set(e, ERR_RATE,
                       "there are %" PRIu64 " already, at most %" PRIu64 "; delete some first",
                       docs, l->docs);
    if (bytes > l->bytes || has > l->bytes - bytes)
        return err_set(e, ERR_RATE,
                       "%" PRIu64 " KiB more do not fit beside %" PRIu64 " KiB, at most %" PRIu64
                       " KiB; delete some first",
                       bytes / KIB, has / KIB, l->bytes / KIB);
    return 0;
}

static void delete_chunks(struct kv_batch *b, const struct doc_name *n, size_t from, size_t to)
{
    struct doc_key k;

    for (size_t i = from; i < to; i++) {
        key_chunk(&k, n, (uint32_t)i);
        kv_batch_del(b, KV_META, key_of(&k));
    }
}

static int write_doc(struct store *s, const struct doc_name *n, const struct doc *d, size_t was,
                     struct err *e)
{
    struct kv_batch *b = kv_batch_new();
    struct doc_key k;
    struct buf row;

    buf_init(&row, HEAD_LEN + DOC_META_MAX);
    wr_u8(&row, VERSION);
    wr_u64be(&row, (uint64_t)d->created_ms);
    wr_u64be(&row, (uint64_t)d->updated_ms);
    wr_u64be(&row, d->revision);
    wr_u64be(&row, d->bytes);
    buf_add_str(&row, d->meta);
    CHECK(buf_ok(&row));
    key_doc(&k, n);
    kv_batch_put(b, KV_META, key_of(&k), buf_str(&row));
    for (size_t i = 0; i < doc_chunks(d->bytes); i++) {
        key_chunk(&k, n, (uint32_t)i);
        kv_batch_put(b, KV_META, key_of(&k), str_sub(d->body, i * DOC_CHUNK, (i + 1) * DOC_CHUNK));
    }
    delete_chunks(b, n, doc_chunks(d->bytes), was);
    int rc = store_write_batch(s, b, true, e);
    kv_batch_free(b);
    buf_deinit(&row);
    return rc;
}

static bool same_body(struct store *s, const struct doc_name *n, struct str body)
{
    struct buf chunk;
    struct doc_key k;
    struct err skip;
    bool same = true;

    buf_init(&chunk, DOC_CHUNK);
    for (size_t i = 0; same && i < doc_chunks(body.len); i++) {
        key_chunk(&k, n, (uint32_t)i);
        same = kv_get(s->kv, NULL, KV_META, key_of(&k), &chunk, &skip) == 0 &&
               str_eq(buf_str(&chunk), str_sub(body, i * DOC_CHUNK, (i + 1) * DOC_CHUNK));
    }
    buf_deinit(&chunk);
    return same;
}

/* True if the stored document is the result of this very put. The answer to a put may be lost; then
 * the caller sends the put again, maybe to a new leader. */
static bool is_this_put(struct store *s, const struct doc_put *p, const struct doc *was)
{
    return was->revision && was->revision - 1 == p->seen && was->bytes == p->body.len &&
           str_eq(was->meta, p->meta) && same_body(s, &p->name, p->body);
}

int store_doc_put(struct store *s, const struct doc_put *p, struct doc *ret, struct err *e)
{
    const struct doc_name *n = &p->name;
    struct doc now = { .id = n->id }, was = { 0 };
    struct buf row;

    if (check_name(n, true, e))
        return e->code;
    if (p->meta.len > DOC_META_MAX || p->body.len > DOC_BODY_MAX)
        return err_set(e, ERR_LIMIT,
                       "a document has at most %d KiB and %d KiB of description, not "
                       "%zu and %zu",
                       (int)(DOC_BODY_MAX / KIB), (int)(DOC_META_MAX / KIB), p->body.len / KIB,
                       p->meta.len / KIB);
    buf_init(&row, HEAD_LEN + DOC_META_MAX);
    int rc = load(s->kv, NULL, n, &row, &was, e);
    bool again = !rc && is_this_put(s, p, &was);
    was.meta = STR_NULL;
    buf_deinit(&row);
    if (rc && rc != ERR_NOT_FOUND)
        return rc;
    if (again) {
        *ret = was;
        return 0;
    }
    if (rc)
        was = (struct doc){ 0 };
    if (p->seen != DOC_ANY_REVISION && p->seen != was.revision)
        return err_set(e, ERR_CONFLICT, "\"%.*s\" has revision %" PRIu64 ", not %" PRIu64,
                       STR_ARG(n->id), was.revision, p->seen);
    if (check_room(s, n, p->body.len + p->meta.len, &p->limits, e))
        return e->code;
    now.updated_ms = store_now(s);
    now.created_ms = was.revision ? was.created_ms : now.updated_ms;
    now.revision = was.revision + 1;
    now.bytes = p->body.len;
    now.meta = p->meta;
    now.body = p->body;
    if (write_doc(s, n, &now, doc_chunks(was.bytes), e))
        return e->code;
    now.meta = now.body = STR_NULL;
    *ret = now;
    return 0;
}

int store_doc_delete(struct store *s, const struct doc_name *n, struct err *e)
{
    struct doc_key k;
    struct doc was;
    struct buf row;

    if (check_name(n, true, e))
        return e->code;
    buf_init(&row, HEAD_LEN + DOC_META_MAX);
    int rc = load(s->kv, NULL, n, &row, &was, e);
    buf_deinit(&row);
    if (rc == ERR_NOT_FOUND)
        return err_set(
            e, ERR_NOT_FOUND,
            "there is no \"%.*s\"; if this was sent again, the one before has deleted it",
            STR_ARG(n->id));
    if (rc)
        return rc;
    struct kv_batch *b = kv_batch_new();
    key_doc(&k, n);
    kv_batch_del(b, KV_META, key_of(&k));
    delete_chunks(b, n, 0, doc_chunks(was.bytes));
    rc = store_write_batch(s, b, true, e);
    kv_batch_free(b);
    return rc;
}

void docs_drop(struct str tenant, struct kv_batch *b)
{
    static const enum key_table tables[] = { KEY_DOC, KEY_DOC_CHUNK };
    const struct doc_name n = { .tenant = tenant, .kind = DOC_PROFILE };
    struct doc_key from, to;
    struct err e;

    if (check_name(&n, false, &e))
        return; /* then it has none */
    for (size_t i = 0; i < ARRAY_LEN(tables); i++) {
        key_kind(&from, tables[i], &n);
        from.len--; /* all kinds */
        to = from;
        to.b[to.len - 1] = 1;
        kv_batch_del_range(b, KV_META, key_of(&from), key_of(&to));
    }
}

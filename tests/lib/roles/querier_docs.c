/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/roles/querier_docs.h"

#include "common/base/mem.h"
#include "proto/doc.pb-c.h"

enum { OP_GET, OP_LIST, OP_PUT, OP_DELETE };

static void free_doc(struct fake_doc *d)
{
    xfree(d->tenant);
    xfree(d->id);
    xfree((char *)(uintptr_t)d->meta.ptr);
    xfree((char *)(uintptr_t)d->body.ptr);
}

void fake_docs_free(struct fake_docs *d)
{
    vec_for (i, &d->at)
        free_doc(&d->at.ptr[i]);
    vec_free(&d->at);
}

static char *copy(ProtobufCBinaryData b)
{
    char *p = xmalloc(b.len + 1);

    if (b.len)
        memcpy(p, b.data, b.len);
    p[b.len] = '\0';
    return p;
}

static bool same(const char *text, ProtobufCBinaryData b)
{
    return str_eqc(str_n(b.data, b.len), text);
}

static bool is_of(const struct fake_doc *d, const Embertree__DocRequest *q)
{
    return d->kind == q->kind && same(d->tenant, q->tenant);
}

static size_t find(const struct fake_docs *d, const Embertree__DocRequest *q)
{
    size_t i = 0;

    while (i < d->at.len && !(is_of(&d->at.ptr[i], q) && same(d->at.ptr[i].id, q->id)))
        i++;
    return i;
}

static int put(struct fake_docs *d, const Embertree__DocRequest *q, struct err *e)
{
    size_t i = find(d, q);
    uint64_t revision = i < d->at.len ? d->at.ptr[i].revision : 0;

    if (q->bytes_max == 0 || q->docs_max == 0)
        return err_set(e, ERR_RATE, "nothing fits");
    if (q->seen != UINT64_MAX && q->seen != revision)
        return err_set(e, ERR_CONFLICT, "revision %" PRIu64 " is there", revision);
    struct fake_doc doc = {
        copy(q->tenant),
        copy(q->id),
        q->kind,
        revision + 1,
        { copy(q->meta), q->meta.len },
        { copy(q->body), q->body.len },
        d->now_ms,
    };
    d->puts++;
    if (i < d->at.len) {
        free_doc(&d->at.ptr[i]);
        d->at.ptr[i] = doc;
        return 0;
    }
    vec_push(&d->at, doc);
    for (i = d->at.len - 1; i > 0 && strcmp(d->at.ptr[i - 1].id, doc.id) > 0; i--)
        d->at.ptr[i] = d->at.ptr[i - 1];
    d->at.ptr[i] = doc;
    return 0;
}

static int drop(struct fake_docs *d, const Embertree__DocRequest *q, struct err *e)
{
    size_t i = find(d, q);

    if (i == d->at.len)
        return q->gone_ok ? 0
                          : err_set(e, ERR_NOT_FOUND, "there is no \"%.*s\"", (int)q->id.len,
                                    (const char *)q->id.data);
    free_doc(&d->at.ptr[i]);
    d->at.len--;
    memmove(&d->at.ptr[i], &d->at.ptr[i + 1], (d->at.len - i) * sizeof(*d->at.ptr));
    return d->raced ? drop(d, q, e) : 0;
}

static void list(const struct fake_docs *d, const Embertree__DocRequest *q, struct buf *out)
{
    Embertree__DocReply r = EMBERTREE__DOC_REPLY__INIT;
    Embertree__Doc *docs = xcalloc(d->at.len + 1, sizeof(*docs));

    r.docs = xcalloc(d->at.len + 1, sizeof(*r.docs));
    vec_for (i, &d->at) {
        const struct fake_doc *doc = &d->at.ptr[i];
        if (!is_of(doc, q) || r.n_docs == q->max)
            continue;
        Embertree__Doc *to = r.docs[r.n_docs] = &docs[r.n_docs];
        r.n_docs++;
        embertree__doc__init(to);
        to->id = (ProtobufCBinaryData){ strlen(doc->id), (uint8_t *)doc->id };
        to->meta = (ProtobufCBinaryData){ doc->meta.len, (uint8_t *)(uintptr_t)doc->meta.ptr };
        to->revision = doc->revision;
        to->updated_ms = doc->updated_ms;
    }
    char *p = buf_room(out, embertree__doc_reply__get_packed_size(&r) + 1);
    CHECK(p);
    out->len += embertree__doc_reply__pack(&r, (uint8_t *)p);
    xfree(r.docs);
    xfree(docs);
}

static int get(struct fake_docs *d, const Embertree__DocRequest *q, struct buf *out, struct err *e)
{
    Embertree__DocReply r = EMBERTREE__DOC_REPLY__INIT;
    Embertree__Doc to = EMBERTREE__DOC__INIT, *docs = &to;
    size_t i = find(d, q);

    d->gets++;
    if (i == d->at.len)
        return err_set(e, ERR_NOT_FOUND, "there is no \"%.*s\"", (int)q->id.len,
                       (const char *)q->id.data);
    const struct fake_doc *doc = &d->at.ptr[i];
    to.id = (ProtobufCBinaryData){ strlen(doc->id), (uint8_t *)doc->id };
    to.meta = (ProtobufCBinaryData){ doc->meta.len, (uint8_t *)(uintptr_t)doc->meta.ptr };
    to.body = (ProtobufCBinaryData){ doc->body.len, (uint8_t *)(uintptr_t)doc->body.ptr };
    to.revision = doc->revision;
    to.updated_ms = doc->updated_ms;
    r.docs = &docs;
    r.n_docs = 1;
    char *p = buf_room(out, embertree__doc_reply__get_packed_size(&r));
    CHECK(p);
    out->len += embertree__doc_reply__pack(&r, (uint8_t *)p);
    return 0;
}

int fake_docs_answer(struct fake_docs *d, struct str payload, struct buf *out, struct err *e)
{
    Embertree__DocRequest *q =
        embertree__doc_request__unpack(NULL, payload.len, (const uint8_t *)payload.ptr);
    int code = ERR_UNIMPLEMENTED;

    CHECK(q);
    if (q->op == OP_GET)
        code = get(d, q, out, e);
    else if (q->op == OP_PUT)
        code = put(d, q, e);
    else if (q->op == OP_DELETE)
        code = drop(d, q, e);
    else if (q->op == OP_LIST) {
        list(d, q, out);
        code = 0;
    }
    embertree__doc_request__free_unpacked(q, NULL);
    return code;
}

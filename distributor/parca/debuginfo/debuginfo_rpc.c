/* SPDX-License-Identifier: Apache-2.0
 *
 * debuginfo_rpc.c: messages as arrays of texts and numbers by field, for both upload services.
 *
 * The messages are flat and have few fields, so no table is needed to read them. The last step of
 * an upload (debuginfo_rpc_finish) claims the entry as DEBUGINFO_WRITING, moves the file on the
 * pool, and answers after its meta is on disk. Thread: the loop's.
 */
#include "distributor/parca/debuginfo/debuginfo_rpc.h"

#include "common/base/mem.h"
#include "common/base/rd.h"
#include "common/base/wr.h"

int debuginfo_rpc_read(struct str message, struct debuginfo_msg *m, struct err *e)
{
    struct rd r = rd_of(message);
    struct pb_field f;
    int got;

    *m = (struct debuginfo_msg){ 0 };
    while ((got = rd_pb(&r, &f)) > 0) {
        if (f.number >= DEBUGINFO_FIELDS)
            continue;
        if (f.wire == 2)
            m->text[f.number] = f.bytes;
        else
            m->num[f.number] = f.u64;
    }
    return got == 0 ? 0 : err_set(e, ERR_INPUT, "the message is no protobuf");
}

void debuginfo_rpc_text(struct buf *b, unsigned field, struct str s)
{
    if (s.len == 0)
        return;
    wr_varint(b, field << 3 | 2);
    wr_varint(b, s.len);
    buf_add_str(b, s);
}

void debuginfo_rpc_num(struct buf *b, unsigned field, uint64_t v)
{
    if (v == 0)
        return;
    wr_varint(b, field << 3);
    wr_varint(b, v);
}

int debuginfo_rpc_enter(const struct api_debuginfo *a, const struct http_req *r,
                        struct str *ret_tenant, struct err *e)
{
    size_t one;

    if (a->d->draining)
        return err_set(e, ERR_UNAVAILABLE, "this server is going down; try another one");
    return tenant_of(r, a->d->ctx->tenancy, 1, ret_tenant, &one, e);
}

static int take_message(struct svc_call *c, const struct parca_shape *shape, struct buf *tmp,
                        struct str *ret, struct err *e)
{
    const struct inflate_limits l = { .bytes_max = DEBUGINFO_SMALL };
    struct json_doc *doc;

    if (c->codec == SVC_PROTO)
        return svc_message(c, &l, tmp, ret, e);
    if (svc_message_json(c, &l, &doc, e))
        return e->code;
    int rc = parca_json_read(json_root(doc), shape, tmp, e);
    json_doc_free(doc);
    *ret = buf_str(tmp);
    return rc;
}

bool debuginfo_rpc_call(struct svc_call *c, const struct parca_shape *shape, struct str *tenant,
                        struct buf *tmp, struct debuginfo_msg *m)
{
    const struct api_debuginfo *a = c->cookie;
    struct str message;
    struct err e;

    buf_init(tmp, DEBUGINFO_SMALL);
    if (debuginfo_rpc_enter(a, c->r, tenant, &e) == 0 &&
        take_message(c, shape, tmp, &message, &e) == 0 && debuginfo_rpc_read(message, m, &e) == 0)
        return true;
    buf_deinit(tmp);
    svc_reply_err(c, &e);
    return false;
}

void debuginfo_rpc_reply(struct svc_call *c, const struct parca_shape *shape, struct buf *b)
{
    struct buf text;

    if (c->codec == SVC_PROTO) {
        svc_reply(c, b);
        return;
    }
    buf_init(&text, 4 * b->max);
    parca_json_write(buf_str(b), shape, &text);
    text.failed = text.failed || b->failed;
    buf_deinit(b);
    svc_reply(c, &text);
}

void debuginfo_rpc_should(struct svc_call *c, bool yes, const char *why)
{
    struct buf b;

    buf_init(&b, DEBUGINFO_SMALL);
    debuginfo_rpc_num(&b, 1, yes);
    debuginfo_rpc_text(&b, 2, str_c(why));
    debuginfo_rpc_reply(c, &parca_should_out, &b);
}

/* ---- making an upload count -------------------------------------------------------------------
 */

struct finish {
    struct debuginfo_upload up;
    struct svc_call *call;
};

static void finish_then(void *cookie, const struct err *e)
{
    struct finish *f = cookie;
    struct svc_call *c = f->call;
    struct err why = { 0 };

    if (e)
        why = *e;
    debuginfo_upload_close(&f->up);
    xfree(f);
    if (why.code)
        svc_reply_err(c, &why);
    else
        svc_reply(c, NULL);
}

void debuginfo_rpc_finish(struct svc_call *c, struct debuginfo_entry *x, struct str upload_id)
{
    struct api_debuginfo *a = c->cookie;
    struct err e;

    if (!x || x->state == DEBUGINFO_KEPT || (upload_id.len && !str_eqc(upload_id, x->upload_id))) {
        (void)err_set(&e, ERR_NOT_FOUND, "no upload of that build id is under way");
        svc_reply_err(c, &e);
        return;
    }
    if (x->state != DEBUGINFO_RECEIVED) {
        (void)err_set(&e, ERR_CONFIG, "the upload of that build id has not ended");
        svc_reply_err(c, &e);
        return;
    }
    struct finish *f = XNEW(struct finish);
    x->state = DEBUGINFO_WRITING; /* from here on it is only this writer's */
    f->call = c;
    debuginfo_upload_open(&f->up, a->d, a->index, x);
    f->up.then = finish_then;
    f->up.cookie = f;
    debuginfo_upload_keep(&f->up);
}

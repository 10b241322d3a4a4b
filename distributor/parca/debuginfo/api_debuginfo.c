/* SPDX-License-Identifier: Apache-2.0
 *
 * api_debuginfo: what agents ask before, during and after an upload.
 *
 *   Parca   ShouldInitiateUpload, InitiateUpload ─> Upload (stream) ─> MarkUploadFinished
 *   Alloy   ShouldInitiateUpload ────────────────> POST Upload/<id> ─> UploadFinished
 *           ListDebuginfo, DeleteDebuginfo
 *
 * Both end in the same entries (debuginfo.h). A file counts only once the last call said so and it
 * is in its place on disk; the answer to that call leaves afterwards. Bytes go to disk as they
 * come: of a stream one message is held, of a POST one window. Thread: the loop's. Here: Parca's.
 *
 * Protocols: parca-dev/parca at 3b5647cd9e2a, grafana/pyroscope at 3fe6a457a320 (proto/WIRE.md,
 * "Debug info upload").
 */
#include "distributor/parca/debuginfo/api_debuginfo.h"

#include "common/base/mem.h"
#include "distributor/parca/debuginfo/debuginfo_rpc.h"

#define PARCA       "/parca.debuginfo.v1alpha1.DebuginfoService/"
#define MESSAGE_MAX (16 * MIB) /* of the stream: Parca's chunks have 8 MiB */
#define STRATEGY    1          /* upload by gRPC */

static int type_of(uint64_t n, enum debuginfo_type *ret, struct err *e)
{
    if (n >= DEBUGINFO_TYPES)
        return err_set(e, ERR_INPUT, "debug info of type %" PRIu64, n);
    *ret = (enum debuginfo_type)n;
    return 0;
}

/* ---- Parca, one message each way --------------------------------------------------------------
 */

static void parca_should(struct svc_call *c)
{
    struct api_debuginfo *a = c->cookie;
    enum debuginfo_type type = DEBUGINFO_DEBUG;
    struct str tenant;
    const char *why;
    struct buf tmp;
    struct err e;
    struct debuginfo_msg m;

    if (!debuginfo_rpc_call(c, &parca_should_in, &tenant, &tmp, &m))
        return;
    if (type_of(m.num[4], &type, &e)) {
        svc_reply_err(c, &e);
    } else {
        bool yes = debuginfo_wanted(a->index, tenant, m.text[1], type, m.num[3] != 0, &why);
        debuginfo_rpc_should(c, yes, why);
    }
    buf_deinit(&tmp);
}

static int parca_begin(struct api_debuginfo *a, struct str tenant, const struct debuginfo_msg *m,
                       struct debuginfo_entry **ret, struct err *e)
{
    uint64_t most = debuginfo_opts(a->index)->file_bytes;
    enum debuginfo_type type = DEBUGINFO_DEBUG;

    if (type_of(m->num[5], &type, e))
        return e->code;
    if (m->num[2] == 0 || m->num[2] > most)
        return err_set(e, ERR_INPUT, "debug info of %" PRIu64 " bytes, want 1 to %" PRIu64,
                       m->num[2], most);
    const struct debuginfo_offer offer = { tenant, m->text[1], type, .hash = m->text[3],
                                           .force = m->num[4] != 0 };
    return debuginfo_begin(a->index, &offer, ret, e);
}

static void parca_initiate(struct svc_call *c)
{
    struct debuginfo_entry *x;
    struct buf tmp, in, out;
    struct str tenant;
    struct err e;
    struct debuginfo_msg m;

    if (!debuginfo_rpc_call(c, &parca_initiate_in, &tenant, &tmp, &m))
        return;
    if (parca_begin(c->cookie, tenant, &m, &x, &e)) {
        svc_reply_err(c, &e);
    } else {
        buf_init(&in, DEBUGINFO_SMALL);
        buf_init(&out, DEBUGINFO_SMALL);
        debuginfo_rpc_text(&in, 1, m.text[1]);
        debuginfo_rpc_text(&in, 2, str_c(x->upload_id));
        debuginfo_rpc_num(&in, 3, STRATEGY);
        debuginfo_rpc_num(&in, 5, x->m.type);
        debuginfo_rpc_text(&out, 1, buf_str(&in));
        buf_deinit(&in);
        debuginfo_rpc_reply(c, &parca_initiate_out, &out);
    }
    buf_deinit(&tmp);
}

static void parca_finished(struct svc_call *c)
{
    struct api_debuginfo *a = c->cookie;
    enum debuginfo_type type = DEBUGINFO_DEBUG;
    struct str tenant;
    struct buf tmp;
    struct err e;
    struct debuginfo_msg m;

    if (!debuginfo_rpc_call(c, &parca_finished_in, &tenant, &tmp, &m))
        return;
    if (type_of(m.num[3], &type, &e))
        svc_reply_err(c, &e);
    else
        debuginfo_rpc_finish(c, debuginfo_find(a->index, tenant, m.text[1], type), m.text[2]);
    buf_deinit(&tmp);
}

/* ---- Parca's Upload: {1 info{build_id, upload_id, type}}, then {2 chunk}* -----------------------
 */

struct stream {
    uint32_t magic;
    struct svc_call *call;
    struct api_debuginfo *a;
    struct debuginfo_upload up;
    bool open;
    struct str build_id; /* in the request's arena, as below */
    uint64_t size;
};

static void stream_end(struct stream *s, const struct err *e)
{
    struct svc_call *c = s->call;
    struct err why = { 0 };

    if (e)
        why = *e;
    if (s->open)
        debuginfo_upload_close(&s->up);
    s->magic = 0;
    xfree(s);
    svc_end(c, why.code ? &why : NULL);
}

static void stream_written(void *cookie, const struct err *e)
{
    struct stream *s = cookie;

    CHECK(s->magic == DEBUGINFO_MAGIC);
    if (e)
        stream_end(s, e);
    else
        svc_next(s->call);
}

static void stream_stored(void *cookie, const struct err *e)
{
    struct stream *s = cookie;
    struct buf b;

    CHECK(s->magic == DEBUGINFO_MAGIC);
    if (!e) {
        buf_init(&b, DEBUGINFO_SMALL);
        debuginfo_rpc_text(&b, 1, s->build_id);
        debuginfo_rpc_num(&b, 2, s->size);
        svc_send(s->call, &b);
    }
    stream_end(s, e);
}

static int stream_open(struct stream *s, struct str info, struct err *e)
{
    enum debuginfo_type type = DEBUGINFO_DEBUG;
    struct debuginfo_entry *x;
    struct str tenant;
    struct debuginfo_msg m;

    if (debuginfo_rpc_enter(s->a, s->call->r, &tenant, e) || debuginfo_rpc_read(info, &m, e) ||
        type_of(m.num[3], &type, e))
        return e->code;
    x = debuginfo_find(s->a->index, tenant, m.text[1], type);
    if (debuginfo_claim(x, m.text[2], e))
        return e->code;
    debuginfo_upload_open(&s->up, s->a->d, s->a->index, x);
    s->up.then = stream_written;
    s->up.cookie = s;
    s->open = true;
    s->build_id = str_c(x->m.build_id);
    s->build_id = arena_strdup(s->call->r->arena, s->build_id);
    return 0;
}

static void stream_on_message(struct svc_call *c, struct str message)
{
    struct stream *s = c->user;
    struct err e;
    struct debuginfo_msg m;

    CHECK(s->magic == DEBUGINFO_MAGIC);
    if (debuginfo_rpc_read(message, &m, &e)) {
        stream_end(s, &e);
    } else if (s->open && m.text[2].ptr) {
        s->size += m.text[2].len;
        debuginfo_upload_write(&s->up, m.text[2]);
    } else if (s->open || !m.text[1].ptr) {
        (void)err_set(&e, ERR_INPUT,
                      s->open ? "a second info in one upload"
                              : "an upload must begin with its info");
        stream_end(s, &e);
    } else if (stream_open(s, m.text[1], &e)) {
        stream_end(s, &e);
    } else {
        svc_next(c);
    }
}

static void stream_on_end(struct svc_call *c)
{
    struct stream *s = c->user;
    struct err e;

    if (!s->open) {
        (void)err_set(&e, ERR_INPUT, "an upload without info");
        stream_end(s, &e);
        return;
    }
    s->up.then = stream_stored;
    debuginfo_upload_end(&s->up);
}

static void stream_on_gone(struct svc_call *c, const struct err *why)
{
    stream_end(c->user, why);
}

static void parca_upload(struct svc_call *c)
{
    struct stream *s = XNEW(struct stream);

    s->magic = DEBUGINFO_MAGIC;
    s->call = c;
    s->a = c->cookie;
    c->user = s;
    c->on_message = stream_on_message;
    c->on_end = stream_on_end;
    c->on_gone = stream_on_gone;
}

/* ---- start ------------------------------------------------------------------------------------
 */

static void add_routes(struct api_debuginfo *a)
{
    static const struct {
        const char *path;
        svc_fn fn;
    } unary[] = {
        { PARCA "ShouldInitiateUpload", parca_should },
        { PARCA "InitiateUpload", parca_initiate },
        { PARCA "MarkUploadFinished", parca_finished },
    };
    struct http_server *s = a->d->ctx->http;

    svc_service(s, PARCA "*");
    for (size_t i = 0; i < ARRAY_LEN(unary); i++)
        svc_route(s, unary[i].path, SVC_PROTO | SVC_JSON, DEBUGINFO_SMALL, unary[i].fn, a);
    svc_route_stream(s, PARCA "Upload", SVC_PROTO, MESSAGE_MAX, parca_upload, a);
    api_debuginfo_alloy_routes(a);
}

int api_debuginfo_new(struct distributor *d, struct api_debuginfo **ret, struct err *e)
{
    const struct distributor_conf *c = d->conf;
    struct debuginfo_opts o = { .env = d->ctx->env,
                                .file_bytes = c->debuginfo_file_bytes,
                                .tenant_bytes = c->debuginfo_tenant_bytes,
                                .bytes = c->debuginfo_bytes,
                                .reserve = d->ctx->data->disk_reserve,
                                .stale_ms = c->debuginfo_stale_ms };
    uint64_t have, total;
    struct buf dir;
    int rc;

    *ret = NULL;
    if (d->ctx->simulated)
        return 0;
    struct api_debuginfo *a = XNEW(struct api_debuginfo);
    a->d = d;
    buf_init(&dir, DEBUGINFO_PATH_MAX);
    buf_addf(&dir, "%s/debuginfo", d->ctx->data_dir);
    buf_add_c(&dir, 0);
    o.dir = dir.ptr;
    /* As the ingester's, where nothing is configured. */
    if (o.reserve == 0 && o.env->fs->space(o.env->fs, d->ctx->data_dir, &have, &total, e) == 0)
        o.reserve = MIN(MAX(total / 50, 64 * MIB), 1024 * MIB);
    rc = debuginfo_new(&o, &a->index, e);
    buf_deinit(&dir);
    if (rc) {
        xfree(a);
        return err_wrap(e, "debug info");
    }
    *ret = a;
    add_routes(a);
    return 0;
}

void api_debuginfo_free(struct api_debuginfo *a)
{
    if (!a)
        return;
    debuginfo_free(a->index);
    xfree(a);
}

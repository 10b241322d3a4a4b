/* SPDX-License-Identifier: Apache-2.0
 *
 * api_adhoc: the same five questions by two ways in.
 *
 *   upload   loop: head ─> pool: adhoc_work_upload ─> loop: put ─> ingester: fsync ─> reply
 *   get      loop: ask ─> get ─> ingester ─> loop ─> pool: adhoc_work_view ─> loop: reply
 *   diff     the same with two
 *   list     loop: ask ─> list ─> ingester ─> loop: reply
 *   delete   loop: ask ─> delete ─> ingester: fsync ─> reply
 *
 * Documents are in the tenant's home shard (common/store/delete/tenant_doc.h). The id is made
 * here, at random, so a put that was reported as failed left at most a profile whose link no
 * client has.
 *
 * A job owns all it needs but the request, which lives until the reply. Memory is set aside before
 * it is used (adhoc_job_take), from what pushes may have.
 */
#include "distributor/adhoc/api_adhoc.h"

#include "common/base/mem.h"
#include "common/identity/scope.h"
#include "common/model/shard.h"
#include "common/store/delete/tenant_doc.h"
#include "distributor/adhoc/adhoc_job.h"
#include "distributor/adhoc/adhoc_view.h"
#include "distributor/base/left_out.h"
#include "proto/doc.pb-c.h"

#define SERVICE   "/adhocprofiles.v1.AdHocProfileService/"
#define ROUTE     "/api/v1/adhoc"
#define GROWS     8 /* a file is that much larger decoded, at first guess */
#define ARENA_MAX (256 * KIB)
#define LIST_ROOM (4 * MIB)
#define OUT_LEAST (16 * MIB)

enum doc_op { DOC_GET, DOC_LIST, DOC_PUT, DOC_DELETE };

static_assert(ADHOC_DOC_MAX == DOC_BODY_MAX, "what is packed can be stored");
static_assert(ADHOC_ULID_LEN + 1 + ADHOC_NAME_MAX <= DOC_ID_MAX, "ids fit");

/* ---- the end --------------------------------------------------------------------------------- */

static void job_reply(struct adhoc_job *job)
{
    if (!job->err.code)
        left_out_tell(job->http, job->left_out);
    if (job->err.code && job->call)
        svc_reply_err(job->call, &job->err);
    else if (job->err.code)
        http_reply_err(job->http, &job->err);
    else if (job->call)
        svc_reply(job->call, &job->out);
    else
        http_reply(job->http, 200, job->out_type, &job->out);
}

static void job_end(void *cookie)
{
    struct adhoc_job *job = cookie;
    struct distributor *d = job->d;

    CHECK(job->magic == ADHOC_MAGIC);
    if (!job->err.code && !buf_ok(&job->out))
        (void)err_set(&job->err, ERR_LIMIT, "the answer has over %zu bytes: ask for fewer nodes",
                      job->out.max);
    if (job->err.code && job->op == ADHOC_UPLOAD)
        distributor_refused(&d->metrics, &job->err, NULL);
    job_reply(job);
    for (size_t i = 0; i < ADHOC_SIDES; i++)
        buf_deinit(&job->docs[i].body);
    buf_deinit(&job->out);
    arena_free(job->arena);
    budget_release(&d->memory, job->reserved);
    if (job->tenant)
        tenant_leave(job->tenant);
    job->magic = 0;
    xfree(job);
    distributor_left(d);
}

static void job_fail(struct adhoc_job *job, const struct err *e)
{
    job->err = *e;
    job_end(job);
}

int adhoc_job_take(struct adhoc_job *job, uint64_t bytes, struct err *e)
{
    struct budget *b = &job->d->memory;
    size_t half = b->max / 2;
    size_t want = (size_t)MIN(bytes, half > job->reserved ? half - job->reserved : 0);

    if (!budget_reserve(b, want))
        return err_set(e, ERR_BUSY,
                       "pushes in work hold all the memory they may "
                       "(distributor.in_flight_bytes); try again");
    job->reserved += want;
    return 0;
}

/* ---- calls to the ingester ------------------------------------------------------------------- */

static ProtobufCBinaryData bytes_of(struct str s)
{
    return (ProtobufCBinaryData){ .len = s.len, .data = (uint8_t *)(uintptr_t)s.ptr };
}

static struct str str_of(ProtobufCBinaryData b)
{
    return str_n(b.data, b.len);
}

static void send_doc(struct adhoc_job *job, Embertree__DocRequest *m, rpc_done_fn done)
{
    struct distributor *d = job->d;
    uint32_t shard = shard_of(job->tenant_name, STR(""), MAX(route_shards(d->route), 1u));
    size_t size;
    struct buf b;
    char *p;

    m->shard = shard;
    m->tenant = bytes_of(job->tenant_name);
    m->kind = DOC_PROFILE;
    size = embertree__doc_request__get_packed_size(m);
    buf_init(&b, size);
    p = buf_room(&b, size);
    CHECK(p || !size);
    b.len += embertree__doc_request__pack(m, (uint8_t *)(void *)p);
    (void)route_ask(d->route, route_target(d->route, shard), RPC_DOC, &b, d->conf->ack_ms, done,
                    job);
}

static Embertree__DocReply *read_reply(struct adhoc_job *job, struct str reply,
                                       const struct err *err)
{
    Embertree__DocReply *m = NULL;

    CHECK(job->magic == ADHOC_MAGIC);
    if (err)
        job->err = *err;
    else
        m = embertree__doc_reply__unpack(NULL, reply.len, (const uint8_t *)(const void *)reply.ptr);
    if (!err && !m)
        (void)err_set(&job->err, ERR_INTERNAL, "the ingester's answer cannot be decoded");
    return m;
}

static void to_pool(struct adhoc_job *job, pool_fn work, pool_fn done)
{
    struct err e;

    if (distributor_submit(job->d, job->tenant, work, done, job))
        return;
    (void)err_set(&e, ERR_BUSY, "too many jobs wait for a thread; try again");
    job_fail(job, &e);
}

/* ---- get, diff ------------------------------------------------------------------------------- */

static void on_got(void *cookie, struct str reply, const struct err *err);
static void send_delete(struct adhoc_job *job);

static struct str wanted_id(const struct adhoc_job *job)
{
    return job->docs_len == 0 ? job->ask.id : job->ask.other_id;
}

static void send_get(struct adhoc_job *job)
{
    Embertree__DocRequest m = EMBERTREE__DOC_REQUEST__INIT;
    struct str id = wanted_id(job);

    m.op = DOC_GET;
    m.id = bytes_of(id);
    send_doc(job, &m, on_got);
}

static int keep_doc(struct adhoc_job *job, const Embertree__DocReply *m, struct err *e)
{
    struct adhoc_doc *doc = &job->docs[job->docs_len];
    struct adhoc_meta meta;

    if (m->n_docs != 1)
        return err_set(e, ERR_INTERNAL, "the ingester sent %zu documents", m->n_docs);
    if (adhoc_meta_read(str_of(m->docs[0]->meta), job->arena, &meta, e))
        return e->code;
    /* Word by word what an ingester says of a document that is not there. */
    if (!adhoc_job_sees(job, meta.owner))
        return err_set(e, ERR_NOT_FOUND, "there is no \"%.*s\"", STR_ARG(wanted_id(job)));
    if (adhoc_job_take(job, m->docs[0]->body.len, e))
        return e->code;
    doc->id = wanted_id(job);
    doc->meta = arena_strdup(job->arena, str_of(m->docs[0]->meta));
    if (!doc->meta.ptr || !buf_add_str(&doc->body, str_of(m->docs[0]->body)))
        return err_set(e, ERR_LIMIT, "the stored profile is too large");
    job->docs_len++;
    return 0;
}

static void on_got(void *cookie, struct str reply, const struct err *err)
{
    struct adhoc_job *job = cookie;
    Embertree__DocReply *m = read_reply(job, reply, err);
    struct err e;

    if (m && keep_doc(job, m, &e))
        job->err = e;
    if (m)
        embertree__doc_reply__free_unpacked(m, NULL);
    if (job->err.code)
        job_end(job);
    else if (job->op == ADHOC_DELETE)
        send_delete(job);
    else if (job->op == ADHOC_DIFF && job->docs_len < ADHOC_SIDES)
        send_get(job);
    else
        to_pool(job, adhoc_work_view, job_end);
}

static int ask_view(struct adhoc_job *job, struct err *e)
{
    if (adhoc_id_check(job->ask.id, e) ||
        (job->op == ADHOC_DIFF && adhoc_id_check(job->ask.other_id, e)))
        return e->code;
    if (job->ask.nodes < 0 || job->ask.nodes > ADHOC_NODES_MAX)
        return err_set(e, ERR_INPUT, "max_nodes is %" PRId64 ", want 0 to %d", job->ask.nodes,
                       ADHOC_NODES_MAX);
    send_get(job);
    return 0;
}

/* ---- list, delete ---------------------------------------------------------------------------- */

static void on_list(void *cookie, struct str reply, const struct err *err)
{
    struct adhoc_job *job = cookie;
    Embertree__DocReply *m = read_reply(job, reply, err);
    struct doc_row *rows = xcalloc(DOC_LIST_MAX + 1, sizeof(*rows));
    struct err e;
    size_t n = 0;

    for (; m && n < m->n_docs && n < DOC_LIST_MAX; n++)
        rows[n] =
            (struct doc_row){ str_of(m->docs[n]->id), str_of(m->docs[n]->meta), m->docs[n]->bytes };
    if (m && adhoc_work_list(job, rows, n, &e))
        job->err = e;
    xfree(rows);
    if (m)
        embertree__doc_reply__free_unpacked(m, NULL);
    job_end(job);
}

static int ask_list(struct adhoc_job *job, struct err *e)
{
    Embertree__DocRequest m = EMBERTREE__DOC_REQUEST__INIT;

    if (adhoc_job_take(job, LIST_ROOM, e))
        return e->code;
    m.op = DOC_LIST;
    m.max = DOC_LIST_MAX;
    send_doc(job, &m, on_list);
    return 0;
}

static void on_changed(void *cookie, struct str reply, const struct err *err)
{
    struct adhoc_job *job = cookie;
    Embertree__DocReply *m = read_reply(job, reply, err);

    if (m)
        embertree__doc_reply__free_unpacked(m, NULL);
    if (!job->err.code && job->op == ADHOC_DELETE)
        buf_add_str(&job->out, STR("{}\n"));
    job_end(job);
}

static void send_delete(struct adhoc_job *job)
{
    Embertree__DocRequest m = EMBERTREE__DOC_REQUEST__INIT;

    m.op = DOC_DELETE;
    m.id = bytes_of(job->ask.id);
    send_doc(job, &m, on_changed);
}

/* A key that sees its own uploads only: is it one of these? */
static int ask_delete(struct adhoc_job *job, struct err *e)
{
    if (adhoc_id_check(job->ask.id, e))
        return e->code;
    if (job->own)
        send_get(job);
    else
        send_delete(job);
    return 0;
}

/* ---- upload ---------------------------------------------------------------------------------- */

static void uploaded(void *cookie)
{
    struct adhoc_job *job = cookie;
    const struct adhoc_doc *doc = &job->docs[0];
    Embertree__DocRequest m = EMBERTREE__DOC_REQUEST__INIT;

    if (job->err.code) {
        job_end(job);
        return;
    }
    m.op = DOC_PUT;
    m.id = bytes_of(doc->id);
    m.meta = bytes_of(doc->meta);
    m.body = bytes_of(buf_str(&doc->body));
    m.seen = 0;
    m.docs_max = job->d->conf->adhoc_max;
    m.bytes_max = job->d->conf->adhoc_bytes_max;
    send_doc(job, &m, on_changed);
}

static int ask_upload(struct adhoc_job *job, struct err *e)
{
    struct distributor *d = job->d;
    struct str format = STR("adhoc");

    if (role_memory_check(d->ctx, e) ||
        tenant_enter(d->tenants, job->tenant_name, job->http->body.len,
                     clock_mono_ms(d->ctx->env->clock), &job->tenant, e) ||
        adhoc_job_take(job, MIN((uint64_t)job->http->body.len * GROWS, d->limits.decode_bytes), e))
        return e->code;
    metric_add(metric_at(d->metrics.requests, &format, 1), 1);
    to_pool(job, adhoc_work_upload, uploaded);
    return 0;
}

/* ---- the start ------------------------------------------------------------------------------- */

static struct adhoc_job *job_new(struct distributor *d, struct http_req *r, struct svc_call *c,
                                 enum adhoc_op op)
{
    struct adhoc_job *job = XNEW(struct adhoc_job);
    struct env *env = d->ctx->env;

    *job = (struct adhoc_job){ .magic = ADHOC_MAGIC,
                               .d = d,
                               .http = r,
                               .call = c,
                               .op = op,
                               .content_type = http_header(r, "Content-Type"),
                               .arena = arena_new(ARENA_MAX),
                               .now_ms = clock_wall_ms(env->clock),
                               .out_type = "application/json" };
    env->random(env, &job->seed, sizeof(job->seed));
    env->random(env, job->random, sizeof(job->random));
    for (size_t i = 0; i < ADHOC_SIDES; i++)
        buf_init(&job->docs[i].body, ADHOC_DOC_MAX);
    buf_init(&job->out, (size_t)MAX(d->limits.decode_bytes, OUT_LEAST));
    d->working++;
    metric_set(d->metrics.working, (int64_t)d->working);
    return job;
}

static void job_start(struct adhoc_job *job)
{
    static int (*const ask[])(struct adhoc_job *, struct err *) = {
        [ADHOC_UPLOAD] = ask_upload, [ADHOC_GET] = ask_view,      [ADHOC_LIST] = ask_list,
        [ADHOC_DIFF] = ask_view,     [ADHOC_DELETE] = ask_delete,
    };
    struct distributor *d = job->d;
    struct err e = { 0 };
    size_t one;

    if (d->draining) {
        (void)err_set(&e, ERR_UNAVAILABLE, "this server is going down; try another one");
    } else if (!tenant_of(job->http, d->ctx->tenancy, 1, &job->tenant_name, &one, &e)) {
        job->own = scope_limited(job->http->identity, ROLE_READ, &job->tenant_name, 1);
        if (!ask[job->op](job, &e))
            return;
    }
    job_fail(job, &e);
}

/* ---- adhocprofiles.v1 ------------------------------------------------------------------------ */

/* The message is small: it is unpacked here and now, its texts go to the arena. */
static int read_ask(struct adhoc_job *job, struct err *e)
{
    const struct inflate_limits l = { .bytes_max = ADHOC_SMALL };
    struct adhoc_ask *q = &job->ask;
    struct json_doc *doc = NULL;
    struct str message;
    struct buf tmp;
    int rc;

    buf_init(&tmp, ADHOC_SMALL);
    if (job->call->codec == SVC_JSON)
        rc = svc_message_json(job->call, &l, &doc, e) ||
             adhoc_ask_json(job->op, json_root(doc), q, e);
    else
        rc = svc_message(job->call, &l, &tmp, &message, e) ||
             adhoc_ask_proto(job->op, message, q, e);
    if (!rc) {
        q->id = arena_strdup(job->arena, q->id);
        q->other_id = arena_strdup(job->arena, q->other_id);
        q->type = arena_strdup(job->arena, q->type);
        rc = q->id.ptr && q->other_id.ptr && q->type.ptr
                 ? 0
                 : err_set(e, ERR_LIMIT, "the message is too long");
    }
    json_doc_free(doc);
    buf_deinit(&tmp);
    return rc ? e->code : 0;
}

static void on_call(struct svc_call *c, enum adhoc_op op)
{
    struct adhoc_job *job = job_new(c->cookie, c->r, c, op);
    struct err e;

    if (op != ADHOC_UPLOAD && read_ask(job, &e))
        job_fail(job, &e);
    else
        job_start(job);
}

static void call_upload(struct svc_call *c)
{
    on_call(c, ADHOC_UPLOAD);
}

static void call_get(struct svc_call *c)
{
    on_call(c, ADHOC_GET);
}

static void call_list(struct svc_call *c)
{
    on_call(c, ADHOC_LIST);
}

static void call_diff(struct svc_call *c)
{
    on_call(c, ADHOC_DIFF);
}

/* ---- HTTP ------------------------------------------------------------------------------------ */

/* By any of its names. Nothing is the default, and so is 0. */
static int read_nodes(struct adhoc_job *job, struct err *e)
{
    static const char *const names[] = { "max-nodes", "maxNodes", "max_nodes" };
    struct str text;
    size_t i = 0;

    while (i < ARRAY_LEN(names) && !http_param(job->http, names[i], &text))
        i++;
    if (i == ARRAY_LEN(names) || !str_trim(text).len)
        return 0;
    if (!str_i64(str_trim(text), &job->ask.nodes) || job->ask.nodes < 0 ||
        job->ask.nodes > ADHOC_NODES_MAX)
        return err_set(e, ERR_INPUT, "%s is \"%.*s\": want a number up to %d, or 0 for the default",
                       names[i], (int)MIN(text.len, 40), text.ptr, ADHOC_NODES_MAX);
    return 0;
}

static int read_view_params(struct adhoc_job *job, struct err *e)
{
    struct str text;

    (void)http_param(job->http, "type", &job->ask.type);
    if (read_nodes(job, e))
        return e->code;
    if (!http_param(job->http, "format", &text) || !text.len || str_eqc(text, "json"))
        return 0;
    if (!str_eqc(text, "collapsed") || job->op == ADHOC_DIFF)
        return err_set(e, ERR_INPUT, "unknown format \"%.*s\": use json%s", (int)MIN(text.len, 40),
                       text.ptr, job->op == ADHOC_DIFF ? "" : " or collapsed");
    job->folded = true;
    job->out_type = "text/plain; charset=utf-8";
    return 0;
}

static void on_all(struct http_req *r)
{
    bool upload = r->method == HTTP_POST;
    struct adhoc_job *job = job_new(r->route_cookie, r, NULL, upload ? ADHOC_UPLOAD : ADHOC_LIST);

    (void)http_param(r, "name", &job->ask.name);
    job_start(job);
}

/* <id>, or <id>/diff/<id> */
static void on_one(struct http_req *r)
{
    struct str rest = str_sub(r->path, sizeof(ROUTE), r->path.len);
    ptrdiff_t slash = str_find(rest, '/');
    struct str more = slash < 0 ? STR_NULL : str_sub(rest, (size_t)slash, rest.len);
    bool diff = str_starts(more, STR("/diff/"));
    struct adhoc_job *job = job_new(r->route_cookie, r, NULL,
                                    r->method == HTTP_DELETE ? ADHOC_DELETE
                                    : diff                   ? ADHOC_DIFF
                                                             : ADHOC_GET);
    struct err e;

    job->ask.id = slash < 0 ? rest : str_sub(rest, 0, (size_t)slash);
    job->ask.other_id = diff ? str_sub(more, sizeof("/diff/") - 1, more.len) : STR_NULL;
    if (slash >= 0 && (!diff || job->op != ADHOC_DIFF)) {
        (void)err_set(&e, ERR_NOT_FOUND, "there is nothing at this path");
        job_fail(job, &e);
    } else if (read_view_params(job, &e)) {
        job_fail(job, &e);
    } else {
        job_start(job);
    }
}

void api_adhoc_routes(struct distributor *d)
{
    struct http_server *http = d->ctx->http;
    size_t body_max = (size_t)d->ctx->common->body_bytes_max;
    unsigned codecs = SVC_PROTO | SVC_JSON;

    svc_service(http, SERVICE "*");
    svc_route(http, SERVICE "Upload", codecs, body_max, call_upload, d);
    svc_route(http, SERVICE "Get", codecs, ADHOC_SMALL, call_get, d);
    svc_route(http, SERVICE "List", codecs, ADHOC_SMALL, call_list, d);
    svc_route(http, SERVICE "Diff", codecs, ADHOC_SMALL, call_diff, d);
    http_route(http, HTTP_GET | HTTP_POST, ROUTE, body_max, on_all, d);
    http_route(http, HTTP_GET | HTTP_DELETE, ROUTE "/*", 0, on_one, d);
}

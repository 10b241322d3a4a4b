/* SPDX-License-Identifier: Apache-2.0
 *
 * adhoc_work: what costs processor time: files to documents, documents to flame graphs.
 *
 *   upload   message or form ─> file ─> push ─> body ─> read back ─> types, the answer
 *   view     body, body ─> profiles ─> type ─> flame graph, folded text, or diff
 *
 * What is stored was read back before: an upload that could not be shown is refused.
 */
#include "common/base/base64.h"
#include "common/base/mem.h"
#include "common/identity/record.h"
#include "common/net/json_in.h"
#include "distributor/adhoc/adhoc_job.h"
#include "distributor/adhoc/adhoc_view.h"
#include "distributor/formats/multipart.h"
#include "distributor/formats/upload/upload.h"

#define NAME_SHOWN 255 /* bytes of the name in the request */

/* ---- a document as a profile ----------------------------------------------------------------- */

struct opened {
    struct arena *arena;
    struct adhoc_profile profile;
    struct adhoc_meta meta; /* name, format; all types */
};

static size_t plain_max(const struct adhoc_job *job)
{
    return (size_t)MIN(job->d->limits.decode_bytes, UINT32_MAX);
}

static int open_doc(struct adhoc_job *job, const struct adhoc_doc *doc, struct opened *o,
                    struct err *e)
{
    struct str body = buf_str(&doc->body);
    uint64_t size = MIN(adhoc_profile_size(body), plain_max(job));

    if (adhoc_job_take(job, adhoc_profile_cost(size), e))
        return e->code;
    o->arena = arena_new(adhoc_profile_cost(size));
    if (adhoc_meta_read(doc->meta, o->arena, &o->meta, e) ||
        adhoc_profile_read(body, plain_max(job), o->arena, &o->profile, e) ||
        adhoc_types_of(&o->profile, o->arena, &o->meta, e))
        return e->code;
    return adhoc_job_take(job, adhoc_view_cost(&o->profile), e);
}

/* ---- answers --------------------------------------------------------------------------------- */

static void put_types(struct json *j, const struct adhoc_meta *m)
{
    json_key(j, "types");
    json_arr(j);
    for (size_t i = 0; i < m->types_len; i++) {
        json_obj(j);
        json_put_str(j, "type", m->types[i].shown);
        json_put_str(j, "id", m->types[i].id);
        json_put_u64(j, "total", m->types[i].total);
        json_obj_end(j);
    }
    json_arr_end(j);
}

static void put_head(struct json *j, struct str id, const struct adhoc_meta *m)
{
    json_put_str(j, "id", id);
    json_put_str(j, "name", m->name);
    json_put_i64(j, "uploadedAt", adhoc_id_ms(id));
    json_put_str(j, "format", m->format);
    json_put_u64(j, "size", m->size);
    json_put_u64(j, "samples", m->samples);
    put_types(j, m);
}

/* What a diff can be asked for. */
static size_t shown_types(const struct adhoc_side *sides, size_t n, struct str *ret)
{
    const struct adhoc_meta *m = sides[0].meta;
    size_t len = 0;

    for (size_t i = 0; i < m->types_len; i++)
        if (n == 1 || adhoc_both(&sides[1], &m->types[i]))
            ret[len++] = m->types[i].shown;
    return len;
}

static size_t nodes_of(const struct adhoc_job *job)
{
    if (job->ask.nodes > 0)
        return (size_t)job->ask.nodes;
    return job->folded ? 0 : ADHOC_NODES_DEFAULT;
}

static int put_view(const struct adhoc_job *job, const struct adhoc_side *sides, size_t n,
                    struct json *j, struct err *e)
{
    return n > 1 ? adhoc_view_diff(sides, nodes_of(job), job->seed, j, e)
                 : adhoc_view_flame(sides, nodes_of(job), job->seed, j, e);
}

static int answer_svc(struct adhoc_job *job, const struct adhoc_side *sides, size_t n,
                      struct err *e)
{
    struct adhoc_answer a = { .row = { job->docs[0].id, sides[0].meta->name,
                                       adhoc_id_ms(job->docs[0].id) },
                              .type = sides[0].type->shown };
    struct str *types = xcalloc(sides[0].meta->types_len + 1, sizeof(*types));
    struct buf text;
    struct json j;

    buf_init(&text, job->out.max);
    json_init(&j, &text);
    json_obj(&j);
    int rc = put_view(job, sides, n, &j, e);
    json_obj_end(&j);
    a.types = types;
    a.types_len = shown_types(sides, n, types);
    a.flame = buf_str(&text);
    if (!rc)
        adhoc_answer_write(job->op, job->call->codec == SVC_JSON, &a, &job->out);
    buf_deinit(&text);
    xfree(types);
    return rc;
}

/* The flame graph as other routes give it, and beside it what is looked at. */
static int answer_json(struct adhoc_job *job, const struct adhoc_side *sides, size_t n,
                       struct err *e)
{
    static const char *const keys[ADHOC_SIDES] = { "adhoc", "adhocRight" };
    struct json j;

    json_init(&j, &job->out);
    json_obj(&j);
    if (put_view(job, sides, n, &j, e))
        return e->code;
    json_put_str(&j, "profileType", sides[0].type->shown);
    for (size_t i = 0; i < n; i++) {
        json_key(&j, keys[i]);
        json_obj(&j);
        put_head(&j, job->docs[i].id, sides[i].meta);
        json_obj_end(&j);
    }
    json_obj_end(&j);
    return 0;
}

static int answer(struct adhoc_job *job, const struct opened *o, size_t n, struct err *e)
{
    struct adhoc_side sides[ADHOC_SIDES] = { 0 };

    for (size_t i = 0; i < n; i++)
        sides[i] = (struct adhoc_side){ .profile = &o[i].profile, .meta = &o[i].meta };
    if (adhoc_choose(sides, n, job->ask.type, e))
        return e->code;
    if (job->call)
        return answer_svc(job, sides, n, e);
    if (job->folded)
        return adhoc_view_folded(sides, nodes_of(job), job->seed, &job->out, e);
    return answer_json(job, sides, n, e);
}

void adhoc_work_view(void *cookie)
{
    struct opened o[ADHOC_SIDES] = { 0 };
    struct adhoc_job *job = cookie;
    struct err e;
    int rc = 0;

    for (size_t i = 0; i < job->docs_len && !rc; i++)
        rc = open_doc(job, &job->docs[i], &o[i], &e);
    if (!rc)
        rc = answer(job, o, job->docs_len, &e);
    for (size_t i = 0; i < ADHOC_SIDES; i++)
        arena_free(o[i].arena);
    if (rc)
        job->err = e;
}

/* ---- uploads --------------------------------------------------------------------------------- */

/* Where the file is; what it may point into is freed by file_deinit. */
struct file {
    struct str bytes;
    struct json_doc *doc;
    struct buf message, plain;
};

static void file_deinit(struct file *f)
{
    json_doc_free(f->doc);
    buf_deinit(&f->message);
    buf_deinit(&f->plain);
}

static int file_of_call(struct adhoc_job *job, struct file *f, struct err *e)
{
    const struct inflate_limits l = limits_inflate(&job->d->limits);
    struct str message;

    if (job->call->codec == SVC_JSON) {
        if (svc_message_json(job->call, &l, &f->doc, e) ||
            adhoc_ask_json(ADHOC_UPLOAD, json_root(f->doc), &job->ask, e))
            return e->code;
    } else if (svc_message(job->call, &l, &f->message, &message, e) ||
               adhoc_ask_proto(ADHOC_UPLOAD, message, &job->ask, e)) {
        return e->code;
    }
    if (job->ask.nodes < 0 || job->ask.nodes > ADHOC_NODES_MAX)
        return err_set(e, ERR_INPUT, "max_nodes is %" PRId64 ", at most %d", job->ask.nodes,
                       ADHOC_NODES_MAX);
    if (!base64_decode(job->ask.profile, &f->plain))
        return err_set(e, ERR_INPUT, "profile is not base64, or over %zu bytes", f->plain.max);
    f->bytes = buf_str(&f->plain);
    return 0;
}

static int file_of_form(struct adhoc_job *job, struct str body, struct file *f, struct err *e)
{
    struct multipart *m = ARENA_NEW(job->arena, struct multipart);

    CHECK(m); /* the arena is still empty */
    if (multipart_parse(job->content_type, body, job->arena, m, e))
        return e->code;
    for (size_t i = 0; i < m->len; i++) {
        if (!m->parts[i].filename.ptr)
            continue;
        f->bytes = m->parts[i].content;
        if (!job->ask.name.len)
            job->ask.name = m->parts[i].filename;
        return 0;
    }
    return err_set(e, ERR_INPUT, "multipart: no file among %zu parts", m->len);
}

static int file_of_body(struct adhoc_job *job, struct file *f, struct err *e)
{
    const struct inflate_limits l = limits_inflate(&job->d->limits);
    struct str body;

    if (http_body_plain(job->http, &l, &f->message, &body, e))
        return e->code;
    if (str_contains(job->content_type, STR("multipart/form-data")))
        return file_of_form(job, body, f, e);
    f->bytes = body;
    return 0;
}

/* The push lives as long as its arena; the document gets a copy of what it keeps. */
static int pack_push(struct adhoc_job *job, const struct push *p, const char *format, size_t size,
                     struct err *e)
{
    struct adhoc_doc *doc = &job->docs[0];
    struct adhoc_meta m = { .name = str_tail(job->ask.name, NAME_SHOWN),
                            .format = str_c(format),
                            .size = size,
                            .samples = p->samples,
                            .owner = job->http->identity ? job->http->identity->id : STR_NULL };
    struct buf text;

    if (!m.name.len)
        m.name = STR("profile");
    if (adhoc_profile_pack(p, plain_max(job), &doc->body, e) ||
        adhoc_types_of_push(p, p->arena, &m, e))
        return e->code;
    buf_init(&text, 16 * KIB);
    adhoc_meta_pack(&m, &text);
    CHECK(buf_ok(&text));
    doc->meta = arena_strdup(job->arena, buf_str(&text));
    buf_reset(&text);
    adhoc_id_make(job->now_ms, job->random, m.name, &text);
    doc->id = arena_strdup(job->arena, buf_str(&text));
    buf_deinit(&text);
    return doc->id.ptr && doc->meta.ptr ? 0 : err_set(e, ERR_LIMIT, "the name is too long");
}

static int decode_file(struct adhoc_job *job, struct str bytes, struct err *e)
{
    const struct limits *l = &job->d->limits;
    struct arena *a = arena_new((size_t)l->decode_bytes);
    struct ingest_raw raw = { .name = STR("adhoc") };
    const char *format = "";
    struct ingest in;
    struct push push;
    int rc;

    if (!bytes.len) {
        arena_free(a);
        return err_set(e, ERR_INPUT, "the file is empty");
    }
    push_init(&push, a, l, job->seed);
    rc = ingest_parse(&raw, l, job->now_ms, a, &in, e);
    if (!rc)
        rc = upload_push(&in, bytes, l, job->now_ms, &push, &format, e);
    if (!rc)
        rc = pack_push(job, &push, format, bytes.len, e);
    memcpy(job->left_out, push.drops, sizeof(job->left_out));
    push_deinit(&push);
    arena_free(a);
    return rc;
}

static int answer_upload(struct adhoc_job *job, struct err *e)
{
    struct opened o = { 0 };
    struct json j;
    int rc = open_doc(job, &job->docs[0], &o, e);

    if (!rc && job->call) {
        rc = answer(job, &o, 1, e);
    } else if (!rc) {
        json_init(&j, &job->out);
        json_obj(&j);
        put_head(&j, job->docs[0].id, &o.meta);
        json_obj_end(&j);
        buf_add_c(&job->out, '\n');
    }
    arena_free(o.arena);
    return rc;
}

void adhoc_work_upload(void *cookie)
{
    struct adhoc_job *job = cookie;
    struct file f = { 0 };
    struct err e;
    int rc;

    buf_init(&f.message, (size_t)job->d->limits.inflated_bytes);
    buf_init(&f.plain, (size_t)job->d->limits.inflated_bytes);
    rc = job->call ? file_of_call(job, &f, &e) : file_of_body(job, &f, &e);
    if (!rc)
        rc = decode_file(job, f.bytes, &e);
    /* The name is in the document; the message is not needed to answer. */
    job->ask = (struct adhoc_ask){ .nodes = job->ask.nodes };
    file_deinit(&f);
    if (!rc)
        rc = answer_upload(job, &e);
    if (rc)
        job->err = e;
}

/* ---- lists ----------------------------------------------------------------------------------- */

static void list_json(struct adhoc_job *job, const struct doc_row *rows,
                      const struct adhoc_meta *metas, size_t n)
{
    struct json j;

    json_init(&j, &job->out);
    json_obj(&j);
    json_key(&j, "profiles");
    json_arr(&j);
    for (size_t i = 0; i < n; i++) {
        json_obj(&j);
        put_head(&j, rows[i].id, &metas[i]);
        json_put_u64(&j, "bytes", rows[i].bytes);
        json_obj_end(&j);
    }
    json_arr_end(&j);
    json_put_u64(&j, "max", job->d->conf->adhoc_max);
    json_put_u64(&j, "bytesMax", job->d->conf->adhoc_bytes_max);
    json_obj_end(&j);
    buf_add_c(&job->out, '\n');
}

bool adhoc_job_sees(const struct adhoc_job *job, struct str owner)
{
    return !job->own || str_eq(owner, job->http->identity->id);
}

int adhoc_work_list(struct adhoc_job *job, struct doc_row *rows, size_t n, struct err *e)
{
    struct arena *a = arena_new(16 * MIB);
    struct adhoc_meta *metas = xcalloc(n + 1, sizeof(*metas));
    struct adhoc_row *out = xcalloc(n + 1, sizeof(*out));
    size_t shown = 0;
    int rc = 0;

    for (size_t i = 0; i < n && !rc; i++) {
        rc = adhoc_id_check(rows[i].id, e);
        if (!rc)
            rc = adhoc_meta_read(rows[i].meta, a, &metas[shown], e);
        if (rc || !adhoc_job_sees(job, metas[shown].owner))
            continue;
        rows[shown] = rows[i];
        out[shown] = (struct adhoc_row){ rows[i].id, metas[shown].name, adhoc_id_ms(rows[i].id) };
        shown++;
    }
    if (!rc && job->call)
        adhoc_rows_write(job->call->codec == SVC_JSON, out, shown, &job->out);
    else if (!rc)
        list_json(job, rows, metas, shown);
    xfree(metas);
    xfree(out);
    arena_free(a);
    return rc;
}

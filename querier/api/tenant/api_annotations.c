/* SPDX-License-Identifier: Apache-2.0
 *
 * api_annotations.c: /api/annotations (proto/WIRE.md, "Legacy routes").
 *
 * An annotation is a document of the tenant. Its id begins with its time in digits, so that a list
 * of documents, which is by id, is one by time, and a range of time is some pages of it:
 *
 *   001750000000000-kTqLwbZpYxAe      ms since 1970 in 15 digits, twelve random letters
 *
 * The meta is what was sent as protobuf: names, content. Old clients call applications by service
 * and kind (`shop.cpu`); a note is about the service, so both names find it.
 */
#include "querier/api/tenant/api_annotations.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/base/vec.h"
#include "querier/query/docs.h"
#include "querier/select/api_time.h"
#include "querier/select/app_name_types.h"
#include "querier/select/connect_msg.h"

#define ANNOTATIONS_MAX 10000 /* of a tenant */
#define NAMES_MAX       100
#define NAME_BYTES_MAX  1024
#define CONTENT_MAX     4096
#define TIME_DIGITS     15
#define LETTERS         12
#define ID_LEN          (TIME_DIGITS + 1 + LETTERS)
#define TIME_MS_MAX     INT64_C(253402300799999) /* the year 9999 */
#define SECONDS_MAX     INT64_C(100000000000)    /* larger numbers are milliseconds */

struct note {
    struct msg_list names;
    struct str content;
};
static const struct msg_field note_fields[] = {
    { "appNames", NULL, 1, MSG_STR, offsetof(struct note, names), NAMES_MAX, NULL, NULL },
    { "content", NULL, 2, MSG_STR, offsetof(struct note, content), 0, NULL, NULL },
};
static const struct msg_desc note_desc = MSG_DESC("annotation", struct note, note_fields);

struct found {
    struct str id;
    int64_t ms;
    struct note note;
};
struct annotations {
    struct found one; /* to be written */
    bool many;        /* asked with appNames */
    struct str app, service;
    int64_t from_ms, until_ms;
    struct found *at; /* listed: in the arena */
    size_t len;
};

/* ---- answers ----------------------------------------------------------------------------------*/

static void put_note(struct json *j, const struct found *f, struct str name)
{
    json_obj(j);
    json_put_str(j, "id", f->id);
    json_put_str(j, "appName", name);
    json_put_str(j, "service", app_name_types_app_of(name).service);
    json_put_str(j, "content", f->note.content);
    json_put_i64(j, "timestamp", f->ms / 1000);
    json_put_i64(j, "timestampMs", f->ms);
    json_obj_end(j);
}

static int reply_created(struct query *q, struct err *e)
{
    const struct annotations *x = q->state;
    struct json j;

    q->status = 201;
    query_json(q, &j);
    if (x->many)
        json_arr(&j);
    for (size_t i = 0; i < x->one.note.names.len; i++)
        put_note(&j, &x->one, msg_strs(&x->one.note.names)[i]);
    if (x->many)
        json_arr_end(&j);
    return query_out_end(q, e);
}

/* ---- create -----------------------------------------------------------------------------------*/

static int check_note(const struct note *n, struct err *e)
{
    if (!n->names.len || n->names.len > NAMES_MAX)
        return err_set(e, ERR_INPUT, "appName or appNames: want 1 to %d names, there are %zu",
                       NAMES_MAX, n->names.len);
    for (size_t i = 0; i < n->names.len; i++) {
        struct str name = msg_strs(&n->names)[i];
        if (!name.len || name.len > NAME_BYTES_MAX)
            return err_set(e, ERR_INPUT, "appNames[%zu] has %zu bytes: want 1 to %d", i, name.len,
                           NAME_BYTES_MAX);
    }
    if (!str_trim(n->content).len || n->content.len > CONTENT_MAX)
        return err_set(e, ERR_INPUT, "content has %zu bytes: want some text, at most %d",
                       n->content.len, CONTENT_MAX);
    return 0;
}

static int read_time(struct query *q, int64_t stamp, int64_t *ret_ms, struct err *e)
{
    if (stamp < 0 || stamp > TIME_MS_MAX)
        return err_set(e, ERR_INPUT, "timestamp is %" PRId64 ": want seconds since 1970", stamp);
    *ret_ms = !stamp                ? clock_wall_ms(q->qr->ctx->env->clock)
              : stamp < SECONDS_MAX ? stamp * 1000
                                    : stamp;
    return 0;
}

static int make_id(struct query *q, struct found *f, struct err *e)
{
    static const char alphabet[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    struct env *env = q->qr->ctx->env;
    uint16_t random[LETTERS];
    char id[64];

    (void)snprintf(id, sizeof(id), "%0*" PRId64 "-", TIME_DIGITS, f->ms);
    env->random(env, random, sizeof(random));
    for (size_t i = 0; i < LETTERS; i++)
        id[TIME_DIGITS + 1 + i] = alphabet[random[i] % (sizeof(alphabet) - 1)];
    f->id = arena_strdup(q->arena, str_n(id, ID_LEN));
    return f->id.ptr ? 0 : err_set(e, ERR_LIMIT, "the request is too large");
}

static int read_create(struct query *q, struct annotations *x, struct err *e)
{
    struct note *n = &x->one.note;
    struct str *one = ARENA_NEW(q->arena, struct str);
    const struct json_val *m;
    const struct str *names;
    int64_t stamp = 0;

    if (!one)
        return err_set(e, ERR_LIMIT, "the request is too large");
    if (msg_begin(q, &m, e) || msg_strings(q, m, "appNames", &names, &n->names.len, e) ||
        json_take_str(json_get(m, "appName", NULL), "appName", one, e) ||
        json_take_i64(json_get(m, "timestamp", NULL), "timestamp", &stamp, e) ||
        json_take_str(json_get(m, "content", NULL), "content", &n->content, e))
        return e->code;
    if (one->len && n->names.len)
        return err_set(e, ERR_INPUT, "appName and appNames: only one of them is taken");
    x->many = !one->len;
    n->names.ptr = one->len ? one : (void *)(uintptr_t)names;
    n->names.len = one->len ? 1 : n->names.len;
    return check_note(n, e) || read_time(q, stamp, &x->one.ms, e) || make_id(q, &x->one, e)
               ? e->code
               : 0;
}

int api_annotations_create(struct query *q, struct err *e)
{
    struct annotations *x = ARENA_NEW(q->arena, struct annotations);
    struct msg_out o;
    struct buf b;

    CHECK(x);
    q->state = x;
    if (read_create(q, x, e))
        return e->code;
    buf_init(&b, DOC_META_MAX);
    msg_out_init(&o, false, &b);
    msg_out_list(&o, 1, "appNames");
    for (size_t i = 0; i < x->one.note.names.len; i++)
        msg_out_str(&o, MSG_ITEM, msg_strs(&x->one.note.names)[i]);
    msg_out_list_end(&o);
    msg_out_str(&o, 2, "content", x->one.note.content);
    msg_out_end(&o);
    struct docs_item put = { x->one.id, buf_str(&b), 0 };
    q->step = reply_created;
    int code = buf_ok(&b) ? docs_ask_put(q, DOC_ANNOTATION, &put, 0, ANNOTATIONS_MAX, e)
                          : err_set(e, ERR_INPUT, "the annotation has over %zu bytes",
                                    (size_t)DOC_META_MAX);
    buf_deinit(&b);
    return code;
}

/* ---- list -------------------------------------------------------------------------------------*/

static int put_list(struct query *q, struct err *e)
{
    const struct annotations *x = q->state;
    struct json j;

    query_json(q, &j);
    json_arr(&j);
    for (size_t i = 0; i < x->len; i++) {
        const struct note *n = &x->at[i].note;
        for (size_t k = 0; k < n->names.len; k++) {
            struct str name = msg_strs(&n->names)[k];
            if ((!x->app.len || str_eq(x->app, name)) &&
                (!x->service.len || str_eq(x->service, app_name_types_app_of(name).service)))
                put_note(&j, &x->at[i], name);
        }
    }
    json_arr_end(&j);
    return query_out_end(q, e);
}

static bool time_of_id(struct str id, int64_t *ret)
{
    uint64_t ms;

    if (id.len != ID_LEN || !str_u64(str_sub(id, 0, TIME_DIGITS), &ms))
        return false;
    *ret = (int64_t)ms;
    return true;
}

/* One page; *ret_more: the next one may be of the range, too. */
static int add_page(struct query *q, struct annotations *x, struct docs *d, bool *ret_more,
                    struct err *e)
{
    struct found *at = ARENA_ARRAY(q->arena, struct found, x->len + d->len + 1);

    if (!at)
        return err_set(e, ERR_LIMIT, "too many annotations in one answer");
    for (size_t i = 0; i < x->len; i++)
        at[i] = x->at[i];
    x->at = at;
    *ret_more = d->more;
    for (size_t i = 0; i < d->len; i++) {
        struct found f = { .id = d->at[i].id };
        if (!time_of_id(f.id, &f.ms))
            return err_set(e, ERR_CORRUPT, "annotation %.*s has no time", STR_ARG(f.id));
        if (f.ms < x->from_ms)
            continue;
        if (f.ms >= x->until_ms) {
            *ret_more = false;
            break;
        }
        if (msg_in_proto(&note_desc, d->at[i].meta, q->data, &f.note, e))
            return err_set(e, ERR_CORRUPT, "annotation %.*s cannot be read", STR_ARG(f.id));
        at[x->len++] = f;
    }
    return 0;
}

static int read_page(struct query *q, struct err *e)
{
    struct annotations *x = q->state;
    struct docs d;
    bool more = false;

    if (docs_list(q, &d, e) || add_page(q, x, &d, &more, e))
        return e->code;
    if (!more || !d.len)
        return put_list(q, e);
    q->step = read_page;
    return docs_ask_page(q, DOC_ANNOTATION, d.at[d.len - 1].id, e);
}

int api_annotations_list(struct query *q, struct err *e)
{
    struct annotations *x = ARENA_NEW(q->arena, struct annotations);
    char after[32];

    CHECK(x);
    q->state = x;
    (void)http_param(q->http, "appName", &x->app);
    (void)http_param(q->http, "service", &x->service);
    if (api_time(q, "from", 0, &x->from_ms, e) ||
        api_time(q, "until", TIME_MS_MAX, &x->until_ms, e))
        return e->code;
    if (x->from_ms > x->until_ms)
        return err_set(e, ERR_INPUT, "from is after until");
    (void)snprintf(after, sizeof(after), "%0*" PRId64, TIME_DIGITS, MAX(x->from_ms, 0));
    q->step = read_page;
    return docs_ask_page(q, DOC_ANNOTATION, str_c(after), e);
}

/* ---- delete -----------------------------------------------------------------------------------*/

static int reply_deleted(struct query *q, struct err *e)
{
    const struct annotations *x = q->state;
    struct json j;

    query_json(q, &j);
    json_obj(&j);
    json_put_str(&j, "id", x->one.id);
    json_obj_end(&j);
    return query_out_end(q, e);
}

int api_annotations_delete(struct query *q, struct err *e)
{
    struct annotations *x = ARENA_NEW(q->arena, struct annotations);
    int64_t ms;

    CHECK(x);
    q->state = x;
    q->step = reply_deleted;
    if (!http_param(q->http, "id", &x->one.id) || !time_of_id(x->one.id, &ms))
        return err_set(e, ERR_INPUT, "id: want that of an annotation, as its list says it");
    return docs_ask_delete(q, DOC_ANNOTATION, x->one.id, e);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * api_debuginfo_alloy: Alloy's service. An upload is begun by the question whether one is wanted;
 * its bytes come as the body of a POST, of which one window is held.
 *
 * Protocol: grafana/pyroscope at 3fe6a457a320 (proto/WIRE.md, "Debug info upload").
 */
#include "common/base/mem.h"
#include "distributor/parca/debuginfo/debuginfo_rpc.h"

#define ALLOY     "/debuginfo.v1alpha1.DebuginfoService/"
#define UPLOAD    ALLOY "Upload/"
#define REPLY_MAX (16 * MIB)

/* ---- Alloy: POST Upload/<build id> --------------------------------------------------------------
 */

struct post {
    uint32_t magic;
    struct http_req *req;
    struct debuginfo_upload up;
    struct buf waiting, writing;
    bool eof, ending;
    struct err err; /* why it cannot continue; sent when nothing is busy */
};

static void post_end(struct post *p)
{
    struct http_req *r = p->req;
    struct err e = p->err;

    buf_deinit(&p->waiting);
    buf_deinit(&p->writing);
    debuginfo_upload_close(&p->up);
    p->magic = 0;
    xfree(p);
    if (e.code)
        http_reply_err(r, &e);
    else
        http_reply(r, 200, NULL, NULL);
}

static void post_step(struct post *p)
{
    if (p->up.busy)
        return;
    if (p->err.code) {
        post_end(p);
    } else if (p->waiting.len) {
        buf_move(&p->writing, &p->waiting);
        debuginfo_upload_write(&p->up, buf_str(&p->writing));
    } else if (p->eof) {
        p->ending = true;
        debuginfo_upload_end(&p->up);
    }
}

static void post_then(void *cookie, const struct err *e)
{
    struct post *p = cookie;

    CHECK(p->magic == DEBUGINFO_MAGIC);
    if (e && !p->err.code)
        p->err = *e;
    if (p->ending) {
        post_end(p);
        return;
    }
    size_t done = p->writing.len;
    buf_reset(&p->writing);
    if (!p->err.code)
        http_stream_took(p->req, done);
    post_step(p);
}

static void post_on_data(struct http_req *r, struct str bytes)
{
    struct post *p = r->cookie;

    if (p->err.code)
        return;
    if (!buf_add_str(&p->waiting, bytes))
        (void)err_set(&p->err, ERR_INTERNAL, "more bytes than the window has");
    post_step(p);
}

static void post_on_end(struct http_req *r, const struct err *e)
{
    struct post *p = r->cookie;

    p->eof = true;
    if (e && !p->err.code)
        p->err = *e;
    post_step(p);
}

static void post_on_gone(struct http_req *r)
{
    struct post *p = r->cookie;

    if (p->eof)
        return; /* all is here: it is stored nevertheless */
    if (!p->err.code)
        (void)err_set(&p->err, ERR_CANCELED, "the client went away");
    post_step(p);
}

/* Alloy names no type when it uploads: finds the upload that was begun. */
static struct debuginfo_entry *find_alloy(struct api_debuginfo *a, struct str tenant,
                                          struct str build_id)
{
    struct debuginfo_entry *x = debuginfo_find(a->index, tenant, build_id, DEBUGINFO_EXECUTABLE);
    struct debuginfo_entry *y = debuginfo_find(a->index, tenant, build_id, DEBUGINFO_DEBUG);

    return x && (x->state != DEBUGINFO_KEPT || !y) ? x : y;
}

static void alloy_upload(struct http_req *r)
{
    struct api_debuginfo *a = r->route_cookie;
    struct str tenant, id = str_sub(r->path, strlen(UPLOAD), r->path.len);
    struct debuginfo_entry *x;
    struct err e;

    if (debuginfo_rpc_enter(a, r, &tenant, &e) || debuginfo_id_check(id, &e)) {
        http_reply_err(r, &e);
        return;
    }
    x = find_alloy(a, tenant, id);
    if (debuginfo_claim(x, STR(""), &e)) {
        http_reply_status(r, 412, "failed_precondition", e.text);
        return;
    }
    struct post *p = XNEW(struct post);
    p->magic = DEBUGINFO_MAGIC;
    p->req = r;
    buf_init(&p->waiting, 2 * HTTP_STREAM_WINDOW);
    buf_init(&p->writing, 2 * HTTP_STREAM_WINDOW);
    debuginfo_upload_open(&p->up, a->d, a->index, x);
    p->up.then = post_then;
    p->up.cookie = p;
    r->cookie = p;
    r->on_data = post_on_data;
    r->on_end = post_on_end;
    r->on_gone = post_on_gone;
}

/* ---- Alloy, one message each way ----------------------------------------------------------------
 */

static void alloy_should(struct svc_call *c)
{
    struct api_debuginfo *a = c->cookie;
    struct debuginfo_entry *x;
    struct str tenant, id;
    const char *why;
    struct buf tmp;
    struct err e;
    struct debuginfo_msg m, file;

    if (!debuginfo_rpc_call(c, &alloy_should_in, &tenant, &tmp, &m))
        return;
    if (debuginfo_rpc_read(m.text[1], &file, &e)) {
        svc_reply_err(c, &e);
    } else {
        id = file.text[1].len ? file.text[1] : file.text[2].len ? file.text[2] : file.text[3];
        enum debuginfo_type type = file.num[5] == 1 ? DEBUGINFO_EXECUTABLE : DEBUGINFO_DEBUG;
        bool yes = debuginfo_wanted(a->index, tenant, id, type, false, &why);
        const struct debuginfo_offer offer = { tenant, id, type, .name = file.text[4] };
        if (yes && debuginfo_begin(a->index, &offer, &x, &e)) {
            yes = false;
            why = e.text;
        }
        debuginfo_rpc_should(c, yes, why);
    }
    buf_deinit(&tmp);
}

static void alloy_finished(struct svc_call *c)
{
    struct str tenant;
    struct buf tmp;
    struct debuginfo_msg m;

    if (!debuginfo_rpc_call(c, &alloy_id_in, &tenant, &tmp, &m))
        return;
    debuginfo_rpc_finish(c, find_alloy(c->cookie, tenant, m.text[1]), STR(""));
    buf_deinit(&tmp);
}

static void put_time(struct buf *b, unsigned field, int64_t ms)
{
    struct buf t;

    if (ms <= 0)
        return;
    buf_init(&t, DEBUGINFO_SMALL);
    debuginfo_rpc_num(&t, 1, (uint64_t)ms / 1000);
    debuginfo_rpc_num(&t, 2, (uint64_t)ms % 1000 * 1000000);
    debuginfo_rpc_text(b, field, buf_str(&t));
    buf_deinit(&t);
}

static void list_one(void *cookie, const struct debuginfo_entry *x)
{
    struct buf *out = cookie, one, file;

    buf_init(&one, DEBUGINFO_SMALL);
    buf_init(&file, DEBUGINFO_SMALL);
    debuginfo_rpc_text(&file, 1, str_c(x->m.build_id));
    debuginfo_rpc_text(&file, 4, str_c(x->m.name));
    debuginfo_rpc_num(&file, 5, x->m.type == DEBUGINFO_EXECUTABLE ? 1 : 2);
    debuginfo_rpc_text(&one, 1, buf_str(&file));
    debuginfo_rpc_num(&one, 2, x->state == DEBUGINFO_KEPT);
    put_time(&one, 3, x->m.started_ms);
    put_time(&one, 4, x->m.finished_ms);
    debuginfo_rpc_num(&one, 5, x->m.size);
    debuginfo_rpc_text(out, 1, buf_str(&one));
    buf_deinit(&one);
    buf_deinit(&file);
}

static void alloy_list(struct svc_call *c)
{
    struct api_debuginfo *a = c->cookie;
    struct str tenant;
    struct buf tmp, out;
    struct debuginfo_msg m;

    if (!debuginfo_rpc_call(c, &alloy_id_in, &tenant, &tmp, &m))
        return;
    buf_init(&out, REPLY_MAX);
    debuginfo_each(a->index, tenant, list_one, &out);
    debuginfo_rpc_reply(c, &alloy_list_out, &out);
    buf_deinit(&tmp);
}

struct removal {
    struct svc_call *call;
    struct distributor *d;
    const char *dir;
    struct debuginfo_meta m;
};

static void remove_work(void *cookie)
{
    const struct removal *x = cookie;

    debuginfo_remove(x->dir, &x->m);
}

static void remove_done(void *cookie)
{
    struct removal *x = cookie;

    svc_reply(x->call, NULL);
    distributor_left(x->d);
    xfree(x);
}

static void alloy_delete(struct svc_call *c)
{
    struct api_debuginfo *a = c->cookie;
    struct debuginfo_entry *x;
    struct str tenant;
    struct buf tmp;
    struct err e;
    struct debuginfo_msg m;

    if (!debuginfo_rpc_call(c, &alloy_id_in, &tenant, &tmp, &m))
        return;
    x = find_alloy(a, tenant, m.text[1]);
    uint64_t turn = debuginfo_upload_turn(a->d, tenant);
    buf_deinit(&tmp);
    if (!x || x->state != DEBUGINFO_KEPT) {
        (void)err_set(&e, ERR_NOT_FOUND, "no debug info of that build id is kept");
        svc_reply_err(c, &e);
        return;
    }
    struct removal *r = XNEW(struct removal);
    *r = (struct removal){ c, a->d, debuginfo_opts(a->index)->dir, x->m };
    debuginfo_forget(a->index, x);
    a->d->working++;
    if (!debuginfo_upload_submit(a->d, turn, remove_work, remove_done, r)) {
        remove_work(r); /* two unlinks; better now than never */
        loop_post(a->d->ctx->loop, remove_done, r);
    }
}

void api_debuginfo_alloy_routes(struct api_debuginfo *a)
{
    struct http_server *s = a->d->ctx->http;

    svc_service(s, ALLOY "*");
    svc_route(s, ALLOY "ShouldInitiateUpload", SVC_PROTO | SVC_JSON, DEBUGINFO_SMALL, alloy_should,
              a);
    svc_route(s, ALLOY "UploadFinished", SVC_PROTO | SVC_JSON, DEBUGINFO_SMALL, alloy_finished, a);
    svc_route(s, ALLOY "ListDebuginfo", SVC_PROTO | SVC_JSON, DEBUGINFO_SMALL, alloy_list, a);
    svc_route(s, ALLOY "DeleteDebuginfo", SVC_PROTO | SVC_JSON, DEBUGINFO_SMALL, alloy_delete, a);
    http_route_stream(s, HTTP_POST, UPLOAD "*", debuginfo_opts(a->index)->file_bytes, alloy_upload,
                      a);
}

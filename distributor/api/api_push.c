/* SPDX-License-Identifier: Apache-2.0
 *
 * api_push: push.v1.PusherService/Push over Connect, gRPC and gRPC-Web: the message to an intake,
 * its result to one answer.
 *
 * Each profile stands for itself: what can be stored is, and the answer is an error as soon as one
 * could not be. Which one, and why, is in its text. A client that sends all of it again stores
 * nothing twice, as far as its profiles can be known again (write_id.c).
 */
#include "distributor/api/api_push.h"

#include "common/net/svc/svc.h"
#include "distributor/base/left_out.h"
#include "distributor/base/state.h"
#include "distributor/formats/push_msg.h"
#include "distributor/intake/intake.h"

#define GROWS 8 /* profiles come gzip'd inside the message */

struct push_call { /* in the request's arena */
    struct svc_call *call;
    const struct distributor *d;
    struct push_msg msg; /* texts of the labels and profiles are gone after decode */
    struct str *ids;
};

/* What the answer is written with must outlive the message. */
static int keep_ids(struct push_call *p, struct err *e)
{
    struct arena *a = p->call->r->arena;

    p->ids = ARENA_ARRAY(a, struct str, p->msg.len);
    for (size_t i = 0; p->ids && i < p->msg.len; i++)
        p->ids[i] = arena_strdup(a, p->msg.profiles[i].id);
    return p->ids ? 0 : err_set(e, ERR_LIMIT, "too many profiles in one request");
}

static int take_apart(struct push_call *p, struct arena *a, const struct limits *l,
                      struct json_doc **doc, struct buf *tmp, struct err *e)
{
    const struct inflate_limits inflate = limits_inflate(l);
    size_t most = (size_t)p->d->conf->request_profiles;
    struct str message;

    if (p->call->codec == SVC_JSON) {
        if (svc_message_json(p->call, &inflate, doc, e) ||
            push_msg_json(json_root(*doc), most, a, &p->msg, e))
            return e->code;
    } else if (svc_message(p->call, &inflate, tmp, &message, e) ||
               push_msg_proto(message, most, a, &p->msg, e)) {
        return e->code;
    }
    return keep_ids(p, e);
}

static int decode(void *cookie, const struct batch_sink *sink, struct err *e)
{
    struct push_call *p = cookie;
    struct arena *a = arena_new((size_t)sink->limits->decode_bytes);
    struct json_doc *doc = NULL;
    struct buf tmp;

    buf_init(&tmp, (size_t)sink->limits->inflated_bytes);
    int rc = take_apart(p, a, sink->limits, &doc, &tmp, e);
    if (!rc)
        rc = push_msg_push(&p->msg, sink, e);
    json_doc_free(doc);
    buf_deinit(&tmp);
    arena_free(a);
    return rc;
}

static void which(void *cookie, size_t row, struct buf *out)
{
    const struct push_call *p = cookie;

    buf_addf(out, "push series with index %zu and id %.*s failed: ", row, STR_ARG(p->ids[row]));
}

static void done(void *cookie, const struct intake_result *r)
{
    struct push_call *p = cookie;
    struct err e;

    if (intake_error(r, which, p, &e)) {
        svc_reply_err(p->call, &e);
        return;
    }
    left_out_tell(p->call->r, r->left_out);
    svc_reply(p->call, NULL);
}

static void on_push(struct svc_call *c)
{
    struct distributor *d = c->cookie;
    struct push_call *p = ARENA_NEW(c->r->arena, struct push_call);
    struct intake_opts o = { .http = c->r,
                             .format = "push",
                             .body = c->r->body,
                             .grows = GROWS,
                             .decode = decode,
                             .done = done,
                             .cookie = p };
    struct err e;

    CHECK(p); /* the arena is still empty */
    *p = (struct push_call){ .call = c, .d = d };
    if (c->deadline_ms != SVC_FOREVER)
        o.left_ms = MAX(svc_left_ms(c, UINT64_MAX), 1);
    if (intake_start(d, &o, &e))
        svc_reply_err(c, &e);
}

void api_push_routes(struct distributor *d)
{
    size_t body_max = (size_t)d->ctx->common->body_bytes_max;

    svc_service(d->ctx->http, "/push.v1.PusherService/*");
    svc_route(d->ctx->http, "/push.v1.PusherService/Push", SVC_PROTO | SVC_JSON, body_max, on_push,
              d);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * svc_health: grpc.health.v1.Health (the gRPC health checking protocol): Check in all protocols,
 * Watch in those that have streams.
 *
 *   HealthCheckRequest   1 service: string, "" = the server as a whole
 *   HealthCheckResponse  1 status: 1 SERVING, 2 NOT_SERVING, 3 SERVICE_UNKNOWN (Watch only)
 *
 * A service is known where a route of it is, and serves while the server as a whole does. An
 * unknown service is not_found for Check; Watch reports it and continues, as the protocol demands.
 *
 * A watch gets the status at once, then each change, until it leaves. There are at most
 * SVC_HEALTH_WATCHES_MAX; one more ends the oldest, whose client asks again if it is still there:
 * so watches of vanished clients make room, and no client can be kept out. A watch would keep a
 * drain from ending, so svc_health_stop ends them all with a last message.
 */
#include "common/base/mem.h"
#include "common/base/rd.h"
#include "common/base/wr.h"
#include "common/net/http_server.h"
#include "common/net/svc/svc.h"

#define BODY_MAX (4 * KIB)

enum status { SERVING = 1, NOT_SERVING = 2, UNKNOWN = 3 };

struct watch { /* from the head of its call to its end */
    struct list link;
    struct svc_health *health;
    struct svc_call *call;
    struct str service; /* in the call's arena */
    bool asked;
    enum status said; /* 0: nothing yet */
};

static int service_of_json(struct arena *a, const struct json_doc *doc, struct str *ret,
                           struct err *e)
{
    struct str name = STR("");
    int rc = json_take_str(json_get(json_root(doc), "service", NULL), "service", &name, e);

    *ret = arena_strdup(a, name);
    return rc;
}

static int service_of_proto(struct str text, struct str *ret, struct err *e)
{
    struct rd r = rd_of(text);
    struct pb_field f;
    int got;

    *ret = STR("");
    while ((got = rd_pb(&r, &f)) > 0)
        if (f.number == 1 && f.wire == 2)
            *ret = f.bytes;
    return got < 0 ? err_set(e, ERR_INPUT, "malformed HealthCheckRequest") : 0;
}

/* Of a unary call; *ret may point into *tmp. */
static int service_of(const struct svc_call *c, struct buf *tmp, struct str *ret, struct err *e)
{
    const struct inflate_limits l = { .bytes_max = BODY_MAX, .ratio_max = 200 };
    struct json_doc *doc;
    struct str text;

    if (c->codec == SVC_JSON) {
        if (svc_message_json(c, &l, &doc, e))
            return e->code;
        int rc = service_of_json(c->r->arena, doc, ret, e);
        json_doc_free(doc);
        return rc;
    }
    if (svc_message(c, &l, tmp, &text, e))
        return e->code;
    return service_of_proto(text, ret, e);
}

static bool known(const struct http_server *s, struct str service)
{
    bool found = service.len == 0;

    vec_for (i, &s->routes.all) {
        struct str path = str_c(s->routes.all.ptr[i]->path);
        found = found || (path.len > service.len + 2 && path.ptr[service.len + 1] == '/' &&
                          str_eq(str_sub(path, 1, service.len + 1), service));
    }
    return found;
}

static enum status status_of(const struct svc_health *h, struct str service)
{
    if (!known(h->server, service))
        return UNKNOWN;
    return !h->stopped && h->serving(h->cookie) ? SERVING : NOT_SERVING;
}

static void put_status(enum svc_codec codec, enum status status, struct buf *out)
{
    static const char *const names[] = {
        [SERVING] = "SERVING",
        [NOT_SERVING] = "NOT_SERVING",
        [UNKNOWN] = "SERVICE_UNKNOWN",
    };

    buf_init(out, 64);
    if (codec == SVC_JSON)
        buf_addf(out, "{\"status\":\"%s\"}", names[status]);
    else
        buf_add(out, (const char[]){ 8, (char)status }, 2);
}

static void on_check(struct svc_call *c)
{
    const struct svc_health *h = c->cookie;
    enum status status = UNKNOWN;
    struct str service;
    struct buf tmp, out;
    struct err e;

    buf_init(&tmp, BODY_MAX);
    int rc = service_of(c, &tmp, &service, &e);
    if (!rc)
        status = status_of(h, service);
    if (!rc && status == UNKNOWN)
        rc = err_set(&e, ERR_NOT_FOUND, "there is no service %.*s", (int)MIN(service.len, 200),
                     service.ptr);
    buf_deinit(&tmp);
    if (rc) {
        svc_reply_err(c, &e);
        return;
    }
    put_status(c->codec, status, &out);
    svc_reply(c, &out);
    buf_deinit(&out);
}

/* ---- watches -------------------------------------------------------------------------------- */

static void watch_end(struct watch *w, const struct err *e)
{
    list_del(&w->link);
    w->health->watches_len--;
    svc_end(w->call, e); /* *w is in its arena */
}

static void watch_say(struct watch *w)
{
    enum status now = status_of(w->health, w->service);
    struct buf out;

    if (!w->asked || now == w->said)
        return;
    w->said = now;
    put_status(w->call->codec, now, &out);
    svc_send(w->call, &out);
}

static int watch_service(struct watch *w, struct str message, struct err *e)
{
    struct arena *a = w->call->r->arena;
    struct json_doc *doc;
    int rc;

    if (w->asked)
        return err_set(e, ERR_INPUT, "Watch takes one message");
    if (w->call->codec == SVC_JSON) {
        if (json_parse(message, &doc, e))
            return e->code;
        rc = json_is_obj(json_root(doc)) ? service_of_json(a, doc, &w->service, e)
                                         : err_set(e, ERR_INPUT, "the message is no JSON object");
        json_doc_free(doc);
        return rc;
    }
    rc = service_of_proto(message, &w->service, e);
    w->service = arena_strdup(a, w->service);
    return rc;
}

static void on_watch_message(struct svc_call *c, struct str message)
{
    struct watch *w = c->user;
    struct err e;

    if (watch_service(w, message, &e)) {
        watch_end(w, &e);
        return;
    }
    w->asked = true;
    watch_say(w);
    svc_next(c);
}

static void on_watch_end(struct svc_call *c)
{
    struct watch *w = c->user;
    struct err e;

    if (w->asked)
        return; /* the client has nothing more to say, we have */
    (void)err_set(&e, ERR_INPUT, "Watch without a message");
    watch_end(w, &e);
}

static void on_watch_gone(struct svc_call *c, const struct err *why)
{
    watch_end(c->user, why);
}

static void end_watch(struct watch *w, const char *why)
{
    struct err e;

    (void)err_set(&e, ERR_UNAVAILABLE, "%s", why);
    watch_end(w, &e);
}

static void on_watch(struct svc_call *c)
{
    struct svc_health *h = c->cookie;
    struct watch *w = ARENA_NEW(c->r->arena, struct watch);

    CHECK(w); /* the arena is still empty */
    *w = (struct watch){ .health = h, .call = c };
    list_init(&w->link);
    list_add_tail(&h->watches, &w->link);
    h->watches_len++;
    c->user = w;
    c->on_message = on_watch_message;
    c->on_end = on_watch_end;
    c->on_gone = on_watch_gone;
    if (h->stopped)
        end_watch(w, "the server stops");
    else if (h->watches_len > SVC_HEALTH_WATCHES_MAX)
        end_watch(container_of(h->watches.next, struct watch, link),
                  "too many watch; the oldest makes room: try again");
}

void svc_health_look(struct svc_health *h)
{
    list_for (it, &h->watches)
        watch_say(container_of(it, struct watch, link));
}

void svc_health_stop(struct svc_health *h)
{
    h->stopped = true;
    list_for (it, &h->watches) {
        struct watch *w = container_of(it, struct watch, link);

        watch_say(w);
        end_watch(w, "the server stops");
    }
}

void svc_health_routes(struct svc_health *h, struct http_server *s, bool (*serving)(void *cookie),
                       void *cookie)
{
    *h = (struct svc_health){ .server = s, .serving = serving, .cookie = cookie };
    list_init(&h->watches);
    svc_service(s, "/grpc.health.v1.Health/*");
    svc_route(s, "/grpc.health.v1.Health/Check", SVC_PROTO | SVC_JSON, BODY_MAX, on_check, h);
    svc_route_stream(s, "/grpc.health.v1.Health/Watch", SVC_PROTO | SVC_JSON, BODY_MAX, on_watch,
                     h);
}

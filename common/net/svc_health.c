/* SPDX-License-Identifier: Apache-2.0
 *
 * svc_health: grpc.health.v1.Health/Check (the gRPC health checking protocol), in all protocols.
 *
 *   HealthCheckRequest   1 service: string, "" = the server as a whole
 *   HealthCheckResponse  1 status: 1 SERVING, 2 NOT_SERVING; of a service nobody has: not_found
 *
 * A service is known where a route of it is, and serves while the server as a whole does.
 */
#include "common/base/mem.h"
#include "common/base/rd.h"
#include "common/base/wr.h"
#include "common/net/http_server.h"
#include "common/net/svc.h"

#define BODY_MAX (4 * KIB)

static int service_of(const struct svc_call *c, struct buf *tmp, struct str *ret, struct err *e)
{
    const struct inflate_limits l = { .bytes_max = BODY_MAX, .ratio_max = 200 };
    struct json_doc *doc;
    struct str text, name = STR("");
    struct pb_field f;
    int got;

    *ret = STR("");
    if (c->codec == SVC_JSON) {
        if (svc_message_json(c, &l, &doc, e))
            return e->code;
        int rc = json_take_str(json_get(json_root(doc), "service", NULL), "service", &name, e);
        *ret = arena_strdup(c->r->arena, name);
        json_doc_free(doc);
        return rc;
    }
    if (svc_message(c, &l, tmp, &text, e))
        return e->code;
    struct rd r = rd_of(text);
    while ((got = rd_pb(&r, &f)) > 0)
        if (f.number == 1 && f.wire == 2)
            *ret = f.bytes;
    return got < 0 ? err_set(e, ERR_INPUT, "malformed HealthCheckRequest") : 0;
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

static void on_check(struct svc_call *c)
{
    const struct svc_health *h = c->cookie;
    struct str service;
    struct buf tmp, out;
    struct err e;

    buf_init(&tmp, BODY_MAX);
    int rc = service_of(c, &tmp, &service, &e);
    if (!rc && !known(h->server, service))
        rc = err_set(&e, ERR_NOT_FOUND, "there is no service %.*s", (int)MIN(service.len, 200),
                     service.ptr);
    buf_deinit(&tmp);
    if (rc) {
        svc_reply_err(c, &e);
        return;
    }
    bool up = h->serving(h->cookie);
    buf_init(&out, 64);
    if (c->codec == SVC_JSON)
        buf_addf(&out, "{\"status\":\"%s\"}", up ? "SERVING" : "NOT_SERVING");
    else
        buf_add(&out, up ? "\x08\x01" : "\x08\x02", 2);
    svc_reply(c, &out);
    buf_deinit(&out);
}

void svc_health_routes(struct svc_health *h, struct http_server *s, bool (*serving)(void *cookie),
                       void *cookie)
{
    *h = (struct svc_health){ s, serving, cookie };
    svc_service(s, "/grpc.health.v1.Health/*");
    svc_route(s, "/grpc.health.v1.Health/Check", SVC_PROTO | SVC_JSON, BODY_MAX, on_check, h);
}

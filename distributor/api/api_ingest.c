/* SPDX-License-Identifier: Apache-2.0
 *
 * api_ingest: POST /ingest: the parameters of the URL, one push out of the body, and the intake
 * does the rest. What is wrong with it is the answer.
 */
#include "distributor/api/api_ingest.h"

#include "common/net/http_not_found.h"
#include "distributor/base/left_out.h"
#include "distributor/base/state.h"
#include "distributor/formats/formats.h"
#include "distributor/formats/upload/upload.h"
#include "distributor/intake/intake.h"
#include "distributor/rules/rules.h"

struct ingest_call { /* in the request's arena */
    struct http_req *req;
    struct ingest in;
};

static int decode(void *cookie, const struct batch_sink *sink, struct err *e)
{
    const struct ingest_call *c = cookie;
    struct inflate_limits inflate = limits_inflate(sink->limits);
    struct push *push = sink->begin(sink->cookie, &c->in, e);
    struct buf plain;
    struct str body;

    if (!push)
        return e->code;
    buf_init(&plain, (size_t)sink->limits->inflated_bytes);
    int rc = http_body_plain(c->req, &inflate, &plain, &body, e);
    if (!rc) {
        rc = formats_decode(&(struct decode_job){ &c->in, sink->limits, sink->now_ms, push }, body,
                            e);
        if (rc)
            upload_hint(c->in.format, body, sink->limits, e);
    }
    if (!rc)
        rc = sink->end(sink->cookie, push, body, STR_NULL, e);
    buf_deinit(&plain);
    return rc;
}

static void reply_error(struct http_req *r, const struct err *e)
{
    int status = intake_status(e);

    if (status == err_http_status(e->code))
        http_reply_err(r, e);
    else
        http_reply_status(r, status, err_connect_name(e->code), e->text);
}

static void done(void *cookie, const struct intake_result *r)
{
    const struct ingest_call *c = cookie;
    struct err e;

    if (intake_error(r, NULL, NULL, &e)) {
        reply_error(c->req, &e);
        return;
    }
    left_out_tell(c->req, r->left_out);
    http_reply(c->req, 200, NULL, NULL);
}

static void raw_of(const struct http_req *r, struct ingest_raw *raw)
{
    const struct {
        const char *name;
        struct str *to;
    } params[] = {
        { "name", &raw->name },        { "from", &raw->from },
        { "until", &raw->until },      { "sampleRate", &raw->sample_rate },
        { "spyName", &raw->spy_name }, { "format", &raw->format },
    };

    for (size_t i = 0; i < ARRAY_LEN(params); i++)
        if (!http_param(r, params[i].name, params[i].to))
            *params[i].to = STR_NULL;
    raw->content_type = http_header(r, "Content-Type");
}

static int parse_request(struct distributor *d, const struct http_req *r, struct str *ret_tenant,
                         struct ingest *ret_in, struct err *e)
{
    struct ingest_raw raw;

    if (intake_check(d, r, ret_tenant, e))
        return e->code;
    raw_of(r, &raw);
    return ingest_parse(&raw, rules_limits(d->rules, *ret_tenant),
                        clock_wall_ms(d->ctx->env->clock), r->arena, ret_in, e);
}

static void on_ingest(struct http_req *r)
{
    struct distributor *d = r->route_cookie;
    struct ingest_call *c = ARENA_NEW(r->arena, struct ingest_call);
    struct intake_opts o = {
        .http = r, .body = r->body, .decode = decode, .done = done, .cookie = c
    };
    struct err e;

    CHECK(c); /* the arena is still empty */
    c->req = r;
    if (parse_request(d, r, &o.tenant, &c->in, &e)) {
        distributor_refused(&d->metrics, &e, r->peer);
        http_reply_err(r, &e);
        return;
    }
    o.format = format_name(c->in.format);
    if (intake_start(d, &o, &e))
        http_reply_err(r, &e);
}

/* Paths that other products use. A request to one of them gets a hint with its 404; registered
 * routes take precedence. */
static void say_where(struct http_server *s)
{
    static const char otlp[] = "OTLP profiles go to /v1development/profiles";
    static const char other[] = "of OpenTelemetry, profiles are taken here, at "
                                "/v1development/profiles, and no other signal";
    static const char push[] =
        "profiles are pushed to /ingest?name=..., or to /push.v1.PusherService/Push";
    static const char upload[] = "files to look at are uploaded to /api/v1/adhoc?name=...";
    static const char query[] = "a distributor answers no questions; a querier does";
    static const char *const rows[][2] = {
        { "/v1/profiles", otlp },
        { "/v1/traces", other },
        { "/v1/metrics", other },
        { "/v1/logs", other },
        { "/push", push },
        { "/api/v1/push", push },
        { "/api/v1/profiles", push },
        { "/pyroscope", push },
        { "/upload", upload },
        { "/api/v1/upload", upload },
        { "/api/v1/targets", "nothing is fetched: distributor.scrape_config_file names no file" },
        { "/api/v1/forward",
          "nothing is forwarded: distributor.forward_config_file names no file" },
        { "/render", query },
        { "/pyroscope/render", query },
        { "/querier.v1.QuerierService/*", query },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        http_not_found_hint(s, rows[i][0], rows[i][1]);
}

void api_ingest_routes(struct distributor *d)
{
    size_t body_max = (size_t)d->ctx->common->body_bytes_max;

    http_route(d->ctx->http, HTTP_POST, "/ingest", body_max, on_ingest, d);
    http_route(d->ctx->http, HTTP_POST, "/pyroscope/ingest", body_max, on_ingest, d);
    say_where(d->ctx->http);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * api_otlp: requests to export profiles, from their head to their answer.
 *
 *   Content-Type    application/x-protobuf, /protobuf, /json    OTLP/HTTP, on both kinds of paths
 *                   application/grpc*, grpc-web*, /proto        the service, on its path
 *
 * Answers. Everything taken: an empty message. Some of it refused for good: an answer that says how
 * many and why (partial_success), which exporters log and do not repeat. All of it refused, or some
 * of it for now: an error, in the codec of the request (google.rpc.Status over HTTP). Exporters
 * come again after 429, 502, 503 and 504 only, and what was stored the first time is not counted
 * twice then (write_id.c).
 */
#include "distributor/api/api_otlp.h"

#include <stdio.h>

#include "common/base/json.h"
#include "common/base/wr.h"
#include "common/net/svc/svc.h"
#include "distributor/base/left_out.h"
#include "distributor/base/state.h"
#include "distributor/intake/intake.h"
#include "distributor/otlp/otlp_push.h"

#define PACKAGE      "opentelemetry.proto.collector.profiles."
#define PROTO_TYPE   "application/x-protobuf"
#define JSON_TYPE    "application/json"
#define REPLY_MAX    (64 * KIB)
#define MESSAGE_MOST (4 * KIB) /* of partial_success */

struct export
{ /* in the request's arena */
    struct http_req *r;
    struct svc_call *call; /* NULL: OTLP/HTTP */
    struct distributor *d;
    bool json;
    enum otlp_layout layout;
};

/* ---- answers -------------------------------------------------------------------------------- */

static void put_bytes(struct buf *out, uint8_t tag, struct str bytes)
{
    buf_add_c(out, (char)tag);
    wr_varint(out, bytes.len);
    buf_add_str(out, bytes);
}

/* google.rpc.Status: 1 code, 2 message. */
static void status_proto(uint32_t code, struct str text, struct buf *out)
{
    buf_add_c(out, 0x08);
    wr_varint(out, code);
    put_bytes(out, 0x12, text);
}

static void status_json(uint32_t code, struct str text, struct buf *out)
{
    struct json j;

    json_init(&j, out);
    json_obj(&j);
    json_put_u64(&j, "code", code);
    json_put_str(&j, "message", text);
    json_obj_end(&j);
}

/* ExportProfilesServiceResponse: 1 partial_success { 1 rejected_profiles, 2 error_message }. */
static void partial_proto(uint64_t rejected, struct str text, struct buf *out)
{
    struct buf inner;

    buf_init(&inner, REPLY_MAX);
    buf_add_c(&inner, 0x08);
    wr_varint(&inner, rejected);
    put_bytes(&inner, 0x12, text);
    put_bytes(out, 0x0a, buf_str(&inner));
    buf_deinit(&inner);
}

static void partial_json(uint64_t rejected, struct str text, struct buf *out)
{
    struct json j;

    json_init(&j, out);
    json_obj(&j);
    json_key(&j, "partialSuccess");
    json_obj(&j);
    json_put_i64_str(&j, "rejectedProfiles", (int64_t)rejected);
    json_put_str(&j, "errorMessage", text);
    json_obj_end(&j);
    json_obj_end(&j);
}

static void reply_error(struct export *x, const struct err *e)
{
    int status = intake_status(e);
    struct buf out;

    if (x->call) {
        svc_reply_err(x->call, e);
        return;
    }
    buf_init(&out, REPLY_MAX);
    (x->json ? status_json : status_proto)(svc_grpc_code(e->code), str_c(e->text), &out);
    http_reply_retry(x->r, status, e);
    http_reply(x->r, status, x->json ? JSON_TYPE : PROTO_TYPE, &out);
    buf_deinit(&out);
}

/* `why` NULL: everything was taken. */
static void reply_taken(struct export *x, uint64_t rejected, const struct err *why)
{
    struct str text = why ? str_sub(str_c(why->text), 0, MESSAGE_MOST) : STR_NULL;
    struct buf out;

    buf_init(&out, REPLY_MAX);
    if (why)
        (x->json ? partial_json : partial_proto)(rejected, text, &out);
    else if (x->json)
        buf_add_str(&out, STR("{}"));
    if (x->call)
        svc_reply(x->call, &out);
    else
        http_reply(x->r, 200, x->json ? JSON_TYPE : PROTO_TYPE, &out);
    buf_deinit(&out);
}

/* Will the same request do better another time? */
static bool passing(int code)
{
    int status = err_http_status(code);

    return status == 429 || status >= 500;
}

static void done(void *cookie, const struct intake_result *r)
{
    struct export *x = cookie;
    struct err e;
    bool some = !r->err && intake_error(r, NULL, NULL, &e);

    if (r->err) {
        reply_error(x, r->err);
    } else if (some && (passing(e.code) || r->stored + r->empty == 0)) {
        reply_error(x, &e);
    } else {
        left_out_tell(x->r, r->left_out);
        reply_taken(x, r->rejected, some ? &e : NULL);
    }
}

/* ---- the request ---------------------------------------------------------------------------- */

static int decode(void *cookie, const struct batch_sink *sink, struct err *e)
{
    const struct inflate_limits inflate = limits_inflate(sink->limits);
    const struct export *x = cookie;
    struct str plain;
    struct buf tmp;

    buf_init(&tmp, (size_t)sink->limits->inflated_bytes);
    int rc = x->call ? svc_message(x->call, &inflate, &tmp, &plain, e)
                     : http_body_plain(x->r, &inflate, &tmp, &plain, e);
    if (!rc)
        rc = x->json ? otlp_decode_json(plain, sink, e)
                     : otlp_decode_proto(plain, x->layout, sink, e);
    buf_deinit(&tmp);
    return rc;
}

static void start(struct distributor *d, struct http_req *r, struct svc_call *call, bool json)
{
    struct export *x = ARENA_NEW(r->arena, struct export);
    struct intake_opts o = {
        .http = r, .format = "otlp", .body = r->body, .decode = decode, .done = done, .cookie = x
    };
    struct err e;

    CHECK(x); /* the arena is nearly empty */
    *x = (struct export){ .r = r, .call = call, .d = d, .json = json };
    CHECK(otlp_layout_parse(str_c(d->conf->otlp_layout), &x->layout));
    if (call && call->deadline_ms != SVC_FOREVER)
        o.left_ms = MAX(svc_left_ms(call, UINT64_MAX), 1);
    if (intake_start(d, &o, &e))
        reply_error(x, &e);
}

/* The type without parameters; a charset says nothing that JSON and protobuf do not. */
static bool media_type(const struct http_req *r, bool *ret_json)
{
    struct str type = http_header(r, "Content-Type");
    ptrdiff_t semicolon = str_find(type, ';');

    type = str_trim(semicolon < 0 ? type : str_sub(type, 0, (size_t)semicolon));
    *ret_json = str_eq_nocase(type, STR(JSON_TYPE));
    return *ret_json || str_eq_nocase(type, STR(PROTO_TYPE)) ||
           str_eq_nocase(type, STR("application/protobuf"));
}

static void on_http(struct http_req *r)
{
    struct buf text;
    bool json;

    if (media_type(r, &json)) {
        start(r->route_cookie, r, NULL, json);
        return;
    }
    buf_init(&text, KIB);
    buf_addf(&text, "unsupported content type: send " PROTO_TYPE " or " JSON_TYPE "\n");
    http_reply(r, 415, "text/plain; charset=utf-8", &text);
    buf_deinit(&text);
}

/* The path of the service takes OTLP/HTTP, too. JSON may be either: Connect says its version. */
static void on_export(struct http_req *r)
{
    bool json, http = media_type(r, &json) && !http_header(r, "Connect-Protocol-Version").ptr;
    struct svc_call *call;

    if (http) {
        on_http(r);
        return;
    }
    call = ARENA_NEW(r->arena, struct svc_call);
    CHECK(call); /* the arena is still empty */
    if (svc_accept(r, SVC_PROTO | SVC_JSON, call))
        start(r->route_cookie, r, call, call->codec == SVC_JSON);
}

void api_otlp_routes(struct distributor *d)
{
    static const char *const versions[] = { "v1development", "v1experimental" };
    size_t body_max = (size_t)d->ctx->common->body_bytes_max;
    struct http_server *s = d->ctx->http;
    char path[128];

    for (size_t i = 0; i < ARRAY_LEN(versions); i++) {
        (void)snprintf(path, sizeof(path), "/%s/profiles", versions[i]);
        http_route(s, HTTP_POST, path, body_max, on_http, d);
        (void)snprintf(path, sizeof(path), "/" PACKAGE "%s.ProfilesService/*", versions[i]);
        svc_service(s, path);
        (void)snprintf(path, sizeof(path), "/" PACKAGE "%s.ProfilesService/Export", versions[i]);
        http_route(s, HTTP_POST, path, body_max, on_export, d);
    }
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * http_reply: from "status and body" to an answer with all its headers, handed to the sink.
 *
 *   http_reply ──> compress? ──no──────────────────────────> finish ──> sink->answer, free
 *                     ├─ short: here ────────────────────────> finish
 *                     └─ long: pool thread (out -> zip) ─done─> finish
 *
 * While a pool thread compresses it alone touches out and zip; the loop touches the rest.
 */
#include <stdio.h>

#include "common/base/compress/compress.h"
#include "common/base/json.h"
#include "common/base/size.h"
#include "common/net/http_server.h"

enum { JSON_REPLY_MAX = 8192 };

static struct http_xchg *xchg_of(struct http_req *r)
{
    CHECK(r->magic == HTTP_XCHG_MAGIC);
    return container_of(r, struct http_xchg, req);
}

/* Control bytes in a value would end the header, or the head. */
static void add_value(struct buf *text, struct str value)
{
    size_t n = MIN(value.len, HTTP_REPLY_VALUE_MAX);

    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)value.ptr[i];
        buf_add_c(text, (c < 0x20 && c != '\t') || c == 0x7f ? ' ' : (char)c);
    }
}

static struct http_line add_line(struct http_xchg *x, const char *name, struct str value)
{
    struct str n = str_c(name);
    struct http_line l;

    CHECK(n.len > 0 && n.len <= 128);
    for (size_t i = 0; i < n.len; i++)
        CHECK(http_is_tchar((uint8_t)n.ptr[i]));
    l.name = u32_from(x->text.len);
    l.name_len = u32_from(n.len);
    buf_add_str(&x->text, n);
    l.value = u32_from(x->text.len);
    add_value(&x->text, value);
    l.value_len = u32_from(x->text.len - l.value);
    CHECK(buf_ok(&x->text));
    return l;
}

void http_reply_header(struct http_req *r, const char *name, struct str value)
{
    struct http_xchg *x = xchg_of(r);

    CHECK(x->headers_len < HTTP_REPLY_HEADERS_MAX);
    if (str_eq_nocase(str_c(name), STR("Content-Encoding")))
        x->no_gzip = true;
    if (str_eq_nocase(str_c(name), STR("Retry-After")))
        x->has_retry = true;
    x->headers[x->headers_len++] = add_line(x, name, value);
}

void http_reply_trailer(struct http_req *r, const char *name, struct str value)
{
    struct http_xchg *x = xchg_of(r);

    CHECK(x->trailers_len < HTTP_TRAILERS_MAX);
    x->trailers[x->trailers_len++] = add_line(x, name, value);
}

/* ---- the answer */

static void read_lines(const struct http_xchg *x, const struct http_line *from, size_t n,
                       struct http_header *to)
{
    for (size_t i = 0; i < n; i++)
        to[i] = (struct http_header){
            { x->text.ptr + from[i].name, from[i].name_len },
            { x->text.ptr + from[i].value, from[i].value_len },
        };
}

static struct str id_text(char to[16], uint64_t id)
{
    for (int i = 0; i < 16; i++)
        to[i] = "0123456789abcdef"[id >> (60 - 4 * i) & 15];
    return str_n(to, 16);
}

static struct str decimal_text(char to[20], uint64_t n)
{
    size_t at = 20;

    do {
        to[--at] = (char)('0' + n % 10);
        n /= 10;
    } while (n);
    return str_n(to + at, 20 - at);
}

void http_reply_head(struct http_xchg *x, const size_t *length, struct http_reply_head *to)
{
    read_lines(x, x->headers, x->headers_len, to->list);
    read_lines(x, x->trailers, x->trailers_len, to->trailers);
    to->trailers_len = x->trailers_len;
    to->len = x->headers_len;
    to->list[to->len++] = (struct http_header){ STR("X-Request-Id"), id_text(to->id, x->req.id) };
    to->list[to->len++] = (struct http_header){ STR("Date"), http_server_date(x->server) };
    /* What one identity may see is not for the next one behind the same cache. */
    if (x->req.identity) {
        to->list[to->len++] =
            (struct http_header){ STR("Cache-Control"), STR("private, no-store") };
        to->list[to->len++] =
            (struct http_header){ STR("Vary"), STR("Authorization, Cookie, X-Scope-OrgID") };
    }
    /* Some clients (curl) stop reading at the length and never see later bytes. */
    if (length && !(x->http2 && x->trailers_len)) {
        to->list[to->len++] =
            (struct http_header){ STR("Content-Length"), decimal_text(to->length, *length) };
    }
}

static void finish(struct http_xchg *x)
{
    struct http_reply_head head;
    struct http_answer a = {
        .status = x->status,
        .close = x->close,
        .no_body = x->req.method == HTTP_HEAD || x->status == 204 || x->status == 304,
        .headers = head.list,
        .body = x->out_borrowed ? x->borrowed : buf_str(&x->out),
        .own = x->out_borrowed ? NULL : &x->out,
        .trailers = head.trailers,
    };

    http_reply_head(x, x->status == 204 || x->status == 304 ? NULL : &a.body.len, &head);
    a.headers_len = head.len;
    a.trailers_len = head.trailers_len;
    http_xchg_count(x);
    if (x->sink)
        x->sink->answer(x->proto, x, &a);
    http_xchg_free(x);
}

static void compress_work(void *cookie)
{
    struct http_xchg *x = cookie;
    struct err e;

    if (gzip(buf_str(&x->out), HTTP_GZIP_LEVEL, &x->zip, &e) || x->zip.len >= x->out.len)
        buf_reset(&x->zip);
}

static void compress_done(void *cookie)
{
    struct http_xchg *x = cookie;

    if (x->zip.len) {
        buf_move(&x->out, &x->zip);
        http_reply_header(&x->req, "Content-Encoding", STR("gzip"));
    }
    finish(x);
}

void http_reply_status_set(struct http_xchg *x, int status, const char *content_type)
{
    CHECK(!x->replied && status >= 200 && status < 600);
    x->replied = true;
    x->status = status;
    if (content_type)
        http_reply_header(&x->req, "Content-Type", str_c(content_type));
}

static void reply_json(struct http_req *r, int status, const char *code, const char *message,
                       bool newline);

void http_reply(struct http_req *r, int status, const char *content_type, struct buf *body)
{
    struct http_xchg *x = xchg_of(r);

    if (body && !buf_ok(body)) { /* half an answer must not look like a whole one */
        buf_deinit(body);
        reply_json(r, 500, "internal", "the reply is larger than its buffer may get", true);
        return;
    }
    http_reply_status_set(x, status, content_type);
    if (body)
        buf_move(&x->out, body);
    if (x->no_gzip || x->out.len < HTTP_COMPRESS_LEAST || gzip_sniff(buf_str(&x->out))) {
        finish(x);
        return;
    }
    http_reply_header(r, "Vary", STR("Accept-Encoding"));
    if (!http_accepts_gzip(r)) {
        finish(x);
        return;
    }
    buf_init(&x->zip, x->out.len + KIB);
    if (x->out.len <= HTTP_COMPRESS_INLINE || !x->server->o.pool) {
        compress_work(x);
        compress_done(x);
    } else if (!pool_submit(x->server->o.pool, x->req.loop, compress_work, compress_done, x)) {
        finish(x); /* the pool has better things to do than save bytes */
    }
}

/* ---- errors */

/* A message that is too large stays too large, so a retry does not help, though Connect calls this
 * resource_exhausted, too. */
uint32_t http_retry_after(int status, const struct err *e)
{
    if ((status != 429 && status != 503) || e->code == ERR_TOO_LARGE)
        return 0;
    if (e->again_s)
        return e->again_s;
    return e->code == ERR_NO_SPACE ? 30 : 1;
}

void http_reply_retry(struct http_req *r, int status, const struct err *e)
{
    uint32_t after = http_retry_after(status, e);
    char text[16];

    if (!after || xchg_of(r)->has_retry)
        return;
    int n = snprintf(text, sizeof(text), "%" PRIu32, after);
    http_reply_header(r, "Retry-After", str_n(text, (size_t)n));
}

static void reply_json(struct http_req *r, int status, const char *code, const char *message,
                       bool newline)
{
    struct buf b;
    struct json j;

    buf_init(&b, JSON_REPLY_MAX);
    json_init(&j, &b);
    json_obj(&j);
    json_put_cstr(&j, "code", code);
    if (message[0])
        json_put_cstr(&j, "message", message);
    json_obj_end(&j);
    if (newline)
        buf_add_c(&b, '\n');
    http_reply_header(r, "X-Content-Type-Options", STR("nosniff"));
    http_reply(r, status, "application/json", &b);
    buf_deinit(&b);
}

void http_reply_status(struct http_req *r, int status, const char *code, const char *message)
{
    http_reply_retry(r, status, &(struct err){ 0 });
    reply_json(r, status, code, message, true);
}

void http_reply_err(struct http_req *r, const struct err *e)
{
    int status = err_http_status(e->code);

    http_reply_retry(r, status, e);
    reply_json(r, status, err_connect_name(e->code), e->text, true);
}

void http_reply_connect_err(struct http_req *r, const struct err *e)
{
    int status = err_connect_status(e->code);

    http_reply_retry(r, status, e);
    reply_json(r, status, status == 429 ? "resource_exhausted" : err_connect_name(e->code), e->text,
               false);
}

/* ---- files of the page
 * --------------------------------------------------------------------------- */

void http_reply_static(struct http_req *r, const char *content_type, struct str plain,
                       struct str gz, const char *etag, const char *cache_control)
{
    struct http_xchg *x = xchg_of(r);
    bool not_modified = http_none_match(r, str_c(etag));
    char tag[128];

    /* Weak: the same tag names the plain and the compressed bytes. */
    int n = snprintf(tag, sizeof(tag), "W/\"%s\"", etag);
    CHECK(n > 0 && n < (int)sizeof(tag));
    http_reply_header(r, "ETag", str_c(tag));
    if (cache_control)
        http_reply_header(r, "Cache-Control", str_c(cache_control));
    if (gz.len)
        http_reply_header(r, "Vary", STR("Accept-Encoding"));
    if (not_modified) {
        http_reply_status_set(x, 304, NULL);
        finish(x);
        return;
    }
    http_reply_header(r, "X-Content-Type-Options", STR("nosniff"));
    http_reply_status_set(x, 200, content_type);
    x->out_borrowed = true;
    x->borrowed = plain;
    if (gz.len && http_accepts_gzip(r)) {
        http_reply_header(r, "Content-Encoding", STR("gzip"));
        x->borrowed = gz;
    }
    finish(x);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * http_xchg: the life of one request.
 *
 *   new ──> begin (route found) ──> body ... ──> run (handler) ──> reply ──> answer to the sink,
 * free └─ no route, wrong method, too large: answered at once
 *
 * The head is copied into the arena, since the connection's input moves on. Head and body are
 * charged to the in-flight budget until the reply was handed over.
 */
#include <stdatomic.h>

#include "common/net/http_door.h"
#include "common/net/http_not_found.h"
#include "common/net/http_param.h"
#include "common/net/http_server.h"

static_assert(sizeof(((struct http_xchg *)NULL)->peer) == sizeof(((struct stream *)NULL)->peer),
              "a peer's name is copied with its NUL");

struct http_xchg *http_xchg_new(struct http_server *s, const struct http_sink *sink, void *proto,
                                const struct stream *from)
{
    struct http_xchg *x = XNEW(struct http_xchg);

    x->req.magic = HTTP_XCHG_MAGIC;
    x->req.arena = s->arenas_len ? s->arenas[--s->arenas_len] : arena_new(HTTP_ARENA_MAX);
    x->req.loop = s->o.loop;
    x->req.id = ++s->id_last;
    x->req.start_mono_ns = clock_mono_ns(loop_clock(s->o.loop));
    x->req.peer = x->peer;
    x->req.own = from->own;
    x->req.local = from->local;
    memcpy(x->peer, from->peer, sizeof(x->peer));
    x->server = s;
    x->sink = sink;
    x->proto = proto;
    x->route = &s->unrouted;
    buf_init(&x->out, SIZE_MAX);
    buf_init(&x->zip, SIZE_MAX);
    buf_init(&x->text, (HTTP_REPLY_HEADERS_MAX + HTTP_TRAILERS_MAX) * (HTTP_REPLY_VALUE_MAX + 256));
    s->xchgs++;
    metric_move(s->running, 1);
    return x;
}

void http_xchg_free(struct http_xchg *x)
{
    struct http_server *s = x->server;

    CHECK(x->req.magic == HTTP_XCHG_MAGIC);
    if (s->o.forget)
        s->o.forget(s->o.admit_cookie, &x->req);
    x->req.magic = 0;
    http_hold_free(&x->hold, s->o.in_flight, &x->body);
    http_hold_give(&x->hold, s->o.in_flight, x->outstanding);
    http_hold_end(&x->hold);
    budget_release(s->o.in_flight, x->charged);
    buf_deinit(&x->out);
    buf_deinit(&x->zip);
    buf_deinit(&x->text);
    if (s->arenas_len < HTTP_ARENAS_KEPT) {
        arena_reset(x->req.arena);
        s->arenas[s->arenas_len++] = x->req.arena;
    } else {
        arena_free(x->req.arena);
    }
    xfree(x);
    CHECK(s->xchgs > 0);
    s->xchgs--;
    metric_move(s->running, -1);
    http_server_check_drained(s);
}

/* The path of "/a?b", "http://host/a?b" or "*"; false if the target is not one of these. */
static bool split_target(struct str target, struct str *ret_host, struct str *ret_path,
                         struct str *ret_query)
{
    struct str rest = target;
    ptrdiff_t at;

    *ret_host = STR_NULL;
    if (str_eqc(target, "*")) {
        *ret_path = target;
        *ret_query = STR_NULL;
        return true;
    }
    if (rest.len && rest.ptr[0] != '/') {
        size_t scheme = str_starts(rest, STR("http://"))    ? 7
                        : str_starts(rest, STR("https://")) ? 8
                                                            : 0;
        if (!scheme)
            return false;
        rest = str_sub(rest, scheme, rest.len);
        size_t end = 0;
        while (end < rest.len && rest.ptr[end] != '/' && rest.ptr[end] != '?')
            end++;
        *ret_host = str_sub(rest, 0, end);
        rest = str_sub(rest, end, rest.len);
    }
    at = str_find(rest, '?');
    *ret_path = at < 0 ? rest : str_sub(rest, 0, (size_t)at);
    *ret_query = at < 0 ? STR_NULL : str_sub(rest, (size_t)at + 1, rest.len);
    if (ret_path->len == 0)
        *ret_path = STR("/");
    return true;
}

/* Copies what the head holds into the arena: target and headers. */
static bool copy_head(struct http_xchg *x, const struct http_head *h, struct str *ret_target)
{
    size_t bytes = h->target.len;
    struct http_header *to;

    for (size_t i = 0; i < h->headers_len; i++)
        bytes += h->headers[i].name.len + h->headers[i].value.len;
    if (!budget_reserve(x->server->o.in_flight, bytes))
        return false;
    x->charged = bytes;
    char *text = arena_alloc(x->req.arena, bytes);
    to = ARENA_ARRAY(x->req.arena, struct http_header, h->headers_len + 1);
    CHECK(text && to); /* a head is far smaller than the arena */
    memcpy(text, h->target.ptr, h->target.len);
    *ret_target = (struct str){ text, h->target.len };
    text += h->target.len;
    for (size_t i = 0; i < h->headers_len; i++) {
        struct str part[2] = { h->headers[i].name, h->headers[i].value };
        for (size_t k = 0; k < 2; k++) {
            if (part[k].len)
                memcpy(text, part[k].ptr, part[k].len);
            part[k].ptr = text;
            text += part[k].len;
        }
        to[i] = (struct http_header){ part[0], part[1] };
    }
    x->req.headers = to;
    x->req.headers_len = h->headers_len;
    return true;
}

static void answer_options(struct http_xchg *x, unsigned allow)
{
    struct buf b;

    buf_init(&b, 96);
    http_methods_text(allow, &b);
    http_reply_header(&x->req, "Allow", buf_str(&b));
    buf_deinit(&b);
    http_reply(&x->req, 204, NULL, NULL);
}

static void answer_method(struct http_xchg *x, struct str method, unsigned allow)
{
    struct err e;
    struct buf b;

    buf_init(&b, 96);
    http_methods_text(allow, &b);
    http_reply_header(&x->req, "Allow", buf_str(&b));
    err_set(&e, ERR_METHOD, "%.*s is not allowed here; allowed: %.*s", STR_ARG(method),
            STR_ARG(buf_str(&b)));
    buf_deinit(&b);
    http_reply_err(&x->req, &e);
}

/* Sets x->route, or answers and returns false. */
static bool find_route(struct http_xchg *x, const struct http_head *h)
{
    unsigned allow;
    struct http_route *r = http_routes_find(&x->server->routes, x->req.path, x->req.method, &allow);

    if (r) {
        x->route = r;
        x->req.route_cookie = r->cookie;
        return true;
    }
    if (x->req.method == HTTP_OPTIONS && str_eqc(x->req.path, "*"))
        allow = HTTP_GET | HTTP_HEAD | HTTP_POST | HTTP_PUT | HTTP_DELETE | HTTP_OPTIONS;
    if (!allow && x->http2 && (h->chunked || h->length <= HTTP_LOST_TAKES)) {
        x->route = &x->server->lost;
        return true;
    } else if (!allow) {
        http_reply_not_found(&x->req);
    } else if (x->req.method == HTTP_OPTIONS) {
        if (http_door_preflight(x, http_routes_acts(&x->server->routes, x->req.path)))
            answer_options(x, allow);
    } else {
        answer_method(x, h->method, allow);
    }
    return false;
}

bool http_xchg_begin(struct http_xchg *x, const struct http_head *h)
{
    struct str target, host, path;
    struct err e;

    x->req.method = http_method_of(h->method);
    if (!copy_head(x, h, &target)) {
        metric_add(x->server->refused[HTTP_REFUSED_BUDGET], 1);
        x->close = true;
        err_set(&e, ERR_BUSY, "too many bytes of requests are held at once; try again");
        http_reply_err(&x->req, &e);
        return false;
    }
    if (!split_target(target, &host, &path, &x->req.query) ||
        (str_eqc(path, "*") && x->req.method != HTTP_OPTIONS)) {
        http_reply_status(&x->req, 400, "invalid_argument",
                          "the request target is neither a path nor an http URL");
        return false;
    }
    if (host.ptr && !str_eq_nocase(host, http_header(&x->req, "Host"))) {
        http_reply_status(&x->req, 400, "invalid_argument",
                          "the request target and the Host header name different hosts");
        return false;
    }
    x->req.path = http_unescape(path, false, x->req.arena);
    if (!http_door_host(x) || !find_route(x, h) || !http_door_route(x))
        return false;
    if (!h->chunked && h->length > x->route->body_max) {
        metric_add(x->server->refused[HTTP_REFUSED_BODY], 1);
        err_set(&e, ERR_TOO_LARGE, "the body has %" PRIu64 " bytes, at most %zu are taken here",
                h->length, x->route->body_max);
        http_reply_err(&x->req, &e);
        return false;
    }
    return true;
}

/* The first bytes of a body have come. */
static void begin_hold(struct http_xchg *x)
{
    if (!x->hold.share)
        http_hold_begin(x->server->shares, &x->req, &x->hold);
}

int http_xchg_body(struct http_xchg *x, struct str bytes, size_t max)
{
    if (bytes.len > x->route->body_max - x->body.len)
        return ERR_TOO_LARGE;
    begin_hold(x);
    return http_hold_add(&x->hold, x->server->o.in_flight, &x->body, bytes,
                         MIN(max, x->route->body_max));
}

void http_xchg_run(struct http_xchg *x)
{
    x->started = true;
    x->req.body = (struct str){ x->body.ptr, x->body.len };
    x->route->fn(&x->req);
}

/* ---- a body in pieces */

int http_xchg_data(struct http_xchg *x, struct str bytes, struct err *e)
{
    CHECK(x->route->stream && x->started && !x->ended && bytes.len <= http_xchg_window(x));
    if (bytes.len > x->route->body_max - x->got)
        return err_set(e, ERR_TOO_LARGE, "the body has more than the %zu bytes that are taken here",
                       x->route->body_max);
    begin_hold(x);
    int code = http_hold_take(&x->hold, x->server->o.in_flight, bytes.len);
    if (code)
        return err_set(e, code, "%s", http_hold_why(code));
    x->outstanding += bytes.len;
    x->got += bytes.len;
    if (x->req.on_data)
        x->req.on_data(&x->req, bytes);
    else
        http_stream_took(&x->req, bytes.len);
    return 0;
}

void http_xchg_ended(struct http_xchg *x, const struct err *e)
{
    if (x->ended)
        return;
    x->ended = true;
    if (x->req.on_end)
        x->req.on_end(&x->req, e);
}

void http_stream_took(struct http_req *r, size_t n)
{
    struct http_xchg *x = container_of(r, struct http_xchg, req);

    CHECK(r->magic == HTTP_XCHG_MAGIC && n <= x->outstanding);
    x->outstanding -= n;
    http_hold_give(&x->hold, x->server->o.in_flight, n);
    if (n && x->sink && !x->ended)
        x->sink->took(x->proto, x, n);
}

/* ---- the client leaves */

void http_xchg_gone(struct http_xchg *x)
{
    if ((x->replied && !x->streaming) || atomic_load(&x->req.gone))
        return;
    atomic_store(&x->req.gone, true);
    if (x->req.on_gone)
        x->req.on_gone(&x->req);
}

void http_xchg_detach(struct http_xchg *x)
{
    x->sink = NULL;
    x->ended = true;
    if (x->started || x->replied)
        http_xchg_gone(x);
    else
        http_xchg_free(x);
}

void http_xchg_count(struct http_xchg *x)
{
    struct http_server *s = x->server;
    size_t m = http_method_index(x->req.method);
    size_t class = x->status >= 100 && x->status < 600 ? (size_t)x->status / 100 : 0;
    struct metric_cell **cell = &x->route->requests[m][class];
    uint64_t took = clock_mono_ns(loop_clock(s->o.loop)) - x->req.start_mono_ns;

    if (!*cell) {
        const char classes[6][4] = { "0xx", "1xx", "2xx", "3xx", "4xx", "5xx" };
        struct str values[] = { str_c(x->route->path), str_c(http_method_name(m)),
                                str_c(classes[class]) };
        *cell = metric_at(s->requests, values, ARRAY_LEN(values));
    }
    if (!x->route->seconds)
        x->route->seconds = metric_at(s->seconds, (struct str[]){ str_c(x->route->path) }, 1);
    metric_add(*cell, 1);
    metric_observe(x->route->seconds, (double)took / 1e9);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/net/net_site.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

struct site_seen seen;

static void on_echo(struct http_req *r)
{
    struct buf b;

    seen.handled++;
    buf_init(&b, MIB);
    buf_add_str(&b, r->body);
    http_reply(r, 200, "text/plain", &b);
    buf_deinit(&b);
}

static void on_gone(struct http_req *r)
{
    assert_true(r == seen.held);
    seen.gone++;
}

static void on_hold(struct http_req *r)
{
    seen.handled++;
    assert_null(seen.held);
    seen.held = r;
    r->on_gone = on_gone;
}

void site_reply_held(const char *text)
{
    struct http_req *r = seen.held;
    struct buf b;

    assert_non_null(r);
    seen.held = NULL;
    buf_init(&b, MIB);
    buf_add_str(&b, str_c(text));
    http_reply(r, 200, "text/plain", &b);
}

/* ?n= bytes of text. */
static void on_big(struct http_req *r)
{
    struct str n;
    uint64_t len = 0;
    struct buf b;

    seen.handled++;
    assert_true(http_param(r, "n", &n) && str_u64(n, &len));
    buf_init(&b, MIB);
    for (uint64_t i = 0; i < len; i++)
        buf_add_c(&b, (char)('a' + i % 23));
    http_reply(r, 200, "text/plain", &b);
}

static void on_error(struct http_req *r)
{
    struct err e;
    struct str code;
    uint64_t n = 0;

    assert_true(http_param(r, "code", &code) && str_u64(code, &n));
    err_set(&e, (int)n, "because \"%s\"", "so");
    if (str_eqc(r->path, "/connect"))
        http_reply_connect_err(r, &e);
    else
        http_reply_err(r, &e);
}

static void on_static(struct http_req *r)
{
    http_reply_static(r, "text/css", STR("plain bytes"),
                      STR("\x1f\x8b"
                          "gz"),
                      "v1", "max-age=60");
}

static void on_empty(struct http_req *r)
{
    seen.handled++;
    http_reply_header(r, "X-Path", r->path);
    http_reply(r, 200, NULL, NULL);
}

/* ---- pieces */

static void stream_data(struct http_req *r, struct str bytes)
{
    CHECK(buf_add_str(&seen.data, bytes));
    if (seen.keep)
        seen.untaken += bytes.len;
    else
        http_stream_took(r, bytes.len);
}

static void stream_end(struct http_req *r, const struct err *e)
{
    struct buf b;

    assert_int_equal(seen.end_code, -1);
    seen.end_code = e ? e->code : 0;
    if (e) {
        http_reply_err(r, e);
        return;
    }
    buf_init(&b, 64);
    buf_addf(&b, "%zu bytes", seen.data.len);
    http_reply(r, 200, "text/plain", &b);
}

static void on_stream(struct http_req *r)
{
    seen.handled++;
    seen.end_code = -1;
    buf_deinit(&seen.data);
    buf_init(&seen.data, 2 * MIB);
    r->on_data = stream_data;
    r->on_end = stream_end;
    r->on_gone = on_gone;
    seen.held = r;
}

static void on_room(struct http_req *r)
{
    assert_true(r == seen.held && http_stream_queued(r) < HTTP_STREAM_ROOM);
    seen.room++;
}

static void on_feed(struct http_req *r)
{
    seen.handled++;
    seen.held = r;
    r->on_gone = on_gone;
    r->on_room = on_room;
    http_reply_header(r, "X-Feed", STR("yes"));
    http_stream_send(r, 200, "text/event-stream", NULL);
}

void site_feed(const char *text, size_t times)
{
    struct buf b;

    buf_init(&b, 64 * MIB);
    for (size_t i = 0; i < times; i++)
        buf_add_str(&b, str_c(text));
    http_stream_send(seen.held, 200, "text/plain", &b);
    assert_int_equal(b.len, 0);
}

void site_open(struct net_world *w)
{
    net_world_init(w);
    site_routes(w);
}

void site_routes(struct net_world *w)
{
    buf_deinit(&seen.data);
    memset(&seen, 0, sizeof(seen));
    http_route(w->server, HTTP_POST, "/echo", 64 * KIB, on_echo, NULL);
    http_route(w->server, HTTP_GET | HTTP_POST, "/hold", 1024, on_hold, NULL);
    http_route(w->server, HTTP_GET, "/big", 0, on_big, NULL);
    http_route(w->server, HTTP_GET, "/err", 0, on_error, NULL);
    http_route(w->server, HTTP_GET, "/connect", 0, on_error, NULL);
    http_route(w->server, HTTP_GET, "/file", 0, on_static, NULL);
    http_route(w->server, HTTP_GET, "/p/*", 0, on_empty, NULL);
    http_route(w->server, HTTP_GET, "/p/q/*", 0, on_echo, NULL);
    http_route(w->server, HTTP_PUT, "/big", 10, on_echo, NULL);
    http_route_stream(w->server, HTTP_POST, "/stream", MIB, on_stream, NULL);
    http_route(w->server, HTTP_GET | HTTP_POST, "/feed", 1024, on_feed, NULL);
}

bool site_has(const char *text, const char *part)
{
    return strstr(text, part) != NULL;
}

void site_expect(const char *got, const char *const *parts, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bool without = parts[i][0] == '!';
        if (site_has(got, parts[i] + without) == without)
            fail_msg("%s '%s' in:\n%s", without ? "found" : "no", parts[i] + without, got);
    }
}

void site_finish(struct net_world *w, struct net_mem *m)
{
    if (!m->ended)
        net_end(m, false);
    net_take(m, 64 * MIB);
    net_pass(w, 100);
    assert_true(m->closed);
    net_mem_free(m);
}

int site_count(const char *text, const char *part)
{
    int n = 0;

    for (const char *at = strstr(text, part); at; at = strstr(at + 1, part))
        n++;
    return n;
}

/* ---- smuggling */

#define POST    "POST /echo HTTP/1.1\r\n"
#define CHUNKED "Transfer-Encoding: chunked\r\n"
#define BEHIND  POST HOST "Content-Length: 1\r\n\r\nx"
#define TRICK(n, text, status)                              \
    {                                                       \
        n, { text BEHIND, sizeof(text BEHIND) - 1 }, status \
    }
#define HEAD_TRICK(n, lines) TRICK(n, POST HOST lines "\r\n0\r\n\r\n", 400)

const struct site_trick site_tricks[] = {
    HEAD_TRICK("bare CR as line end", "X:\rTransfer-Encoding: chunked\r\n"),
    HEAD_TRICK("bare CR in a value", "X: a\rb\r\n"),
    HEAD_TRICK("folded line", "A: b\r\n Content-Length: 3\r\n"),
    HEAD_TRICK("folded by TAB", "A: b\r\n\tContent-Length: 3\r\n"),
    HEAD_TRICK("CR CR X ends the head", "\r\rX"),
    TRICK("CRLF CR X ends the head", POST HOST "A: b\r\n\rX\r\n\r\n", 400),
    TRICK("no Host", POST "Content-Length: 1\r\n\r\nx", 400),
    TRICK("no Host, 1.0", "POST /echo HTTP/1.0\r\nContent-Length: 1\r\n\r\nx", 400),
    HEAD_TRICK("two Hosts", HOST),
    TRICK("1.0 and Transfer-Encoding", "POST /echo HTTP/1.0\r\n" HOST CHUNKED "\r\n0\r\n\r\n", 400),
    HEAD_TRICK("length and chunked", "Content-Length: 5\r\n" CHUNKED),
    HEAD_TRICK("chunked and length", CHUNKED "Content-Length: 5\r\n"),
    HEAD_TRICK("chunked, identity", "Transfer-Encoding: chunked, identity\r\n"),
    HEAD_TRICK("identity, chunked", "Transfer-Encoding: identity, chunked\r\n"),
    HEAD_TRICK("xchunked", "Transfer-Encoding: xchunked\r\n"),
    HEAD_TRICK("chunked twice", CHUNKED CHUNKED),
    HEAD_TRICK("blank before the colon", "Content-Length : 3\r\n"),
    HEAD_TRICK("two lengths", "Content-Length: 3\r\nContent-Length: 3\r\n"),
    HEAD_TRICK("length with a plus", "Content-Length: +3\r\n"),
    HEAD_TRICK("length overflows", "Content-Length: 99999999999999999999\r\n"),
    HEAD_TRICK("bare LF", "A: b\n"),
    HEAD_TRICK("control byte", "A: \x01\r\n"),
    TRICK("NUL", POST HOST "A: b\0c\r\n\r\n0\r\n\r\n", 400),
    TRICK("HTTP/1.9", "POST /echo HTTP/1.9\r\n" HOST CHUNKED "\r\n0\r\n\r\n", 505),
    TRICK("chunk size with a sign", POST HOST CHUNKED "\r\n+1\r\nx\r\n0\r\n\r\n", 400),
    TRICK("chunk size with a blank", POST HOST CHUNKED "\r\n1 \r\nx\r\n0\r\n\r\n", 400),
    TRICK("chunk size 0x1", POST HOST CHUNKED "\r\n0x1\r\nx\r\n0\r\n\r\n", 400),
    TRICK("chunk size overflows", POST HOST CHUNKED "\r\n10000000000000001\r\nx\r\n0\r\n\r\n", 400),
    TRICK("chunk size, bare LF", POST HOST CHUNKED "\r\n1\nx\r\n0\r\n\r\n", 400),
    TRICK("chunk size, CR X", POST HOST CHUNKED "\r\n1\rXx\r\n0\r\n\r\n", 400),
    TRICK("chunk too long", POST HOST CHUNKED "\r\n1\r\nxy\r\n0\r\n\r\n", 400),
    TRICK("chunk, bare LF", POST HOST CHUNKED "\r\n1\r\nx\n0\r\n\r\n", 400),
    TRICK("last chunk, CR X", POST HOST CHUNKED "\r\n0\r\n\rX", 400),
    TRICK("length in a trailer", POST HOST CHUNKED "\r\n0\r\nContent-Length: 9\r\n\r\n", 400),
    TRICK("two chunk extensions", POST HOST CHUNKED "\r\n0;a=1;2\r\n\r\n", 400),
};
const size_t site_tricks_len = ARRAY_LEN(site_tricks);

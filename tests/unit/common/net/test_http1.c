/* SPDX-License-Identifier: Apache-2.0
 *
 * The server over memory streams and a fake clock: every deadline passes when the test says so.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "common/base/compress.h"
#include "common/base/mem.h"
#include "tests/lib/net_mem.h"

#define HOST "Host: h\r\n"

static struct {
    int handled;
    char body[256];
    struct http_req *held; /* by "/hold" */
    int gone;
} seen;

static void on_echo(struct http_req *r)
{
    struct buf b;

    seen.handled++;
    (void)snprintf(seen.body, sizeof(seen.body), "%.*s", STR_ARG(r->body));
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

static void reply_held(const char *text)
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
    buf_init(&b, 8 * MIB);
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
    http_reply_header(r, "X-Path", r->path);
    http_reply(r, 200, NULL, NULL);
}

static void world(struct net_world *w)
{
    memset(&seen, 0, sizeof(seen));
    net_world_init(w);
    http_route(w->server, HTTP_POST, "/echo", 64 * KIB, on_echo, NULL);
    http_route(w->server, HTTP_GET | HTTP_POST, "/hold", 1024, on_hold, NULL);
    http_route(w->server, HTTP_GET, "/big", 0, on_big, NULL);
    http_route(w->server, HTTP_GET, "/err", 0, on_error, NULL);
    http_route(w->server, HTTP_GET, "/connect", 0, on_error, NULL);
    http_route(w->server, HTTP_GET, "/file", 0, on_static, NULL);
    http_route(w->server, HTTP_GET, "/p/*", 0, on_empty, NULL);
    http_route(w->server, HTTP_GET, "/p/q/*", 0, on_echo, NULL);
    http_route(w->server, HTTP_PUT, "/big", 10, on_echo, NULL);
}

static bool has(const char *text, const char *part)
{
    return strstr(text, part) != NULL;
}

static void expect_parts(const char *got, const char *const *parts, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bool without = parts[i][0] == '!';
        if (has(got, parts[i] + without) == without)
            fail_msg("%s '%s' in:\n%s", without ? "found" : "no", parts[i] + without, got);
    }
}
#define EXPECT(got, ...)                                      \
    expect_parts((got), (const char *const[]){ __VA_ARGS__ }, \
                 sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *))

static void finish(struct net_world *w, struct net_mem *m)
{
    if (!m->ended)
        net_end(m, false);
    net_take(m, 64 * MIB);
    net_pass(w, 100);
    assert_true(m->closed);
    net_mem_free(m);
}

static size_t count(const char *text, const char *part)
{
    size_t n = 0;

    for (const char *at = strstr(text, part); at; at = strstr(at + 1, part))
        n++;
    return n;
}

/* ---- requests and replies */

static void test_one_request(void **state)
{
    struct net_world w;
    struct net_mem *m;

    (void)state;
    world(&w);
    m = net_connect(&w);
    net_send_c(m, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nhello");
    EXPECT(net_got(m), "HTTP/1.1 200 OK\r\n", "\r\n\r\nhello", "Content-Length: 5\r\n",
           "Content-Type: text/plain\r\n", "X-Request-Id: ", "Date: Sun, 15 Jun 2025 15:06:40 GMT",
           "!Connection");
    assert_int_equal(seen.handled, 1);
    assert_false(m->closed);
    assert_int_equal(w.budget.used, 0);
    finish(&w, m);
    net_world_deinit(&w);
}

static void test_byte_by_byte_and_keep_alive(void **state)
{
    struct net_world w;
    struct net_mem *m;

    (void)state;
    world(&w);
    m = net_connect(&w);
    for (int i = 0; i < 3; i++) {
        net_send_slowly(m, "\r\nPOST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n"
                           "3;x=y\r\nabc\r\n4\r\ndefg\r\n0\r\nTrailer: x\r\n\r\n");
        EXPECT(net_got(m), "HTTP/1.1 200 OK\r\n", "\r\n\r\nabcdefg");
        net_send_slowly(m, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\nhi");
        EXPECT(net_got(m), "\r\n\r\nhi");
    }
    assert_int_equal(seen.handled, 6);
    finish(&w, m);
    net_world_deinit(&w);
}

static void test_pipelining(void **state)
{
    struct net_world w;
    struct net_mem *m;
    struct buf b;
    const char *got;

    (void)state;
    world(&w);
    m = net_connect(&w);
    buf_init(&b, MIB);
    for (int i = 0; i < 500; i++)
        buf_addf(&b, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 4\r\n\r\n<%02d>", i % 100);
    net_send(m, buf_str(&b));
    got = net_got(m);
    assert_int_equal(count(got, "HTTP/1.1 200 OK"), 500);
    assert_true(strstr(got, "<00>") < strstr(got, "<01>"));
    assert_int_equal(seen.handled, 500);
    finish(&w, m);
    buf_deinit(&b);
    net_world_deinit(&w);
}

static void test_pipelined_second_head_passes_the_gate(void **state)
{
    struct net_world w;
    struct net_mem *m;
    const char *got;

    (void)state;
    world(&w);
    m = net_connect(&w);
    net_send_c(m, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 1\r\n\r\nx"
                  "POST /echo HTTP/1.1\r\n" HOST "X:\rTransfer-Encoding: chunked\r\n\r\n"
                  "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 1\r\n\r\ny");
    got = net_got(m);
    EXPECT(got, "\r\n\r\nx", "HTTP/1.1 400 Bad Request\r\n", "Connection: close\r\n", "bare CR");
    assert_int_equal(count(got, "HTTP/1.1 "), 2);
    assert_int_equal(seen.handled, 1);
    assert_true(m->shut && !m->closed); /* lingers */
    net_send_c(m, "more that nobody reads");
    assert_string_equal(net_got(m), "");
    finish(&w, m);
    net_world_deinit(&w);
}

/* Nothing behind a refused head may run, whatever the pieces it comes in. */
static void test_smuggling(void **state)
{
    static const char *const heads[] = {
        "X:\rTransfer-Encoding: chunked\r\n",
        "A: b\r\n Content-Length: 3\r\n",
        "\r\rX",
        HOST,
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n",
        "Content-Length : 3\r\n",
        "Content-Length: 3\r\nContent-Length: 3\r\n",
        "Content-Length: +3\r\n",
        "Content-Length: 99999999999999999999\r\n",
        "A: b\n",
        "A: \x01\r\n",
    };
    struct net_world w;

    (void)state;
    world(&w);
    for (size_t i = 0; i < 2 * ARRAY_LEN(heads); i++) {
        struct net_mem *m = net_connect(&w);
        char text[512];
        const char *got;

        (void)snprintf(text, sizeof(text),
                       "POST /echo HTTP/1.1\r\n" HOST "%s\r\n0\r\n\r\n"
                       "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 1\r\n\r\nx",
                       heads[i / 2]);
        if (i % 2)
            net_send_slowly(m, text);
        else
            net_send_c(m, text);
        got = net_got(m);
        if (count(got, "HTTP/1.1 ") != 1 || !has(got, "HTTP/1.1 400 ") ||
            !has(got, "Connection: close"))
            fail_msg("%s:\n%s", heads[i / 2], got);
        finish(&w, m);
    }
    static const char *const whole[] = {
        "POST /echo HTTP/1.0\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /echo HTTP/1.1\r\nContent-Length: 1\r\n\r\nx",
        "POST /echo HTTP/1.0\r\nContent-Length: 1\r\n\r\nx",
    };
    for (size_t i = 0; i < ARRAY_LEN(whole); i++) {
        struct net_mem *m = net_connect(&w);
        net_send_c(m, whole[i]);
        EXPECT(net_got(m), "HTTP/1.1 400 ");
        finish(&w, m);
    }
    assert_int_equal(seen.handled, 0);
    net_world_deinit(&w);
}

static void test_http_1_0(void **state)
{
    struct net_world w;
    struct net_mem *m;

    (void)state;
    world(&w);
    m = net_connect(&w);
    net_send_c(m, "POST /echo HTTP/1.0\r\n" HOST
                  "Connection: keep-alive\r\nContent-Length: 1\r\n\r\nx");
    EXPECT(net_got(m), "HTTP/1.1 200 OK", "Connection: keep-alive\r\n");
    net_send_c(m, "POST /echo HTTP/1.0\r\n" HOST "Content-Length: 1\r\n\r\ny");
    EXPECT(net_got(m), "HTTP/1.1 200 OK", "Connection: close\r\n", "\r\n\r\ny");
    assert_true(m->closed);
    m->ended = true;
    finish(&w, m);
    net_world_deinit(&w);
}

static void test_expect_continue(void **state)
{
    struct net_world w;
    struct net_mem *m;

    (void)state;
    world(&w);
    m = net_connect(&w);
    net_send_c(m,
               "POST /echo HTTP/1.1\r\n" HOST "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    assert_string_equal(net_got(m), "HTTP/1.1 100 Continue\r\n\r\n");
    net_send_c(m, "ok");
    EXPECT(net_got(m), "HTTP/1.1 200 OK", "\r\n\r\nok");
    /* The body came along: nobody waits for a go-ahead. */
    net_send_c(m, "POST /echo HTTP/1.1\r\n" HOST
                  "Expect: 100-continue\r\nContent-Length: 2\r\n\r\nok");
    EXPECT(net_got(m), "!100 Continue", "HTTP/1.1 200 OK");
    /* Too large: the final answer comes instead. */
    net_send_c(m, "POST /echo HTTP/1.1\r\n" HOST
                  "Expect: 100-continue\r\nContent-Length: 70000\r\n\r\n");
    EXPECT(net_got(m), "!100 Continue", "HTTP/1.1 413 ", "Connection: close");
    finish(&w, m);
    net_world_deinit(&w);
}

static void test_methods_and_paths(void **state)
{
    static const struct {
        const char *request;
        const char *want[4];
    } rows[] = {
        { "HEAD /big?n=10 HTTP/1.1\r\n" HOST "\r\n",
          { "HTTP/1.1 200 OK", "Content-Length: 10\r\n", "!abc", "!X-Content-Type" } },
        { "OPTIONS /big HTTP/1.1\r\n" HOST "\r\n",
          { "HTTP/1.1 204 No Content", "Allow: GET, HEAD, PUT, OPTIONS\r\n", "!Content-Length",
            "!Content-Type" } },
        { "OPTIONS * HTTP/1.1\r\n" HOST "\r\n", { "HTTP/1.1 204 ", "Allow: ", "GET", "POST" } },
        { "GET * HTTP/1.1\r\n" HOST "\r\n", { "HTTP/1.1 400 ", "", "", "" } },
        { "GET /echo HTTP/1.1\r\n" HOST "\r\n",
          { "HTTP/1.1 405 Method Not Allowed", "Allow: POST, OPTIONS\r\n",
            "{\"code\":\"unimplemented\",\"message\":\"", "nosniff" } },
        { "HEAD /echo HTTP/1.1\r\n" HOST "\r\n",
          { "HTTP/1.1 405 ", "Allow: POST, OPTIONS\r\n", "!{", "!}" } },
        { "PROPFIND /echo HTTP/1.1\r\n" HOST "\r\n", { "HTTP/1.1 405 ", "Allow: POST", "", "" } },
        { "GET /nowhere HTTP/1.1\r\n" HOST "\r\n",
          { "HTTP/1.1 404 Not Found", "Content-Type: application/json\r\n",
            "{\"code\":\"not_found\",\"message\":\"no such path: /nowhere\"}\n",
            "X-Content-Type-Options: nosniff\r\n" } },
        { "GET /p/a%2fb%zz?x HTTP/1.1\r\n" HOST "\r\n",
          { "HTTP/1.1 200 OK", "X-Path: /p/a/b%zz\r\n", "Content-Length: 0\r\n",
            "!Content-Type" } },
        { "GET /p/q/x HTTP/1.1\r\n" HOST "\r\n", { "HTTP/1.1 200 OK", "!X-Path", "", "" } },
        { "GET http://other/p/x HTTP/1.1\r\n" HOST "\r\n",
          { "HTTP/1.1 200 OK", "X-Path: /p/x\r\n", "", "" } },
        { "GET /p/%0d%0aX-Evil:1 HTTP/1.1\r\n" HOST "\r\n",
          { "HTTP/1.1 200 OK", "X-Path: /p/  X-Evil:1\r\n", "!\nX-Evil", "" } },
        { "CONNECT h:80 HTTP/1.1\r\n" HOST "\r\n", { "HTTP/1.1 400 ", "", "", "" } },
        { "GET /p/x HTTP/1.1\r\n" HOST "Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
          { "HTTP/1.1 200 OK", "", "", "" } },
        { "BREW /p/x HTTP/1.1\r\n" HOST "\r\n", { "HTTP/1.1 501 Not Implemented", "", "", "" } },
    };
    struct net_world w;

    (void)state;
    world(&w);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct net_mem *m = net_connect(&w);
        net_send_c(m, rows[i].request);
        EXPECT(net_got(m), rows[i].want[0], rows[i].want[1], rows[i].want[2], rows[i].want[3]);
        finish(&w, m);
    }
    net_world_deinit(&w);
}

static void test_keeps_alive_after_an_error_without_body(void **state)
{
    struct net_world w;
    struct net_mem *m;

    (void)state;
    world(&w);
    m = net_connect(&w);
    net_send_c(m, "GET /nowhere HTTP/1.1\r\n" HOST "\r\n");
    EXPECT(net_got(m), "HTTP/1.1 404 ", "!Connection: close");
    net_send_c(m, "POST /nowhere HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\nabc");
    EXPECT(net_got(m), "HTTP/1.1 404 ", "Connection: close");
    finish(&w, m);
    net_world_deinit(&w);
}

static void test_error_replies(void **state)
{
    struct net_world w;
    struct net_mem *m;
    char text[128];
    static const struct {
        int code;
        const char *status, *retry;
    } rows[] = {
        { ERR_INPUT, "HTTP/1.1 400 Bad Request", "!Retry-After" },
        { ERR_RATE, "HTTP/1.1 429 Too Many Requests", "Retry-After: 1\r\n" },
        { ERR_BUSY, "HTTP/1.1 503 Service Unavailable", "Retry-After: 1\r\n" },
        { ERR_NO_SPACE, "HTTP/1.1 503 Service Unavailable", "Retry-After: 30\r\n" },
        { ERR_INTERNAL, "HTTP/1.1 500 Internal Server Error", "!Retry-After" },
    };

    (void)state;
    world(&w);
    m = net_connect(&w);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        (void)snprintf(text, sizeof(text), "GET /err?code=%d HTTP/1.1\r\n" HOST "\r\n",
                       rows[i].code);
        net_send_c(m, text);
        EXPECT(net_got(m), rows[i].status, rows[i].retry, "X-Content-Type-Options: nosniff\r\n",
               "Content-Type: application/json\r\n", "\"message\":\"because \\\"so\\\"\"}\n");
    }
    (void)snprintf(text, sizeof(text), "GET /connect?code=%d HTTP/1.1\r\n" HOST "\r\n",
                   ERR_TOO_LARGE);
    net_send_c(m, text);
    EXPECT(net_got(m), "HTTP/1.1 429 ", "{\"code\":\"resource_exhausted\",\"message\":", "\"}",
           "!}\n");
    finish(&w, m);
    net_world_deinit(&w);
}

static void test_static(void **state)
{
    struct net_world w;
    struct net_mem *m;

    (void)state;
    world(&w);
    m = net_connect(&w);
    net_send_c(m, "GET /file HTTP/1.1\r\n" HOST "\r\n");
    EXPECT(net_got(m), "200 OK", "ETag: W/\"v1\"\r\n", "Cache-Control: max-age=60\r\n",
           "Vary: Accept-Encoding\r\n", "\r\n\r\nplain bytes", "!Content-Encoding");
    net_send_c(m, "GET /file HTTP/1.1\r\n" HOST "Accept-Encoding: br, gzip\r\n\r\n");
    EXPECT(net_got(m), "Content-Encoding: gzip\r\n", "\r\n\r\n\x1f\x8bgz", "Content-Length: 4\r\n");
    net_send_c(m, "GET /file HTTP/1.1\r\n" HOST "If-None-Match: \"x\", W/\"v1\"\r\n\r\n");
    EXPECT(net_got(m), "HTTP/1.1 304 Not Modified", "ETag: W/\"v1\"\r\n", "!plain",
           "!Content-Length");
    net_send_c(m, "HEAD /file HTTP/1.1\r\n" HOST "\r\n");
    EXPECT(net_got(m), "200 OK", "Content-Length: 11\r\n", "!plain bytes");
    finish(&w, m);
    net_world_deinit(&w);
}

/* The body of a reply, inflated. */
static void gunzip_reply(struct net_mem *m, struct buf *out)
{
    struct str all = buf_str(&m->out);
    struct inflate_limits l = { .bytes_max = 8 * MIB };
    struct err e;
    size_t at = 0;

    while (at + 4 < all.len && memcmp(all.ptr + at, "\r\n\r\n", 4) != 0)
        at++;
    buf_init(out, 8 * MIB);
    if (gunzip(str_sub(all, at + 4, all.len), &l, out, &e))
        fail_msg("%s", e.text);
}

static void test_gzip_replies(void **state)
{
    static const struct {
        const char *n, *accept;
        bool zipped;
    } rows[] = {
        { "1400", "gzip", true },         { "1399", "gzip", false },
        { "300000", "gzip, br", true },   { "5000", "identity", false },
        { "5000", "gzip;q=0", false },    { "5000", "*;q=0.1", true },
        { "300000", "x-gzip;q=1", true }, { "5000", "gzip;q=0, *", false },
        { "5000", "deflate, br", false },
    };
    struct net_world w;

    (void)state;
    world(&w);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct net_mem *m = net_connect(&w);
        uint64_t n = 0;
        char text[256];

        assert_true(str_u64(str_c(rows[i].n), &n));
        (void)snprintf(text, sizeof(text),
                       "GET /big?n=%s HTTP/1.1\r\n" HOST "Accept-Encoding: %s\r\n\r\n", rows[i].n,
                       rows[i].accept);
        net_send_c(m, text);
        if (rows[i].zipped) {
            struct buf plain;
            gunzip_reply(m, &plain);
            assert_int_equal(plain.len, n);
            assert_memory_equal(plain.ptr, "abcdefghijklmnopqrstuvwab", 25);
            buf_deinit(&plain);
            EXPECT(net_got(m), "Content-Encoding: gzip\r\n", "Vary: Accept-Encoding\r\n");
        } else {
            assert_true(m->out.len > n);
            EXPECT(net_got(m), "!Content-Encoding");
        }
        finish(&w, m);
    }
    net_world_deinit(&w);
}

/* ---- limits */

static void test_head_limit(void **state)
{
    struct net_world w;
    struct net_mem *m;
    char text[5000];

    (void)state;
    world(&w);
    memset(text, 'a', sizeof(text));
    memcpy(text, "GET /", 5);
    m = net_connect(&w);
    net_send(m, (struct str){ text, 4095 });
    assert_string_equal(net_got(m), "");
    assert_true(w.budget.used >= 4095);
    net_send(m, (struct str){ text, 1 });
    EXPECT(net_got(m), "HTTP/1.1 431 ", "Connection: close", "resource_exhausted");
    finish(&w, m);
    net_world_deinit(&w);
}

static void test_body_limits(void **state)
{
    static const char *const requests[] = {
        "POST /hold HTTP/1.1\r\n" HOST "Content-Length: 1025\r\n\r\n",
        "POST /hold HTTP/1.1\r\n" HOST "Content-Length: 18446744073709551615\r\n\r\n",
        "POST /hold HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n401",
        "POST /hold HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\nfffffffffffffff\r\n",
    };
    struct net_world w;
    struct net_mem *m;

    (void)state;
    world(&w);
    for (size_t i = 0; i < ARRAY_LEN(requests); i++) {
        m = net_connect(&w);
        net_send_c(m, requests[i]);
        EXPECT(net_got(m), "HTTP/1.1 413 Content Too Large", "Connection: close",
               "invalid_argument");
        finish(&w, m);
    }
    /* Many small chunks add up to one byte too many. */
    m = net_connect(&w);
    net_send_c(m, "POST /hold HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 1024; i++)
        net_send_c(m, "1\r\nx\r\n");
    assert_string_equal(net_got(m), "");
    net_send_c(m, "1\r\nx\r\n");
    EXPECT(net_got(m), "HTTP/1.1 413 ");
    finish(&w, m);
    assert_int_equal(seen.handled, 0);
    net_world_deinit(&w);
}

static void test_connection_limit(void **state)
{
    struct net_world w;
    struct net_mem *m[6];

    (void)state;
    world(&w);
    for (size_t i = 0; i < 4; i++)
        m[i] = net_connect(&w);
    for (size_t i = 4; i < 6; i++) {
        m[i] = net_connect(&w);
        EXPECT(net_got(m[i]), "HTTP/1.1 503 ", "Retry-After: 1\r\n", "Connection: close");
        finish(&w, m[i]);
    }
    finish(&w, m[0]);
    m[0] = net_connect(&w);
    net_send_c(m[0], "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 1\r\n\r\nx");
    EXPECT(net_got(m[0]), "HTTP/1.1 200 OK");
    for (size_t i = 0; i < 4; i++)
        finish(&w, m[i]);
    net_world_deinit(&w);
}

static void test_budget(void **state)
{
    struct net_world w;
    struct net_mem *m, *n;
    char bytes[20000];

    (void)state;
    world(&w);
    memset(bytes, 'x', sizeof(bytes));
    w.budget.max = 48000;
    m = net_connect(&w);
    net_send_c(m, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 40000\r\n\r\n");
    net_send(m, (struct str){ bytes, 20000 });
    net_send(m, (struct str){ bytes, 15000 });
    assert_true(w.budget.used >= 35000 && w.budget.used <= 48000);
    n = net_connect(&w);
    net_send_c(n, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 20000\r\n\r\n");
    net_send(n, (struct str){ bytes, 20000 });
    EXPECT(net_got(n), "HTTP/1.1 503 Service Unavailable", "Retry-After: 1\r\n",
           "Connection: close\r\n");
    finish(&w, n);
    net_send(m, (struct str){ bytes, 5000 });
    EXPECT(net_got(m), "HTTP/1.1 200 OK");
    assert_int_equal(w.budget.used, 0);
    /* No room even for a head. */
    w.budget.max = 5;
    net_send_c(m, "GET /p/x HTTP/1.1\r\n" HOST "\r\n");
    EXPECT(net_got(m), "HTTP/1.1 503 ", "Retry-After: 1\r\n", "Connection: close\r\n");
    finish(&w, m);
    /* Nor for the beginning of one. */
    m = net_connect(&w);
    net_send_c(m, "GET /p/xxxxxxxxxxxxxxxxxxxxxx HT");
    EXPECT(net_got(m), "HTTP/1.1 503 ");
    finish(&w, m);
    assert_int_equal(seen.handled, 1);
    net_world_deinit(&w);
}

static void test_pipelined_input_is_bounded(void **state)
{
    struct net_world w;
    struct net_mem *m;
    const struct str one = STR("POST /echo HTTP/1.1\r\n" HOST "Content-Length: 1\r\n\r\nx");
    int sent = 0;

    (void)state;
    world(&w);
    m = net_connect(&w);
    net_send_c(m, "GET /hold HTTP/1.1\r\n" HOST "\r\n");
    while (m->reading && sent < 100000) {
        net_send(m, one);
        sent++;
    }
    assert_false(m->reading);
    assert_true(sent * one.len >= 16 * KIB && sent * one.len < 20 * KIB);
    for (int i = 0; i < 1000; i++) /* waits with the client */
        net_send(m, one);
    assert_true(w.budget.used < 40 * KIB);
    assert_int_equal(seen.handled, 1);
    reply_held("held");
    net_settle(&w);
    assert_int_equal(seen.handled, 1 + sent + 1000);
    assert_int_equal(count(net_got(m), "HTTP/1.1 200 OK"), 1 + sent + 1000);
    finish(&w, m);
    net_world_deinit(&w);
}

/* ---- clients that leave, read slowly, or say nothing */

static void test_client_gone_while_running(void **state)
{
    struct net_world w;
    struct net_mem *m;

    (void)state;
    world(&w);
    m = net_connect(&w);
    net_send_c(m, "GET /hold HTTP/1.1\r\n" HOST "\r\n");
    assert_false(seen.held->gone);
    net_end(m, true);
    assert_int_equal(seen.gone, 1);
    assert_true(seen.held->gone && m->closed);
    assert_string_equal(seen.held->peer, "memory:1");
    net_mem_free(m);
    reply_held("too late");
    /* Half-closed: told the same, but the answer arrives. */
    m = net_connect(&w);
    net_send_c(m, "GET /hold HTTP/1.1\r\n" HOST "\r\n");
    net_end(m, false);
    assert_int_equal(seen.gone, 2);
    assert_false(m->closed);
    reply_held("late but there");
    EXPECT(net_got(m), "HTTP/1.1 200 OK", "late but there");
    finish(&w, m);
    net_world_deinit(&w);
}

static void test_half_closed_after_pipelining(void **state)
{
    struct net_world w;
    struct net_mem *m;

    (void)state;
    world(&w);
    m = net_connect(&w);
    net_send_c(m, "GET /hold HTTP/1.1\r\n" HOST "\r\nPOST /echo HTTP/1.1\r\n" HOST
                  "Content-Length: 1\r\n\r\nxGET /unfinished");
    net_end(m, false);
    reply_held("held");
    net_settle(&w);
    EXPECT(net_got(m), "\r\n\r\nheld", "\r\n\r\nx");
    assert_true(m->closed);
    finish(&w, m);
    /* A body that never came whole. */
    m = net_connect(&w);
    net_send_c(m, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 9\r\n\r\nx");
    net_end(m, false);
    EXPECT(net_got(m), "HTTP/1.1 400 ", "ended before");
    finish(&w, m);
    net_world_deinit(&w);
}

static void test_deadlines(void **state)
{
    struct net_world w;
    struct net_mem *m;
    char bytes[9000];

    (void)state;
    memset(bytes, 'x', sizeof(bytes));
    world(&w);
    m = net_connect(&w); /* says nothing */
    net_pass(&w, 9000);
    assert_false(m->closed);
    net_pass(&w, 1500);
    assert_true(m->closed);
    assert_string_equal(net_got(m), "");
    net_mem_free(m);

    m = net_connect(&w); /* one byte of head every second */
    net_send_c(m, "GET /");
    for (int i = 0; i < 11; i++) {
        net_pass(&w, 1000);
        net_send_c(m, "a");
    }
    EXPECT(net_got(m), "HTTP/1.1 408 Request Timeout", "deadline_exceeded", "Connection: close");
    net_pass(&w, 3000); /* lingering ends, too */
    assert_true(m->closed);
    net_mem_free(m);

    m = net_connect(&w); /* a body that moves may take its time */
    net_send_c(m, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 60000\r\n\r\n");
    for (int i = 0; i < 6; i++) {
        net_pass(&w, 9000);
        net_send(m, (struct str){ bytes, 9000 });
    }
    net_pass(&w, 9000);
    net_send(m, (struct str){ bytes, 6000 });
    EXPECT(net_got(m), "HTTP/1.1 200 OK");
    net_pass(&w, 59000);
    assert_false(m->closed);
    net_pass(&w, 1500); /* idle */
    assert_true(m->closed);
    net_mem_free(m);

    m = net_connect(&w); /* one that hardly moves may not */
    net_send_c(m, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 60000\r\n\r\n");
    for (int i = 0; i < 21 && !m->shut; i++) {
        net_pass(&w, 1000);
        net_send_c(m, "x");
    }
    EXPECT(net_got(m), "HTTP/1.1 408 ");
    finish(&w, m);
    assert_int_equal(seen.handled, 1);
    net_world_deinit(&w);
}

static void test_no_deadline_while_a_handler_runs(void **state)
{
    struct net_world w;
    struct net_mem *m;

    (void)state;
    world(&w);
    m = net_connect(&w);
    net_send_c(m, "GET /hold HTTP/1.1\r\n" HOST "\r\n");
    net_pass(&w, 3600000);
    assert_false(m->closed || seen.gone);
    reply_held("after an hour");
    EXPECT(net_got(m), "after an hour");
    finish(&w, m);
    net_world_deinit(&w);
}

static void test_slow_reader(void **state)
{
    struct net_world w;
    struct net_mem *m;

    (void)state;
    world(&w);
    m = net_connect(&w); /* reads, slowly: all of it arrives */
    m->room = 0;
    net_send_c(m, "GET /big?n=100000 HTTP/1.1\r\n" HOST "\r\n");
    assert_true(w.budget.used > 100000);
    for (int i = 0; i < 12; i++) {
        net_pass(&w, 9000);
        net_take(m, 9000);
    }
    assert_true(m->out.len > 100000 && !m->closed);
    assert_int_equal(w.budget.used, 0);
    net_send_c(m, "GET /big?n=100000 HTTP/1.1\r\n" HOST "\r\n"); /* stops reading */
    m->room = 0;
    net_pass(&w, 25000);
    assert_true(m->closed);
    assert_int_equal(w.budget.used, 0);
    net_mem_free(m);
    /* A reader that takes a byte now and then does not keep its connection either. */
    m = net_connect(&w);
    m->room = 0;
    net_send_c(m, "GET /big?n=100000 HTTP/1.1\r\n" HOST "\r\n");
    for (int i = 0; i < 25 && !m->closed; i++) {
        net_pass(&w, 1000);
        net_take(m, 1);
    }
    assert_true(m->closed);
    net_mem_free(m);
    net_world_deinit(&w);
}

/* Pipelined replies to a slow reader do not pile up: the next request waits. */
static void test_slow_reader_holds_up_pipelining(void **state)
{
    struct net_world w;
    struct net_mem *m;
    struct buf b;

    (void)state;
    world(&w);
    buf_init(&b, MIB);
    for (int i = 0; i < 50; i++)
        buf_add_str(&b, STR("GET /big?n=50000 HTTP/1.1\r\n" HOST "\r\n"));
    m = net_connect(&w);
    m->room = 0;
    net_send(m, buf_str(&b));
    assert_true(seen.handled <= 3);
    for (int i = 0; i < 60; i++)
        net_take(m, 50000);
    assert_int_equal(seen.handled, 50);
    assert_true(m->out.len > 50 * 50000);
    finish(&w, m);
    buf_deinit(&b);
    net_world_deinit(&w);
}

static void test_broken_write(void **state)
{
    struct net_world w;
    struct net_mem *m;

    (void)state;
    world(&w);
    m = net_connect(&w);
    m->breaks = true;
    net_send_c(m, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 1\r\n\r\nx");
    assert_true(m->closed);
    net_mem_free(m);
    net_world_deinit(&w);
}

/* ---- drain */

static void on_drained(void *cookie)
{
    ((struct net_world *)cookie)->drained = true;
}

static void test_drain(void **state)
{
    struct net_world w;
    struct net_mem *idle, *running, *reading, *late;

    (void)state;
    world(&w);
    idle = net_connect(&w);
    running = net_connect(&w);
    reading = net_connect(&w);
    net_send_c(running, "GET /hold HTTP/1.1\r\n" HOST "\r\n");
    net_send_c(reading, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\nx");
    http_server_drain(w.server, on_drained, &w);
    net_settle(&w);
    assert_true(idle->closed && !running->closed && !reading->closed && !w.drained);
    net_mem_free(idle);
    late = net_connect(&w);
    assert_true(late->closed);
    net_mem_free(late);
    net_send_c(reading, "y");
    EXPECT(net_got(reading), "HTTP/1.1 200 OK", "Connection: close", "\r\n\r\nxy");
    reply_held("done");
    EXPECT(net_got(running), "HTTP/1.1 200 OK", "Connection: close", "done");
    assert_false(w.drained);
    finish(&w, running);
    net_pass(&w, 3000);
    assert_true(reading->closed && w.drained);
    net_mem_free(reading);
    net_world_deinit(&w);
}

/* The client of a running request left; draining still waits for the handler. */
static void test_drain_waits_for_handlers(void **state)
{
    struct net_world w;
    struct net_mem *m;

    (void)state;
    world(&w);
    m = net_connect(&w);
    net_send_c(m, "GET /hold HTTP/1.1\r\n" HOST "\r\n");
    net_end(m, true);
    net_mem_free(m);
    http_server_drain(w.server, on_drained, &w);
    net_pass(&w, 10000);
    assert_false(w.drained);
    reply_held("");
    net_settle(&w);
    assert_true(w.drained);
    net_world_deinit(&w);
}

static void test_metrics(void **state)
{
    struct net_world w;
    struct net_mem *m;
    struct buf b;

    (void)state;
    world(&w);
    m = net_connect(&w);
    net_send_c(m, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 1\r\n\r\nx");
    net_send_c(m, "GET /echo HTTP/1.1\r\n" HOST "\r\n");
    net_send_c(m, "GET /p/1 HTTP/1.1\r\n" HOST "\r\n");
    net_send_c(m, "GET /p/2 HTTP/1.1\r\n" HOST "\r\n");
    buf_init(&b, MIB);
    metrics_render(w.metrics, &b);
    buf_add_c(&b, '\0');
    EXPECT(b.ptr,
           "embertree_http_requests_total{route=\"/echo\",method=\"POST\",status=\"2xx\"} 1\n",
           "embertree_http_requests_total{route=\"none\",method=\"GET\",status=\"4xx\"} 1\n",
           "embertree_http_requests_total{route=\"/p/*\",method=\"GET\",status=\"2xx\"} 2\n",
           "embertree_http_connections 1\n", "embertree_http_requests_in_flight 0\n",
           "embertree_http_request_duration_seconds_count{route=\"/p/*\"} 2\n",
           "embertree_http_received_bytes_total", "embertree_http_sent_bytes_total");
    buf_deinit(&b);
    finish(&w, m);
    net_world_deinit(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_request),
        cmocka_unit_test(test_byte_by_byte_and_keep_alive),
        cmocka_unit_test(test_pipelining),
        cmocka_unit_test(test_pipelined_second_head_passes_the_gate),
        cmocka_unit_test(test_smuggling),
        cmocka_unit_test(test_http_1_0),
        cmocka_unit_test(test_expect_continue),
        cmocka_unit_test(test_methods_and_paths),
        cmocka_unit_test(test_keeps_alive_after_an_error_without_body),
        cmocka_unit_test(test_error_replies),
        cmocka_unit_test(test_static),
        cmocka_unit_test(test_gzip_replies),
        cmocka_unit_test(test_head_limit),
        cmocka_unit_test(test_body_limits),
        cmocka_unit_test(test_connection_limit),
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_pipelined_input_is_bounded),
        cmocka_unit_test(test_client_gone_while_running),
        cmocka_unit_test(test_half_closed_after_pipelining),
        cmocka_unit_test(test_deadlines),
        cmocka_unit_test(test_no_deadline_while_a_handler_runs),
        cmocka_unit_test(test_slow_reader),
        cmocka_unit_test(test_slow_reader_holds_up_pipelining),
        cmocka_unit_test(test_broken_write),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_drain_waits_for_handlers),
        cmocka_unit_test(test_metrics),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

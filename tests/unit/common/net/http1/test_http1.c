/* SPDX-License-Identifier: Apache-2.0
 *
 * HTTP/1.1 over memory streams: requests, replies, what is refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "common/base/compress/compress.h"
#include "common/base/hash.h"
#include "common/base/mem.h"
#include "tests/lib/net/net_site.h"

/* ---- requests and replies */

static void test_one_request(void **state)
{
    struct net_world w;
    struct net_mem *m;
    char id[64];

    (void)state;
    site_open(&w);
    m = net_connect(&w);
    net_send_c(m, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nhello");
    (void)snprintf(id, sizeof(id), "X-Request-Id: %08" PRIx64 "00000001\r\n",
                   hash_u64(UINT64_C(1750000000000)) >> 32);
    EXPECT(net_got(m), "HTTP/1.1 200 OK\r\n", "\r\n\r\nhello", "Content-Length: 5\r\n",
           "Content-Type: text/plain\r\n", id, "Date: Sun, 15 Jun 2025 15:06:40 GMT",
           "!Connection");
    assert_int_equal(seen.handled, 1);
    assert_false(m->closed);
    assert_int_equal(w.budget.used, 0);
    site_finish(&w, m);
    net_world_deinit(&w);
}

static void test_byte_by_byte_and_keep_alive(void **state)
{
    struct net_world w;
    struct net_mem *m;

    (void)state;
    site_open(&w);
    m = net_connect(&w);
    for (int i = 0; i < 3; i++) {
        net_send_slowly(m, "\r\nPOST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n"
                           "3;x=y\r\nabc\r\n4\r\ndefg\r\n0\r\nTrailer: x\r\n\r\n");
        EXPECT(net_got(m), "HTTP/1.1 200 OK\r\n", "\r\n\r\nabcdefg");
        net_send_slowly(m, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\nhi");
        EXPECT(net_got(m), "\r\n\r\nhi");
    }
    assert_int_equal(seen.handled, 6);
    site_finish(&w, m);
    net_world_deinit(&w);
}

static void test_pipelining(void **state)
{
    struct net_world w;
    struct net_mem *m;
    struct buf b;
    const char *got;

    (void)state;
    site_open(&w);
    m = net_connect(&w);
    buf_init(&b, MIB);
    for (int i = 0; i < 500; i++)
        buf_addf(&b, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 4\r\n\r\n<%02d>", i % 100);
    net_send(m, buf_str(&b));
    got = net_got(m);
    assert_int_equal(site_count(got, "HTTP/1.1 200 OK"), 500);
    assert_true(strstr(got, "<00>") < strstr(got, "<01>"));
    assert_int_equal(seen.handled, 500);
    site_finish(&w, m);
    buf_deinit(&b);
    net_world_deinit(&w);
}

static void test_pipelined_second_head_passes_the_gate(void **state)
{
    struct net_world w;
    struct net_mem *m;
    const char *got;

    (void)state;
    site_open(&w);
    m = net_connect(&w);
    net_send_c(m, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 1\r\n\r\nx"
                  "POST /echo HTTP/1.1\r\n" HOST "X:\rTransfer-Encoding: chunked\r\n\r\n"
                  "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 1\r\n\r\ny");
    got = net_got(m);
    EXPECT(got, "\r\n\r\nx", "HTTP/1.1 400 Bad Request\r\n", "Connection: close\r\n", "bare CR");
    assert_int_equal(site_count(got, "HTTP/1.1 "), 2);
    assert_int_equal(seen.handled, 1);
    assert_true(m->shut && !m->closed); /* lingers */
    net_send_c(m, "more that is not read");
    assert_string_equal(net_got(m), "");
    site_finish(&w, m);
    net_world_deinit(&w);
}

/* Nothing behind a refused request may run, whatever the pieces it comes in. */
static void test_smuggling(void **state)
{
    struct net_world w;

    (void)state;
    site_open(&w);
    for (size_t i = 0; i < 2 * site_tricks_len; i++) {
        const struct site_trick *t = &site_tricks[i / 2];
        struct net_mem *m = net_connect(&w);
        size_t step = i % 2 ? 1 : t->text.len;
        char status[32];
        const char *got;

        for (size_t at = 0; at < t->text.len; at += step)
            net_send(m, str_sub(t->text, at, at + step));
        got = net_got(m);
        (void)snprintf(status, sizeof(status), "HTTP/1.1 %d ", t->status);
        if (site_count(got, "X-Request-Id: ") != 1 || !site_has(got, status) ||
            !site_has(got, "Connection: close"))
            fail_msg("%s:\n%s", t->name, got);
        site_finish(&w, m);
    }
    assert_int_equal(seen.handled, 0);
    net_world_deinit(&w);
}

/* The client leaves while a pool thread compresses its reply. */
static void test_gone_while_compressing(void **state)
{
    struct net_world w;
    struct net_mem *m;

    (void)state;
    site_open(&w);
    m = net_connect(&w);
    m->stream.up->on_bytes(m->stream.cookie, STR("GET /big?n=300000 HTTP/1.1\r\n" HOST
                                                 "Accept-Encoding: gzip\r\n\r\n"));
    assert_int_equal(seen.handled, 1);
    assert_int_equal(pool_queued(w.pool), 1);
    net_end(m, true);
    assert_true(m->closed && m->out.len == 0);
    net_mem_free(m);
    net_world_deinit(&w);
}

/* The empty line some clients send behind a body is not the beginning of a request. */
static void test_empty_line_between_requests(void **state)
{
    struct net_world w;
    struct net_mem *m;

    (void)state;
    site_open(&w);
    m = net_connect(&w);
    for (int i = 0; i < 3; i++) {
        net_send_c(m, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 1\r\n\r\nx\r\n");
        EXPECT(net_got(m), "HTTP/1.1 200 OK");
        net_pass(&w, 30000); /* longer than a head may take */
        assert_false(m->closed || m->shut);
    }
    assert_int_equal(w.budget.used, 0);
    site_finish(&w, m);
    net_world_deinit(&w);
}

static void test_http_1_0(void **state)
{
    struct net_world w;
    struct net_mem *m;

    (void)state;
    site_open(&w);
    m = net_connect(&w);
    net_send_c(m, "POST /echo HTTP/1.0\r\n" HOST
                  "Connection: keep-alive\r\nContent-Length: 1\r\n\r\nx");
    EXPECT(net_got(m), "HTTP/1.1 200 OK", "Connection: keep-alive\r\n");
    net_send_c(m, "POST /echo HTTP/1.0\r\n" HOST "Content-Length: 1\r\n\r\ny");
    EXPECT(net_got(m), "HTTP/1.1 200 OK", "Connection: close\r\n", "\r\n\r\ny");
    assert_true(m->closed);
    m->ended = true;
    site_finish(&w, m);
    net_world_deinit(&w);
}

static void test_expect_continue(void **state)
{
    struct net_world w;
    struct net_mem *m;

    (void)state;
    site_open(&w);
    m = net_connect(&w);
    net_send_c(m,
               "POST /echo HTTP/1.1\r\n" HOST "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    assert_string_equal(net_got(m), "HTTP/1.1 100 Continue\r\n\r\n");
    net_send_c(m, "ok");
    EXPECT(net_got(m), "HTTP/1.1 200 OK", "\r\n\r\nok");
    /* The body came along: the client does not wait for "100 Continue". */
    net_send_c(m, "POST /echo HTTP/1.1\r\n" HOST
                  "Expect: 100-continue\r\nContent-Length: 2\r\n\r\nok");
    EXPECT(net_got(m), "!100 Continue", "HTTP/1.1 200 OK");
    /* Too large: the final answer comes instead. */
    net_send_c(m, "POST /echo HTTP/1.1\r\n" HOST
                  "Expect: 100-continue\r\nContent-Length: 70000\r\n\r\n");
    EXPECT(net_got(m), "!100 Continue", "HTTP/1.1 413 ", "Connection: close");
    site_finish(&w, m);
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
            "{\"code\":\"not_found\",\"message\":\"there is nothing at /nowhere\"}\n",
            "X-Content-Type-Options: nosniff\r\n" } },
        { "GET /p/a%2fb%zz?x HTTP/1.1\r\n" HOST "\r\n",
          { "HTTP/1.1 200 OK", "X-Path: /p/a/b%zz\r\n", "Content-Length: 0\r\n",
            "!Content-Type" } },
        { "GET /p/q/x HTTP/1.1\r\n" HOST "\r\n", { "HTTP/1.1 200 OK", "!X-Path", "", "" } },
        { "GET http://h/p/x HTTP/1.1\r\n" HOST "\r\n",
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
    site_open(&w);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct net_mem *m = net_connect(&w);
        net_send_c(m, rows[i].request);
        EXPECT(net_got(m), rows[i].want[0], rows[i].want[1], rows[i].want[2], rows[i].want[3]);
        site_finish(&w, m);
    }
    net_world_deinit(&w);
}

/* HTTP/2 by Upgrade is not for this server (README): the request is served as if it had no such
 * header, with and without a body, and bytes of a client that did not wait for the 101 are not a
 * second request. */
static void test_upgrade_is_ignored(void **state)
{
    static const char up[] = HOST "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
                                  "HTTP2-Settings: AAMAAABkAAQAAP__\r\n";
    struct net_world w;
    struct net_mem *m;
    char text[512];

    (void)state;
    site_open(&w);
    m = net_connect(&w);
    (void)snprintf(text, sizeof(text), "GET /p/x HTTP/1.1\r\n%s\r\n", up);
    net_send_c(m, text);
    EXPECT(net_got(m), "HTTP/1.1 200 OK\r\n", "X-Path: /p/x\r\n", "!101 ", "!Upgrade");
    (void)snprintf(text, sizeof(text), "POST /echo HTTP/1.1\r\n%sContent-Length: 5\r\n\r\nhello",
                   up);
    net_send_c(m, text);
    EXPECT(net_got(m), "HTTP/1.1 200 OK\r\n", "\r\n\r\nhello", "!101 ");
    (void)snprintf(text, sizeof(text),
                   "POST /echo HTTP/1.1\r\n%sTransfer-Encoding: chunked\r\n\r\n"
                   "2\r\nhi\r\n0\r\nX-Trailer: 1\r\n\r\n",
                   up);
    net_send_slowly(m, text);
    EXPECT(net_got(m), "HTTP/1.1 200 OK\r\n", "\r\n\r\nhi", "!101 ");
    net_send_c(m, "GET /p/y HTTP/1.1\r\n" HOST "\r\n"); /* the connection is as good as before */
    EXPECT(net_got(m), "HTTP/1.1 200 OK\r\n", "!Connection: close");
    int before = seen.handled;
    net_send_c(m, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    EXPECT(net_got(m), "HTTP/1.1 505 ", "Connection: close");
    assert_int_equal(seen.handled, before);
    site_finish(&w, m);
    net_world_deinit(&w);
}

static void test_keeps_alive_after_an_error_without_body(void **state)
{
    struct net_world w;
    struct net_mem *m;

    (void)state;
    site_open(&w);
    m = net_connect(&w);
    net_send_c(m, "GET /nowhere HTTP/1.1\r\n" HOST "\r\n");
    EXPECT(net_got(m), "HTTP/1.1 404 ", "!Connection: close");
    net_send_c(m, "POST /nowhere HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\nabc");
    EXPECT(net_got(m), "HTTP/1.1 404 ", "Connection: close");
    site_finish(&w, m);
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
    site_open(&w);
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
    net_send_c(m, "GET /big?n=2000000 HTTP/1.1\r\n" HOST "\r\n"); /* its buffer ends at 1 MiB */
    EXPECT(net_got(m), "HTTP/1.1 500 ", "\"message\":\"the reply is larger", "!abcdef",
           "!text/plain");
    site_finish(&w, m);
    net_world_deinit(&w);
}

static void test_static(void **state)
{
    struct net_world w;
    struct net_mem *m;

    (void)state;
    site_open(&w);
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
    site_finish(&w, m);
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
    site_open(&w);
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
        site_finish(&w, m);
    }
    net_world_deinit(&w);
}

static void test_metrics(void **state)
{
    struct net_world w;
    struct net_mem *m;
    struct buf b;

    (void)state;
    site_open(&w);
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
    site_finish(&w, m);
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
        cmocka_unit_test(test_gone_while_compressing),
        cmocka_unit_test(test_empty_line_between_requests),
        cmocka_unit_test(test_http_1_0),
        cmocka_unit_test(test_expect_continue),
        cmocka_unit_test(test_methods_and_paths),
        cmocka_unit_test(test_upgrade_is_ignored),
        cmocka_unit_test(test_keeps_alive_after_an_error_without_body),
        cmocka_unit_test(test_error_replies),
        cmocka_unit_test(test_static),
        cmocka_unit_test(test_gzip_replies),
        cmocka_unit_test(test_metrics),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

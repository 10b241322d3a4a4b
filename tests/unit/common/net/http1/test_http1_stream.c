/* SPDX-License-Identifier: Apache-2.0
 *
 * Bodies and replies in pieces, over HTTP/1.1: flow control, bounds, ends of every kind.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "common/base/mem.h"
#include "tests/lib/net/net_site.h"

#define STREAM "POST /stream HTTP/1.1\r\n" HOST

static char *bytes_of(size_t n)
{
    char *p = xmalloc(n);

    for (size_t i = 0; i < n; i++)
        p[i] = (char)('a' + i % 26);
    return p;
}

/* Sends `n` bytes in pieces of 50,000. */
static void send_bytes(struct net_mem *m, const char *p, size_t n)
{
    for (size_t at = 0; at < n; at += 50000)
        net_send(m, (struct str){ p + at, MIN(n - at, (size_t)50000) });
}

/* ---- requests */

static void test_body_in_pieces(void **state)
{
    struct net_world w;
    struct net_mem *m;

    (void)state;
    site_open(&w);
    m = net_connect(&w);
    net_send_c(m, STREAM "Content-Length: 10\r\n\r\n");
    assert_int_equal(seen.handled, 1); /* at the end of the head */
    net_send_c(m, "01234");
    assert_int_equal(seen.data.len, 5);
    assert_int_equal(seen.end_code, -1);
    net_send_c(m, "56789POST /echo HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\nhi");
    assert_int_equal(seen.end_code, 0);
    EXPECT(net_got(m), "HTTP/1.1 200 OK\r\n", "\r\n\r\n10 bytes", "\r\n\r\nhi", "!Connection");
    net_send_slowly(m, STREAM "Transfer-Encoding: chunked\r\n\r\n"
                              "3\r\nabc\r\n4;x\r\ndefg\r\n0\r\n\r\n");
    EXPECT(net_got(m), "\r\n\r\n7 bytes");
    assert_memory_equal(seen.data.ptr, "abcdefg", 7);
    net_send_c(m, STREAM "Content-Length: 0\r\n\r\n" STREAM "\r\n");
    assert_int_equal(site_count(net_got(m), "\r\n\r\n0 bytes"), 2);
    site_finish(&w, m);
    net_world_deinit(&w);
}

/* A handler that takes nothing stops the client after one window, and continues where it
 * stopped. */
static void window(bool chunked)
{
    struct net_world w;
    struct net_mem *m;
    size_t n = 900000, held;
    char *p = bytes_of(n), head[160];

    site_open(&w);
    m = net_connect(&w);
    seen.keep = true;
    (void)snprintf(head, sizeof(head), STREAM "%s: %s\r\n\r\n%s",
                   chunked ? "Transfer-Encoding" : "Content-Length", chunked ? "chunked" : "900000",
                   chunked ? "dbba0\r\n" : "");
    net_send_c(m, head);
    send_bytes(m, p, n);
    if (chunked)
        net_send_c(m, "\r\n0\r\n\r\n");
    assert_int_equal(seen.data.len, HTTP_STREAM_WINDOW);
    assert_false(m->reading);
    held = w.budget.used;
    assert_true(held >= HTTP_STREAM_WINDOW && held < HTTP_STREAM_WINDOW + 200 * KIB);
    net_pass(&w, 200000); /* not the client's fault */
    assert_false(m->closed);
    while (seen.end_code < 0) {
        size_t took = MIN(seen.untaken, (size_t)100000);
        assert_true(took > 0);
        seen.untaken -= took;
        http_stream_took(seen.held, took);
        net_settle(&w);
        assert_true(w.budget.used < HTTP_STREAM_WINDOW + 200 * KIB);
    }
    assert_int_equal(seen.data.len, n);
    assert_memory_equal(seen.data.ptr, p, n);
    EXPECT(net_got(m), "\r\n\r\n900000 bytes");
    assert_int_equal(w.budget.used, 0);
    site_finish(&w, m);
    net_world_deinit(&w);
    xfree(p);
}

static void test_window_with_length(void **state)
{
    (void)state;
    window(false);
}

static void test_window_chunked(void **state)
{
    (void)state;
    window(true);
}

static void test_body_ends_badly(void **state)
{
    static const struct {
        const char *text;
        int code;
        const char *status;
    } rows[] = {
        { STREAM "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nfffff\r\n", ERR_TOO_LARGE, "413" },
        { STREAM "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nxx\r\n", ERR_INPUT, "400" },
    };
    struct net_world w;

    (void)state;
    site_open(&w);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct net_mem *m = net_connect(&w);
        const char *got;

        net_send_c(m, rows[i].text);
        got = net_got(m);
        assert_int_equal(seen.end_code, rows[i].code);
        assert_memory_equal(got, "HTTP/1.1 ", 9);
        assert_memory_equal(got + 9, rows[i].status, 3);
        EXPECT(got, "Connection: close\r\n");
        site_finish(&w, m);
    }
    /* The head says it already: no handler runs. */
    struct net_mem *m = net_connect(&w);
    int before = seen.handled;
    net_send_c(m, STREAM "Content-Length: 2000000\r\n\r\n");
    EXPECT(net_got(m), "HTTP/1.1 413 ");
    assert_int_equal(seen.handled, before);
    site_finish(&w, m);
    net_world_deinit(&w);
}

static void test_body_stalls_or_is_cut(void **state)
{
    struct net_world w;
    struct net_mem *m;

    (void)state;
    site_open(&w);
    m = net_connect(&w);
    net_send_c(m, STREAM "Content-Length: 10\r\n\r\n01");
    net_pass(&w, 50000);
    net_send_c(m, "2");
    net_pass(&w, 50000);
    assert_int_equal(seen.end_code, -1); /* slow, but alive */
    net_pass(&w, 80000);
    assert_int_equal(seen.end_code, ERR_TIMEOUT);
    EXPECT(net_got(m), "Connection: close\r\n");
    site_finish(&w, m);

    m = net_connect(&w);
    net_send_c(m, STREAM "Content-Length: 10\r\n\r\n01");
    net_end(m, false); /* half-closed: the answer still reaches it */
    assert_int_equal(seen.end_code, ERR_INPUT);
    EXPECT(net_got(m), "HTTP/1.1 400 ", "ended before the body did");
    site_finish(&w, m);

    m = net_connect(&w);
    net_send_c(m, STREAM "Content-Length: 10\r\n\r\n01");
    seen.gone = 0;
    net_end(m, true);
    assert_int_equal(seen.end_code, -1);
    assert_int_equal(seen.gone, 1);
    http_reply(seen.held, 200, NULL, NULL);
    net_mem_free(m);
    net_world_deinit(&w);
}

static void test_budget_cuts_the_body(void **state)
{
    struct net_world w;
    struct net_mem *m;
    char *p = bytes_of(100000);

    (void)state;
    site_open(&w);
    m = net_connect(&w);
    net_send_c(m, STREAM "Content-Length: 200000\r\n\r\n01");
    assert_true(budget_reserve(&w.budget, w.budget.max - w.budget.used - 1000));
    send_bytes(m, p, 100000);
    assert_int_equal(seen.end_code, ERR_BUSY);
    EXPECT(net_got(m), "HTTP/1.1 503 ", "Retry-After: ", "Connection: close\r\n");
    budget_release(&w.budget, w.budget.used);
    site_finish(&w, m);
    net_world_deinit(&w);
    xfree(p);
}

/* ---- replies */

static void test_reply_in_pieces(void **state)
{
    struct net_world w;
    struct net_mem *m;
    const char *got;

    (void)state;
    site_open(&w);
    m = net_connect(&w);
    net_send_c(m, "GET /feed HTTP/1.1\r\n" HOST "\r\n");
    got = net_got(m);
    EXPECT(got, "HTTP/1.1 200 OK\r\n", "X-Feed: yes\r\n", "Transfer-Encoding: chunked\r\n",
           "Content-Type: text/event-stream\r\n", "!Content-Length", "!Connection");
    site_feed("data: 1\n\n", 1);
    net_settle(&w);
    assert_string_equal(net_got(m), "9\r\ndata: 1\n\n\r\n");
    site_feed("x", 5000);
    site_feed("", 1);
    site_feed("y", 5000);
    net_settle(&w);
    got = net_got(m);
    assert_memory_equal(got, "1388\r\nxxx", 9);
    assert_int_equal(strlen(got), 2 * (6 + 5000 + 2));
    http_reply_trailer(seen.held, "grpc-status", STR("0")); /* dropped here */
    http_stream_end(seen.held);
    assert_string_equal(net_got(m), "0\r\n\r\n");
    net_send_c(m, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\nhi");
    EXPECT(net_got(m), "\r\n\r\nhi");
    site_finish(&w, m);
    net_world_deinit(&w);
}

static void test_reply_in_pieces_to_old_and_head(void **state)
{
    struct net_world w;
    struct net_mem *m;
    const char *got;

    (void)state;
    site_open(&w);
    m = net_connect(&w);
    net_send_c(m, "GET /feed HTTP/1.0\r\n" HOST "Connection: keep-alive\r\n\r\n");
    site_feed("abc", 1);
    http_stream_end(seen.held);
    net_settle(&w);
    got = net_got(m);
    EXPECT(got, "Connection: close\r\n", "\r\n\r\nabc", "!Transfer-Encoding");
    assert_true(m->closed);
    net_mem_free(m);

    m = net_connect(&w);
    net_send_c(m, "HEAD /feed HTTP/1.1\r\n" HOST "\r\n");
    site_feed("abc", 1);
    http_stream_end(seen.held);
    net_settle(&w);
    got = net_got(m);
    assert_string_equal(got + strlen(got) - 4, "\r\n\r\n");
    EXPECT(got, "!abc");
    assert_false(m->closed);
    site_finish(&w, m);
    net_world_deinit(&w);
}

/* The queue is bounded and charged; the handler hears when there is room, and who never reads is
 * cut off and costs nothing after that. */
static void test_slow_reader(void **state)
{
    struct net_world w;
    struct net_mem *m;

    (void)state;
    site_open(&w);
    m = net_connect(&w);
    net_send_c(m, "GET /feed HTTP/1.1\r\n" HOST "\r\n");
    (void)net_got(m);
    m->room = 0;
    site_feed("x", 50000);
    assert_true(http_stream_queued(seen.held) >= 50000);
    net_settle(&w);
    site_feed("y", 50000);
    net_settle(&w);
    assert_true(w.budget.used >= 100000);
    assert_int_equal(seen.room, 0);
    net_take(m, 200000);
    net_settle(&w);
    assert_int_equal(seen.room, 1);
    assert_int_equal(http_stream_queued(seen.held), 0);
    assert_int_equal(strlen(net_got(m)), 100000 + 2 * (6 + 2));
    m->room = 0;
    for (int i = 0; i < 10; i++) {
        site_feed("z", 300000);
        net_settle(&w);
        assert_true(w.budget.used <= w.budget.max);
    }
    net_pass(&w, 200);
    assert_true(m->closed);
    assert_int_equal(seen.gone, 1);
    assert_int_equal(http_stream_queued(seen.held), 0);
    site_feed("for no one", 1);
    http_stream_end(seen.held);
    assert_int_equal(w.budget.used, 0);
    net_mem_free(m);
    net_world_deinit(&w);
}

/* Below every bound, but a byte per interval does not count as reading. */
static void test_reader_that_stopped(void **state)
{
    struct net_world w;
    struct net_mem *m;

    (void)state;
    site_open(&w);
    m = net_connect(&w);
    net_send_c(m, "GET /feed HTTP/1.1\r\n" HOST "\r\n");
    m->room = 0;
    site_feed("x", 50000);
    net_settle(&w);
    net_pass(&w, 9000);
    net_take(m, 100);
    m->room = 0;
    net_pass(&w, 2000);
    assert_true(m->closed);
    assert_int_equal(seen.gone, 1);
    http_stream_end(seen.held);
    net_mem_free(m);
    net_world_deinit(&w);
}

static void test_reply_is_broken_off(void **state)
{
    struct net_world w;
    struct net_mem *m;
    struct buf b;

    (void)state;
    site_open(&w);
    m = net_connect(&w);
    net_send_c(m, "GET /feed HTTP/1.1\r\n" HOST "\r\n");
    site_feed("abc", 1);
    net_settle(&w);
    http_stream_abort(seen.held);
    net_settle(&w);
    EXPECT(net_got(m), "\r\n3\r\nabc\r\n", "!0\r\n\r\n");
    assert_true(m->closed);
    net_mem_free(m);

    m = net_connect(&w);
    net_send_c(m, "GET /feed HTTP/1.1\r\n" HOST "\r\n");
    buf_init(&b, 4);
    buf_add_str(&b, STR("too long"));
    http_stream_send(seen.held, 200, NULL, &b); /* half a piece must not look like a whole one */
    net_pass(&w, 200);
    assert_true(m->closed);
    assert_int_equal(seen.gone, 1);
    http_stream_end(seen.held);
    net_mem_free(m);
    net_world_deinit(&w);
}

/* Both sides in pieces at once; a reply that ends first ends the connection. */
static void test_reply_before_the_body_ends(void **state)
{
    struct net_world w;
    struct net_mem *m;

    (void)state;
    site_open(&w);
    m = net_connect(&w);
    net_send_c(m, STREAM "Content-Length: 10\r\n\r\n0123");
    site_feed("early", 1);
    net_settle(&w);
    EXPECT(net_got(m), "HTTP/1.1 ", "5\r\nearly\r\n");
    net_send_c(m, "456");
    assert_int_equal(seen.data.len, 7);
    http_stream_end(seen.held);
    net_settle(&w);
    assert_string_equal(net_got(m), "0\r\n\r\n");
    assert_true(m->shut);
    assert_int_equal(seen.end_code, -1);
    site_finish(&w, m);
    net_world_deinit(&w);
}

static void test_drain_waits_for_a_feed(void **state)
{
    struct net_world w;
    struct net_mem *m;

    (void)state;
    site_open(&w);
    m = net_connect(&w);
    net_send_c(m, "GET /feed HTTP/1.1\r\n" HOST "\r\n");
    site_feed("abc", 1);
    net_settle(&w);
    (void)net_got(m);
    http_server_drain(w.server, (void (*)(void *))(uintptr_t)net_settle, &w);
    net_settle(&w);
    assert_false(m->closed);
    site_feed("def", 1);
    http_stream_end(seen.held);
    net_settle(&w);
    assert_string_equal(net_got(m), "3\r\ndef\r\n0\r\n\r\n");
    net_end(m, false);
    net_pass(&w, 3000);
    assert_true(m->closed);
    net_mem_free(m);
    w.drained = true;
    net_world_deinit(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_body_in_pieces),
        cmocka_unit_test(test_window_with_length),
        cmocka_unit_test(test_window_chunked),
        cmocka_unit_test(test_body_ends_badly),
        cmocka_unit_test(test_body_stalls_or_is_cut),
        cmocka_unit_test(test_budget_cuts_the_body),
        cmocka_unit_test(test_reply_in_pieces),
        cmocka_unit_test(test_reply_in_pieces_to_old_and_head),
        cmocka_unit_test(test_slow_reader),
        cmocka_unit_test(test_reader_that_stopped),
        cmocka_unit_test(test_reply_is_broken_off),
        cmocka_unit_test(test_reply_before_the_body_ends),
        cmocka_unit_test(test_drain_waits_for_a_feed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

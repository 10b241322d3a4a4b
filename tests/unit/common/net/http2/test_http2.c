/* SPDX-License-Identifier: Apache-2.0
 *
 * HTTP/2 over memory streams: requests and replies, whole and in pieces, and how a connection ends.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "common/base/compress/compress.h"
#include "common/base/mem.h"
#include "tests/lib/net/net_h2.h"
#include "tests/lib/net/net_site.h"

static char *bytes_of(size_t n)
{
    char *p = xmalloc(n);

    for (size_t i = 0; i < n; i++)
        p[i] = (char)('a' + i % 26);
    return p;
}

static void test_one_request(void **state)
{
    struct net_world w;
    struct net_h2 *c;
    struct net_h2_stream *s;

    (void)state;
    site_open(&w);
    c = net_h2_connect(&w, false, 0);
    s = net_h2_request(c, "POST", "/echo", NULL, STR("hello"));
    assert_int_equal(s->status, 200);
    assert_string_equal(s->body, "hello");
    assert_true(s->ended && s->closed);
    EXPECT(s->headers, "content-type: text/plain\n", "content-length: 5\n",
           "x-request-id: ", "date: Sun, 15 Jun 2025 15:06:40 GMT\n");
    s = net_h2_request(c, "GET", "/p/x%20y?q=1", NULL, STR_NULL);
    assert_int_equal(s->status, 200);
    EXPECT(s->headers, "x-path: /p/x y\n", "content-length: 0\n");
    assert_true(s->ended && s->closed && s->body_len == 0);
    s = net_h2_request(c, "HEAD", "/big?n=300000", NULL, STR_NULL);
    assert_true(s->ended && s->body_len == 0);
    EXPECT(s->headers, "content-length: 300000\n");
    s = net_h2_request(c, "GET", "/big?n=300000", NULL, STR_NULL);
    assert_int_equal(s->body_len, 300000);
    s = net_h2_request(c, "DELETE", "/echo", NULL, STR_NULL);
    assert_int_equal(s->status, 405);
    EXPECT(s->headers, "\n", "!connection:");
    assert_int_equal(w.budget.used, 0);
    assert_false(c->goaway || c->m->closed);
    net_h2_finish(c);
    net_world_deinit(&w);
}

static void test_byte_by_byte(void **state)
{
    struct net_world w;
    struct net_mem *m;
    struct net_h2 *c;
    const uint8_t *p;
    struct buf b;
    ssize_t n;

    (void)state;
    site_open(&w);
    m = net_connect(&w);
    c = net_h2_on(m, false, 0);
    buf_init(&b, MIB);
    const char *const get[] = { ":method", "GET",         ":scheme",    "http",
                                ":path",   "/big?n=3000", ":authority", "h" };
    nghttp2_nv nv[4];
    for (size_t i = 0; i < 4; i++)
        nv[i] =
            (nghttp2_nv){ (uint8_t *)(uintptr_t)get[2 * i], (uint8_t *)(uintptr_t)get[2 * i + 1],
                          strlen(get[2 * i]), strlen(get[2 * i + 1]), NGHTTP2_NV_FLAG_NONE };
    c->streams[c->len++].id = nghttp2_submit_request(c->session, NULL, nv, 4, NULL, NULL);
    while ((n = nghttp2_session_mem_send(c->session, &p)) > 0)
        buf_add(&b, p, (size_t)n);
    for (size_t i = 0; i < b.len; i++)
        net_send(m, (struct str){ b.ptr + i, 1 });
    net_h2_talk(c);
    assert_int_equal(c->streams[0].body_len, 3000);
    buf_deinit(&b);
    net_h2_finish(c);
    net_world_deinit(&w);
}

static void test_many_streams_and_big_bodies(void **state)
{
    struct net_world w;
    struct net_h2 *c;
    char *p = bytes_of(64 * KIB);
    const char *gz[] = { "accept-encoding", "gzip", NULL };

    (void)state;
    site_open(&w);
    c = net_h2_connect(&w, false, 0);
    for (int i = 0; i < 150; i++) {
        struct net_h2_stream *s = net_h2_request(c, "POST", "/echo", i % 2 ? gz : NULL,
                                                 (struct str){ p, (size_t)(i * 436) });
        assert_int_equal(s->status, 200);
        assert_true(s->closed && s->ended);
        if (i % 2 == 0)
            assert_int_equal(s->body_len, i * 436);
        else if (i * 436 >= 1400)
            EXPECT(s->headers, "content-encoding: gzip\n");
    }
    assert_int_equal(w.budget.used, 0);
    net_h2_finish(c);
    net_world_deinit(&w);
    xfree(p);
}

static void test_reply_later_and_out_of_order(void **state)
{
    struct net_world w;
    struct net_h2 *c;
    struct net_h2_stream *a, *b;

    (void)state;
    site_open(&w);
    c = net_h2_connect(&w, false, 0);
    a = net_h2_request(c, "GET", "/hold", NULL, STR_NULL);
    b = net_h2_request(c, "POST", "/echo", NULL, STR("hi"));
    assert_int_equal(a->status, 0);
    assert_string_equal(b->body, "hi");
    net_pass(&w, 300000); /* no deadline while a handler runs */
    assert_false(c->m->closed);
    site_reply_held("at last");
    net_h2_talk(c);
    assert_string_equal(a->body, "at last");
    net_h2_finish(c);
    net_world_deinit(&w);
}

static void test_trailers(void **state)
{
    struct net_world w;
    struct net_h2 *c;
    struct net_h2_stream *s;

    (void)state;
    site_open(&w);
    c = net_h2_connect(&w, false, 0);
    s = net_h2_request(c, "GET", "/hold", NULL, STR_NULL);
    assert_true(http_is_h2(seen.held));
    http_reply_trailer(seen.held, "Grpc-Status", STR("0"));
    http_reply_trailer(seen.held, "grpc-message", STR("fine\nso far"));
    site_reply_held("body");
    net_h2_talk(c);
    assert_string_equal(s->body, "body");
    assert_string_equal(s->trailers, "grpc-status: 0\ngrpc-message: fine so far\n");
    assert_true(s->ended && s->closed);

    s = net_h2_request(c, "GET", "/hold", NULL, STR_NULL); /* nothing but trailers */
    http_reply_trailer(seen.held, "grpc-status", STR("5"));
    struct http_req *r = seen.held;
    seen.held = NULL;
    http_reply(r, 200, "application/grpc", NULL);
    net_h2_talk(c);
    assert_int_equal(s->body_len, 0);
    assert_string_equal(s->trailers, "grpc-status: 5\n");
    assert_true(s->ended && s->closed);
    net_h2_finish(c);
    net_world_deinit(&w);
}

/* A client may put headers behind its body: they end it, and are not read. */
static void test_request_trailers(void **state)
{
    struct net_world w;
    struct net_h2 *c;
    struct buf b, fields;
    char got[4 * KIB];

    (void)state;
    site_open(&w);
    for (int pieces = 0; pieces < 2; pieces++) {
        c = net_h2_connect(&w, false, 0);
        buf_init(&b, 8 * KIB);
        buf_init(&fields, 8 * KIB);
        net_h2_fields(&fields, "POST", pieces ? "/stream" : "/echo");
        net_h2_frame(&b, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, 1, buf_str(&fields));
        net_h2_frame(&b, NGHTTP2_DATA, 0, 1, STR("hello"));
        net_send(c->m, buf_str(&b));
        buf_reset(&b);
        buf_reset(&fields);
        net_h2_field(&fields, "grpc-status", "0");
        net_h2_field(&fields, "x-checksum", "abc");
        net_h2_frame(&b, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS | NGHTTP2_FLAG_END_STREAM, 1,
                     buf_str(&fields));
        net_settle(&w);
        assert_int_equal(c->m->out.len, 0); /* without them it has not ended */
        net_send(c->m, buf_str(&b));
        net_settle(&w);
        size_t n = MIN(c->m->out.len, sizeof(got) - 1);
        for (size_t i = 0; i < n; i++)
            got[i] = c->m->out.ptr[i] ? c->m->out.ptr[i] : '~';
        got[n] = '\0';
        EXPECT(got, pieces ? "5 bytes" : "hello");
        if (pieces)
            assert_int_equal(seen.end_code, 0);
        buf_reset(&c->m->out);
        buf_deinit(&b);
        buf_deinit(&fields);
        net_h2_finish(c);
    }
    net_world_deinit(&w);
}

/* ---- pieces */

static void test_body_in_pieces(void **state)
{
    struct net_world w;
    struct net_h2 *c;
    struct net_h2_stream *s, *other;
    size_t n = 900000, took = 0;
    char *p = bytes_of(n);

    (void)state;
    site_open(&w);
    c = net_h2_connect(&w, false, 0);
    s = net_h2_begin(c, "POST", "/stream", STR("abc"));
    assert_int_equal(seen.handled, 1);
    assert_int_equal(seen.data.len, 3);
    assert_int_equal(seen.end_code, -1);
    net_h2_more(c, s, STR("defg"), true);
    assert_int_equal(seen.end_code, 0);
    assert_string_equal(s->body, "7 bytes");
    assert_true(s->closed);

    seen.keep = true;
    s = net_h2_request(c, "POST", "/stream", NULL, (struct str){ p, n });
    assert_int_equal(seen.data.len, HTTP_STREAM_WINDOW);
    struct http_req *r = seen.held;
    /* Its window is shut, that of the connection is not. */
    other = net_h2_request(c, "POST", "/echo", NULL, (struct str){ p, 60000 });
    assert_int_equal(other->body_len, 60000);
    net_pass(&w, 200000);
    assert_int_equal(seen.end_code, -1);
    while (seen.end_code < 0) {
        assert_true(w.budget.used <= HTTP_STREAM_WINDOW + 32 * KIB);
        size_t more = MIN(seen.untaken, (size_t)50000);
        assert_true(more > 0);
        seen.untaken -= more;
        took += more;
        http_stream_took(r, more);
        net_h2_talk(c);
    }
    assert_int_equal(seen.data.len, n);
    assert_memory_equal(seen.data.ptr, p, n);
    assert_string_equal(s->body, "900000 bytes");
    assert_true(took <= n);
    assert_int_equal(w.budget.used, 0);
    net_h2_finish(c);
    net_world_deinit(&w);
    xfree(p);
}

static void test_body_in_pieces_ends_badly(void **state)
{
    struct net_world w;
    struct net_h2 *c;
    struct net_h2_stream *s;
    char *p = bytes_of(2 * MIB);

    (void)state;
    site_open(&w);
    c = net_h2_connect(&w, false, 0);
    s = net_h2_begin(c, "POST", "/stream", (struct str){ p, 2 * MIB });
    assert_int_equal(seen.end_code, ERR_TOO_LARGE);
    assert_int_equal(s->status, 413);
    assert_true(s->closed && s->ended);

    s = net_h2_begin(c, "POST", "/stream", STR("abc"));
    net_pass(&w, 50000);
    net_h2_more(c, s, STR("d"), false);
    net_pass(&w, 50000);
    assert_int_equal(seen.end_code, -1); /* slow, but alive */
    net_pass(&w, 80000);
    assert_int_equal(seen.end_code, ERR_TIMEOUT);
    net_h2_talk(c);
    assert_int_equal(s->status, 504);

    s = net_h2_begin(c, "POST", "/stream", STR("abc"));
    net_h2_reset(c, s);
    assert_int_equal(seen.gone, 1);
    assert_int_equal(seen.end_code, -1);
    http_reply(seen.held, 200, NULL, NULL);

    s = net_h2_begin(c, "POST", "/stream", STR("abc"));
    assert_true(budget_reserve(&w.budget, w.budget.max - w.budget.used - 1000));
    net_h2_more(c, s, (struct str){ p, 5000 }, false);
    assert_int_equal(seen.end_code, ERR_BUSY);
    assert_int_equal(s->status, 503);
    budget_release(&w.budget, w.budget.used);
    net_h2_finish(c);
    net_world_deinit(&w);
    xfree(p);
}

static void test_reply_in_pieces(void **state)
{
    struct net_world w;
    struct net_h2 *c;
    struct net_h2_stream *s;

    (void)state;
    site_open(&w);
    c = net_h2_connect(&w, false, 0);
    s = net_h2_request(c, "GET", "/feed", NULL, STR_NULL);
    assert_int_equal(s->status, 200);
    EXPECT(s->headers, "x-feed: yes\n", "!content-length", "!transfer-encoding");
    site_feed("data: 1\n\n", 1);
    net_h2_talk(c);
    assert_string_equal(s->body, "data: 1\n\n");
    site_feed("x", 200000);
    net_h2_talk(c);
    assert_int_equal(s->body_len, 200009);
    assert_int_equal(http_stream_queued(seen.held), 0);
    assert_int_equal(seen.room, 1);
    http_reply_trailer(seen.held, "grpc-status", STR("0"));
    http_stream_end(seen.held);
    net_h2_talk(c);
    assert_string_equal(s->trailers, "grpc-status: 0\n");
    assert_true(s->ended && s->closed);

    s = net_h2_request(c, "GET", "/feed", NULL, STR_NULL);
    site_feed("abc", 1);
    net_h2_talk(c);
    http_stream_abort(seen.held);
    net_h2_talk(c);
    assert_true(s->closed && !s->ended);
    assert_int_equal(s->error, NGHTTP2_INTERNAL_ERROR);
    net_h2_finish(c);
    net_world_deinit(&w);
}

static void test_slow_reader(void **state)
{
    struct net_world w;
    struct net_h2 *c;
    struct net_h2_stream *s;

    (void)state;
    site_open(&w);
    c = net_h2_connect(&w, true, 0);
    s = net_h2_request(c, "GET", "/feed", NULL, STR_NULL);
    site_feed("x", 150000);
    net_h2_talk(c);
    assert_int_equal(s->body_len, 65535); /* the window */
    assert_int_equal(http_stream_queued(seen.held), 150000 - 65535);
    assert_true(w.budget.used >= 150000 - 65535);
    net_h2_open(c, s, 65535);
    assert_int_equal(s->body_len, 2 * 65535);
    assert_int_equal(seen.room, 1);
    for (int i = 0; i < 4; i++)
        site_feed("z", 300000); /* more than the budget */
    net_pass(&w, 200);
    net_h2_talk(c);
    assert_true(s->closed && !s->ended);
    assert_int_equal(seen.gone, 1);
    http_stream_end(seen.held);
    assert_int_equal(w.budget.used, 0);
    /* Only the stream was cut off. */
    s = net_h2_request(c, "GET", "/p/x", NULL, STR_NULL);
    assert_int_equal(s->status, 200);
    net_h2_finish(c);
    net_world_deinit(&w);
}

/* ---- windows that stay shut */

static void test_window_never_opens(void **state)
{
    struct net_world w;
    struct net_h2 *c;
    struct net_h2_stream *s;

    (void)state;
    site_open(&w);
    c = net_h2_connect(&w, true, 1);
    s = net_h2_request(c, "GET", "/big?n=300000", NULL, STR_NULL);
    assert_int_equal(s->status, 200);
    assert_int_equal(s->body_len, 1);
    assert_true(w.budget.used >= 300000);
    net_pass(&w, 11000);
    net_h2_talk(c);
    assert_true(s->closed && !s->ended);
    assert_int_equal(s->error, NGHTTP2_CANCEL);
    assert_int_equal(w.budget.used, 0);

    /* Replies that find no room are not kept for later. */
    for (int i = 0; i < 5; i++)
        s = net_h2_request(c, "GET", "/big?n=300000", NULL, STR_NULL);
    assert_int_equal(s->status, 503);
    EXPECT(s->headers, "retry-after: 1\n");
    assert_true(w.budget.used <= w.budget.max);
    net_h2_finish(c);
    net_world_deinit(&w);
}

static void test_socket_that_takes_nothing(void **state)
{
    struct net_world w;
    struct net_h2 *c;
    struct net_mem *m;

    (void)state;
    site_open(&w);
    c = net_h2_connect(&w, false, 1000000);
    m = c->m;
    m->room = 1000;
    (void)net_h2_request(c, "GET", "/big?n=300000", NULL, STR_NULL);
    net_pass(&w, 9000);
    assert_false(m->closed);
    net_pass(&w, 2000);
    assert_true(m->closed);
    net_h2_free(c);
    net_mem_free(m);
    net_world_deinit(&w);
}

/* ---- the end */

static void test_drain(void **state)
{
    struct net_world w;
    struct net_h2 *c, *idle;
    struct net_h2_stream *s, *late;
    struct net_mem *m;

    (void)state;
    site_open(&w);
    c = net_h2_connect(&w, false, 0);
    idle = net_h2_connect(&w, false, 0);
    s = net_h2_request(c, "GET", "/hold", NULL, STR_NULL);
    http_server_drain(w.server, (void (*)(void *))(uintptr_t)net_settle, &w);
    net_h2_talk(idle);
    net_pass(&w, 300);
    /* A word first: what is on its way is served. */
    late = net_h2_request(c, "POST", "/echo", NULL, STR("late"));
    assert_int_equal(late->status, 200);
    assert_true(c->goaway && idle->goaway && !idle->m->shut && !c->m->shut);
    assert_int_equal(c->goaway_error, NGHTTP2_NO_ERROR);
    assert_int_equal(c->goaway_last, INT32_MAX);
    net_pass(&w, 300);
    net_h2_talk(c);
    net_h2_talk(idle);
    assert_true(idle->m->shut && !c->m->shut);
    assert_int_equal(c->goaway_last, late->id);
    site_reply_held("still");
    net_h2_talk(c);
    assert_string_equal(s->body, "still");
    assert_true(c->m->shut);
    net_h2_finish(idle);
    m = c->m;
    net_h2_free(c);
    net_pass(&w, 3000); /* a client that stays is not waited for */
    assert_true(m->closed);
    net_mem_free(m);
    w.drained = true;
    net_world_deinit(&w);
}

static void test_idle_and_greeting_deadlines(void **state)
{
    struct net_world w;
    struct net_mem *m;
    struct net_h2 *c;

    (void)state;
    site_open(&w);
    m = net_connect(&w);
    net_send_c(m, "PRI * HTT");
    net_pass(&w, 11000);
    assert_true(m->closed);
    net_mem_free(m);

    m = net_connect(&w);
    net_send_c(m, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"); /* and no SETTINGS */
    net_pass(&w, 13000);
    assert_true(m->closed);
    net_mem_free(m);

    c = net_h2_connect(&w, false, 0);
    for (int i = 0; i < 5; i++) {
        assert_false(c->goaway);
        net_pass(&w, 11000);
        CHECK(nghttp2_submit_ping(c->session, NGHTTP2_FLAG_NONE, NULL) == 0);
        net_h2_talk(c);
    }
    net_pass(&w, 8000); /* pings are no requests */
    net_h2_talk(c);
    assert_true(c->goaway && c->m->shut);
    net_h2_finish(c);
    net_world_deinit(&w);
}

static void test_client_leaves(void **state)
{
    struct net_world w;
    struct net_h2 *c;
    struct net_mem *m;

    (void)state;
    site_open(&w);
    c = net_h2_connect(&w, false, 0);
    (void)net_h2_request(c, "GET", "/hold", NULL, STR_NULL);
    (void)net_h2_begin(c, "POST", "/echo", STR("half"));
    m = c->m;
    net_end(m, true);
    assert_int_equal(seen.gone, 1);
    assert_int_equal(seen.handled, 1);
    assert_true(m->closed);
    site_reply_held("to no one");
    net_h2_free(c);
    net_mem_free(m);
    net_world_deinit(&w);
}

static bool counted(struct net_world *w, const char *line)
{
    struct buf text;
    struct str all;
    bool found;

    buf_init(&text, 64 * KIB);
    metrics_render(w->metrics, &text);
    all = buf_str(&text);
    found = memmem(all.ptr, all.len, line, strlen(line)) != NULL;
    buf_deinit(&text);
    return found;
}

/* What clients say when they leave is no refused request, even where it is not HTTP/2: gRPC's Go
 * client names a stream of its own in GOAWAY. */
static void test_goodbye_is_not_malformed(void **state)
{
    static const char goodbye[] = { 0, 0, 0, 19, 0, 0, 0, 0 };
    static const char zero[] = "embertree_http_refused_total{reason=\"malformed\"} 0\n";
    static const char one[] = "embertree_http_refused_total{reason=\"malformed\"} 1\n";

    (void)state;
    for (int ping = 0; ping < 2; ping++) { /* a ping on a stream is malformed */
        struct net_world w;
        struct net_h2 *c;
        struct buf b;

        site_open(&w);
        c = net_h2_connect(&w, false, 0);
        assert_int_equal(net_h2_request(c, "GET", "/p/x", NULL, STR_NULL)->closed, 1);
        buf_init(&b, 4 * KIB);
        net_h2_frame(&b, ping ? NGHTTP2_PING : NGHTTP2_GOAWAY, 0, ping ? 1 : 0,
                     (struct str){ goodbye, sizeof goodbye });
        net_send(c->m, buf_str(&b));
        net_h2_talk(c);
        assert_true(c->goaway);
        assert_true(counted(&w, ping ? one : zero));
        buf_deinit(&b);
        net_h2_finish(c);
        net_world_deinit(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_request),
        cmocka_unit_test(test_byte_by_byte),
        cmocka_unit_test(test_many_streams_and_big_bodies),
        cmocka_unit_test(test_reply_later_and_out_of_order),
        cmocka_unit_test(test_trailers),
        cmocka_unit_test(test_request_trailers),
        cmocka_unit_test(test_body_in_pieces),
        cmocka_unit_test(test_body_in_pieces_ends_badly),
        cmocka_unit_test(test_reply_in_pieces),
        cmocka_unit_test(test_slow_reader),
        cmocka_unit_test(test_window_never_opens),
        cmocka_unit_test(test_socket_that_takes_nothing),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_idle_and_greeting_deadlines),
        cmocka_unit_test(test_client_leaves),
        cmocka_unit_test(test_goodbye_is_not_malformed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

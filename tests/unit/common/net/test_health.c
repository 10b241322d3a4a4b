/* SPDX-License-Identifier: Apache-2.0
 *
 * grpc.health.v1.Health: Check in each protocol, Watch: changes, its end, and how many there are.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/net/svc/svc_wire.h"
#include "tests/lib/gen/push_gen.h"
#include "tests/lib/net/net_h2.h"
#include "tests/lib/net/net_site.h"

#define CHECK_PATH "/grpc.health.v1.Health/Check"
#define WATCH_PATH "/grpc.health.v1.Health/Watch"

static const char *const grpc[] = { "content-type", "application/grpc", "te", "trailers", NULL };
static const char *const grpc_json[] = { "content-type", "application/grpc+json", NULL };
static const char *const json[] = { "content-type", "application/json", NULL };

static bool serving;
static struct svc_health health;

static bool up(void *cookie)
{
    return *(bool *)cookie;
}

static void on_say(struct svc_call *c)
{
    svc_reply(c, NULL);
}

static void open_world(struct net_world *w)
{
    site_open(w);
    w->budget.max = 8 * MIB;
    serving = true;
    svc_route(w->server, "/t.Echo/Say", SVC_PROTO, KIB, on_say, NULL);
    svc_health_routes(&health, w->server, up, &serving);
}

/* A request for a service, as a frame. */
static struct str ask(struct buf *b, struct str message)
{
    buf_reset(b);
    push_gen_frame(0, message, b);
    return buf_str(b);
}

static void test_check(void **state)
{
    struct net_world w;
    struct net_h2_stream *s;
    struct buf b;

    (void)state;
    open_world(&w);
    struct net_h2 *c = net_h2_connect(&w, false, 0);
    buf_init(&b, KIB);
    s = net_h2_request(c, "POST", CHECK_PATH, grpc, ask(&b, STR("")));
    assert_memory_equal(s->body, "\0\0\0\0\2\x08\x01", 7);
    serving = false;
    s = net_h2_request(c, "POST", CHECK_PATH, grpc, ask(&b, STR("\x0a\x06t.Echo")));
    assert_memory_equal(s->body, "\0\0\0\0\2\x08\x02", 7);
    s = net_h2_request(c, "POST", CHECK_PATH, grpc, ask(&b, STR("\x0a\x06t.Ecco")));
    EXPECT(s->headers, "grpc-status: 5\n");
    serving = true;
    s = net_h2_request(c, "POST", CHECK_PATH, json, STR("{}"));
    assert_string_equal(s->body, "{\"status\":\"SERVING\"}");
    s = net_h2_request(c, "POST", CHECK_PATH, json, STR("{\"service\":\"t.Echo\"}"));
    assert_string_equal(s->body, "{\"status\":\"SERVING\"}");
    s = net_h2_request(c, "POST", "/grpc.health.v1.Health/List", grpc, ask(&b, STR("")));
    EXPECT(s->headers, "grpc-status: 12\n");
    buf_deinit(&b);
    net_h2_finish(c);
    net_world_deinit(&w);
}

/* What the streams got so far: the last byte of each message is the status. */
static void expect_said(const struct net_h2_stream *s, const char *statuses)
{
    size_t n = strlen(statuses);

    assert_int_equal(s->body_len, 7 * n);
    for (size_t i = 0; i < n; i++) {
        assert_memory_equal(s->body + 7 * i, "\0\0\0\0\2\x08", 6);
        assert_int_equal(s->body[7 * i + 6], statuses[i] - '0');
    }
}

static void test_watch(void **state)
{
    struct net_world w;
    struct net_h2_stream *all, *one, *none, *text, *held;
    struct buf b;

    (void)state;
    open_world(&w);
    struct net_h2 *c = net_h2_connect(&w, false, 0);
    buf_init(&b, KIB);
    all = net_h2_request(c, "POST", WATCH_PATH, grpc, ask(&b, STR("")));
    one = net_h2_request(c, "POST", WATCH_PATH, grpc, ask(&b, STR("\x0a\x06t.Echo")));
    none = net_h2_request(c, "POST", WATCH_PATH, grpc, ask(&b, STR("\x0a\x06t.Ecco")));
    held =
        net_h2_begin_with(c, "POST", WATCH_PATH, grpc, ask(&b, STR(""))); /* does not half-close */
    text = net_h2_request(c, "POST", WATCH_PATH, grpc_json,
                          ask(&b, STR("{\"service\":\"t.Missing\"}")));
    assert_int_equal(health.watches_len, 5);
    EXPECT(all->headers, "content-type: application/grpc+proto\n");
    expect_said(all, "1");
    expect_said(one, "1");
    expect_said(none, "3");
    expect_said(held, "1");
    assert_memory_equal(text->body, "\0\0\0\0\x1c{\"status\":\"SERVICE_UNKNOWN\"}", 33);

    svc_health_look(&health); /* nothing changed: nothing is said */
    net_h2_talk(c);
    expect_said(all, "1");
    serving = false;
    svc_health_look(&health);
    svc_health_look(&health);
    net_h2_talk(c);
    expect_said(all, "12");
    expect_said(one, "12");
    expect_said(none, "3");
    serving = true;
    svc_health_look(&health);
    net_h2_talk(c);
    expect_said(all, "121");
    expect_said(held, "121");
    assert_false(all->ended);

    /* One leaves; the others still get changes. A service that comes later is reported, too. */
    net_h2_reset(c, one);
    net_settle(&w);
    assert_int_equal(health.watches_len, 4);
    svc_route(w.server, "/t.Ecco/Say", SVC_PROTO, KIB, on_say, NULL);
    svc_health_look(&health);
    net_h2_talk(c);
    expect_said(none, "31");
    expect_said(one, "121");
    assert_true(w.budget.used > 0);

    /* The server stops: a last word, and no stream is left that a drain would wait for. */
    svc_health_stop(&health);
    net_h2_talk(c);
    expect_said(all, "1212");
    expect_said(held, "1212");
    EXPECT(all->trailers, "grpc-status: 14\n", "grpc-message: the server stops\n");
    EXPECT(text->trailers, "grpc-status: 14\n");
    assert_true(all->ended && none->ended && text->ended && held->ended);
    assert_int_equal(health.watches_len, 0);
    all = net_h2_request(c, "POST", WATCH_PATH, grpc, ask(&b, STR("")));
    EXPECT(all->headers, "grpc-status: 14\n");
    buf_deinit(&b);
    net_h2_finish(c);
    net_world_deinit(&w);
}

static void test_watch_refuses(void **state)
{
    static const char *const timed[] = { "content-type", "application/grpc", "grpc-timeout", "2S",
                                         NULL };
    struct net_world w;
    struct net_h2_stream *s;
    struct buf b;

    (void)state;
    open_world(&w);
    struct net_h2 *c = net_h2_connect(&w, false, 0);
    buf_init(&b, 16 * KIB);
    s = net_h2_request(c, "POST", WATCH_PATH, grpc, STR_NULL);
    EXPECT(s->headers, "grpc-status: 3\n", "grpc-message: Watch without a message\n");
    s = net_h2_request(c, "POST", WATCH_PATH, grpc, ask(&b, STR("\x0a\x7fshort")));
    EXPECT(s->headers, "grpc-status: 3\n");
    s = net_h2_request(c, "POST", WATCH_PATH, grpc_json, ask(&b, STR("[]")));
    EXPECT(s->headers, "grpc-status: 3\n");
    ask(&b, STR(""));
    push_gen_frame(0, STR(""), &b);
    s = net_h2_request(c, "POST", WATCH_PATH, grpc, buf_str(&b));
    EXPECT(s->trailers, "grpc-status: 3\n", "grpc-message: Watch takes one message\n");
    s = net_h2_request(c, "POST", WATCH_PATH, json, STR("{}"));
    assert_int_equal(s->status, 415); /* Connect's streams have another type */
    /* The caller's deadline ends it. */
    s = net_h2_request(c, "POST", WATCH_PATH, timed, ask(&b, STR("")));
    expect_said(s, "1");
    net_pass(&w, 2100);
    net_h2_talk(c);
    EXPECT(s->trailers, "grpc-status: 4\n");
    assert_int_equal(health.watches_len, 0);
    assert_int_equal(w.budget.used, 0);
    buf_deinit(&b);
    net_h2_finish(c);
    net_world_deinit(&w);
}

/* The oldest makes room, so watches of vanished clients cannot keep others out. */
static void test_watch_max(void **state)
{
    struct net_world w;
    struct net_h2 *c[3];
    struct buf b;

    (void)state;
    open_world(&w);
    buf_init(&b, KIB);
    ask(&b, STR(""));
    for (size_t i = 0; i < 3; i++) {
        c[i] = net_h2_connect(&w, false, 0);
        for (size_t k = 0; k < 90; k++)
            (void)net_h2_request(c[i], "POST", WATCH_PATH, grpc, buf_str(&b));
    }
    net_h2_talk(c[0]);
    assert_int_equal(health.watches_len, SVC_HEALTH_WATCHES_MAX);
    size_t gone = 3 * 90 - SVC_HEALTH_WATCHES_MAX;
    for (size_t k = 0; k < 90; k++) {
        expect_said(&c[0]->streams[k], "1");
        assert_int_equal(c[0]->streams[k].ended, k < gone);
    }
    EXPECT(c[0]->streams[0].trailers, "grpc-status: 14\n", "the oldest makes room");
    for (size_t i = 0; i < 3; i++)
        net_h2_finish(c[i]); /* the clients leave without a reset */
    assert_int_equal(health.watches_len, 0);
    buf_deinit(&b);
    net_world_deinit(&w);
}

/* gRPC-Web over HTTP/1.1. */
static void test_watch_web(void **state)
{
    struct net_world w;
    struct net_mem *m;

    (void)state;
    open_world(&w);
    m = net_connect(&w);
    net_send_c(m, "POST " WATCH_PATH " HTTP/1.1\r\n" HOST
                  "Content-Type: application/grpc-web\r\nContent-Length: 5\r\n\r\n");
    net_send(m, str_n("\0\0\0\0\0", 5));
    serving = false;
    svc_health_look(&health);
    net_settle(&w);
    svc_health_stop(&health);
    net_settle(&w);
    for (size_t i = 0; i < m->out.len; i++)
        if (!m->out.ptr[i])
            m->out.ptr[i] = '~';
    EXPECT(net_got(m), "HTTP/1.1 200 OK\r\n", "7\r\n~~~~\2\x08\1\r\n", "7\r\n~~~~\2\x08\2\r\n",
           "grpc-status: 14\r\n", "\r\n0\r\n\r\n");
    site_finish(&w, m);
    net_world_deinit(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_check),         cmocka_unit_test(test_watch),
        cmocka_unit_test(test_watch_refuses), cmocka_unit_test(test_watch_max),
        cmocka_unit_test(test_watch_web),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

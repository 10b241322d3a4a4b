/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests of a loop to other servers: to our own, on the same loop, over real sockets.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

#include "common/base/mem.h"
#include "common/net/client/http_multi.h"
#include "common/net/http.h"

struct rig {
    struct loop *loop;
    struct budget in_flight, replies;
    struct metrics *metrics;
    struct http_server *server;
    struct http_multi *client;
    struct timer *guard;
    char base[64];
    struct http_req *held;
    size_t held_gone;
    struct http_call *call;
    int waits; /* replies to come before the loop stops */
    /* Of the last reply. */
    int status, code, dones;
    uint64_t retry_after_s;
    struct buf body, data;
    char text[ERR_TEXT_MAX];
};

static void on_who(struct http_req *r)
{
    struct buf b;

    buf_init(&b, KIB);
    buf_addf(&b, "%d %.*s|%.*s|%.*s|%.*s", (int)r->method, STR_ARG(r->query),
             STR_ARG(http_header(r, "Authorization")), STR_ARG(http_header(r, "X-A")),
             STR_ARG(r->body));
    http_reply(r, 200, "text/plain", &b);
}

static void on_big(struct http_req *r)
{
    struct buf b;

    buf_init(&b, 4 * MIB);
    for (size_t i = 0; i < 300000; i++)
        buf_addf(&b, "%09zu\n", i);
    http_reply(r, 200, "text/plain", &b);
}

static void on_busy(struct http_req *r)
{
    http_reply_header(r, "Retry-After", STR("7"));
    http_reply(r, 503, NULL, NULL);
}

static void on_away(struct http_req *r)
{
    http_reply_header(r, "Location", STR("/who"));
    http_reply(r, 302, NULL, NULL);
}

static void held_gone(struct http_req *r)
{
    struct rig *g = r->route_cookie;

    g->held_gone++;
    http_reply(r, 200, NULL, NULL);
    if (g->waits == 0)
        loop_stop(g->loop);
}

static void on_hold(struct http_req *r)
{
    struct rig *g = r->route_cookie;

    r->on_gone = held_gone;
    if (g->call)
        http_call_cancel(g->call);
    g->call = NULL;
}

static void on_feed(struct http_req *r)
{
    for (int i = 0; i < 3; i++) {
        struct buf b;
        buf_init(&b, KIB);
        buf_addf(&b, "piece %d\n", i);
        http_stream_send(r, 200, "text/plain", &b);
    }
    http_stream_end(r);
}

static void too_long(void *cookie)
{
    (void)cookie;
    fail_msg("nothing came for a minute");
}

static void stop(void *cookie)
{
    loop_stop(((struct rig *)cookie)->loop);
}

static int setup(void **state)
{
    struct rig *g = XNEW(struct rig);
    struct err e;

    g->loop = loop_new(clock_real());
    g->metrics = metrics_new();
    budget_init(&g->in_flight, 64 * MIB);
    budget_init(&g->replies, 8 * MIB);
    struct http_server_opts o = { .loop = g->loop,
                                  .in_flight = &g->in_flight,
                                  .metrics = g->metrics,
                                  .listen = "127.0.0.1:0",
                                  .connections_max = 100,
                                  .head_bytes_max = 64 * KIB,
                                  .head_ms = 10000,
                                  .body_ms = 10000,
                                  .idle_ms = 10000,
                                  .write_ms = 10000 };
    assert_int_equal(http_server_new(&o, &g->server, &e), 0);
    http_route(g->server, HTTP_GET | HTTP_POST | HTTP_PUT, "/who", MIB, on_who, g);
    http_route(g->server, HTTP_GET, "/big", 0, on_big, g);
    http_route(g->server, HTTP_GET, "/busy", 0, on_busy, g);
    http_route(g->server, HTTP_GET, "/away", 0, on_away, g);
    http_route(g->server, HTTP_GET, "/hold", 0, on_hold, g);
    http_route(g->server, HTTP_GET, "/feed", 0, on_feed, g);
    (void)snprintf(g->base, sizeof(g->base), "http://127.0.0.1:%u", http_server_port(g->server));
    g->client = http_multi_new(g->loop, "test/1");
    g->guard = loop_timer_new(g->loop, too_long, g);
    loop_timer_start(g->guard, 60000, 0);
    buf_init(&g->body, 8 * MIB);
    buf_init(&g->data, 8 * MIB);
    *state = g;
    return 0;
}

static int teardown(void **state)
{
    struct rig *g = *state;

    http_multi_free(g->client);
    http_server_drain(g->server, stop, g);
    loop_run(g->loop);
    loop_timer_free(g->guard);
    http_server_free(g->server);
    loop_free(g->loop);
    assert_int_equal(g->replies.used, 0);
    assert_int_equal(g->in_flight.used, 0);
    metrics_free(g->metrics);
    buf_deinit(&g->body);
    buf_deinit(&g->data);
    xfree(g);
    return 0;
}

static void done(void *cookie, struct http_multi_reply *r)
{
    struct rig *g = cookie;

    g->dones++;
    g->status = r->status;
    g->retry_after_s = r->retry_after_s;
    g->code = r->err ? r->err->code : 0;
    (void)snprintf(g->text, sizeof(g->text), "%s", r->err ? r->err->text : "");
    buf_reset(&g->body);
    buf_add_str(&g->body, buf_str(&r->body));
    assert_true(r->charged >= r->body.cap);
    if (--g->waits == 0)
        loop_stop(g->loop);
}

static void on_data(void *cookie, struct str bytes)
{
    buf_add_str(&((struct rig *)cookie)->data, bytes);
}

static struct http_call *start(struct rig *g, const char *path, struct http_multi_req r)
{
    char url[128];

    (void)snprintf(url, sizeof(url), "%s%s", path[0] == '/' ? g->base : "", path);
    r.url = url;
    r.done = done;
    r.cookie = g;
    r.budget = &g->replies;
    if (!r.body_max)
        r.body_max = 4 * MIB;
    g->waits++;
    return http_multi_start(g->client, &r);
}

static void get(struct rig *g, const char *path, struct http_multi_req r)
{
    (void)start(g, path, r);
    loop_run(g->loop);
}

static void expect(const struct rig *g, int status, const char *body)
{
    assert_int_equal(g->code, 0);
    assert_int_equal(g->status, status);
    assert_int_equal(g->body.len, strlen(body));
    if (g->body.len)
        assert_memory_equal(g->body.ptr, body, g->body.len);
}

static void requests(void **state)
{
    static const char *const headers[] = { "X-A: b" };
    struct rig *g = *state;

    get(g, "/who?a=1", (struct http_multi_req){ .headers = headers, .headers_len = 1 });
    expect(g, 200, "1 a=1||b|");
    get(g, "/who", (struct http_multi_req){ .body = STR("hello"), .bearer = "secret" });
    expect(g, 200, "4 |Bearer secret||hello");
    get(g, "/who", (struct http_multi_req){ .user = "u", .password = "p", .method = "PUT" });
    expect(g, 200, "8 |Basic dTpw||");
    get(g, "/busy", (struct http_multi_req){ 0 });
    assert_int_equal(g->status, 503);
    assert_int_equal(g->retry_after_s, 7);
    get(g, "/away", (struct http_multi_req){ 0 });
    assert_int_equal(g->status, 302);
    get(g, "/feed", (struct http_multi_req){ .on_data = on_data });
    expect(g, 200, "");
    assert_memory_equal(g->data.ptr, "piece 0\npiece 1\npiece 2\n", g->data.len);
    assert_int_equal(g->data.len, 24);
}

static void limits(void **state)
{
    struct rig *g = *state;

    get(g, "/big", (struct http_multi_req){ 0 });
    assert_int_equal(g->code, 0);
    assert_int_equal(g->body.len, 3000000);
    get(g, "/big", (struct http_multi_req){ .body_max = 2999999 });
    assert_int_equal(g->code, ERR_TOO_LARGE);
    g->replies.max = 1 * MIB;
    get(g, "/big", (struct http_multi_req){ 0 });
    assert_int_equal(g->code, ERR_BUSY);
    get(g, "/hold", (struct http_multi_req){ .timeout_ms = 50 });
    assert_int_equal(g->code, ERR_TIMEOUT);
    get(g, "http://127.0.0.1:1/", (struct http_multi_req){ 0 });
    assert_int_equal(g->code, ERR_UNAVAILABLE);
    get(g, "ftp://127.0.0.1/x", (struct http_multi_req){ 0 });
    assert_int_equal(g->code, ERR_CONFIG);
    assert_true(g->text[0] != '\0');
}

/* The handler cancels the call it answers: the server sees the client leave, `done` is not called,
 * and other calls continue. */
static void cancel(void **state)
{
    struct rig *g = *state;

    g->call = start(g, "/hold", (struct http_multi_req){ 0 });
    g->waits = 0;
    loop_run(g->loop);
    assert_int_equal(g->held_gone, 1);
    assert_int_equal(g->dones, 0);
    get(g, "/who", (struct http_multi_req){ 0 });
    expect(g, 200, "1 |||");
}

static void many_and_free(void **state)
{
    struct rig *g = *state;

    for (int i = 0; i < 60; i++)
        (void)start(g, "/who", (struct http_multi_req){ 0 });
    loop_run(g->loop);
    assert_int_equal(g->dones, 60);
    for (int i = 0; i < 20; i++)
        (void)start(g, i % 2 ? "/hold" : "/big", (struct http_multi_req){ 0 });
    /* teardown frees the client below them */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(requests, setup, teardown),
        cmocka_unit_test_setup_teardown(limits, setup, teardown),
        cmocka_unit_test_setup_teardown(cancel, setup, teardown),
        cmocka_unit_test_setup_teardown(many_and_free, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "common/net/http_not_found.h"
#include "common/net/http_server.h"
#include "tests/lib/net/net_h2.h"
#include "tests/lib/net/net_mem.h"

static void on_any(struct http_req *r)
{
    http_reply(r, 200, NULL, NULL);
}

/* Finds nothing, as the page's files do for an unknown path. */
static void on_rest(struct http_req *r)
{
    http_reply_not_found(r);
}

static void open_site(struct net_world *w)
{
    net_world_init(w);
    http_route(w->server, HTTP_POST, "/ingest", MIB, on_any, NULL);
    http_route(w->server, HTTP_POST, "/push.v1.PusherService/Push", MIB, on_any, NULL);
    http_route(w->server, HTTP_GET, "/api/v1/delete", 0, on_any, NULL);
    http_route(w->server, HTTP_GET, "/ring", 0, on_any, NULL);
    http_route(w->server, HTTP_GET, "/a", 0, on_any, NULL);
    http_route(w->server, HTTP_GET, "/p/*", 0, on_any, NULL);
    http_not_found_hint(w->server, "/v1/profiles", "they go elsewhere");
    http_not_found_hint(w->server, "/ask/*", "ask another one");
    http_not_found_hint(w->server, "/ring", "a route goes before this");
}

static void test_hints(void **state)
{
    static const char *const rows[][2] = {
        { "/nowhere", "" },
        { "/ingest/", "; did you mean /ingest?" },
        { "//ingest", "; did you mean /ingest?" },
        { "/Ingest//", "; did you mean /ingest?" },
        { "/ingest/ingest", "; did you mean /ingest?" },
        { "/api/v1/ingest", "; did you mean /ingest?" },
        { "/ingest/push.v1.PusherService/Push", "; did you mean /push.v1.PusherService/Push?" },
        { "/distributor/ring", "; did you mean /ring?" },
        { "/xring", "" },
        { "/RING", "; did you mean /ring?" },
        { "/foo/a", "" }, /* too short to be more than chance */
        { "/v1/profiles", ": they go elsewhere" },
        { "/V1/profiles/", ": they go elsewhere" },
        { "/v1/profiles/x", "" },
        { "/ask/a/b", ": ask another one" },
        { "/ask/", "" },
        { "/api/v1/query", "" }, /* never the nearest route: it may delete */
        { "", "" },
        { "///", "" },
    };
    struct net_world w;
    char longest[600];
    struct buf b;

    (void)state;
    open_site(&w);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        buf_init(&b, KIB);
        http_lost_text(&w.server->routes, str_c(rows[i][0]), &b);
        if (!str_eqc(buf_str(&b), rows[i][1]))
            fail_msg("%s: \"%.*s\"", rows[i][0], STR_ARG(buf_str(&b)));
        buf_deinit(&b);
    }
    memset(longest, 'x', sizeof(longest));
    memcpy(longest + sizeof(longest) - 7, "/ingest", 7);
    buf_init(&b, KIB);
    http_lost_text(&w.server->routes, str_n(longest, sizeof(longest)), &b);
    assert_int_equal(b.len, 0);
    buf_deinit(&b);
    net_world_deinit(&w);
}

static void has(const char *reply, const char *part)
{
    if (!strstr(reply, part))
        fail_msg("no \"%s\" in\n%s", part, reply);
}

/* A large body for an unknown path: the answer says so, rather than that it is too large. */
static void test_replies(void **state)
{
    static const char *const heads[][2] = {
        { "POST /ingest/ HTTP/1.1\r\nHost: h\r\nContent-Length: 9000000\r\n\r\n",
          "{\"code\":\"not_found\",\"message\":\"there is nothing at /ingest/; did you mean "
          "/ingest?\"}\n" },
        { "PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 9000000\r\n\r\n",
          "there is nothing at /\"" },
        { "OPTIONS /x HTTP/1.1\r\nHost: h\r\n\r\n", "there is nothing at /x\"" },
        { "GET /x HTTP/1.1\r\nHost: h\r\n\r\n", "there is nothing at /x\"" },
        { "GET /ask/1 HTTP/1.1\r\nHost: h\r\n\r\n",
          "there is nothing at /ask/1: ask another one\"" },
    };
    struct net_world w;

    (void)state;
    for (size_t i = 0; i < 2 * ARRAY_LEN(heads); i++) {
        open_site(&w);
        if (i % 2)
            http_route(w.server, HTTP_GET, "/*", 0, on_rest, NULL);
        struct net_mem *m = net_connect(&w);
        net_send_c(m, heads[i / 2][0]);
        net_pass(&w, 0);
        const char *got = net_got(m);
        has(got, "HTTP/1.1 404 ");
        has(got, heads[i / 2][1]);
        net_end(m, false);
        net_pass(&w, 10000);
        net_mem_free(m);
        net_world_deinit(&w);
    }
}

/* A caller of gRPC looks at grpc-status only; one of gRPC-Web reads a status of HTTP, too. */
static void test_grpc(void **state)
{
    static const char *const grpc[] = { "content-type", "application/grpc+proto", "te", "trailers",
                                        NULL };
    static const char *const web[] = { "content-type", "application/grpc-web+proto", NULL };
    struct net_world w;
    struct net_h2_stream *s;

    (void)state;
    open_site(&w);
    struct net_h2 *c = net_h2_connect(&w, false, 0);
    s = net_h2_request(c, "POST", "/ask/Export", grpc, STR("\0\0\0\0\0"));
    assert_int_equal(s->status, 200);
    assert_true(s->ended);
    has(s->headers, "content-type: application/grpc\n");
    has(s->headers, "grpc-status: 12\n");
    has(s->headers, "grpc-message: there is nothing at /ask/Export: ask another one\n");
    s = net_h2_request(c, "POST", "/ask/Export", web, STR("\0\0\0\0\0"));
    assert_int_equal(s->status, 404);
    s = net_h2_begin(c, "POST", "/ingest/", STR("half"));
    assert_int_equal(s->status, 0); /* not before the body: no reset, which clients take for it */
    net_h2_more(c, s, STR(" and half"), true);
    assert_int_equal(s->status, 404);
    assert_true(s->ended && !s->error);
    has(s->body, "did you mean /ingest?");
    (void)net_h2_begin(c, "POST", "/ingest/", STR("half")); /* and leaves */
    net_h2_finish(c);
    net_world_deinit(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hints),
        cmocka_unit_test(test_replies),
        cmocka_unit_test(test_grpc),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "common/net/http_door.h"
#include "tests/lib/net/net_h2.h"
#include "tests/lib/net/net_mem.h"

static const char *const names[] = { "profiles.example.com", "*.apps.example.com", "10.9.8.7",
                                     "[fd00::7]" };
static const char *const pages[] = { "https://app.example.com", "http://localhost:3000" };

/* Hosts that are accepted: by a listener on loopback, and by listeners with and without
 * http.hosts. */
static void test_hosts(void **state)
{
    static const struct {
        const char *host;
        bool local, listed, open;
    } rows[] = {
        /* local names: everywhere */
        { "localhost", true, true, true },
        { "LocalHost:4040", true, true, true },
        { "localhost.", true, true, true },
        { "localhost.:80", true, true, true },
        { "a.localhost:1", true, true, true },
        { "127.0.0.1", true, true, true },
        { "127.0.0.1:4040", true, true, true },
        { "127.8.9.10", true, true, true },
        { "[::1]", true, true, true },
        { "[::1]:4040", true, true, true },
        { "[0:0:0:0:0:0:0:1]:1", true, true, true },
        { "[::ffff:127.0.0.1]", true, true, true },
        /* addresses: rebinding has none */
        { "10.1.2.3:4040", false, true, true },
        { "[fe80::1]:4040", false, true, true },
        { "10.9.8.7", true, true, true }, /* listed */
        { "[fd00::7]:80", true, true, true },
        /* names that are listed */
        { "profiles.example.com", true, true, true },
        { "PROFILES.example.com.:443", true, true, true },
        { "a.apps.example.com", true, true, true },
        { "a.b.apps.example.com:1", true, true, true },
        /* names of others, and what only looks like one of the above */
        { "apps.example.com", false, false, true },
        { "evil.example", false, false, true },
        { "evil.example:4040", false, false, true },
        { "xprofiles.example.com", false, false, true },
        { "profiles.example.com.evil.example", false, false, true },
        { "127.0.0.1.evil.example", false, false, true },
        { "127.0.0.1.", true, true, true },
        { "127.0.1", false, false, true },
        { "0x7f.0.0.1", false, false, true },
        { "localhost.evil.example", false, false, true },
        { "notlocalhost", false, false, true },
        { ".localhost", false, false, true },
        { "localhost:4040:80", false, false, true },
        { "localhost:x", false, false, true },
        { "localhost:99999", false, false, true },
        { "::1", false, false, true },
        { "[::1", false, false, true },
        { "[::1]x", false, false, true },
        { "[localhost]", false, false, true },
        { ":4040", false, false, true },
        { "", false, false, true },
    };
    struct http_server_opts local = { .local = true, .hosts = { names, ARRAY_LEN(names) } };
    struct http_server_opts listed = { .hosts = { names, ARRAY_LEN(names) } };
    const struct http_server_opts open = { 0 };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct str host = str_c(rows[i].host);

        if (http_host_known(&local, host) != rows[i].local ||
            http_host_known(&listed, host) != rows[i].listed ||
            http_host_known(&open, host) != rows[i].open)
            fail_msg("Host: %s", rows[i].host);
    }
    local.hosts = (struct conf_list){ 0 };
    assert_true(http_host_known(&local, STR("localhost")));
    assert_false(http_host_known(&local, STR("profiles.example.com")));
    local.hosts = (struct conf_list){ (const char *const[]){ "*" }, 1 };
    assert_true(http_host_known(&local, STR("evil.example")));
}

static void test_lists(void **state)
{
    static const struct {
        const char *text;
        bool host, origin;
    } rows[] = {
        { "a", true, false },
        { "a.example.com", true, false },
        { "a.example.com.", true, false },
        { "*.example.com", true, false },
        { "*", true, false },
        { "10.0.0.1", true, false },
        { "::1", true, false },
        { "[fd00::1]", true, false },
        { "https://a", false, true },
        { "http://a:8080", false, true },
        { "http://[::1]:3000", false, true },
        { "https://a/", false, false },
        { "https://a/x", false, false },
        { "https://*", false, false },
        { "https://", false, false },
        { "null", true, false },
        { "a/b", false, false },
        { "a b", false, false },
        { "a*.example.com", false, false },
        { "*.", false, false },
        { "", false, false },
    };
    struct err e;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const struct conf_list one = { &rows[i].text, 1 };
        int host = http_hosts_check(&one, &e), origin = http_origins_check(&one, &e);

        if (host != (rows[i].host ? 0 : ERR_CONFIG) || origin != (rows[i].origin ? 0 : ERR_CONFIG))
            fail_msg("'%s': %d %d", rows[i].text, host, origin);
    }
}

/* ---- through a server ----------------------------------------------------------------------- */

static int calls;

static void on_any(struct http_req *r)
{
    calls++;
    http_reply(r, 200, NULL, NULL);
}

static const struct http_door table[] = {
    { .methods = HTTP_GET, .path = "/ask", .acts = false },
    { .methods = HTTP_POST, .path = "/ask", .acts = false },
    { .methods = HTTP_GET, .path = "/cost", .acts = true },
    { .methods = HTTP_POST, .path = "/push", .acts = true },
    { .methods = HTTP_GET, .path = "/both", .acts = false },
    { .methods = HTTP_POST, .path = "/both", .acts = true },
    { .methods = HTTP_DELETE, .path = "/p/*", .acts = true },
};

static void open_site(struct net_world *w, bool with_table)
{
    net_world_init(w);
    if (with_table) {
        w->server->o.doors = table;
        w->server->o.doors_len = ARRAY_LEN(table);
    }
    w->server->o.origins = (struct conf_list){ pages, ARRAY_LEN(pages) };
    http_route(w->server, HTTP_GET | HTTP_POST, "/ask", MIB, on_any, NULL);
    http_route(w->server, HTTP_GET, "/cost", 0, on_any, NULL);
    http_route(w->server, HTTP_POST, "/push", MIB, on_any, NULL);
    http_route(w->server, HTTP_GET | HTTP_POST, "/both", MIB, on_any, NULL);
    http_route(w->server, HTTP_DELETE, "/p/*", 0, on_any, NULL);
}

/* The reply; valid until the next call. */
static const char *ask(struct net_world *w, const char *line, const char *headers)
{
    static char got[4096];
    struct net_mem *m = net_connect(w);
    struct buf b;

    buf_init(&b, 8 * KIB);
    assert_true(buf_addf(&b, "%s HTTP/1.1\r\n%s%s\r\n", line,
                         strstr(headers, "Host:") ? "" : "Host: profiles:4040\r\n", headers));
    net_send(m, buf_str(&b));
    buf_deinit(&b);
    net_pass(w, 0);
    (void)snprintf(got, sizeof(got), "%s", net_got(m));
    net_end(m, false);
    net_pass(w, 10000);
    net_mem_free(m);
    return got;
}

static int status(struct net_world *w, const char *line, const char *headers)
{
    const char *got = ask(w, line, headers);
    uint64_t code;

    assert_true(strncmp(got, "HTTP/1.1 ", 9) == 0);
    assert_true(str_u64(str_n(got + 9, 3), &code));
    return (int)code;
}

/* What a browser says of a page on another site, or does not, and whether it may act then. */
static void test_sites(void **state)
{
    static const struct {
        const char *headers;
        int status;
    } rows[] = {
        { "", 200 }, /* no browser */
        { "Origin: http://profiles:4040\r\n", 200 },
        { "Origin: https://PROFILES:4040\r\n", 200 },
        { "Origin: https://profiles:4040\r\nSec-Fetch-Site: same-origin\r\n", 200 },
        { "Origin: https://outside.example\r\nSec-Fetch-Site: same-origin\r\n", 200 }, /* proxy */
        { "Sec-Fetch-Site: none\r\n", 200 },
        { "Origin: https://app.example.com\r\nSec-Fetch-Site: cross-site\r\n", 200 }, /* listed */
        { "Origin: http://localhost:3000\r\n", 200 },
        { "Origin: http://evil.example\r\n", 403 },
        { "Origin: http://profiles:4041\r\n", 403 },
        { "Origin: http://profiles\r\n", 403 },
        { "Origin: http://profiles:4040.evil.example\r\n", 403 },
        { "Origin: null\r\n", 403 },
        { "Origin: \r\n", 403 },
        { "Origin: profiles:4040\r\n", 403 },
        { "Origin: http://localhost:3001\r\n", 403 },
        { "Sec-Fetch-Site: cross-site\r\n", 403 },
        { "Sec-Fetch-Site: same-site\r\n", 403 },
        { "Sec-Fetch-Site: \r\n", 403 },
        { "Origin: http://profiles:4040\r\nSec-Fetch-Site: cross-site\r\n", 403 },
        { "Origin: http://evil.example\r\nHost: evil.example\r\n", 421 }, /* rebound */
        { "Origin: http://evil.example\r\nHost: evil.example\r\nSec-Fetch-Site: same-origin\r\n",
          421 },
    };
    static const char *const acts[] = { "POST /push", "POST /both", "DELETE /p/a", "GET /cost",
                                        "HEAD /cost" };
    static const char *const asks[] = { "GET /ask", "POST /ask", "GET /both", "HEAD /both" };
    static const char *const own[] = { "profiles" };
    struct net_world w;

    (void)state;
    open_site(&w, true);
    w.server->o.hosts = (struct conf_list){ own, 1 };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        for (size_t k = 0; k < ARRAY_LEN(acts) + ARRAY_LEN(asks); k++) {
            bool act = k < ARRAY_LEN(acts);
            const char *line = act ? acts[k] : asks[k - ARRAY_LEN(acts)];
            int before = calls, got = status(&w, line, rows[i].headers);

            if (got != (act || rows[i].status == 421 ? rows[i].status : 200))
                fail_msg("%s with %s is %d", line, rows[i].headers, got);
            assert_int_equal(calls - before, got == 200);
        }
    }
    net_world_deinit(&w);
}

/* Without a table every method but GET is taken for a change. */
static void test_without_table(void **state)
{
    const char *evil = "Origin: http://evil.example\r\n";
    struct net_world w;

    (void)state;
    open_site(&w, false);
    assert_int_equal(status(&w, "GET /ask", evil), 200);
    assert_int_equal(status(&w, "GET /cost", evil), 200);
    assert_int_equal(status(&w, "POST /ask", evil), 403);
    assert_int_equal(status(&w, "POST /both", evil), 403);
    assert_int_equal(status(&w, "DELETE /p/x", evil), 403);
    net_world_deinit(&w);
}

static void has(const char *reply, const char *part)
{
    if (!strstr(reply, part))
        fail_msg("no \"%s\" in\n%s", part, reply);
}

/* A browser asks first, and gets a yes only for listed pages and for routes that act. */
static void test_preflight(void **state)
{
    const char *mine = "Origin: https://app.example.com\r\nAccess-Control-Request-Method: POST\r\n"
                       "Access-Control-Request-Headers: content-type,x-scope-orgid\r\n";
    const char *get = "Origin: https://app.example.com\r\nAccess-Control-Request-Method: GET\r\n";
    const char *evil = "Origin: http://evil.example\r\nAccess-Control-Request-Method: POST\r\n";
    struct net_world w;
    const char *got;

    (void)state;
    open_site(&w, true);
    got = ask(&w, "OPTIONS /push", mine);
    has(got, "HTTP/1.1 204 ");
    has(got, "Access-Control-Allow-Origin: https://app.example.com\r\n");
    has(got, "Access-Control-Allow-Methods: POST\r\n");
    has(got, "Access-Control-Allow-Headers: content-type,x-scope-orgid\r\n");
    has(got, "Vary: Origin\r\n");
    has(ask(&w, "POST /push", "Origin: https://app.example.com\r\n"),
        "Access-Control-Allow-Origin: https://app.example.com\r\n");
    assert_null(strstr(ask(&w, "OPTIONS /push", evil), "Access-Control"));
    assert_null(strstr(ask(&w, "OPTIONS /ask", mine), "Access-Control"));
    assert_null(strstr(ask(&w, "OPTIONS /both", get), "Access-Control"));
    assert_null(
        strstr(ask(&w, "GET /both", "Origin: https://app.example.com\r\n"), "Access-Control"));
    assert_null(
        strstr(ask(&w, "POST /ask", "Origin: https://app.example.com\r\n"), "Access-Control"));
    net_world_deinit(&w);
}

/* The answer says what to do; a target that names another host than Host is read in no way. */
static void test_answers(void **state)
{
    struct net_world w;
    const char *got;

    (void)state;
    open_site(&w, true);
    w.server->o.local = true;
    got = ask(&w, "GET /ask", "");
    has(got, "HTTP/1.1 421 Misdirected Request\r\n");
    has(got, "'profiles:4040'");
    has(got, "http.hosts");
    has(ask(&w, "GET /nowhere", ""), "HTTP/1.1 421 ");
    has(ask(&w, "OPTIONS *", ""), "HTTP/1.1 421 ");
    has(ask(&w, "GET http://localhost/ask", ""), "HTTP/1.1 400 ");
    has(ask(&w, "GET http://evil.example/ask", "Host: localhost\r\n"), "HTTP/1.1 400 ");
    has(ask(&w, "GET http://localhost/ask", "Host: localhost\r\n"), "HTTP/1.1 200 ");
    has(ask(&w, "GET /ask", "Host: localhost\r\nAuthorization: Bearer a\r\n"), "HTTP/1.1 200 ");
    has(ask(&w, "GET /ask",
            "Host: localhost\r\nAuthorization: Bearer a\r\nauthorization: Bearer a\r\n"),
        "more than one Authorization");
    has(ask(&w, "POST /push", "Host: localhost\r\nOrigin: http://evil.example\r\n"),
        "http.origins");
    net_world_deinit(&w);
}

static void test_http2(void **state)
{
    static const char *const evil[] = { "origin", "http://evil.example", NULL };
    static const char *const authority[] = { "h" };
    struct net_h2_stream *s;
    struct net_world w;
    struct net_h2 *c;

    (void)state;
    open_site(&w, true);
    w.server->o.local = true;
    c = net_h2_connect(&w, false, 0);
    s = net_h2_request(c, "GET", "/ask", NULL, STR(""));
    assert_int_equal(s->status, 421);
    s = net_h2_request(c, "POST", "/push", NULL, STR("body"));
    assert_int_equal(s->status, 421);
    w.server->o.hosts = (struct conf_list){ authority, 1 };
    s = net_h2_request(c, "POST", "/push", NULL, STR("body"));
    assert_int_equal(s->status, 200);
    s = net_h2_request(c, "POST", "/push", evil, STR("body"));
    assert_int_equal(s->status, 403);
    s = net_h2_request(c, "GET", "/ask", evil, STR(""));
    assert_int_equal(s->status, 200);
    net_h2_finish(c);
    net_world_deinit(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hosts),     cmocka_unit_test(test_lists),
        cmocka_unit_test(test_sites),     cmocka_unit_test(test_without_table),
        cmocka_unit_test(test_preflight), cmocka_unit_test(test_answers),
        cmocka_unit_test(test_http2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

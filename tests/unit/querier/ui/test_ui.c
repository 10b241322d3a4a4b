/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "common/base/compress/compress.h"
#include "querier/ui/ui.h"
#include "tests/lib/net/net_mem.h"

static const char index_text[] =
    "/assets/app.js\ttext/javascript; charset=utf-8\t0\t5\t5\t2\tetag1\n"
    "/index.html\ttext/html; charset=utf-8\t7\t4\t11\t0\tetag2\n";
#define DATA \
    "hello"  \
    "gz"     \
    "page"

static void open_ui(struct ui *u)
{
    struct err e;
    assert_int_equal(ui_init(u, str_c(index_text), STR(DATA), &e), 0);
}

static void test_find(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        bool html;
        const char *found;
    } rows[] = {
        { "/", false, "/index.html" },
        { "/", true, "/index.html" },
        { "/index.html", false, "/index.html" },
        { "/assets/app.js", false, "/assets/app.js" },
        { "/comparison", true, "/index.html" },
        { "/a/b/c", true, "/index.html" },
        { "/comparison", false, NULL },
        { "/favicon.ico", true, NULL },
        { "/v1.2/page", true, "/index.html" },
        { "/assets/old.js", true, NULL },
        { "/api/nope", true, NULL },
        { "/pyroscope/nope", true, NULL },
        { "/querier.v1.QuerierService/Nope", true, NULL },
        { "", true, "/index.html" },
    };
    struct ui u;

    open_ui(&u);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const struct ui_asset *a = ui_find(&u, str_c(rows[i].path), rows[i].html);
        assert_int_equal(a != NULL, rows[i].found != NULL);
        if (a)
            assert_true(str_eqc(a->path, rows[i].found));
    }
    const struct ui_asset *a = ui_find(&u, STR("/assets/app.js"), false);
    assert_true(str_eqc(a->plain, "hello"));
    assert_true(str_eqc(a->gzip, "gz"));
    assert_string_equal(a->etag, "etag1");
    a = ui_find(&u, STR("/"), false);
    assert_true(str_eqc(a->plain, "page"));
    assert_null(a->gzip.ptr);
    ui_deinit(&u);
}

static void test_bad_indexes(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "x\n",
        "/a\tt\t0\t1\t0\t0\n",
        "/a\tt\t0\t1\t0\t0\te\tmore\n",
        "a\tt\t0\t1\t0\t0\te\n",
        "/a\tt\t0\t99\t0\t0\te\n",
        "/a\tt\t99\t0\t0\t0\te\n",
        "/a\tt\t0\t1\t5\t18446744073709551615\te\n",
        "/a\tt\t-1\t1\t0\t0\te\n",
        "/a\tt\t0\t1\t0\t0\t\n",
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct ui u;
        struct err e;
        assert_int_equal(ui_init(&u, str_c(rows[i]), STR(DATA), &e), ERR_CORRUPT);
    }
}

/* The bundle of this very binary: whatever was built, it hangs together. */
static void test_linked_bundle(void **state)
{
    (void)state;
    struct ui u;
    struct err e;

    assert_int_equal(ui_init_linked(&u, &e), 0);
    const struct ui_asset *page = ui_find(&u, STR("/"), false);
    assert_non_null(page);
    assert_true(str_contains(page->plain, STR("<!doctype html>")));
    for (size_t i = 0; i < u.len; i++) {
        struct inflate_limits l = { .bytes_max = 64 * MIB };
        struct buf out;
        if (!u.assets[i].gzip.ptr)
            continue;
        buf_init(&out, 64 * MIB);
        assert_int_equal(gunzip(u.assets[i].gzip, &l, &out, &e), 0);
        assert_true(str_eq(buf_str(&out), u.assets[i].plain));
        buf_deinit(&out);
    }
    ui_deinit(&u);
}

static const char *ask(struct net_world *w, struct net_mem *m, const char *head)
{
    net_send_c(m, head);
    net_send_c(m, "Host: h\r\n\r\n");
    net_pass(w, 0);
    return net_got(m);
}

static void has(const char *reply, const char *part)
{
    if (!strstr(reply, part))
        fail_msg("no \"%s\" in\n%s", part, reply);
}

static void test_served(void **state)
{
    (void)state;
    struct net_world w;
    struct ui u;
    const char *r;

    net_world_init(&w);
    open_ui(&u);
    ui_route(&u, w.server);
    struct net_mem *m = net_connect(&w);
    r = ask(&w, m, "GET / HTTP/1.1\r\n");
    has(r, "HTTP/1.1 200 ");
    has(r, "Content-Type: text/html; charset=utf-8\r\n");
    has(r, "Cache-Control: no-cache\r\n");
    has(r, "etag2\"\r\n");
    has(r, "Content-Security-Policy: default-src 'none'; script-src 'self';");
    has(r, "X-Content-Type-Options: nosniff\r\n");
    has(r, "\r\n\r\npage");
    r = ask(&w, m, "GET / HTTP/1.1\r\nIf-None-Match: \"etag2\"\r\n");
    has(r, "HTTP/1.1 304 ");
    r = ask(&w, m, "GET /assets/app.js HTTP/1.1\r\nAccept-Encoding: gzip, br\r\n");
    has(r, "Content-Encoding: gzip\r\n");
    has(r, "immutable");
    has(r, "\r\n\r\ngz");
    r = ask(&w, m, "GET /assets/app.js HTTP/1.1\r\nAccept-Encoding: gzip;q=0\r\n");
    has(r, "\r\n\r\nhello");
    assert_null(strstr(r, "Content-Encoding"));
    r = ask(&w, m, "GET /assets/none.js HTTP/1.1\r\n");
    has(r, "HTTP/1.1 404 ");
    r = ask(&w, m, "DELETE / HTTP/1.1\r\n");
    has(r, "HTTP/1.1 404 ");
    net_end(m, false);
    net_pass(&w, 10);
    net_mem_free(m);
    net_world_deinit(&w);
    ui_deinit(&u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_find),
        cmocka_unit_test(test_bad_indexes),
        cmocka_unit_test(test_linked_bundle),
        cmocka_unit_test(test_served),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

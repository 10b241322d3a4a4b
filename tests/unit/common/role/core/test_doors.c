/* SPDX-License-Identifier: Apache-2.0
 *
 * Every route of the product, by its table. That no route is missing in it is seen at each start:
 * a server takes no other (common/net/http_door.c).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "common/net/http_server.h"
#include "common/role/core/doors.h"
#include "tests/lib/net/net_mem.h"

static int calls;

static void on_any(struct http_req *r)
{
    calls++;
    http_reply(r, 200, NULL, NULL);
}

static void open_all(struct net_world *w)
{
    const struct http_door *d;
    size_t n;

    net_world_init(w);
    d = w->server->o.doors = doors(&n);
    w->server->o.doors_len = n;
    for (size_t i = 0; i < n; i++)
        http_route(w->server, d[i].methods, d[i].path, MIB, on_any, NULL);
}

static int send_row(struct net_world *w, const struct http_door *d, const char *headers)
{
    struct net_mem *m = net_connect(w);
    struct str path = str_c(d->path);
    uint64_t status;
    struct buf b;

    if (path.ptr[path.len - 1] == '*')
        path = str_sub(path, 0, path.len - 1);
    buf_init(&b, 8 * KIB);
    assert_true(buf_addf(&b, "%s %.*s%s HTTP/1.1\r\nHost: localhost\r\n%s\r\n",
                         http_method_name(http_method_index((enum http_method)d->methods)),
                         STR_ARG(path), path.len < str_c(d->path).len ? "zz" : "", headers));
    net_send(m, buf_str(&b));
    buf_deinit(&b);
    net_pass(w, 0);
    assert_true(str_u64(str_n(net_got(m) + 9, 3), &status));
    net_end(m, false);
    net_pass(w, 10000);
    net_mem_free(m);
    return (int)status;
}

/* A page of another site sends all of them: none that acts is called, all that ask are. */
static void test_other_site(void **state)
{
    static const char *const from[] = {
        "Origin: http://evil.example\r\n",
        "Origin: null\r\n",
        "Sec-Fetch-Site: cross-site\r\n",
        "Sec-Fetch-Site: same-site\r\nOrigin: http://localhost:3000\r\n",
    };
    const struct http_door *d;
    struct net_world w;
    size_t n, acting = 0;

    (void)state;
    open_all(&w);
    d = doors(&n);
    for (size_t i = 0; i < n; i++) {
        acting += d[i].acts;
        assert_int_equal(send_row(&w, &d[i], ""), 200);
        for (size_t k = 0; k < ARRAY_LEN(from); k++) {
            int before = calls, got = send_row(&w, &d[i], from[k]);

            if (got != (d[i].acts ? 403 : 200) || calls - before != !d[i].acts)
                fail_msg("%s (methods %u) with %s is %d", d[i].path, d[i].methods, from[k], got);
        }
    }
    assert_true(acting > 30);
    net_world_deinit(&w);
}

static const struct http_door *asked;
static int forgotten;

static bool on_admit(void *cookie, struct http_req *r, const struct http_door *door)
{
    (void)cookie;
    asked = door;
    if (door->needs == HTTP_NEEDS_NOTHING)
        return true;
    http_reply(r, 418, NULL, NULL);
    return false;
}

static void on_forget(void *cookie, struct http_req *r)
{
    (void)cookie;
    assert_int_equal(r->magic, HTTP_XCHG_MAGIC);
    forgotten++;
}

/* A client that is not admitted reaches no handler. The question names the route's own row, and at
 * the end of each request `forget` is called, once. */
static void test_needs(void **state)
{
    const struct http_door *d;
    struct net_world w;
    size_t n, with = 0;

    (void)state;
    open_all(&w);
    w.server->o.admit = on_admit;
    w.server->o.forget = on_forget;
    d = doors(&n);
    for (size_t i = 0; i < n; i++) {
        int before = calls, got;

        asked = NULL;
        forgotten = 0;
        got = send_row(&w, &d[i], "");
        assert_int_equal(forgotten, 1);
        if (asked != &d[i] || got != (d[i].needs ? 418 : 200) || calls - before != !d[i].needs)
            fail_msg("%s (methods %u) is %d", d[i].path, d[i].methods, got);
        with += d[i].needs != HTTP_NEEDS_NOTHING;
    }
    assert_true(with > 15);
    asked = NULL; /* no question for a wrong method, and none for OPTIONS */
    assert_int_equal(
        send_row(&w, &(struct http_door){ .methods = HTTP_DELETE, .path = "/ingest" }, ""), 405);
    assert_int_equal(
        send_row(&w, &(struct http_door){ .methods = HTTP_OPTIONS, .path = "/config" }, ""), 204);
    assert_null(asked);
    net_world_deinit(&w);
}

/* Words of what reads. A new POST of another name acts, or this list is added to, with thought. */
static bool reads(const char *path)
{
    static const char *const words[] = {
        "/Get",  "/List",    "/Select", "/ProfileTypes", "/LabelNames", "/LabelValues", "/Series",
        "/Diff", "/Analyze", "/Check",  "/Watch",        "/Version",    "merge",
    };

    if (path[strlen(path) - 1] == '*')
        return true; /* a service's unknown methods */
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        if (strstr(path, words[i]))
            return true;
    }
    return false;
}

static void test_table(void **state)
{
    const struct http_door *d;
    size_t n;

    (void)state;
    d = doors(&n);
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < i; k++)
            assert_false(d[i].methods & d[k].methods && strcmp(d[i].path, d[k].path) == 0);
        assert_int_equal(d[i].methods & (d[i].methods - 1), 0); /* one method a row */
        if (d[i].methods != HTTP_GET && !d[i].acts && !reads(d[i].path))
            fail_msg("%s is no GET and does not act", d[i].path);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_other_site),
        cmocka_unit_test(test_needs),
        cmocka_unit_test(test_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Pages about the process: with a file of tokens for clients that show one, /debug/pprof/ as
 * /config and /ring; /metrics and /healthz for every client.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/net/http_server.h"
#include "common/role/admin/admin.h"
#include "common/role/admin/cluster_page.h"
#include "common/role/admin/cluster_places.h"
#include "common/role/admin/cluster_rebalance.h"
#include "common/role/core/doors.h"
#include "common/role/process/process.h"
#include "tests/lib/net/net_mem.h"

static void test_knows(void **state)
{
    const struct str tokens = STR("# ours\n0123456789abcdef\n\n  another-long-token \n");
    static const struct {
        const char *header;
        bool known;
    } rows[] = {
        { "Bearer 0123456789abcdef", true },
        { "bearer  another-long-token ", true },
        { "Bearer 0123456789abcdeF", false },
        { "Bearer 0123456789abcde", false },
        { "Bearer 0123456789abcdef0", false },
        { "Bearer # ours", false },
        { "Bearer ", false },
        { "Bearer", false },
        { "Basic 0123456789abcdef", false },
        { "0123456789abcdef", false },
        { "", false },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (access_knows(tokens, str_c(rows[i].header)) != rows[i].known)
            fail_msg("%s", rows[i].header);
}

static void put(const char *path, const char *text)
{
    FILE *f = fopen(path, "we");

    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* As a process has it: the table of doors, and what its access admits. */
static void open_doors(struct net_world *w, struct process *p)
{
    net_world_init(w);
    w->server->o.doors = doors(&w->server->o.doors_len);
    w->server->o.admit = access_admits;
    w->server->o.admit_cookie = &p->access;
    p->core.ctx.http = w->server;
    p->core.ctx.metrics = w->metrics;
    p->core.ctx.loop = w->loop;
}

static bool from_afar;      /* the caller is on another machine */
static bool through_socket; /* it came through the server's Unix socket */

/* GET, or POST with "POST " before the path. */
static int status(struct net_world *w, const char *path, const char *header)
{
    struct net_mem *c = net_connect(w);
    char text[300];
    int code = 0;

    snprintf(text, sizeof(text), "%s%s HTTP/1.1\r\nHost: h\r\n%sConnection: close\r\n\r\n",
             path[0] == '/' ? "GET " : "", path, header);
    c->stream.own = !from_afar;
    c->stream.local = through_socket;
    net_send_c(c, text);
    net_pass(w, 20);
    buf_add_c(&c->out, '\0');
    assert_int_equal(sscanf(c->out.ptr, "HTTP/1.1 %d", &code), 1);
    if (code == 401)
        assert_non_null(strcasestr(c->out.ptr, "www-authenticate: bearer"));
    if (code == 403)
        assert_true(strstr(c->out.ptr, "http.admin_token_file") ||
                    strstr(c->out.ptr, "http.origins"));
    net_mem_free(c);
    return code;
}

static void test_pages(void **state)
{
    static const char *const closed[] = { "/config",
                                          "/ring",
                                          "/debug/pprof/",
                                          "/debug/pprof",
                                          "/debug/pprof/profile",
                                          "/debug/pprof/heap",
                                          "/debug/pprof/other",
                                          "POST /api/v1/cluster/nodes/a/drain",
                                          "POST /api/v1/cluster/nodes/a/other" };
    static const char *const open[] = { "/healthz", "/metrics" };
    const char *right = "Authorization: Bearer 0123456789abcdef\r\n";
    const char *wrong = "Authorization: Bearer 0123456789abcdee\r\n";
    char path[] = "/tmp/embertree-access-XXXXXX";
    struct process p = { .core.state = PROCESS_STARTING };
    const struct cluster_conf cluster = { .coordination = "none" };
    struct net_world w;
    struct err e;
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    close(fd);
    put(path, "short\n");
    assert_int_equal(access_init(&p.access, fs_real(), path, &e), ERR_CONFIG);
    put(path, "# none\n");
    assert_int_equal(access_init(&p.access, fs_real(), path, &e), ERR_CONFIG);
    put(path, "0123456789abcdef\n");
    assert_int_equal(access_init(&p.access, fs_real(), path, &e), 0);
    open_doors(&w, &p);
    admin_routes(&p.core, &p.health);
    debug_routes(&p.debug, &p.core);
    cluster_page_routes(&p.core);
    p.core.ctx.cluster = &cluster;
    for (size_t i = 0; i < ARRAY_LEN(closed); i++) {
        assert_int_equal(status(&w, closed[i], ""), 401);
        assert_int_equal(status(&w, closed[i], wrong), 401);
    }
    for (size_t i = 0; i < ARRAY_LEN(open); i++)
        assert_int_equal(status(&w, open[i], ""), 200);
    assert_int_equal(status(&w, "/debug/pprof/", right), 200);
    assert_int_equal(status(&w, "/debug/pprof/other", right), 404);
    assert_int_equal(status(&w, "POST /api/v1/cluster/nodes/a/drain", right), 501);
    assert_int_equal(status(&w, "POST /api/v1/cluster/nodes/a/undrain", right), 501);
    assert_int_equal(status(&w, "POST /api/v1/cluster/nodes/a/other", right), 404);
    assert_int_equal(status(&w, "POST /api/v1/cluster/nodes/a/b/drain", right), 404);
    assert_int_equal(status(&w, "POST /api/v1/cluster/nodes//drain", right), 404);
    assert_int_equal(status(&w, "/api/v1/cluster/nodes/a/drain", right), 405);
    p.access.metrics = true;
    assert_int_equal(status(&w, "/metrics", ""), 401);
    assert_int_equal(status(&w, "/metrics", wrong), 401);
    assert_int_equal(status(&w, "/metrics", right), 200);
    through_socket = true;
    assert_int_equal(status(&w, "/debug/pprof/", ""), 200);
    assert_int_equal(status(&w, "/metrics", ""), 200);
    through_socket = false;
    put(path, "another-long-token\n"); /* another one holds at once */
    assert_int_equal(status(&w, "/debug/pprof/", right), 401);
    unlink(path);
    assert_int_equal(status(&w, "/debug/pprof/", right), 401);
    p.access = (struct access){ 0 };
    assert_int_equal(status(&w, "/debug/pprof/", ""), 200);
    net_world_deinit(&w);
}

/* Without a file of tokens: looking is for all callers, changing for those that come through the
 * socket. An address of this machine proves nothing: any proxy on it has one. */
static void test_changes(void **state)
{
    static const char *const changes[] = {
        "POST /api/v1/cluster/nodes/a/drain",
        "POST /api/v1/cluster/nodes/a/undrain",
        "POST /api/v1/cluster/rebalance",
        "POST /api/v1/cluster/services?tenant=t&service=s&shards=2",
        "POST /api/v1/cluster/tenants?tenant=t&shards=2",
    };
    static const char *const through[] = {
        "Origin: http://h\r\n",        "Origin: null\r\n",
        "Via: 1.1 proxy\r\n",          "X-Forwarded-For: 10.1.1.1\r\n",
        "Forwarded: for=10.1.1.1\r\n", "X-Real-IP: 10.1.1.1\r\n",
        "X-Forwarded-Host: h\r\n"
    };
    struct process p = { .core.state = PROCESS_STARTING };
    const struct cluster_conf cluster = { .coordination = "none" };
    struct net_world w;

    (void)state;
    open_doors(&w, &p);
    debug_routes(&p.debug, &p.core);
    cluster_page_routes(&p.core);
    cluster_places_routes(&p.core);
    cluster_rebalance_routes(&p.core);
    p.core.ctx.cluster = &cluster;
    for (size_t i = 0; i < ARRAY_LEN(changes); i++) {
        assert_int_equal(status(&w, changes[i], ""), 403);
        for (size_t k = 0; k < ARRAY_LEN(through); k++)
            assert_int_equal(status(&w, changes[i], through[k]), 403);
        from_afar = true;
        assert_int_equal(status(&w, changes[i], ""), 403);
        from_afar = false;
        through_socket = true;
        assert_int_equal(status(&w, changes[i], ""), 501);
        assert_int_equal(status(&w, changes[i], "Origin: null\r\n"), 403);
        through_socket = false;
    }
    from_afar = true;
    assert_int_equal(status(&w, "/debug/pprof/", ""), 200);
    from_afar = false;
    net_world_deinit(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_knows),
        cmocka_unit_test(test_pages),
        cmocka_unit_test(test_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

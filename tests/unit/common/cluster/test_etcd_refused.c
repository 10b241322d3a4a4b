/* SPDX-License-Identifier: Apache-2.0
 *
 * An etcd without space answers reads and refuses changes: that is remembered until it makes one,
 * however many reads go well meanwhile. A change whose compares fail is none that was refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

#include "common/cluster/coord_etcd.h"
#include "common/net/http.h"
#include "common/obs/metrics.h"

struct bed {
    struct loop *loop;
    struct timer *guard;
    struct metrics *metrics;
    struct budget in_flight;
    struct http_server *server;
    struct coord *coord;
    const char *txn; /* the answer to a transaction */
    int status;
    bool failed, done;
};

static void answer(struct http_req *r, int status, const char *body)
{
    struct buf text;

    buf_init(&text, KIB);
    buf_addf(&text, "%s", body);
    http_reply(r, status, "application/json", &text);
}

static void on_range(struct http_req *r)
{
    answer(r, 200, "{\"header\":{\"revision\":\"5\"}}");
}

static void on_txn(struct http_req *r)
{
    const struct bed *b = r->route_cookie;

    answer(r, b->status, b->txn);
}

static void on_end(void *cookie, const struct coord_reply *r)
{
    struct bed *b = cookie;

    b->failed = r->err != NULL;
    b->done = r->done;
    loop_stop(b->loop);
}

static void too_long(void *cookie)
{
    (void)cookie;
    fail_msg("nothing came for a minute");
}

static void stop(void *cookie)
{
    loop_stop(((struct bed *)cookie)->loop);
}

static void open_bed(struct bed *b)
{
    char url[64];
    const char *urls[] = { url };
    struct err e;

    *b = (struct bed){ .loop = loop_new(clock_real()), .metrics = metrics_new() };
    budget_init(&b->in_flight, 64 * MIB);
    struct http_server_opts o = { .loop = b->loop,
                                  .in_flight = &b->in_flight,
                                  .metrics = b->metrics,
                                  .listen = "127.0.0.1:0",
                                  .connections_max = 100,
                                  .head_bytes_max = 64 * KIB,
                                  .head_ms = 10000,
                                  .body_ms = 10000,
                                  .idle_ms = 10000,
                                  .write_ms = 10000 };
    assert_int_equal(http_server_new(&o, &b->server, &e), 0);
    http_route(b->server, HTTP_POST, "/v3/kv/range", MIB, on_range, b);
    http_route(b->server, HTTP_POST, "/v3/kv/txn", MIB, on_txn, b);
    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%u", http_server_port(b->server));
    struct coord_etcd_opts co = { .loop = b->loop, .urls = urls, .urls_len = 1 };
    assert_int_equal(coord_etcd_new(&co, &b->coord, &e), 0);
    b->guard = loop_timer_new(b->loop, too_long, b);
    loop_timer_start(b->guard, 60000, 0);
}

static void close_bed(struct bed *b)
{
    coord_free(b->coord);
    http_server_drain(b->server, stop, b);
    loop_run(b->loop);
    loop_timer_free(b->guard);
    http_server_free(b->server);
    loop_free(b->loop);
    metrics_free(b->metrics);
}

static void change(struct bed *b, int status, const char *txn)
{
    struct coord_change chg = { .key = STR("/e/k"), .value = STR("v") };

    b->status = status;
    b->txn = txn;
    coord_txn(b->coord, NULL, 0, &chg, 1, on_end, b);
    loop_run(b->loop);
}

static void list(struct bed *b)
{
    coord_list(b->coord, STR("/e/"), on_end, b);
    loop_run(b->loop);
    assert_false(b->failed);
}

static void test_refused_until_made(void **state)
{
    const char *full = "{\"error\":\"etcdserver: mvcc: database space exceeded\",\"code\":8}";
    struct bed b;

    (void)state;
    open_bed(&b);
    assert_string_equal(coord_etcd_refused(b.coord), "");
    change(&b, 429, full);
    assert_true(b.failed);
    for (int i = 0; i < 3; i++) {
        list(&b);
        assert_non_null(strstr(coord_etcd_refused(b.coord), "database space exceeded"));
        assert_non_null(strstr(coord_why(b.coord), "database space exceeded"));
    }
    change(&b, 200, "{\"header\":{\"revision\":\"6\"}}"); /* the compares did not hold */
    assert_false(b.failed || b.done);
    assert_string_equal(coord_etcd_refused(b.coord), "");
    assert_string_equal(coord_why(b.coord), "");
    /* A lease that ran out is not etcd's fault. */
    change(&b, 404, "{\"error\":\"etcdserver: requested lease not found\",\"code\":5}");
    assert_true(b.failed);
    assert_string_equal(coord_etcd_refused(b.coord), "");
    close_bed(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_refused_until_made) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

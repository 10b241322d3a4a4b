/* SPDX-License-Identifier: Apache-2.0
 *
 * An etcd, or what stands before one, that answers everything but watches: what a watch knows grows
 * old then, however well the rest works.
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

#define RANGES_MOST 5 /* the list, and one count a second */

struct bed {
    struct loop *loop;
    struct timer *guard;
    struct metrics *metrics;
    struct budget in_flight;
    struct http_server *server;
    struct coord *coord;
    struct http_req *held; /* a watch's */
    bool speaks;           /* the watch says that it is one */
    uint32_t ranges, alls, heard;
};

static void on_range(struct http_req *r)
{
    struct bed *b = r->route_cookie;
    struct buf text;

    buf_init(&text, KIB);
    buf_addf(&text, "{\"header\":{\"cluster_id\":\"7\",\"revision\":\"5\"},\"count\":\"0\"}");
    http_reply(r, 200, "application/json", &text);
    if (++b->ranges == RANGES_MOST)
        loop_stop(b->loop);
}

static void held_gone(struct http_req *r)
{
    struct bed *b = r->route_cookie;

    b->held = NULL;
    if (b->speaks)
        http_stream_end(r);
    else
        http_reply(r, 200, NULL, NULL);
}

static void on_watch_asked(struct http_req *r)
{
    struct bed *b = r->route_cookie;
    struct buf line;

    r->on_gone = held_gone;
    b->held = r;
    if (!b->speaks)
        return;
    buf_init(&line, KIB);
    buf_addf(&line, "{\"result\":{\"header\":{\"revision\":\"5\"},\"created\":true}}\n");
    http_stream_send(r, 200, "application/json", &line);
}

static void on_all(void *cookie, const struct coord_kv *kvs, size_t n, int64_t rev)
{
    (void)kvs;
    assert_int_equal(n, 0);
    assert_int_equal(rev, 5);
    ((struct bed *)cookie)->alls++;
}

static void on_event(void *cookie, const struct coord_kv *kv)
{
    (void)cookie;
    fail_msg("an event of %.*s", STR_ARG(kv->key));
}

static void on_heard(void *cookie)
{
    ((struct bed *)cookie)->heard++;
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

static void open_bed(struct bed *b, bool speaks)
{
    char url[64];
    const char *urls[] = { url };
    struct err e;

    *b = (struct bed){ .speaks = speaks };
    b->loop = loop_new(clock_real());
    b->metrics = metrics_new();
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
    http_route(b->server, HTTP_POST, "/v3/watch", MIB, on_watch_asked, b);
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

static uint32_t heard(bool speaks)
{
    struct coord_watch_opts w = {
        .prefix = STR("/e/"), .all = on_all, .event = on_event, .heard = on_heard
    };
    struct bed b;

    open_bed(&b, speaks);
    w.cookie = &b;
    struct coord_watch *watch = coord_watch(b.coord, &w);
    loop_run(b.loop);
    assert_int_equal(b.alls, 1);
    coord_unwatch(b.coord, watch);
    close_bed(&b);
    return b.heard;
}

static void test_watches_unanswered(void **state)
{
    (void)state;
    assert_int_equal(heard(false), 0);
}

static void test_watches_answered(void **state)
{
    (void)state;
    assert_true(heard(true) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_watches_unanswered),
        cmocka_unit_test(test_watches_answered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

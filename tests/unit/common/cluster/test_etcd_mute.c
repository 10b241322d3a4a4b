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

#include "tests/lib/net/etcd_fake.h"

#define RANGES_MOST 5 /* the list, and one count a second */

struct bed {
    struct etcd_fake f;
    struct http_req *held; /* a watch's */
    bool speaks;           /* the watch says that it is one */
    uint32_t ranges, alls, heard;
};

static void on_range(struct http_req *r)
{
    struct bed *b = r->route_cookie;

    etcd_fake_say(r, 200, "{\"header\":{\"cluster_id\":\"7\",\"revision\":\"5\"},\"count\":\"0\"}");
    if (++b->ranges == RANGES_MOST)
        loop_stop(b->f.loop);
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

static void open_bed(struct bed *b, bool speaks)
{
    *b = (struct bed){ .speaks = speaks };
    etcd_fake_open(&b->f);
    etcd_fake_on(&b->f, "/v3/kv/range", on_range, b);
    etcd_fake_on(&b->f, "/v3/watch", on_watch_asked, b);
    etcd_fake_connect(&b->f);
}

static uint32_t heard(bool speaks)
{
    struct coord_watch_opts w = {
        .prefix = STR("/e/"), .all = on_all, .event = on_event, .heard = on_heard
    };
    struct bed b;

    open_bed(&b, speaks);
    w.cookie = &b;
    struct coord_watch *watch = coord_watch(b.f.coord, &w);
    loop_run(b.f.loop);
    assert_int_equal(b.alls, 1);
    coord_unwatch(b.f.coord, watch);
    etcd_fake_close(&b.f);
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

/* SPDX-License-Identifier: Apache-2.0
 *
 * An etcd whose answer to the count of a second arrives behind a newer event: that is no other
 * etcd, and no backup. The watch continues, and nothing is listed again.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/lib/net/etcd_fake.h"

/* Counts behind the late one until the end. A watch that began again would have listed before the
 * second of them. */
#define COUNTS_AFTER 3

struct bed {
    struct etcd_fake f;
    struct http_req *stream, *late; /* the watch; the count that waits for the event */
    int late_rev;                   /* what it says then */
    uint32_t lists, counts, watches, alls, events;
};

static void answer_range(struct http_req *r, int rev)
{
    struct buf text;

    buf_init(&text, KIB);
    buf_addf(&text, "{\"header\":{\"cluster_id\":\"7\",\"revision\":\"%d\"},\"count\":\"0\"}", rev);
    http_reply(r, 200, "application/json", &text);
}

static void put_line(struct bed *b, const char *line)
{
    struct buf text;

    buf_init(&text, KIB);
    buf_addf(&text, "%s\n", line);
    http_stream_send(b->stream, 200, "application/json", &text);
}

static void late_gone(struct http_req *r)
{
    struct bed *b = r->route_cookie;

    b->late = NULL;
    http_reply(r, 200, NULL, NULL);
}

/* The first count waits; its event is of revision 6. */
static void on_range(struct http_req *r)
{
    struct bed *b = r->route_cookie;

    if (!memmem(r->body.ptr, r->body.len, "count_only", 10)) {
        b->lists++;
        answer_range(r, 5);
        return;
    }
    if (++b->counts > 1) {
        answer_range(r, 6);
        if (b->counts == 1 + COUNTS_AFTER)
            loop_stop(b->f.loop);
        return;
    }
    b->late = r;
    r->on_gone = late_gone;
    assert_non_null(b->stream);
    put_line(b, "{\"result\":{\"header\":{\"cluster_id\":\"7\",\"revision\":\"6\"},\"events\":"
                "[{\"kv\":{\"key\":\"L2UvYQ==\",\"mod_revision\":\"6\",\"value\":\"MQ==\"}}]}}");
}

static void stream_gone(struct http_req *r)
{
    struct bed *b = r->route_cookie;

    if (b->stream == r)
        b->stream = NULL;
    http_stream_end(r);
}

static void on_watch_asked(struct http_req *r)
{
    struct bed *b = r->route_cookie;

    r->on_gone = stream_gone;
    b->stream = r;
    b->watches++;
    put_line(b, "{\"result\":{\"header\":{\"cluster_id\":\"7\",\"revision\":\"5\"},"
                "\"created\":true}}");
}

static void on_all(void *cookie, const struct coord_kv *kvs, size_t n, int64_t rev)
{
    (void)kvs;
    (void)n;
    assert_int_equal(rev, 5);
    ((struct bed *)cookie)->alls++;
}

/* The watch has seen revision 6: now the older count comes. */
static void on_event(void *cookie, const struct coord_kv *kv)
{
    struct bed *b = cookie;
    struct http_req *late = b->late;

    assert_true(str_eqc(kv->key, "/e/a"));
    assert_int_equal(kv->mod_rev, 6);
    b->events++;
    if (!late)
        return;
    b->late = NULL;
    late->on_gone = NULL;
    answer_range(late, b->late_rev);
}

static void open_bed(struct bed *b, int late_rev)
{
    *b = (struct bed){ .late_rev = late_rev };
    etcd_fake_open(&b->f);
    etcd_fake_on(&b->f, "/v3/kv/range", on_range, b);
    etcd_fake_on(&b->f, "/v3/watch", on_watch_asked, b);
    etcd_fake_connect(&b->f);
}

static void run(struct bed *b, int late_rev)
{
    struct coord_watch_opts w = { .prefix = STR("/e/"), .all = on_all, .event = on_event };

    open_bed(b, late_rev);
    w.cookie = b;
    struct coord_watch *watch = coord_watch(b->f.coord, &w);
    loop_run(b->f.loop);
    coord_unwatch(b->f.coord, watch);
    etcd_fake_close(&b->f);
}

static void test_count_behind_event(void **state)
{
    struct bed b;

    (void)state;
    run(&b, 5);
    assert_int_equal(b.events, 1);
    assert_int_equal(b.lists, 1);
    assert_int_equal(b.watches, 1);
    assert_int_equal(b.alls, 1);
}

/* Older than what was seen when it was asked for: another state of the store, so all is listed. */
static void test_count_of_a_backup(void **state)
{
    struct bed b;

    (void)state;
    run(&b, 4);
    assert_true(b.lists > 1);
    assert_true(b.alls > 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_count_behind_event),
        cmocka_unit_test(test_count_of_a_backup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

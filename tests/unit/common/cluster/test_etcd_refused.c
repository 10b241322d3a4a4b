/* SPDX-License-Identifier: Apache-2.0
 *
 * An etcd without space answers reads and refuses changes: that is remembered until it makes a
 * change, however many reads succeed meanwhile. A change whose compares fail was not refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/lib/net/etcd_fake.h"

struct bed {
    struct etcd_fake f;
    const char *txn; /* the answer to a transaction */
    int status;
    bool failed, done;
};

static void on_range(struct http_req *r)
{
    etcd_fake_say(r, 200, "{\"header\":{\"revision\":\"5\"}}");
}

static void on_txn(struct http_req *r)
{
    const struct bed *b = r->route_cookie;

    etcd_fake_say(r, b->status, b->txn);
}

static void on_end(void *cookie, const struct coord_reply *r)
{
    struct bed *b = cookie;

    b->failed = r->err != NULL;
    b->done = r->done;
    loop_stop(b->f.loop);
}

static void open_bed(struct bed *b)
{
    *b = (struct bed){ 0 };
    etcd_fake_open(&b->f);
    etcd_fake_on(&b->f, "/v3/kv/range", on_range, b);
    etcd_fake_on(&b->f, "/v3/kv/txn", on_txn, b);
    etcd_fake_connect(&b->f);
}

static void change(struct bed *b, int status, const char *txn)
{
    struct coord_change chg = { .key = STR("/e/k"), .value = STR("v") };

    b->status = status;
    b->txn = txn;
    coord_txn(b->f.coord, &(struct coord_txn){ .chg = &chg, .chg_len = 1 }, on_end, b);
    loop_run(b->f.loop);
}

static void list(struct bed *b)
{
    coord_list(b->f.coord, STR("/e/"), on_end, b);
    loop_run(b->f.loop);
    assert_false(b->failed);
}

static void test_refused_until_made(void **state)
{
    const char *full = "{\"error\":\"etcdserver: mvcc: database space exceeded\",\"code\":8}";
    struct bed b;

    (void)state;
    open_bed(&b);
    assert_string_equal(coord_etcd_refused(b.f.coord), "");
    change(&b, 429, full);
    assert_true(b.failed);
    for (int i = 0; i < 3; i++) {
        list(&b);
        assert_non_null(strstr(coord_etcd_refused(b.f.coord), "database space exceeded"));
        assert_non_null(strstr(coord_why(b.f.coord), "database space exceeded"));
    }
    change(&b, 200, "{\"header\":{\"revision\":\"6\"}}"); /* the compares did not hold */
    assert_false(b.failed || b.done);
    assert_string_equal(coord_etcd_refused(b.f.coord), "");
    assert_string_equal(coord_why(b.f.coord), "");
    /* A lease that ran out is not etcd's fault. */
    change(&b, 404, "{\"error\":\"etcdserver: requested lease not found\",\"code\":5}");
    assert_true(b.failed);
    assert_string_equal(coord_etcd_refused(b.f.coord), "");
    etcd_fake_close(&b.f);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_refused_until_made) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

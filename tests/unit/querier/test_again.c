/* SPDX-License-Identifier: Apache-2.0
 *
 * A query whose map is too old begins again by the next one: its client sees the answer and no
 * error. The number of tries is bounded, and a query is not begun again without need.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "common/cluster/view/view_impl.h"
#include "querier/base/state.h"
#include "tests/lib/roles/querier_bed.h"

#define T(s)   (QBED_NOW + (s)*INT64_C(1000))
#define RENDER "/pyroscope/render?query=" QBED_CPU "%7B%7D&from=now-100s&until=now"
#define MERGE                                                                          \
    "{\"start\":\"1749999900000\",\"end\":1750000000000,\"profileTypeID\":\"" QBED_CPU \
    "\",\"labelSelector\":\"{}\"}"
#define CONNECT "/querier.v1.QuerierService/SelectMergeStacktraces"
#define JSON    "Content-Type: application/json\r\n"
#define AGAIN   "embertree_querier_again_total"

static const struct qbed_push two[] = {
    { 0, "a", "", QBED_CPU, T(-50), "x", 1, false, NULL },
    { 1, "b", "", QBED_CPU, T(-50), "y", 10, false, NULL },
};

static void expect(struct qbed *b, int status, const char *part)
{
    const char *reply = qbed_reply(b);

    if (qbed_status(reply) != status || !strstr(reply, part))
        fail_msg("want %d and \"%s\", got:\n%s", status, part, reply);
}

static void open_two(struct qbed *b)
{
    qbed_init(b, 2, NULL);
    qbed_data(b, two, ARRAY_LEN(two));
    b->ingesters[1].fail = ERR_CONFLICT;
}

/* The querier receives the next map. */
static void next_map(struct qbed *b)
{
    struct view *v = b->ctx.view;
    struct map from = *v->map;
    const struct map *m;
    struct err e;

    from.version++;
    from.impl = NULL;
    assert_int_equal(map_new(&from, &m, &e), 0);
    view_set_map(v, m);
}

static void ask(struct qbed *b, const char *target)
{
    b->ingesters[0].calls = b->ingesters[1].calls = 0;
    if (target)
        qbed_send(b, "GET", target, NULL, NULL);
    else
        qbed_send(b, "POST", CONNECT, JSON, MERGE);
    net_pass(&b->world, 100);
}

static void test_the_next_map(void **state)
{
    struct qbed b;

    (void)state;
    for (int connect = 0; connect < 2; connect++) {
        open_two(&b);
        ask(&b, connect ? NULL : RENDER);
        net_pass(&b.world, 1000);
        assert_string_equal(qbed_reply(&b), "");                 /* it was not received yet */
        assert_int_equal(b.ingesters[1].calls, connect ? 1 : 2); /* its timeline, too */
        b.ingesters[1].fail = 0;
        next_map(&b);
        net_pass(&b.world, 100);
        expect(&b, 200, connect ? "\"total\":\"11\"" : "\"numTicks\":11");
        assert_int_equal(qbed_metric(&b, AGAIN), 1);
        ask(&b, RENDER); /* which goes by the new map */
        expect(&b, 200, "\"numTicks\":11");
        assert_int_equal(qbed_metric(&b, AGAIN), 1);
        qbed_deinit(&b);
    }
}

/* A querier that is cut off receives no map: after a while the client gets an error, or a partial
 * answer. */
static void test_no_next_map(void **state)
{
    struct qbed b;

    (void)state;
    open_two(&b);
    ask(&b, RENDER);
    net_pass(&b.world, 5000);
    expect(&b, 503, "ingester 1: canned failure");
    assert_int_equal(b.ingesters[1].calls, 2);
    assert_int_equal(qbed_metric(&b, AGAIN), 0);
    ask(&b, RENDER "&allow_partial=1");
    net_pass(&b.world, 5000);
    expect(&b, 200, "X-Embertree-Partial: 1 of 2 ingesters missing\r\n");
    expect(&b, 200, "\"numTicks\":1,");
    ask(&b, RENDER);
    net_pass(&b.world, 1000);
    qbed_hang_up(&b); /* it waits for the map */
    qbed_deinit(&b);
}

/* However often the map changes, and whatever is said of it. */
static void test_bounds(void **state)
{
    struct qbed b;

    (void)state;
    open_two(&b);
    ask(&b, RENDER);
    for (int i = 0; i < 5; i++) {
        next_map(&b);
        net_pass(&b.world, 100);
    }
    expect(&b, 503, "ingester 1: canned failure");
    assert_int_equal(b.ingesters[1].calls, 3 * 2);
    assert_int_equal(qbed_metric(&b, AGAIN), 2);

    /* It waited for its turn, or was slow: the newest map is the first it goes by. */
    b.ingesters[1].fail = 0;
    ask(&b, RENDER);
    expect(&b, 200, "\"numTicks\":11");

    /* What may change something is asked once; a conflict is what it was. */
    b.ingesters[0].fail = b.ingesters[1].fail = ERR_CONFLICT;
    b.ingesters[0].calls = b.ingesters[1].calls = 0;
    qbed_send(&b, "POST", "/api/v1/delete?all=1&confirm=anonymous", NULL, NULL);
    next_map(&b);
    net_pass(&b.world, 5000);
    expect(&b, 409, "canned failure");
    assert_in_range(b.ingesters[0].calls + b.ingesters[1].calls, 1, 2);
    qbed_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_next_map),
        cmocka_unit_test(test_no_next_map),
        cmocka_unit_test(test_bounds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

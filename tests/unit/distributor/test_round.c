/* SPDX-License-Identifier: Apache-2.0
 *
 * A push whose ingester is out of reach, or late, goes by another one as well: under the same write
 * ids, with its stacks, and is answered once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "common/role/route/relay.h"
#include "common/role/route/route_impl.h"
#include "common/rpc/rpc_mem.h"
#include "distributor/base/state.h"
#include "tests/lib/gen/gen_pprof.h"
#include "tests/lib/roles/dist_bed.h"

#define INGEST "/ingest?name=app.cpu&from=now-10s&until=now"
#define PPROF  INGEST "&format=pprof"

struct bed {
    struct dist_bed d;
    struct relay *relays[2];
    size_t home; /* number of the ingester that has the shard */
    const char *from, *to;
    struct rpc_call *told; /* kept */
    size_t tolds;
};

static const char *const flags[] = { "--cluster.hedge-after=50ms", "--cluster.dead-after=10s",
                                     "--cluster.shards=2", NULL };

static void bed_open(struct bed *b)
{
    *b = (struct bed){ 0 };
    dist_bed_init(&b->d, 2, flags);
    /* A list, taken for shards that move: only there calls go round. */
    ((struct distributor *)b->d.self)->route->moves = true;
    for (size_t i = 0; i < 2; i++) {
        struct relay_opts o = { .node = b->d.ingesters[i].node,
                                .view = b->d.ctx.view,
                                .self = "",
                                .metrics = b->d.world.metrics };
        b->relays[i] = relay_new(&o);
        /* Ingesters know each other. */
        struct rpc_peer *p;
        struct err e;
        assert_int_equal(rpc_peer_get(b->d.ingesters[i].node, b->d.ingesters[1 - i].addr, &p, &e),
                         0);
    }
    net_pass(&b->d.world, 1000);
    assert_int_equal(dist_bed_push(&b->d, INGEST, "", STR("a;b 3\n"), NULL), 200);
    b->home = b->d.writes_to.ptr[0];
    b->from = rpc_node_addr(((struct distributor *)b->d.self)->node);
    b->to = b->d.ingesters[b->home].addr;
}

static void bed_close(struct bed *b)
{
    ((struct distributor *)b->d.self)->route->moves = false;
    dist_bed_deinit(&b->d);
    for (size_t i = 0; i < 2; i++)
        relay_free(b->relays[i]);
}

/* Status, and how long it took. */
static int push(struct bed *b, const char *target, struct str body, uint64_t *ret_ms)
{
    uint64_t began = clock_mono_ms(b->d.env.clock);
    int status = dist_bed_push(&b->d, target, "", body, NULL);

    *ret_ms = clock_mono_ms(b->d.env.clock) - began;
    return status;
}

/* All but when they were received. */
static void assert_same(const struct dist_bed *b, size_t i, size_t k)
{
    Embertree__WriteRequest *x = dist_bed_write(b, i), *y = dist_bed_write(b, k);

    assert_int_equal(x->n_series, y->n_series);
    assert_int_equal(x->shard, y->shard);
    for (size_t s = 0; s < x->n_series; s++) {
        assert_int_equal(x->series[s]->write_id.len, y->series[s]->write_id.len);
        assert_memory_equal(x->series[s]->write_id.data, y->series[s]->write_id.data,
                            x->series[s]->write_id.len);
    }
    embertree__write_request__free_unpacked(x, NULL);
    embertree__write_request__free_unpacked(y, NULL);
}

static void test_cut_off(void **state)
{
    uint64_t ms;

    (void)state;
    for (int way = 0; way < 2; way++) {
        struct bed b;

        bed_open(&b);
        if (way)
            rpc_mem_cut(b.d.net, b.to, b.from);
        else
            rpc_mem_cut(b.d.net, b.from, b.to);
        b.d.duplicates = way ? 1 : 0; /* the first copy was stored */
        assert_int_equal(push(&b, INGEST, STR("a;b 4\n"), &ms), 200);
        assert_true(ms < 1000);
        assert_int_equal(b.d.writes.len, way ? 3 : 2);
        if (way)
            assert_same(&b.d, 1, 2);
        for (size_t i = 0; i < b.d.writes_to.len; i++)
            assert_int_equal(b.d.writes_to.ptr[i], b.home);
        assert_int_equal(dist_bed_metric(&b.d, "embertree_distributor_retries_total"), 0);
        assert_int_equal(dist_bed_metric(&b.d, "embertree_route_hedge_won_total"), 1);
        assert_int_equal(push(&b, INGEST, STR("a;b 5\n"), &ms), 200); /* round from the start */
        assert_true(ms < 100);
        assert_int_equal(dist_bed_metric(&b.d, "embertree_route_relayed_total"), 1);
        assert_int_equal(dist_bed_metric(&b.d, "embertree_distributor_pushes_total"), 3);
        bed_close(&b);
    }
}

/* Both copies are answered, in both orders; and neither: then it is sent again as usual. */
static void test_late(void **state)
{
    uint64_t ms;

    (void)state;
    for (size_t first = 0; first < 3; first++) {
        struct bed b;

        bed_open(&b);
        b.d.fail_first = 3; /* this one, both times */
        dist_bed_send(&b.d, INGEST, "", STR("a;b 4\n"));
        assert_string_equal(dist_bed_reply(&b.d, 1000), "");
        assert_int_equal(b.d.writes.len, 3);
        assert_int_equal(b.d.silent_len, 2);
        assert_same(&b.d, 1, 2);
        for (size_t i = 0; i < 2 && first < 2; i++) {
            struct err e;
            struct buf out;
            /* An error of one of them is not the end. */
            if (i == 0) {
                (void)err_set(&e, ERR_NO_SPACE, "no");
                rpc_fail(b.d.silent[first], &e);
                assert_string_equal(dist_bed_reply(&b.d, 100), "");
                continue;
            }
            buf_init(&out, 16);
            (void)buf_add(&out, "\x08\x01", 2); /* stored: 1 */
            rpc_reply(b.d.silent[1 - first], &out);
            assert_non_null(strstr(dist_bed_reply(&b.d, 1000), "HTTP/1.1 200"));
            b.d.silent_len = 0;
        }
        if (first == 2) {
            assert_non_null(strstr(dist_bed_reply(&b.d, 9000), "HTTP/1.1 200"));
            assert_int_equal(dist_bed_metric(&b.d, "embertree_distributor_retries_total"), 1);
            assert_same(&b.d, 1, 3);
        }
        assert_int_equal(push(&b, INGEST, STR("a;b 5\n"), &ms), 200);
        assert_int_equal(dist_bed_metric(&b.d, "embertree_distributor_pushes_total"), 3);
        assert_int_equal(dist_bed_metric(&b.d, "embertree_distributor_pushes_working"), 0);
        bed_close(&b);
    }
}

static void on_told(void *cookie, struct rpc_call *call, struct str payload)
{
    struct bed *b = cookie;

    (void)payload;
    b->tolds++;
    assert_null(b->told);
    b->told = call;
}

static void pprof(struct buf *body)
{
    struct gen_pprof g;

    buf_init(body, MIB);
    gen_pprof_init(&g);
    gen_type(&g, "cpu", "nanoseconds");
    uint64_t leaf = gen_location(&g, gen_function(&g, "leaf", "a.go"), 7);
    uint64_t top = gen_location(&g, gen_function(&g, "top", "b.go"), 8);
    gen_sample(&g, (uint64_t[]){ leaf, top }, 2, (int64_t[]){ 10 }, 1);
    gen_pprof_finish(&g, body);
    gen_pprof_deinit(&g);
}

/* What was sent by numbers and is late goes round with its stacks; that the numbers are not known,
 * after all, ends nothing while the other copy is under way. */
static void test_numbers(void **state)
{
    (void)state;
    for (int refused = 0; refused < 2; refused++) {
        struct bed b;
        struct buf body;
        struct err e;

        bed_open(&b);
        for (size_t i = 0; i < 2; i++)
            rpc_serve(b.d.ingesters[i].node, RPC_WRITE_TOLD, on_told, &b);
        pprof(&body);
        /* A service that comes again is named by numbers. */
        size_t pushes = 1;
        b.d.answer = DIST_BED_ACK;
        for (; !b.told && pushes < 10; pushes++) {
            dist_bed_send(&b.d, PPROF, "", buf_str(&body));
            net_pass(&b.d.world, 10);
            if (!b.told)
                assert_non_null(strstr(net_got(b.d.client), "HTTP/1.1 200"));
        }
        assert_non_null(b.told);
        size_t writes = b.d.writes.len;
        b.d.fail_first = refused ? (uint32_t)writes + 1 : 0;
        if (refused) {
            assert_string_equal(dist_bed_reply(&b.d, 1000), "");
            assert_int_equal(b.tolds, 1);
            assert_int_equal(b.d.writes.len, writes + 1);
            (void)err_set(&e, ERR_NOT_FOUND, "these numbers are not known");
            rpc_fail(b.told, &e);
            assert_string_equal(dist_bed_reply(&b.d, 100), "");
            (void)err_set(&e, ERR_UNAVAILABLE, "gone");
            rpc_fail(b.d.silent[0], &e);
            b.d.silent_len = 0;
        }
        assert_non_null(strstr(dist_bed_reply(&b.d, 2000), "HTTP/1.1 200"));
        assert_int_equal(b.d.writes.len, writes + (refused ? 2 : 1));
        Embertree__WriteRequest *m = dist_bed_write(&b.d, b.d.writes.len - 1);
        assert_null(m->told);
        assert_true(m->stacks->n_node_parent >= 2);
        embertree__write_request__free_unpacked(m, NULL);
        if (!refused) {
            (void)err_set(&e, ERR_NOT_FOUND, "these numbers are not known");
            rpc_fail(b.told, &e);
            net_pass(&b.d.world, 100);
        }
        assert_int_equal(b.tolds, 1);
        assert_int_equal(dist_bed_metric(&b.d, "embertree_distributor_pushes_total"), pushes);
        assert_int_equal(dist_bed_metric(&b.d, "embertree_distributor_pushes_working"), 0);
        buf_deinit(&body);
        bed_close(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut_off),
        cmocka_unit_test(test_late),
        cmocka_unit_test(test_numbers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "common/cluster/coord/coord_sim.h"
#include "compactor/ingester_poll.h"
#include "proto/query.pb-c.h"
#include "tests/lib/net/rpc_bed.h"

/* An ingester that only knows its status. */
struct fake {
    struct rpc_node *node;
    Embertree__StatusReply reply;
    bool nonsense;
    uint32_t asked;
};

static void on_status(void *cookie, struct rpc_call *call, struct str payload)
{
    struct fake *f = cookie;
    struct buf b;
    char *p;

    (void)payload;
    f->asked++;
    buf_init(&b, KIB);
    if (f->nonsense) {
        (void)buf_add_str(&b, STR("\xff\xff\xff"));
    } else {
        p = buf_room(&b, embertree__status_reply__get_packed_size(&f->reply));
        assert_non_null(p);
        b.len += embertree__status_reply__pack(&f->reply, (uint8_t *)(void *)p);
    }
    rpc_reply(call, &b);
}

static void fake_start(struct fake *f, struct rpc_bed *b, const char *addr)
{
    f->node = rpc_bed_node(b, addr);
    rpc_serve(f->node, RPC_STATUS, on_status, f);
}

static void fake_init(struct fake *f)
{
    *f = (struct fake){ 0 };
    embertree__status_reply__init(&f->reply);
    f->reply.ready = true;
    f->reply.shards = 1;
    f->reply.applied = 7;
    f->reply.raw_rows = 5;
}

struct bed {
    struct rpc_bed rpc;
    char addr[2][128];
    const char *items[2];
    struct view *view;
    struct fake fakes[2];
    struct rpc_node *node;
    struct ingester_poll *watch;
};

static void bed_open(struct bed *b, size_t running)
{
    struct ingester_poll_opts o = { .interval_ms = 200, .lag_warn_ms = 1000 };
    struct err e;

    rpc_bed_init(&b->rpc, RPC_BED_MEM, 1);
    for (size_t i = 0; i < 2; i++) {
        rpc_bed_addr(&b->rpc, b->addr[i]);
        b->items[i] = b->addr[i];
        fake_init(&b->fakes[i]);
        if (i < running)
            fake_start(&b->fakes[i], &b->rpc, b->addr[i]);
    }
    b->view = view_new_list(b->items, 2, 2);
    b->node = rpc_bed_node(&b->rpc, "");
    o.node = b->node;
    o.loop = b->rpc.loop;
    o.metrics = b->rpc.metrics;
    o.view = b->view;
    assert_int_equal(ingester_poll_new(&o, &b->watch, &e), 0);
}

static void bed_close(struct bed *b)
{
    ingester_poll_free(b->watch);
    rpc_node_free(b->node);
    for (size_t i = 0; i < 2; i++)
        rpc_node_free(b->fakes[i].node);
    view_free(b->view);
    rpc_bed_deinit(&b->rpc);
}

static bool ready(void *cookie)
{
    const struct bed *b = cookie;
    const char *why;

    return ingester_poll_ready(b->watch, &why);
}

static bool not_ready(void *cookie)
{
    return !ready(cookie);
}

static void test_ready_when_all_answer(void **state)
{
    struct bed b;
    struct buf out;
    struct json j;

    (void)state;
    bed_open(&b, 2);
    assert_true(rpc_bed_run(&b.rpc, ready, &b, 5000));
    rpc_bed_sleep(&b.rpc, 2000);
    assert_true(b.fakes[0].asked >= 8 && b.fakes[0].asked <= 12); /* every 200 ms */
    buf_init(&out, 64 * KIB);
    json_init(&j, &out);
    json_obj(&j);
    ingester_poll_ring(b.watch, &j);
    json_obj_end(&j);
    assert_true(str_contains(buf_str(&out), STR("\"sealLogEntries\":7,\"rawRows\":5")));
    buf_deinit(&out);
    assert_int_equal(rpc_bed_metric(&b.rpc, "embertree_compactor_check_errors_total"), 0);
    bed_close(&b);
}

static void test_names_who_is_missing(void **state)
{
    const char *why = "";
    struct bed b;

    (void)state;
    bed_open(&b, 1);
    rpc_bed_sleep(&b.rpc, 2000);
    assert_false(ingester_poll_ready(b.watch, &why));
    assert_non_null(strstr(why, b.addr[1]));
    fake_start(&b.fakes[1], &b.rpc, b.addr[1]);
    assert_true(rpc_bed_run(&b.rpc, ready, &b, 20000));

    rpc_node_free(b.fakes[0].node);
    b.fakes[0].node = NULL;
    assert_true(rpc_bed_run(&b.rpc, not_ready, &b, 20000));
    assert_false(ingester_poll_ready(b.watch, &why));
    assert_non_null(strstr(why, b.addr[0]));
    assert_true(rpc_bed_metric(&b.rpc, "embertree_compactor_check_errors_total") > 0);
    bed_close(&b);
}

static void test_an_answer_that_is_none(void **state)
{
    const char *why = "";
    struct bed b;

    (void)state;
    bed_open(&b, 2);
    b.fakes[1].nonsense = true;
    rpc_bed_sleep(&b.rpc, 1000);
    assert_false(ingester_poll_ready(b.watch, &why));
    assert_non_null(strstr(why, "no StatusReply"));
    b.fakes[1].nonsense = false;
    assert_true(rpc_bed_run(&b.rpc, ready, &b, 5000));
    bed_close(&b);
}

/* Freed with a question on its way: the answer is ignored. */
static void test_freed_while_asking(void **state)
{
    struct bed b;

    (void)state;
    bed_open(&b, 2);
    assert_true(loop_sim_step(b.rpc.loop));
    assert_true(loop_sim_step(b.rpc.loop));
    ingester_poll_free(b.watch);
    b.watch = NULL;
    rpc_bed_sleep(&b.rpc, 1000);
    bed_close(&b);
}

/* ---- nodes come and go ---------------------------------------------------------------------- */

/* A map of the nodes that run at these addresses. */
static void put_map(struct coord_site *s, uint32_t version, const char *a, const char *b)
{
    char text[512];

    (void)snprintf(text, sizeof(text),
                   "{\"version\":%u,\"shards\":2,\"replicas\":1,\"nodes\":["
                   "{\"name\":\"a\",\"addr\":\"%s\"},{\"name\":\"b\",\"addr\":\"%s\"}]}",
                   version, a, b);
    coord_site_put(s, STR("/e/ring/map"), str_c(text));
}

static size_t told_of(struct rpc_bed *b, const char *addr)
{
    struct str rest, line;
    struct buf out;
    bool more = true;
    size_t n = 0;

    buf_init(&out, MIB);
    metrics_render(b->metrics, &out);
    rest = buf_str(&out);
    while (str_next(&rest, '\n', &more, &line))
        n += str_contains(line, str_c(addr));
    buf_deinit(&out);
    return n;
}

/* Node b starts again and again, each time elsewhere, as pods do. */
static void test_who_has_left_is_forgotten(void **state)
{
    struct ingester_poll_opts o = { .interval_ms = 200, .lag_warn_ms = 1000 };
    struct coord_site *site;
    char first[128], addr[128];
    struct coord *coord;
    struct bed b;
    struct err e;
    (void)state;

    bed_open(&b, 1);
    ingester_poll_free(b.watch);
    view_free(b.view);
    site = coord_site_new(b.rpc.loop, 1);
    coord_site_put(site, STR("/e/ring/cluster"),
                   STR("{\"id\":\"00112233445566778899aabbccddeeff\"}"));
    (void)snprintf(first, sizeof(first), "%s", b.addr[1]);
    (void)snprintf(addr, sizeof(addr), "%s", first);
    put_map(site, 1, b.addr[0], first);
    coord = coord_sim_new(site);
    b.view =
        view_new_coord(&(struct view_opts){ .loop = b.rpc.loop, .coord = coord, .prefix = "/e" });
    o.node = b.node;
    o.loop = b.rpc.loop;
    o.metrics = b.rpc.metrics;
    o.view = b.view;
    assert_int_equal(ingester_poll_new(&o, &b.watch, &e), 0);

    rpc_bed_sleep(&b.rpc, 20000);
    assert_int_equal(told_of(&b.rpc, first), 6); /* five of the watch, one of rpc */
    for (uint32_t i = 2; i < 5; i++) {
        rpc_bed_addr(&b.rpc, addr);
        put_map(site, i, b.addr[0], addr);
        rpc_bed_sleep(&b.rpc, 2000); /* with a question to the previous one on its way */
        assert_int_equal(told_of(&b.rpc, addr), 6);
    }
    assert_int_equal(told_of(&b.rpc, first), 1);
    rpc_bed_sleep(&b.rpc, 900000);
    assert_int_equal(told_of(&b.rpc, first), 0); /* rpc has forgotten it as well */
    assert_int_equal(told_of(&b.rpc, b.addr[0]), 6);
    assert_int_equal(told_of(&b.rpc, addr), 6);
    fake_start(&b.fakes[1], &b.rpc, addr);
    assert_true(rpc_bed_run(&b.rpc, ready, &b, 60000));

    ingester_poll_free(b.watch);
    b.watch = NULL;
    view_free(b.view);
    b.view = NULL;
    coord_free(coord);
    coord_site_free(site);
    bed_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ready_when_all_answer),
        cmocka_unit_test(test_names_who_is_missing),
        cmocka_unit_test(test_an_answer_that_is_none),
        cmocka_unit_test(test_freed_while_asking),
        cmocka_unit_test(test_who_has_left_is_forgotten),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

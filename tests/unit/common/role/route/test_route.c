/* SPDX-License-Identifier: Apache-2.0
 *
 * Questions about shards find the leader, also when it changes on the way.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "common/cluster/coord/coord_sim.h"
#include "common/cluster/coord/keyspace.h"
#include "common/role/route/relay.h"
#include "common/role/route/route_impl.h"
#include "tests/lib/net/rpc_bed.h"

#define PREFIX STR("/t")
#define SHARDS 2

struct node {
    const char *name;
    char addr[128];
    struct rpc_node *rpc;
    bool leads;
    size_t asked;
};
struct bed {
    struct rpc_bed rpc;
    struct coord_site *site;
    struct coord *coord;
    struct view *view;
    struct node nodes[3]; /* c has nothing by the map */
    struct rpc_node *client;
    struct route *route;
    int ends, code;
    char reply[32], text[ERR_TEXT_MAX];
};

static void serve(void *cookie, struct rpc_call *call, struct str payload)
{
    struct node *n = cookie;
    struct buf out;
    struct err e;

    (void)payload;
    n->asked++;
    if (!n->leads) {
        (void)err_set(&e, ERR_UNAVAILABLE, "%s does not lead", n->name);
        rpc_fail(call, &e);
        return;
    }
    buf_init(&out, 64);
    (void)buf_add_str(&out, str_c(n->name));
    rpc_reply(call, &out);
}

static void put_live_of(struct bed *b, const struct node *n, uint32_t methods)
{
    struct coord_key key = key_live(PREFIX, n->name);
    struct live l = { .id = 1, .methods = methods };
    struct buf text;

    (void)snprintf(l.addr, sizeof(l.addr), "%s", n->addr);
    buf_init(&text, 4096);
    live_write(&l, &text);
    coord_site_put(b->site, key_str(&key), buf_str(&text));
    buf_deinit(&text);
}

static void put_live(struct bed *b, const struct node *n)
{
    put_live_of(b, n, RPC_METHODS);
}

/* As a build before RPC_RELAY wrote it. */
static void put_live_untold(struct bed *b, const struct node *n)
{
    struct coord_key key = key_live(PREFIX, n->name);
    char text[256];

    (void)snprintf(text, sizeof(text),
                   "{\"id\":\"0000000000000001\",\"addr\":\"%s\",\"zone\":\"\"}", n->addr);
    coord_site_put(b->site, key_str(&key), str_c(text));
}

static void put_map(struct bed *b)
{
    struct map_node nodes[2] = { 0 };
    struct map m = { .version = 1, .shards = SHARDS, .replicas = 2, .nodes = nodes };
    struct coord_key key = key_map(PREFIX);
    struct buf text;

    for (; m.nodes_len < 2; m.nodes_len++) {
        (void)snprintf(nodes[m.nodes_len].name, NODE_NAME_MAX, "%s", b->nodes[m.nodes_len].name);
        (void)snprintf(nodes[m.nodes_len].addr, RPC_ADDR_MAX, "%s", b->nodes[m.nodes_len].addr);
    }
    buf_init(&text, MAP_BYTES_MAX);
    map_write(&m, &text);
    coord_site_put(b->site, key_str(&key), buf_str(&text));
    buf_deinit(&text);
}

static void put_leader(struct bed *b, uint32_t shard, uint64_t term, const char *leader)
{
    struct repl_record r = { .term = term, .established = true };
    struct coord_key key = key_shard(PREFIX, shard);
    struct buf text;

    (void)snprintf(r.leader, sizeof(r.leader), "%s", leader);
    assert_true(name_set_add(&r.members, "a") && name_set_add(&r.members, "b"));
    buf_init(&text, RECORD_BYTES_MAX);
    record_write(&r, &text);
    coord_site_put(b->site, key_str(&key), buf_str(&text));
    buf_deinit(&text);
}

static void bed_open(struct bed *b)
{
    struct view_opts vo = { .prefix = "/t" };
    struct route_opts ro = { .patience_ms = 1000 };
    struct err e;

    *b = (struct bed){ .nodes = { { .name = "a" }, { .name = "b" }, { .name = "c" } } };
    rpc_bed_init(&b->rpc, RPC_BED_MEM, 1);
    b->site = coord_site_new(b->rpc.loop, 1);
    b->coord = coord_sim_new(b->site);
    vo.loop = b->rpc.loop;
    vo.coord = b->coord;
    b->view = view_new_coord(&vo);
    for (size_t i = 0; i < 3; i++) {
        struct node *n = &b->nodes[i];
        rpc_bed_addr(&b->rpc, n->addr);
        n->rpc = rpc_bed_node(&b->rpc, n->addr);
        rpc_serve(n->rpc, RPC_STATUS, serve, n);
    }
    b->client = rpc_bed_node(&b->rpc, "");
    ro.node = b->client;
    ro.loop = b->rpc.loop;
    ro.view = b->view;
    assert_int_equal(route_new(&ro, &b->route, &e), 0);
}

static void bed_close(struct bed *b)
{
    route_free(b->route);
    rpc_node_free(b->client);
    for (size_t i = 0; i < 3; i++)
        rpc_node_free(b->nodes[i].rpc);
    view_free(b->view);
    coord_free(b->coord);
    coord_site_free(b->site);
    rpc_bed_deinit(&b->rpc);
}

static void on_done(void *cookie, struct str reply, const struct err *err)
{
    struct bed *b = cookie;

    b->ends++;
    b->code = err ? err->code : 0;
    (void)snprintf(b->reply, sizeof(b->reply), "%.*s", STR_ARG(str_sub(reply, 0, 31)));
    (void)snprintf(b->text, sizeof(b->text), "%s", err ? err->text : "");
}

static struct route_call *ask_of(struct bed *b, uint32_t shard, enum rpc_method method,
                                 uint64_t deadline_ms)
{
    struct buf payload;

    buf_init(&payload, 16);
    (void)buf_add_str(&payload, STR("?"));
    return route_ask(b->route,
                     &(struct route_query){ .target = route_target(b->route, shard),
                                            .method = method,
                                            .deadline_ms = deadline_ms,
                                            .done = on_done,
                                            .cookie = b },
                     &payload);
}

static struct route_call *ask(struct bed *b, uint32_t shard, uint64_t deadline_ms)
{
    return ask_of(b, shard, RPC_STATUS, deadline_ms);
}

static void test_follows_the_leader(void **state)
{
    struct bed b;
    char why[160];

    (void)state;
    bed_open(&b);
    assert_true(route_moves(b.route));
    assert_int_equal(route_shards(b.route), 0); /* nothing is known yet */
    assert_false(route_ready(b.route, why, sizeof(why)));
    put_live(&b, &b.nodes[0]);
    put_live(&b, &b.nodes[1]);
    put_map(&b);
    put_leader(&b, 0, 1, "a");
    put_leader(&b, 1, 1, "b");
    rpc_bed_sleep(&b.rpc, 500);
    assert_int_equal(route_targets(b.route), SHARDS);
    assert_true(route_ready(b.route, why, sizeof(why)));

    b.nodes[0].leads = true;
    (void)ask(&b, 0, 5000);
    rpc_bed_sleep(&b.rpc, 200);
    assert_int_equal(b.ends, 1);
    assert_string_equal(b.reply, "a");

    /* It leads no more; no node leads for a second; then b. The question waits all the while. */
    b.nodes[0].leads = false;
    (void)ask(&b, 0, 5000);
    rpc_bed_sleep(&b.rpc, 1000);
    assert_int_equal(b.ends, 1);
    assert_true(b.nodes[0].asked > 2);
    b.nodes[1].leads = true;
    put_leader(&b, 0, 2, "b");
    rpc_bed_sleep(&b.rpc, 1000);
    assert_int_equal(b.ends, 2);
    assert_int_equal(b.code, 0);
    assert_string_equal(b.reply, "b");
    bed_close(&b);
}

/* While versions are mixed, only nodes that can relay a call do so, and a node does so as soon
 * as it is upgraded. */
static void test_who_may_help(void **state)
{
    struct way *way;
    struct bed b;

    (void)state;
    bed_open(&b);
    put_map(&b);
    put_leader(&b, 0, 1, "a");
    put_live(&b, &b.nodes[0]);
    put_live_untold(&b, &b.nodes[1]);
    rpc_bed_sleep(&b.rpc, 500);
    for (int i = 0; i < 3; i++) { /* an unknown node is greeted first: asked again */
        assert_null(route_helper(b.route, 0, RPC_WRITE, NULL, &way));
        rpc_bed_sleep(&b.rpc, 200);
    }
    put_live(&b, &b.nodes[1]); /* it was upgraded */
    rpc_bed_sleep(&b.rpc, 200);
    (void)route_helper(b.route, 0, RPC_WRITE, NULL, &way);
    rpc_bed_sleep(&b.rpc, 500);
    assert_non_null(route_helper(b.route, 0, RPC_WRITE, NULL, &way));
    assert_string_equal(way->addr, b.nodes[1].addr);
    put_live_of(&b, &b.nodes[1], RPC_RELAY); /* and back: the first number that it does not know */
    rpc_bed_sleep(&b.rpc, 200);
    assert_null(route_helper(b.route, 0, RPC_WRITE, NULL, &way));
    put_live_of(&b, &b.nodes[1], RPC_REPL_COPY); /* of the build that had just learnt it */
    rpc_bed_sleep(&b.rpc, 200);
    assert_non_null(route_helper(b.route, 0, RPC_LEDGER, NULL, &way));
    assert_null(route_helper(b.route, 0, RPC_LEDGER_ACCEPT, NULL, &way));
    assert_true(way == NULL);
    put_live_of(&b, &b.nodes[1], 0); /* not known: it may */
    rpc_bed_sleep(&b.rpc, 200);
    assert_non_null(route_helper(b.route, 0, RPC_WRITE, NULL, &way));
    assert_false(way->relays);
    bed_close(&b);
}

/* The leader's build does not know the method, and the leader is asked through another node. Its
 * refusal is an answer, and does not count against the relaying node. */
static void test_unimplemented(void **state)
{
    struct way *way;
    struct bed b;

    (void)state;
    bed_open(&b);
    struct relay_opts o = {
        .node = b.nodes[1].rpc, .view = b.view, .self = "b", .metrics = b.rpc.metrics
    };
    struct relay *relay = relay_new(&o);
    put_map(&b);
    put_leader(&b, 0, 1, "a");
    put_live(&b, &b.nodes[0]);
    put_live(&b, &b.nodes[1]);
    rpc_bed_sleep(&b.rpc, 500);
    for (int known = 1; known >= 0; known--) {
        put_live_of(&b, &b.nodes[1], known ? RPC_METHODS : 0);
        (void)route_helper(b.route, 0, RPC_SPACE, NULL, &way); /* greets it */
        rpc_mem_cut(b.rpc.net, rpc_node_addr(b.client), b.nodes[0].addr);
        (void)ask(&b, 0, 1); /* greets the leader, which is down in a while */
        rpc_bed_sleep(&b.rpc, 10000);
        b.ends = 0;
        (void)ask_of(&b, 0, RPC_SPACE, 2000);
        rpc_bed_sleep(&b.rpc, known ? 100 : 3000);
        assert_int_equal(b.ends, 1);
        assert_int_equal(b.code, known ? ERR_UNIMPLEMENTED : ERR_UNAVAILABLE);
        way = peer_paths_at(b.route->ways, b.nodes[1].addr);
        assert_true(known ? way->no_help_ns == 0 : way->no_help_ns > 0);
        rpc_mem_heal(b.rpc.net);
        rpc_bed_sleep(&b.rpc, 20000);
    }
    rpc_node_free(b.nodes[1].rpc);
    relay_free(relay);
    b.nodes[1].rpc = NULL;
    bed_close(&b);
}

static const char *follows(void *cookie, uint32_t shard)
{
    assert_int_equal(shard, 0);
    ++*(size_t *)cookie;
    return "c";
}

/* The lead went to c just before the service went away, and only the followers know: a says that it
 * does not lead, and b, whose view is as old, that c sends it entries. While the service answers,
 * only the leader by the view is asked; the same when the service is back. */
static void test_view_is_late(void **state)
{
    size_t asked_b = 0, asked_a;
    struct way *way;
    struct bed b;

    (void)state;
    bed_open(&b);
    struct relay_opts o = { .node = b.nodes[1].rpc,
                            .view = b.view,
                            .self = "b",
                            .follows = follows,
                            .cookie = &asked_b,
                            .metrics = b.rpc.metrics };
    struct relay *relay = relay_new(&o);
    for (size_t i = 0; i < 3; i++) {
        rpc_serve(b.nodes[i].rpc, RPC_SPACE, serve, &b.nodes[i]);
        put_live(&b, &b.nodes[i]);
    }
    b.nodes[2].leads = true;
    put_map(&b);
    put_leader(&b, 0, 1, "a");
    rpc_bed_sleep(&b.rpc, 500);
    (void)route_helper(b.route, 0, RPC_SPACE, NULL, &way); /* greets it */
    rpc_bed_sleep(&b.rpc, 500);
    (void)ask_of(&b, 0, RPC_SPACE, 2000);
    rpc_bed_sleep(&b.rpc, 2500);
    assert_int_equal(b.ends, 1);
    assert_int_equal(b.code, ERR_UNAVAILABLE);
    assert_true(b.nodes[0].asked > 2 && asked_b == 0);

    coord_site_away(b.site, true);
    rpc_mem_faults(b.rpc.net, &(struct rpc_mem_faults){ .delay_min_ms = 1, .delay_max_ms = 1 });
    rpc_bed_sleep(&b.rpc, 5000);
    route_failed(b.route, 0, true); /* straight, whatever failed so far */
    assert_false(route_uses_relay(b.route, 0));
    for (int i = 0; i < 2; i++) /* one query may have several questions: they fail at once */
        (void)ask_of(&b, 0, RPC_SPACE, 2000);
    rpc_bed_sleep(&b.rpc, 1000);
    assert_int_equal(b.ends, 3);
    assert_int_equal(b.code, 0);
    assert_string_equal(b.reply, "c");
    asked_a = b.nodes[0].asked;
    for (int i = 0; i < 5; i++) { /* at once, from now on */
        (void)ask_of(&b, 0, RPC_SPACE, 2000);
        rpc_bed_sleep(&b.rpc, 20);
        assert_int_equal(b.ends, 4 + i);
        assert_string_equal(b.reply, "c");
    }
    assert_int_equal(b.nodes[0].asked, asked_a);

    coord_site_away(b.site, false);
    rpc_bed_sleep(&b.rpc, 20000);
    b.nodes[0].leads = true;
    (void)ask_of(&b, 0, RPC_SPACE, 2000);
    rpc_bed_sleep(&b.rpc, 100);
    assert_int_equal(b.ends, 9);
    assert_string_equal(b.reply, "a");
    rpc_node_free(b.nodes[1].rpc);
    relay_free(relay);
    b.nodes[1].rpc = NULL;
    bed_close(&b);
}

static void test_ends(void **state)
{
    struct bed b;
    struct route_call *c;

    (void)state;
    bed_open(&b);
    /* No node is known: the answer comes at the deadline, and never from inside the call. */
    (void)ask(&b, 0, 300);
    assert_int_equal(b.ends, 0);
    rpc_bed_sleep(&b.rpc, 1000);
    assert_int_equal(b.ends, 1);
    assert_int_equal(b.code, ERR_UNAVAILABLE);

    c = ask(&b, 0, 5000); /* waiting to be sent again */
    rpc_bed_sleep(&b.rpc, 100);
    route_cancel(c);
    put_live(&b, &b.nodes[0]);
    put_map(&b);
    put_leader(&b, 0, 1, "a");
    b.nodes[0].leads = true;
    rpc_bed_sleep(&b.rpc, 500);
    c = ask(&b, 0, 5000); /* on its way */
    route_cancel(c);
    rpc_bed_sleep(&b.rpc, 6000);
    assert_int_equal(b.ends, 1);
    bed_close(&b);
}

/* A read outlives a fail-over, and is answered with the reason where no other node takes over. */
static void test_reads_end_early(void **state)
{
    struct coord_key key = key_live(PREFIX, "a");
    struct bed b;

    (void)state;
    bed_open(&b);
    put_live(&b, &b.nodes[0]);
    put_live(&b, &b.nodes[1]);
    put_live(&b, &b.nodes[2]);
    put_map(&b);
    put_leader(&b, 0, 1, "a");
    put_leader(&b, 1, 1, "b");
    for (size_t i = 0; i < 3; i++)
        rpc_serve(b.nodes[i].rpc, RPC_MERGE, serve, &b.nodes[i]);
    rpc_bed_sleep(&b.rpc, 500);
    /* The node that should lead refuses each time. */
    (void)ask_of(&b, 0, RPC_MERGE, 60000);
    (void)ask(&b, 0, 60000);
    rpc_bed_sleep(&b.rpc, 13000);
    assert_int_equal(b.ends, 0);
    rpc_bed_sleep(&b.rpc, 5000);
    assert_int_equal(b.ends, 1);
    assert_int_equal(b.code, ERR_UNAVAILABLE);
    assert_non_null(strstr(b.text, "a does not lead"));
    /* What is no read waits on. */
    b.nodes[0].leads = true;
    rpc_bed_sleep(&b.rpc, 1000);
    assert_int_equal(b.ends, 2);
    assert_string_equal(b.reply, "a");
    /* Its leader is gone for three seconds: it is waited for. */
    b.nodes[0].leads = false;
    coord_site_del(b.site, key_str(&key));
    (void)ask_of(&b, 0, RPC_MERGE, 60000);
    rpc_bed_sleep(&b.rpc, 3000);
    assert_int_equal(b.ends, 2);
    put_live(&b, &b.nodes[0]);
    b.nodes[0].leads = true;
    rpc_bed_sleep(&b.rpc, 1000);
    assert_int_equal(b.ends, 3);
    assert_int_equal(b.code, 0);
    /* For longer: not in 60 s, and then at once. */
    b.nodes[0].leads = false;
    coord_site_del(b.site, key_str(&key));
    (void)ask_of(&b, 0, RPC_MERGE, 60000);
    rpc_bed_sleep(&b.rpc, 7000);
    assert_int_equal(b.ends, 4);
    assert_int_equal(b.code, ERR_UNAVAILABLE);
    assert_non_null(strstr(b.text, "shard 0 has no leader"));
    (void)ask_of(&b, 0, RPC_MERGE, 60000);
    rpc_bed_sleep(&b.rpc, 1000);
    assert_int_equal(b.ends, 5);
    bed_close(&b);
}

/* While a cluster is made its shards are placed one after the other. */
static void test_not_placed(void **state)
{
    struct bed b;
    char why[160];

    (void)state;
    bed_open(&b);
    put_live(&b, &b.nodes[0]);
    put_live(&b, &b.nodes[1]);
    put_map(&b);
    put_leader(&b, 0, 1, "a");
    rpc_bed_sleep(&b.rpc, 500);
    assert_false(route_ready(b.route, why, sizeof(why)));
    assert_string_equal(why, "shard 1 is not placed yet");
    put_leader(&b, 1, 1, "b");
    rpc_bed_sleep(&b.rpc, 500);
    assert_true(route_ready(b.route, why, sizeof(why)));
    bed_close(&b);
}

/* A shard without a leader makes us unready, but not at once: a fail-over is no reason. */
static void test_patience(void **state)
{
    struct bed b;
    char why[160];

    (void)state;
    bed_open(&b);
    put_live(&b, &b.nodes[0]);
    put_live(&b, &b.nodes[1]);
    put_map(&b);
    put_leader(&b, 0, 1, "a");
    put_leader(&b, 1, 1, "b");
    rpc_bed_sleep(&b.rpc, 500);
    assert_true(route_ready(b.route, why, sizeof(why)));
    struct coord_key key = key_live(PREFIX, "b");
    coord_site_del(b.site, key_str(&key));
    rpc_bed_sleep(&b.rpc, 500);
    assert_true(route_ready(b.route, why, sizeof(why)));
    rpc_bed_sleep(&b.rpc, 1000);
    assert_false(route_ready(b.route, why, sizeof(why)));
    assert_string_equal(why, "shard 1 has no leader");
    put_leader(&b, 1, 2, "a"); /* alone: it can store nothing */
    rpc_bed_sleep(&b.rpc, 500);
    assert_false(route_ready(b.route, why, sizeof(why)));
    assert_string_equal(why, "half or more of the copies of shard 0 are gone");
    put_live(&b, &b.nodes[1]);
    rpc_bed_sleep(&b.rpc, 500);
    assert_true(route_ready(b.route, why, sizeof(why)));
    coord_site_del(b.site, key_str(&key));
    rpc_bed_sleep(&b.rpc, 800);
    assert_true(route_ready(b.route, why, sizeof(why))); /* not at once either */
    rpc_bed_sleep(&b.rpc, 700);
    assert_false(route_ready(b.route, why, sizeof(why)));
    bed_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_follows_the_leader),
        cmocka_unit_test(test_who_may_help),
        cmocka_unit_test(test_unimplemented),
        cmocka_unit_test(test_view_is_late),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_reads_end_early),
        cmocka_unit_test(test_not_placed),
        cmocka_unit_test(test_patience),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

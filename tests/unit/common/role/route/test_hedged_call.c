/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls find a way round: when, by whom, how often; and whatever the other way does, each ends once
 * and a success is a success.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "common/role/route/hedged_call.h"
#include "common/role/route/relay.h"
#include "common/role/route/route_impl.h"
#include "tests/lib/net/rpc_bed.h"

#define NODES    3
#define HEDGE_MS 50
#define HELD_MAX 64

enum answer { ANSWER, HOLD, REFUSE };

struct bed;
struct node {
    struct bed *bed;
    char name[8], addr[128];
    struct rpc_node *rpc;
    struct view *view;
    struct relay *relay; /* NULL: an older build */
    enum answer answer;
    size_t asked;
    uint64_t left_ms;
    struct rpc_call *held[HELD_MAX];
    size_t held_len;
};
struct bed {
    struct rpc_bed rpc;
    struct node nodes[NODES];
    struct view *view;
    struct rpc_node *client;
    char client_addr[128];
    struct route *route;
    struct hedged_call race;
    bool never_more;
    int ends, code;
    char reply[64], text[ERR_TEXT_MAX];
};

/* ---- the bed -------------------------------------------------------------------------------- */

static void reply(struct rpc_call *call, const char *text)
{
    struct buf out;

    buf_init(&out, 64);
    (void)buf_add_str(&out, str_c(text));
    rpc_reply(call, &out);
}

/* Says who answered, and what it was asked. */
static void serve(void *cookie, struct rpc_call *call, struct str payload)
{
    struct node *n = cookie;
    char text[64];
    struct err e;

    n->asked++;
    n->left_ms = rpc_call_left_ms(call);
    if (n->answer == HOLD) {
        assert_true(n->held_len < HELD_MAX);
        n->held[n->held_len++] = call;
    } else if (n->answer == REFUSE) {
        (void)err_set(&e, ERR_LIMIT, "%s will not", n->name);
        rpc_fail(call, &e);
    } else {
        (void)snprintf(text, sizeof(text), "%s:%.*s", n->name, STR_ARG(payload));
        reply(call, text);
    }
}

static void release(struct node *n)
{
    n->answer = ANSWER;
    for (size_t i = 0; i < n->held_len; i++)
        reply(n->held[i], n->name);
    n->held_len = 0;
}

/* Shard 0 is led by `leader`, the others follow. */
static struct view *view_of(struct bed *b, size_t leader)
{
    struct map_node nodes[NODES] = { 0 };
    struct name_set set = { 0 };
    struct map from = { .version = 1,
                        .shards = 1,
                        .replicas = NODES,
                        .nodes = nodes,
                        .nodes_len = NODES,
                        .replicas_of = &set };
    const struct map *m;
    struct view *v;
    struct err e;

    assert_true(name_set_add(&set, b->nodes[leader].name));
    for (size_t i = 0; i < NODES; i++) {
        (void)snprintf(nodes[i].name, sizeof(nodes[i].name), "%s", b->nodes[i].name);
        (void)snprintf(nodes[i].addr, sizeof(nodes[i].addr), "%s", b->nodes[i].addr);
        if (i != leader)
            assert_true(name_set_add(&set, b->nodes[i].name));
    }
    assert_int_equal(map_new(&from, &m, &e), 0);
    assert_int_equal(view_new_static(m, &v, &e), 0);
    map_unref(m);
    return v;
}

static struct rpc_node *node_up(struct bed *b, const char *addr)
{
    struct rpc_node_opts o = rpc_bed_opts(&b->rpc, addr);
    struct rpc_node *n;
    struct err e;

    o.dead_ms = 3000;
    assert_int_equal(rpc_node_new(&o, &n, &e), 0);
    return n;
}

static void start_relay(struct node *n, size_t calls_max, size_t bytes_max)
{
    struct relay_opts o = { .node = n->rpc,
                            .view = n->view,
                            .self = n->name,
                            .metrics = n->bed->rpc.metrics,
                            .calls_max = calls_max,
                            .bytes_max = bytes_max };

    n->relay = relay_new(&o);
}

static void bed_open(struct bed *b)
{
    struct route_opts o = { .hedge_ms = HEDGE_MS };
    struct err e;

    *b = (struct bed){ 0 };
    rpc_bed_init(&b->rpc, RPC_BED_MEM, 7);
    for (size_t i = 0; i < NODES; i++) {
        struct node *n = &b->nodes[i];

        n->bed = b;
        (void)snprintf(n->name, sizeof(n->name), "%c", (char)('a' + i));
        rpc_bed_addr(&b->rpc, n->addr);
    }
    for (size_t i = 0; i < NODES; i++) {
        struct node *n = &b->nodes[i];

        n->view = view_of(b, 0);
        n->rpc = node_up(b, n->addr);
        rpc_serve(n->rpc, RPC_WRITE, serve, n);
        rpc_serve(n->rpc, RPC_MERGE, serve, n);
        rpc_serve(n->rpc, RPC_DOC, serve, n);
        start_relay(n, 0, 0);
    }
    for (size_t i = 0; i < NODES; i++)
        for (size_t k = 0; k < NODES; k++) {
            struct rpc_peer *p;
            if (i != k)
                assert_int_equal(rpc_peer_get(b->nodes[i].rpc, b->nodes[k].addr, &p, &e), 0);
        }
    b->view = view_of(b, 0);
    rpc_bed_addr(&b->rpc, b->client_addr);
    b->client = node_up(b, b->client_addr);
    o.node = b->client;
    o.loop = b->rpc.loop;
    o.view = b->view;
    o.metrics = b->rpc.metrics;
    assert_int_equal(route_new(&o, &b->route, &e), 0);
    for (size_t i = 0; i < NODES; i++) {
        struct rpc_peer *p;
        assert_int_equal(rpc_peer_get(b->client, b->nodes[i].addr, &p, &e), 0);
    }
    rpc_bed_sleep(&b->rpc, 200);
}

static void bed_close(struct bed *b)
{
    rpc_node_free(b->client);
    for (size_t i = 0; i < NODES; i++) {
        release(&b->nodes[i]);
        rpc_node_free(b->nodes[i].rpc);
        relay_free(b->nodes[i].relay);
        view_free(b->nodes[i].view);
    }
    route_free(b->route);
    view_free(b->view);
    rpc_bed_deinit(&b->rpc);
}

static uint64_t metric(struct bed *b, const char *what)
{
    char name[80];

    (void)snprintf(name, sizeof(name), "embertree_%s", what);
    return rpc_bed_metric(&b->rpc, name);
}

static void on_done(void *cookie, struct str got, const struct err *err)
{
    struct bed *b = cookie;

    b->ends++;
    b->code = err ? err->code : 0;
    (void)snprintf(b->reply, sizeof(b->reply), "%.*s", (int)MIN(got.len, 60u), got.ptr);
    (void)snprintf(b->text, sizeof(b->text), "%s", err ? err->text : "");
}

static void say(struct buf *out, const char *text)
{
    buf_init(out, 64);
    (void)buf_add_str(out, str_c(text));
}

static void on_more(void *cookie)
{
    struct bed *b = cookie;
    struct buf p;

    if (b->never_more)
        return;
    say(&p, "again");
    if (!hedged_call_send_second(&b->race, RPC_WRITE, &p))
        buf_deinit(&p);
}

static void start(struct bed *b, uint64_t deadline_ms)
{
    struct hedged_call_opts o = {
        .route = b->route, .deadline_ms = deadline_ms, .more = on_more, .done = on_done, .cookie = b
    };
    struct buf p;
    struct err e;

    say(&p, "first");
    b->ends = 0;
    assert_int_equal(hedged_call_begin(&b->race, &o, RPC_WRITE, &p, &e), 0);
    assert_int_equal(b->ends, 0);
}

static bool ended(void *cookie)
{
    return ((struct bed *)cookie)->ends > 0;
}

/* Returns how many ms it took; ends exactly once. */
static uint64_t run(struct bed *b, uint64_t deadline_ms)
{
    uint64_t began = clock_mono_ms(loop_clock(b->rpc.loop)), took;

    start(b, deadline_ms);
    assert_true(rpc_bed_run(&b->rpc, ended, b, deadline_ms + 1000));
    took = clock_mono_ms(loop_clock(b->rpc.loop)) - began;
    assert_false(hedged_call_runs(&b->race));
    rpc_bed_sleep(&b->rpc, 10);
    assert_int_equal(b->ends, 1);
    return took;
}

static void cut(struct bed *b, const char *from, const char *to)
{
    rpc_mem_cut(b->rpc.net, from, to);
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void test_straight(void **state)
{
    struct bed b;

    (void)state;
    bed_open(&b);
    for (int i = 0; i < 50; i++) {
        (void)run(&b, 3000);
        assert_int_equal(b.code, 0);
        assert_string_equal(b.reply, "a:first");
    }
    assert_int_equal(b.nodes[0].asked, 50);
    assert_int_equal(metric(&b, "route_hedged_total"), 0);
    assert_int_equal(metric(&b, "route_relayed_total"), 0);
    bed_close(&b);
}

/* One way or the other: the second copy brings the answer, and what follows goes round at once. */
static void test_cut_line(void **state)
{
    (void)state;
    for (int way = 0; way < 2; way++) {
        struct bed b;

        bed_open(&b);
        (void)run(&b, 3000);
        if (way)
            cut(&b, b.nodes[0].addr, b.client_addr);
        else
            cut(&b, b.client_addr, b.nodes[0].addr);
        assert_true(run(&b, 3000) < 400);
        assert_int_equal(b.code, 0);
        assert_string_equal(b.reply, "a:again");
        assert_int_equal(b.nodes[0].asked, way ? 3 : 2); /* the first copy was served as well */
        assert_int_equal(metric(&b, "route_hedged_total"), 1);
        assert_int_equal(metric(&b, "route_hedge_won_total"), 1);
        for (int i = 0; i < 5; i++) {
            assert_true(run(&b, 3000) < 20);
            assert_string_equal(b.reply, "a:first");
        }
        assert_int_equal(metric(&b, "route_relayed_total"), 5);
        assert_int_equal(metric(&b, "route_hedged_total"), 1);

        /* In the end it is known to be down; and then all is well again. */
        rpc_bed_sleep(&b.rpc, 5000);
        assert_true(run(&b, 3000) < 20);
        assert_int_equal(metric(&b, "route_relayed_total"), 6);
        rpc_mem_heal(b.rpc.net);
        rpc_bed_sleep(&b.rpc, 20000);
        assert_true(run(&b, 3000) < 20);
        assert_int_equal(metric(&b, "route_relayed_total"), 6);
        bed_close(&b);
    }
}

/* The leader is slow, not the way: both copies come to it, it answers both, and one counts. */
static void test_slow_leader(void **state)
{
    struct bed b;

    (void)state;
    bed_open(&b);
    (void)run(&b, 3000);
    b.nodes[0].answer = HOLD;
    start(&b, 3000);
    rpc_bed_sleep(&b.rpc, 1000);
    assert_int_equal(b.ends, 0);
    assert_int_equal(b.nodes[0].held_len, 2);
    assert_true(b.nodes[0].left_ms > 1000 && b.nodes[0].left_ms <= 3000); /* it goes along */
    release(&b.nodes[0]);
    rpc_bed_sleep(&b.rpc, 100);
    assert_int_equal(b.ends, 1);
    assert_int_equal(b.code, 0);
    /* The answer of a copy that no caller waits for any more is ignored. */
    rpc_bed_sleep(&b.rpc, 5000);
    assert_int_equal(b.ends, 1);
    assert_int_equal(metric(&b, "relay_calls_working"), 0);

    /* Not even going round helps: after that, calls go straight for a while. */
    b.nodes[0].answer = HOLD;
    assert_true(run(&b, 500) >= 500);
    assert_int_equal(b.code, ERR_TIMEOUT);
    bed_close(&b);
}

static void test_given_up(void **state)
{
    struct bed b;

    (void)state;
    bed_open(&b);
    b.nodes[0].answer = HOLD;
    start(&b, 5000);
    rpc_bed_sleep(&b.rpc, 500);
    assert_int_equal(b.nodes[0].held_len, 2);
    hedged_call_cancel(&b.race);
    hedged_call_cancel(&b.race);
    rpc_bed_sleep(&b.rpc, 100);
    assert_int_equal(b.ends, 0);
    assert_int_equal(metric(&b, "relay_calls_working"), 0);
    for (size_t i = 0; i < 2; i++)
        assert_true(*rpc_call_canceled(b.nodes[0].held[i]));
    bed_close(&b);
}

/* Helpers of an older build, without a leader, or in error: never worse than none at all. */
static void test_poor_helpers(void **state)
{
    struct bed b;

    (void)state;
    bed_open(&b);
    for (size_t i = 1; i < NODES; i++)
        rpc_serve(b.nodes[i].rpc, RPC_RELAY, NULL, NULL);
    for (int i = 0; i < 3; i++) {
        b.nodes[0].answer = HOLD;
        start(&b, 3000);
        rpc_bed_sleep(&b.rpc, 1700);
        assert_int_equal(b.ends, 0); /* the helper's error is no answer */
        release(&b.nodes[0]);
        rpc_bed_sleep(&b.rpc, 100);
        assert_int_equal(b.ends, 1);
        assert_int_equal(b.code, 0);
    }
    assert_int_equal(metric(&b, "route_hedged_total"), 2); /* one each, then never again */

    /* The direct path is cut, and no node can help: the same as without helpers. */
    cut(&b, b.client_addr, b.nodes[0].addr);
    (void)run(&b, 1000);
    assert_int_equal(b.code, ERR_TIMEOUT);
    assert_null(strstr(b.text, "relayed by"));
    bed_close(&b);
}

/* Of two errors the caller gets the error of the direct call, but the leader's answer through a
 * helper is preferred to a timeout. */
static void test_errors(void **state)
{
    struct bed b;

    (void)state;
    bed_open(&b);
    cut(&b, b.client_addr, b.nodes[0].addr);
    b.nodes[0].answer = REFUSE;
    (void)run(&b, 1000);
    assert_int_equal(b.code, ERR_LIMIT);
    assert_non_null(strstr(b.text, "a will not"));
    assert_non_null(strstr(b.text, "relayed by mem://"));
    rpc_mem_heal(b.rpc.net);
    rpc_bed_sleep(&b.rpc, 30000);
    (void)run(&b, 1000);
    assert_int_equal(b.code, ERR_LIMIT);
    assert_string_equal(b.text, "a will not");

    /* Everything is cut. */
    cut(&b, b.client_addr, "*");
    (void)run(&b, 1000);
    assert_int_equal(b.code, ERR_TIMEOUT);
    bed_close(&b);
}

/* The helper sees further: another one leads, or it leads itself. */
static void test_newer_view(void **state)
{
    (void)state;
    for (size_t leader = 1; leader < NODES; leader++) {
        struct bed b;

        bed_open(&b);
        for (size_t i = 1; i < NODES; i++) {
            relay_free(b.nodes[i].relay);
            view_free(b.nodes[i].view);
            b.nodes[i].view = view_of(&b, leader);
            start_relay(&b.nodes[i], 0, 0);
        }
        b.nodes[0].answer = HOLD;
        (void)run(&b, 3000);
        assert_int_equal(b.code, 0);
        assert_string_equal(b.reply, leader == 1 ? "b:again" : "c:again");
        assert_int_equal(b.nodes[leader].asked, 1);
        bed_close(&b);
    }
}

/* Two that take each other for the leader: one hop, then an error. */
static void test_no_loops(void **state)
{
    struct bed b;
    struct relay_call call = { RPC_WRITE, 0, STR("x") };
    struct rpc_bed_call c;
    struct rpc_peer *p;
    struct buf in;
    struct err e;

    (void)state;
    bed_open(&b);
    for (size_t i = 1; i < NODES; i++) {
        relay_free(b.nodes[i].relay);
        view_free(b.nodes[i].view);
        b.nodes[i].view = view_of(&b, NODES - i);
        start_relay(&b.nodes[i], 0, 0);
    }
    assert_int_equal(rpc_peer_get(b.client, b.nodes[1].addr, &p, &e), 0);
    relay_pack(&call, &in);
    rpc_bed_call(&c, p, RPC_RELAY, buf_str(&in), 1000);
    assert_int_equal(rpc_bed_end(&b.rpc, &c), 0); /* c is asked itself, whatever it believes */
    assert_int_equal(b.nodes[1].asked, 0);
    assert_int_equal(b.nodes[2].asked, 1);
    rpc_bed_call_deinit(&c);
    buf_deinit(&in);

    /* A relay of a relay, methods between replicas, shards that are not, cut off bytes. */
    static const struct {
        unsigned method, shard;
        size_t len;
        int code;
    } rows[] = {
        { RPC_RELAY, 0, 99, ERR_INPUT },
        { RPC_REPL_APPEND, 0, 99, ERR_INPUT },
        { RPC_STATUS, 0, 99, ERR_INPUT },
        { 0, 0, 99, ERR_INPUT },
        { 65535, 0, 99, ERR_INPUT },
        { RPC_WRITE, 1, 99, ERR_UNAVAILABLE },
        { RPC_WRITE, ~0u, 99, ERR_UNAVAILABLE },
        { RPC_WRITE, 0, 11, ERR_INPUT },
        { RPC_WRITE, 0, 0, ERR_INPUT },
        { RPC_LABELS, 0, 99, ERR_UNIMPLEMENTED },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        call = (struct relay_call){ (enum rpc_method)rows[i].method, rows[i].shard, STR("x") };
        relay_pack(&call, &in);
        rpc_bed_call(&c, p, RPC_RELAY, str_sub(buf_str(&in), 0, MIN(rows[i].len, in.len)), 1000);
        if (rpc_bed_end(&b.rpc, &c) != rows[i].code)
            fail_msg("row %zu: %d %s", i, c.code, c.text);
        rpc_bed_call_deinit(&c);
        buf_deinit(&in);
    }
    bed_close(&b);
}

/* A helper passes on no more than it may. */
static void test_helper_is_bounded(void **state)
{
    enum { CALLS = 6 };
    struct rpc_bed_call c[CALLS];
    struct relay_call call = { RPC_WRITE, 0, STR("0123456789") };
    struct rpc_peer *p;
    struct bed b;
    struct err e;
    int refused = 0;

    (void)state;
    bed_open(&b);
    relay_free(b.nodes[1].relay);
    start_relay(&b.nodes[1], 4, 25);
    assert_int_equal(rpc_peer_get(b.client, b.nodes[1].addr, &p, &e), 0);
    b.nodes[0].answer = HOLD;
    for (size_t i = 0; i < CALLS; i++) {
        struct buf in;

        relay_pack(&call, &in);
        rpc_bed_call(&c[i], p, RPC_RELAY, buf_str(&in), 60000);
        buf_deinit(&in);
    }
    rpc_bed_sleep(&b.rpc, 500);
    assert_int_equal(b.nodes[0].held_len, 2); /* 20 of 25 bytes */
    assert_int_equal(metric(&b, "relay_calls_working"), 2);
    release(&b.nodes[0]);
    for (size_t i = 0; i < CALLS; i++) {
        int code = rpc_bed_end(&b.rpc, &c[i]);

        assert_true(code == 0 || code == ERR_UNAVAILABLE);
        refused += code != 0;
        rpc_bed_call_deinit(&c[i]);
    }
    assert_int_equal(refused, CALLS - 2);
    assert_int_equal(metric(&b, "relay_calls_working"), 0);

    call.payload = STR("");
    b.nodes[0].answer = HOLD;
    for (size_t i = 0; i < CALLS; i++) {
        struct buf in;

        relay_pack(&call, &in);
        rpc_bed_call(&c[i], p, RPC_RELAY, buf_str(&in), 60000);
        buf_deinit(&in);
    }
    rpc_bed_sleep(&b.rpc, 500);
    assert_int_equal(b.nodes[0].held_len, 4);
    release(&b.nodes[0]);
    for (size_t i = 0; i < CALLS; i++) {
        (void)rpc_bed_end(&b.rpc, &c[i]);
        rpc_bed_call_deinit(&c[i]);
    }
    bed_close(&b);
}

/* ---- how many -------------------------------------------------------------------------------- */

struct many {
    struct bed *b;
    struct hedged_call race;
    bool over;
};

static void many_more(void *cookie)
{
    struct many *m = cookie;
    struct buf p;

    say(&p, "again");
    if (!hedged_call_send_second(&m->race, RPC_WRITE, &p))
        buf_deinit(&p);
}

static void many_done(void *cookie, struct str got, const struct err *err)
{
    struct many *m = cookie;

    (void)got, (void)err;
    m->over = true;
}

/* Everything is late at once: few calls are sent twice, however many there are. */
static void test_hedges_are_few(void **state)
{
    enum { CALLS = 40, ROUNDS = 5 };
    static struct many m[CALLS];
    struct bed b;

    (void)state;
    bed_open(&b);
    for (int round = 0; round < ROUNDS; round++) {
        b.nodes[0].answer = HOLD;
        for (size_t i = 0; i < CALLS; i++) {
            struct hedged_call_opts o = { .route = b.route,
                                          .deadline_ms = 3000,
                                          .more = many_more,
                                          .done = many_done,
                                          .cookie = &m[i] };
            struct buf p;
            struct err e;

            m[i] = (struct many){ .b = &b };
            say(&p, "first");
            assert_int_equal(hedged_call_begin(&m[i].race, &o, RPC_WRITE, &p, &e), 0);
        }
        rpc_bed_sleep(&b.rpc, 400);
        release(&b.nodes[0]);
        rpc_bed_sleep(&b.rpc, 100);
        for (size_t i = 0; i < CALLS; i++)
            assert_true(m[i].over);
    }
    uint64_t hedged = metric(&b, "route_hedged_total");

    /* Ten saved up, 5 % of the calls, one a second. */
    assert_true(hedged >= 10 && hedged <= 10 + CALLS * ROUNDS / 20 + ROUNDS);
    assert_true(metric(&b, "route_hedge_refused_total") >= CALLS - 15);
    bed_close(&b);
}

/* ---- questions ------------------------------------------------------------------------------- */

static void ask(struct bed *b, enum rpc_method method)
{
    struct buf p;

    say(&p, "read");
    b->ends = 0;
    (void)route_ask(
        b->route,
        &(struct route_query){
            .target = 0, .method = method, .deadline_ms = 3000, .done = on_done, .cookie = b },
        &p);
}

/* Reads of queries are sent twice, documents are not; but both go round a dead way. */
static void test_questions(void **state)
{
    struct bed b;

    (void)state;
    bed_open(&b);
    cut(&b, b.client_addr, b.nodes[0].addr);
    ask(&b, RPC_MERGE);
    rpc_bed_sleep(&b.rpc, 1000);
    assert_int_equal(b.ends, 1);
    assert_int_equal(b.code, 0);
    assert_string_equal(b.reply, "a:read");
    assert_int_equal(metric(&b, "route_hedge_won_total"), 1);
    ask(&b, RPC_DOC); /* it is avoided already */
    rpc_bed_sleep(&b.rpc, 100);
    assert_int_equal(b.ends, 1);
    assert_string_equal(b.reply, "a:read");

    rpc_mem_heal(b.rpc.net);
    rpc_bed_sleep(&b.rpc, 30000);
    uint64_t hedged = metric(&b, "route_hedged_total");
    cut(&b, b.client_addr, b.nodes[0].addr);
    ask(&b, RPC_DOC);
    rpc_bed_sleep(&b.rpc, 2000);
    assert_int_equal(b.ends, 0);
    rpc_bed_sleep(&b.rpc, 3000); /* the way is known to be down: another attempt goes round */
    assert_int_equal(b.ends, 1);
    assert_int_equal(metric(&b, "route_hedged_total"), hedged);
    bed_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_straight),          cmocka_unit_test(test_cut_line),
        cmocka_unit_test(test_slow_leader),       cmocka_unit_test(test_given_up),
        cmocka_unit_test(test_poor_helpers),      cmocka_unit_test(test_errors),
        cmocka_unit_test(test_newer_view),        cmocka_unit_test(test_no_loops),
        cmocka_unit_test(test_helper_is_bounded), cmocka_unit_test(test_hedges_are_few),
        cmocka_unit_test(test_questions),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
